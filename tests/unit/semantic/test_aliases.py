"""Aliases: main forms, what is refused, and what they change for subscriptions (rule 24)."""

from typing import Any

import pytest

from kindcast import Matcher, Vocabulary
from kindcast.semantic.changes.impact import Impact, impact_report
from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.vocabulary.declarations import Declarations
from kindcast.semantic.vocabulary.identifiers import Aliases, digital_link

SHOP = b"""
@prefix : <http://example.org/shop#> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> . @prefix dct: <http://purl.org/dc/terms/> .
:Laptop rdfs:subClassOf :Computer ; rdfs:label "laptop" . <https://example.org/shop#Slate> rdfs:subClassOf :Tablet .
:Slate rdfs:subClassOf :Computer . :Old a owl:Class ; owl:deprecated true ; dct:isReplacedBy :Laptop .
"""
WEB = {
    "web": {
        "prefixes": {"https://example.org/": "http://example.org/"},
        "iris": {"urn:tablet": "http://example.org/shop#Slate"},
    }
}


@pytest.mark.parametrize(
    ("text", "link"),
    [
        ("urn:epc:id:sgtin:9506000.013435.42", "01/09506000134352/21/42"),
        ("urn:epc:id:sgtin:9506000.013435.A%2FB", "01/09506000134352/21/A%2FB"),
        ("urn:epc:tag:sgtin-96:3.9506000.013435.42", "01/09506000134352/21/42"),
        ("urn:epc:class:lgtin:9506000.013435.L7", "01/09506000134352/10/L7"),
        ("urn:epc:idpat:sgtin:9506000.013435.*", "01/09506000134352"),
        ("https://brand.example/some/01/9506000134352/21/42?linkType=all", "01/09506000134352/21/42"),
        ("https://id.gs1.org/01/09506000134352/10/L7/21/42", "01/09506000134352/10/L7/21/42"),
        ("urn:epc:idpat:sgtin:9506000.013435.7", None),
        ("urn:epc:id:sgtin:9506000.13435.42", None),
        ("https://id.gs1.org/01/09506000134353", None),
        ("https://id.gs1.org/414/9506000134352", None),
        ("urn:epc:id:sgtin:9506000.013435." + "4" * 600, None),
    ],
)
def test_digital_link_keeps_what_is_named(text: str, link: str | None) -> None:
    """Serial numbers and lots stay; domains and queries do not count; a wrong check digit is none."""
    assert digital_link(text) == (link and f"https://id.gs1.org/{link}")


def test_main_form_is_reached_by_whole_names_then_prefixes_then_patterns() -> None:
    """The longest prefix counts, and what is reached is tried again."""
    aliases = Aliases(
        {
            "b": {"prefixes": {"a:": "b:", "a:x/": "c:"}, "iris": {"a:whole": "d:1"}},
            "a": {"patterns": [{"match": "urn:(.+)", "as": "a:x/{1}"}]},
        }
    )
    mains = {text: aliases.main(text) for text in ("a:1", "a:x/1", "a:whole", "urn:7", "none")}
    assert mains == {"a:1": "b:1", "a:x/1": "c:1", "a:whole": "d:1", "urn:7": "c:7", "none": "none"}
    assert aliases.spellings("c:9") == {"c:9", "a:x/9"}
    assert aliases.other("none") is None
    assert [bool(each) for each in (aliases, Aliases(), aliases == Aliases(), aliases == 1)] == [
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ({}, "an object with"),
        ({"urls": {}}, "an object with"),
        ({"iris": []}, "one form"),
        ({"iris": {"a": 1}}, "not an IRI"),
        ({"prefixes": {"a b": "c"}}, "not an IRI"),
        ({"iris": {"a": "a"}}, "itself"),
        ({"iris": {"a": "b", "b": "a"}}, "has no last form"),
        ({"prefixes": {"a/": "a/b/"}}, "has no last form"),
        ({"patterns": 5}, "a list"),
        ({"spellings": ["de"]}, "only the plurals of English"),
        ({"spellings": True}, "only the plurals of English"),
        ({"patterns": ["gtin-14"]}, "no built-in"),
        ({"patterns": [{"match": "(", "as": "x"}]}, "patterns"),
        ({"iris": {str(number): "x" for number in range(10_001)}}, "at most"),
        ({"patterns": [{"match": "(", "as": "x"}] * 65}, "64 patterns"),
    ],
)
def test_declaration_of_aliases_is_checked(table: Any, word: str) -> None:
    """Each mistake is named, and so is a contradiction between two tables."""
    with pytest.raises(InvalidDeclaration, match=word):
        Declarations().extended("aliases", "web", table)
    declared = Declarations().extended("aliases", "one", {"iris": {"a": "b"}})
    with pytest.raises(InvalidDeclaration, match="already"):
        declared.extended("aliases", "two", {"iris": {"a": "c"}})
    assert not declared.without("aliases", "one")


