"""The engine on disk: one memory-mapped file of arrays.

    segments as they are │ the memtables' programs and places │ states of rows │ columns and keys ◀──▶ fused.index

What is mapped on opening is private to the process where it is changed: tombstones do not reach the file.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kindcast.index.array_file import read_arrays, write_arrays
from kindcast.index.errors import OtherGraph
from kindcast.index.fused.arrays import Bytes, Codes, Packed, SegmentArrays
from kindcast.index.fused.columns import Columns
from kindcast.index.fused.graph_arrays import CELLS, GraphArrays, GraphShape
from kindcast.index.fused.layout import ClusterKey
from kindcast.index.fused.residuals import ProgramArrays, Rest
from kindcast.index.fused.segment import Segment, SharedArrays
from kindcast.index.fused.small_clusters import ScatteredArrays

__all__ = ["FILE", "Saved", "kind_of", "open_saved", "save"]

FILE = "fused.index"
"""Its name in the folder that the engine is given."""
LAYOUT = 1
"""Counts the meanings that arrays of the same names have had."""
SAVED_NAMES = {"tombstones": "dead"}
"""Arrays that have another name in files, which older versions wrote."""


class Saved(NamedTuple):
    """What is saved of an engine: row allocation and segments. `state` has one byte per row, `repeating` counts the
    rows with alternatives."""

    state: Bytes
    repeating: int
    columns: Columns
    shape: GraphShape | None
    segments: Sequence[Segment]


def save(folder: Path, graph: GraphArrays, engine: Saved) -> None:
    """Write the file, whole or not at all; makes the folder. Costs what writing the bytes of the engine costs. Raises
    `OSError`."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {"state": engine.state}
    if engine.shape is not None:
        arrays |= {f"shape/{name}": array for name, array in engine.shape._asdict().items()}
    segments = []
    for number, segment in enumerate(engine.segments):
        arrays |= {f"{number}/{name}": array for name, array in _arrays_of(segment).items()}
        segments.append({"columns": segment.columns, "clusters": [_cluster_record(key) for key in segment.clusters]})
    facts = {"graph": _digest(graph), "repeating": engine.repeating, "segments": segments}
    facts["columns"] = engine.columns.as_records()
    shares = any(segment.shared is not None for segment in engine.segments)
    write_arrays(folder / FILE, kind_of(shares=shares), facts, arrays)


def open_saved(folder: Path, graph: GraphArrays) -> Saved:
    """What `save` wrote, mapped. Costs one reading of the file. Raises `DamagedIndex`, `OtherLayout`, `OtherGraph`;
    `OSError` where there is no such file."""
    path = Path(folder) / FILE
    facts, arrays = read_arrays(path, kind_of(shares=False), kind_of(shares=True))
    if facts["graph"] != _digest(graph):
        raise OtherGraph(path)
    shape = None
    if "shape/cells" in arrays:
        shape = GraphShape(*(arrays[f"shape/{name}"] for name in GraphShape._fields))
    segments = [_segment(known, arrays, f"{number}/") for number, known in enumerate(facts["segments"])]
    return Saved(arrays["state"], facts["repeating"], Columns.from_records(facts["columns"]), shape, segments)


def kind_of(*, shares: bool) -> str:
    """What a file says of itself. Changes with every array that is added, renamed or given up, and with `LAYOUT`. A
    file in which rows share positions is of another kind, since it cannot be read without knowing that."""
    arrays = (SegmentArrays, ScatteredArrays, ProgramArrays, GraphShape)
    fields = (tuple(SAVED_NAMES.get(name, name) for name in each._fields) for each in arrays)
    names = (*fields, CELLS, LAYOUT)
    digest = hashlib.blake2b(repr(names).encode(), digest_size=6).hexdigest()
    return f"kindcast fused {LAYOUT} {digest}" + f" {' '.join(SharedArrays._fields)}" * shares


def _digest(graph: GraphArrays) -> str:
    state = hashlib.blake2b(digest_size=16)
    for array in graph:
        state.update(array.size.to_bytes(8, "little"))
        state.update(array.tobytes())
    return state.hexdigest()


def _arrays_of(segment: Segment) -> dict[str, Codes]:
    arrays = {f"packed/{name}": array for name, array in segment.packed._asdict().items()}
    arrays |= {"rows": segment.rows, "by_row": segment.by_row, "program_of": segment.program_of}
    if segment.scattered is not None:
        arrays |= {f"scattered/{name}": array for name, array in segment.scattered.arrays._asdict().items()}
    if segment.shared is not None:
        arrays |= {f"shared/{name}": array for name, array in segment.shared.arrays._asdict().items()}
    if segment.rest is not None:
        arrays["rest/rows"] = segment.rest.rows
        arrays |= {f"rest/{name}": array for name, array in segment.rest.programs._asdict().items()}
    return arrays


def _segment(facts: Mapping[str, Any], arrays: Mapping[str, Codes], prefix: str) -> Segment:
    def many(kind: Any, folder: str) -> Any:
        return kind(*(arrays[f"{prefix}{folder}/{name}"] for name in kind._fields))

    rest = None
    if f"{prefix}rest/rows" in arrays:
        rest = Rest(arrays[f"{prefix}rest/rows"], many(ProgramArrays, "rest"))
    scattered = many(ScatteredArrays, "scattered") if f"{prefix}scattered/first" in arrays else None
    shared = many(SharedArrays, "shared") if f"{prefix}shared/begin" in arrays else None
    return Segment(
        many(Packed, "packed"),
        arrays[f"{prefix}rows"],
        arrays[f"{prefix}by_row"],
        arrays[f"{prefix}program_of"],
        facts["columns"],
        [_cluster(record) for record in facts["clusters"]],
        rest,
        scattered,
        shared,
    )


def _cluster_record(key: ClusterKey) -> list[Any]:
    required, forbidden, slots, asked = key
    return [sorted(required), sorted(forbidden), slots, asked]


def _cluster(record: list[Any]) -> ClusterKey:
    required, forbidden, slots, asked = record
    return frozenset(required), frozenset(forbidden), tuple((how, number) for how, number in slots), asked
