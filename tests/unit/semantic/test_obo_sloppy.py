"""Sloppy OBO files load, with warnings that name the line; what is not an OBO is refused."""

import random

import pytest

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology import Limits, Ontology, read

OBO = "http://purl.obolibrary.org/obo/"
HEADER = "format-version: 1.2\nontology: cl\n"


def obo(body: str) -> Ontology:
    return read(f"{HEADER}\n{body}".encode(), format="obo")


@pytest.mark.parametrize(
    ("clause", "warning"),
    [
        ("nonsense without colon", "line 6: left out, because it is not a clause of the form tag: value"),
        ("is_a: CL:2 T cell", "line 6: left out after 'CL:2'"),
        ("is_a:", "line 6: is_a is empty"),
        ("is_a: ! nothing", "line 6: is_a is empty"),
        ("is_a: a:b:", ""),
        ("is_a: :x", "line 6: ':x' is not an id"),
        ("name:", "line 6: name is empty"),
        ('synonym: "open EXACT []', "line 6: a synonym must be in quotes"),
        ("synonym: bare EXACT []", "line 6: a synonym must be in quotes"),
        ('synonym: "a "b" c" EXACT []', "line 6: the quotes of synonym are not closed correctly"),
        ('synonym: "a" []', "line 6: the synonym has no scope and was read as RELATED"),
        ('synonym: "a"', "line 6: the synonym has no scope and was read as RELATED"),
        ('synonym: "a" EXACT LAYPERSON []', "line 6: synonym type 'LAYPERSON' is not declared"),
        ('synonym: "a" LAYPERSON []', "line 6: synonym type 'LAYPERSON' is not declared"),
        ("def: no quotes", "line 6: the quotes of def are not closed correctly"),
        ("relationship: part_of", "line 6: a relationship must be a relation and an id"),
        ("relationship: part_of CL:2 x", "line 6: left out after 'CL:2'"),
        ('relationship: part_of CL:2 {cardinality="many"}', "line 6: cardinality is not a number"),
        ("intersection_of: CL:2", "line 6: CL:1 is not defined by intersection_of"),
        ("union_of: CL:2", "line 6: CL:1 is not defined by union_of"),
        ("property_value: x", "line 6: property_value is not understood"),
        ("flavour: sweet", "line 6: tag 'flavour' is unknown"),
        ("id: CL:3", "line 6: CL:1 has an invalid id, which was left out"),
        ("name: a\0b", "line 6: left out, because it has control characters"),
        ("is_a: http://e.org/a<b", "line 6: 'http://e.org/a<b' is not an id"),
        ("is_a: CL:" + "x" * 5_000, "line 6: 'CL:xxxx"),
        ("[term]\nid: CL:9", ""),
        ("[Annotation]\nsubject: CL:1", "line 6: stanza [Annotation] is unknown"),
        ("[Term]\nname: nameless", "line 6: this [Term] has no id"),
        ("[Term]\nid: CL:1\nis_a: CL:2", "line 6: CL:1 has two stanzas"),
    ],
)
def test_odd_line_costs_itself_and_a_warning(clause: str, warning: str) -> None:
    """The term, its parent and its name are read all the same."""
    ontology = obo(f"[Term]\nid: CL:1\n{clause}\n\n[Term]\nid: CL:1\nname: one\nis_a: CL:0\n")
    found = next(each for each in ontology.concepts if each.iri == OBO + "CL_1")
    assert ("one", None) in found.preferred
    assert (OBO + "CL_1", OBO + "CL_0") in ontology.edges
    told = [each for each in ontology.warnings if each.startswith("line 6") or "line 6" in each]
    assert any(each.startswith(warning) for each in told) if warning else not told, ontology.warnings
    assert all(len(each) < 250 for each in ontology.warnings)


def test_two_stanzas_of_a_term_are_one() -> None:
    """Both count, and the second is pointed at."""
    ontology = obo("[Term]\nid: CL:1\nis_a: CL:2\n[Term]\nid: CL:1\nis_a: CL:3\n")
    assert len(ontology.edges) == 2
    assert ontology.warnings[0] == "line 7: CL:1 has two stanzas; both are used"


