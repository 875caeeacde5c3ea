"""Every golden case through Spark: what the files say is the truth for the workers, too."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from kindcast.semantic.ontology import read
from kindcast.spark_jobs.match import match_archive
from kindcast.spark_jobs.snapshot import write_snapshot
from tests.golden.case_files import Case, Document, GoldenEvent, cases

CASES = cases()


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_golden_case_by_spark(case: Case, spark: SparkSession, tmp_path: Path) -> None:
    """An archive of the events of a case matches as the file says, and what is invalid is quarantined."""
    found, quarantined = matched(spark, case, case.ontology, case.events, tmp_path)
    assert found == [event.expected for event in case.events]
    assert quarantined == len(case.invalid)


def matched(
    spark: SparkSession, case: Case, document: Document, events: list[GoldenEvent], folder: Path
) -> tuple[list[list[str]], int]:
    """Who gets each event, sorted, and how many events were quarantined."""
    ontology = read(document.data, format="turtle", relations=document.relations)
    subscriptions = list(case.subscriptions.items())
    snapshot = write_snapshot(folder / "snapshot", [ontology], subscriptions, declarations=case.declarations)
    assert snapshot.refused == ()
    lines = [cloud_event(number, event.data, event.context) for number, event in enumerate(events)]
    lines += [each["event"] for each in case.invalid]
    (folder / "events.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    summary = match_archive(spark, str(folder / "events.ndjson"), folder / "out", snapshot)
    rows = {row["id"]: sorted(row["subscriptions"]) for row in pq.read_table(folder / "out").to_pylist()}
    return [rows[str(number)] for number in range(len(events))], summary["quarantined"]


def cloud_event(number: int, data: Any, context: dict[str, str]) -> dict[str, Any]:
    return {"type": "golden", "source": "/golden", **context, "specversion": "1.0", "id": str(number), "data": data}
