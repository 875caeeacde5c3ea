"""Impact and difference against their plain definitions, on random pairs of vocabularies.

A subscription changes when some published value reaches it under one vocabulary and not under the other. Here every
value that either vocabulary knows is published under both, by a matcher; there it is found without trying.
"""

from typing import Any

import pytest
from hypothesis import example, given, note, settings
from hypothesis import strategies as st

from kindcast import Matcher, Vocabulary
from kindcast.semantic.changes.difference import difference_between
from kindcast.semantic.changes.impact import Impact, TermPart, footprint, impact_report
from kindcast.semantic.ontology import ConceptRecord, Ontology
from kindcast.semantic.ontology.namespaces import local_name
from kindcast.semantic.ontology.records import NOTATION, PropertyRecord, RelationRecord
from kindcast.semantic.subscriptions.compilation import compile_expression

NAMES = (*(f"http://e/{letter}" for letter in "ABCDEF"), "http://other/A")
LABELS = ("red", "green", "blue")
RELATIONS = ("http://e/partOf", "http://e/near")
ROOTS = ("red", "B", "root")
PREFIXES = ("https://e/", "http://other/")
"""What may stand for the namespace of most names."""
ALIASES = ("urn:one", NAMES[1])
"""What may stand for a name."""

names = st.sampled_from(NAMES)
pairs = st.lists(st.tuples(names, names), max_size=6).map(lambda found: tuple(sorted(set(found))))


@st.composite
def records(draw: st.DrawFn, iri: str) -> ConceptRecord:
    labels = draw(st.lists(st.sampled_from(LABELS), max_size=2, unique=True))
    deprecated = draw(st.integers(0, 3)) == 0
    return ConceptRecord(
        iri=iri,
        preferred=tuple((label, None) for label in labels[:1]),
        synonyms=tuple((label, "de") for label in labels[1:]),
        deprecated=deprecated,
        replaced_by=tuple(draw(st.lists(names, max_size=2, unique=True))) if deprecated else (),
    )


@st.composite
def ontologies(draw: st.DrawFn, name: str = "x") -> Ontology:
    there = sorted(draw(st.sets(names, max_size=6)))
    return Ontology(
        name=name,
        concepts=tuple(draw(records(iri)) for iri in there),
        edges=draw(pairs),
        types=draw(pairs),
        equivalences=draw(st.lists(st.tuples(names, names), max_size=2).map(tuple)),
        relations=tuple(
            RelationRecord(iri=iri, edges=draw(pairs)) for iri in sorted(draw(st.sets(st.sampled_from(RELATIONS))))
        ),
    )


@st.composite
def vocabularies(draw: st.DrawFn) -> tuple[Vocabulary, Vocabulary]:
    """Two that may share an ontology."""
    shared = draw(ontologies("shared"))

    def one() -> Vocabulary:
        synonyms = draw(st.dictionaries(st.sampled_from(("one", "two", "A")), st.sampled_from(ROOTS), max_size=2))
        iris = draw(st.dictionaries(st.sampled_from(ALIASES), st.sampled_from(NAMES[2:4]), max_size=2))
        prefixes = draw(st.dictionaries(st.sampled_from(PREFIXES), st.just("http://e/"), max_size=1))
        tables = {"iris": {"iris": iris}, "prefixes": {"prefixes": prefixes}} if draw(st.booleans()) else {}
        return Vocabulary([shared, draw(ontologies())], synonyms=synonyms, aliases=tables)

    return one(), one()


def published(*known: Vocabulary) -> list[str]:
    """Every value that could be read as a concept or a word by one of them."""
    iris = {iri for each in known for number in range(len(each)) for iri in each.iris(number)}  # type: ignore[arg-type]
    own = {word for each in known for word in each.synonyms}
    forms = {*ALIASES, *(prefix + local_name(iri) for iri in iris for prefix in PREFIXES)}
    return sorted({*iris, *forms, *map(local_name, iris), *LABELS, *ROOTS, *own} - {""})


def reaching(vocabulary: Vocabulary, trees: dict[str, Any], values: list[str]) -> dict[str, set[str]]:
    """By subscription, the values that reach it."""
    matcher = Matcher(vocabulary)
    for id, tree in trees.items():
        matcher.restore(id, tree)
    found: dict[str, set[str]] = {id: set() for id in trees}
    for value in values:
        for match in matcher.match({"x": value}):
            found[match.subscription].add(value)
    return found


