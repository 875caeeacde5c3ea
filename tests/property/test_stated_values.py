"""What objects state (rule 22): the matcher decides as the oracle does, by every way in."""

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kindcast import Matcher, explain
from kindcast.semantic.language import to_tree
from kindcast.semantic.model import (
    All,
    AnyOf,
    AttributeRef,
    Between,
    Comparison,
    Constant,
    Event,
    Expression,
    KindTest,
    Not,
    Presence,
    Quantity,
    SomeOf,
    Term,
)
from tests.oracle import Declaration, World, matching
from tests.strategies import fused_and_others, vocabulary_of

EX = "http://example.org/"
NAMES = ("load", "draught", "valueQuantity", "plain", "load.value", "draught.reading", "in.valueQuantity")
WORLD = World(
    declarations={
        "load": Declaration(quantity=True),
        "draught": Declaration(quantity={"number": "reading", "unit": "scale"}),
        "finding": Declaration(code=True),
        "tariff": Declaration(code={"in": f"{EX}tariff"}),
        "article": Declaration(code={"code": "number", "in": "articles"}),
    },
    names=(f"{EX}Heart", f"{EX}Valve", f"{EX}Old", f"{EX}A1", f"{EX}A2"),
    narrower=((f"{EX}Valve", f"{EX}Heart"), (f"{EX}A2", f"{EX}A1")),
    labels=((f"{EX}Heart", "heart", None, "preferred"),),
    replaced=((f"{EX}Old", f"{EX}Valve"),),
    schemes=tuple((f"{EX}{each}", f"{EX}tariff") for each in ("A1", "A2", "Old")),
    notations=((f"{EX}A1", "1"), (f"{EX}A2", "2"), (f"{EX}A2", "heart"), (f"{EX}Old", "3"), (f"{EX}Heart", "9")),
    code_systems={
        "parts": {"identifiers": ("urn:parts", "urn:oid:1.2"), "iri": EX + "{code}"},
        "articles": {"identifiers": (f"{EX}tariff", EX)},
    },
)
UCUM = ("http://unitsofmeasure.org", "http://unitsofmeasure.org/")

numbers = st.sampled_from([5, 9, 9.5, 10, 5000, "9", "9.50", True, "nine"])
units = st.sampled_from(["kg", "g", "m", "nounit"])
comparators = st.sampled_from(["<", "<=", ">", ">="])
stating = st.one_of(
    st.fixed_dictionaries(
        {"value": numbers, "unit": units},
        optional={"system": st.sampled_from([*UCUM, "http://other.example"]), "code": units, "comparator": comparators},
    ),
    st.fixed_dictionaries({"numericalValue": numbers, "unitText": units}, optional={"unitCode": units}),
    st.fixed_dictionaries({"reading": numbers, "scale": units}, optional={"comparator": comparators}),
    st.fixed_dictionaries({"value": numbers, "note": st.just("kg")}),
)
systems = st.sampled_from(["urn:parts", "urn:oid:1.2", "parts", f"{EX}tariff", "urn:unknown"])
codes = st.sampled_from(["1", "2", "3", "9", "heart", "Heart", "Valve", "Old"])
coding = st.fixed_dictionaries({"system": systems, "code": codes}, optional={"display": codes})
coded = st.one_of(
    coding,
    st.fixed_dictionaries({"coding": st.lists(coding, max_size=3)}, optional={"text": codes}),
    st.fixed_dictionaries({"number": codes}, optional={"system": systems, "code": codes}),
    codes,
)
members = st.one_of(stating, coded, st.sampled_from([9, "9 kg", "5000 g", None]))
owners = st.sampled_from(["load", "draught", "valueQuantity", "plain", "finding", "tariff", "article", "finding"])
flat = st.dictionaries(owners, st.one_of(members, st.lists(members, min_size=1, max_size=2)), min_size=1, max_size=4)
published = st.one_of(
    flat,
    st.builds(lambda outer, inner: {**outer, "in": inner}, flat, flat),
    st.builds(lambda outer, inner: {**outer, "box": inner}, flat, st.lists(flat, min_size=1, max_size=2)),
)

names = st.sampled_from(NAMES)
orders = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
amounts = st.sampled_from([Quantity(9, "kg"), Quantity(9500, "g"), Quantity(5, "kg"), Quantity(9, "m")]).map(Constant)
masses = st.sampled_from([Quantity(9, "kg"), Quantity(9500, "g"), Quantity(5, "kg")]).map(Constant)
kinds = st.sampled_from(["finding", "tariff", "article", "plain", "finding.coding", "finding.code"])
iris = [f"{EX}{each}" for each in ("Heart", "Valve", "A1", "A2")]
terms = st.sampled_from([Term(iri, is_iri=True, iri=iri) for iri in iris])
predicates: st.SearchStrategy[Expression] = st.one_of(
    st.builds(Comparison, names, orders, amounts),
    st.builds(Comparison, names, orders, st.sampled_from([9, 9.5]).map(Constant)),
    st.builds(Between, names, masses, masses, st.sampled_from(["[]", "()"])),
    st.builds(Comparison, names, orders, names.map(AttributeRef)),
    st.builds(Presence, st.sampled_from([*NAMES, "finding", "article", "finding.coding"]), st.booleans()),
    *[st.builds(KindTest, kinds, st.sampled_from(["isa", "below", "is"]), st.tuples(terms))] * 2,
)


def grouped(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    both = st.tuples(inner, inner)
    return st.one_of(inner, inner.map(Not), both.map(All), both.map(AnyOf))


expressions = st.one_of(grouped(predicates), st.builds(SomeOf, st.just("box"), grouped(predicates)))


@fused_and_others
@given(
    data=st.data(),
    asked=st.lists(expressions, min_size=8, max_size=16),
    events=st.lists(st.tuples(published, st.booleans()), min_size=4, max_size=8),
)
def test_objects_state_what_the_oracle_says(
    engines: st.SearchStrategy[str],
    data: st.DataObject,
    asked: list[Expression],
    events: list[tuple[dict[str, Any], bool]],
) -> None:
    """One by one, in a batch, from a table, and in explanations; by declaration, and by the content type."""
    vocabulary = vocabulary_of(WORLD)
    matcher = Matcher(vocabulary, engine=data.draw(engines))
    subscriptions = {str(number): expression for number, expression in enumerate(asked)}
    matcher.add_many([(name, to_tree(expression)) for name, expression in subscriptions.items()])
    content = {True: "application/fhir+json", False: "application/json"}
    all_events = [Event(data, {"datacontenttype": content[is_fhir]}) for data, is_fhir in events]
    expected = [sorted(matching(subscriptions, event, WORLD)) for event in all_events]
    assert [sorted(match.subscription for match in matcher.match(event)) for event in all_events] == expected
    assert [sorted(match.subscription for match in each) for each in matcher.match_batch(all_events)] == expected
    columns: dict[str, list[Any]] = {
        name: [data.get(name) for data, _ in events] for each, _ in events for name in each
    }
    columns["ce.datacontenttype"] = [event.context["datacontenttype"] for event in all_events]
    table = matcher.match_table(columns)
    found = [table.slots[low:high] for low, high in pairwise(table.offsets)]
    assert [sorted(table.subscriptions(slots)) for slots in found] == expected
    told = {name: explain(vocabulary, to_tree(each), all_events[0])["matches"] for name, each in subscriptions.items()}
    assert sorted(name for name, matches in told.items() if matches) == expected[0]
