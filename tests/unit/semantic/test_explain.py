"""Explanations name the predicate, the value and the path that decided, and agree with the matcher."""

from typing import Any

import pytest

from kindcast import InvalidEvent, InvalidSubscription, Matcher, Vocabulary, explain, operator

TURTLE = """
@prefix : <http://example.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:Desktop rdfs:subClassOf :Computer ; rdfs:label "Desktop PC"@en , "台式机"@zh .
:Computer rdfs:subClassOf :Product ; rdfs:label "computer"@en , "Rechner"@de .
""".encode()


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.from_bytes(TURTLE, format="turtle")


def test_explain_names_the_one_predicate_that_failed(vocabulary: Vocabulary) -> None:
    """The computer is one, only its price is too high."""
    told = explain(vocabulary, "target isa computer and price <= 400", {"target": "台式机", "price": 450})
    assert told["matches"] is False
    assert told["summary"].startswith("No match because of price alone")
    kind, price = told["clauses"][0]["predicates"]
    assert (kind["verdict"], price["verdict"]) == (True, False)
    assert kind["values"][0]["path"] == ["Desktop PC", "computer"]
    assert price["values"][0]["published"] == 450


def test_explain_match_shows_the_path_in_the_language_asked_for(vocabulary: Vocabulary) -> None:
    """Labels come in the reader's language, with the fallback of the vocabulary."""
    told = explain(vocabulary, "target isa computer", {"target": "Desktop PC"}, language="de")
    assert told["matches"] is True
    assert told["clauses"][0]["predicates"][0]["values"][0]["path"][-1] == "Rechner"
    assert "Rechner" in told["summary"]


@pytest.mark.parametrize(
    ("text", "data", "word"),
    [
        ("a = 1", {}, "absent"),
        ("a exists", {}, "absent"),
        ("a missing", {"a": 1}, "present"),
        ("a exists", {"a": {"b": 1}}, "a is absent; the event has a.b."),
        ("a = 1", {"a": [{"b": 1}]}, "a is absent; the event has a.b."),
        ("a < b", {"a": 1}, "b is absent"),
        ("count(a) = max(b)", {"a": 1}, "= max(b): b is absent"),
        ("not count(a) = sum(b)", {"a": 1, "b": "x"}, "= sum(b): sum(b) has no value"),
        ("a < b", {"a": 3, "b": 2}, "no pair"),
        ("every a < b", {"a": [1, 3], "b": 2}, "every a < b: not every value satisfies it"),
        ("every a != b", {"a": [1, 2], "b": 2}, "!= b: not every value satisfies it"),
        ("not every a < b", {"a": 1, "b": 2}, "every a < b: every value satisfies it"),
        ("every a < b", {"a": 1}, "every a < b: b is absent"),
        ('not a contains "x" nocase', {"a": "XY"}, "'XY' contains 'x' in any case"),
        ("not a < b", {"a": 1, "b": 2}, "some pair"),
        ("some a (b = 1)", {"a": [{"b": 2}]}, "no element"),
        ("some a (b = 1)", {"a": 3}, "not an array"),
        ("a = 1 and a != 1", {"a": 1}, "never hold"),
        ("a isa computer", {"a": ["x", "y", "z", "w"]}, "…"),
    ],
)
def test_explain_says_why_in_words(vocabulary: Vocabulary, text: str, data: dict[str, Any], word: str) -> None:
    """Each kind of failure has its own words, and the verdict is the matcher's."""
    told = explain(vocabulary, text, data)
    matcher = Matcher(vocabulary)
    matcher.add("s", text)
    assert told["matches"] is bool(matcher.match(data)) is False
    assert word in told["summary"]


