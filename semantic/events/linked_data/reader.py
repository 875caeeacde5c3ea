"""Events whose data is a graph, as JSON-LD or RDF: the graph, and the tree of each event (rules 20, 21, 23).

Event(data, context) ──is it one?──▶ JSON-LD ──compiled──────────────────────▶ Event(Node, context)
                                       │ what that does not read
                                       └──reference──▶ Graph ──unfolded──────▶ Event(Node, context)
                                     RDF ──rdf──▶ Graph
"""

import contextlib
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kindcast.semantic.errors import InvalidEvent, OntologyError, Problem
from kindcast.semantic.events.linked_data import GRAPH_TYPES, JSON_LD, RDF_TYPES, media_type_of
from kindcast.semantic.flatten import EventLimits
from kindcast.semantic.model import Event, Node, Note, Position, Resource, TypedText
from kindcast.semantic.ontology.quads import RdfLiteral, Statement, ntriples_of, statements

if TYPE_CHECKING:
    from kindcast.semantic.events.linked_data.compiled import CompiledContexts
    from kindcast.semantic.events.linked_data.reference import Expander

__all__ = [
    "DEEPEST",
    "LONGEST_ROOT",
    "ROOT",
    "UNNAMED",
    "Description",
    "Graph",
    "GraphReader",
    "Link",
    "TakesLong",
    "documents_of_rdf",
    "graph_of_rdf",
    "is_graph",
    "is_linked_data",
    "literal_of",
    "may_be_graph",
    "simplified",
    "top_level",
    "unfolded",
    "within_contexts",
]

# ── A graph: its nodes with what is stated of them, and the trees that unfold from its roots (rule 21) ────────────────

# Whatever wrote the graph (JSON-LD by PyLD's expanded form, RDF by pyoxigraph), its statements are kept here once each,
# in the order in which they were first met.


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
    """The tree of an entity with the values of its NGSI-LD members; the tree itself if it has none. Linear."""
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


DOCUMENT_VALUES = 100_000
"""JSON values of one document."""
QUICK_CHARACTERS = 1 << 15
"""Of RDF that is read at once: some hundred statements, a millisecond."""
ROOT = "graphroot"
"""The context attribute that says which event of its document an event is: the IRI or label of its root."""
LONGEST_ROOT = 1_000
"""Characters of an `@id` that becomes a part of an event's id."""
DEEPEST = 100
"""Levels of a document: those of an event and of its envelope."""


def is_linked_data(data: Any, media_type: str) -> bool:
    """Whether data of this type is read as a graph (rule 20)."""
    if media_type in GRAPH_TYPES:
        return True
    return isinstance(data, dict) and "@context" in data


def may_be_graph(event: object) -> bool:
    """Whether a `GraphReader` has to look at an event, or at the data of one: not if it is plain JSON for sure."""
    if not isinstance(event, Event):
        return isinstance(event, Mapping) and "@context" in event
    data = event.data
    return type(data) is not Node and (
        "datacontenttype" in event.context or (type(data) is dict and "@context" in data)
    )


def is_graph(event: Event) -> bool:
    """Whether the data of an event is read as a graph (rule 20), unless settings say otherwise."""
    return may_be_graph(event) and is_linked_data(event.data, media_type_of(event.context))


class TakesLong(Exception):
    """A graph was to be read quickly, and cannot be."""


