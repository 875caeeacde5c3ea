"""Real files in the syntaxes that are no RDF, and the rest of the numbers that the data's README gives.

PATO's numbers were counted by a plain line reader; the two syntaxes of OWL are written by py-horned-owl from real files
and read by us, so that neither side marks its own work.
"""

import gzip
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyhornedowl
import pytest

from kindcast.semantic.ontology import Limits, Ontology, read
from kindcast.semantic.ontology.obo import OboDocument
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

OBO = "http://purl.obolibrary.org/obo/"
OWL = "http://www.w3.org/2002/07/owl#"
IN_OWL = "http://www.geneontology.org/formats/oboInOwl#"


@pytest.fixture(scope="module")
def pato(shared_data: Path) -> Vocabulary:
    """PATO, an OBO 1.2 file with all that real files have."""
    return Vocabulary.from_files(shared_data / "ontologies" / "pato.obo")


# ── OBO ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pato_as_loaded_has_the_known_numbers(pato: Vocabulary) -> None:
    """2,785 terms, 2,227 pairs, 329 terms with several parents, depth 10, 898 obsolete, 84 alternative ids.

    The 84 are no terms of the file: they are retired names, hence deprecated, which makes 982.
    """
    report = pato.report
    assert (report["concepts"], report["edges"], report["multi_parent"], report["max_depth"]) == (2_785, 2_227, 329, 10)
    assert (report["retired"], report["deprecated"]) == (84, 898 + 84)
    assert (report["individuals"], report["merged"], report["undeclared"], report["derived_edges"]) == (0, 0, 0, 0)
    assert report["triples"] == 13_569 + 2_785  # the id of each term is one more
    assert report["languages"] == {"": 2_785 + 938}
    assert [each for each in report["warnings"] if each.startswith("line")] == []


def test_pato_as_loaded_has_its_synonyms(pato: Vocabulary) -> None:
    """939 in the file; one is the label of its term over again, and is not kept twice. Exact ones alone resolve."""
    records = pato.ontologies[0].concepts
    exact = sum(len(each.synonyms) for each in records)
    loose = sum(len(each.hidden) for each in records)
    assert exact + loose == 938
    assert pato.report["synonyms"] == exact == 643


def test_pato_every_clause_arrives_as_a_triple(shared_data: Path) -> None:
    """8 terms with `replaced_by`, 6 `consider`, 462 relationships, 939 synonyms: counted line by line here."""
    data = (shared_data / "ontologies" / "pato.obo").read_bytes()
    terms = [each for each in data.decode().split("\n[") if each.startswith("Term]")]
    tags = Counter(tag for each in terms for tag in re.findall(r"^(\w+): ", each, re.M))
    told = ("replaced_by", "consider", "relationship", "alt_id", "synonym", "is_obsolete")
    assert [tags[tag] for tag in told] == [8, 6, 462, 84, 939, 898]
    triples = list(OboDocument(data, "http://e/", Limits()).triples())
    found = Counter(each.predicate.value for each in triples if OBO + "PATO_" in str(each.subject))
    assert found[OBO + "IAO_0100001"] == 8 + 84
    assert found[IN_OWL + "consider"] == 6
    assert found[IN_OWL + "hasAlternativeId"] == 84
    assert sum(found[f"{IN_OWL}has{scope}Synonym"] for scope in ("Exact", "Broad", "Narrow", "Related")) == 939
    restrictions = sum(each.predicate.value == f"{OWL}someValuesFrom" for each in triples)
    assert restrictions + found[OBO + "RO_0002604"] == 462  # "is opposite of" only describes


def test_pato_means_what_its_owl_twin_means(shared_data: Path) -> None:
    """py-horned-owl makes RDF/XML of the file: every record is the same, but that it declares the alternative ids as
    classes, as the OWL tools do; no stanza of the file does."""
    text = (shared_data / "ontologies" / "pato.obo").read_text(encoding="utf-8")
    plain = read(text.encode(), name="pato.obo")
    written = pyhornedowl.open_ontology_from_string(text, "obo").save_to_string("rdf").encode()
    twin = read(written, format="rdf-xml", name="pato.obo")
    retired = {each.iri for each in plain.concepts if each.kind == "retired"}
    as_declared = tuple(replace(each, kind="class") if each.iri in retired else each for each in plain.concepts)
    assert len(retired) == 84
    assert replace(meaning(plain), concepts=as_declared, warnings=()) == replace(meaning(twin), warnings=())


@pytest.mark.parametrize("term", ["PATO:0000072", "PATO_0000072", OBO + "PATO_0000072", "quality", "PATO:0000001"])
def test_pato_term_in_every_spelling_is_the_quality(pato: Vocabulary, term: str) -> None:
    """Short forms, IRI, label; an alternative id is replaced, and the reply says so."""
    found = pato.resolve(term)
    assert [pato.iri(each) for each in found.candidates] == [OBO + "PATO_0000001"]
    assert bool(found.replaced) == ("72" in term)


def test_pato_relation_is_called_as_in_its_owl_twin(pato: Vocabulary) -> None:
    """The bare id `part_of` stands for BFO:0000050."""
    names = {each.iri: each.labels for each in pato.ontologies[0].properties}
    assert names[OBO + "BFO_0000050"] == (("part of", None), ("part_of", None))


