"""Records as bytes: what is stored is what was read, and nothing else is taken for it."""

import zlib

import msgspec
import pytest

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology import read
from kindcast.semantic.ontology.records import HEADER, OLDER, OLDEST, decode, encode, is_readable
from kindcast.semantic.shipped_vocabularies import shipped, shipped_names

OWL = "http://www.w3.org/2002/07/owl#"
TURTLE = b"""
@prefix : <http://e/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
:A rdfs:subClassOf :B ; rdfs:label "\xc3\xa4 \xf0\x90\x90\x80"@de-AT, "a" .
:A owl:equivalentClass [ owl:intersectionOf ( :C :D ) ] .
:p rdfs:domain :A ; rdfs:range :B . :x :p :y ; owl:sameAs :z ; :part :y . :part a owl:TransitiveProperty .
:old a owl:Class ; owl:deprecated true .
:c1 a skos:Concept ; skos:inScheme :s1, :s2 ; skos:exactMatch :c2 . :c2 a skos:Concept ; skos:inScheme :s1, :s2 .
"""


@pytest.mark.parametrize("name", shipped_names())
def test_records_of_shipped_vocabularies_come_back_as_they_went(name: str) -> None:
    """Equal records, and again the same bytes."""
    ontology = read(shipped(name).read_bytes(), name=name)
    data = encode(ontology)
    assert decode(data) == ontology
    assert encode(decode(data)) == data


def test_records_of_every_kind_come_back_as_they_went() -> None:
    """Labels of all scripts, inferred pairs, relations, properties with domains, schemes and exact matches."""
    ontology = read(TURTLE, format="turtle", reason="rdfs", relations=("part",))
    assert ontology.inferred
    assert ontology.relations
    assert ontology.matches
    assert decode(encode(ontology)) == ontology


def test_records_of_the_layouts_before_are_read_where_they_are_asked_for() -> None:
    """First exact matches stood among the other equivalences, and nobody noted schemes; then nobody noted codes."""
    data = encode(read(TURTLE, format="turtle"))
    stored = msgspec.msgpack.decode(zlib.decompress(data[len(HEADER) :]))
    names, concepts, pairs, rest = stored
    concepts = [msgspec.msgpack.encode([each[:-2] for each in msgspec.msgpack.decode(piece)]) for piece in concepts]
    older = [names, concepts, [*pairs[:3], pairs[3] + pairs[4], pairs[5]], rest]
    written = OLDEST + zlib.compress(msgspec.msgpack.encode(older))
    found, now = decode(written, older=True), decode(data)
    assert set(found.equivalences) == {*now.equivalences, *now.matches}
    assert (found.matches, found.edges, found.types) == ((), now.edges, now.types)
    assert [each.iri for each in found.concepts] == [each.iri for each in now.concepts]
    third = [msgspec.msgpack.encode([each[:-1] for each in msgspec.msgpack.decode(piece)]) for piece in stored[1]]
    later = OLDER + zlib.compress(msgspec.msgpack.encode([names, third, pairs, rest]))
    assert decode(later, older=True) == now
    for each in (written, later):
        with pytest.raises(OntologyError, match="read the document again"):
            decode(each)


def test_bytes_that_are_no_records_are_refused() -> None:
    """Of another layout, cut off, or changed: an error that says to read the document again, never half of it."""
    data = encode(read(TURTLE, format="turtle"))
    for wrong in (b"", b"x" + data, data.replace(HEADER, b"kindcast ontology records 2\n")):
        assert not is_readable(wrong)
        with pytest.raises(OntologyError, match="read the document again"):
            decode(wrong)
    for wrong in (data[:-10], data[: len(HEADER)], data[:-1] + b"\0", HEADER + b"\0" * 20):
        with pytest.raises(OntologyError, match="damaged"):
            decode(wrong)


def test_unit_of_a_property_in_records_of_before_is_one_of_its_units() -> None:
    """Earlier versions wrote one unit of a property, also in the layout of today."""
    unit = "http://qudt.org/vocab/unit/KiloGM"
    text = f"<urn:p> a <{OWL}DatatypeProperty> ; <http://qudt.org/schema/qudt/hasUnit> <{unit}> ."
    ontology = read(text.encode(), format="turtle")
    data = encode(ontology)
    names, concepts, pairs, rest = msgspec.msgpack.decode(zlib.decompress(data[len(HEADER) :]))
    (record,) = rest["properties"]
    assert record.pop("units") == [unit]
    record["unit"] = unit
    written = HEADER + zlib.compress(msgspec.msgpack.encode([names, concepts, pairs, rest]))
    assert decode(written) == ontology
