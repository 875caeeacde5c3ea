"""The text form: what each construct means, with its tree beside it; where nodes stand; each mistake with its place."""

from typing import Any

import pytest

from kindcast.semantic.errors import InvalidSubscription, Problem
from kindcast.semantic.language import parse, parse_text, parse_tree, to_text, to_tree
from kindcast.semantic.model import (
    All,
    AnyOf,
    Arithmetic,
    AttributeRef,
    Between,
    Comparison,
    Constant,
    Expression,
    Instant,
    KindTest,
    Membership,
    Not,
    OperatorCall,
    Position,
    Presence,
    Quantity,
    RelationTest,
    SomeOf,
    Term,
    TextTest,
    ValueConstraint,
    Variable,
)

A, B, C = (Presence(name, True) for name in "abc")
N = Variable("n")
IRI = "http://example.org/shop#Laptop"
CALL = OperatorCall("near", (Constant("Bronx"), Constant(5), AttributeRef("area"), AttributeRef("in"), N))
TIME = "2026-01-31T12:00:00Z"

CONSTRUCTS: list[tuple[str, Expression, Any]] = [
    ("", All(()), {"all": []}),
    ("()", All(()), {"all": []}),
    ("a exists", A, {"exists": "a"}),
    ("a missing", Presence("a", False), {"missing": "a"}),
    ("a exists and b exists", All((A, B)), {"all": [{"exists": "a"}, {"exists": "b"}]}),
    ("a exists or b exists", AnyOf((A, B)), {"any": [{"exists": "a"}, {"exists": "b"}]}),
    ("not a exists", Not(A), {"not": {"exists": "a"}}),
    ("some a (b exists)", SomeOf("a", B), {"some": ["a", {"exists": "b"}]}),
    ("some a ()", SomeOf("a", All(())), {"some": ["a", {"all": []}]}),
    ("a isa Laptop", KindTest("a", "isa", (Term("Laptop"),)), {"isa": ["a", "Laptop"]}),
    ("a below ex:Laptop", KindTest("a", "below", (Term("ex:Laptop"),)), {"below": ["a", "ex:Laptop"]}),
    (f"a is <{IRI}>", KindTest("a", "is", (Term(IRI, True),)), {"is": ["a", {"iri": IRI}]}),
    (
        'a isa ("Desktop PC", B)',
        KindTest("a", "isa", (Term("Desktop PC"), Term("B"))),
        {"isa": ["a", ["Desktop PC", "B"]]},
    ),
    ("a isa 3D-Printer", KindTest("a", "isa", (Term("3D-Printer"),)), {"isa": ["a", "3D-Printer"]}),
    ("a part_of Heart", RelationTest("a", "part_of", (Term("Heart"),)), {"relation": ["a", "part_of", "Heart"]}),
    ("a obo:part_of B", RelationTest("a", "obo:part_of", (Term("B"),)), {"relation": ["a", "obo:part_of", "B"]}),
    ("a `is in` (B, C)", RelationTest("a", "is in", (Term("B"), Term("C"))), {"relation": ["a", "is in", ["B", "C"]]}),
    (f"a <{IRI}> B", RelationTest("a", IRI, (Term("B"),)), {"relation": ["a", IRI, "B"]}),
    ("a = 4", Comparison("a", "=", Constant(4)), {"=": ["a", 4]}),
    ("a != -4.5", Comparison("a", "!=", Constant(-4.5)), {"!=": ["a", -4.5]}),
    ("a < 1e3", Comparison("a", "<", Constant(1000.0)), {"<": ["a", 1000.0]}),
    ("a <= 20 kg", Comparison("a", "<=", Constant(Quantity(20, "kg"))), {"<=": ["a", {"value": 20, "unit": "kg"}]}),
    ("a > 2 m/s", Comparison("a", ">", Constant(Quantity(2, "m/s"))), {">": ["a", {"value": 2, "unit": "m/s"}]}),
    ('a > 2"kg.m2"', Comparison("a", ">", Constant(Quantity(2, "kg.m2"))), {">": ["a", {"value": 2, "unit": "kg.m2"}]}),
    (
        "a > 2 <urn:KG>",
        Comparison("a", ">", Constant(Quantity(2, "urn:KG"))),
        {">": ["a", {"value": 2, "unit": "urn:KG"}]},
    ),
    ("a >= 30°C", Comparison("a", ">=", Constant(Quantity(30, "°C"))), {">=": ["a", {"value": 30, "unit": "°C"}]}),
    ('a = "red"', Comparison("a", "=", Constant("red")), {"=": ["a", "red"]}),
    ("a = 'red'", Comparison("a", "=", Constant("red")), {"=": ["a", "red"]}),
    ("a = true", Comparison("a", "=", Constant(True)), {"=": ["a", True]}),
    (f"a > {TIME}", Comparison("a", ">", Constant(Instant(TIME))), {">": ["a", {"instant": TIME}]}),
    (f"a = <{IRI}>", Comparison("a", "=", Constant(Term(IRI, True))), {"=": ["a", {"iri": IRI}]}),
    ("a = ex:B", Comparison("a", "=", Constant(Term("ex:B"))), {"=": ["a", {"term": "ex:B"}]}),
    ("a < b", Comparison("a", "<", AttributeRef("b")), {"<": ["a", {"attribute": "b"}]}),
    ("a < `is in`", Comparison("a", "<", AttributeRef("is in")), {"<": ["a", {"attribute": "is in"}]}),
    ('a = "?n"', Comparison("a", "=", Constant("?n")), {"=": ["a", {"value": "?n"}]}),
    ("`?n` = 1", Comparison("?n", "=", Constant(1)), {"=": [{"attribute": "?n"}, 1]}),
    ('a in ("red", 3)', Membership("a", (Constant("red"), Constant(3))), {"in": ["a", ["red", 3]]}),
    ("a between [0, 4]", Between("a", Constant(0), Constant(4), "[]"), {"between": ["a", [0, 4], "[]"]}),
    ("a between [0, 4)", Between("a", Constant(0), Constant(4), "[)"), {"between": ["a", [0, 4], "[)"]}),
    ("a between (0, 4]", Between("a", Constant(0), Constant(4), "(]"), {"between": ["a", [0, 4], "(]"]}),
    ("a between (0, 4)", Between("a", Constant(0), Constant(4), "()"), {"between": ["a", [0, 4], "()"]}),
    ('a startswith "HP"', TextTest("a", "startswith", "HP"), {"startswith": ["a", "HP"]}),
    ('a endswith "HP"', TextTest("a", "endswith", "HP"), {"endswith": ["a", "HP"]}),
    ('a contains "HP" nocase', TextTest("a", "contains", "HP", True), {"contains": ["a", "HP", "nocase"]}),
    (r"a matches /^\d+\/x\\/", TextTest("a", "matches", r"^\d+/x\\"), {"matches": ["a", r"^\d+/x\\"]}),
    (r'a matches "\\d" nocase', TextTest("a", "matches", r"\d", True), {"matches": ["a", r"\d", "nocase"]}),
    (
        'near("Bronx", 5, @area, @`in`, ?n)',
        CALL,
        {"op": ["near", "Bronx", 5, *({"attribute": x} for x in ("area", "in")), "?n"]},
    ),
    ("near()", OperatorCall("near", ()), {"op": ["near"]}),
    ('near("?n")', OperatorCall("near", (Constant("?n"),)), {"op": ["near", {"value": "?n"}]}),
    ("near(@@type)", OperatorCall("near", (AttributeRef("@type"),)), {"op": ["near", {"attribute": "@type"}]}),
    ("?n > 250", ValueConstraint(N, ">", Constant(250)), {">": ["?n", 250]}),
    ("5 kg <= ?n", ValueConstraint(Constant(Quantity(5, "kg")), "<=", N), {"<=": [{"value": 5, "unit": "kg"}, "?n"]}),
    ("?n = ?m", ValueConstraint(N, "=", Variable("m")), {"=": ["?n", "?m"]}),
    ("?n-1 > 2", ValueConstraint(Arithmetic("-", N, Constant(1)), ">", Constant(2)), {">": [{"-": ["?n", 1]}, 2]}),
    ("ce.type exists", Presence("ce.type", True), {"exists": "ce.type"}),
    ("@type exists", Presence("@type", True), {"exists": "@type"}),
    ("ex:price exists", Presence("ex:price", True), {"exists": "ex:price"}),
    ("in-stock exists", Presence("in-stock", True), {"exists": "in-stock"}),
    ("größe exists", Presence("größe", True), {"exists": "größe"}),
    ("`not` exists", Presence("not", True), {"exists": "not"}),
    (r"`a \`b\`\n\u00e9` exists", Presence("a `b`\né", True), {"exists": "a `b`\né"}),
]


