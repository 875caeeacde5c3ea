"""`python -m tests.benchmarks.spark_scale PART …`: Spark jobs on two cores, from Parquet to Parquet, on workload W3.

    threads    two threads of `match_table` outside Spark, on the same events
    spark      the job `match`: start-up apart; memory of a worker
    sql        two plans of Spark SQL for the same question
    batches    the size of Arrow batches
    growth     10⁵ and 10⁶ events; 10⁷ with --full
    shards     the same subscriptions in 1, 2 and 4 shards, held together or one after the other

Prints JSON, and keeps it in docs/benchmarks/results/spark_scale.json, part by part.
"""

import argparse
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from kindcast.semantic.ontology import Ontology
from kindcast.spark_jobs.match import match_archive
from kindcast.spark_jobs.reading import ReadOptions
from kindcast.spark_jobs.session import spark_session
from kindcast.spark_jobs.snapshot import Snapshot, write_snapshot
from tests.benchmarks.workload_papers import Drawing, draw

RESULTS = Path("docs/benchmarks/results/spark_scale.json")
WORK = Path("build/benchmarks/spark")
ROW_GROUP = 50_000
TREE = "http://example.org/tree#N"


class Setting:
    """The workload on disk: events as Parquet, subscriptions as a snapshot."""

    def __init__(self, subscriptions: int, events: int, *, full: bool = False) -> None:
        self.count, self.events, self.full = subscriptions, events, full
        self.drawing: Drawing = draw("W3", subscriptions=subscriptions, events=events)
        self.folder = WORK / f"{subscriptions}x{events}"
        self.archive = self.folder / "events.parquet"
        vocabulary = self.drawing.vocabulary()
        self.ontologies: tuple[Ontology, ...] = vocabulary.ontologies
        if not self.archive.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            writing = self.folder / ".events"
            with pq.ParquetWriter(writing, self._table(0, 1).schema) as writer:
                for start in range(0, events, ROW_GROUP):
                    writer.write_table(self._table(start, min(start + ROW_GROUP, events)))
            writing.rename(self.archive)

    def snapshot(self, shards: int = 1) -> Snapshot:
        place = self.folder / f"snapshot-{shards}"
        if (place / "snapshot.json").exists():
            return Snapshot.read(place)
        trees = ((f"s{number}", self.drawing.tree(number)) for number in range(self.count))
        return write_snapshot(place, self.ontologies, trees, shards=shards)

    def _table(self, start: int, stop: int) -> pa.Table:
        columns = self.drawing.table(start, stop)
        return pa.table({name: pa.array(cells, from_pandas=True) for name, cells in columns.items()})


def job(session: SparkSession, setting: Setting, snapshot: Snapshot, archive: Path, **options: Any) -> dict[str, Any]:
    """One run of `match`, into a new folder."""
    out = setting.folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    began = time.perf_counter()
    summary = match_archive(session, str(archive), out, snapshot, **options)
    seconds = time.perf_counter() - began
    return {
        "seconds": round(seconds, 2),
        "events": summary["events"],
        "matches": summary["matches"],
        "events_per_second": round(summary["events"] / seconds),
        "events_per_cpu_second": round(summary["events"] / summary["cpu_seconds"]),
        "pairs_per_second": round(summary["matches"] / seconds),
        "worker_peak_mb": summary["worker_peak_mb"],
        "output_mb": round(sum(path.stat().st_size for path in out.rglob("*.parquet")) / 1e6, 1),
    }


def warm(session: SparkSession, setting: Setting, snapshot: Snapshot) -> float:
    """Start the workers and let them open the snapshot; seconds."""
    few = setting.folder / "few"
    if not few.exists():
        few.mkdir()
        table = setting._table(0, 1_000)
        for number in range(8):
            pq.write_table(table, few / f"{number}.parquet")
    began = time.perf_counter()
    job(session, setting, snapshot, few)
    return round(time.perf_counter() - began, 2)


def shuffled_bytes(session: SparkSession) -> int:
    """What the executors of this session have written for shuffles, and read of them, as Spark's status store says."""
    executors = session.sparkContext._jsc.sc().statusStore().executorList(False)
    each = [executors.apply(number) for number in range(executors.size())]
    return int(sum(one.totalShuffleWrite() + one.totalShuffleRead() for one in each))


