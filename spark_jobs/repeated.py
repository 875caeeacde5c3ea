"""Deduplication of an archive by (`source`, `id`): the first event in its order is kept, as on a server.

    splits ─▶ (digest of the name, split, line) ─shuffled by digest─▶ all but the first ─▶ FOLDER/split=<n>/

The one thing here that has to be shuffled: 32 bytes per event, and only of events that have names. Plain data is named
by its place, so that a split of CSV, or of columns without names, is not even read. Which lines repeat others stays in
files: a task reads those of its split.
"""

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as sql

from kindcast.spark_jobs.archive import Split, file_system
from kindcast.spark_jobs.event_batch import ANONYMOUS, EventBatch, Rejected
from kindcast.spark_jobs.reading import ReadOptions, read_split
from kindcast.spark_jobs.schemas import spark_schema

__all__ = ["NONE_REPEATED", "Repeated", "find_repeated", "without_repeated"]

NAMED = pa.schema([("name", pa.binary()), ("split", pa.int32()), ("line", pa.int64())])
SPLITS_SHUFFLED_TOGETHER = 4
"""Splits for one partition of names: some 400,000 names."""
NAMES = {"source", "id"}


@dataclass(frozen=True, slots=True)
class Repeated:
    """The lines of one split that repeat another one: how many, where they are listed, and a digest of which."""

    folder: str = ""
    count: int = 0
    digest: int = 0

    def lines(self) -> npt.NDArray[np.int64]:
        """Ascending."""
        if not self.count:
            return np.zeros(0, dtype=np.int64)
        return np.sort(pq.read_table(self.folder, columns=["line"])["line"].to_numpy())


NONE_REPEATED = Repeated()


def find_repeated(session: SparkSession, splits: Sequence[Split], read: ReadOptions, folder: Path) -> list[Repeated]:
    """For each split the lines that repeat an event of an earlier split, or of an earlier line. Written into `folder`,
    which is replaced."""
    asked = [number for number, split in enumerate(splits) if _has_names(split)]
    if not asked:
        return [NONE_REPEATED] * len(splits)
    plain = replace(read, bodies=False)
    rows = session.sparkContext.parallelize([(number,) for number in asked], len(asked))

    def names(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for found in read_split(splits[number], plain):
                    if not isinstance(found, Rejected):
                        yield _named(found, number)

    partitions = max(2, -(-len(asked) // SPLITS_SHUFFLED_TOGETHER))
    first = sql.row_number().over(Window.partitionBy("name").orderBy("split", "line"))
    repeated = (
        session.createDataFrame(rows, "split int")
        .mapInArrow(names, spark_schema(NAMED))
        .repartition(partitions, "name")
        .withColumn("place", first)
        .where("place > 1")
        .select("split", "line")
    )
    shutil.rmtree(folder, ignore_errors=True)
    repeated.write.partitionBy("split").parquet(str(folder))
    told = session.read.schema("line bigint, split int").parquet(str(folder))
    digests = told.groupBy("split").agg(
        sql.count("*").alias("count"), sql.expr("bit_xor(xxhash64(line))").alias("digest")
    )
    by_split = {
        row["split"]: Repeated(str(folder / f"split={row['split']}"), row["count"], row["digest"])
        for row in digests.collect()
    }
    return [by_split.get(number, NONE_REPEATED) for number in range(len(splits))]


def without_repeated(batches: Iterable[EventBatch | Rejected], repeated: Repeated) -> Iterator[EventBatch | Rejected]:
    """What was read of a split, but for the lines that repeat others."""
    lines = repeated.lines()
    for batch in batches:
        if isinstance(batch, Rejected) or not lines.size:
            yield batch
            continue
        kept = np.flatnonzero(~np.isin(batch.lines, lines))
        if kept.size == len(batch):
            yield batch
        elif kept.size:
            yield batch.take(kept.tolist())


def _has_names(split: Split) -> bool:
    """Whether events of a split can have names of their own."""
    if split.problem or split.format == "csv":
        return False
    if split.format == "lines":
        return True
    system, _ = file_system(split.path)
    with system.open_input_file(split.path) as file:
        return set(pq.read_schema(file).names) >= NAMES


def _named(batch: EventBatch, split: int) -> pa.RecordBatch:
    sources, ids = batch.keys["source"].to_pylist(), batch.keys["id"].to_pylist()
    named = [
        (_digest(source, id), line)
        for source, id, line in zip(sources, ids, batch.lines.tolist(), strict=True)
        if source != ANONYMOUS or id != f"{batch.file}:{line}"  # who is named by its place is no other
    ]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([name for name, _ in named], pa.binary()),
            pa.array([split] * len(named), pa.int32()),
            pa.array([line for _, line in named], pa.int64()),
        ],
        schema=NAMED,
    )


def _digest(source: str, id: str) -> bytes:
    """16 bytes: of 10⁹ events two others have the same with a probability of 10⁻²¹."""
    return hashlib.blake2b(f"{len(source)} {source}{id}".encode(), digest_size=16).digest()
