"""Golden cases: files that say what matches, for every road through the product.

A case file (`cases/*.json`) is one object:

    about          which rule it is about, in a sentence
    ontology       a document in Turtle
    attributes, synonyms   what the user declares beside it (optional)
    subscriptions  id → text
    events         [{"event": data, "context": {…} (optional), "expected": [ids, sorted]}]
    refused        text of a subscription → the code of the problem with which it is refused (optional)
    later          {"ontology", "events"}: the same subscriptions under the next version of the document (optional)
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Case", "GoldenEvent", "cases"]

FOLDER = Path(__file__).parent / "cases"


@dataclass(frozen=True)
class GoldenEvent:
    """An event and the subscriptions that it matches."""

    data: Any
    context: dict[str, str]
    expected: list[str]


@dataclass(frozen=True)
class Case:
    """One case file."""

    name: str
    about: str
    ontology: bytes
    subscriptions: dict[str, str]
    events: list[GoldenEvent]
    declarations: dict[str, Any] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    later: tuple[bytes, list[GoldenEvent]] | None = None


def cases() -> list[Case]:
    """All cases, by name."""
    return [_read(path) for path in sorted(FOLDER.glob("*.json"))]


def _read(path: Path) -> Case:
    raw = json.loads(path.read_text(encoding="utf-8"))
    later = raw.pop("later", None)
    declarations = {key: raw.pop(key) for key in ("attributes", "synonyms") if key in raw}
    return Case(
        name=path.stem,
        about=raw.pop("about"),
        ontology=raw.pop("ontology").encode(),
        events=_events(raw.pop("events")),
        declarations=declarations,
        later=(later["ontology"].encode(), _events(later["events"])) if later else None,
        **raw,
    )


def _events(raw: list[dict[str, Any]]) -> list[GoldenEvent]:
    return [GoldenEvent(each["event"], each.get("context", {}), each["expected"]) for each in raw]
