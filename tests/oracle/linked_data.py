"""How the oracle reads an event whose data is a graph: from PyLD's expanded form (rules 20 and 21).

Recursive and unbounded: for tests only. It shares nothing with the product but PyLD, by which JSON-LD is defined here.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from pyld import jsonld

__all__ = ["Item", "Rootless", "Thing", "Year", "event_of", "items_of", "names_of", "things_of"]

XSD = "http://www.w3.org/2001/XMLSchema#"
SIGNS = ("nonNegativeInteger", "positiveInteger", "nonPositiveInteger", "negativeInteger")
SIZES = ("long", "int", "short", "byte")
WHOLE = {XSD + name for name in ("integer", *SIGNS, *SIZES, *(f"unsigned{each.title()}" for each in SIZES))}
BROKEN = {XSD + name for name in ("decimal", "double", "float")}


class Rootless(jsonld.JsonLdProcessor):  # type: ignore[misc]  # PyLD has no types
    """PyLD without an address of its own, which it gives to documents that have none."""

    def _expand_iri(self, active_ctx: Any, value: Any, base: Any = None, *given: Any, **named: Any) -> Any:
        return super()._expand_iri(active_ctx, value, base if base or "@base" in active_ctx else None, *given, **named)


class Year(str):
    """A literal of the type xsd:gYear."""

    __slots__ = ()


@dataclass
class Thing:
    """A node as one event tells it: `iri` is None for a blank node; members by property, `^` before one that is stated
    from the other end."""

    iri: str | None
    types: tuple[str, ...] = ()
    members: dict[str, list[Any]] = field(default_factory=dict)
    is_told: bool = True
    """Whether something is stated of it here; else it is only referred to."""


@dataclass(frozen=True)
class Item:
    """One value: where it stands, as segments, a scalar or the node that it is, and the node of which it is stated."""

    path: tuple[str, ...]
    value: Any
    around: Thing | None = field(default=None, compare=False)


def event_of(document: Any, contexts: Mapping[str, Any] | None = None) -> Thing:
    """The one event that a JSON-LD document states."""

    def load(url: str, _: Any) -> dict[str, Any]:
        document = deepcopy((contexts or {})[url])
        return {"contextUrl": None, "documentUrl": url, "document": document, "contentType": "application/ld+json"}

    expanded = Rootless().expand(document, {"documentLoader": load})
    nodes: dict[str, dict[str, Any]] = {}
    roots = [_gather(each, nodes) for each in expanded]
    assert len(set(roots)) == 1, roots
    return _tell(roots[0], nodes, ())


def items_of(thing: Thing, path: tuple[str, ...] = ()) -> Iterator[Item]:
    """Everything that a node states, with its path."""
    if not thing.is_told:
        return
    if thing.iri is not None:
        yield Item((*path, "@id"), Thing(thing.iri, is_told=False))
    for each in thing.types:
        yield Item((*path, "@type"), Thing(each, is_told=False))
    for name, values in thing.members.items():
        for value in values:
            yield from _items((*path, *name.split("\n")), value, thing)


def things_of(thing: Thing, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Thing]]:
    """The nodes within a node, which are elements where they stand (rule 21)."""
    for name, values in thing.members.items():
        for value in values:
            if isinstance(value, Thing) and value.is_told:
                yield (*path, name), value
                yield from things_of(value, (*path, name))


def names_of(path: tuple[str, ...], world: Any) -> list[tuple[str, str]]:
    """The attributes that a pair with this path is a pair of, each with the name by which it is declared."""
    choices = []
    for segment in path:
        mark = "^" if segment.startswith("^") else ""
        iri = segment.removeprefix("^")
        if iri.startswith("@"):
            choices.append([(iri, iri)])
            continue
        main = world.main(iri)
        inverses = {
            b for a, b in (*world.inverses, *((y, x) for x, y in world.inverses)) if mark and world.main(a) == main
        }
        if inverses:  # what is stated from the other end is stated of the inverse
            choices.append([pair for each in sorted(inverses) for pair in names_of((each,), world)])
            continue
        found = {}
        for form in (iri, world.main(iri)):
            local = form.rstrip("/#")
            local = local[max(local.rfind(each) for each in "#/:") + 1 :]
            if local and "." not in local:
                found |= {mark + each: mark + each for each in ([local] if mark else world.broader(local))}
            found[f"{mark}<{form}>"] = mark + local
        found |= {each: each for each in world.curies(iri) if not mark}
        choices.append(list(found.items()))
    found = [(".".join(name for name, _ in each), ".".join(known for _, known in each)) for each in product(*choices)]
    return [pair for pair in found if not pair[0].startswith("ce.")]  # the data has no context attributes (rule 1)


def _items(path: tuple[str, ...], value: Any, around: Thing) -> Iterator[Item]:
    if isinstance(value, Thing):
        if value.iri is not None or value.types:
            yield Item(path, value)
        yield from items_of(value, path)
    else:
        yield Item(path, value, around)


def _gather(item: Mapping[str, Any], nodes: dict[str, dict[str, Any]]) -> str:
    """Merges what is said of each node at several places; the node's name."""
    name = item.get("@id") or f"_:new{len(nodes)}"
    node = nodes.setdefault(name, {"@type": [], "members": {}})
    node["@type"] += [each for each in item.get("@type", ()) if each not in node["@type"] and not each.startswith("_:")]
    for property, values in item.items():
        if not property.startswith("@"):
            kept = node["members"].setdefault(property, [])
            for each in values:
                found = _gathered(each, nodes)
                if not any(_are_one(found, other) for other in kept):
                    kept.append(found)
                if "@language" in each:
                    tags = node["members"].setdefault(property + "\n", [])
                    tags += [each["@language"]] if each["@language"] not in tags else []
        elif property == "@reverse":
            for name_of, subjects in values.items():
                for each in subjects:
                    node["members"].setdefault("^" + name_of, []).append(("node", _gather(each, nodes)))
    return name


