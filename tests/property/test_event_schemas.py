"""Event types agree with an ordinary reader of JSON Schema, and with the definitions of Le Subscribe, section 2."""

from typing import Any

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from kindcast import InvalidEvent, Vocabulary
from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.events.canonical_events import Canonicaliser
from kindcast.semantic.vocabulary.event_schemas import EventSchemas, document_of, extension_problems, read_event_type
from kindcast.semantic.vocabulary.event_types import EventType, view_of

NAMES = ("a", "b", "c")

# ── documents ───────────────────────────────────────────────────────────────────────────────────────────────────────

numbers = st.sampled_from([-1, 0, 0.5, 1, 2, 2.0, 10])
texts = st.sampled_from(["", "x", "xy", "1", "xyz"])
bounds = st.fixed_dictionaries(
    {}, optional={"minimum": numbers, "maximum": numbers, "exclusiveMinimum": numbers, "exclusiveMaximum": numbers}
)
lengths = st.fixed_dictionaries({}, optional={"minLength": st.integers(0, 2), "maxLength": st.integers(0, 3)})
types = st.sampled_from(
    ["string", "number", "integer", "boolean", ["string", "number"], ["boolean", "integer"], ["number", "array"]]
)
scalar_schemas: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.tuples(st.sampled_from(["number", "integer"]), bounds).map(lambda each: {"type": each[0]} | each[1]),
    lengths.map(lambda each: {"type": "string"} | each),
    st.sampled_from([{"type": "string", "pattern": "^x"}, {"const": "x"}, {}]),
    st.lists(st.one_of(texts, numbers, st.booleans()), min_size=1, max_size=3).map(lambda each: {"enum": each}),
    types.map(lambda each: {"type": each}),
)


def list_schema(items: dict[str, Any], count: tuple[int, int], distinct: bool) -> dict[str, Any]:
    low, high = sorted(count)
    return {"type": "array", "items": items, "minItems": low, "maxItems": high, "uniqueItems": distinct}


