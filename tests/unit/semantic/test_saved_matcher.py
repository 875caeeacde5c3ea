"""A matcher in a folder: what is opened is what was saved, and what is odd is refused with the reason."""

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kindcast import Matcher, Vocabulary, operator
from kindcast.semantic.errors import UnknownSubscription, UnusableMatcher
from kindcast.semantic.matching.saved_matcher import FILE

TURTLE = b"""
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix : <http://example.org/> .
:Laptop rdfs:subClassOf :Computer . :Tablet rdfs:subClassOf :Computer . :Computer rdfs:label "Computer"@en .
"""
EVENTS: list[dict[str, Any]] = [
    {"target": "http://example.org/Laptop", "price": 5, "name": "HP 5"},
    {"target": "Computer", "price": 70.5, "tag": ["a", "b"]},
    {"price": 0, "name": "nothing", "tag": "c3"},
]


@operator("twice", version="2")
def twice(event: Any, number: float) -> bool:
    """Whether a price is the double of a number."""
    return any(price == 2 * number for price in event.get("price", ()))


@pytest.fixture
def vocabulary() -> Vocabulary:
    """Three concepts."""
    return Vocabulary.from_bytes(TURTLE)


def subscriptions() -> list[tuple[str, Any]]:
    """Many of one shape, some alone; names with every kind of sign."""
    many: list[tuple[str, Any]] = [
        (f"m{n}", {"all": [{"isa": ["target", "Computer"]}, {"<=": ["price", n if n % 2 else n + 0.5]}]})
        for n in range(300)
    ]
    many += [(f"t{n}", {"any": [{"=": ["tag", f"c{n}"]}, {"=": ["tag", f"d{n}"]}]}) for n in range(30)]
    alone = ['name startswith "HP"', "price != 5", "price exists and name missing", "target isa Laptop or price > 60"]
    return [*many, *((f"é\n{text}", text) for text in alone)]


def matched(matcher: Matcher) -> list[list[str]]:
    """Who matches each event."""
    return [sorted(match.subscription for match in matcher.match(event)) for event in EVENTS]


def same(one: Matcher, other: Matcher) -> None:
    """Both hold the same, in the same slots, and match the same."""
    assert list(one) == list(other)
    assert matched(one) == matched(other)
    for name in one:
        assert one[name].tree == other[name].tree
        assert one[name].notes == other[name].notes
        assert one.tree(name) == one[name].tree
    one.check_invariants()
    other.check_invariants()


@pytest.mark.parametrize("engine", ["fused", "naive"])
def test_matcher_opened_is_the_matcher_saved(vocabulary: Vocabulary, tmp_path: Path, engine: str) -> None:
    """Also after removals, and again when what was opened is changed and saved itself."""
    matcher = Matcher(vocabulary, engine=engine)
    matcher.add_many(subscriptions())
    matcher.add("late", {"=": ["price", 70.5]})
    for number in range(0, 300, 3):
        matcher.remove(f"m{number}")
    matcher.save(tmp_path)
    opened = Matcher.open(tmp_path, vocabulary)
    assert opened.engine_name == engine
    same(opened, matcher)
    for each in (matcher, opened):
        each.remove("late")
        each.add_many(subscriptions()[:1])
        each.add("new", {"not": {"contains": ["name", "5"]}})
    same(opened, matcher)
    opened.save(tmp_path / "again")
    same(Matcher.open(tmp_path / "again", vocabulary), matcher)


def test_matcher_opened_asks_texts_and_operators_as_before(vocabulary: Vocabulary, tmp_path: Path) -> None:
    """What remains to be asked of a candidate is made when it is one, and forgotten with its subscription."""
    matcher = Matcher(vocabulary, operators=[twice])
    matcher.add_many([("text", 'name endswith "5"'), ("asked", "twice(2.5) and price exists"), ("plain", "price = 5")])
    matcher.save(tmp_path)
    opened = Matcher.open(tmp_path, vocabulary, operators=[twice])
    assert matched(opened) == [["asked", "plain", "text"], [], []]
    opened.check_invariants()
    again = Matcher.open(tmp_path, vocabulary, operators=[twice])
    again.remove("text")
    again.remove("asked")
    assert matched(again) == [["plain"], [], []]
    again.check_invariants()
    with pytest.raises(UnusableMatcher, match="other operators"):
        Matcher.open(tmp_path, vocabulary)


def test_matcher_opened_by_a_table_decides_as_by_events(vocabulary: Vocabulary, tmp_path: Path) -> None:
    """A table is the first that asks the candidates."""
    matcher = Matcher(vocabulary)
    matcher.add_many(subscriptions())
    matcher.save(tmp_path)
    table = Matcher.open(tmp_path, vocabulary).match_table({"name": ["HP 1", "x", "HP"], "price": [5.0, 6.0, 61.0]})
    bounds = table.offsets.tolist()
    found = [set(table.subscriptions(table.slots[low:high])) for low, high in pairwise(bounds)]
    texts = {'é\nname startswith "HP"'}
    assert [names & texts for names in found] == [texts, set(), texts]


def test_matcher_saved_under_another_vocabulary_is_refused(vocabulary: Vocabulary, tmp_path: Path) -> None:
    """Its numbers would mean other concepts."""
    matcher = Matcher(vocabulary)
    matcher.add_many(subscriptions())
    matcher.save(tmp_path)
    with pytest.raises(UnusableMatcher, match="another vocabulary"):
        Matcher.open(tmp_path, Vocabulary.from_bytes(TURTLE.replace(b"Tablet", b"Phone")))


