"""`kindcast ontology versions|diff|activate|rollback` and `kindcast declare`, against a real server."""

from pathlib import Path
from typing import get_args

import pytest

from kindcast.semantic.vocabulary.attributes import AttributeKind
from tests.integration.conftest import Kindcast

PREFIXES = "@prefix : <http://fleet/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . "
FIRST = PREFIXES + ":Truck rdfs:subClassOf :Vehicle . :Pickup rdfs:subClassOf :Van . :Moped rdfs:subClassOf :Vehicle ."
SECOND = PREFIXES + ":Truck rdfs:subClassOf :Vehicle . :Pickup rdfs:subClassOf :Van, :Truck ."


@pytest.fixture
def fleet(kindcast: Kindcast, shop_server: str, tmp_path: Path) -> str:
    """The name of an ontology of two versions, the first in force."""
    name = tmp_path.name.replace("_", "-")
    for document, flags in ((FIRST, ()), (SECOND, ("--no-activate",))):
        file = tmp_path / "fleet.ttl"
        file.write_text(document.replace("fleet", name))
        assert kindcast("ontology", "load", str(file), "--name", name, *flags).status == 0
    return name


def test_versions_story_is_told_to_people(kindcast: Kindcast, fleet: str) -> None:
    """Compare, try out, put in force, go back: each says what it does to whom."""
    kindcast("subscribe", f"vehicle isa <http://{fleet}/Truck>")
    id = kindcast("subscribe", f"vehicle isa <http://{fleet}/Moped>", "--quiet").out.strip()
    shown = kindcast("ontology", "diff", fleet).out
    assert "removed  1\n  Moped" in shown
    assert f"beneath http://{fleet}/Truck, http://{fleet}/Van, was beneath http://{fleet}/Van" in shown
    tried = kindcast("ontology", "activate", fleet, "2", "--dry-run")
    assert "would be in force" in tried.out
    assert "isa Truck: gains Pickup (1 subscription)" in tried.out
    assert "isa Moped: gone, loses Moped (1 subscription)" in tried.out
    assert id in tried.err
    assert kindcast("ontology", "versions", fleet, "--json").json["versions"][1]["active"] is True
    assert "is in force" in kindcast("ontology", "activate", fleet, "2").out
    assert "active, flagged" in next(line for line in kindcast("subscriptions").out.splitlines() if id in line)
    back = kindcast("ontology", "rollback", fleet)
    assert "version 1, is in force" in back.out
    assert "1 subscription is no longer flagged" in back.err
    assert "no difference" in kindcast("ontology", "diff", fleet, "--to", "1").out


@pytest.mark.usefixtures("shop_server")
def test_declaration_that_no_longer_fits_a_subscription_says_so(kindcast: Kindcast) -> None:
    """Nothing was removed."""
    id = kindcast("subscribe", "heat_of_oven > 30 degC", "--quiet").out.strip()
    told = kindcast("declare", "attribute", "heat_of_oven", "--unit", "kg")
    assert f"flagged, because something was removed or is declared differently now: {id}" in told.err
    told = kindcast("declare", "attribute", "heat_of_oven", "--unit", "degC")
    assert "1 subscription is no longer flagged" in told.err


def test_ontology_is_tried_before_it_is_stored(kindcast: Kindcast, fleet: str, tmp_path: Path) -> None:
    """The load report, and what it would do; no version comes of it."""
    kindcast("subscribe", f"vehicle isa <http://{fleet}/Truck>")
    file = tmp_path / "third.ttl"
    file.write_text((SECOND + ":Lorry rdfs:subClassOf :Truck .").replace("fleet", fleet))
    tried = kindcast("ontology", "load", str(file), "--name", fleet, "--dry-run").out
    assert f"{fleet} would be in force; nothing was stored" in tried
    assert "isa Truck: gains Lorry, Pickup (1 subscription)" in tried
    assert len(kindcast("ontology", "versions", fleet, "--json").json["versions"]) == 2