DEPRECATED = ConceptRecord(iri=NAMES[3], preferred=(("red", None),), deprecated=True, replaced_by=(NAMES[0],))


def found(*records: ConceptRecord, **parts: Any) -> Vocabulary:
    """A vocabulary that was once told of wrongly."""
    return Vocabulary([Ontology(name="x", concepts=records, **parts)])


A_LABEL_COMES_WITH_A_MERGE = (
    found(DEPRECATED),
    found(
        DEPRECATED,
        ConceptRecord(iri=NAMES[4], preferred=(("red", None),)),
        edges=((NAMES[3], NAMES[4]), (NAMES[4], NAMES[3])),
    ),
)
A_LABEL_BECOMES_A_SYNONYM = (
    found(
        ConceptRecord(iri=NAMES[0], preferred=(("red", None),)), ConceptRecord(iri=NAMES[5], preferred=(("red", None),))
    ),
    found(
        ConceptRecord(iri=NAMES[0], synonyms=(("red", None),)), ConceptRecord(iri=NAMES[5], preferred=(("red", None),))
    ),
)
A_REPLACEMENT_IS_MERGED_WITH_WHAT_IT_REPLACES = (
    found(
        ConceptRecord(iri=NAMES[0], preferred=(("red", None),), deprecated=True, replaced_by=NAMES[:2]),
        ConceptRecord(iri=NAMES[1]),
    ),
    found(
        ConceptRecord(iri=NAMES[0], preferred=(("red", None),), deprecated=True, replaced_by=NAMES[:2]),
        ConceptRecord(iri=NAMES[1]),
        equivalences=(NAMES[:2],),
    ),
)
WITHDRAWN = tuple(ConceptRecord(iri=iri, deprecated=True) for iri in NAMES[:2])
WHAT_A_REPLACEMENT_LEADS_TO_IS_MERGED = (
    found(*WITHDRAWN, ConceptRecord(iri=NAMES[2], deprecated=True, replaced_by=NAMES[:1]), equivalences=(NAMES[:2],)),
    found(*WITHDRAWN, ConceptRecord(iri=NAMES[2], deprecated=True, replaced_by=NAMES[:1])),
)
MERGED = Ontology(name="shared", equivalences=((NAMES[0], NAMES[2]),))
ONE_TYPED = Ontology(name="x", types=((NAMES[0], NAMES[2]),))
AN_ALIAS_GOES = (
    Vocabulary([ONE_TYPED], aliases={"iris": {"iris": {NAMES[1]: NAMES[2]}}}),
    Vocabulary([ONE_TYPED]),
)
A_MERGED_NAME_BECOMES_KNOWN = (
    Vocabulary([MERGED]),
    Vocabulary([MERGED, Ontology(name="x", types=((NAMES[1], NAMES[0]),))]),
)


@settings(max_examples=settings.default.max_examples)
@given(vocabularies())
@example(AN_ALIAS_GOES)
@example(A_MERGED_NAME_BECOMES_KNOWN)
@example(WHAT_A_REPLACEMENT_LEADS_TO_IS_MERGED)
@example(A_LABEL_COMES_WITH_A_MERGE)
@example(A_LABEL_BECOMES_A_SYNONYM)
@example(A_REPLACEMENT_IS_MERGED_WITH_WHAT_IT_REPLACES)
def test_impact_finds_exactly_the_subscriptions_that_change(both: tuple[Vocabulary, Vocabulary]) -> None:
    """Of every test of every name: changed if and only if some value tells the vocabularies apart; the names gained and
    lost are exactly those of the definition, and a word that is told of is one of it."""
    before, after = both
    trees: dict[str, Any] = {
        f"{test} {iri}": {test: ["x", {"iri": iri}]} for test in ("isa", "below", "is") for iri in NAMES
    }
    trees |= {f"{name} {iri}": {"relation": ["x", name, {"iri": iri}]} for name in RELATIONS for iri in NAMES}
    values = published(before, after)
    was, now = reaching(before, trees, values), reaching(after, trees, values)
    impact = Impact(before, after, listed=1_000)
    impact.add(trees.items())
    note(f"{before.ontologies} {before.synonyms} / {after.ontologies} {after.synonyms}")
    silent = {id for id in impact.changed if not any(impact.changes[part].counts for part in impact.parts_of(id))}
    assert set(impact.changed) - silent == {id for id in trees if was[id] != now[id]}
    for id in silent:  # nothing reached it, nothing does: the IRI alone is gone, back or read otherwise
        assert any(impact.changes[part].details for part in impact.parts_of(id))
    for part, change in impact.changes.items():
        assert isinstance(part, TermPart)
        id = f"{part.relation or part.test} {part.iri}"
        gained, lost = now[id] - was[id], was[id] - now[id]
        named = {value for value in gained | lost if before.names(value) or after.names(value)}
        assert set(change.listed.get("gains", ())) == gained & named
        assert set(change.listed.get("loses", ())) == lost & named
        assert set(change.listed.get("gains_words", ())) <= gained
        assert set(change.listed.get("loses_words", ())) <= lost


