"""A graph: its nodes with what is stated of them, and the trees that unfold from its roots (rule 21).

Whatever wrote the graph (JSON-LD by PyLD's expanded form, RDF by pyoxigraph), its statements are kept here once each,
in the order in which they were first met.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kindcast.semantic.errors import InvalidEvent, Problem
from kindcast.semantic.flatten import EventLimits
from kindcast.semantic.model import Node, Resource, TypedText

__all__ = ["UNNAMED", "Description", "Graph", "Link", "literal_of", "unfolded"]

ID, TYPE, GRAPH, LANGUAGE = "@id", "@type", "@graph", "@language"
XSD = "http://www.w3.org/2001/XMLSchema#"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
INTEGERS = frozenset(
    XSD + name
    for name in (
        "integer", "long", "int", "short", "byte", "nonNegativeInteger", "positiveInteger", "nonPositiveInteger",
        "negativeInteger", "unsignedLong", "unsignedInt", "unsignedShort", "unsignedByte",
    )
)  # fmt: skip
REALS = frozenset(XSD + name for name in ("decimal", "double", "float"))
TEXTS = frozenset({XSD + "string", RDF + "langString", RDF + "dirLangString"})
BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
INFINITIES = {"INF": math.inf, "+INF": math.inf, "-INF": -math.inf, "NaN": math.nan}
LONGEST_NUMBER = 400
"""Digits of a number that is read as one; no double has more that count."""
_INTEGER = re.compile(r"[+-]?[0-9]+")
_REAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
NO_IRI = re.compile(r"[\x00-\x20<>\"{}|^`\\]")


UNNAMED = "_:-"
"""How the labels of nodes begin that have none in their document; no label in a document begins so."""


class Link:
    """A reference to a node, by its IRI or blank-node label."""

    __slots__ = ("key",)

    def __init__(self, key: str) -> None:
        self.key = key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Link) and self.key == other.key

    def __hash__(self) -> int:
        return hash(("link", self.key))


class Description:
    """What is stated of one node: its types, and its values by property (`^` in front: by the property that leads to
    it), each once but for the members of lists. `languages` are the tags of the texts of a property."""

    __slots__ = ("graph", "languages", "types", "values")

    def __init__(self) -> None:
        self.types: dict[str, None] = {}
        self.values: dict[str, dict[Any, Any]] = {}
        self.languages: dict[str, dict[str, None]] = {}
        self.graph: Graph | None = None
        """The named graph that has this node's name."""

    def add(self, property: str, value: Any) -> None:
        """State a value; a second time it changes nothing."""
        self.values.setdefault(property, {}).setdefault(_key(value), value)

    def __bool__(self) -> bool:
        return bool(self.types or self.values or self.graph is not None)


class Graph:
    """Nodes by IRI or blank-node label. `roots` are the keys of the nodes from which events unfold, in order."""

    __slots__ = ("nodes", "roots")

    def __init__(self) -> None:
        self.nodes: dict[str, Description] = {}
        self.roots: dict[str, None] = {}

    def node(self, key: str) -> Description:
        """The node of this name, a new one if need be."""
        found = self.nodes.get(key)
        if found is None:
            found = self.nodes[key] = Description()
        return found


def _key(value: Any) -> Any:
    """What makes a statement the same as another: 1 is not true, and lists and JSON are told apart by themselves."""
    if isinstance(value, list | dict):
        return repr(value) if isinstance(value, dict) else id(value)
    return value if isinstance(value, Link | TypedText) else (type(value) is bool, isinstance(value, str), value)


def checked_property(iri: str) -> str:
    """The IRI of a property, if it can be one: it becomes a part of names. (An `@id` is a value, and stays as it was
    published, whatever it is.) Raises `InvalidEvent`."""
    if NO_IRI.search(iri):
        detail = f"the property {iri[:200]!r} is not an IRI: it has a character that is not allowed"
        raise InvalidEvent([Problem("invalid-iri", detail)])
    return iri


# ── literals ────────────────────────────────────────────────────────────────────────────────────────────────────────


def literal_of(text: str, datatype: str | None) -> str | int | float | bool | TypedText:
    """A literal as a value: numbers and booleans by their XSD type, texts as texts; what its datatype does not allow,
    or what JSON has no type for, keeps its text and its datatype.

    >>> literal_of("12.50", "http://www.w3.org/2001/XMLSchema#decimal"), literal_of("x", None)
    (12.5, 'x')
    """
    if datatype is None or datatype in TEXTS:
        return text
    stripped = text.strip(" \t\r\n")
    if len(stripped) <= LONGEST_NUMBER:
        if datatype in INTEGERS and _INTEGER.fullmatch(stripped):
            return int(stripped)
        if datatype in REALS:
            if _REAL.fullmatch(stripped):
                return float(stripped)
            if stripped in INFINITIES and datatype != XSD + "decimal":
                return INFINITIES[stripped]
        if datatype == XSD + "boolean" and stripped in BOOLEANS:
            return BOOLEANS[stripped]
    return TypedText(text, datatype)


# ── the expanded form of JSON-LD ────────────────────────────────────────────────────────────────────────────────────


def graph_of_expanded(document: Iterable[Any]) -> Graph:
    """The graph of PyLD's expanded form; its roots are the top-level node objects. Linear in the document."""
    graph = Graph()
    labels = _Labels()
    for item in document:
        if isinstance(item, dict) and "@value" not in item and "@list" not in item:
            graph.roots[_take(item, graph, labels)] = None
    return graph


class _Labels:
    """Blank-node labels for nodes without any."""

    def __init__(self) -> None:
        self._count = 0

    def new(self) -> str:
        self._count += 1
        return f"{UNNAMED}{self._count}"


