"""Names of attributes resolve, stand above one another, and are declared by properties and by the user."""

from typing import Any

import pytest

from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.ontology import PropertyRecord
from kindcast.semantic.vocabulary.attributes import ABOVE, AttributeDeclaration, AttributeScheme

XSD = "http://www.w3.org/2001/XMLSchema#"


def record(
    name: str, *parents: str, labels: str = "", ranges: tuple[str, ...] = (), unit: str | None = None
) -> PropertyRecord:
    return PropertyRecord(
        iri=f"http://e/{name}",
        labels=tuple((text, "en") for text in labels.split(",") if text),
        parents=tuple(f"http://e/{parent}" for parent in parents),
        ranges=ranges,
        units=() if unit is None else (unit,),
    )


def declared(declarations: dict[str, Any], *records: PropertyRecord) -> AttributeDeclaration:
    found = AttributeScheme.build(records, declarations).declaration("price")
    assert found is not None
    return found


# ── names ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ("price", "price"),
        ("Preis", "price"),
        ("PREIS", "price"),
        ("Price", "price"),
        ("cost", "price"),
        ("Kosten", "price"),
        ("seller.Preis", "seller.price"),
        ("Verkäufer.Kosten", "seller.price"),
        ("Verka\u0308ufer", "seller"),
        ("listPrice.Preis", "listPrice.price"),
        ("unheard.of", "unheard.of"),
        ("Unheard", "Unheard"),
        ("a..b", "a..b"),
        ("", ""),
    ],
)
def test_resolve_goes_segment_by_segment(raw: str, name: str) -> None:
    """The exact name, the synonym table, labels of declared properties; what nobody knows stays as it is."""
    scheme = AttributeScheme.build(
        [record("price", labels="Preis,Price,cost"), record("seller", labels="Verkäufer"), record("listPrice")],
        synonyms={"Kosten": "price"},
    )
    assert scheme.resolve(raw) == name


def test_resolve_lets_the_exact_name_and_the_users_table_go_before_labels() -> None:
    """The label of one property may be the name of another."""
    scheme = AttributeScheme.build(
        [record("cost", labels="price"), record("price", labels="fee"), record("charge", labels="toll")],
        synonyms={"toll": "cost", "fee.net": "price"},
    )
    assert scheme.resolve("price") == "price"
    assert scheme.resolve("toll") == "cost"
    assert scheme.resolve("Toll") == "charge"
    assert scheme.resolve("fee.net") == "price"


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ("Betrag", "price"),
        ("offer.Betrag", "offer.price"),
        ("email", "contact.email"),
        ("contact.email", "contact.email"),
        ("seller.email", "seller.contact.email"),
        ("seller.contact.email.Betrag", "seller.contact.email.price"),
        ("sum", "lines.price"),
        ("<http://example.org/e.mail>.email", "<http://example.org/e.mail>.contact.email"),
    ],
)
def test_resolve_of_a_root_word_gives_a_name_that_means_itself(raw: str, name: str) -> None:
    """A root word may be a label or a dotted name. Subscriptions are stored with the result and compiled again."""
    synonyms = {"Betrag": "Preis", "email": "contact.email", "sum": "lines.Preis"}
    scheme = AttributeScheme.build([record("price", labels="Preis")], synonyms=synonyms)
    assert scheme.resolve(raw) == name == scheme.resolve(name)


def test_resolve_of_a_label_that_two_properties_have_leaves_it_alone() -> None:
    """Guessing one of them would make different attributes the same."""
    scheme = AttributeScheme.build([record("width", labels="size"), record("height", labels="size")])
    assert scheme.resolve("size") == "size"


# ── above ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cell", ("cell", "phone", "contact")),
        ("seller.cell", ("seller.cell", "seller.phone", "seller.contact")),
        ("cell.number", ("cell.number", "phone.number", "contact.number")),
        ("contact", ("contact",)),
        ("unheard.of", ("unheard.of",)),
    ],
)
def test_broader_names_replace_any_segment(name: str, expected: tuple[str, ...]) -> None:
    """The name itself first, then what is above it, nearest first."""
    scheme = AttributeScheme.build([record("cell", "phone"), record("phone", "contact"), record("contact")])
    assert scheme.broader(name) == expected


def test_broader_of_properties_in_a_circle_ends() -> None:
    """Equivalent properties are above each other."""
    scheme = AttributeScheme.build([record("a", "b"), record("b", "a", "c"), record("c")])
    assert scheme.broader("a") == ("a", "b", "c")
    assert scheme.broader("b") == ("b", "a", "c")


def test_broader_of_several_segments_is_bounded() -> None:
    """Names multiply: five above each of six segments would be forty-six thousand."""
    scheme = AttributeScheme.build(
        [record("a0", *(f"a{n}" for n in range(1, 6))), *(record(f"a{n}") for n in range(1, 6))]
    )
    found = scheme.broader(".".join(["a0"] * 6))
    assert found[0] == ".".join(["a0"] * 6)
    assert len(found) == len(set(found)) == ABOVE


