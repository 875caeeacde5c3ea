"""Commands on operators: register, change and delete remote ones; store and delete data of built-in ones. Each changes
the row, the registry and the matcher in one group."""

import msgspec
from sqlalchemy import Connection

from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.language import is_keyword
from kindcast.server.broker.group import Group
from kindcast.server.errors import OperatorFixed, OperatorInUse, TooManyOperators, UnknownOperator
from kindcast.server.operators.registry import CALLED, Key, Piece, Registration, Registry
from kindcast.server.store import declarations, servers

__all__ = ["LISTED", "forget_data", "keep_data", "register", "unregister"]

LISTED = 20
"""The maximum number of subscription ids in an error. The count in it is complete."""


def register(group: Group, name: str, registration: Registration, *, limit: int) -> bool:
    """Registers a remote operator, or replaces the one of that name. Returns whether it is new.

    Raises `OperatorFixed`, `TooManyOperators`, `InvalidDeclaration`.
    """
    registry = group.state.operators
    entry = registry.entries.get(name)
    if entry is not None and entry.kind in ("builtin", "plugin"):
        raise OperatorFixed(f"{name!r} belongs to the server or a plug-in: choose another name")
    if is_keyword(name):
        raise InvalidDeclaration(
            f"{name!r} is a keyword of subscriptions, which could not call it: choose another name"
        )
    if entry is None and sum(each.kind == "remote" for each in registry.entries.values()) >= limit:
        raise TooManyOperators(f"this server takes at most {limit:,} remote operators")
    changed = registry.with_remote(name, registration)
    new = declarations.put_operator(group.connection, name, msgspec.to_builtins(registration), group.now)
    _close_circuit(group.connection, name)
    _use(group, changed)
    return new


def unregister(group: Group, name: str) -> None:
    """Deletes a remote operator. Raises `UnknownOperator`, `OperatorFixed`, `OperatorInUse`."""
    registry = group.state.operators
    entry = registry.entries.get(name)
    if entry is None or entry.kind == "missing":
        raise UnknownOperator(name)
    if entry.kind != "remote":
        raise OperatorFixed(f"{name!r} belongs to the server or a plug-in: it cannot be deleted")
    uses = declarations.count_uses(group.connection).get(name, 0)
    if uses:
        raise OperatorInUse(name, uses, declarations.uses_of(group.connection, name, limit=LISTED))
    declarations.delete_operator(group.connection, name)
    _close_circuit(group.connection, name)
    _use(group, registry.without(name))


def keep_data(group: Group, key: Key, piece: Piece, document: bytes) -> bool:
    """Stores `document` and gives its content, `piece`, to the built-in operators. Returns whether the key is new.

    Raises `InvalidDeclaration`.
    """
    registry = group.state.operators
    changed = registry.with_data(registry.data.with_upload(key, piece))
    new = declarations.put_data(group.connection, *key, document, group.now)
    _use(group, changed)
    return new


def forget_data(group: Group, key: Key) -> bool:
    """Deletes uploaded data. Returns whether there was any. Raises `OperatorInUse` while subscriptions call an operator
    that reads data of this kind."""
    registry = group.state.operators
    if key not in registry.data.uploaded:
        return False
    uses = declarations.count_uses(group.connection)
    for name in CALLED[key[0]]:
        if uses.get(name):
            raise OperatorInUse(name, uses[name], declarations.uses_of(group.connection, name, limit=LISTED))
    declarations.delete_data(group.connection, *key)
    _use(group, registry.with_data(registry.data.without_upload(key)))
    return True


def _close_circuit(connection: Connection, name: str) -> None:
    """Another registration begins with a closed circuit, at all servers of the database."""
    if connection.dialect.name == "postgresql":
        servers.forget_circuit(connection, name)


def _use(group: Group, registry: Registry) -> None:
    state, before = group.state, group.state.operators
    state.operators = registry
    group.others_read(servers.OPERATORS)
    for operator in registry.known.values():
        state.matcher.declare(operator)

    def undo() -> None:
        state.operators = before
        for operator in before.known.values():
            state.matcher.declare(operator)

    group.on_undo(undo)