@pytest.mark.parametrize(
    "text",
    [
        "a isa phone", "not a isa phone", "not a isa (computer, phone)", "not a = <http://example.org/Phone>",
        "not every a isa phone", "not some b (a isa phone)", "not every b (a isa phone)",
    ],
)  # fmt: skip
def test_explain_says_that_a_concept_was_removed(vocabulary: Vocabulary, text: str) -> None:
    """Neither a predicate with a removed concept nor its negation holds (rule 14); no value is said to satisfy it."""
    earlier = Matcher(
        Vocabulary.from_bytes(TURTLE + b':Phone rdfs:label "phone" ; rdfs:subClassOf :Product .', format="turtle")
    )
    earlier.add("s", text)
    later = Matcher(vocabulary)
    later.restore("s", earlier.tree("s"))
    data = {"a": "x", "b": [{"a": "x"}]}
    told = explain(vocabulary, later["s"], data)
    assert told["matches"] is bool(later.match(data)) is False
    assert "satisf" not in told["summary"]
    assert "it cannot hold: the vocabulary lacks what it names" in told["summary"]


def test_explain_shows_a_root_word_beside_the_text() -> None:
    """Both can decide (rule 9); a string without another root word shows none."""
    vocabulary = Vocabulary(synonyms={"Hewlett-Packard": "HP"})
    told = explain(vocabulary, 'brand contains "Packard"', {"brand": ["Hewlett-Packard", "IBM"]})
    shown = [each["canonical"] for each in told["clauses"][0]["predicates"][0]["values"]]
    assert (told["matches"], shown) == (True, [{"text": "Hewlett-Packard", "root_word": "HP"}, {"text": "IBM"}])


def test_explain_shows_readings_and_notes(vocabulary: Vocabulary) -> None:
    """Every reading of a value, and the notes of subscription and event, are part of the answer."""
    told = explain(vocabulary, "a = b", {"a": "2026-01-01T00:00:00Z", "b": {"value": 3, "unit": "kg"}, "c": "computer"})
    assert [note["code"] for note in told["notes"]] == ["attribute-operand"]
    values = told["clauses"][0]["predicates"][0]["values"]
    assert values[0]["canonical"]["instant"] == 1_767_225_600_000_000
    quantity = explain(vocabulary, "b exists", {"b": {"value": 3, "unit": "kg"}})
    assert quantity["clauses"][0]["predicates"][0]["values"][0]["canonical"]["quantity"]["amount"] > 0


def test_explain_and_errors_repeat_no_label() -> None:
    """Two concepts with one label are not "mouse or mouse"."""
    vocabulary = Vocabulary.from_bytes(
        b"@prefix : <http://e/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> ."
        b':m1 a rdfs:Class ; rdfs:label "mouse" . :m2 a rdfs:Class ; rdfs:label "mouse" . :Laptop a rdfs:Class .',
        format="turtle",
    )
    told = explain(vocabulary, "not seen isa Laptop", {"seen": "mouse"})
    assert told["summary"] == "Match: mouse is not a kind of Laptop."
    with pytest.raises(InvalidSubscription, match=r"the name 'mousse' \(near: mouse\)$"):
        explain(vocabulary, "seen isa mousse", {})


def test_explain_distinguishes_two_concepts_with_one_label() -> None:
    """They are named by their IRIs, as in the refusal of the ambiguous label."""
    vocabulary = Vocabulary.from_bytes(
        b"@prefix : <http://e/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> ."
        b':m1 a rdfs:Class ; rdfs:label "mouse" . :m2 a rdfs:Class ; rdfs:label "mouse" . :m3 rdfs:subClassOf :m2 .',
        format="turtle",
    )
    told = explain(vocabulary, "seen isa <http://e/m1>", {"seen": "http://e/m2"})
    assert told["summary"] == "No match because of seen: <http://e/m2> is not a kind of <http://e/m1>."
    told = explain(vocabulary, "seen isa <http://e/m1>", {"seen": "http://e/m3"})
    assert told["summary"] == "No match because of seen: m3 is not a kind of mouse."


