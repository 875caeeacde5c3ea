"""The vocabularies we ship: complete in their languages, free of accidents, and able to tell the paper's example."""

from pathlib import Path
from typing import Any

import pytest

from kindcast import Matcher, Vocabulary, explain
from kindcast.index.clause import ConceptId
from kindcast.semantic.shipped_vocabularies import shipped, shipped_names

LANGUAGES = {"shop.ttl": {"en", "de", "zh"}, "building.ttl": {"en", "de", "fr"}}
AMBIGUOUS = {"shop.ttl": {"memory"}, "building.ttl": set[str]()}
"""Words that mean more than one thing on purpose."""


@pytest.fixture(scope="module", params=sorted(LANGUAGES))
def name(request: pytest.FixtureRequest) -> str:
    """Each file in turn."""
    return str(request.param)


@pytest.fixture(scope="module")
def vocabulary(name: str) -> Vocabulary:
    return Vocabulary.from_files(shipped(name))


@pytest.fixture(scope="module")
def shop() -> Vocabulary:
    return Vocabulary.from_files(shipped("shop"))


def concepts(vocabulary: Vocabulary) -> list[ConceptId]:
    return [ConceptId(number) for number in range(len(vocabulary))]


def summary(vocabulary: Vocabulary, concept: ConceptId) -> dict[str, Any]:
    return dict(vocabulary.summary(concept))


def test_shipped_names_are_the_files_of_the_folder(repository: Path) -> None:
    """Nothing is shipped that these tests do not read."""
    assert set(shipped_names()) == set(LANGUAGES) == {path.name for path in (repository / "ontologies").glob("*.ttl")}


def test_shipped_unknown_name_tells_which_there_are() -> None:
    """The error helps."""
    with pytest.raises(FileNotFoundError, match=r"building\.ttl, shop\.ttl"):
        shipped("pizza.ttl")


def test_vocabulary_is_large_enough_to_be_worth_a_subscription_and_loads_cleanly(vocabulary: Vocabulary) -> None:
    """Sixty kinds at least, several parents, and nothing to warn of."""
    report = vocabulary.report
    assert report["concepts"] >= 60
    assert report["multi_parent"] >= 10
    assert report["warnings"] == []
    assert report["undeclared"] == 0


def test_vocabulary_every_concept_has_a_label_in_every_language(vocabulary: Vocabulary, name: str) -> None:
    """A subscriber of each language finds every kind."""
    lacking = {}
    for concept in concepts(vocabulary):
        told = {label["lang"] for label in summary(vocabulary, concept)["labels"]}
        if LANGUAGES[name] - told:
            lacking[vocabulary.iri(concept)] = LANGUAGES[name] - told
    assert lacking == {}


def test_vocabulary_every_label_and_synonym_leads_to_its_concept(vocabulary: Vocabulary, name: str) -> None:
    """No word means two things by accident; a word that does so on purpose still has its concept among the readings."""
    wrong, ambiguous = [], set()
    for concept in concepts(vocabulary):
        told = summary(vocabulary, concept)
        for label in (*told["labels"], *told["synonyms"]):
            meant = vocabulary.readings(label["value"])
            if concept not in meant and not told["deprecated"]:
                wrong.append((vocabulary.iri(concept), label["value"]))
            if len(meant) > 1:
                ambiguous.add(label["value"])
    assert (wrong, ambiguous) == ([], AMBIGUOUS[name])


@pytest.mark.parametrize("word", ["Desktop PC", "台式机", "Tischrechner", "desktop computer", "shop:Desktop"])
def test_shop_desktop_by_any_name_is_a_computer(shop: Vocabulary, word: str) -> None:
    """English, German, Chinese, a synonym and the short form mean one concept."""
    matcher = Matcher(shop)
    matcher.add("computers", "target isa Computer")
    assert [match.subscription for match in matcher.match({"target": word})] == ["computers"]


@pytest.mark.parametrize(("price", "expected"), [(450, False), (350, True)])
def test_shop_johns_computer_is_wanted_once_it_is_cheap_enough(shop: Vocabulary, price: int, expected: bool) -> None:
    """CTPS, Figures 1 to 3: the price alone decides."""
    john = {
        "seller": {"name": "John", "cellPhoneNumber": "123456789"},
        "price": {"value": price, "currency": "USD"},
        "target": "Desktop PC",
        "manufacturer": "HP",
        "hardDisk": {"size": {"value": 40, "unit": "GB"}, "manufacturer": "IBM"},
    }
    told = explain(shop, "target isa Computer and price <= 400 USD", john)
    verdicts = {each["attribute"]: each["verdict"] for each in told["clauses"][0]["predicates"]}
    assert (told["matches"], verdicts) == (expected, {"target": True, "price": expected})


@pytest.mark.parametrize("attribute", ["email", "phone", "cellPhoneNumber", "Handynummer", "电子邮件", "contact"])
def test_shop_every_way_to_reach_a_seller_is_a_contact(shop: Vocabulary, attribute: str) -> None:
    """The attribute hierarchy of Figure 1, entered by any name of an attribute."""
    matcher = Matcher(shop)
    matcher.add("reachable", "seller.contact exists")
    assert len(matcher.match({"seller": {attribute: "x"}})) == 1
    assert matcher.match({"seller": {"name": "x"}}) == []


def test_shop_convertible_is_a_laptop_and_a_tablet(shop: Vocabulary) -> None:
    """A kind under two others is found under both, and a negation of one of them excludes it."""
    matcher = Matcher(shop)
    matcher.add_many(
        [
            ("laptops", "target isa Laptop"),
            ("tablets", "target isa Tablet"),
            ("pure", "target isa Laptop and not target isa Tablet"),
        ]
    )
    assert sorted(match.subscription for match in matcher.match({"target": "变形本"})) == ["laptops", "tablets"]


def test_shop_replaced_kind_means_its_replacement(shop: Vocabulary) -> None:
    """Old offers still say PDA."""
    matcher = Matcher(shop)
    matcher.add("phones", "target isa Smartphone")
    assert len(matcher.match({"target": "PDA"})) == 1


def test_building_reading_in_another_unit_and_language_matches() -> None:
    """88 °F in a bathroom is more than 30 °C in a wet room."""
    matcher = Matcher(Vocabulary.from_files(shipped("building")))
    matcher.add("wet and warm", 'room isa "Wet room" and value > 30 degC')
    assert len(matcher.match({"point": "Raumfühler", "room": "Badezimmer", "value": "88 degF"})) == 1
    assert matcher.match({"point": "Raumfühler", "room": "Badezimmer", "value": "86 degF"}) == []


def test_building_any_place_is_a_location() -> None:
    """room, zone, floor and building are all location."""
    matcher = Matcher(Vocabulary.from_files(shipped("building")))
    matcher.add("technical", 'location isa "Technical room"')
    assert len(matcher.match({"pièce": "salle informatique"})) == 1