# ── declarations ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("ranges", "kind", "concepts"),
    [
        ((XSD + "decimal",), "number", ()),
        ((XSD + "integer",), "number", ()),
        ((XSD + "double",), "number", ()),
        ((XSD + "integer", XSD + "decimal"), "number", ()),
        ((XSD + "string",), "text", ()),
        (("http://www.w3.org/1999/02/22-rdf-syntax-ns#langString",), "text", ()),
        ((XSD + "dateTime",), "instant", ()),
        ((XSD + "boolean",), "boolean", ()),
        (("http://e/Colour",), "concept", ("http://e/Colour",)),
        (("http://e/Colour", "http://e/Paint"), "concept", ("http://e/Colour", "http://e/Paint")),
        (("http://e/Colour", XSD + "string"), None, ()),
        ((XSD + "hexBinary",), None, ()),
        (("http://www.w3.org/2000/01/rdf-schema#Literal",), None, ()),
        (("http://www.w3.org/2002/07/owl#Thing",), None, ()),
        ((), None, ()),
    ],
)
def test_declaration_reads_the_range(ranges: tuple[str, ...], kind: str | None, concepts: tuple[str, ...]) -> None:
    """Data types are kinds of value, classes are ranges of concepts, disagreement is no declaration."""
    found = declared({}, record("price", ranges=ranges))
    assert (found.kind, found.range) == (kind, concepts)


def test_declaration_is_of_the_whole_name_else_of_its_last_segment() -> None:
    """`offer.price` may be declared by itself; every other price is a price."""
    scheme = AttributeScheme.build([record("price", unit="EUR")], {"offer.price": {"unit": "USD"}})
    units = {
        name: found and found.unit
        for name in ("price", "offer.price", "a.b.price", "other")
        for found in [scheme.declaration(name)]
    }
    assert units == {"price": "EUR", "offer.price": "USD", "a.b.price": "EUR", "other": None}


def test_declaration_is_inherited_from_the_property_above() -> None:
    """The range of a property holds for those beneath it, unless they say something themselves."""
    scheme = AttributeScheme.build(
        [
            record("amount", ranges=(XSD + "decimal",), unit="EUR"),
            record("price", "amount"),
            record("label", "amount", ranges=(XSD + "string",)),
        ]
    )
    price, label = scheme.declaration("price"), scheme.declaration("label")
    assert price is not None
    assert (price.kind, price.unit) == ("number", "EUR")
    assert label is not None
    assert (label.kind, label.unit) == ("text", None)


def test_declaration_of_two_properties_with_one_local_name_is_one() -> None:
    """brick:value and shop:value are both `value`; where they disagree nothing is declared."""
    one = PropertyRecord(iri="http://a/price", ranges=(XSD + "decimal",), labels=(("Preis", "de"),))
    other = PropertyRecord(iri="http://b/price", labels=(("prix", "fr"),))
    text = PropertyRecord(iri="http://c/price", ranges=(XSD + "string",))
    assert declared({}, one, other).kind == "number"
    assert {label for label, _ in declared({}, one, other).labels} == {"Preis", "prix"}
    assert declared({}, one, other, text).kind is None
    assert declared({}, text, one, other) == declared({}, other, text, one)


def test_order_of_an_enumeration_may_be_one_chain() -> None:
    """A list of members is one chain from low to high, not a chain of each member, which would order nothing."""
    grades = ["C", "B", "A"]
    expected = declared({"price": {"enum": grades, "order": "listed"}})
    for order in (grades, [grades], [["C", "B"], ["B", "A"]]):
        assert declared({"price": {"enum": grades, "order": order}}) == expected


def test_declaration_of_the_user_overrides_field_by_field() -> None:
    """What is not mentioned stays as the ontology has it."""
    ontology = record("price", ranges=(XSD + "string",), labels="Preis", unit="EUR")
    found = declared({"price": {"kind": "number", "unit_from": "currency"}}, ontology)
    assert (found.kind, found.unit, found.unit_from, found.labels) == ("number", "EUR", "currency", (("Preis", "en"),))
    assert declared({"price": {"kind": "concept", "range": "http://e/C"}}, ontology).range == ("http://e/C",)
    colour = record("price", ranges=("http://e/Colour",))
    assert declared({"price": {"kind": "text"}}, colour).range == ()
    assert declared({"price": {"range": ["http://e/D", "http://e/E"]}}, colour).range == ("http://e/D", "http://e/E")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [("Preis", (("Preis", None),)), (["a", "b"], (("a", None), ("b", None))), ({"de": "Preis"}, (("Preis", "de"),))],
)
def test_declaration_of_the_user_may_bring_labels(labels: Any, expected: tuple[tuple[str, str | None], ...]) -> None:
    """One, several, or by language; they resolve like those of properties."""
    scheme = AttributeScheme.build((), {"price": {"labels": labels}})
    found = scheme.declaration("price")
    assert found is not None
    assert found.labels == expected
    assert scheme.resolve(expected[0][0].upper()) == "price"


