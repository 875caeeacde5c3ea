"""A matcher in a folder: the index as the engine saves it, the books beside it, and what they belong to.

    folder/fused.index            the engine's own file, where it has one
    folder/subscriptions.books    the books; says which vocabulary and which file of the engine they go with

Whoever opens one can always build the same matcher from the subscriptions instead, so whatever is odd is an error.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from index.engine import Engine, SavedEngine
from index.engines import open_engine
from index.errors import IndexFull, UnknownEngine, UnusableIndex
from semantic.books import Books
from semantic.errors import UnusableMatcher
from semantic.operators.declaration import Operator
from semantic.saved_books import open_books, save_books
from semantic.vocabulary import MEANING, Vocabulary

__all__ = ["SavedMatcher", "open_saved", "save", "saved_trees", "versions"]

HEAD = 64
"""Bytes of a file that tell it from any other: the preamble of `index.array_file`."""


@dataclass(frozen=True, slots=True)
class SavedMatcher:
    """What a matcher consists of, its vocabulary apart. `operators` are names and versions of those that it may ask,
    empty where no subscription needs one. `engine` is None where it has no files of its own: it is to be filled
    again."""

    engine_name: str
    planner_name: str
    operators: list[list[str]]
    attributes: list[str]
    columns: list[tuple[str, str]]
    engine: Engine | None
    books: Books


def save(folder: Path, vocabulary: Vocabulary, saved: SavedMatcher) -> None:
    """Write all into `folder`, which is made. Raises `OSError`."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(saved.engine, SavedEngine):
        saved.engine.save(folder)
    facts = {
        "meaning": MEANING,
        "vocabulary": vocabulary.version,
        "engine": saved.engine_name,
        "planner": saved.planner_name,
        "operators": saved.operators,
        "attributes": saved.attributes,
        "columns": saved.columns,
        "files": _heads(folder),
    }
    save_books(folder, saved.books, facts)


def open_saved(
    folder: Path, vocabulary: Vocabulary, operators: list[list[str]], budget: int | None = None
) -> SavedMatcher:
    """What `save` wrote. Raises `UnusableMatcher` for one that is damaged, not there, of another vocabulary or meaning,
    of other operators (where its subscriptions need some), larger than `budget` or written by another version of this
    program."""
    folder = Path(folder)
    try:
        facts, books = open_books(folder)
        if facts.get("meaning", 1) != MEANING:
            raise UnusableMatcher(folder, "the rules of matching have changed since it was made")
        if facts["vocabulary"] != vocabulary.version:
            raise UnusableMatcher(folder, "it was made under another vocabulary")
        if facts["operators"] not in ([], operators):
            raise UnusableMatcher(folder, f"it was made with other operators: {facts['operators']}")
        if facts["files"] != _heads(folder):
            raise UnusableMatcher(folder, "the index in it was saved at another time")
        return SavedMatcher(
            engine_name=facts["engine"],
            planner_name=facts["planner"],
            operators=facts["operators"],
            attributes=facts["attributes"],
            columns=[(name, reading) for name, reading in facts["columns"]],
            engine=open_engine(facts["engine"], folder, vocabulary.graph, budget=budget),
            books=books,
        )
    except (UnusableIndex, IndexFull, UnknownEngine, OSError) as error:
        raise UnusableMatcher(folder, str(error)) from error


def saved_trees(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The subscriptions of a saved matcher, by name with the tree that each is compiled from, under whatever vocabulary
    and rules it was made. Raises `UnusableMatcher`."""
    try:
        _, books = open_books(Path(folder))
    except (UnusableIndex, OSError) as error:
        raise UnusableMatcher(Path(folder), str(error)) from error
    for name, slot in books.slots.items():
        yield name, books.tree(slot)


def versions(operators: Mapping[str, Operator]) -> list[list[str]]:
    """Names and versions, sorted."""
    return sorted([each.name, each.version] for each in operators.values())


def _heads(folder: Path) -> dict[str, str]:
    """How each file of the engine begins: with a checksum of all of it."""
    heads = {}
    for path in sorted(folder.iterdir()):
        if path.suffix == ".index":
            with path.open("rb") as file:
                heads[path.name] = file.read(HEAD).hex()
    return heads