def test_explain_and_errors_name_the_property_of_an_attribute() -> None:
    """Its label in the reader's language and its IRI, beside the attribute; the verdict is the same."""
    turtle = (
        TURTLE
        + b"""
    @prefix owl: <http://www.w3.org/2002/07/owl#> .
    :not a owl:DatatypeProperty ; rdfs:label "negation"@en .
    :grossWeight a owl:DatatypeProperty ; rdfs:label "gross weight"@en , "Bruttogewicht"@de .
    """
    )
    closed = {"properties": {"grossWeight": {"type": "number"}}, "additionalProperties": False}
    vocabulary = Vocabulary.from_bytes(turtle, format="turtle", schemas={"piece": closed})
    iri = "http://example.org/grossWeight"
    event = {"grossWeight": 12}
    (told,) = explain(vocabulary, "not grossWeight > 20", event)["clauses"][0]["predicates"]
    assert told["property"] == {"label": "gross weight", "iris": [iri]}
    assert told["attribute"] == "grossWeight"
    assert told["reason"].startswith("12 is not more than 20 [")
    assert told["reason"].endswith(f' [grossWeight ("gross weight", <{iri}>)]')
    (told,) = explain(vocabulary, "count(grossWeight) > 1", event, language="de")["clauses"][0]["predicates"]
    assert told["reason"].endswith(f' [grossWeight ("Bruttogewicht", <{iri}>)]')
    (told,) = explain(vocabulary, f"`<{iri}>` > 5", event)["clauses"][0]["predicates"]
    assert told["reason"].endswith(f' [<{iri}> ("gross weight")]')
    (told,) = explain(vocabulary, "not `not` > 5", event)["clauses"][0]["predicates"]
    assert told["reason"].endswith(' [not ("negation", <http://example.org/not>)]')
    (told,) = explain(vocabulary, "else > 5", event)["clauses"][0]["predicates"]
    assert "property" not in told

    named = {"label": "grossWeight", "property": {"label": "gross weight", "iris": [iri]}}
    matcher = Matcher(vocabulary)
    with pytest.raises(InvalidSubscription) as refused:
        matcher.add("s", 'ce.type = "piece" and groswWeight > 5')
    assert refused.value.problems[0].suggestions == (named,)
    assert str(refused.value.problems[0]).endswith(f'(near: grossWeight ("gross weight", <{iri}>))')
    with pytest.raises(InvalidEvent) as wrong:
        matcher.match({"@type": "piece", "groswWeight": 5})
    assert wrong.value.problems[0].suggestions == (named,)


def test_explain_values_are_said_in_the_unit_that_is_asked_for() -> None:
    """Not those of another dimension, and not where no unit is asked for."""
    vocabulary = Vocabulary.from_files()
    event = {"value": ["88 degF", "3 m", 5]}

    def converted(expression: str) -> list[Any]:
        (predicate,) = explain(vocabulary, expression, event)["clauses"][0]["predicates"]
        return [value.get("converted") for value in predicate["values"]]

    in_celsius = {"amount": pytest.approx(31.1111, abs=1e-3), "unit": "degC"}
    assert converted("value > 30 degC") == [in_celsius, None, None]
    assert converted("value between [30 degC, 33 degC]") == [in_celsius, None, None]
    assert converted("value < 4 ft") == [None, {"amount": pytest.approx(9.84252, abs=1e-3), "unit": "ft"}, None]
    assert converted("value = 5") == [None, None, None]


@pytest.mark.parametrize(
    ("text", "values", "said"),
    [
        ("every a > 5", [10, 1, 7], "1 does not satisfy a > 5"),
        ("every a > 5", [1, 10, 2], "1, 2 do not satisfy a > 5"),
        ("every a > 5", [10, 7], "10, 7 satisfy a > 5"),
        ("not every a > 5", [10, 1], "1 does not satisfy a > 5"),
        ("not every a > 5", [10], "10 satisfies a > 5"),
    ],
)
def test_explain_every_names_the_values_that_decide(text: str, values: list[int], said: str) -> None:
    summary = explain(Vocabulary(), text, {"a": values})["summary"]
    assert summary.endswith(f"{text}: {said}.")