@pytest.mark.parametrize(
    ("declaration", "word"),
    [
        ({"kind": "money"}, "kind is one of"),
        ({"sort": "number"}, "'sort'"),
        ({"range": 5}, "range"),
        ({"range": [5]}, "range"),
        ({"unit": 5}, "unit"),
        ({"labels": [5]}, "labels"),
        ({"labels": 5}, "labels"),
        ("number", "an object"),
    ],
)
def test_declaration_of_the_user_that_is_wrong_is_refused(declaration: Any, word: str) -> None:
    """With the attribute's name and what is expected."""
    with pytest.raises(InvalidDeclaration, match=word) as caught:
        AttributeScheme.build((), {"price": declaration})
    assert "price" in str(caught.value)


def test_scheme_of_nothing_leaves_names_alone() -> None:
    """Open mode: nothing is declared, everything goes."""
    scheme = AttributeScheme.build()
    assert (scheme.resolve("a.b"), scheme.broader("a.b"), scheme.declaration("a.b")) == ("a.b", ("a.b",), None)


def test_described_names_label_iris_and_path_of_a_property() -> None:
    """By language; of `<IRI>` only what is known of that property; nothing of names of the envelope."""
    weight, other = "http://e/#weight", "http://other/#weight"
    records = [
        PropertyRecord(iri=weight, labels=(("gross weight", "en"), ("Bruttogewicht", "de"))),
        PropertyRecord(iri="http://e/#from", labels=(("departure", "en"),)),
        PropertyRecord(iri="http://e/#bare"),
    ]
    scheme = AttributeScheme.build(records, {"price": {"labels": "Preis"}})
    assert scheme.described("weight") == {"label": "gross weight", "iris": [weight]}
    assert scheme.described("weight", "de") == {"label": "Bruttogewicht", "iris": [weight]}
    assert scheme.described("from.weight") == {
        "label": "gross weight",
        "iris": [weight],
        "path": ["departure", "gross weight"],
    }
    assert scheme.described(f"<{weight}>") == {"label": "gross weight", "iris": [weight]}
    assert scheme.described(f"<{other}>") == {"iris": [other]}
    assert scheme.described("price") == {"label": "Preis"}
    assert (scheme.described("ce.weight"), scheme.described("else")) == (None, None)
    words = [scheme.in_words(name) for name in ("weight", "from.weight", f"<{weight}>", "price", "bare", "else")]
    assert words == [
        f'weight ("gross weight", <{weight}>)',
        f'from.weight ("departure → gross weight", <{weight}>)',
        f'<{weight}> ("gross weight")',
        'price ("Preis")',
        "bare (<http://e/#bare>)",
        "else",
    ]
    assert scheme.suggestion("else") == {"label": "else"}
    many = AttributeScheme.build([PropertyRecord(iri=f"http://e/{n}#same") for n in range(9)])
    assert len((many.described("same") or {})["iris"]) == 5


def test_strangers_are_properties_that_nothing_speaks_of() -> None:
    """A property is known by its IRI, its local name or its CURIE: in an ontology, a declaration, or a name asked for;
    an alias of a known IRI is known too, and both are one."""
    main = {"http://old/#q": "http://e/#q"}

    def spelt_out(curie: str) -> tuple[str, ...]:
        return ("http://e/#" + curie.partition(":")[2],)

    known = [PropertyRecord(iri="http://e/#known")]
    scheme = AttributeScheme.build(
        known, {"a.inner": {"kind": "number"}}, main=lambda iri: main.get(iri, iri), spelt_out=spelt_out
    )
    mentioned = scheme.mentioned(["x.local", "<http://e/#byIri>", "ex:byCurie"])

    def strangers(name: str) -> list[tuple[str, str]]:
        return list(scheme.strangers(name, mentioned))

    for local in ("known", "inner", "local", "byIri", "byCurie"):
        assert strangers(f"<http://e/#{local}>") == [], local
    assert strangers("<http://other/#byIri>") == [("http://other/#byIri", "byIri")]
    assert strangers("<http://old/#q>") == strangers("<http://e/#q>") == [("http://e/#q", "q")]
    assert strangers("<http://e/#known>.<http://e/#new>.@language") == [("http://e/#new", "known.new")]
    assert strangers("^<http://e/#new>") == [("http://e/#new", "new")]
    assert strangers("<http://e/v1.0>") == [("http://e/v1.0", "<http://e/v1.0>")]
    assert strangers("plain.name") == []
