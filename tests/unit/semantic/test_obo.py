"""OBO files: every clause that means something becomes what its OWL twin says."""

import gzip

import pytest

from kindcast.semantic.language import parse
from kindcast.semantic.ontology import ConceptRecord, Ontology, read
from kindcast.semantic.subscriptions.compilation import resolve
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

OBO = "http://purl.obolibrary.org/obo/"
HEADER = "format-version: 1.2\nontology: cl\n"


def obo(body: str, header: str = HEADER) -> Ontology:
    return read(f"{header}\n{body}".encode(), format="obo")


def record(ontology: Ontology, iri: str) -> ConceptRecord:
    return next(each for each in ontology.concepts if each.iri == iri)


def short(pairs: object) -> set[str]:
    """Pairs of IRIs as `1 < 2`."""
    assert isinstance(pairs, tuple | frozenset | set)
    return {" < ".join(iri.removeprefix(OBO) for iri in pair) for pair in pairs}


# ── names ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "iri"),
    [
        ("CL:0000084", OBO + "CL_0000084"),
        ("CL:abc", OBO + "CL_abc"),
        ("CL:part_of", OBO + "CL#_part_of"),
        ("FMA:12", "http://fma.org/#12"),
        ("thing", OBO + "cl#thing"),
        ("http://e.org/x#1", "http://e.org/x#1"),
        (r"http\://e.org/y", "http://e.org/y"),
        ("urn:isbn:12", "urn:isbn:12"),
        ("CL:a%20b", OBO + "CL_a%20b"),
        ("CL:a<b>", OBO + "CL_a%3Cb%3E"),
        ("CL:ä", OBO + "CL_%C3%A4"),
    ],
)
def test_id_becomes_the_iri_that_the_owl_tools_make(name: str, iri: str) -> None:
    """Prefixed, with an idspace, bare, a URL; characters that no IRI holds are escaped."""
    ontology = obo(f"[Term]\nid: {name}\n", HEADER + 'idspace: FMA http://fma.org/# "anatomy"\n')
    assert [each.iri for each in ontology.concepts] == [iri]
    assert ontology.warnings == ()


def test_idspaces_are_prefixes_of_the_vocabulary() -> None:
    """So that the short form of the file works in subscriptions."""
    ontology = obo("[Term]\nid: FMA:12\n", HEADER + "idspace: FMA http://fma.org/#\n")
    assert ("FMA", "http://fma.org/#") in ontology.prefixes


def test_bare_relation_stands_for_its_cross_reference() -> None:
    """`part_of` with `xref: BFO:0000050` is BFO_0000050 wherever it stands; RO and BFO come before other references."""
    ontology = obo(
        "[Typedef]\nid: part_of\nname: part of\nxref: OBO_REL:part_of\nxref: BFO:0000050\nis_a: overlaps\n"
        "[Typedef]\nid: overlaps\nxref: RO:0002131\n"
    )
    assert {each.iri: each.parents for each in ontology.properties} == {
        OBO + "BFO_0000050": (OBO + "RO_0002131",),
        OBO + "RO_0002131": (),
    }


def test_bare_relation_with_an_address_means_it_only_by_its_name() -> None:
    """`exactMatch` with the address of SKOS is SKOS's; a link to read on is none of its names."""
    ontology = obo(
        "[Term]\nid: CL:1\nproperty_value: exactMatch CL:2\n[Term]\nid: CL:2\n"
        "[Typedef]\nid: exactMatch\nxref: http://www.w3.org/2004/02/skos/core#exactMatch\nis_metadata_tag: true\n"
        "[Typedef]\nid: near\nxref: http://e.org/wiki\n"
    )
    assert short(ontology.matches) == {"CL_1 < CL_2"}
    assert [each.iri for each in ontology.properties] == [OBO + "cl#near"]


def test_bare_names_of_a_file_without_name_are_relative() -> None:
    """No ontology header: they get the base that every document gets, and the warning."""
    ontology = obo("[Term]\nid: thing\n", "format-version: 1.2\n")
    assert ontology.concepts[0].iri == "https://kindcast.dev/ontologies/ontology/thing"
    assert "no base" in ontology.warnings[0]


def test_ids_with_an_underscore_have_a_short_form() -> None:
    """The IRI has `#_` in it; the id of the file is its CURIE all the same."""
    vocabulary = Vocabulary.from_ontologies([obo("[Term]\nid: CL:my_cell\n[Term]\nid: CL:0000084\n")])
    for term, iri in (("CL:my_cell", "CL#_my_cell"), ("CL:0000084", "CL_0000084"), ("CL_0000084", "CL_0000084")):
        assert [vocabulary.iri(each) for each in vocabulary.resolve(term).candidates] == [OBO + iri]