def test_contexts_are_loaded_shown_and_deleted(kindcast: Kindcast, shop_server: str, tmp_path: Path) -> None:
    """By their URLs, shipped ones too."""
    url = ("--url", "https://example.com/here.jsonld")
    file = tmp_path / "here.jsonld"
    file.write_text('{"@context": {"here": "https://example.com/ns#"}}')
    assert "would be in force" in kindcast("context", "load", str(file), *url, "--dry-run").out
    assert kindcast("context", "show", *url).status == 1
    assert "version 1, is in force" in kindcast("context", "load", str(file), *url).out
    shown = kindcast("context", "show", *url).out
    assert "here.jsonld, version 1" in shown
    assert '"here": "https://example.com/ns#"' in shown
    assert kindcast("context", "show", *url, "--json").json["versions"][0]["active"] is True
    assert url[1] in kindcast("context", "list").out
    assert "shipped" in kindcast("context", "show", "--url", "https://www.w3.org/ns/activitystreams").out
    assert "deleted" in kindcast("context", "delete", *url).out
    assert kindcast("context", "show", *url).status == 1


def test_rules_are_told_to_people(kindcast: Kindcast, shop_server: str) -> None:
    """A server that has always had these rules has nothing to tell of others."""
    shown = kindcast("ontology", "rules").out
    assert "the rules of matching have number" in shown
    assert "no subscription matches differently because of them" in shown
    assert kindcast("ontology", "rules", "--json").json["impact"] is None


def test_declare_story_is_told_to_people(kindcast: Kindcast, shop_server: str, tmp_path: Path) -> None:
    """Attributes, words and rates, as they are declared, listed and taken back."""
    kindcast("subscribe", "reading > 86 degF")
    options = ("declare", "attribute", "reading", "--kind", "number", "--unit-from", "scale")
    tried = kindcast(*options, "--dry-run")
    assert "reading: declared as kind number, unit_from scale, was nothing (1 subscription)" in tried.out
    assert kindcast(*options, "--json").json["version"] == 1
    assert "nothing changes" in kindcast(*options).out
    assert "unit_from: scale" in kindcast("declare", "list", "attributes").out
    for kind in get_args(AttributeKind):
        assert kindcast("declare", "attribute", "host", "--kind", kind, "--dry-run").status == 0, kind
    table = tmp_path / "words.csv"
    table.write_text("PC,computer\n")
    assert kindcast("declare", "synonyms", "house", str(table)).status == 0
    assert kindcast("declare", "rates", '{"EUR": {"USD": "1.08"}}').status == 0
    assert kindcast("declare", "aliases", "web", '{"prefixes": {"http://e.org/": "https://e.org/"}}').status == 0
    assert "prefixes" in kindcast("declare", "list", "aliases").out
    assert kindcast("declare", "relation", "within", '{"union": ["isPartOf"]}').status == 0
    declared = (
        ("attributes", "reading"),
        ("synonyms", "house"),
        ("rates", ""),
        ("aliases", "web"),
        ("relations", "within"),
    )
    for kind, name in declared:
        assert kindcast("declare", "delete", kind, *([name] if name else [])).status == 0
    assert kindcast("declare", "list", "synonyms", "--json").json["synonyms"] == []


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("declare", "delete", "attributes"), "which of the attributes"),
        (("declare", "rates", "nothing.json"), "there is no file"),
        (("declare", "rates", "{"), "not JSON"),
        (("declare", "rates", '{"a\tb": 1}'), "Invalid control character at line 1, column 4"),
        (("declare", "rates", '{"EUR": {"XXY": 1}}'), "not a currency"),
        (("ontology", "activate", "none", "1"), "there is no ontology"),
        (("ontology", "rollback", "shop"), "no other version"),
    ],
)
def test_versions_wrong_use_says_what_is_wrong(
    kindcast: Kindcast, shop_server: str, arguments: tuple[str, ...], word: str
) -> None:
    """A failure is words and an exit status."""
    ran = kindcast(*arguments)
    assert ran.status == 1
    assert word in ran.err