def _take(item: Mapping[str, Any], graph: Graph, labels: _Labels) -> str:
    """Adds a node object with all that it holds; its name."""
    key = item.get(ID)
    if key is None:
        key = labels.new()
    node = graph.node(key)
    for name, values in item.items():
        if name == TYPE:
            node.types.update((each, None) for each in values if each is not None and not each.startswith("_:"))
        elif name == GRAPH:
            if node.graph is None:
                node.graph = Graph()
            for each in values:
                if isinstance(each, dict) and "@value" not in each:
                    node.graph.roots[_take(each, node.graph, labels)] = None
        elif name == "@reverse":
            for property, subjects in values.items():
                for each in subjects:
                    other = _take(each, graph, labels)
                    node.add("^" + checked_property(property), Link(other))
        elif name == "@included":
            for each in values:
                _take(each, graph, labels)
        elif not name.startswith("@"):
            checked_property(name)
            node.values.setdefault(name, {})
            for each in values:
                node.add(name, _value(each, name, node, graph, labels))
            if not node.values[name]:
                del node.values[name]
    return key


def _value(item: Any, property: str, node: Description, graph: Graph, labels: _Labels) -> Any:
    """The value that a value object, list object or node object is; nodes are added."""
    if "@list" in item:
        return [_value(each, property, node, graph, labels) for each in item["@list"]]
    if "@value" not in item:
        return Link(_take(item, graph, labels))
    value, datatype = item["@value"], item.get(TYPE)
    if datatype == "@json":
        return value
    if LANGUAGE in item:
        node.languages.setdefault(property, {})[item[LANGUAGE]] = None
        return value
    if not isinstance(value, str):
        if isinstance(value, bool) or datatype in (None, *REALS, *INTEGERS):
            return value
        return TypedText(str(value), datatype)
    return literal_of(value, datatype)


# ── trees ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def unfolded(graph: Graph, root: str, limits: EventLimits, roots: Mapping[str, None] | None = None) -> Node:
    """The tree of the event with this root. References are unfolded wherever the node is described, but not within
    itself, nor through another of `roots`. Raises `InvalidEvent` beyond `limits`."""
    return _Unfolding(limits, graph.roots if roots is None else roots).node(graph, root, ())


class _Unfolding:
    def __init__(self, limits: EventLimits, roots: Mapping[str, None]) -> None:
        self._limits = limits
        self._left = limits.values
        self._roots = roots

    def node(self, graph: Graph, key: str, path: tuple[str, ...]) -> Node:
        if len(path) > self._limits.depth:
            raise InvalidEvent([Problem("too-deep", f"nested deeper than {self._limits.depth} levels")])
        description = graph.nodes[key]
        path = (*path, key)
        iri = None if key.startswith("_:") else key
        types = tuple(description.types)
        members: dict[str, Any] = {}
        if iri is not None:
            members[ID] = Resource(iri)
        if types:
            members[TYPE] = _one_or_list([Resource(each) for each in types])
        self._count(len(members) + len(types))
        for property, values in description.values.items():
            name = f"^<{property[1:]}>" if property.startswith("^") else f"<{property}>"
            found = [each for value in values.values() for each in self.values(graph, value, path)]
            self._count(len(found) + 1)
            if found:
                members[name] = _one_or_list(found)
        for property, tags in description.languages.items():
            members[f"<{property}>.{LANGUAGE}"] = _one_or_list(list(tags))
            self._count(len(tags))
        if description.graph is not None:
            inner = description.graph
            members[GRAPH] = _one_or_list([self.node(inner, each, path) for each in inner.roots])
        return Node(members, Resource(iri, types) if iri is not None or types else None)

    def values(self, graph: Graph, value: Any, path: tuple[str, ...]) -> Iterable[Any]:
        """What one stated value gives: itself, the members of a list, a node, its bare IRI, or nothing."""
        if isinstance(value, list):
            return [found for each in value for found in self.values(graph, each, path)]
        if not isinstance(value, Link):
            return (value,)
        key = value.key
        description = graph.nodes.get(key)
        iri = None if key.startswith("_:") else key
        if key in path or not description:
            types = tuple(description.types) if description is not None else ()
            return (Resource(iri, types),) if iri is not None or types else ()
        if key in self._roots:
            return (Resource(iri),) if iri is not None else ()
        return (self.node(graph, key, path),)

    def _count(self, more: int) -> None:
        self._left -= more
        if self._left < 0:
            raise InvalidEvent(
                [
                    Problem(
                        "too-many-values", f"more than {self._limits.values} values in one event: send smaller events"
                    )
                ]
            )


def _one_or_list(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def members_of(graph: Graph, properties: Collection[str], nodes: Iterable[str]) -> dict[str, None]:
    """The described nodes that one of these properties of one of `nodes` leads to, in the order of the statements.
    Linear."""
    found: dict[str, None] = {}
    for key in nodes if properties else ():
        for property in properties:
            stack = list(reversed(graph.nodes[key].values.get(property, {}).values()))
            while stack:
                value = stack.pop()
                if isinstance(value, list):
                    stack.extend(reversed(value))
                elif isinstance(value, Link) and graph.nodes.get(value.key):
                    found[value.key] = None
    return found


def reached(graph: Graph, roots: Iterable[str]) -> set[str]:
    """The nodes that references lead to from `roots`, those included. Linear in the graph."""
    seen = set(roots)
    waiting = list(seen)
    while waiting:
        description = graph.nodes.get(waiting.pop())
        if description is None:
            continue
        stack: list[Any] = [value for values in description.values.values() for value in values.values()]
        while stack:
            value = stack.pop()
            if isinstance(value, list):
                stack.extend(value)
            elif isinstance(value, Link) and value.key not in seen:
                seen.add(value.key)
                waiting.append(value.key)
    return seen
