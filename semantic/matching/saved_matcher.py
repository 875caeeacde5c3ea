"""A matcher saved in a folder, and opened again.

    folder/fused.index            the engine's own file, if it has one
    folder/subscriptions.books    the subscription table, and the vocabulary and engine file that it belongs to

The subscription table is one file of arrays:

    names, slots, rows │ which tree is where │ constants of parts, end to end │ skeletons, texts, notes (JSON)

Only live subscriptions are written: a part without the places of those that were removed. Nothing is compiled on
opening, and no tree is made. The same matcher can always be built from the subscriptions instead, so any inconsistency
is an error.
"""

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kindcast.index.array_file import read_arrays, write_arrays
from kindcast.index.engine import Engine
from kindcast.index.errors import DamagedIndex, IndexFull, UnknownEngine, UnusableIndex
from kindcast.index.registry import open_engine
from kindcast.semantic.errors import UnusableMatcher
from kindcast.semantic.model import Note, SubscriptionSlot
from kindcast.semantic.operators.declaration import Operator
from kindcast.semantic.subscriptions.subscription_table import (
    LATER,
    ConstantColumn,
    NumberColumn,
    OwnTrees,
    Part,
    SubscriptionTable,
    TextColumn,
)
from kindcast.semantic.vocabulary.vocabulary import MEANING, Vocabulary

__all__ = ["FILE", "SavedMatcher", "open_saved", "save", "saved_trees", "versions"]

FILE = "subscriptions.books"
"""The name of the file of the subscription table."""
KIND = "kindcast subscriptions 1"
"""The kind of the file; the number counts its layouts."""
HEAD = 64
"""The bytes at the beginning of a file that differ for all files: the preamble of `kindcast.index.array_file`."""
Bytes = npt.NDArray[np.uint8]
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class SavedMatcher:
    """The parts of a matcher, without its vocabulary. `operators` are the names and versions of the operators that it
    may call, empty if no subscription needs one. `engine` is None if it has no files of its own; the caller then fills
    a new one."""

    engine_name: str
    planner_name: str
    operators: list[list[str]]
    attributes: list[str]
    columns: list[tuple[str, str]]
    engine: Engine | None
    subscriptions: SubscriptionTable


def save(folder: Path, vocabulary: Vocabulary, saved: SavedMatcher) -> None:
    """Writes a matcher into `folder`, which is made if absent. Raises `OSError`."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if saved.engine is not None:
        saved.engine.save(folder)
    facts = {
        "meaning": MEANING,
        "vocabulary": vocabulary.version,
        "engine": saved.engine_name,
        "planner": saved.planner_name,
        "operators": saved.operators,
        "attributes": saved.attributes,
        "columns": saved.columns,
        "curies": sorted(vocabulary.attributes.asked_curies),
        "files": _heads(folder),
    }
    save_subscription_table(folder, saved.subscriptions, facts)


def open_saved(
    folder: Path, vocabulary: Vocabulary, operators: list[list[str]], budget: int | None = None
) -> SavedMatcher:
    """Returns what `save` wrote. Raises `UnusableMatcher` if it is damaged, absent, larger than `budget`, or made with
    another vocabulary, other rules of matching, other operators (if its subscriptions need some) or another version of
    this program."""
    folder = Path(folder)
    try:
        facts, subscription_table = open_subscription_table(folder)
        if facts.get("meaning", 1) != MEANING:
            raise UnusableMatcher(folder, "the rules of matching have changed since it was made")
        if facts["vocabulary"] != vocabulary.version:
            raise UnusableMatcher(folder, "it was made with another vocabulary")
        if facts["operators"] not in ([], operators):
            raise UnusableMatcher(folder, f"it was made with other operators: {facts['operators']}")
        if facts["files"] != _heads(folder):
            raise UnusableMatcher(folder, "its index was saved at another time")
        for name in facts.get("curies", ()):
            vocabulary.attributes.ask(name)
        return SavedMatcher(
            engine_name=facts["engine"],
            planner_name=facts["planner"],
            operators=facts["operators"],
            attributes=facts["attributes"],
            columns=[(name, reading) for name, reading in facts["columns"]],
            engine=open_engine(facts["engine"], folder, vocabulary.graph, budget=budget),
            subscriptions=subscription_table,
        )
    except (UnusableIndex, IndexFull, UnknownEngine, OSError) as error:
        raise UnusableMatcher(folder, str(error)) from error


def saved_trees(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the name and the tree of each subscription of a saved matcher, whatever its vocabulary and its rules of
    matching. Raises `UnusableMatcher`."""
    try:
        _, subscription_table = open_subscription_table(Path(folder))
    except (UnusableIndex, OSError) as error:
        raise UnusableMatcher(Path(folder), str(error)) from error
    for name, slot in subscription_table.slots.items():
        yield name, subscription_table.tree(slot)