@pytest.mark.parametrize(
    ("relation", "iri", "edges"),
    [("has_part", "BFO_0000051", 9), ("RO:0015012", "RO_0015012", 7), ("is_opposite_of", "RO_0002604", 425)],
)
def test_pato_relation_as_asked_for_has_its_relationships(
    shared_data: Path, relation: str, iri: str, edges: int
) -> None:
    """As many as lines in the file, whether restrictions or, for a metadata tag, plain statements."""
    data = (shared_data / "ontologies" / "pato.obo").read_bytes()
    (found,) = read(data, name="pato.obo", relations=(relation,)).relations
    assert (found.iri, len(found.edges)) == (OBO + iri, edges)
    assert len(re.findall(rf"^relationship: {relation} ", data.decode(), re.M)) == edges


def test_pato_broken_in_places_loads_with_warnings(shared_data: Path) -> None:
    """Cut off in the middle, in the wrong encoding, a stanza garbled: the rest is there."""
    data = (shared_data / "ontologies" / "pato.obo").read_bytes()
    cut = (
        data[: len(data) // 2]
        .replace(b"id: PATO:0000004\n", b"idd PATO:0000004\n")
        .replace(b"viscosity", b"visc\xf6sity")
    )
    ontology = read(cut, name="pato.obo")
    assert 1_000 < len(ontology.concepts) < 2_785
    assert OBO + "PATO_0000004" not in {each.iri for each in ontology.concepts if each.declared}
    assert any("not a clause" in each for each in ontology.warnings)
    assert any("has no id" in each for each in ontology.warnings)
    assert any("not UTF-8" in each for each in ontology.warnings)


# ── OWL ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def meaning(ontology: Ontology) -> Ontology:
    """All but bytes, syntax, prefixes; and the number of triples, for annotations of axioms are triples in RDF only."""
    return replace(ontology, sha256="", format="", prefixes=(), triples=0)


@pytest.mark.parametrize("name", ["pizza.owl", "cl-blood-and-immune.owl.gz"])
@pytest.mark.parametrize("syntax", ["ofn", "owx"])
def test_real_ontology_in_the_syntaxes_of_owl_is_the_same(shared_data: Path, name: str, syntax: str) -> None:
    """Written by another library from the RDF/XML: 188 restrictions, 423 definitions, every record."""
    data = (shared_data / "ontologies" / name).read_bytes()
    text = (gzip.decompress(data) if name.endswith(".gz") else data).decode()
    written = pyhornedowl.open_ontology_from_string(text, "rdf").save_to_string(syntax).encode()
    plain, other = read(data, name="twin"), read(gzip.compress(written), name="twin")
    assert other.format == {"ofn": "owl-functional", "owx": "owl-xml"}[syntax]
    assert meaning(other) == meaning(plain)


# ── the rest of the README ──────────────────────────────────────────────────────────────────────────────────────────


def test_soda_hall_as_loaded_has_its_things(shared_data: Path) -> None:
    """1,695 typed things over 36 classes, which the file names and does not declare."""
    ontology = read((shared_data / "ontologies" / "brick-example-soda-hall.ttl").read_bytes(), name="soda.ttl")
    assert len({individual for individual, _ in ontology.types}) == 1_695
    assert len({each_class for _, each_class in ontology.types}) == 36
    assert {each.kind for each in ontology.concepts if not each.declared} == {"class"}


@pytest.mark.parametrize(
    ("name", "languages"),
    [
        ("hcrt.ttl", 7),
        ("pizza.owl", 2),
        ("unesco-thesaurus.ttl.gz", 4),
        ("qudt-quantitykind.ttl.gz", 25),
        ("qudt-unit.ttl.gz", 26),
    ],
)
def test_ontology_as_loaded_has_its_languages(shared_data: Path, name: str, languages: int) -> None:
    """As many as the README says; labels without a language are not one more."""
    ontology = read((shared_data / "ontologies" / name).read_bytes(), name=name)
    assert len([tag for tag, _ in ontology.languages if tag]) == languages


def test_qudt_units_as_loaded_have_the_known_triples(shared_data: Path) -> None:
    """81,364; individuals of unit classes, no hierarchy to speak of."""
    ontology = read((shared_data / "ontologies" / "qudt-unit.ttl.gz").read_bytes(), name="qudt-unit.ttl.gz")
    assert ontology.triples == 81_364
    assert "http://qudt.org/vocab/unit/DEG_C" in {individual for individual, _ in ontology.types}


def test_numbers_of_pato_in_the_documentation_are_those_of_the_report(pato: Vocabulary, repository: Path) -> None:
    """The row of docs/ontologies.md, which people compare with their editor."""
    page = (repository / "docs" / "ontologies.md").read_text(encoding="utf-8")
    assert "| PATO 2025-05-14 (OBO) | 2,785 | 2,227 (0) | 329 | 10 | 898 obsolete; 84 retired names" in page
    assert (pato.report["concepts"], pato.report["retired"]) == (2_785, 84)
