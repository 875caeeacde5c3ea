"""docs/event-schemas.md holds: its types, every worked event, and what it says is refused."""

import doctest
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kindcast import Event, InvalidEvent, InvalidSubscription, Matcher, Vocabulary

PAGE = Path(__file__).resolve().parents[3] / "docs" / "event-schemas.md"
BLOCK = re.compile(r"^```json (?:schema (?P<type>\w+)|example)\n(?P<body>.*?)^```$", re.M | re.S)
FURNITURE = b"""
@prefix : <http://example.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:Furniture rdfs:label "furniture" . :Table rdfs:subClassOf :Furniture ; rdfs:label "table" .
"""

FOUND = [(match["type"], json.loads(match["body"])) for match in BLOCK.finditer(PAGE.read_text(encoding="utf-8"))]
SCHEMAS = {type: body for type, body in FOUND if type}
EXAMPLES = [body for type, body in FOUND if not type]


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.from_bytes(FURNITURE, format="turtle", schemas=SCHEMAS)


@pytest.mark.parametrize("type", sorted(SCHEMAS))
def test_document_of_the_page_is_json_schema(type: str) -> None:
    """To ordinary tools too."""
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[type])


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: json.dumps(example["event"])[:60])
def test_example_of_the_page_does_what_it_says(vocabulary: Vocabulary, example: dict[str, Any]) -> None:
    """Fits or does not, matches or does not, is refused."""
    assert example.keys() <= {"event", "context", "problems", "match", "no match", "refused"}
    matcher = Matcher(vocabulary)
    event = Event(example["event"], example.get("context", {}))
    if "problems" in example:
        with pytest.raises(InvalidEvent) as invalid:
            matcher.match(event)
        assert {str(problem.at): problem.code for problem in invalid.value.problems} == example["problems"]
        return
    matcher.add_many((text, text) for text in (*example["match"], *example["no match"]))
    assert sorted(match.subscription for match in matcher.match(event)) == sorted(example["match"])
    for text, code in example.get("refused", {}).items():
        with pytest.raises(InvalidSubscription) as refused:
            matcher.compile(text)
        assert [problem.code for problem in refused.value.problems] == [code]


def test_python_of_the_page_gives_what_it_shows() -> None:
    """Examples with `>>>` are doctests."""
    assert doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8").failed == 0
