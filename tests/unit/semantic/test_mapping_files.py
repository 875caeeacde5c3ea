"""Mapping files, in Turtle and in SSSOM, merge and order concepts of other documents; what they say of nearness does
not."""

import pytest

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology import Ontology, read
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

OBO = "http://purl.obolibrary.org/obo/"
HEADER = """#curie_map:
#  HP: http://purl.obolibrary.org/obo/HP_
#  "MP": "http://purl.obolibrary.org/obo/MP_"
#  e: 'http://e.org/'
#mapping_set_id: https://e.org/mappings
#license: https://e.org/licence
"""
COLUMNS = "subject_id\tsubject_label\tpredicate_id\tobject_id\tmapping_justification\n"


def sssom(*rows: str, header: str = HEADER, columns: str = COLUMNS) -> Ontology:
    return read((header + columns + "".join(f"{row}\n" for row in rows)).encode(), name="m.sssom.tsv")


def row(subject: str, predicate: str, value: str) -> str:
    return f"{subject}\ta label\t{predicate}\t{value}\tsemapv:LexicalMatching"


@pytest.mark.parametrize(
    "predicate", ["skos:exactMatch", "owl:equivalentClass", "owl:sameAs", "<http://www.w3.org/2002/07/owl#sameAs>"]
)
def test_row_of_equality_is_an_equivalence(predicate: str) -> None:
    """Of names, as in Turtle; exact matches are kept apart, as they are there."""
    ontology = sssom(row("HP:1", predicate, "MP:2"))
    assert ontology.format == "sssom"
    pair = (OBO + "HP_1", OBO + "MP_2")
    assert (ontology.equivalences, ontology.matches) == (((), (pair,)) if "Match" in predicate else ((pair,), ()))


@pytest.mark.parametrize(
    ("predicate", "edge"),
    [
        ("skos:broadMatch", ("HP_1", "MP_2")),
        ("skos:broader", ("HP_1", "MP_2")),
        ("rdfs:subClassOf", ("HP_1", "MP_2")),
        ("skos:narrowMatch", ("MP_2", "HP_1")),
    ],
)
def test_row_of_order_is_a_pair(predicate: str, edge: tuple[str, str]) -> None:
    """Narrower first, whichever way the row says it."""
    assert sssom(row("HP:1", predicate, "MP:2")).edges == ((OBO + edge[0], OBO + edge[1]),)


def test_rows_that_say_nothing_of_meaning_are_counted() -> None:
    """Close and related matches, negated rows, rows that found nothing."""
    ontology = sssom(
        *[row("HP:1", "skos:closeMatch", "MP:2")] * 3,
        row("HP:1", "semapv:crossSpeciesExactMatch", "MP:2"),
        row("HP:1", "skos:exactMatch", "sssom:NoTermFound"),
    )
    assert (ontology.edges, ontology.matches) == ((), ())
    assert [each for each in ontology.warnings if "no concept" not in each] == [
        "line 12: the row says that there is no such term; it was left out",
        "3 mappings with skos:closeMatch left out: no effect on the hierarchy",
        "1 mapping with semapv:crossSpeciesExactMatch left out: no effect on the hierarchy",
    ]
    negated = sssom(
        "HP:1\tskos:exactMatch\tMP:2\tNot",
        "HP:1\tskos:exactMatch\tMP:3\t",
        columns="subject_id\tpredicate_id\tobject_id\tpredicate_modifier\n",
    )
    assert negated.matches == ((OBO + "HP_1", OBO + "MP_3"),)
    assert negated.warnings == ("1 mapping with Not skos:exactMatch left out: no effect on the hierarchy",)


