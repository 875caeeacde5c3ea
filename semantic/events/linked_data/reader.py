"""Events whose data is a graph: which they are, and the tree of each (docs/matching-semantics.md, rules 20, 21, 23).

Event(data, context) ──is it one?──▶ JSON-LD ──compiled──────────────────────▶ Event(Node, context)
                                       │ what that does not read
                                       └──reference──▶ Graph ──unfolded──────▶ Event(Node, context)
                                     RDF ──rdf──▶ Graph
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kindcast.semantic.errors import InvalidEvent, Problem
from kindcast.semantic.events.linked_data.graph import Graph, graph_of_expanded, reached, unfolded
from kindcast.semantic.events.linked_data.media_types import GRAPH_TYPES, JSON_LD, RDF_TYPES, media_type_of
from kindcast.semantic.events.linked_data.ngsi_ld import simplified
from kindcast.semantic.events.linked_data.rdf import graph_of_rdf
from kindcast.semantic.flatten import EventLimits
from kindcast.semantic.model import Event, Node, Note

if TYPE_CHECKING:
    from kindcast.semantic.events.linked_data.compiled import CompiledContexts
    from kindcast.semantic.events.linked_data.reference import Expander

__all__ = ["GraphReader", "is_linked_data", "may_be_graph"]

DOCUMENT_VALUES = 100_000
"""JSON values of one document."""
ROOT = "graphroot"
"""The context attribute that says which event of its document an event is, counted from 0."""
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
    ) -> None:
        """`contexts` are known ones by URL, each a document with `@context`; `is_event_class` says which classes make
        a node of RDF an event. Without `reads_json` JSON-LD is plain JSON, and with `plain_where_unknown` it is
        where it needs an unknown context."""
        self._contexts = contexts
        self._expander: Expander | None = None
        self._compiled: CompiledContexts | None = None
        self._limits = limits
        self._is_event_class = is_event_class
        self._reads_json = reads_json
        self._plain_where_unknown = plain_where_unknown

    def read(self, event: Event) -> tuple[Event, tuple[Note, ...]]:
        """`event` with the tree of its graph as data, and what is to be noted; itself where its data is no graph.

        Raises `InvalidEvent`: `several-events` for a document of several, `no-event` for one of none, `unknown-context`
        with all URLs, `invalid-json-ld`, `malformed-rdf`, `invalid-iri`, `unreachable-nodes`, and what is beyond the
        limits.
        """
        data = event.data
        if isinstance(data, Node):
            return event, ()
        media_type = media_type_of(event.context)
        if not self._reads(data, media_type):
            return event, ()
        try:
            trees = self._trees(data, media_type)
            graph = self.graph(data, media_type) if trees is None else None
        except InvalidEvent as error:
            codes = {problem.code for problem in error.problems}
            if codes == {"unknown-context"} and (media_type != JSON_LD or self._plain_where_unknown):
                detail = f"read as plain JSON: {error.problems[0].detail}"
                return event, (Note("unknown-context", "", detail),)
            raise
        roots = list(graph.roots) if graph is not None else [root for root, _ in trees or ()]
        chosen = event.context.get(ROOT)
        number = 0
        if isinstance(chosen, str) and chosen.isdecimal() and len(chosen) < 8 and int(chosen) < len(roots):
            number = int(chosen)
        elif len(roots) > 1:
            detail = f"the document holds {len(roots):,} events: take it apart by `Matcher.events_of`"
            raise InvalidEvent([Problem("several-events", detail)])
        tree = self.tree(graph, roots[number]) if graph is not None else simplified((trees or [])[number][1])
        return Event(tree, event.context), ()

    def _reads(self, data: Any, media_type: str) -> bool:
        return is_linked_data(data, media_type) and (self._reads_json or not isinstance(data, dict | list))

    def events_of(self, event: Event) -> list[Event]:
        """The events that a document states, each the whole document with `graphroot`, which says which of them it is;
        `event` itself where it is one. Their `id` is that of `event` with the `@id` of their root, else its number.
        Raises `InvalidEvent`."""
        media_type = media_type_of(event.context)
        if isinstance(event.data, Node) or not self._reads(event.data, media_type):
            return [event]
        trees = self._trees(event.data, media_type)
        roots = list(self.graph(event.data, media_type).roots) if trees is None else [root for root, _ in trees]
        if len(roots) == 1:
            return [event]
        events = []
        for number, root in enumerate(roots):
            context = {**event.context, ROOT: str(number)}
            if "id" in context:
                own = str(number) if root.startswith("_:") or len(root) > LONGEST_ROOT else root
                context["id"] = f"{context['id']}#{own}"
            events.append(Event(event.data, context))
        return events

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

    def graph(self, data: Any, media_type: str) -> Graph:
        """The graph that a document states, with the roots of its events. Raises `InvalidEvent`."""
        if media_type in RDF_TYPES:
            if not isinstance(data, str | bytes):
                raise InvalidEvent([Problem("malformed-rdf", f"data of type {media_type} is a text")])
            raw = data.encode() if isinstance(data, str) else data
            with _bounded_recursion():
                graph = graph_of_rdf(raw, media_type, self._is_event_class)
        else:
            check_size(data, DOCUMENT_VALUES)
            with _bounded_recursion():
                graph = graph_of_expanded(self._reference().expanded(data))
        if not graph.roots:
            raise InvalidEvent([Problem("no-event", "the document states nothing of any node that could be an event")])
        lost = {key for key, node in graph.nodes.items() if node} - reached(graph, graph.roots)
        if lost:
            named = ", ".join(sorted(lost)[:5])
            detail = f"no event of the document leads to {len(lost):,} of its nodes: {named}"
            raise InvalidEvent([Problem("unreachable-nodes", detail)])
        return graph

    def tree(self, graph: Graph, root: str) -> Node:
        """The event that unfolds from `root`. Raises `InvalidEvent` beyond the limits."""
        with _bounded_recursion():
            return simplified(unfolded(graph, root, self._limits))


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
            raise InvalidEvent([Problem("too-many-values", f"more than {most:,} values in one document: split it")])


@contextlib.contextmanager
def _bounded_recursion() -> Iterator[None]:
    try:
        yield
    except RecursionError:
        raise InvalidEvent([Problem("too-deep", "the document is nested too deeply")]) from None