@settings(max_examples=settings.default.max_examples)
@given(vocabularies(), st.integers(0, 20))
def test_impact_does_not_depend_on_how_subscriptions_come(both: tuple[Vocabulary, Vocabulary], first: int) -> None:
    """All at once or in two portions, and whatever else is subscribed: the same changes, the same counts."""
    before, after = both
    trees = [(f"{test} {iri}", {test: ["x", {"iri": iri}]}) for test in ("isa", "is") for iri in NAMES]
    once, twice = Impact(before, after), Impact(before, after)
    once.add(trees)
    twice.add(trees[:first])
    twice.add(trees[first:])
    assert (once.changes, once.changed, once.live) == (twice.changes, twice.changed, twice.live)


@settings(max_examples=settings.default.max_examples)
@given(vocabularies())
def test_difference_is_what_the_records_say(both: tuple[Vocabulary, Vocabulary]) -> None:
    """Names, parents, labels and deprecation by their definitions; the way back is the mirror image; nothing differs
    from itself."""
    before, after = both
    found, back = difference_between(before, after), difference_between(after, before)

    def stated(vocabulary: Vocabulary) -> dict[str, Any]:
        said: dict[str, Any] = {}
        for each in vocabulary.ontologies:
            for record in each.concepts:
                labels = said.setdefault(record.iri, (set(), [False]))
                labels[0].update({*record.preferred, *record.synonyms})
                labels[1][0] |= record.deprecated
        return said

    old, new = stated(before), stated(after)
    assert set(found.added) == new.keys() - old.keys() == set(back.removed)
    assert set(found.relabelled) == {iri for iri in old.keys() & new.keys() if old[iri][0] != new[iri][0]}
    assert set(found.restored) == {iri for iri in old.keys() & new.keys() if old[iri][1][0] and not new[iri][1][0]}
    assert {iri: (now, was) for iri, (was, now) in found.moved.items()} == back.moved
    assert (found.merged, found.split) == (back.split, back.merged)
    for group in found.merged:
        assert len({after.concept(iri) for iri in group}) == 1
        assert len({before.concept(iri) for iri in group if iri in old}) > 1
    assert not difference_between(before, before)
    assert found.as_json(limit=1)["added"]["count"] == len(found.added)


def test_footprint_reads_what_the_compiler_writes() -> None:
    """Trees are taken as the language prints them: every term, attribute, unit and word of a stored expression."""
    vocabulary = Vocabulary([Ontology(name="x", concepts=(ConceptRecord(iri=NAMES[0]), ConceptRecord(iri=NAMES[1])))])
    text = """a isa A or not b below (A, B) or c is B or d = <http://e/A> or e in ("red", 3 kg, <http://e/B>)
        or f between [1 USD, 2 USD] or g < h or i exists or k missing or l startswith "x" or some m (n = "blue")"""
    parts = footprint(compile_expression(text, vocabulary).tree)
    told = {tuple(part) for part in parts}
    terms = {("isa", NAMES[0]), ("below", NAMES[0]), ("below", NAMES[1]), ("is", NAMES[1]), ("is", NAMES[0])}
    assert {part[:2] for part in told if len(part) == 3} == terms
    assert {part[0] for part in told if len(part) == 1} == {
        *"abcdefghiklmn",
        "m.n",
        "red",
        "blue",
        "kg",
        "USD",
    }
    assert {part for part in told if "a list" in part} == {(name, "a list") for name in NAMES[:2]}