def test_axioms_in_the_header_are_read() -> None:
    """What OBO cannot say, in functional syntax, as the OWL tools leave it there; a mistake in it is no reason to
    refuse the file."""
    axioms = r"owl-axioms: Prefix(o:=<http://purl.obolibrary.org/obo/>)\nOntology(\nSubClassOf(o:CL_1 o:CL_2)\n"
    whole = obo("[Term]\nid: CL:1\n", f"{HEADER}{axioms})\n")
    assert short(whole.edges) == {"CL_1 < CL_2"}
    assert whole.declares == (OBO + "cl.owl",)
    broken = obo("[Term]\nid: CL:1\n", f"{HEADER}{axioms}Foo\n")
    assert short(broken.edges) == {"CL_1 < CL_2"}
    assert broken.warnings[0].startswith("line 3: the axioms were not read to the end: cannot read 'Foo'")


def test_header_declares_the_ontology_and_lists_imports() -> None:
    """By the names that others import it by; nothing is fetched."""
    ontology = obo("[Term]\nid: CL:1\n", HEADER + "import: go\nimport: http://e.org/x.owl ! other\n")
    assert ontology.declares == (OBO + "cl.owl",)
    assert ontology.imports == ("http://e.org/x.owl", OBO + "go.owl")


# ── hierarchy ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("body", "stated", "derived"),
    [
        ('id: CL:1\nis_a: CL:2 ! two\nis_a: CL:3 {source="a ! b"} ! three', {"CL_1 < CL_2", "CL_1 < CL_3"}, set()),
        ("id: CL:1\nintersection_of: CL:2 ! two\nintersection_of: part_of CL:3", set(), {"CL_1 < CL_2"}),
        ("id: CL:1\nintersection_of: CL:2\nintersection_of: CL:3", set(), {"CL_1 < CL_2", "CL_1 < CL_3"}),
        ("id: CL:1\nintersection_of: part_of CL:2\nintersection_of: R:1 CL:3", set(), set()),
        ("id: CL:1\nintersection_of: CL:2 two\nintersection_of: part_of CL:3", set(), {"CL_1 < CL_2"}),
        ("id: CL:1\nunion_of: CL:2\nunion_of: CL:3", set(), {"CL_2 < CL_1", "CL_3 < CL_1"}),
        ("id: CL:1\nrelationship: part_of CL:2", set(), set()),
        ("id: CL:1\ndisjoint_from: CL:2\nxref: CL:3\nconsider: CL:4", set(), set()),
        ('id: CL:1\nis_a: CL:2 {gci_relation="part_of", gci_filler="CL:3"}', set(), set()),
        ('id: CL:1\nis_a: CL:2 {gci_relation="part_of"}', set(), set()),
        ("id: CL:1\nis_a: CL:1", set(), set()),
    ],
)
def test_hierarchy_is_what_the_clauses_say(body: str, stated: set[str], derived: set[str]) -> None:
    """Named parents; genus and union members as OWL has them; relations, references and local axioms are no parents."""
    ontology = obo(f"[Term]\n{body}\n")
    assert short(set(ontology.edges) - ontology.derived) == stated
    assert short(ontology.derived) == derived


def test_equivalent_to_makes_one_concept() -> None:
    """Of terms; of relations the attributes are above each other."""
    ontology = obo(
        "[Term]\nid: CL:1\nequivalent_to: CL:2\n\n[Typedef]\nid: R:1\nequivalent_to: R:2\n[Typedef]\nid: R:2\n"
    )
    assert short(ontology.equivalences) == {"CL_1 < CL_2"}
    assert [each.parents for each in ontology.properties] == [(OBO + "R_2",), (OBO + "R_1",)]


def test_anonymous_term_passes_its_parents_on() -> None:
    """OBO-Edit wrote class expressions as terms with a blank id; they are no concepts."""
    ontology = obo(
        "[Term]\nid: CL:1\nis_a: _:x-1\n\n[Term]\nid: _:x-1\nis_anonymous: true\n"
        "intersection_of: CL:2\nintersection_of: CL:3\n"
    )
    assert short(ontology.derived) == {"CL_1 < CL_2", "CL_1 < CL_3"}
    assert {each.iri for each in ontology.concepts} == {OBO + name for name in ("CL_1", "CL_2", "CL_3")}


def test_instance_is_beneath_its_class() -> None:
    """`instance_of`, with the name of the instance; its relationships are plain."""
    ontology = obo("[Instance]\nid: CL:9\nname: my cell\ninstance_of: CL:1\nrelationship: part_of CL:8\n")
    assert short(ontology.types) == {"CL_9 < CL_1"}
    assert record(ontology, OBO + "CL_9").preferred == (("my cell", None),)


