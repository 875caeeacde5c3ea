"""RDF in its four syntaxes to a `Graph`: lists become lists, and the roots are found (rule 21)."""

import json
from collections.abc import Callable, Collection

from kindcast.semantic.errors import InvalidEvent, OntologyError, Problem
from kindcast.semantic.events.linked_data import RDF_TYPES
from kindcast.semantic.events.linked_data.graph import RDF, Graph, Link, literal_of
from kindcast.semantic.model import Position
from kindcast.semantic.ontology.quads import RdfLiteral, Statement, ntriples_of, statements

__all__ = ["documents_of_rdf", "graph_of_rdf"]

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