@pytest.mark.parametrize(("text", "expression", "tree"), CONSTRUCTS, ids=[text or "empty" for text, _, _ in CONSTRUCTS])
def test_parse_each_construct_means_the_same_as_text_and_tree(text: str, expression: Expression, tree: Any) -> None:
    """One expression, two ways to write it, and the printers write it back."""
    assert parse(text) == expression
    assert parse(tree) == expression
    assert to_tree(expression) == tree
    assert parse(to_text(expression)) == expression


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("a exists or b exists and c exists", "a exists or (b exists and c exists)"),
        ("a exists and b exists or c exists", "(a exists and b exists) or c exists"),
        ("(a exists or b exists) and c exists", "(a exists or b exists) and c exists"),
        ("not a exists and b exists", "not a exists and b exists"),
        ("not (a exists and b exists)", "not (a exists and b exists)"),
        ("not not a exists", "not not a exists"),
        ("((a exists))", "a exists"),
        ("?n + 2 * 3 > 1", "?n + (2 * 3) > 1"),
        ("?n - 2 - 3 > 1", "(?n - 2) - 3 > 1"),
        ("(?n + 2) * 3 > -1", "(?n + 2) * 3 > -1"),
        ("((?n)) > (1)", "?n > 1"),
        ("((?n + 1) > 2)", "?n + 1 > 2"),
    ],
)
def test_parse_text_mixed_operators_bind_as_usual(text: str, canonical: str) -> None:
    """`not` before `and` before `or`; `*` before `+`; from the left."""
    assert to_text(parse_text(text)) == canonical