class GraphReader:
    """Reads graph events under one vocabulary's contexts. One thread at a time."""

    def __init__(
        self,
        contexts: Mapping[str, Any],
        limits: EventLimits,
        *,
        is_event_class: Callable[[str], bool] = lambda iri: False,
        reads_json: bool = True,
        plain_where_unknown: bool = False,
        members: Collection[str] = (),
    ) -> None:
        """`contexts` are known ones by URL, each a document with `@context`; `is_event_class` says which classes make
        a node of RDF an event. Without `reads_json` JSON-LD is plain JSON, and with `plain_where_unknown` it is
        where it needs an unknown context. `members` are the properties whose values are the events of a document."""
        self._contexts = contexts
        self._expander: Expander | None = None
        self._compiled: CompiledContexts | None = None
        self._limits = limits
        self._is_event_class = is_event_class
        self._reads_json = reads_json
        self._plain_where_unknown = plain_where_unknown
        self._members = members
        self._member_names = [f"<{each}>" for each in members]

    def read(self, event: Event, *, quickly: bool = False) -> tuple[Event, tuple[Note, ...]]:
        """`event` with the tree of its graph as data, and what is to be noted; itself where its data is no graph.

        Raises `InvalidEvent`: `several-events` for a document of several, `no-event` for one of none, `unknown-context`
        with all URLs, `invalid-json-ld`, `malformed-rdf`, `invalid-iri`, `unreachable-nodes`, `reading-too-slow`, and
        what is beyond the limits. With `quickly` raises `TakesLong` for what compiled contexts do not read, and for
        large RDF.
        """
        data = event.data
        if isinstance(data, Node):
            return event, ()
        media_type = media_type_of(event.context)
        if not self.is_graph(data, media_type):
            return event, ()
        chosen = str(event.context.get(ROOT, ""))
        is_number = chosen.isdecimal() and len(chosen) < 8  # as earlier versions stored it
        if quickly and isinstance(data, str | bytes) and len(data) > QUICK_CHARACTERS:
            raise TakesLong
        try:
            roots, tree = self._events(data, media_type, by_members=not is_number, quickly=quickly)
        except InvalidEvent as error:
            if not self._is_plain(error, media_type):
                raise
            return event, (Note("unknown-context", "", f"read as plain JSON: {error.problems[0].detail}"),)
        number = 0
        if is_number and int(chosen) < len(roots):
            number = int(chosen)
        elif chosen in roots:
            number = roots.index(chosen)
        elif len(roots) > 1:
            detail = f"the document holds {len(roots):,} events: split it with `Matcher.events_of`"
            raise InvalidEvent([Problem("several-events", detail)])
        return Event(tree(number), event.context), ()

    def is_graph(self, data: Any, media_type: str) -> bool:
        """Whether data of this type is read as a graph here."""
        return is_linked_data(data, media_type) and (self._reads_json or not isinstance(data, dict | list))

    def roots(self, data: Any, media_type: str) -> list[str]:
        """The names of the nodes of the events of a document; none where it is read as plain JSON, since it needs an
        unknown context. Raises `InvalidEvent`."""
        try:
            return self._events(data, media_type)[0]
        except InvalidEvent as error:
            if not self._is_plain(error, media_type):
                raise
            return []

    def _is_plain(self, error: InvalidEvent, media_type: str) -> bool:
        unknown = {problem.code for problem in error.problems} == {"unknown-context"}
        return unknown and (media_type != JSON_LD or self._plain_where_unknown)

    def _events(
        self, data: Any, media_type: str, *, by_members: bool = True, quickly: bool = False
    ) -> tuple[list[str], Callable[[int], Node]]:
        """The roots of the events of a document, and what makes the tree of one of them. Raises `InvalidEvent`."""
        trees = self._trees(data, media_type)
        if trees is not None and not (
            by_members and any(name in node for _, node in trees for name in self._member_names)
        ):
            return [root for root, _ in trees], lambda number: simplified(trees[number][1])
        if quickly and media_type not in RDF_TYPES:
            raise TakesLong
        graph = self.graph(data, media_type, by_members=by_members)
        roots = list(graph.roots)
        return roots, lambda number: self.tree(graph, roots[number])

    def _trees(self, data: Any, media_type: str) -> list[tuple[str, Node]] | None:
        """The events of a document of JSON-LD with their roots, where compiled contexts read it. Raises
        `InvalidEvent`."""
        if media_type in RDF_TYPES:
            return None
        if self._compiled is None:
            from kindcast.semantic.events.linked_data.compiled import CompiledContexts

            self._compiled = CompiledContexts(self._reference, self._limits, DOCUMENT_VALUES, DEEPEST, ())
        return self._compiled.trees(data) or None  # of no event PyLD says so

    def _reference(self) -> "Expander":
        """PyLD, which is slow to import: only graphs need it."""
        if self._expander is None:
            from kindcast.semantic.events.linked_data.reference import Expander

            self._expander = Expander(self._contexts)
        return self._expander

    def graph(self, data: Any, media_type: str, *, by_members: bool = True) -> Graph:
        """The graph that a document states, with the roots of its events: with `by_members` those that a property of
        envelopes leads to, where there is one. Raises `InvalidEvent`."""
        if media_type in RDF_TYPES:
            with _bounded_recursion():
                graph = graph_of_rdf(_bytes_of(data, media_type), media_type, self._is_event_class)
            members = members_of(graph, self._members, graph.nodes) if by_members else {}
        else:
            check_size(data, DOCUMENT_VALUES)
            with _bounded_recursion():
                graph = graph_of_expanded(self._reference().expanded(data))
            members = members_of(graph, self._members, graph.roots) if by_members else {}
        if members:
            graph.roots = members  # the rest is the envelope
            return graph
        if not graph.roots:
            raise InvalidEvent([Problem("no-event", "the document has no statement, so no node of it can be an event")])
        lost = {key for key, node in graph.nodes.items() if node} - reached(graph, graph.roots)
        if lost:
            named = ", ".join(sorted(lost)[:5])
            detail = f"nodes that belong to no event ({len(lost):,}): {named}"
            raise InvalidEvent([Problem("unreachable-nodes", detail)])
        return graph

    def documents_of(
        self, data: Any, media_type: str, roots: list[str], take: Callable[[Any], None]
    ) -> list[Any] | None:
        """The data of a document for each of `roots`, which by itself gives the event of this root; None where there is
        none: where a node of a JSON-LD document is described for several of its events, or RDF has named graphs. `take`
        is told each, before it is read, and may raise; so may reading."""
        if media_type in RDF_TYPES:
            return documents_of_rdf(_bytes_of(data, media_type), media_type, roots, self._members, take)
        parts = top_level(data)
        if len(parts) != len(roots):
            return None
        for part in parts:
            take(part)
        known, tree = self._events(data, media_type)
        for number, (part, root) in enumerate(zip(parts, known, strict=True)):
            take("")
            own, alone = self._events(part, JSON_LD)
            is_same = own == [root] or (len(own) == 1 and own[0].startswith(UNNAMED) and root.startswith(UNNAMED))
            if not is_same or not _is_same(tree(number), alone(0)):
                return None
        return parts

    def tree(self, graph: Graph, root: str) -> Node:
        """The event that unfolds from `root`. Raises `InvalidEvent` beyond the limits."""
        with _bounded_recursion():
            return simplified(unfolded(graph, root, self._limits))


