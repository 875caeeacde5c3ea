"""Events whose data is a graph, as JSON-LD or RDF: reading of the graph, and the tree of each event (rules 20, 21, 23).

Event(data, context) ──a graph?──▶ JSON-LD ──compiled──────────────────────▶ Event(Node, context)
                                     │ documents that `compiled` cannot read
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

# ── graphs: nodes with their statements, and the trees that unfold from the roots (rule 21) ───────────────────────────

# Both sources of graphs (JSON-LD in PyLD's expanded form, RDF read by pyoxigraph) store each statement once, in the
# order of its first occurrence.


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
"""The maximum number of digits of a number. A longer one stays a text with its datatype; a double does not need more
digits."""
_INTEGER = re.compile(r"[+-]?[0-9]+")
_REAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
NO_IRI = re.compile(r"[\x00-\x20<>\"{}|^`\\]")


UNNAMED = "_:-"
"""Prefix of the labels of nodes that have no label in their document. No label in a document begins with it."""


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
    """The statements about one node: its types, and its values by property (with the prefix `^`, by a property that
    leads to this node). Each value occurs once, except in lists. `languages` are the language tags of the texts of a
    property."""

    __slots__ = ("graph", "languages", "types", "values")

    def __init__(self) -> None:
        self.types: dict[str, None] = {}
        self.values: dict[str, dict[Any, Any]] = {}
        self.languages: dict[str, dict[str, None]] = {}
        self.graph: Graph | None = None
        """The named graph that has the name of this node."""

    def add(self, property: str, value: Any) -> None:
        """Adds a value. Adding it again changes nothing."""
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
        """Returns the node with this name; creates it if necessary."""
        found = self.nodes.get(key)
        if found is None:
            found = self.nodes[key] = Description()
        return found


def _key(value: Any) -> Any:
    """Returns a key that is equal for equal statements. 1 and true are different; each list is different from all
    others."""
    if isinstance(value, list | dict):
        return repr(value) if isinstance(value, dict) else id(value)
    return value if isinstance(value, Link | TypedText) else (type(value) is bool, isinstance(value, str), value)


def checked_property(iri: str) -> str:
    """Returns the IRI of a property, which becomes a part of names. (An `@id` is a value and stays as published, valid
    or not.) Raises `InvalidEvent` if it has a character that IRIs do not allow."""
    if NO_IRI.search(iri):
        detail = f"the property {iri[:200]!r} is not an IRI: it has a character that is not allowed"
        raise InvalidEvent([Problem("invalid-iri", detail)])
    return iri


# ── literals ────────────────────────────────────────────────────────────────────────────────────────────────────────


def literal_of(text: str, datatype: str | None) -> str | int | float | bool | TypedText:
    """Returns the value of a literal: numbers and booleans by their XSD type, texts as texts. A literal that its
    datatype does not allow, or for which JSON has no type, keeps its text and its datatype.

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
    """Returns the graph of PyLD's expanded form. Its roots are the top-level node objects. Linear in the document."""
    graph = Graph()
    labels = _Labels()
    for item in document:
        if isinstance(item, dict) and "@value" not in item and "@list" not in item:
            graph.roots[_take(item, graph, labels)] = None
    return graph


class _Labels:
    """Generates blank-node labels for nodes that have none."""

    def __init__(self) -> None:
        self._count = 0

    def new(self) -> str:
        self._count += 1
        return f"{UNNAMED}{self._count}"


def _take(item: Mapping[str, Any], graph: Graph, labels: _Labels) -> str:
    """Adds a node object and everything in it to the graph. Returns its name."""
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
                if not isinstance(each, Mapping):  # the processor keeps texts and numbers here
                    raise InvalidEvent([Problem("invalid-json-ld", "values of @included must be node objects")])
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
    """Returns the value of a value object, list object or node object. Nodes are added to the graph."""
    if "@list" in item:
        return [_value(each, property, node, graph, labels) for each in item["@list"]]
    if "@value" not in item:
        return Link(_take(item, graph, labels))
    value, datatype = item["@value"], item.get(TYPE)
    if isinstance(datatype, list):  # the processor adds the key of a map to whatever it leads to
        detail = f"{property}: {str(value)[:100]!r} is in a map of types (@container: @type), which leads to nodes only"
        raise InvalidEvent([Problem("invalid-json-ld", detail)])
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