@pytest.mark.parametrize(
    ("text", "data", "verdict", "said"),
    [
        ("not every i (p < 5)", {"i": [{"p": 9}, {}]}, True, [(True, "not every element satisfies it")]),
        ("not every i (p < 5)", {"i": 3}, True, [(True, "not every element satisfies it")]),
        ("not every i (p < 5)", {"i": [{"p": 1}]}, False, [(False, "every element satisfies it")]),
        ("not every i (p < 5)", {}, False, [(False, "i is absent")]),
        (
            "not every i (p < 5) and not every k (q = 1)",
            {"i": 3, "k": [{"q": 2}]},
            True,
            [(True, "not every element satisfies it")] * 2,
        ),
        (
            "not every i (p < 5) and i exists",
            {"i": [{"p": 9}]},
            False,
            [
                (True, "not every element satisfies it"),
                (False, "i is absent; the event has i.p"),
                (False, "i has no value"),
            ],
        ),
        ("not some i (p < 5)", {}, False, [(False, "i is absent")]),
        ("some i (p < 5)", {"i": 3}, False, [(False, "i is not an array of objects")]),
        ("some i (p < 5)", {"i": {"p": 3}}, False, [(False, "i is not an array of objects")]),
        ("every i (p < 5)", {"i": {"p": 3}}, False, [(False, "i is not an array of objects")]),
        ("every i (p < 5)", {"i": []}, False, [(False, "i is absent")]),
    ],
)
def test_explain_elements_once_and_truly(text: str, data: Any, verdict: bool, said: list[tuple[bool, str]]) -> None:
    """`not every` has two clauses, which are one predicate in an explanation if no other predicate tells them apart."""
    told = explain(Vocabulary(), text, data)
    matcher = Matcher(Vocabulary())
    matcher.add("s", text)
    assert told["matches"] is bool(matcher.match(data)) is verdict
    found = [each for clause in told["clauses"] for each in clause["predicates"]]
    assert [(each["verdict"], each["reason"].rpartition(": ")[2]) for each in found] == said


@pytest.mark.parametrize(
    ("text", "data", "said"),
    [
        ("sum(a) > 5", {"a": [1, "x"]}, "sum(a) has no value, because a has not only numbers, or quantities of one"),
        ("max(a) > 5", {"a": [1, "x"]}, "or quantities of one dimension, or date-times."),
        ("sum(a) > 5", {}, "No match because of sum(a): sum(a) > 5: a is absent."),
        ("max(a) = 5 kg", {"a": ["4 kg", "100 g"]}, "max(a) is 4 kg, which is not equal to 5 kg."),
        ("min(a) > 2013-02", {"a": ["2013-01-01T00:00:00Z"]}, "is 2013-01-01T00:00:00Z, which is not after 2013-02."),
        ("count(a) = 2", {"a": [1]}, "count(a) is 1, which is not equal to 2."),
        ("at > 2020-01-01", {"at": "2026-13-01"}, "'2026-13-01' is not a date-time."),
    ],
)
def test_explain_aggregates_and_dates_in_words(text: str, data: dict[str, Any], said: str) -> None:
    """Aggregates have the name that subscriptions use, and their values a unit or a date."""
    assert said in explain(Vocabulary(), text, data)["summary"]


@operator("broken", binds=(int,))
def broken(event: Any) -> Any:
    """No answer, ever."""
    raise RuntimeError("out of order")


@operator("counted", binds=(int,))
def counted(event: Any) -> Any:
    """One binding, 1."""
    return [(1,)]


@operator("digits", binds=(int,))
def digits(event: Any, start: int) -> Any:
    """Many bindings."""
    return [(number,) for number in range(start, start + 1_000)]


@operator("inArea")
def in_area(event: Any, *places: tuple[Any, ...]) -> bool:
    """Never called here."""
    raise NotImplementedError


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("inArea(@at)", "inArea(@at): at is absent; the event has at.type"),
        ("inArea(@at, @lat)", "inArea(@at, @lat): at is absent; the event has at.type; lat is absent"),
        ("inArea(@lat)", "inArea(@lat): lat is absent"),
    ],
)
def test_explain_names_a_member_of_an_object_that_an_operator_is_asked_about(text: str, said: str) -> None:
    """An object has no value itself, such as a position in GeoJSON."""
    told = explain(Vocabulary(), text, {"at": {"type": "Point", "coordinates": [16, 48]}}, operators=[in_area])
    assert told["summary"] == f"No match because of inArea: {said}."