def _bytes_of(data: Any, media_type: str) -> bytes:
    if not isinstance(data, str | bytes):
        raise InvalidEvent([Problem("malformed-rdf", f"data of type {media_type} is a text")])
    return data.encode() if isinstance(data, str) else data


def _is_same(one: Any, other: Any) -> bool:
    """Whether two trees are equal, the values of their nodes too."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Node):
        same = one.value == other.value and one.keys() == other.keys()
        return same and all(_is_same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return bool(one == other)


def top_level(data: Any) -> list[Any]:
    """The top-level nodes of a JSON-LD document as documents, as far as its form shows them."""
    context: dict[str, Any] = {}
    if isinstance(data, Mapping) and data.keys() <= {"@context", "@graph"}:
        context = {name: value for name, value in data.items() if name == "@context"}
        data = data.get("@graph")
        data = [data] if isinstance(data, Mapping) else data
    if not isinstance(data, list) or not all(isinstance(each, Mapping) for each in data):
        return []
    return [within_contexts((context,), each) for each in data]


def within_contexts(around: Iterable[Mapping[str, Any]], node: Mapping[str, Any]) -> dict[str, Any]:
    """A node object under the contexts of the objects around it, from the outside, and then its own."""
    contexts = [each["@context"] for each in (*around, node) if "@context" in each]
    if not contexts:
        return dict(node)
    listed = [inner for each in contexts for inner in (each if isinstance(each, list) else [each])]
    context = contexts[0] if len(contexts) == 1 else listed
    return {"@context": context, **{name: value for name, value in node.items() if name != "@context"}}


def check_size(data: Any, most: int) -> None:
    """Raises `InvalidEvent` for a document that is nested too deeply or holds too much. Linear; no recursion."""
    left = most
    stack: list[tuple[Any, int]] = [(data, 0)]
    while stack:
        node, depth = stack.pop()
        if depth > DEEPEST:
            raise InvalidEvent([Problem("too-deep", f"nested deeper than {DEEPEST} levels")])
        if isinstance(node, dict):
            left -= len(node)
            stack.extend((each, depth + 1) for each in node.values() if isinstance(each, dict | list))
        elif isinstance(node, list):
            left -= len(node)
            stack.extend((each, depth + 1) for each in node if isinstance(each, dict | list))
        if left < 0:
            raise InvalidEvent(
                [Problem("too-many-values", f"more than {most:,} values in one document: send smaller documents")]
            )


@contextlib.contextmanager
def _bounded_recursion() -> Iterator[None]:
    try:
        yield
    except RecursionError:
        raise InvalidEvent([Problem("too-deep", "the document is nested too deeply")]) from None


# ── RDF in its four syntaxes to a `Graph`: lists become lists, and the roots are found (rule 21) ──────────────────────


MOST_STATEMENTS = 200_000
"""Of one document."""

FIRST, REST, NIL, JSON_TYPE = RDF + "first", RDF + "rest", RDF + "nil", RDF + "JSON"


def graph_of_rdf(data: bytes, media_type: str, is_event_class: Callable[[str], bool]) -> Graph:
    """The graph that `data` states. Its roots are the nodes of event classes; where there are none, those to which no
    other node refers. Costs some 3 µs per statement. Raises `InvalidEvent`."""
    graph = Graph()
    named: dict[str, Graph] = {}
    counted = 0
    try:
        for subject, property, value, name in statements(data, RDF_TYPES[media_type]):
            counted += 1
            if counted > MOST_STATEMENTS:
                detail = f"more than {MOST_STATEMENTS:,} statements in one document: send smaller documents"
                raise InvalidEvent([Problem("too-many-values", detail)])
            inner = graph
            if name:
                inner = named.get(name) or named.setdefault(name, Graph())
            node = inner.node(subject)
            if property == RDF + "type" and isinstance(value, str):
                if not value.startswith("_:"):
                    node.types[value] = None
                continue
            if isinstance(value, str):
                node.add(property, Link(value))
                continue
            if value.language:
                node.languages.setdefault(property, {})[value.language] = None
            node.add(property, _literal(value))
    except OntologyError as error:
        place = None if error.line is None else Position(error.line, error.column)
        raise InvalidEvent([Problem("malformed-rdf", error.detail, place)]) from None
    for each in (graph, *named.values()):
        _fold_lists(each)
    for name, inner in named.items():
        inner.roots = _without_parent(inner)
        graph.node(name).graph = inner
    classes = {key: None for key, node in graph.nodes.items() if any(map(is_event_class, node.types))}
    graph.roots = classes or _without_parent(graph)
    return graph


def documents_of_rdf(
    data: bytes, media_type: str, roots: Collection[str], members: Collection[str], take: Callable[[str], None]
) -> list[str] | None:
    """For each of `roots` the statements that are reached from it, not through another root, and those by which one of
    `members` leads to it, as N-Triples, which all four syntaxes include; None where the document names graphs.
    `data` was read before. `take` is told each, and may raise."""
    about: dict[str, list[Statement]] = {}
    leading: dict[str, list[str]] = {}
    for statement in statements(data, RDF_TYPES[media_type]):
        if statement[3]:
            return None
        about.setdefault(statement[0], []).append(statement)
        if statement[1] in members and isinstance(statement[2], str):
            leading.setdefault(statement[2], []).append(ntriples_of(statement))
    lines: dict[str, tuple[str, dict[str, None]]] = {}  # of each node, and what its statements lead to
    for subject, stated in about.items():
        objects = {each[2]: None for each in stated if isinstance(each[2], str)}
        lines[subject] = "".join(map(ntriples_of, stated)), objects
    documents = []
    for root in roots:
        seen = {root: None}
        for key in (waiting := [root]):
            for each in lines.get(key, ("", {}))[1]:
                if each not in seen and each not in roots:
                    seen[each] = None
                    waiting.append(each)
        document = "".join([*(lines[key][0] for key in seen if key in lines), *leading.get(root, ())])
        take(document)
        documents.append(document)
    return documents


def _literal(value: RdfLiteral) -> object:
    if value.datatype == JSON_TYPE:
        try:
            return json.loads(value.text)
        except (ValueError, RecursionError):
            raise InvalidEvent([Problem("malformed-rdf", "a literal of rdf:JSON is not JSON")]) from None
    return literal_of(value.text, value.datatype)


def _without_parent(graph: Graph) -> dict[str, None]:
    """The described nodes to which no other node refers."""
    children: set[str] = set()
    for key, node in graph.nodes.items():
        stack = [value for values in node.values.values() for value in values.values()]
        while stack:
            value = stack.pop()
            if isinstance(value, list):
                stack.extend(value)
            elif isinstance(value, Link) and value.key != key:
                children.add(value.key)
    return {key: None for key, node in graph.nodes.items() if node and key not in children}


def _fold_lists(graph: Graph) -> None:
    """Every well-formed `rdf:List` of blank nodes that one statement points to becomes the list that it is."""
    uses: dict[str, int] = {}
    for node in graph.nodes.values():
        for values in node.values.values():
            for value in values.values():
                if isinstance(value, Link):
                    uses[value.key] = uses.get(value.key, 0) + 1
    folded: set[str] = set()
    for key, node in list(graph.nodes.items()):
        if not (FIRST in node.values and key.startswith("_:")):
            _fold_values(graph, node.values, uses, folded)
    for key in folded:
        del graph.nodes[key]


def _fold_values(graph: Graph, found: dict[str, dict[object, object]], uses: dict[str, int], folded: set[str]) -> None:
    for property, values in found.items():
        if property == REST:
            continue
        for known, value in list(values.items()):
            if isinstance(value, Link):
                members = _members(graph, value.key, uses, folded)
                if members is not None:
                    values[known] = members


def _members(graph: Graph, key: str, uses: dict[str, int], folded: set[str]) -> list[object] | None:
    """The members of the list that starts at `key`; None where none starts."""
    members: list[object] = []
    cells: dict[str, None] = {}
    while key != NIL:
        node = graph.nodes.get(key)
        if (
            node is None or not key.startswith("_:") or uses.get(key, 0) != 1 or node.types or key in cells
            or set(node.values) != {FIRST, REST} or any(len(each) != 1 for each in node.values.values())
        ):  # fmt: skip
            return None
        cells[key] = None
        members.extend(node.values[FIRST].values())
        rest = next(iter(node.values[REST].values()))
        if not isinstance(rest, Link):
            return None
        key = rest.key
    folded.update(cells)
    return [
        inner if isinstance(each, Link) and (inner := _members(graph, each.key, uses, folded)) is not None else each
        for each in members
    ]