# ── parts ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def threads(setting: Setting) -> dict[str, Any]:
    snapshot = setting.snapshot()
    began = time.perf_counter()
    matcher = snapshot.matcher(0, snapshot.vocabulary())
    opened = time.perf_counter() - began
    table = pq.read_table(setting.archive)
    matcher.match_table(table.slice(0, ROW_GROUP), threads=2)
    told: dict[str, Any] = {"open_seconds": round(opened, 2)}
    for count in (1, 2):
        seconds, cpu_seconds, matches = 0.0, 0.0, 0
        some = min(len(table), 400_000 * count)
        for start in range(0, some, ROW_GROUP):
            part = table.slice(start, ROW_GROUP)
            began, cpu = time.perf_counter(), time.process_time()
            matches += len(matcher.match_table(part, threads=count).slots)
            seconds += time.perf_counter() - began
            cpu_seconds += time.process_time() - cpu
        told[f"{count}_threads"] = {
            "events_per_second": round(some / seconds),
            "events_per_cpu_second": round(some / cpu_seconds),
            "matches_an_event": matches / some,
        }
    return told


def spark(setting: Setting) -> dict[str, Any]:
    snapshot = setting.snapshot()
    began = time.perf_counter()
    session = spark_session(master="local[2]")
    told: dict[str, Any] = {"session_seconds": round(time.perf_counter() - began, 2)}
    told["first_job_seconds"] = warm(session, setting, snapshot)
    told["load"] = round(os.getloadavg()[0], 1)
    told["runs"] = [job(session, setting, snapshot, setting.archive) for _ in range(3)]
    told["shuffled_bytes"] = shuffled_bytes(session)
    session.stop()
    return told


def sql(setting: Setting, events: int = 20_000) -> dict[str, Any]:
    session = spark_session(
        master="local[2]", options={"spark.sql.shuffle.partitions": "8", "spark.driver.memory": "6g"}
    )
    tables = setting.folder / "sql"
    if not tables.exists():
        _write_sql_tables(setting, tables, events)
    for name in ("facts", "events", "closure", "asked", "subscriptions"):
        session.read.parquet(str(tables / name)).createOrReplaceTempView(name)
    told: dict[str, Any] = {"events": events}
    for name, query in (("natural", NATURAL), ("one_schema", ONE_SCHEMA)):
        out = setting.folder / "sql-out"
        shutil.rmtree(out, ignore_errors=True)
        began = time.perf_counter()
        session.sql(query).write.parquet(str(out))
        seconds = time.perf_counter() - began
        rows = pq.read_table(out)
        told[name] = {
            "seconds": round(seconds, 1),
            "events_per_second": round(events / seconds, 1),
            "matches": int(pc.sum(pc.list_value_length(rows["subscriptions"])).as_py()),
        }
    session.stop()
    return told


NATURAL = """
select eid, collect_list(sid) subscriptions from (
  select f.eid, s.sid
  from facts f
  join closure c on c.node = f.value
  join asked a on a.attribute = f.attribute and a.value = c.ancestor
  join subscriptions s on s.sid = a.sid
  join events e on e.eid = f.eid
  where e.a4 between s.low4 and s.high4 and e.a5 between s.low5 and s.high5
  group by f.eid, s.sid, s.needed having count(*) = s.needed
) group by eid
"""
"""For subscriptions of any attributes: explode, join the ancestors, join what is asked, count."""

ONE_SCHEMA = """
select e.eid, collect_list(s.sid) subscriptions
from events e
join closure c0 on c0.node = e.a0 join closure c1 on c1.node = e.a1 join closure c2 on c2.node = e.a2
join subscriptions s on s.a0 = c0.ancestor and s.a1 = c1.ancestor and s.a2 = c2.ancestor
where (s.a3 is null or s.a3 = e.a3) and e.a4 between s.low4 and s.high4 and e.a5 between s.low5 and s.high5
group by e.eid
"""
"""What one may write only where every subscription asks for the same three kinds."""


def batches(setting: Setting) -> dict[str, Any]:
    snapshot, session = setting.snapshot(), spark_session(master="local[2]")
    warm(session, setting, snapshot)
    sizes = (1_000, 10_000, 50_000)
    told = {str(n): job(session, setting, snapshot, setting.archive, read=ReadOptions(batch_events=n)) for n in sizes}
    session.stop()
    return told