def list_schemas(items: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    counts = st.tuples(st.integers(0, 3), st.integers(0, 3))
    return st.builds(list_schema, items, counts, st.booleans())


@st.composite
def object_schemas(draw: st.DrawFn, members: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
    schema: dict[str, Any] = {"type": "object", "properties": {name: draw(members) for name in names}}
    schema["required"] = [name for name in names if draw(st.booleans())]
    if draw(st.booleans()):
        schema["additionalProperties"] = False
    return schema


plain = st.one_of(scalar_schemas, list_schemas(scalar_schemas))
documents = object_schemas(st.one_of(plain, plain, object_schemas(plain), list_schemas(object_schemas(plain))))

# ── data ────────────────────────────────────────────────────────────────────────────────────────────────────────────

scalars = st.one_of(texts, numbers, st.booleans())
"""No null: it is not a value (rule 1), whatever a document says."""


def objects(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Never empty inside: an empty object, like an empty list, is not a value either."""
    return st.dictionaries(st.sampled_from((*NAMES, "z")), values, min_size=1, max_size=3)


def lists(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(values, min_size=1, max_size=3)


inner = st.one_of(scalars, scalars, lists(scalars))
published = st.one_of(st.just({}), objects(st.one_of(inner, inner, objects(inner), lists(objects(scalars)))))


def refused(vocabulary: Vocabulary, data: dict[str, Any]) -> list[str]:
    """The pointers of what does not fit; none for an event that is taken."""
    try:
        Canonicaliser(vocabulary).canonicalise({**data, "@type": "t"})
    except InvalidEvent as error:
        return [str(problem.at) for problem in error.problems]
    return []


@given(document=documents, events=st.lists(published, min_size=8, max_size=12))
@settings(max_examples=3 * settings.default.max_examples)
def test_event_fits_its_type_exactly_if_json_schema_says_so(
    document: dict[str, Any], events: list[dict[str, Any]]
) -> None:
    """What an ordinary validator accepts we accept, and the other way round; `@type` is not an attribute."""
    jsonschema.Draft202012Validator.check_schema(document)
    reader = jsonschema.Draft202012Validator(document)
    vocabulary = Vocabulary.from_ontologies([], schemas={"t": document})
    for data in events:
        assert (refused(vocabulary, data) == []) == reader.is_valid(data), data


@given(document=documents)
def test_event_type_written_and_read_again_is_the_same(document: dict[str, Any]) -> None:
    """Shapes survive the way through JSON Schema, and what is written is valid JSON Schema."""
    first = read_event_type("t", document)
    written = document_of(first)
    jsonschema.Draft202012Validator.check_schema(written)
    assert read_event_type("t", written) == first


# ── several types, as the paper has them ────────────────────────────────────────────────────────────────────────────

DOMAINS: dict[str, dict[str, Any]] = {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {"enum": ["x", "y"]}}


@st.composite
def flat_documents(draw: st.DrawFn) -> dict[str, Any]:
    """Closed types with attributes of fixed domains: mandatory or optional, unique or multiple."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
    several = {name: draw(st.booleans()) for name in names}
    return {
        "properties": {
            name: {"type": "array", "items": DOMAINS[name]} if several[name] else DOMAINS[name] for name in names
        },
        "required": [name for name in names if draw(st.booleans())],
        "additionalProperties": False,
    }


values = st.sampled_from([1, "x", "q", [1, 2], ["x"], [1, "x"]])
flat_events = st.dictionaries(st.sampled_from((*NAMES, "z")), values, max_size=4)


def fits(name: str, value: Any) -> bool:
    """V ⊆ dom(A)."""
    each = value if isinstance(value, list) else [value]
    return all(jsonschema.Draft202012Validator(DOMAINS[name]).is_valid(one) for one in each)


@given(one=flat_documents(), two=flat_documents(), events=st.lists(flat_events, min_size=6, max_size=8))
@settings(max_examples=2 * settings.default.max_examples)
def test_event_of_two_types_obeys_the_three_rules(
    one: dict[str, Any], two: dict[str, Any], events: list[dict[str, Any]]
) -> None:
    """R2 and R3 over the view of both types, as the definitions say (and erratum 20 reads them)."""
    vocabulary = Vocabulary.from_ontologies([], schemas={"one": one, "two": two})
    allowed = {**one["properties"], **two["properties"]}
    mandatory = {*one["required"], *two["required"]}
    multiple = {name for each in (one, two) for name, node in each["properties"].items() if "items" in node}
    for data in events:
        wrong = {name for name in mandatory if name not in data}  # R2: what is mandatory
        for name, value in data.items():
            if (
                name not in allowed  # R3
                or (isinstance(value, list) and name not in multiple)  # R2: what is unique
                or not fits(name, value)  # R2: the domain
                or (
                    not isinstance(value, list)
                    and all("items" in each["properties"].get(name, {"items": 0}) for each in (one, two))
                )
            ):
                wrong.add(name)
        try:
            Canonicaliser(vocabulary).canonicalise({**data, "@type": ["one", "two"]})
            found: set[str] = set()
        except InvalidEvent as error:
            found = {str(problem.at).split("/")[1] for problem in error.problems}
        assert found == wrong, data


@given(one=flat_documents(), two=flat_documents(), chosen=st.frozensets(st.sampled_from((*NAMES, "z"))))
def test_view_of_chosen_attributes_obeys_the_three_conditions(
    one: dict[str, Any], two: dict[str, Any], chosen: frozenset[str]
) -> None:
    """A view exists exactly if it leaves out nothing mandatory and takes nothing strange; mandatory and multiple go
    first."""
    types = EventSchemas({"one": one, "two": two}).types.values()
    mandatory = {*one["required"], *two["required"]}
    attributes = {*one["properties"], *two["properties"]}
    try:
        view = view_of(types, chosen)
    except InvalidDeclaration as error:
        codes = {problem.code for problem in error.problems}
        assert ("view-misses-mandatory" in codes) == bool(mandatory - chosen)
        assert ("view-has-stranger" in codes) == bool(chosen - attributes)
        return
    assert mandatory <= chosen <= attributes
    assert {name for name, use in view.uses.items() if use.mandatory} == mandatory
    assert set(view.uses) == chosen
    multiple = {name for each in (one, two) for name, node in each["properties"].items() if "items" in node}
    assert {name for name, use in view.uses.items() if use.multiple} == multiple & chosen


@given(before=flat_documents(), after=flat_documents())
def test_extension_is_allowed_exactly_if_it_only_adds_optional_attributes(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    """Rule 3 of the four; a type extended to itself is no change."""

    def triples(document: dict[str, Any]) -> set[tuple[str, bool, bool]]:
        properties = document["properties"]
        return {(name, name in document["required"], "items" in node) for name, node in properties.items()}

    def read(document: dict[str, Any]) -> EventType:
        return read_event_type("t", document)

    added = triples(after) - triples(before)
    names = {name for name, *_ in triples(before)}
    allowed = triples(before) <= triples(after) and all(name not in names and not needed for name, needed, _ in added)
    assert (extension_problems(read(before), read(after)) == []) == allowed
    assert extension_problems(read(before), read(before)) == []
    assert extension_problems(None, read(after)) == []
