"""Which operators there are: built in, from plug-ins, remote. One frozen book, replaced as a whole when it changes.

`available` is what new subscriptions may call. `known` has besides, for every operator that is gone while stored
subscriptions still call it, one that never answers: their events wait for it instead of passing them by.
"""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from semantic.operators.declaration import Operator
from server.operators.asking import Deferred, missing
from server.operators.data import OwnData
from server.operators.registration import Registration, as_operator

__all__ = ["EMPTY", "Entry", "Registry"]

Kind = Literal["builtin", "plugin", "remote", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An operator as it was declared, and where it runs. `registration` is that of a remote one."""

    operator: Operator
    kind: Kind
    registration: Registration | None = None


@dataclass(frozen=True, slots=True)
class Registry:
    """Immutable; any thread."""

    entries: Mapping[str, Entry] = field(default_factory=dict)
    data: OwnData = field(default_factory=OwnData)
    """What the built-in ones know."""

    @classmethod
    def of(cls, data: OwnData, plugins: Iterable[Operator]) -> "Registry":
        """Those of this server's own; a plug-in wins over a built-in operator of its name."""
        entries = {each.name: Entry(operator=each, kind="builtin") for each in data.operators()}
        entries |= {each.name: Entry(operator=each, kind="plugin") for each in plugins}
        return cls(entries, data)

    @property
    def available(self) -> Mapping[str, Operator]:
        """What a new subscription may call."""
        return {name: _deferred(each) for name, each in self.entries.items() if each.kind != "missing"}

    @property
    def known(self) -> Mapping[str, Operator]:
        """What stored subscriptions call."""
        return {name: _deferred(each) for name, each in self.entries.items()}

    def with_remote(self, name: str, registration: Registration) -> "Registry":
        """With one more remote operator, or another in place of one of its name. Raises `InvalidDeclaration`."""
        entry = Entry(operator=as_operator(name, registration), kind="remote", registration=registration)
        return replace(self, entries={**self.entries, name: entry})

    def with_data(self, data: OwnData) -> "Registry":
        """With the built-in operators over other data; those whose data are the same stay as they are."""
        changed = dict(self.entries)
        for operator in data.operators():
            before = changed[operator.name]
            if before.kind == "builtin" and before.operator.version != operator.version:
                changed[operator.name] = Entry(operator=operator, kind="builtin")
        return replace(self, entries=changed, data=data)

    def without(self, name: str) -> "Registry":
        """Less one operator."""
        return replace(self, entries={key: each for key, each in self.entries.items() if key != name})

    def with_missing(self, names: Iterable[str]) -> "Registry":
        """With stand-ins for those of `names` that are not there."""
        gone = {name: Entry(operator=_stand_in(name), kind="missing") for name in names if name not in self.entries}
        return replace(self, entries={**self.entries, **gone})


EMPTY = Registry()


def _deferred(entry: Entry) -> Operator:
    """The declaration with a function that asks through `server.operators.asking`."""
    operator = entry.operator
    # How it is run is its caller's business; only what our own operators say of their answers is believed.
    key = operator.cache_key if entry.kind == "builtin" else None
    function = Deferred(operator.name, operator.signature)
    return replace(operator, function=function, batch=None, timeout=None, isolated=False, cache_key=key)


def _stand_in(name: str) -> Operator:
    def gone(event: object, *arguments: object) -> bool:
        raise missing(name)

    return Operator(name=name, function=Deferred(name, inspect.signature(gone)))