def unfolded(graph: Graph, root: str, limits: EventLimits) -> Node:
    """Returns the tree of the event with this root. A reference is replaced by the description of its node, except
    within that node itself, and except if the node is another root. Raises `InvalidEvent` beyond `limits`."""
    return _Unfolding(limits, graph.roots).node(graph, root, ())


class _Unfolding:
    def __init__(self, limits: EventLimits, roots: Mapping[str, None]) -> None:
        self._limits = limits
        self._left = limits.values
        self._roots = roots

    def node(self, graph: Graph, key: str, path: tuple[str, ...]) -> Node:
        if len(path) > self._limits.depth:
            raise self._limits.too_deep()
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
        """Returns what one stated value becomes in the tree: the value itself, the members of a list, a node, the IRI
        of a node, or nothing."""
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
            raise self._limits.too_many_values()


def _one_or_list(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def members_of(graph: Graph, properties: Collection[str], nodes: Iterable[str]) -> dict[str, None]:
    """Returns the described nodes that are values of one of these properties of one of `nodes`, in the order of the
    statements. Linear."""
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
    """Returns the nodes that can be reached from `roots` by references, including the roots. Linear in the graph."""
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
"""The properties that hold the value of an NGSI-LD member."""
_HOLDING = frozenset(HOLDERS)
_MEMBERS = frozenset(
    NAMESPACE + each
    for each in (
        "Property",
        "GeoProperty",
        "LanguageProperty",
        "ListProperty",
        "JsonProperty",
        "VocabProperty",
        "Relationship",
        "ListRelationship",
    )
)
"""The types of member objects. A member object without a value, as from `"value": null`, gives no value."""
TERMS = {f"<{NAMESPACE}hasPrevious{each}>": f"previous{each}" for each in (*HELD, "Json")}
TERMS[f"<{NAMESPACE}hasObjectType>"] = "objectType"
"""Properties whose terms in the core context are not their local names."""
UNIT = f"<{NAMESPACE}unitCode>"
DELETED = "urn:ngsi-ld:null"
TAGS = ".@language"
_TOLD = frozenset({"@type", UNIT, *(holder + TAGS for holder in HOLDERS)})
"""Properties that are read together with the value, or only mark it as a value."""


def simplified(node: Node) -> Node:
    """Returns the tree of an NGSI-LD entity with the values of its members in place of the member objects, and without
    deleted members. Returns the tree itself if it has no such member. Linear."""
    for values in node.values():
        if any(map(_is_member, values)) if type(values) is list else _is_member(values):
            break
    else:
        return node
    members: dict[str, list[Any]] = {}
    for name, values in node.items():
        for each in values if type(values) is list else (values,):
            _read(name, each, members)
    return Node({name: found[0] if len(found) == 1 else found for name, found in members.items()}, node.value)


def _is_member(value: Any) -> bool:
    return _stands(value) or _is_deleted(value)


def _stands(value: Any) -> bool:
    if type(value) is not Node:
        return False
    stated = value.value
    return not _HOLDING.isdisjoint(value) or (
        stated is not None and stated.iri is None and not _MEMBERS.isdisjoint(stated.types)
    )


def _read(name: str, value: Any, members: dict[str, list[Any]]) -> None:
    """Adds the values of a member under its name, and the other statements about it under dotted names."""
    if not _stands(value):
        if not _is_deleted(value):
            # a node here may be an entity again: one that a relationship leads to
            members.setdefault(name, []).append(simplified(value) if type(value) is Node else value)
        return
    unit = value.get(UNIT)
    held = [each for each in value if each in _HOLDING]
    for holder in held if len(held) == 1 else sorted(held, key=HOLDERS.index):
        for each in _listed(value[holder]):
            if type(each) is Node:  # as {"object": …} in a list
                _read(name, each, members)
            elif not _is_deleted(each):
                members.setdefault(name, []).append(_measured(each, unit))
        if holder + TAGS in value:
            members.setdefault(name + TAGS, []).extend(_listed(value[holder + TAGS]))
    for inner, values in value.items():
        if inner not in _HOLDING and inner not in _TOLD:
            for each in values if type(values) is list else (values,):
                term = TERMS.get(inner)
                _read(f"{name}.{term or inner}", _measured(each, unit) if term else each, members)
    if isinstance(unit, str):
        members.setdefault(f"{name}.unitCode", []).append(unit)


def _measured(value: Any, unit: Any) -> Any:
    """Returns a number with its unit, and any other value as it is."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return {"value": value, "unitCode": unit} if is_number and isinstance(unit, str) else value


def _is_deleted(value: Any) -> bool:
    return value.iri == DELETED if type(value) is Resource else type(value) is str and value == DELETED


def _listed(values: Any) -> list[Any]:
    return values if isinstance(values, list) else [] if values is None else [values]


DOCUMENT_VALUES = 100_000
"""The maximum number of JSON values of one document."""
QUICK_CHARACTERS = 1 << 15
"""The maximum length of an RDF document that is read at once: some hundred statements, about a millisecond."""
ROOT = "graphroot"
"""The context attribute that identifies an event within its document: the IRI or label of its root."""
LONGEST_ROOT = 1_000
"""The maximum length in characters of an `@id` that becomes a part of an event's id."""
DEEPEST = 100
"""The maximum depth of a document: that of an event and of its envelope."""


def is_linked_data(data: Any, media_type: str) -> bool:
    """Whether data of this media type is read as a graph (rule 20)."""
    if media_type in GRAPH_TYPES:
        return True
    return isinstance(data, dict) and "@context" in data


def may_be_graph(event: object) -> bool:
    """Whether a `GraphReader` must check an event, or the data of one. False if it is certainly plain JSON."""
    if not isinstance(event, Event):
        return isinstance(event, Mapping) and "@context" in event
    data = event.data
    return type(data) is not Node and (
        "datacontenttype" in event.context or (type(data) is dict and "@context" in data)
    )


def is_graph(event: Event) -> bool:
    """Whether the data of an event is read as a graph (rule 20), unless the settings exclude it."""
    return may_be_graph(event) and is_linked_data(event.data, media_type_of(event.context))


class TakesLong(Exception):
    """A graph that was to be read quickly cannot be read quickly."""


class GraphReader:
    """Reads graph events with the contexts of one vocabulary. Not thread-safe."""

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
        """`contexts` are the known contexts by URL, each a document with `@context`. `is_event_class` returns whether
        nodes of a class in RDF are events. Without `reads_json`, JSON-LD is read as plain JSON. With
        `plain_where_unknown`, it is if it needs an unknown context. `members` are the properties whose values are the
        events of a document."""
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
        """Returns `event` with the tree of its graph as data, and the notes about it. Returns the event itself if its
        data is no graph.

        Raises `InvalidEvent`: `several-events` for a document with several events, `no-event` for a document without an
        event, `unknown-context` with all URLs, `invalid-json-ld`, `malformed-rdf`, `invalid-iri`, `unreachable-nodes`,
        `reading-too-slow`, and if the document exceeds the limits. With `quickly`, raises `TakesLong` for a document
        that compiled contexts cannot read, and for large RDF.
        """
        data = event.data
        if isinstance(data, Node):
            return event, ()
        media_type = media_type_of(event.context)
        if not self.is_graph(data, media_type):
            return event, ()
        chosen = str(event.context.get(ROOT, ""))
        is_number = chosen.isdecimal() and len(chosen) < 8  # earlier versions stored the number of the event
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
        """Whether this reader reads data of this media type as a graph."""
        return is_linked_data(data, media_type) and (self._reads_json or not isinstance(data, dict | list))

    def roots(self, data: Any, media_type: str) -> list[str]:
        """Returns the names of the root nodes of the events of a document. Empty if the document is read as plain JSON
        because it needs an unknown context. Raises `InvalidEvent`."""
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
        """Returns the roots of the events of a document, and a function from the number of an event to its tree. Raises
        `InvalidEvent`."""
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
        """Returns the events of a JSON-LD document with their roots; None if compiled contexts cannot read it. Raises
        `InvalidEvent`."""
        if media_type in RDF_TYPES:
            return None
        if self._compiled is None:
            from kindcast.semantic.events.linked_data.compiled import CompiledContexts

            self._compiled = CompiledContexts(self._reference, self._limits, DOCUMENT_VALUES, DEEPEST, ())
        return self._compiled.trees(data) or None  # without any event, PyLD reports the problem

    def _reference(self) -> "Expander":
        """Returns the PyLD expander. PyLD is slow to import, and only graphs need it."""
        if self._expander is None:
            from kindcast.semantic.events.linked_data.reference import Expander

            self._expander = Expander(self._contexts)
        return self._expander

    def graph(self, data: Any, media_type: str, *, by_members: bool = True) -> Graph:
        """Returns the graph of a document with the roots of its events. With `by_members` and an envelope in the
        document, these are the nodes that the envelope's property leads to. Raises `InvalidEvent`."""
        if media_type in RDF_TYPES:
            with _bounded_recursion():
                graph = graph_of_rdf(_bytes_of(data, media_type), media_type, self._is_event_class)
            members = members_of(graph, self._members, graph.nodes) if by_members else {}
        else:
            if not isinstance(data, Mapping | list):
                raise InvalidEvent([Problem("no-object", f"data of type {JSON_LD} must be an object or an array")])
            check_size(data, DOCUMENT_VALUES)
            with _bounded_recursion():
                graph = graph_of_expanded(self._reference().expanded(data))
            members = members_of(graph, self._members, graph.roots) if by_members else {}
        if members:
            graph.roots = members  # the other nodes are the envelope
            return graph
        if not graph.roots:
            if graph.nodes:
                detail = "no node can be an event, because each is the value of another node"
            else:
                detail = "the document has no statement, so no node of it can be an event"
                if media_type not in RDF_TYPES:
                    detail += ": in JSON-LD a name counts only if the @context gives it an IRI"
            raise InvalidEvent([Problem("no-event", detail)])
        lost = {key for key, node in graph.nodes.items() if node} - reached(graph, graph.roots)
        if lost:
            named = ", ".join(sorted(lost)[:5])
            detail = f"nodes that belong to no event ({len(lost):,}): {named}"
            raise InvalidEvent([Problem("unreachable-nodes", detail)])
        return graph

    def documents_of(
        self, data: Any, media_type: str, roots: list[str], take: Callable[[Any], None]
    ) -> list[Any] | None:
        """Returns for each of `roots` the data of a document that contains only the event of this root. Returns None if
        that is not possible: a node of a JSON-LD document is described for several of its events, or RDF has named
        graphs. `take` is called with each document before it is read. It may raise, and so may reading."""
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
        """Returns the event that unfolds from `root`. Raises `InvalidEvent` beyond the limits."""
        with _bounded_recursion():
            return simplified(unfolded(graph, root, self._limits))


def _bytes_of(data: Any, media_type: str) -> bytes:
    if not isinstance(data, str | bytes):
        raise InvalidEvent([Problem("malformed-rdf", f"data of type {media_type} must be a text")])
    return data.encode() if isinstance(data, str) else data


def _is_same(one: Any, other: Any) -> bool:
    """Whether two trees are equal, including the values of their nodes."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Node):
        same = one.value == other.value and one.keys() == other.keys()
        return same and all(_is_same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return bool(one == other)


def top_level(data: Any) -> list[Any]:
    """Returns the top-level nodes of a JSON-LD document as documents, as far as the form of the JSON shows them."""
    context: dict[str, Any] = {}
    if isinstance(data, Mapping) and data.keys() <= {"@context", "@graph"}:
        context = {name: value for name, value in data.items() if name == "@context"}
        data = data.get("@graph")
        data = [data] if isinstance(data, Mapping) else data
    if not isinstance(data, list) or not all(isinstance(each, Mapping) for each in data):
        return []
    return [within_contexts((context,), each) for each in data]


def within_contexts(around: Iterable[Mapping[str, Any]], node: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a node object with the contexts of the objects around it, outermost first, followed by its own."""
    contexts = [each["@context"] for each in (*around, node) if "@context" in each]
    if not contexts:
        return dict(node)
    listed = [inner for each in contexts for inner in (each if isinstance(each, list) else [each])]
    context = contexts[0] if len(contexts) == 1 else listed
    return {"@context": context, **{name: value for name, value in node.items() if name != "@context"}}


def check_size(data: Any, most: int) -> None:
    """Raises `InvalidEvent` for a document that is nested too deeply or has too many values. Linear; not recursive."""
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


# ── RDF in its four syntaxes to a `Graph`: `rdf:List`s become lists, and the roots are determined (rule 21) ───────────


MOST_STATEMENTS = 200_000
"""The maximum number of statements of one document."""

FIRST, REST, NIL, JSON_TYPE = RDF + "first", RDF + "rest", RDF + "nil", RDF + "JSON"


def graph_of_rdf(data: bytes, media_type: str, is_event_class: Callable[[str], bool]) -> Graph:
    """Returns the graph of the RDF document `data`. Its roots are the nodes of event classes. If there are none, its
    roots are the nodes to which no other node refers. Costs some 3 µs per statement. Raises `InvalidEvent`."""
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
    """Returns a document in N-Triples for each of `roots`; N-Triples are valid in all four syntaxes. It has the
    statements that are reached from the root, but not through another root, and the statements whose property in
    `members` leads to the root. Returns None if the document names graphs. `data` must be valid. `take` is called with
    each document and may raise."""
    about: dict[str, list[Statement]] = {}
    leading: dict[str, list[str]] = {}
    for statement in statements(data, RDF_TYPES[media_type]):
        if statement[3]:
            return None
        about.setdefault(statement[0], []).append(statement)
        if statement[1] in members and isinstance(statement[2], str):
            leading.setdefault(statement[2], []).append(ntriples_of(statement))
    lines: dict[str, tuple[str, dict[str, None]]] = {}  # node → its statements, and the nodes that they lead to
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
    """Returns the described nodes to which no other node refers."""
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
    """Replaces every well-formed `rdf:List` of blank nodes to which exactly one statement refers by a list."""
    uses: dict[str, int] = {}
    for node in graph.nodes.values():
        for values in node.values.values():
            for value in values.values():
                if isinstance(value, Link):
                    uses[value.key] = uses.get(value.key, 0) + 1
    folded: set[str] = set()
    for key, node in list(graph.nodes.items()):
        if not (FIRST in node.values and key.startswith("_:")):
            _fold_values(graph, node, uses, folded)
    for key in folded:
        del graph.nodes[key]


def _fold_values(graph: Graph, node: Description, uses: dict[str, int], folded: set[str]) -> None:
    for property, values in node.values.items():
        if property == REST:
            continue
        for known, value in list(values.items()):
            if isinstance(value, Link):
                tags: dict[str, None] = {}
                members = _members(graph, value.key, uses, folded, tags)
                if members is not None:
                    values[known] = members
                if tags:
                    node.languages.setdefault(property, {}).update(tags)


def _members(
    graph: Graph, key: str, uses: dict[str, int], folded: set[str], tags: dict[str, None]
) -> list[object] | None:
    """Returns the members of the list that starts at `key`, and adds the languages of its texts to `tags`. Returns None
    if it is not the start of a list."""
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
    for cell in cells:
        tags.update(graph.nodes[cell].languages.get(FIRST, {}))
    return [
        inner
        if isinstance(each, Link) and (inner := _members(graph, each.key, uses, folded, tags)) is not None
        else each
        for each in members
    ]
