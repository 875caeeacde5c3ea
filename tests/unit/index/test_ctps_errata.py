"""What the CTPS paper's pseudocode gets wrong, one regression test each (the numbers are those of our list of errata).

The mistakes are of the published algorithms, so every engine is asked; only `ctps` could have inherited them.
"""

import math

import pytest

from kindcast.index.clause import (
    AttributeId,
    Clause,
    ColumnId,
    ConceptId,
    ConceptTest,
    IntervalTest,
    Key,
    KeyTest,
    LoweredEvent,
    Predicate,
    Test,
)
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.engine import Engine
from kindcast.index.published.ctps_rows import FIRST_SPREAD
from kindcast.index.registry import ENGINES, new_engine

TARGET, PART, CONTACT, PRICE, NAME = (AttributeId(number) for number in range(5))
PRODUCT, COMPUTER, LAPTOP, DISK, CONVERTIBLE, TABLET = (ConceptId(number) for number in range(6))
GRAPH = ConceptGraph(
    6,
    [
        (COMPUTER, PRODUCT),
        (LAPTOP, COMPUTER),
        (DISK, PRODUCT),
        (TABLET, PRODUCT),
        (CONVERTIBLE, LAPTOP),
        (CONVERTIBLE, TABLET),
    ],
)


@pytest.fixture(params=sorted(ENGINES))
def engine(request: pytest.FixtureRequest) -> Engine:
    """An empty engine of each kind over the products."""
    return new_engine(request.param, GRAPH)


def on(attribute: AttributeId, test: Test, *, negated: bool = False) -> Predicate:
    """A predicate on the one column of `attribute`, which has the same number."""
    return Predicate(attribute, ((ColumnId(attribute), test),), negated)


def clause(*predicates: Predicate) -> Clause:
    return Clause(predicates, frozenset(predicate.attribute for predicate in predicates))


def event(values: dict[AttributeId, tuple[Key, ...]]) -> LoweredEvent:
    return LoweredEvent(frozenset(values), {ColumnId(attribute): found for attribute, found in values.items()})


def isa(concept: ConceptId) -> ConceptTest:
    return ConceptTest(within=frozenset([concept]))


def text(key: str) -> KeyTest:
    return KeyTest(frozenset([key]))


def interval(low: float, high: float) -> IntervalTest:
    return IntervalTest(low, high)


def test_two_attributes_over_one_hierarchy_do_not_share_an_index(engine: Engine) -> None:
    """Erratum 1: `target isa Computer` is not satisfied by a computer that is a part, nor is it asked of the part."""
    target = engine.add(clause(on(TARGET, isa(COMPUTER))))
    both = engine.add(clause(on(TARGET, isa(COMPUTER)), on(PART, isa(DISK))))
    assert engine.match(event({TARGET: (LAPTOP,), PART: (DISK,)})).tolist() == [target, both]
    assert engine.match(event({TARGET: (DISK,), PART: (LAPTOP,)})).tolist() == []


@pytest.mark.parametrize(
    ("wanted", "values"), [(text("x"), ("1", "x")), (isa(COMPUTER), (DISK, LAPTOP)), (interval(5.0, 9.0), (3.0, 7.0))]
)
def test_one_of_several_values_under_an_attribute_is_enough(
    engine: Engine, wanted: Test, values: tuple[Key, ...]
) -> None:
    """Erratum 2: `contact = "x"` holds on {email: "x", cell: "1"}, whose pairs both stand under contact."""
    row = engine.add(clause(on(CONTACT, wanted)))
    assert engine.match(event({CONTACT: values})).tolist() == [row]
    assert engine.match(event({CONTACT: values[::-1]})).tolist() == [row]
    assert engine.match(event({CONTACT: values[:1]})).tolist() == []


@pytest.mark.parametrize(
    ("first", "second", "held", "refused"),
    [
        (isa(LAPTOP), isa(TABLET), (CONVERTIBLE,), (LAPTOP,)),
        (text("a"), text("b"), ("a", "b"), ("a",)),
        (interval(0.0, 5.0), interval(4.0, 9.0), (4.5,), (2.0,)),
        (interval(0.0, 5.0), interval(7.0, 9.0), (1.0, 8.0), (1.0, 6.0)),
    ],
)
def test_two_predicates_on_one_attribute_must_both_hold(
    engine: Engine, first: Test, second: Test, held: tuple[Key, ...], refused: tuple[Key, ...]
) -> None:
    """Erratum 3: they are no OR (trees, strings), and each may be satisfied by a value of its own (GEM)."""
    row = engine.add(clause(on(TARGET, first), on(TARGET, second)))
    assert engine.match(event({TARGET: held})).tolist() == [row]
    assert engine.match(event({TARGET: refused})).tolist() == []
    engine.check_invariants()


def test_a_row_that_was_removed_or_never_used_does_not_match(engine: Engine) -> None:
    """Erratum 4: matching starts from the stored clauses, not from all bits, even where nothing is constrained."""
    rows = engine.add_many([clause(on(NAME, text("a"))), clause()])
    engine.remove(rows[1])
    assert engine.match(event({PRICE: (1.0,)})).tolist() == []
    engine.remove(rows[0])
    assert engine.match(event({NAME: ("a",)})).tolist() == []


