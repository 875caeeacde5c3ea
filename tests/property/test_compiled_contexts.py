"""Documents read by compiled contexts are read as PyLD's expanded form says, or handed over to it."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from kindcast.semantic.errors import InvalidEvent
from kindcast.semantic.events.linked_data.compiled import CompiledContexts
from kindcast.semantic.events.linked_data.reader import DEEPEST, DOCUMENT_VALUES, GraphReader, unfolded
from kindcast.semantic.events.linked_data.reference import Expander
from kindcast.semantic.flatten import EventLimits
from tests.harness.graph_trees import shown

EX = "http://example.org/"
XSD = "http://www.w3.org/2001/XMLSchema#"
URL = "http://example.org/context"
LIMITS = EventLimits()
TERMS = ("p", "q", "r", "s", "T")
TEXTS = ("a", "p", "T", "ex:T", "urn:x:1", "urn:x:2", "urn:x:3", "_:b", "_:c", "12", "x/y", "de", "", "a b")
ODD_TEXTS = ("@type", "@none", "@odd")

iris = st.sampled_from((EX + "p", EX + "q", EX + "r#s", "ex:r", "ex:p", "_:p"))
odd_iris = st.sampled_from(("@nest", "@reverse", "@included", EX + "<p>", "@json", "p", "@graph", "@index", None))
coercions = st.sampled_from(("@id", "@vocab", "@json", "@none", XSD + "integer", XSD + "double", XSD + "date", "ex:T"))
containers = st.sampled_from(("@set", "@list", "@language", "@index", ["@language", "@set"], ["@index", "@set"]))
odd_containers = st.sampled_from(("@id", "@type", "@graph", ["@graph", "@id"]))


def seldom(usual: st.SearchStrategy[Any], odd: st.SearchStrategy[Any], of: int = 12) -> st.SearchStrategy[Any]:
    """Something odd now and then: what has many oddities is handed over, and shows nothing."""
    return st.integers(0, of).flatmap(lambda number: odd if number == of else usual)


@st.composite
def definitions(draw: st.DrawFn, depth: int) -> Any:
    """What a context says of a term."""
    if draw(st.booleans()):
        return draw(seldom(iris, odd_iris))
    found: dict[str, Any] = {"@id": draw(seldom(iris, odd_iris, 30))}
    which = draw(st.integers(0, 7))
    if which < 3:
        found["@type"] = draw(coercions)
    if which == 3:
        found["@language"] = draw(st.sampled_from(("de", "EN", None)))
    if which in (2, 4, 5):
        found["@container"] = draw(seldom(containers, odd_containers))
    if depth and which in (1, 6, 7):
        found["@context"] = draw(contexts(depth - 1))
    odd = draw(st.integers(0, 40))
    if odd == 0:
        found["@protected"] = True
    elif odd == 1:
        found["@reverse"] = found.pop("@id")
    elif odd == 2:
        found["@prefix"] = True
    return found


def contexts(depth: int) -> st.SearchStrategy[Any]:
    """Contexts of documents, objects, or terms."""
    others = st.sampled_from(
        ({}, {}, {}, {"@vocab": EX}, {"@vocab": ""}, {"@base": EX}, {"@base": None}, {"@language": "fr"},
         {"@version": 1.1}, {"@propagate": False}, {"@propagate": True}, {"l": "@list", "v": "@value", "set": "@set"})
    )  # fmt: skip
    usual = st.builds(
        lambda terms, other: {"ex": EX, "id": "@id", "type": "@type", **terms, **other},
        st.dictionaries(st.sampled_from(TERMS), definitions(depth), max_size=5),
        others,
    )
    more = st.one_of(
        st.none(), st.just(URL), st.just({}), st.lists(usual, max_size=2), st.just([URL, {"s": "ex:s"}]), others
    )
    return seldom(usual, more, 6)


texts = seldom(st.sampled_from(TEXTS), st.sampled_from(ODD_TEXTS), 20)
scalars = st.one_of(texts, texts, st.integers(-2, 2), st.sampled_from((0.5, 1.0, 2e30)), st.booleans(), st.none())
keys = seldom(
    st.sampled_from((*TERMS, *TERMS, "ex:p", "ex:q", EX + "r", "id", "@type", "type", "ignored")),
    st.sampled_from(("@reverse", "@index", "@graph", "@included", "@set", "@nest", "@language", "@value")),
    40,
)
names = st.sampled_from(("urn:x:1", "urn:x:2", "urn:x:3", "_:b", "x", "ex:y"))
types = st.one_of(st.sampled_from(("T", "ex:T", "p", "q")), st.lists(st.sampled_from(("T", "ex:T", "p", "r"))))


def _nodes(values: st.SearchStrategy[Any], *, least: int = 0) -> st.SearchStrategy[Any]:
    def mended(node: dict[str, Any], name: str, kinds: Any) -> dict[str, Any]:
        given = {"id": name, "@id": name, "type": kinds, "@type": kinds}
        return {key: given.get(key, value) for key, value in node.items()}

    return st.builds(mended, st.dictionaries(keys, values, min_size=least, max_size=4), names, types)


def _objects(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    literals = st.builds(
        lambda value, other: {"@value": value, **other},
        scalars,
        st.sampled_from(
            ({}, {"@type": XSD + "integer"}, {"@type": XSD + "date"}, {"@language": "de"}, {"@language": "DE-at"},
             {"@index": "i"}, {"@direction": "ltr"}, {"@type": "@json"}, {"type": "T"}, {"@language": None})
        ),
    )  # fmt: skip
    references = st.builds(lambda name, iri: {name: iri}, st.sampled_from(("@id", "id")), texts)
    wrapped = st.builds(lambda name, value: {name: value}, st.sampled_from(("@set", "@list", "l")), values)
    tagged = st.dictionaries(st.sampled_from(("de", "EN", "@none", "p")), st.one_of(texts, st.lists(texts)))
    nodes = _nodes(values)
    with_context = st.builds(lambda node, context: {**node, "@context": context}, nodes, contexts(1))
    return st.one_of(nodes, nodes, nodes, literals, references, wrapped, tagged, with_context)


values = st.recursive(scalars, lambda inner: st.one_of(_objects(inner), st.lists(inner, max_size=3)), max_leaves=8)
documents = st.one_of(
    st.builds(lambda context, node: {"@context": context, **node}, contexts(2), _nodes(values, least=1)),
    st.builds(
        lambda context, node: {"@context": context, "id": "urn:x:9", **node}, contexts(2), _nodes(values, least=1)
    ),
    st.builds(
        lambda context, nodes: {"@context": context, "@graph": nodes},
        contexts(2),
        st.lists(_nodes(values, least=1), max_size=3),
    ),
    st.lists(st.one_of(_objects(values), scalars), max_size=2),
)


def by_reference(document: Any, known: dict[str, Any]) -> Any:
    """The events of a document by PyLD's expanded form, or the code of the refusal."""
    reader = GraphReader(known, LIMITS)
    try:
        graph = reader.graph(document, "application/ld+json")
        return [
            ("_:" if root.startswith("_:-") else root, shown(unfolded(graph, root, LIMITS))) for root in graph.roots
        ]
    except InvalidEvent as error:
        return error.problems[0].code