def test_matcher_saved_under_other_rules_is_refused(
    vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows were compiled under the older meaning, whatever the digest of the vocabulary says."""
    with monkeypatch.context() as older:
        older.setattr("kindcast.semantic.matching.saved_matcher.MEANING", 1)
        Matcher(vocabulary).save(tmp_path)
    with pytest.raises(UnusableMatcher, match="the rules of matching have changed"):
        Matcher.open(tmp_path, vocabulary)


def test_matcher_without_a_folder_is_refused(vocabulary: Vocabulary, tmp_path: Path) -> None:
    """Nothing there, or half of it."""
    with pytest.raises(UnusableMatcher, match="No such file"):
        Matcher.open(tmp_path / "nowhere", vocabulary)
    matcher = Matcher(vocabulary)
    matcher.add_many(subscriptions())
    matcher.save(tmp_path)
    (tmp_path / "fused.index").unlink()
    with pytest.raises(UnusableMatcher, match="another time"):
        Matcher.open(tmp_path, vocabulary)


def test_matcher_of_files_of_two_times_is_refused(vocabulary: Vocabulary, tmp_path: Path) -> None:
    """Between the two files of one save, a process may die."""
    matcher = Matcher(vocabulary)
    matcher.add_many(subscriptions())
    matcher.save(tmp_path / "old")
    matcher.remove("m0")
    matcher.save(tmp_path / "new")
    shutil.copy(tmp_path / "new" / "fused.index", tmp_path / "old" / "fused.index")
    with pytest.raises(UnusableMatcher, match="another time"):
        Matcher.open(tmp_path / "old", vocabulary)


@pytest.mark.parametrize("file", [FILE, "fused.index"])
@pytest.mark.parametrize("where", [0.0, 0.3, 0.6, 0.97])
def test_matcher_with_a_damaged_file_is_refused(
    vocabulary: Vocabulary, tmp_path: Path, file: str, where: float
) -> None:
    """One byte that is damaged, or an end that is missing."""
    matcher = Matcher(vocabulary)
    matcher.add_many(subscriptions())
    matcher.save(tmp_path)
    path = tmp_path / file
    whole = bytearray(path.read_bytes())
    spots = [place for place in range(int(where * len(whole)), len(whole)) if whole[place]]
    whole[spots[0]] ^= 0x55
    path.write_bytes(whole)
    with pytest.raises(UnusableMatcher):
        Matcher.open(tmp_path, vocabulary)
    path.write_bytes(whole[: int(where * len(whole))])
    with pytest.raises(UnusableMatcher):
        Matcher.open(tmp_path, vocabulary)


def test_matcher_empty_is_saved_and_opened(vocabulary: Vocabulary, tmp_path: Path) -> None:
    """Nothing at all."""
    Matcher(vocabulary).save(tmp_path)
    opened = Matcher.open(tmp_path, vocabulary)
    assert matched(opened) == [[], [], []]
    with pytest.raises(UnknownSubscription):
        opened.remove("none")
    opened.add("one", "price exists")
    assert matched(opened) == [["one"]] * 3


@pytest.mark.parametrize(
    "text",
    [
        "made < ce.received",
        "every made < ce.received",
        "not every made <= ce.received",
        "every ce.received > 2020",
        "a = 1 or not made < ce.received",
        "max(ce.received) > 2020",
        "count(a) < count(ce.received)",
        'ce.received matches "2.*"',
        "ce.received missing",
        "score > 5",
    ],
)
def test_matcher_knows_that_a_subscription_asks_for_the_time_of_arrival(text: str, tmp_path: Path) -> None:
    """Also a saved one: events are read with their time of arrival only if a subscription may depend on it."""
    derived = {"score": {"kind": "number", "derived": "twice / 2"}, "twice": {"derived": "count(ce.received) * 2"}}
    vocabulary = Vocabulary(attributes=derived if text.startswith("score") else {})
    matcher = Matcher(vocabulary)
    if not vocabulary.derivations:
        assert not matcher.may_ask("ce.received")
    matcher.add("s", text)
    assert matcher.may_ask("ce.received")
    matcher.save(tmp_path / "saved")
    assert Matcher.open(tmp_path / "saved", vocabulary).may_ask("ce.received")


def test_matcher_opened_knows_which_subscriptions_call_operators(vocabulary: Vocabulary, tmp_path: Path) -> None:
    """Only those may depend on an attribute that nobody names."""

    @operator(name="odd", cost=1.0, selectivity=0.5)
    def odd(event: object, n: tuple[int, ...]) -> bool:
        return n[0] % 2 == 1

    matcher = Matcher(vocabulary, operators=[odd])
    for name, text in (("a", 'text matches "b+"'), ("b", "n < m"), ("c", "every n > 5"), ("d", "some x (y = 1)")):
        matcher.add(name, text)
    assert not matcher.may_ask("ce.received")
    assert matcher.may_ask("m")
    matcher.add("calls", "n > 1 and odd(@n)")
    assert matcher.may_ask("ce.received")
    matcher.save(tmp_path / "saved")
    opened = Matcher.open(tmp_path / "saved", vocabulary, operators=[odd])
    assert opened.may_ask("ce.received")
    opened.remove("calls")
    assert not opened.may_ask("ce.received")
    assert {match.subscription for match in opened.match({"n": 6, "m": 7, "text": "b"})} == {"a", "b", "c"}
    assert not opened.may_ask("ce.received")
    opened.check_invariants()
