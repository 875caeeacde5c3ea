"""NGSI-LD entities: a member that stands for a value becomes that value (rule 23).

    temperature ─▶ Node(type Property, hasValue 21, unitCode "CEL", observedAt "…")
    temperature ─▶ 21 °C,  temperature.observedAt ─▶ "…"

By the core context the members of both forms, normalized and concise, expand to the same properties of its namespace,
and those of simplified entities to none. So a node is read so where it has a property that holds a value.
"""

from typing import Any

from kindcast.semantic.model import Node, Resource

__all__ = ["simplified"]

NAMESPACE = "https://uri.etsi.org/ngsi-ld/"
HELD = ("Value", "Object", "LanguageMap", "ValueList", "ObjectList", "Values", "Objects", "JSON", "Vocab")
HOLDERS = tuple(f"<{NAMESPACE}has{each}>" for each in HELD)
"""The properties by which a member holds what it stands for."""
_HOLDING = frozenset(HOLDERS)
PREVIOUS = {f"<{NAMESPACE}hasPrevious{each}>": f"previous{each}" for each in HELD}
UNIT = f"<{NAMESPACE}unitCode>"
DELETED = "urn:ngsi-ld:null"
TAGS = ".@language"
_TOLD = frozenset({"@type", UNIT, *(holder + TAGS for holder in HOLDERS)})
"""What is told with the value, or says only that it is one."""


def simplified(node: Node) -> Node:
    """The tree of an entity with what its members stand for; itself where none is a member of NGSI-LD. Linear."""
    for values in node.values():
        if (type(values) is Node or type(values) is list) and any(map(_stands, _listed(values))):
            break
    else:
        return node
    members: dict[str, list[Any]] = {}
    for name, values in node.items():
        for each in values if type(values) is list else (values,):
            _read(name, each, members)
    return Node({name: found[0] if len(found) == 1 else found for name, found in members.items()}, node.value)


def _stands(value: Any) -> bool:
    return type(value) is Node and not _HOLDING.isdisjoint(value)


def _read(name: str, value: Any, members: dict[str, list[Any]]) -> None:
    """Adds what a member gives under dotted names: the values that it holds, and what is said of them."""
    if not _stands(value):
        if not _is_deleted(value):
            members.setdefault(name, []).append(value)
        return
    unit = value.get(UNIT)
    held = [each for each in value if each in _HOLDING]
    for holder in held if len(held) == 1 else sorted(held, key=HOLDERS.index):
        for each in _listed(value[holder]):
            if not _is_deleted(each):
                measured = isinstance(each, int | float) and not isinstance(each, bool) and isinstance(unit, str)
                members.setdefault(name, []).append({"value": each, "unitCode": unit} if measured else each)
        if holder + TAGS in value:
            members.setdefault(name + TAGS, []).extend(_listed(value[holder + TAGS]))
    for inner, values in value.items():
        if inner not in _HOLDING and inner not in _TOLD:
            for each in values if type(values) is list else (values,):
                _read(f"{name}.{PREVIOUS.get(inner, inner)}", each, members)
    if isinstance(unit, str):
        members.setdefault(f"{name}.unitCode", []).append(unit)


def _is_deleted(value: Any) -> bool:
    return value.iri == DELETED if type(value) is Resource else type(value) is str and value == DELETED


def _listed(values: Any) -> list[Any]:
    return values if isinstance(values, list) else [] if values is None else [values]