def test_parse_text_groups_inside_groups_stay() -> None:
    """Brackets are kept as groups of their own."""
    assert parse_text("a exists and (b exists and c exists)") == All((A, All((B, C))))


@pytest.mark.parametrize(
    ("upper", "lower"),
    [
        ("NOT A EXISTS AND B MISSING OR C ISA D", "not A exists and B missing or C isa D"),
        ("A BELOW B OR A IS B OR A IN (TRUE, FALSE)", "A below B or A is B or A in (true, false)"),
        ("SOME A (B BETWEEN [1, 2])", "some A (B between [1, 2])"),
        ('A STARTSWITH "x" NOCASE OR A ENDSWITH "x"', 'A startswith "x" nocase or A endswith "x"'),
        ('A CONTAINS "x" OR A MATCHES /x/', 'A contains "x" or A matches /x/'),
        ("a\n\tIS\u00a0b", "a is b"),
    ],
)
def test_parse_text_upper_case_keywords_mean_the_same(upper: str, lower: str) -> None:
    """Keywords are lower or UPPER case; white space of any kind separates."""
    assert parse_text(upper) == parse_text(lower)


@pytest.mark.parametrize("word", ["And", "Is", "True", "andy", "not-now", "in.stock"])
def test_parse_text_word_like_a_keyword_is_a_name(word: str) -> None:
    """Only the very word is a keyword, and mixed case is none."""
    assert parse_text(f"{word} exists") == Presence(word, True)


def test_to_text_resolved_term_is_its_iri() -> None:
    """What is printed from a resolved expression means the same for ever."""
    expression = KindTest("a", "isa", (Term("Laptop", iri=IRI), Term("x", iri="urn:a b>\\")))
    assert to_text(expression) == f"a isa (<{IRI}>, <urn:a\\u0020b\\u003e\\u005c>)"
    assert to_tree(expression) == {"isa": ["a", [{"iri": IRI}, {"iri": "urn:a b>\\"}]]}
    assert parse_text(to_text(expression)) == parse_tree(to_tree(expression))


# ── places ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_parse_text_nodes_know_where_they_stand() -> None:
    """Line and column, from 1, of the attribute, the keyword or the operand."""
    expression = parse_text("a isa B\n  and not c <\td\n  and near(@e, ?n) and ?n > 5")
    assert isinstance(expression, All)
    kind, negated, call, constraint = expression.items
    assert isinstance(kind, KindTest)
    assert isinstance(negated, Not)
    assert isinstance(negated.item, Comparison)
    assert isinstance(call, OperatorCall)
    assert isinstance(constraint, ValueConstraint)
    nodes = [
        expression,
        kind,
        kind.terms[0],
        negated,
        negated.item,
        negated.item.operand,
        call,
        *call.arguments,
        constraint,
    ]
    places = [(1, 1), (1, 1), (1, 7), (2, 7), (2, 11), (2, 15), (3, 7), (3, 12), (3, 16), (3, 27)]
    assert [node.at for node in nodes] == [Position(line, column) for line, column in places]


# ── mistakes ────────────────────────────────────────────────────────────────────────────────────────────────────────