EX = "http://e/"
AT = "http://c/"
SCHEME = "http://e/S"
MASS = {"kind": "number", "unit": "kg"}
DOUBLE = {"net": {"derived": "gross * 2"}}


def coded(*codes: str) -> Ontology:
    notations = tuple((NOTATION, code) for code in codes)
    return Ontology(name="x", concepts=(ConceptRecord(iri=NAMES[0], schemes=(SCHEME,), notations=notations),))


def properties(**inverse: str) -> Ontology:
    known = (PropertyRecord(iri=EX + name, inverses=(EX + other,) if other else ()) for name, other in inverse.items())
    return Ontology(name="x", properties=tuple(known))


def context(definition: Any) -> dict[str, Any]:
    return {"contexts": {AT: {"@context": {"v": definition, "B": NAMES[1]}}}}


def graph(**members: Any) -> dict[str, Any]:
    return {"@context": {"@vocab": EX}, **members}


IN_CONTEXT = {"@context": AT, "v": 5}
RATES = ({"rates": {"EUR": {"USD": "1"}}}, {"rates": {"EUR": {"USD": "2"}}})
MADE = ({"attributes": DOUBLE}, {"attributes": {**DOUBLE, "gross": MASS}})
REVERSED = graph(**{"@reverse": {"p": {"@id": "urn:x"}}})
NAMED = ({"attributes": DOUBLE}, {"attributes": DOUBLE, "synonyms": {"brutto": "gross"}})
WORDS: tuple[dict[str, Any], dict[str, Any]] = ({}, {"synonyms": {"HPX": "HP"}})


@pytest.mark.parametrize(
    ("ontologies", "declared", "asked", "event"),
    [
        ((coded(), coded("77")), ({}, {}), "c isa <http://e/A>", graph(c={"inScheme": SCHEME, "code": "77"})),
        ((coded("77"), coded("7")), ({}, {}), "not c is <http://e/A>", graph(c={"inScheme": SCHEME, "code": "77"})),
        ((properties(p=""), properties(p="q")), ({}, {}), "q exists", REVERSED),
        ((properties(p=""), properties(p="q")), ({}, {}), "`^p` exists", REVERSED),
        ((), RATES, "p > 15 EUR", {"p": "20 USD"}),
        ((), RATES, "p < q", {"p": "10 EUR", "q": "15 USD"}),
        ((), RATES, "sum(p) < max(q)", {"p": "10 EUR", "q": "15 USD"}),
        ((), WORDS, "a = b", {"a": "HPX", "b": "HP"}),
        ((), MADE, "net = 2 kg", {"gross": 1}),
        ((), NAMED, "net = 2", {"brutto": 1}),
        ((), (context(EX + "p"), context(EX + "q")), "<http://e/q> = 5", IN_CONTEXT),
        ((), ({}, context(EX + "q")), "<http://e/q> = 5", IN_CONTEXT),
        ((), ({}, context(EX + "q")), "v = 5", IN_CONTEXT),
        ((), (context(EX + "q"), context({"@id": EX + "q", "@type": "@vocab"})), 'q = "B"', {"@context": AT, "v": "B"}),
    ],
)  # fmt: skip
def test_impact_finds_what_changes_beside_names(
    ontologies: tuple[Ontology, ...], declared: tuple[dict[str, Any], dict[str, Any]], asked: str, event: dict[str, Any]
) -> None:
    """Codes, inverse properties, rates, pairs of attributes, what is derived, and contexts."""
    given = [ontologies[:1], ontologies[1:]]
    before, after = (Vocabulary(each, **more) for each, more in zip(given, declared, strict=True))
    tree = compile_expression(asked, before).tree
    outcomes = []
    for vocabulary in (before, after):
        matcher = Matcher(vocabulary)
        matcher.restore("s", tree)
        outcomes.append(bool(matcher.match(event)))
    impact = Impact(before, after)
    impact.add([("s", tree), ("other", {"isa": ["y", {"iri": "urn:y"}]})])
    assert outcomes[0] != outcomes[1]
    assert impact.changed == ["s"]
    assert impact_report(impact)["subscriptions"]["listed"][0]["changes"][0].partition(": ")[2]