def test_aliases_of_names_are_one_concept_and_terms_find_it() -> None:
    """Names that two documents write differently merge; a deprecated one is replaced in every form."""
    vocabulary = Vocabulary.from_bytes(SHOP, format="turtle", aliases=WEB)
    matcher = Matcher(vocabulary)
    asked = {
        "tablet": "x isa <http://example.org/shop#Tablet>",
        "computer": "x isa <https://example.org/shop#Computer>",
        "old": "x is <https://example.org/shop#Old>",
        "near": "x isa <urn:tablet>",
    }
    for name, text in asked.items():
        matcher.add(name, text)
    found = {
        value: sorted(match.subscription for match in matcher.match({"x": value}))
        for value in ("https://example.org/shop#Laptop", "http://example.org/shop#Slate", "urn:tablet", "laptop")
    }
    assert found == {
        "https://example.org/shop#Laptop": ["computer", "old"],
        "http://example.org/shop#Slate": ["computer", "near", "tablet"],
        "urn:tablet": ["computer", "near", "tablet"],
        "laptop": ["computer", "old"],
    }


def test_impact_of_aliases_names_forms_and_patterns() -> None:
    """Which forms of a term, a word, a text, a property and a code system come; that patterns do."""
    system = {"shop": {"identifiers": ["http://example.org/codes"], "iri": "http://example.org/shop#{code}"}}
    tables = {**WEB, "more": {"patterns": [{"match": "urn:shop:(.+)", "as": "http://example.org/shop#{1}"}]}}
    before = Vocabulary.from_bytes(SHOP, format="turtle", code_systems=system)
    after = Vocabulary.from_bytes(SHOP, format="turtle", code_systems=system, aliases=tables)
    impact = Impact(before, after)
    impact.add(
        [
            ("term", {"isa": ["x", {"iri": "http://example.org/shop#Laptop"}]}),
            ("instance", {"=": ["x", {"instance": "http://example.org/item/7"}]}),
            ("word", {"=": ["x", "http://example.org/shop#seven"]}),
            ("text", {"startswith": ["x", "http:"]}),
            ("property", {"exists": "<http://example.org/shop#price>"}),
            ("other", {"=": ["y", 5]}),
        ]
    )
    assert impact.changed == ["term", "instance", "word", "text", "property"]
    told = {part: change.listed["gains_words"] for part, change in impact.changes.items()}
    listed = {str(part[-1] or part[1]): words for part, words in told.items()}  # type: ignore[misc]
    assert "https://example.org/shop#Laptop" in listed["http://example.org/shop#Laptop"]
    assert "https://example.org/codes: http://example.org/shop#Laptop" in listed["http://example.org/shop#Laptop"]
    assert "urn:shop:(.+): http://example.org/shop#Laptop" in listed["http://example.org/shop#Laptop"]
    assert listed["http://example.org/item/7"] == ["https://example.org/item/7"]
    assert listed["http://example.org/shop#seven"] == ["https://example.org/shop#seven", "urn:shop:(.+)"]
    assert listed["<http://example.org/shop#price>"] == ["https://example.org/shop#price", "urn:shop:(.+)"]
    assert impact_report(impact)["texts"]["listed"][0]["words"]["listed"] == ["https://example.org/", "urn:tablet"]
    back = Impact(after, before)
    back.add([("word", {"=": ["x", "http://example.org/shop#seven"]})])
    assert [change.listed for change in back.changes.values()] == [
        {"loses_words": ["https://example.org/shop#seven", "urn:shop:(.+)"]}
    ]