def versions(operators: Mapping[str, Operator]) -> list[list[str]]:
    """Returns names and versions, sorted."""
    return sorted([each.name, each.version] for each in operators.values())


def _heads(folder: Path) -> dict[str, str]:
    """Returns the first bytes of each file of the engine, which contain its checksum."""
    heads = {}
    for path in sorted(folder.iterdir()):
        if path.suffix == ".index":
            with path.open("rb") as file:
                heads[path.name] = file.read(HEAD).hex()
    return heads


# ── the subscription table ────────────────────────────────────────────────────────────────────────────────────────────


def save_subscription_table(folder: Path, subscription_table: SubscriptionTable, facts: Mapping[str, Any]) -> None:
    """Writes a subscription table, whole or not at all, with `facts` that JSON can hold. Raises `OSError`."""
    slots = np.fromiter(subscription_table.slots.values(), dtype=np.int32, count=len(subscription_table))
    by_tree: dict[int, list[int]] = {}
    for number, slot in enumerate(slots.tolist()):
        tree = subscription_table.trees[slot]
        by_tree.setdefault(id(tree) if isinstance(tree, Part) else 0, []).append(number)
    part_of = np.full(slots.size, -1, dtype=np.int32)
    place_of = np.zeros(slots.size, dtype=np.int32)
    places = np.frombuffer(subscription_table.places, dtype=np.int32)
    own = by_tree.pop(0, [])
    place_of[own] = np.arange(len(own))
    writing = _Constants()
    records: list[dict[str, Any]] = []
    for part, listed in enumerate(by_tree.values()):
        numbers = np.array(listed, dtype=np.int64)
        kept = subscription_table.trees[int(slots[numbers[0]])]
        assert isinstance(kept, Part)
        part_of[numbers] = part
        place_of[numbers] = np.arange(numbers.size)
        columns = [writing.column(each) for each in kept.taken(places[slots[numbers]]).columns]
        records.append({"skeleton": kept.skeleton, "columns": columns})
    names, name_ends = _texts(subscription_table.slots)
    trees, tree_ends = _bytes(subscription_table.packed(SubscriptionSlot(int(slots[number]))) for number in own)
    notes = {
        str(number): [[note.code, note.attribute, note.detail] for note in told]
        for number, slot in enumerate(slots.tolist())
        if (told := subscription_table.notes(slot))
    }
    arrays: dict[str, Array] = {
        "slots": slots,
        "names": names,
        "name_ends": name_ends,
        "slot_of_row": np.frombuffer(subscription_table.slot_of_row, dtype=np.int32),
        "further": np.frombuffer(subscription_table.further, dtype=np.int32),
        "unsettled": np.frombuffer(subscription_table.unsettled, dtype=np.uint8),
        "calling": np.array(sorted(subscription_table.calling), dtype=np.int32),
        "part_of": part_of,
        "place_of": place_of,
        "trees": trees,
        "tree_ends": tree_ends,
        "constants": writing.joined(),
        "texts": _json([*map(list, writing.texts)]),
        "parts": _json(records),
        "notes": _json(notes),
    }
    write_arrays(folder / FILE, KIND, {"foreign": subscription_table.foreign, **facts}, arrays)


def open_subscription_table(folder: Path) -> tuple[dict[str, Any], SubscriptionTable]:
    """Returns the saved facts and subscription table. Costs one reading of the file, and some 0.5 µs per subscription.
    Raises `DamagedIndex`, `OtherLayout`, `OSError`."""
    path = folder / FILE
    facts, arrays = read_arrays(path, KIND)
    try:
        return facts, _subscription_table(facts, arrays)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise DamagedIndex(path, f"its arrays do not belong together ({error})") from error