@pytest.mark.parametrize(
    ("term", "iri"),
    [
        ("HP:1", OBO + "HP_1"),
        ("e:a/b#c", "http://e.org/a/b#c"),
        ("https://e.org/x", "https://e.org/x"),
        ("<https://e.org/x>", "https://e.org/x"),
        ("skos:Concept", "http://www.w3.org/2004/02/skos/core#Concept"),
    ],
)
def test_terms_are_curies_or_iris(term: str, iri: str) -> None:
    """By the file's own prefixes and those that SSSOM knows by itself."""
    ontology = sssom(row("e:s", "rdfs:subClassOf", term))
    assert ontology.edges == ((("http://e.org/s", iri),) if "skos" not in term else ())


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("#curie_map: {HP: 'http://purl.obolibrary.org/obo/HP_', MP: http://purl.obolibrary.org/obo/MP_}\n", COLUMNS),
        (f"# mapping_set_id: x\n# curie_map:\n#   HP: {OBO}HP_\n#   MP: {OBO}MP_\n#\n", COLUMNS),
        ("#curie_map:\n# HP: http://purl.obolibrary.org/obo/HP_\n#MP: no\n# creator: [a]\n", COLUMNS),
        ("", COLUMNS),
        (HEADER, COLUMNS.replace("\n", "\r\n")),
        ("\ufeff" + HEADER, COLUMNS),
    ],
    ids=["flow", "blanks", "ends at a key", "none", "CRLF", "BOM"],
)  # fmt: skip
def test_header_of_many_kinds_is_read(header: str, columns: str) -> None:
    """Block and flow style; without prefixes ids of OBO are known by their looks, with a warning."""
    ontology = sssom(row("HP:1", "skos:exactMatch", "MP:2"), header=header, columns=columns)
    assert ontology.matches == ((OBO + "HP_1", OBO + "MP_2"),)
    assert any("not in the curie_map" in each for each in ontology.warnings) == ("MP_" not in header)


def test_table_with_commas_and_quotes_is_read() -> None:
    """As spreadsheets write it."""
    rows = 'HP:1,"a, b\n""c""",skos:exactMatch,MP:2\nHP:3,,skos:exactMatch,x\n'
    ontology = read(f"subject_id,subject_label,predicate_id,object_id\n{rows}".encode())
    assert ontology.matches == ((OBO + "HP_1", OBO + "MP_2"),)
    assert "line 4: 'x' is not a term: the row was left out" in ontology.warnings


@pytest.mark.parametrize(
    ("data", "line", "word"),
    [
        (b"", 1, "column subject_id, predicate_id, object_id is missing"),
        (b"#x\nsubject_id\tobject_id\n", 2, "column predicate_id is missing"),
        (COLUMNS.encode() + b'HP:1\t"' + b"x" * 200_000, None, "the table is damaged"),
        (COLUMNS.encode() + b"\t" * (1 << 21), 2, "the line has more than"),
        (COLUMNS.encode() + b"HP:\xff\t", 2, "not in UTF-8"),
        (b"#curie_map:\n#  x: http://e/" + b"x" * 5_000 + b"\n" + COLUMNS.encode(), 2, "prefix is longer than"),
    ],
)
def test_what_is_no_table_of_mappings_is_refused(data: bytes, line: int | None, word: str) -> None:
    """With the line."""
    with pytest.raises(OntologyError, match=word) as caught:
        read(data, format="sssom")
    assert line in (None, caught.value.line)


def test_short_row_and_odd_names_cost_themselves() -> None:
    """The others count."""
    ontology = sssom("HP:1", row("HP:1", "skos:exactMatch", "e:a b"), "#x", "", row("HP:1", "skos:exactMatch", "MP:1"))
    assert len(ontology.matches) == 1
    assert [each[:32] for each in ontology.warnings] == [
        "line 8: the row has 1 of 5 field",
        "line 9: 'http://e.org/a b' is no",
    ]


@pytest.mark.parametrize(
    ("name", "mapping"),
    [
        ("m.sssom.tsv", HEADER + COLUMNS + row("HP:1", "skos:exactMatch", "MP:2") + "\n"
                        + row("HP:3", "skos:broadMatch", "MP:2")),
        ("m.ttl", f"@prefix s: <http://www.w3.org/2004/02/skos/core#> . <{OBO}HP_1> s:exactMatch <{OBO}MP_2> ."
                  f"<{OBO}HP_3> s:broadMatch <{OBO}MP_2> ."),
    ],
)  # fmt: skip
def test_mapping_file_joins_two_vocabularies(name: str, mapping: str) -> None:
    """An upload like any other: concepts of two documents become one, and one comes beneath the other's."""
    one = read(
        b"format-version: 1.2\nontology: hp\n[Term]\nid: HP:1\nname: small ear\n[Term]\nid: HP:3\n", name="hp.obo"
    )
    two = read(b"format-version: 1.2\nontology: mp\n[Term]\nid: MP:2\nname: tiny ear\n", name="mp.obo")
    vocabulary = Vocabulary.from_ontologies([one, two, read(mapping.encode(), name=name)])
    first, second = (vocabulary.resolve(term).candidates for term in ("small ear", "MP:2"))
    assert first == second
    third = vocabulary.resolve("HP:3").candidates
    assert vocabulary.isa(third[0], first[0])
    assert len(vocabulary) == 2