@pytest.mark.parametrize(
    ("macro", "stated", "derived", "same"),
    [
        ("treat-xrefs-as-equivalent: ZFA", set(), set(), {"CL_1 < ZFA_1"}),
        ("treat-xrefs-as-is_a: ZFA", {"CL_1 < ZFA_1"}, set(), set()),
        ("treat-xrefs-as-has-subclass: ZFA", {"ZFA_1 < CL_1"}, set(), set()),
        ("treat-xrefs-as-genus-differentia: ZFA part_of NCBITaxon:7954", set(), {"ZFA_1 < CL_1"}, set()),
        ("treat-xrefs-as-reverse-genus-differentia: ZFA part_of NCBITaxon:7954", set(), {"CL_1 < ZFA_1"}, set()),
        ("treat-xrefs-as-relationship: ZFA homologous_to", set(), set(), set()),
        ("treat-xrefs-as-equivalent: MA", set(), set(), set()),
    ],
)
def test_cross_references_mean_what_the_header_says(
    macro: str, stated: set[str], derived: set[str], same: set[str]
) -> None:
    """Of the prefixes that it names; of others nothing."""
    ontology = obo('[Term]\nid: CL:1\nxref: ZFA:1 "a cell" ! x\nxref: Wikipedia:T_cell\n', f"{HEADER}{macro}\n")
    assert short(set(ontology.edges) - ontology.derived) == stated
    assert short(ontology.derived) == derived
    assert short(ontology.equivalences) == same


def test_macros_for_cross_references_do_not_multiply() -> None:
    """The same one many times is one; of many different ones for a prefix the first few count."""
    header = "treat-xrefs-as-is_a: ZFA\n" * 9 + "".join(f"treat-xrefs-as-relationship: ZFA r{n}\n" for n in range(99))
    ontology = obo("[Term]\nid: CL:1\nxref: ZFA:1\n", HEADER + header)
    assert short(ontology.edges) == {"CL_1 < ZFA_1"}
    assert ontology.triples == 2 + 2 + 7 * 4


# ── what terms are called ───────────────────────────────────────────────────────────────────────────────────────────


def test_names_synonyms_and_definitions_are_sorted_by_what_they_are() -> None:
    """Exact synonyms resolve; broad, narrow and related ones only suggest; the old tags and a default scope count."""
    ontology = obo(
        "[Term]\nid: CL:1\nname: T cell ! not me\n"
        'def: "A \\"T\\" cell\\, of\\nthe blood." [CL:x, PMID:1] {a="b"}\ncomment: not \\{this\\}\n'
        'synonym: "T-cell" EXACT []\nsynonym: "t lymphocyte" exact UK [CL:x "say \\"so\\""] {a="b"}\n'
        'synonym: "wide" BROAD []\nsynonym: "deep" NARROW []\nsynonym: "near" RELATED []\n'
        'synonym: "spelt" UK []\nexact_synonym: "old" []\nbroad_synonym: "old wide" []\n',
        HEADER + 'synonymtypedef: UK "British spelling" EXACT\n',
    )
    found = record(ontology, OBO + "CL_1")
    assert found.preferred == (("T cell", None),)
    assert [text for text, _ in found.synonyms] == ["T-cell", "old", "spelt", "t lymphocyte"]
    assert [text for text, _ in found.hidden] == ["deep", "near", "old wide", "wide"]
    assert found.definition == 'A "T" cell, of\nthe blood.'
    assert ontology.warnings == ()


def test_text_with_exclamation_marks_and_braces_is_kept() -> None:
    """A comment begins with a free-standing !, modifiers have the form of modifiers; anything else is text."""
    ontology = obo('[Term]\nid: CL:1\nname: Yahoo! {set} a\\!b "x ! y" z ! comment\n')
    assert ontology.concepts[0].preferred == (('Yahoo! {set} a!b "x ! y" z', None),)


def test_line_that_goes_on_is_one_clause() -> None:
    """A backslash at the end of the line, as OBO 1.2 allows; two are an escaped one."""
    ontology = obo("[Term]\nid: CL:1\nname: T \\\n  cell\n[Term]\nid: CL:2\nname: b\\\\\nis_a: CL:1\n")
    assert [each.preferred[0][0] for each in ontology.concepts] == ["T   cell", "b\\"]


# ── life and death ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_obsolete_terms_lead_to_their_replacements() -> None:
    """`replaced_by` and its spelling as a property replace; `consider` never does."""
    ontology = obo(
        "[Term]\nid: CL:1\nis_obsolete: true\nreplaced_by: CL:3\nconsider: CL:4\n"
        "[Term]\nid: CL:2\nis_obsolete: true ! yes\nproperty_value: IAO:0100001 CL:3\n"
        "[Term]\nid: CL:3\nis_obsolete: false\n[Term]\nid: CL:5\nis_obsolete: true\nconsider: CL:3\n"
    )
    found = {each.iri.removeprefix(OBO): (each.deprecated, each.replaced_by) for each in ontology.concepts}
    assert found == {
        "CL_1": (True, (OBO + "CL_3",)),
        "CL_2": (True, (OBO + "CL_3",)),
        "CL_3": (False, ()),
        "CL_5": (True, ()),
    }


