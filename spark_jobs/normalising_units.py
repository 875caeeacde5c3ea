"""The command `normalise`: splits as units, the terms added up, and the summary."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from spark_jobs.archive import SPLIT_BYTES, SPLIT_ROWS, Split, splits_of
from spark_jobs.event_batch import Rejected
from spark_jobs.normalise import Normaliser
from spark_jobs.output import Output, UnitWriter
from spark_jobs.progress import Progress, silent
from spark_jobs.reading import AS_IT_STANDS, ReadOptions, read_split
from spark_jobs.snapshot import Snapshot
from spark_jobs.terms import work_list
from spark_jobs.units import Work, by_day, number_lines, rejected_rows, run_units, unit_name
from spark_jobs.workers import vocabulary_of

__all__ = ["normalise_archive"]

QUARANTINED = "_quarantine"
TERM_PARTS = "_term_counts"
TERMS_FILE = "_terms.csv"
"""Begins with `_`, like all that is no event: who reads the folder, as an archive or as Parquet, passes it by."""


def normalise_archive(
    session: SparkSession,
    archive: str,
    output: Path,
    snapshot: Snapshot,
    *,
    read: ReadOptions = AS_IT_STANDS,
    split_bytes: int = SPLIT_BYTES,
    split_rows: int = SPLIT_ROWS,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Normalise an archive into `output`, by day, with `_terms.csv` for the ontologist; returns the summary. May be
    interrupted and run again at any time. Raises `JobFailed`."""
    read = replace(read, bodies=True)
    target = Output(output)
    with target.locked():
        splits = number_lines(session, splits_of(archive, split_bytes=split_bytes, split_rows=split_rows), progress)
        units: list[tuple[str, Work]] = [
            (
                unit_name("normalise", split, snapshot.vocabulary_version, asdict(read)),
                partial(_normalise_unit, split, snapshot, read),
            )
            for split in splits
        ]
        done = run_units(session, target, units, "normalise", progress)
        target.commit(done)
        progress("terms", 0, None)
        parts = sorted((output / TERM_PARTS).glob("*.parquet")) if (output / TERM_PARTS).is_dir() else []
        terms = work_list((pq.read_table(path) for path in parts), snapshot.vocabulary())
        _write_terms(terms, output)

    def total(name: str) -> int:
        return int(sum(each.counts.get(name, 0) for each in done))

    problems = terms["problem"].to_pylist()
    return {
        "files": len({split.path for split in splits}),
        "events": total("events"),
        "changed": total("changed"),
        "quarantined": total("quarantined"),
        "unknown_terms": problems.count("unknown"),
        "ambiguous_terms": problems.count("ambiguous"),
        "days": sorted({folder[4:] for each in done for folder in each.folders if folder.startswith("day=")}),
        "vocabulary_version": snapshot.vocabulary_version,
        "worker_peak_mb": round(max((each.counts.get("peak_mb", 0.0) for each in done), default=0.0)),
    }


def _normalise_unit(split: Split, snapshot: Snapshot, read: ReadOptions, writer: UnitWriter) -> Mapping[str, float]:
    """In a worker: one split."""
    normaliser = Normaliser(vocabulary_of(snapshot))
    events = changed = 0
    rejected: list[Rejected] = []
    for batch in read_split(split, read):
        if isinstance(batch, Rejected):
            rejected.append(batch)
            continue
        table, bad = normaliser.table(batch)
        rejected += bad
        events += len(table)
        changed += int(pc.sum(pc.greater(_lengths(table), 0)).as_py() or 0)
        for folder, part in by_day(table) if len(table) else ():
            writer.write(folder, part)
    writer.write(TERM_PARTS, normaliser.terms.table())
    if rejected:
        writer.write(QUARANTINED, rejected_rows(rejected))
    return {"events": events, "changed": changed, "quarantined": len(rejected)}


def _lengths(table: Any) -> Any:
    return pc.list_value_length(table["changes"])


def _write_terms(terms: Any, output: Path) -> None:
    """The work list, for people: a spreadsheet opens it. Whole or not at all."""
    writing = output / f".{TERMS_FILE}"
    flat = terms.set_column(
        terms.column_names.index("suggestions"),
        "suggestions",
        pc.binary_join(terms["suggestions"], " | "),
    )
    pyarrow.csv.write_csv(flat, writing)
    writing.replace(output / TERMS_FILE)
