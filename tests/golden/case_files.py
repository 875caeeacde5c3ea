"""Golden cases: files that say what matches, for every road through the product.

A case file (`cases/*.json`) is one object:

    about          which rule it is about, in a sentence
    ontology       a document in Turtle
    attributes, synonyms, schemas   what the user declares beside it (optional)
    relations      those that are asked for when the document is read (optional)
    subscriptions  id → text
    events         [{"event": data, "context": {…} (optional), "expected": [ids, sorted]}]
    invalid        [{"event": data, "problems": {JSON pointer: code}}]: events that do not fit their type (optional)
    refused        text of a subscription → the code of the problem with which it is refused (optional)
    later          {"ontology", "events"}: the same subscriptions under the next version of the document (optional);
                   "relations" where others are asked for
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Case", "Document", "GoldenEvent", "cases"]

FOLDER = Path(__file__).parent / "cases"


@dataclass(frozen=True)
class GoldenEvent:
    """An event and the subscriptions that it matches."""

    data: Any
    context: dict[str, str]
    expected: list[str]


@dataclass(frozen=True)
class Document:
    """A version of the ontology, and the relations that are asked for."""

    data: bytes
    relations: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """One case file."""

    name: str
    about: str
    ontology: Document
    subscriptions: dict[str, str]
    events: list[GoldenEvent]
    declarations: dict[str, Any] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    invalid: list[dict[str, Any]] = field(default_factory=list)
    later: tuple[Document, list[GoldenEvent]] | None = None


def cases() -> list[Case]:
    """All cases, by name."""
    return [_read(path) for path in sorted(FOLDER.glob("*.json"))]


def _read(path: Path) -> Case:
    raw = json.loads(path.read_text(encoding="utf-8"))
    later = raw.pop("later", None)
    relations = tuple(raw.pop("relations", ()))
    declarations = {key: raw.pop(key) for key in ("attributes", "synonyms", "schemas") if key in raw}
    return Case(
        name=path.stem,
        about=raw.pop("about"),
        ontology=Document(raw.pop("ontology").encode(), relations),
        events=_events(raw.pop("events")),
        declarations=declarations,
        later=_later(later, relations) if later else None,
        **raw,
    )


def _later(raw: dict[str, Any], relations: tuple[str, ...]) -> tuple[Document, list[GoldenEvent]]:
    return Document(raw["ontology"].encode(), tuple(raw.get("relations", relations))), _events(raw["events"])


def _events(raw: list[dict[str, Any]]) -> list[GoldenEvent]:
    return [GoldenEvent(each["event"], each.get("context", {}), each["expected"]) for each in raw]
