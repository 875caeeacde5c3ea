"""docs/language.md holds: every example is read, texts mean what the trees beside them mean, refusals are as shown."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kindcast import InvalidSubscription, Matcher, Vocabulary
from kindcast.semantic.language import literals, parse, parse_text, parse_tree, to_text
from kindcast.semantic.language.literals import KEYWORDS
from kindcast.semantic.model import Position

PAGE = Path(__file__).resolve().parents[3] / "docs" / "language.md"
BLOCK = re.compile(r"^```(?P<kind>[\w ]+)\n(?P<body>.*?)\n```$", re.M | re.S)
ROW = re.compile(r"^\| `(?P<text>[^`]+)` \| `(?P<tree>\{.*?\})` \|", re.M)
CODE = re.compile(r"^\| `(?P<code>[a-z-]+)` \| (?P<what>[^|]+) \|(?: `(?P<text>[^`]+)`)? \|$", re.M)
KINDS = {"subscription", "json", "subscription refused", "json refused", "json problem"}
BOUNDS = [
    literals.LONGEST_TEXT,
    literals.NESTING,
    literals.MOST_NODES,
    literals.LONGEST_LIST,
    literals.TREE_VALUES,
    literals.TREE_CHARACTERS,
    literals.MOST_PROBLEMS,
]


@cache
def page() -> str:
    """The page as it is written."""
    return PAGE.read_text(encoding="utf-8")


@cache
def blocks() -> list[tuple[str, str]]:
    """(kind, body) of the fenced blocks, in the order of the page."""
    return [(block["kind"], block["body"]) for block in BLOCK.finditer(page())]


def following(kind: str, next_kind: str) -> list[tuple[str, Any]]:
    """Blocks of `kind` with the JSON of the block of `next_kind` that comes next to each."""
    pairs = zip(blocks(), blocks()[1:], strict=False)
    found = [
        (first, json.loads(second)) for (its, first), (other, second) in pairs if (its, other) == (kind, next_kind)
    ]
    assert found
    return found


def problems_of(source: Any) -> list[dict[str, Any]]:
    """The problems of a subscription that is refused, as the page shows them."""
    with pytest.raises(InvalidSubscription) as caught:
        Matcher(Vocabulary.from_ontologies([])).compile(source)
    return [
        {"code": each.code, "detail": each.detail, "suggestions": list(each.suggestions), **place_of(each.at)}
        for each in caught.value.problems
    ]


def place_of(at: Position | None) -> dict[str, Any]:
    """Line and column, or the pointer."""
    assert at is not None
    return {"pointer": at.pointer} if at.line is None else {"line": at.line, "column": at.column}


def test_page_blocks_are_all_of_known_kinds() -> None:
    """A block of another kind would be read by nobody."""
    assert {kind for kind, _ in blocks()} == KINDS
    assert page().count("\n```") == 2 * len(blocks())


@pytest.mark.parametrize("text", [body for kind, body in blocks() if kind == "subscription"])
def test_page_text_is_read_and_printed(text: str) -> None:
    """What stands on the page is what the parser reads."""
    expression = parse_text(text)
    assert parse_text(to_text(expression)) == expression


@pytest.mark.parametrize(("text", "tree"), following("subscription", "json"))
def test_page_text_and_the_tree_that_follows_mean_the_same(text: str, tree: Any) -> None:
    """Two ways to write one expression."""
    assert parse_text(text) == parse_tree(tree)


@pytest.mark.parametrize(("text", "tree"), [(row["text"], row["tree"]) for row in ROW.finditer(page())])
def test_page_row_has_text_and_tree_of_one_meaning(text: str, tree: str) -> None:
    """Every row of the tables of constructs."""
    assert parse_text(text) == parse_tree(json.loads(tree))


def test_page_tables_have_every_key_of_a_tree() -> None:
    """A construct that is not on the page does not exist for a subscriber."""
    (problem,) = problems_of({"nothing": 1})
    known = problem["detail"].split("known are ")[1].split()
    rows = "".join(row["tree"] for row in ROW.finditer(page()))
    assert [key for key in known if f'{{"{key}": ' not in rows and f"`{key}`" not in page()] == []


@pytest.mark.parametrize(("text", "shown"), following("subscription refused", "json problem"))
def test_page_refused_text_has_the_problem_shown(text: str, shown: dict[str, Any]) -> None:
    """Code, words, place and suggestion."""
    assert problems_of(text) == [shown]


@pytest.mark.parametrize(("tree", "shown"), following("json refused", "json problem"))
def test_page_refused_tree_has_the_problems_shown(tree: str, shown: list[dict[str, Any]]) -> None:
    """All of them, in order; the page may leave out a detail."""
    found = problems_of(json.loads(tree))
    assert [{key: each[key] for key in wanted} for each, wanted in zip(found, shown, strict=True)] == shown


@pytest.mark.parametrize(("code", "text"), [(row["code"], row["text"]) for row in CODE.finditer(page()) if row["text"]])
def test_page_example_of_a_code_is_refused_with_it(code: str, text: str) -> None:
    """Every row of the tables of mistakes."""
    assert [each["code"] for each in problems_of(text)] == [code]


@pytest.mark.parametrize("text", ["target part_of Heart", 'locIn("Bronx")', "?n > 250"])
def test_page_what_is_not_compiled_yet_is_read_all_the_same(text: str) -> None:
    """The page promises both: reading, and refusing on compilation."""
    assert to_text(parse(text)) == text
    assert problems_of(text)[0]["code"] in ("unknown-relation", "unknown-operator", "unbound-variable")


def test_page_has_every_code_of_notes_and_problems(repository: Path) -> None:
    """Programs compare codes, so a code that no page names cannot be understood."""
    compilation = (repository / "semantic" / "subscriptions" / "compilation.py").read_text(encoding="utf-8")
    codes = set(re.findall(r'(?:problem|flagged|_note)\(\s*"([a-z-]+)"', compilation))
    for source in (path for room in ("semantic", "server") for path in (repository / room).rglob("*.py")):
        codes |= set(re.findall(r'\bNote\(\s*"([a-z-]+)"', source.read_text(encoding="utf-8")))
    assert {code for code in codes if f"`{code}`" not in page()} == set()


def test_page_bounds_are_those_of_the_code() -> None:
    """A figure that is changed in one place only is noticed."""
    table = page().split("## Bounds")[1].split("##")[0]
    assert [int(figure.replace(",", "")) for figure in re.findall(r"\| ([\d,]+) \|", table)] == BOUNDS


def test_page_keywords_are_those_of_the_code() -> None:
    """Whoever names an attribute must know what needs backquotes."""
    (line,) = re.findall(r"^    (and .*)$", page(), re.M)
    assert set(line.split()) == KEYWORDS