@pytest.mark.parametrize(
    ("text", "matches", "said"),
    [
        ("digits(0, ?a) and digits(1, ?b) and ?a = 5 and ?b = 7", True, "?b = 7: 1 of 1 joined bindings satisfy it"),
        ("digits(0, ?a) and digits(1, ?b) and ?a = 5 and ?b = 5000", False, "0 of 0 joined bindings satisfy it"),
        ("digits(0, ?a) and digits(1, ?b) and ?a < ?b", None, "joining the bindings gives more than"),
    ],
)
def test_explain_joins_as_many_bindings_as_the_matcher(text: str, matches: bool | None, said: str) -> None:
    """Value constraints keep the number of combinations small; without them there are too many."""
    told = explain(Vocabulary(), text, {}, operators=[digits])
    assert told["matches"] is matches
    assert said in told["summary"]
    decided = Matcher(Vocabulary(), operators=[digits])
    decided.add("s", text)
    assert bool(decided.match({})) is bool(matches)


@pytest.mark.parametrize(
    ("text", "matches", "verdicts", "summary"),
    [
        ("price < 5 and broken(?n)", None, [True, None], "Undecided because of broken alone: broken(?n): undecided,"),
        ("price > 5 and broken(?n)", False, [False, None], "No match because of price: 1 is not more than 5."),
        ("broken(?n) and ?n > 5", None, [None, None], "Undecided because of broken: broken(?n): undecided,"),
        ("counted(?n) and ?n < 5 and broken(?m)", None, [True, None, None], "Undecided because of broken: "),
        ("counted(?n) and ?n > 5 and broken(?m)", False, [True, False, None], "No match: ?n > 5: 0 of 1 joined"),
        ("broken(?m) and counted(?n) and ?n > ?m", None, [None, True, None], "Undecided because of broken: "),
        ("not (broken(?n) and ?n > 5)", None, [None], "Undecided: "),
        ("price > 5 or broken(?n)", None, [False, None], "Undecided because of broken: "),
        ("price < 5 or broken(?n)", True, [True, None], "Match: 1 is less than 5."),
    ],
)
def test_explain_says_that_an_operator_has_not_decided(
    text: str, matches: bool | None, verdicts: list[bool | None], summary: str
) -> None:
    """Neither yes nor no, unless another predicate or clause decides."""
    told = explain(Vocabulary(), text, {"price": 1}, operators=[broken, counted])
    assert told["matches"] is matches
    predicates = [each for clause in told["clauses"] for each in clause["predicates"]]
    assert sorted(map(str, (each["verdict"] for each in predicates))) == sorted(map(str, verdicts))
    assert told["summary"].startswith(summary)
    assert "Failure(" not in told["summary"]