def _subscription_table(facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> SubscriptionTable:
    subscription_table = SubscriptionTable()
    slots = arrays["slots"].tolist()
    text = arrays["names"].tobytes().decode("utf-8", "surrogatepass")
    ends = arrays["name_ends"].tolist()
    names = [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    rows = arrays["slot_of_row"].size
    subscription_table.slot_of_row = array("i", arrays["slot_of_row"].tobytes())
    subscription_table.further = array("i", arrays["further"].tobytes())
    subscription_table.unsettled = bytearray((arrays["unsettled"] != 0).astype(np.uint8) * LATER)
    subscription_table.asking = int(np.count_nonzero(arrays["unsettled"]))
    calling = arrays.get("calling")  # absent if an earlier version saved the table
    subscription_table.calling = set((np.flatnonzero(arrays["unsettled"]) if calling is None else calling).tolist())
    subscription_table.foreign = facts["foreign"]
    subscription_table.places = array("i", bytes(4 * rows))
    np.frombuffer(subscription_table.places, dtype=np.int32)[arrays["slots"]] = arrays["place_of"]
    own = OwnTrees(arrays["trees"], arrays["tree_ends"])
    parts = [*_parts(arrays), own]
    subscription_table.trees = [None] * rows
    for slot, part in zip(slots, arrays["part_of"].tolist(), strict=True):
        subscription_table.trees[slot] = parts[part]
    subscription_table.slots = dict(zip(names, slots, strict=True))
    subscription_table.names.restore(rows, slots, names)
    for number, told in json.loads(arrays["notes"].tobytes()).items():
        subscription_table.keep_notes(slots[int(number)], tuple(Note(*note) for note in told))
    return subscription_table


def _parts(arrays: Mapping[str, Array]) -> Iterator[Part]:
    texts = json.loads(arrays["texts"].tobytes())
    constants = arrays["constants"]

    def values(place: Sequence[Any]) -> Array:
        begin, size, dtype = place
        return constants[begin : begin + size].view(dtype)

    for record in json.loads(arrays["parts"].tobytes()):
        columns: list[ConstantColumn] = []
        for kind, place, other in record["columns"]:
            if kind == "texts":
                columns.append(TextColumn(values(place), texts[other]))
            else:
                columns.append(NumberColumn(values(place), values(other)))
        yield Part(record["skeleton"], tuple(columns))


class _Constants:
    """Collects the columns of all parts, end to end, each from a multiple of 8 bytes on; shared texts once."""

    def __init__(self) -> None:
        self.texts: list[Sequence[str]] = []
        self._known: dict[int, int] = {}
        self._pieces: list[Bytes] = []
        self._size = 0

    def column(self, column: ConstantColumn) -> list[Any]:
        """Adds a column. Returns where it is stored."""
        if isinstance(column, NumberColumn):
            return ["numbers", self._place(column.values), self._place(column.whole)]
        known = self._known.get(id(column.texts))
        if known is None:
            known = self._known[id(column.texts)] = len(self.texts)
            self.texts.append(column.texts)
        return ["texts", self._place(column.places), known]

    def joined(self) -> Bytes:
        """All names."""
        return np.concatenate([*self._pieces, np.zeros(0, dtype=np.uint8)])

    def _place(self, values: Array) -> list[Any]:
        written = np.ascontiguousarray(values).view(np.uint8)
        begin = self._size
        self._pieces += [written, np.zeros(-written.size % 8, dtype=np.uint8)]
        self._size += written.size + self._pieces[-1].size
        return [begin, written.size, values.dtype.str]


def _texts(texts: Mapping[str, Any]) -> tuple[Bytes, npt.NDArray[np.int64]]:
    """Returns all texts in one array, and the end of each in characters."""
    ends = np.cumsum(np.fromiter(map(len, texts), dtype=np.int64, count=len(texts)))
    return np.frombuffer("".join(texts).encode("utf-8", "surrogatepass"), dtype=np.uint8), ends


def _bytes(pieces: Iterator[bytes]) -> tuple[Bytes, npt.NDArray[np.int64]]:
    """Returns all pieces in one array, and the end of each."""
    listed = list(pieces)
    ends = np.cumsum(np.fromiter(map(len, listed), dtype=np.int64, count=len(listed)))
    return np.frombuffer(b"".join(listed), dtype=np.uint8), ends


def _json(value: Any) -> Bytes:
    return np.frombuffer(json.dumps(value, separators=(",", ":")).encode(), dtype=np.uint8)