def growth(setting: Setting) -> dict[str, Any]:
    snapshot, session = setting.snapshot(), spark_session(master="local[2]")
    warm(session, setting, snapshot)
    told = {}
    for copies in (0.1, 1, 10) if setting.full else (0.1, 1):
        archive = setting.folder / f"copies-{copies}"
        shutil.rmtree(archive, ignore_errors=True)
        archive.mkdir()
        if copies < 1:
            pq.write_table(pq.read_table(setting.archive).slice(0, setting.events // 10), archive / "0.parquet")
        for number in range(int(copies)):
            os.link(setting.archive, archive / f"{number}.parquet")
        told[f"{int(setting.events * copies):,}"] = job(session, setting, snapshot, archive)
    session.stop()
    return told


def shards(setting: Setting) -> dict[str, Any]:
    session = spark_session(master="local[2]")
    told = {}
    for count in (1, 2, 4):
        snapshot = setting.snapshot(count)
        for way, together in (("in one group", setting.count), ("a group each", setting.count // count)):
            if count == 1 and way == "a group each":
                continue
            warm(session, setting, snapshot)
            runs = [job(session, setting, snapshot, setting.archive, together=together) for _ in range(2)]
            told[f"{count}, {way}"] = min(runs, key=lambda run: run["seconds"])
    session.stop()
    return told


def _write_sql_tables(setting: Setting, folder: Path, events: int) -> None:
    drawing = setting.drawing
    size = (1 << (drawing.height + 1)) - 1
    columns = drawing.table(0, events)
    rows = {"eid": np.arange(events), **{name: columns[name] for name in columns}}
    closure = list(_closure(size))
    strings = [f"v{number}" for number in range(drawing.most)]
    facts = [(eid, name, columns[name][eid]) for name in ("a0", "a1", "a2", "a3") for eid in range(events)]
    asked: list[tuple[int, str, str]] = []
    low, high, has = drawing.low, drawing.high, drawing.asked
    for sid in range(setting.count):
        asked += [(sid, f"a{j}", f"{TREE}{drawing.nodes[sid, j]}") for j in range(3)]
        if has[sid, 3]:
            asked.append((sid, "a3", strings[int(low[sid, 3])]))
    own = {f"a{j}": [f"{TREE}{node}" for node in drawing.nodes[:, j].tolist()] for j in range(3)}
    own["a3"] = [strings[int(low[sid, 3])] if has[sid, 3] else None for sid in range(setting.count)]
    bounds = {
        f"{end}{j}": part[:, j].astype(np.float64) for j in (4, 5) for end, part in (("low", low), ("high", high))
    }
    needed = 3 + has[:, 3].astype(np.int64)
    folder.mkdir()
    for name, table in (
        ("events", pa.table({key: pa.array(cells, from_pandas=True) for key, cells in rows.items()})),
        ("facts", _transposed(("eid", "attribute", "value"), facts)),
        ("closure", _transposed(("node", "ancestor"), closure + [(text, text) for text in strings[:100]])),
        ("asked", _transposed(("sid", "attribute", "value"), asked)),
        ("subscriptions", pa.table({"sid": np.arange(setting.count), **own, **bounds, "needed": needed})),
    ):
        (folder / name).mkdir()
        pq.write_table(table, folder / name / "part.parquet", row_group_size=ROW_GROUP)


def _closure(size: int) -> Iterator[tuple[str, str]]:
    for node in range(size):
        upper = node
        while True:
            yield f"{TREE}{node}", f"{TREE}{upper}"
            if upper == 0:
                break
            upper = (upper - 1) // 2


def _transposed(names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> pa.Table:
    return pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


PARTS: dict[str, Callable[[Setting], dict[str, Any]]] = {
    "threads": threads,
    "spark": spark,
    "sql": sql,
    "batches": batches,
    "growth": growth,
    "shards": shards,
}


def main() -> None:
    """Run the parts that are named, all if none is."""
    options = argparse.ArgumentParser(prog="python -m tests.benchmarks.spark_scale", description=__doc__)
    options.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    options.add_argument("--subscriptions", type=int, default=100_000)
    options.add_argument("--events", type=int, default=1_000_000)
    options.add_argument("--full", action="store_true", help="growth to ten times the events, too")
    given = options.parse_args()
    setting = Setting(given.subscriptions, given.events, full=given.full)
    key = f"{given.subscriptions:,} subscriptions, {given.events:,} events"
    for part in given.parts or list(PARTS):
        found = PARTS[part](setting)
        kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
        kept.setdefault(key, {})[part] = found
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        print(json.dumps({part: found}, indent=1), flush=True)  # noqa: T201 - the result of the command


if __name__ == "__main__":
    main()