def test_dangling_parent_is_a_concept_and_warned_about_by_name() -> None:
    """As in every other syntax."""
    ontology = obo("[Term]\nid: CL:1\nis_a: CL:2\n")
    assert [(each.iri, each.declared) for each in ontology.concepts] == [(OBO + "CL_1", True), (OBO + "CL_2", False)]
    assert ontology.warnings == (f"referred to but not declared: {OBO}CL_2",)


def test_line_that_goes_on_beyond_the_end_is_left_out() -> None:
    """The file is cut off."""
    ontology = obo("[Term]\nid: CL:1\nname: one\nis_a: \\\n")
    assert ontology.warnings == ("line 7: left out: the document ends within the line",)


def test_old_encoding_is_read_and_warned_about() -> None:
    """Windows-1252, as in files of the last century."""
    data = (HEADER + "[Term]\nid: CL:1\nname: Purkinje’s Zelle für alle\n").encode("cp1252")
    ontology = read(data, format="obo")
    assert ontology.concepts[0].preferred == (("Purkinje’s Zelle für alle", None),)
    assert ontology.warnings == ("line 5: the line is not UTF-8 and was read as Windows-1252",)


def test_warnings_of_a_kind_are_told_five_times_and_counted() -> None:
    """A file that is odd in every line has a report that can be read."""
    ontology = obo("[Term]\nid: CL:1\n" + "".join(f"t{number % 70}: x\n" for number in range(7_000)))
    assert len(ontology.warnings) < 350
    assert ontology.warnings[5] == "and 95 more warnings of this kind (tag t0)"
    assert ontology.warnings[-1] == "and 2,000 more warnings of other kinds"


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", 1),
        (b"x", 1),
        (b"format-version: 1.2\nontology: cl\n<html>\n", 3),
        (b"format-version: 1.2\n", 1),
        (random.Random(7).randbytes(5_000), None),
        (b"[Terms]\nid: CL:1\n", 1),
    ],
)
def test_file_without_a_stanza_is_refused(data: bytes, line: int | None) -> None:
    """Binary, empty, something else: with the first line that is none of OBO's."""
    with pytest.raises(OntologyError, match="not an OBO file") as caught:
        read(data, format="obo")
    assert caught.value.line is not None
    assert line in (None, caught.value.line)


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("[Term]\nid: CL:1\nname: " + "x" * (1 << 25), "characters"),
        ("[Term]\nid: CL:1\nname: " + ("x" * 9_998 + "\\\n") * 1_700, "characters"),
        ("[Term]\nid: CL:1\n" + "xref: a\n" * 100_001, "clauses"),
    ],
    ids=["line", "continued line", "stanza"],
)
def test_what_is_too_long_is_refused_with_its_line(body: str, word: str) -> None:
    """Nothing real comes near."""
    with pytest.raises(OntologyError, match=word) as caught:
        obo(body)
    assert caught.value.line


def test_idspace_for_a_megabyte_is_refused() -> None:
    """Every id may stand for one."""
    with pytest.raises(OntologyError, match="idspace has more than") as caught:
        read(f"idspace: X http://e.org/{'x' * 600}\n[Term]\nid: X:1\n".encode(), format="obo", limits=Limits())
    assert caught.value.line == 1


@pytest.mark.parametrize(
    "value",
    [
        '"' * 50_000,
        "{" * 50_000 + "}",
        '{"' * 25_000 + "}",
        "\\" * 50_000,
        "!" * 50_000,
        '{a="' * 12_000 + "}",
        "{a=b," * 10_000 + "}",
        " {a=b" * 10_000 + "}",
        '"a\\"' * 12_000,
        "[" * 50_000,
        " " * 50_000 + "x",
    ],
)
@pytest.mark.parametrize("tag", ["name", "synonym", "def", "is_a", "relationship", "property_value", "synonymtypedef"])
def test_value_made_to_be_read_slowly_costs_linear_time(tag: str, value: str) -> None:
    """Quotes, braces and escapes without end: quadratic reading would be noticed, for it takes minutes."""
    header = f"{tag}: {value}\n" if tag == "synonymtypedef" else ""
    clause = "" if header else f"{tag}: {value}\n"
    ontology = read(f"{HEADER}{header}[Term]\nid: CL:1\n{clause}name: end\n".encode(), format="obo")
    assert ("end", None) in next(each for each in ontology.concepts if each.iri == OBO + "CL_1").preferred