def test_consider_is_told_and_never_acted_on() -> None:
    """The obsolete term means itself; whoever subscribes to it reads what to look at, be it written as id or IRI."""
    ontology = obo(
        "[Term]\nid: CL:1\nname: old\nis_obsolete: true\nconsider: CL:3\nconsider: CL:9\n[Term]\nid: CL:3\nname: new\n"
    )
    assert ontology.concepts[0].consider == (OBO + "CL_3", OBO + "CL_9")
    vocabulary = Vocabulary.from_ontologies([ontology])
    assert vocabulary.considered(OBO + "CL_1") == (OBO + "CL_3",)
    assert [vocabulary.iri(each) for each in vocabulary.resolve("old").candidates] == [OBO + "CL_1"]
    found = resolve(parse("kind isa old"), vocabulary)
    assert [note.code for note in found.notes] == ["deprecated-term"]
    assert found.notes[0].detail.endswith(f"consider {OBO}CL_3")
    assert resolve(parse("kind isa new"), vocabulary).notes == ()


def test_alternative_id_is_a_retired_name_of_the_term() -> None:
    """It leads to the term; where it has a stanza of its own, that counts."""
    ontology = obo("[Term]\nid: CL:1\nalt_id: CL:7\nalt_id: CL:2\n[Term]\nid: CL:2\n")
    retired = record(ontology, OBO + "CL_7")
    assert (retired.kind, retired.deprecated, retired.replaced_by) == ("retired", True, (OBO + "CL_1",))
    assert not record(ontology, OBO + "CL_2").deprecated
    assert any("line 7: alt_id 'CL:2' has its own stanza" in each for each in ontology.warnings)


def test_property_values_count_where_their_property_means_something() -> None:
    """Labels and equivalences by their full names; texts with a type, names without."""
    ontology = obo(
        '[Term]\nid: CL:1\nproperty_value: skos:altLabel "thing" xsd:string\n'
        'property_value: skos:prefLabel "Thing"\nproperty_value: skos:exactMatch CL:2\n'
        "property_value: seeAlso https://e.org/x\n[Term]\nid: CL:2\n"
    )
    assert ontology.concepts[0].preferred == (("Thing", None),)
    assert ontology.concepts[0].synonyms == (("thing", None),)
    assert short(ontology.matches) == {"CL_1 < CL_2"}
    assert ontology.warnings == ()


def test_relations_are_attributes_with_ranges() -> None:
    """Of classes and of values; a metadata tag describes the file and is none."""
    ontology = obo(
        "[Typedef]\nid: CL:9\nname: has part\nrange: CL:1\ndomain: CL:1\nis_transitive: true\n"
        "transitive_over: CL:8\nholds_over_chain: CL:8 CL:9\ninverse_of: CL:8\n"
        "[Typedef]\nid: CL:8\nrange: xsd:integer\n[Typedef]\nid: CL:7\nis_metadata_tag: true\n[Term]\nid: CL:1\n"
    )
    assert {each.iri.removeprefix(OBO): each.ranges for each in ontology.properties} == {
        "CL_9": (OBO + "CL_1",),
        "CL_8": ("http://www.w3.org/2001/XMLSchema#integer",),
    }


# ── outsides ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: data.replace(b"\n", b"\r"),
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data.decode().encode("utf-16"),
        lambda data: gzip.compress(data),
        lambda data: data.rstrip(),
        lambda data: data.replace(b"\n", b"  \t\n").replace(b": ", b":   "),
        lambda data: b"! a comment\n\n" + data.replace(b"\n\n", b"\n! another\n\n\n"),
    ],
    ids=["CRLF", "CR", "BOM", "UTF-16", "gzip", "no end", "blanks", "comments"],
)
def test_outsides_of_a_file_do_not_matter(change: object) -> None:
    """Line ends, marks, encodings, packing, white space."""
    assert callable(change)
    data = (
        HEADER + '\n[Term]\nid: CL:1\nname: Zellkörper\nis_a: CL:2\n\n[Term]\nid: CL:2\nsynonym: "b" EXACT []\n'
    ).encode()
    plain, changed = read(data, format="obo"), read(change(data), format="obo")
    assert (plain.concepts, plain.edges) == (changed.concepts, changed.edges)
    assert plain.warnings == changed.warnings == ()