@pytest.mark.parametrize(
    ("expression", "summary"),
    [
        ("heat > 60", "No match because of heat: 86 degF is not more than 60 degC."),
        ("heat between [60, 70)", "No match because of heat: 86 degF does not lie in [60 degC, 70 degC)."),
        ("heat in (60, 30.5 degC)", "No match because of heat: 86 degF is not one of 60 degC, 30.5 degC."),
        ("heat = 30", "Match: 86 degF is equal to 30 degC."),
        ("sum(mass) > 2", "No match because of sum(mass): sum(mass) is 1.5 kg, which is not more than 2 kg."),
        ("max(mass) = 1", "Match: max(mass) is 1 kg, which is equal to 1 kg."),
        ("some boxes (mass > 2)", "No match because of boxes: some boxes (mass > 2): no element satisfies it."),
        ("fee > 2", "5 USD is an amount of USD, but 2 is a plain number: write a unit after 2."),
        (
            "sum(parts) > 5 kg",
            "3.0 is a plain number, but 5 kg is a mass: publish a unit, or declare unit or unit_from for parts.",
        ),
        ("count(mass) > 1 kg", "2 is a plain number, but 1 kg is a mass: a count has no unit."),
        (
            "born < 1990",
            "'1980-05' is a date, but 1990 is a plain number: write a date, or declare kind instant for born.",
        ),
        (
            "at < 1990",
            "2026-01-31T12:00:00Z is a date, but 1990 is a plain number: write a date, or declare kind instant for at.",
        ),
        ("due < 1990", "No match because of due: '1980-05' is not less than 1990."),
    ],
)
def test_a_plain_number_is_said_with_the_unit_in_which_it_is_compared(expression: str, summary: str) -> None:
    """That of the attribute, if it is declared (rule 15). Otherwise the sentence says what to write or to declare."""
    attributes = {
        "heat": {"kind": "number", "unit": "degC"},
        "mass": {"kind": "number", "unit": "kg"},
        "due": {"kind": "instant"},
    }
    event = {
        "heat": "86 degF",
        "mass": ["1 kg", "500 g"],
        "boxes": [{"mass": 1}],
        "fee": "5 USD",
        "parts": [1, 2],
        "born": "1980-05",
        "at": "2026-01-31T12:00:00Z",
        "due": "1980-05",
    }
    said = explain(Vocabulary.from_ontologies([], attributes=attributes), expression, event)["summary"]
    assert said.endswith(summary)


@pytest.mark.parametrize(
    ("expression", "summary"),
    [
        ("heat > 86 degF", "Match: 30.5 (86.9 degF) is more than 86 degF."),
        ("heat > 90 degF", "No match because of heat: 30.5 (86.9 degF) is not more than 90 degF."),
        ("heat > 30 degC", "Match: 30.5 degC is more than 30 degC."),
        ("heat > 30", "Match: 30.5 is more than 30."),
        ("heat between [80 degF, 90 degF]", "Match: 30.5 (86.9 degF) lies in [80 degF, 90 degF]."),
        ("heat in (86.9 degF, 5 kg)", "Match: 30.5 (86.9 degF) is one of 86.9 degF, 5 kg."),
        ("not heat in (5 kg, 5 degF)", "Match: 30.5 is not one of 5 kg, 5 degF."),
        ("mass = 4000 g", "Match: 4 (4000 g) is equal to 4000 g."),
        ("net > 1000 g", "Match: 2.0 (2000 g) is more than 1000 g."),
        ("max(mass) > 1 mg", "Match: max(mass) is 4000000 mg, which is more than 1 mg."),
        ("load > 5 lb", "Match: 20 KGM is more than 5 lb."),
        ("tare > 5 lb", "No match because of tare: 1 KGM is not more than 5 lb."),
        ("tare > 5 s", "No match because of tare: 1 KGM is a mass, but 5 s is a time."),
        ("depth > 300 cm", "Match: {'reading': 4, 'scale': 'm'} (400 cm) is more than 300 cm."),
        ("paid > 5 lb", "No match because of paid: EUR 5 is an amount of EUR, but 5 lb is a mass."),
    ],
)
def test_a_quantity_without_a_unit_in_its_words_is_said_in_that_of_the_constant(expression: str, summary: str) -> None:
    """ "30.5 is more than 86 degF" would read as false. Objects are said by their number and unit."""
    vocabulary = Vocabulary.from_ontologies(
        [],
        attributes={
            "heat": {"kind": "number", "unit_from": "unit"},
            "mass": {"kind": "number", "unit": "kg"},
            "net": {"derived": "mass - 2 kg"},
            "load": {"quantity": True},
            "tare": {"quantity": True},
            "depth": {"quantity": {"number": "reading", "unit": "scale"}},
        },
    )
    event = {
        "heat": 30.5,
        "unit": "degC",
        "mass": "4",
        "load": {"numericalValue": "20", "unit": {"@id": "https://onerecord.iata.org/ns/code-lists/UnitCode#KGM"}},
        "tare": {"value": 1, "name": "box", "unitCode": "KGM"},
        "depth": {"reading": 4, "scale": "m"},
        "paid": "EUR 5",
    }
    assert explain(vocabulary, expression, event)["summary"] == summary
