"""Events whose data is a graph: which they are, and the tree of each (docs/matching-semantics.md, rules 20, 21, 23).

Event(data, context) ──is it one?──▶ JSON-LD ──compiled──────────────────────▶ Event(Node, context)
                                       │ what that does not read
                                       └──reference──▶ Graph ──unfolded──────▶ Event(Node, context)
                                     RDF ──rdf──▶ Graph
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kindcast.semantic.errors import InvalidEvent, Problem
from kindcast.semantic.events.linked_data import GRAPH_TYPES, JSON_LD, RDF_TYPES, media_type_of
from kindcast.semantic.events.linked_data.graph import UNNAMED, Graph, graph_of_expanded, members_of, reached, unfolded
from kindcast.semantic.events.linked_data.rdf import documents_of_rdf, graph_of_rdf
from kindcast.semantic.flatten import EventLimits
from kindcast.semantic.model import Event, Node, Note, Resource

if TYPE_CHECKING:
    from kindcast.semantic.events.linked_data.compiled import CompiledContexts
    from kindcast.semantic.events.linked_data.reference import Expander

__all__ = [
    "DEEPEST",
    "LONGEST_ROOT",
    "ROOT",
    "GraphReader",
    "TakesLong",
    "is_graph",
    "is_linked_data",
    "may_be_graph",
    "simplified",
    "top_level",
    "within_contexts",
]

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