def by_compiled(contexts: CompiledContexts, document: Any) -> Any:
    """The same by compiled contexts; None where they hand the document over."""
    try:
        found = contexts.trees(document)
    except InvalidEvent as error:
        return error.problems[0].code
    if found == []:
        return "no-event"
    return found and [("_:" if root.startswith("_:-") else root, shown(tree)) for root, tree in found]


def _redefined(outer: str, inner: str) -> list[Any]:
    """A term whose scoped context defines the term itself otherwise."""
    again = {"p": {"@id": EX + "p", "@type": inner}}
    return [{"@context": {"p": {"@id": EX + "p", "@type": outer, "@context": again}}, "p": "a"}]


@example(_redefined("@json", "@id"), None)
@example(_redefined("@id", "@json"), None)
@example(_redefined("@id", XSD + "integer"), None)
@example([{"@context": {"q": {"@type": "@id", "@reverse": "@nest"}, "@vocab": EX}, "T": []}], None)
@given(st.lists(documents, min_size=1, max_size=3), contexts(1))
def test_compiled_contexts_agree_with_the_reference(some: list[Any], known: Any) -> None:
    """Twice each, since the second reading finds what the first one kept."""
    by_url = {URL: {"@context": known}}
    expander = Expander(by_url)
    compiled = CompiledContexts(lambda: expander, LIMITS, DOCUMENT_VALUES, DEEPEST, ())
    for document in (*some, *some):
        found = by_compiled(compiled, document)
        if found is not None:
            assert found == by_reference(document, by_url)