@pytest.mark.parametrize(
    "old",
    [
        on(TARGET, isa(PRODUCT)),
        on(NAME, text("a")),
        on(PRICE, interval(0.0, 100.0)),
        on(PRICE, interval(-math.inf, math.inf)),
        on(NAME, text("zzz"), negated=True),
    ],
)
def test_a_row_used_again_has_nothing_of_the_old_clause(engine: Engine, old: Predicate) -> None:
    """Erratum 4: the new clause at a row neither matches nor fails because of what was there before."""
    values: dict[AttributeId, tuple[Key, ...]] = {TARGET: (LAPTOP,), NAME: ("a",), PRICE: (50.0,)}
    row = engine.add(clause(old, on(PART, isa(DISK))))
    engine.remove(row)
    again = engine.add(clause(on(NAME, text("b"))))
    assert again == row
    assert engine.match(event(values)).tolist() == []
    assert engine.match(event({NAME: ("b",)})).tolist() == [again]
    engine.check_invariants()


@pytest.mark.parametrize(
    "absent", [on(TARGET, isa(PRODUCT)), on(NAME, text("a")), on(PRICE, interval(-math.inf, math.inf))]
)
@pytest.mark.parametrize("negated", [False, True])
def test_an_absent_attribute_fails_its_predicate_and_its_negation(
    engine: Engine, absent: Predicate, negated: bool
) -> None:
    """Erratum 5: a clause does not pass because the event says nothing about one of its attributes."""
    asked = Predicate(absent.attribute, absent.tests, negated)
    engine.add(clause(asked))
    engine.add(clause(asked, on(PART, isa(DISK))))
    assert engine.match(event({PART: (DISK,)})).tolist() == []


def test_a_forbidden_attribute_must_be_absent(engine: Engine) -> None:
    """Erratum 5, the reverse: `missing` holds on what is absent, and on nothing else."""
    row = engine.add(Clause((on(PART, isa(DISK)),), frozenset([PART]), forbidden=frozenset([NAME])))
    assert engine.match(event({PART: (DISK,)})).tolist() == [row]
    assert engine.match(event({PART: (DISK,), NAME: ("",)})).tolist() == []


def spread_out(engine: Engine) -> int:
    """Fill the price column with [0, 1], [1, 2], … [99, 100], so that its cells cover 0 to 100; returns how many."""
    engine.add_many(clause(on(PRICE, interval(float(low), low + 1.0))) for low in range(100))
    assert len(engine) > FIRST_SPREAD
    return len(engine)


@pytest.mark.parametrize("value", [0.0, 100.0, math.nextafter(100.0, 101.0), -5.0, 1e9, 99.999])
def test_values_at_and_beyond_the_end_of_the_range_meet_exact_bounds(engine: Engine, value: float) -> None:
    """Erratum 6: the greatest value is no special case, and values outside the range are checked in the end slots."""
    count = spread_out(engine)
    wide = engine.add_many(
        clause(on(PRICE, interval(low, high)))
        for low, high in [(-math.inf, value), (value, math.inf), (value, value), (-math.inf, math.inf)]
    )
    near = engine.add_many(
        clause(on(PRICE, interval(low, high)))
        for low, high in [(-math.inf, math.nextafter(value, -math.inf)), (math.nextafter(value, math.inf), math.inf)]
    )
    found = engine.match(event({PRICE: (value,)})).tolist()
    assert [row for row in found if row >= count] == wide
    assert not set(found) & set(near)
    assert [row for row in found if row < count] == [low for low in range(100) if low <= value <= low + 1]


@pytest.mark.parametrize(
    ("region", "low", "high", "matches"),
    [
        ("A: ends in a slot before", 5.0, 20.0, False),
        ("B: starts in a slot after", 80.0, 95.0, False),
        ("C: ends in the slot, after the value", 5.0, 50.4, True),
        ("C: ends in the slot, before the value", 5.0, 49.9, False),
        ("D: starts in the slot, before the value", 49.9, 95.0, True),
        ("D: starts in the slot, after the value", 50.4, 95.0, False),
        ("E: both in the slot, around the value", 49.9, 50.4, True),
        ("E: both in the slot, before the value", 49.8, 49.9, False),
        ("E: both in the slot, after the value", 50.1, 50.4, False),
        ("F: surely around the value", 5.0, 95.0, True),
        ("ends at the value", 5.0, 50.0, True),
        ("starts at the value", 50.0, 95.0, True),
    ],
)
def test_each_region_of_the_cells_is_decided_rightly(
    engine: Engine, region: str, low: float, high: float, matches: bool
) -> None:
    """Erratum 7: the order of the axes is the same in insertion and in all five regions; both ends are closed."""
    spread_out(engine)
    row = engine.add(clause(on(PRICE, interval(low, high))))
    assert (row in engine.match(event({PRICE: (50.0,)})).tolist()) is matches, region


def test_a_value_with_several_parents_reaches_all_of_them(engine: Engine) -> None:
    """Erratum 8: in a DAG all ways up count, not one parent at each step; siblings and concepts beneath do not."""
    rows = engine.add_many(clause(on(TARGET, isa(concept))) for concept in (LAPTOP, TABLET, PRODUCT, DISK, CONVERTIBLE))
    assert engine.match(event({TARGET: (CONVERTIBLE,)})).tolist() == [rows[0], rows[1], rows[2], rows[4]]
    assert engine.match(event({TARGET: (TABLET,)})).tolist() == [rows[1], rows[2]]


def test_a_string_that_nobody_asked_for_fails_every_string_predicate(engine: Engine) -> None:
    """Erratum 8: a key without an entry is the empty set: whoever constrains the attribute fails, nobody else does."""
    engine.add(clause(on(NAME, text("a"))))
    free = engine.add(clause(on(PRICE, interval(0.0, 1.0))))
    assert engine.match(event({NAME: ("unknown",), PRICE: (0.5,)})).tolist() == [free]