CWE = b"""
@prefix : <http://example.org/cwe#> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:CWE-79 rdfs:subClassOf :Weakness ; rdfs:label "Cross-site scripting" . :Galaxies rdfs:label "Galaxies" .
:Disk rdfs:label "hard disk" . :Drive rdfs:label "hard-disk" .
:Galaxies a rdfs:Class . :Disk a rdfs:Class . :Drive a rdfs:Class .
:Four a rdfs:Class ; rdfs:label "front-end of_line test" .
"""


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("cwe-79", ["CWE-79"]),
        ("cwe 79", ["CWE-79"]),
        ("cross site_scripting", ["CWE-79"]),
        ("galaxy", ["Galaxies"]),
        ("GALAXY ", ["Galaxies"]),
        ("hard-disks", ["Disk", "Drive"]),
        ("harddisk", []),
        ("Front-end  of_line tests", ["Four"]),
        ("front end of line test", []),
        ("galaxy" * 20, []),
        ("-", []),
        ("", []),
    ],
)
def test_other_spellings_count_where_a_table_says_so(text: str, names: list[str]) -> None:
    """For each text all concepts that a spelling of it names; nothing without the declaration, which is suggested
    then where it is one concept."""
    plain = Vocabulary.from_bytes(CWE, format="turtle")
    spelt = Vocabulary.from_bytes(CWE, format="turtle", aliases={"words": {"spellings": ["en"]}})
    assert plain.resolve(text).candidates == ()
    found = spelt.resolve(text)
    assert sorted(spelt.iri(each).rpartition("#")[2] for each in found.candidates) == names
    assert found.level in ("spelling", None)
    assert plain.respelt(text).candidates == (found.candidates if len(names) == 1 else ())
    assert plain.version != spelt.version


def test_spellings_come_after_synonyms_and_aliases() -> None:
    """A user's own words mean what the user says."""
    tables = {"words": {"spellings": ["en"]}, "names": {"iris": {"disks": "http://example.org/cwe#Galaxies"}}}
    vocabulary = Vocabulary.from_bytes(
        CWE, format="turtle", aliases=tables, synonyms={"galaxy": "cross-site scripting"}
    )
    for text, name in (("galaxy", "CWE-79"), ("disks", "Galaxies"), ("Galaxies_", "Galaxies")):
        assert [vocabulary.iri(each) for each in vocabulary.resolve(text).candidates] == [
            f"http://example.org/cwe#{name}"
        ]


def test_impact_of_spellings_names_every_term() -> None:
    """Whatever is published may be read as any concept then."""
    before = Vocabulary.from_bytes(SHOP, format="turtle")
    after = Vocabulary.from_bytes(SHOP, format="turtle", aliases={"words": {"spellings": ["en"]}})
    subscribed = [("term", {"isa": ["x", {"iri": "http://example.org/shop#Laptop"}]}), ("other", {"=": ["y", 5]})]
    for old, new, how in ((before, after, "gains_words"), (after, before, "loses_words")):
        impact = Impact(old, new)
        impact.add(subscribed)
        assert impact.changed == ["term"]
        assert [change.listed[how] for change in impact.changes.values()] == [["other spellings of names and labels"]]
