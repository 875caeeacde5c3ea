"""Spark decides as the matcher does, over random vocabularies, subscriptions and archives; many of them in one job."""

import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from kindcast import Matcher
from kindcast.semantic.language import to_tree
from kindcast.semantic.model import Event, Expression
from kindcast.spark_jobs.match import NONE_REPEATED, Chosen, match_unit
from kindcast.spark_jobs.output import Output, run_units
from kindcast.spark_jobs.reading import ReadOptions, splits_of
from kindcast.spark_jobs.report import silent
from kindcast.spark_jobs.snapshot import write_snapshot
from tests.harness.vocabularies import declared_in
from tests.oracle import World
from tests.strategies import events, expressions, vocabulary_of, worlds

Example = tuple[World, list[Expression], list[Event]]
EXAMPLES_OF_ONE_JOB = 8
SHARDS = 2

examples = st.tuples(
    worlds(),
    st.lists(expressions(), min_size=4, max_size=10),
    st.lists(events(), min_size=3, max_size=8),
)


@given(drawn=st.lists(examples, min_size=EXAMPLES_OF_ONE_JOB, max_size=EXAMPLES_OF_ONE_JOB))
@settings(max_examples=settings.default.max_examples // 3)
def test_spark_over_random_archives_decides_as_the_matcher(drawn: list[Example], spark: SparkSession) -> None:
    """Each event of each archive goes to the same subscriptions, whichever shard they are in, asked together or one
    after the other."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        expected: dict[str, set[str]] = {}
        units = []
        for number, example in enumerate(drawn):
            archive, wanted = prepared(example, folder / str(number), number)
            expected |= wanted
            snapshot = snapshot_of(example, folder / str(number))
            (split,) = splits_of(str(archive))
            groups = ((0, 1),) if number % 2 else ((0,), (1,))
            for group in groups:
                work = partial(match_unit, split, snapshot, group, Chosen(), ReadOptions(), NONE_REPEATED)
                units.append((f"{number}x{group[0]}", partial(work, first=group[0] == 0, parts=False)))
        output = Output(folder / "out")
        with output.locked():
            output.commit(run_units(spark, output, units, "match", silent))
        found: dict[str, set[str]] = {}
        for row in pq.read_table(folder / "out", columns=["id", "subscriptions"]).to_pylist():
            found.setdefault(row["id"], set()).update(row["subscriptions"])
        assert found == expected


def snapshot_of(example: Example, folder: Path) -> Any:
    world, asked, _ = example
    subscriptions = [(f"s{number}", to_tree(expression)) for number, expression in enumerate(asked)]
    ontologies = vocabulary_of(world).ontologies
    declared = declared_in(world)
    return write_snapshot(folder / "snapshot", ontologies, subscriptions, declarations=declared, shards=SHARDS)


def prepared(example: Example, folder: Path, number: int) -> tuple[Path, dict[str, set[str]]]:
    """The archive of an example, and who gets each event by its id, as the matcher has it."""
    world, asked, published = example
    folder.mkdir()
    matcher = Matcher(vocabulary_of(world))
    for place, expression in enumerate(asked):
        matcher.add(f"s{place}", to_tree(expression))
    expected = {}
    with (folder / "events.ndjson").open("w", encoding="utf-8") as file:
        for place, event in enumerate(published):
            context = {"source": "/s", "type": "t", **event.context, "specversion": "1.0", "id": f"{number}:{place}"}
            file.write(json.dumps({**context, "data": event.data}) + "\n")
            expected[context["id"]] = {match.subscription for match in matcher.match(Event(event.data, context))}
    return folder / "events.ndjson", expected