def problem_of(text: str) -> Problem:
    """The one problem of a text that is refused."""
    with pytest.raises(InvalidSubscription) as caught:
        parse_text(text)
    (problem,) = caught.value.problems
    return problem


MISTAKES = [
    ("price == 400", "syntax", 1, 7, "== is not understood; write ="),
    ("a = 1 && b = 2", "syntax", 1, 7, "&& is not understood; write and"),
    ("a = 1 || b = 2", "syntax", 1, 7, "|| is not understood; write or"),
    ("a ≤ 4", "syntax", 1, 3, "≤ is not understood; write <="),
    ("a ≠ 4", "syntax", 1, 3, "≠ is not understood; write !="),
    ("a <> 4", "syntax", 1, 3, "<> is not understood; write !="),
    ("a => 4", "syntax", 1, 3, "=> is not understood; write >="),
    ("!a = 4", "syntax", 1, 1, "! is not understood; write not"),
    ("a ~ 'x'", "syntax", 1, 3, "~ is not understood; write matches"),
    ("a = “x”", "syntax", 1, 5, '“ is not understood; write "'),
    ("a = ‘x’", "syntax", 1, 5, "‘ is not understood; write '"),
    ("a = −5", "syntax", 1, 5, "− is not understood; write -"),
    ("a <= 3,5 kg", "syntax", 1, 7, "numbers have no commas; write 3.5"),
    ("a <= 1,000", "syntax", 1, 7, "numbers have no commas; write 1000"),
    ("a <= 1.000,50 EUR", "syntax", 1, 11, "numbers have no commas; write 1000.50"),
    ("a <= USD 400", "syntax", 1, 10, "write the code of a currency after the number: 400 USD"),
    ("a in (EUR 4.50, 5)", "syntax", 1, 11, "write the code of a currency after the number: 4.50 EUR"),
    ("a <= ABC 400", "syntax", 1, 10, "'400' is not expected here"),
    ("a > 2026-1-5", "syntax", 1, 9, "months and days have two digits; write 2026-01-05"),
    ("a > 2026-1", "syntax", 1, 9, "months and days have two digits; write 2026-01"),
    ("a between [2026-12-5, 2027)", "syntax", 1, 16, "months and days have two digits; write 2026-12-05"),
    ("a > 2026/1/05 and b = 1", "syntax", 1, 9, "a date is written as 2026-01-05"),
    ("a > 5.1.2026", "syntax", 1, 5, "a date is written as 2026-01-05"),
    ("a > 1/5/2026", "syntax", 1, 6, "'/' is not expected here"),
    ("a = 10.0.0.1", "syntax", 1, 5, 'versions and addresses need quotes; write "10.0.0.1"'),
    ("a in (2.4.9-rc.1, '3')", "syntax", 1, 7, 'versions and addresses need quotes; write "2.4.9-rc.1"'),
    ("a isa (http://x.org/y)", "syntax", 1, 12, "an IRI stands in angle brackets; write <http://x.org/y>"),
    ("a = https://x.org/y?z=1 and b = 2", "syntax", 1, 10, "angle brackets; write <https://x.org/y?z=1>"),
    ("a > 2026-01-05T10:30", "syntax", 1, 9, "a date-time is written as 2026-01-05T10:30:00"),
    ("a > 2026-01-05 10:30:00Z and b = 1", "syntax", 1, 16, "a date-time is written as 2026-01-05T10:30:00Z"),
    ("a > 2026-01-05T10:30:00.5+0200", "syntax", 1, 26, "a date-time is written as 2026-01-05T10:30:00.5+02:00"),
    ("a between [2026-01-05T10, 2027-01)", "syntax", 1, 16, "a date-time is written as 2026-01-05T10:00:00"),
    ("a > 2026-01-05T10:30:00Z 5", "syntax", 1, 26, "'5' is not expected here"),
    ("a <= €4.50", "syntax", 1, 6, "write the code of a currency after the number: 4.50 EUR"),
    ("a in [1, 'x'] and b = 1", "syntax", 1, 6, "the values of `in` need parentheses; write in (1, 'x')"),
    ("a in {1}", "syntax", 1, 6, "the values of `in` need parentheses; write in (1)"),
    ("a > 60 /min", "syntax", 1, 8, 'a unit that begins with / needs quotes; write 60 "/min"'),
    ("a = 1 /2", "syntax", 1, 7, "'/' is not expected here"),
    ("a between 1,5 and 1,000", "syntax", 1, 11, "need brackets; write between [1.5, 1000]"),
    ("a between 1 and 5", "syntax", 1, 11, "need brackets; write between [1, 5]"),
    ("a isa B|C", "syntax", 1, 8, "several concepts need parentheses; write isa (B, C)"),
    ("a isa B, C", "syntax", 1, 8, "several concepts need parentheses; write isa (B, C)"),
    ("a = 1 and a is B or C", "syntax", 1, 21, "several concepts need parentheses; write is (B, C)"),
    ("a isa B c", "syntax", 1, 9, 'names with spaces need quotes; write isa "B c"'),
    ("(b below C d  e or a = 1)", "syntax", 1, 12, 'names with spaces need quotes; write below "C d e"'),
    ("a isa B c = 1", "syntax", 1, 9, "'c' is not expected here; expected `and`"),
    ("a isa B exists", "syntax", 1, 9, "'exists' is not expected here; expected `and`"),
    ("COUNT(a) > 1", "syntax", 1, 7, "COUNT is not understood; write count"),
    ('a = 1 and\nb = "x', "syntax", 2, 5, 'the quote " is not closed on its line'),
    ("a = 'x\ny'", "syntax", 1, 5, "the quote ' is not closed on its line"),
    ("`a = 1", "syntax", 1, 1, "the quote ` is not closed on its line"),
    ("(a = 1\n and (b = 2)", "syntax", 2, 12, "the bracket opened at line 1, column 1 is not closed"),
    ("a between [1, 2", "syntax", 1, 15, "the bracket opened at line 1, column 11 is not closed"),
    ("a = '(' and (b = 2", "syntax", 1, 18, "the bracket opened at line 1, column 13 is not closed"),
    ("a = 1)", "syntax", 1, 6, "')' is not expected here; expected the end"),
    ("a matches /x", "syntax", 1, 11, "the pattern has no closing /"),
    ("a matches x", "syntax", 1, 11, "expected a /pattern/ or a string in quotes"),
    ("in = 1", "syntax", 1, 1, "to use in as a name, write it in backquotes: `in`"),
    ("a < NOT", "syntax", 1, 5, "to use NOT as a name, write it in backquotes: `NOT`"),
    ("a is missing", "syntax", 1, 6, 'to use missing as a concept, write it in quotes: "missing"'),
    ("a is not b", "syntax", 1, 6, "write not before the predicate"),
    ("a not in (1)", "syntax", 1, 3, "write not before the predicate"),
    ("a =", "syntax", 1, 3, "the text ends too early; expected a value"),
    ("a = 1 and  \n", "syntax", 1, 9, "the text ends too early; expected a predicate"),
    ("a = and b = 1", "syntax", 1, 5, "expected a value"),
    ("a", "syntax", 1, 1, "the text ends too early; expected a comparison"),
    ("a isa", "syntax", 1, 5, "expected a concept"),
    ("a in ()", "syntax", 1, 7, "expected a value"),
    ("a in (b)", "syntax", 1, 7, "b without quotes is an attribute; in takes constants: write a string in quotes"),
    ("a between [0, b]", "syntax", 1, 15, "b without quotes is an attribute; between takes constants"),
    ("near(red)", "syntax", 1, 6, '"red" in quotes is a string, @red the attribute'),
    ("1 < 2", "syntax", 1, 3, "a comparison starts with an attribute (price <= 400) or uses a variable (?n)"),
    ("?n = 'x'", "syntax", 1, 6, "expected a number, a variable (?n), or `(`"),
    ("a = 1.2.3", "syntax", 1, 5, 'versions and addresses need quotes; write "1.2.3"'),
    ("a = 1e999", "bad-number", 1, 5, "a number must be finite"),
    ("a = " + "9" * 500, "bad-number", 1, 5, "a number must be finite"),
    ("a = 9007199254740993", "bad-number", 1, 5, "beyond 2^53"),
    ("a = 2026-02-30T00:00:00Z", "bad-date-time", 1, 5, "2026-02-30T00:00:00Z is neither a date-time of RFC 3339"),
    ("a = 9999-12-31T00:00:00Z", "bad-date-time", 1, 5, "between July 1684 and June 2255"),
    (r'a = "\q"', "bad-string", 1, 5, "an unknown escape"),
    (r"`\q` = 1", "bad-string", 1, 1, "an unknown escape"),
    (r"near(@`\q`)", "bad-string", 1, 6, "an unknown escape"),
    ("a isa (" + ", ".join(["B"] * 1001) + ")", "too-many", 1, 1, "1,001 operands; at most 1,000 are allowed"),
    ("a in (" + ", ".join(["1"] * 1001) + ")", "too-many", 1, 1, "1,001 operands; at most 1,000 are allowed"),
    ("near(" + ", ".join(["1"] * 1001) + ")", "too-many", 1, 1, "1,001 operands; at most 1,000 are allowed"),
    (" " * 65_537, "too-long", 1, 1, "the text has 65,537 characters; at most 65,536 are allowed"),
    (" or ".join(["a=1"] * 5_001), "too-long", 1, 1, "more than 10,000 predicates, operands and terms"),
    ("not " * 16_000 + "a=1", "too-deep", 1, 257, "the expression is nested deeper than 64 levels"),
    ("some a (" * 5_000 + ")" * 5_000, "too-deep", 1, 513, "the expression is nested deeper than 64 levels"),
    ("?n" + " + 1" * 15_000 + " > 1", "too-deep", 1, 59_754, "the expression is nested deeper than 64 levels"),
    ("(" * 30_000, "syntax", 1, 30_000, "the bracket opened at line 1, column 30000 is not closed"),
]