def _are_one(value: Any, other: Any) -> bool:
    """Whether two values of a property are one statement: 5 and 5.0 are, 1 and true are not, and each list is its own
    (rule 26)."""
    is_list = isinstance(value, tuple) and value[0] == "list"
    return not is_list and value == other and isinstance(value, bool) is isinstance(other, bool)


def _gathered(value: Mapping[str, Any], nodes: dict[str, dict[str, Any]]) -> Any:
    if "@list" in value:
        return ("list", [_gathered(each, nodes) for each in value["@list"]])
    if "@value" not in value:
        return ("node", _gather(value, nodes))
    content, datatype = value["@value"], value.get("@type")
    if isinstance(content, str) and datatype in WHOLE | BROKEN:
        try:
            return int(content) if datatype in WHOLE else float(content)
        except ValueError:
            return content
    if datatype == XSD + "boolean" and content in ("true", "false", "1", "0"):
        return content in ("true", "1")
    return Year(content) if datatype == XSD + "gYear" else content


def _tell(name: str, nodes: Mapping[str, dict[str, Any]], around: tuple[str, ...]) -> Thing:
    """The node as one event tells it: unfolded, but not within itself."""
    node = nodes[name]
    iri, types = None if name.startswith("_:") else name, tuple(node["@type"])
    if name in around or not (types or any(node["members"].values())):
        return Thing(iri, types, is_told=False)
    thing = Thing(iri, types)
    for property, values in node["members"].items():
        if property.endswith("\n"):
            thing.members[property[:-1] + "\n@language"] = list(values)
        else:
            thing.members[property] = [each for value in values for each in _told(value, nodes, (*around, name))]
    return thing


def _told(value: Any, nodes: Mapping[str, dict[str, Any]], around: tuple[str, ...]) -> list[Any]:
    match value:
        case ("node", str(name)):
            return [_tell(name, nodes, around)]
        case ("list", list(members)):
            return [each for member in members for each in _told(member, nodes, around)]
        case _:
            return [value]
