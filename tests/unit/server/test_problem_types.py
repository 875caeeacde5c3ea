"""Every problem that the server can answer is in the one table, and docs/problems.md shows that table."""

import ast
import re
from pathlib import Path

import pytest

from kindcast.server.api import problem_types
from kindcast.server.api.problem_types import PROBLEM_TYPES, as_document, title_of

ROOT = Path(__file__).parents[3]


def test_every_code_in_the_api_is_in_the_table() -> None:
    """A literal code of `Problem(...)` or of a refused connection, and the codes of exceptions."""
    used = set()
    for path in (ROOT / "server" / "api").glob("*.py"):
        calls = [each for each in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(each, ast.Call)]
        made = [each for each in calls if isinstance(each.func, ast.Name) and each.func.id in ("Problem", "_Refusal")]
        used |= {each.args[0].value for each in made if isinstance(each.args[0], ast.Constant)}
    used |= {code for _, code in problem_types._SIMPLE}
    assert len(used) > 40
    assert used <= set(PROBLEM_TYPES)


def test_page_of_problems_shows_the_table() -> None:
    """Code, statuses and meaning of each, and no other."""
    rows = re.findall(r"^\| `([a-z-]+)` \| ([\d, ]+) \| (.+) \|$", (ROOT / "docs/problems.md").read_text("utf-8"), re.M)
    assert {code: (statuses, meaning) for code, statuses, meaning in rows} == {
        code: (", ".join(map(str, (each.status, *each.others))), each.meaning) for code, each in PROBLEM_TYPES.items()
    }


@pytest.mark.parametrize(
    ("folder", "others"),
    [
        ("semantic/events", ("semantic/flatten.py", "server/cloudevents.py")),
        ("semantic/vocabulary", ("semantic/units/measure.py",)),
    ],
)
def test_page_of_problems_has_every_code_of_an_event_and_of_a_declaration(folder: str, others: tuple[str, ...]) -> None:
    """Programs compare codes, so a code that no page names cannot be understood."""
    named = set(re.findall(r"`([a-z-]+)`", (ROOT / "docs/problems.md").read_text("utf-8")))
    sources = [*(ROOT / folder).rglob("*.py"), *(ROOT / each for each in others)]
    written = "\n".join(each.read_text("utf-8") for each in sources)
    codes = set(re.findall(r'\b(?:Problem|problem_at|refuse)\((?:[^"()]|\([^()]*\))*"([a-z]+(?:-[a-z]+)+)"', written))
    assert len(codes) > 8
    assert codes <= named


def test_problem_has_the_status_and_the_title_of_its_code() -> None:
    """Where a code has two statuses, the one that is given."""
    problem = problem_types.Problem("unknown-concept", "no such")
    assert (problem.status_code, as_document(problem)["title"]) == (404, "Unknown concept")
    assert title_of("malformed-json") == "Malformed JSON"
    assert problem_types.Problem("invalid-subscription", "no such", status=400).status_code == 400