@pytest.mark.parametrize(
    ("text", "code", "line", "column", "detail"), MISTAKES, ids=[f"{text[:30]!r}" for text, *_ in MISTAKES]
)
def test_parse_text_mistake_is_told_with_its_place(text: str, code: str, line: int, column: int, detail: str) -> None:
    """The code, the exact place, and what to do."""
    problem = problem_of(text)
    assert (problem.code, problem.at) == (code, Position(line, column))
    assert detail in problem.detail


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("price == 400", "="),
        ("a ≥ 4", ">="),
        ("a startswith 'x' nocasee", "nocase"),
        ("a betwen [1, 2]", "between"),
        ("price exist", "exists"),
        ("price mising", "missing"),
        ("price Exists", "exists"),
        ("price exist and a = 1", "exists"),
        ("(price mising or a = 1)", "missing"),
    ],
)
def test_parse_text_misspelt_keyword_has_the_right_one_near(text: str, meant: str) -> None:
    """A program can offer the correction."""
    assert problem_of(text).suggestions == ({"label": meant},)


def test_parse_text_30_000_brackets_are_read_without_recursion() -> None:
    """Brackets cost no depth."""
    assert parse_text("(" * 30_000 + "a exists" + ")" * 30_000) == A


@pytest.mark.parametrize(
    "text",
    [
        "not " * 63 + "a exists",
        "some a (" * 63 + "a isa (b, <urn:c>)" + ")" * 63,
        "?n" + " + 1 kg" * 62 + " > 1",
        "near(" + ", ".join(["1"] * 1000) + ")",
        "a isa (" + ", ".join(["B"] * 1000) + ")",
        " or ".join(["a<b"] * 4_999),
        " and ".join(["a contains '' nocase"] * 2_600),
    ],
    ids=lambda text: text[:20],
)
def test_parse_text_at_the_bounds_is_read_as_text_and_as_tree(text: str) -> None:
    """A stored subscription is a tree: whatever the text may hold, the tree may."""
    expression = parse_text(text)
    assert parse_tree(to_tree(expression)) == expression


def test_parse_tree_of_many_long_iris_is_read_again() -> None:
    """A resolved tree is longer than the text that it came from."""
    terms = [{"iri": "http://example.org/" + "x" * 200 + str(number)} for number in range(1000)]
    tree = {"all": [{"isa": ["a", terms]}, {"isa": ["b", terms]}]}
    assert to_tree(parse_tree(tree)) == tree


@pytest.mark.parametrize(
    "unit", ["mm[Hg]", "[degF]", "10*9/L", "10*-3.kg", "kg.m2", "{beats}/min", "ug/(kg.h)", "m/s^2", "%{WBC}", "ng/mL"]
)
def test_units_of_ucum_need_no_quotes(unit: str) -> None:
    """Brackets, slashes, exponents and annotations, wherever a value may stand; arithmetic stays arithmetic."""
    quantity = Constant(Quantity(5, unit))
    assert parse_text(f"a > 5 {unit}") == Comparison("a", ">", quantity)
    assert parse_text(f"(a between [5 {unit}, 5 {unit}] or a in (5 {unit}))") == AnyOf(
        (Between("a", quantity, quantity), Membership("a", (quantity,)))
    )
    assert to_text(parse_text("f(?n) and ?n > 5 kg-1 kg")) == "f(?n) and ?n > 5 kg - 1 kg"
