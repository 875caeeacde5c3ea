"""Pairs of subscription and event, decided by the oracle and by every way into the product, must agree.

world ─▶ so many expressions × so many events ─▶ oracle, once
                                              ├─▶ match, match_batch, match_table      one matcher
                                              ├─▶ HTTP: import, publish, pull          one application
                                              └─▶ Spark                                several worlds in one job

Worlds, expressions and events are those of `tests/strategies.py`: nested, with several values, with units. Each world
has its own, drawn from the seed and the world's number. What was done is kept after each job, and a run that was broken
off goes on. A disagreement is kept as a line of JSON with subscription, event and what each way said.
"""

import argparse
import asyncio
import json
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast
from unittest.mock import patch

import pyarrow.parquet as pq
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from kindcast import Matcher
from kindcast.semantic.language import to_text, to_tree
from kindcast.semantic.model import Event, Expression
from kindcast.semantic.ontology.records import encode
from kindcast.server.broker.documents import DocumentReader, Read
from kindcast.spark_jobs.match import NONE_REPEATED, Chosen, match_unit
from kindcast.spark_jobs.output import Output, run_units
from kindcast.spark_jobs.reading import ReadOptions, splits_of
from kindcast.spark_jobs.report import silent
from kindcast.spark_jobs.snapshot import write_snapshot
from tests.campaigns.campaign import STATE, Outcome, Told
from tests.harness.application import running_application
from tests.harness.spark import running_spark
from tests.harness.vocabularies import declared_in, vocabulary_of
from tests.oracle import World, matching
from tests.strategies import events, expressions, worlds

__all__ = [
    "ABOUT", "WAYS", "Disagreement", "Drawing", "World", "add_options", "compare", "drawing", "drawn", "named",
    "remembering", "run", "run_worlds",
]  # fmt: skip

ABOUT = "generated pairs of subscription and event agree with the oracle through every way into the product"
WAYS = ("match", "match_batch", "match_table", "http", "spark")
TOLD_AT_MOST = 100
"""Disagreements that are kept; more add nothing to see."""

T = TypeVar("T")
Answers = list[set[str]]
"""For each event, the names of the subscriptions that it matches."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Sizes; a world has subscriptions × events pairs."""
    parser.add_argument("--pairs", type=int, default=10_000_000, help="pairs in all")
    parser.add_argument("--subscriptions", type=int, default=200, help="of each world")
    parser.add_argument("--events", type=int, default=200, help="of each world")
    parser.add_argument("--together", type=int, default=20, help="worlds in one Spark job")
    parser.add_argument("--ways", default=",".join(WAYS), help="some of %(default)s")
    parser.add_argument("--world", type=int, help="this world alone, with nothing kept")


@dataclass(frozen=True, slots=True)
class Drawing:
    """One world with its subscriptions and events, and what the oracle says of them."""

    number: int
    world: World
    asked: dict[str, Expression]
    published: list[Event]
    expected: Answers
    forms: Sequence[str] = ()
    """How each event is written, where that is not alike."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One pair."""

    world: int
    way: str
    subscription: str
    tree: Any
    event: Mapping[str, Any]
    oracle: bool
    said: bool


# ── drawing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def drawn(strategy: st.SearchStrategy[T], count: int, number: int) -> list[T]:
    """So many values, the same ones for the same number. Hypothesis begins with the simplest, so they are shuffled."""
    found: list[T] = []

    @seed(number)
    @settings(
        max_examples=count + 20,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    @given(strategy)
    def draw(value: T) -> None:
        found.append(value)

    cast("Callable[[], None]", draw)()
    random.Random(number).shuffle(found)
    return found[:count]


def drawing(number: int, first: int, subscriptions: int, published: int) -> Drawing:
    """World `number` of the run with seed `first`."""
    own = first * 1_000_003 + number
    world = remembering(drawn(worlds(), 5, own)[0])
    asked = {f"s{place}": each for place, each in enumerate(drawn(expressions(), subscriptions, own + 1))}
    found = [named(each, place) for place, each in enumerate(drawn(events(), published, own + 2))]
    return Drawing(number, world, asked, found, [matching(asked, event, world) for event in found])


def named(event: Event, place: int) -> Event:
    """`event` as a server takes it: with all that a CloudEvent has, whichever way it goes."""
    return Event(event.data, {"specversion": "1.0", "id": str(place), "source": "/s", "type": "t", **event.context})


PURE = (
    *("concepts", "above", "same", "isa", "kinds", "related", "readings", "successor", "root_word", "members"),
    *("is_above", "inside", "attribute", "broader", "declaration"),
)


class _RememberingWorld(World):
    """A world that works out nothing twice. What it says is what `World` says."""


def _remember(name: str) -> None:
    method = getattr(World, name)

    def remembered(self: World, *arguments: Any) -> Any:
        kept = self.__dict__.setdefault("_kept", {})
        key = name, *(frozenset(each) if isinstance(each, set) else each for each in arguments)
        if key not in kept:
            kept[key] = method(self, *arguments)
        return kept[key]

    setattr(_RememberingWorld, name, remembered)


for _name in PURE:
    _remember(_name)


def remembering(world: World) -> World:
    """The same world."""
    return _RememberingWorld(**{each.name: getattr(world, each.name) for each in fields(World)})


# ── the ways ────────────────────────────────────────────────────────────────────────────────────────────────────────


def by_library(drawing: Drawing, ways: Sequence[str]) -> dict[str, Answers]:
    """`match`, `match_batch` and `match_table` of one matcher."""
    matcher = Matcher(vocabulary_of(drawing.world))
    matcher.add_many((name, to_tree(expression)) for name, expression in drawing.asked.items())
    published = drawing.published
    found: dict[str, Answers] = {}
    if "match" in ways:
        found["match"] = [{match.subscription for match in matcher.match(event)} for event in published]
    if "match_batch" in ways:
        found["match_batch"] = [{match.subscription for match in each} for each in matcher.match_batch(published)]
    if "match_table" in ways:
        rows = [{**event.data, **{f"ce.{key}": value for key, value in event.context.items()}} for event in published]
        names = {name: None for row in rows for name in row}
        table = matcher.match_table({name: [row.get(name) for row in rows] for name in names})
        ends = zip(table.offsets, table.offsets[1:], strict=False)
        found["match_table"] = [set(table.subscriptions(table.slots[low:high])) for low, high in ends]
    return found


@contextmanager
def reading(world: World) -> Iterator[None]:
    """Whatever is uploaded is this world: the documents that it could be written as are other tests' business."""
    (ontology,) = vocabulary_of(world).ontologies

    async def read(*_: Any, **__: Any) -> Read:
        await asyncio.sleep(0)
        return Read(ontology=ontology, records=encode(ontology))

    with patch.object(DocumentReader, "read", read):
        yield


def by_http(drawing: Drawing) -> Answers:
    """Uploaded, declared, imported, published in one batch, pulled by each subscription."""
    with (
        tempfile.TemporaryDirectory() as folder,
        reading(drawing.world),
        running_application(Path(folder), plugins=False) as client,
    ):
        relations = ",".join(drawing.world.relations)
        answer = client.put("/v1/ontologies/world", content=b"-", params={"relations": relations, "format": "ttl"})
        assert answer.status_code == 201, answer.text
        declared = declared_in(drawing.world)
        calls = [(f"attributes/{name}", body) for name, body in declared["attributes"].items()]
        calls += [("synonyms/world", declared["synonyms"])] if declared["synonyms"] else []
        for kind, route in (("code_systems", "code-systems"), ("aliases", "aliases"), ("unions", "relations")):
            calls += [(f"{route}/{name}", body) for name, body in declared.get(kind, {}).items()]
        for path, body in calls:
            answer = client.put(f"/v1/{path}", json=body)
            assert answer.status_code == 201, answer.text
        lines = [json.dumps({"id": name, "where": to_tree(each)}) for name, each in drawing.asked.items()]
        answer = client.post("/v1/subscriptions/import", content="\n".join(lines))
        assert not answer.json()["rejected"], answer.json()["rejected"][:3]
        ids = {each["was"]: each["id"] for each in answer.json()["created"]}
        batch = [{**event.context, "data": event.data} for event in drawing.published]
        headers = {"Content-Type": "application/cloudevents-batch+json"}
        answer = client.post("/v1/events", content=json.dumps(batch), headers=headers)
        assert answer.json()["accepted"] == len(batch), answer.text[:1_000]
        found: Answers = [set() for _ in batch]
        for name, id in ids.items():
            page = client.get(f"/v1/subscriptions/{id}/events", params={"after": "0", "limit": 1_000}).json()
            for message in page["events"]:
                found[int(message["event"]["id"])].add(name)
    return found


def by_spark(drawings: Sequence[Drawing], session: SparkSession, folder: Path) -> dict[int, Answers]:
    """A job over the archives of several worlds, each with its snapshot in two shards."""
    units = []
    for each in drawings:
        own = folder / str(each.number)
        own.mkdir(parents=True)
        vocabulary = vocabulary_of(each.world)
        trees = [(name, to_tree(expression)) for name, expression in each.asked.items()]
        declared = declared_in(each.world)
        snapshot = write_snapshot(own / "snapshot", vocabulary.ontologies, trees, declarations=declared, shards=2)
        lines = [
            json.dumps({**event.context, "id": f"{each.number}:{event.context['id']}", "data": event.data})
            for event in each.published
        ]
        (own / "events.ndjson").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (split,) = splits_of(str(own / "events.ndjson"))
        work = partial(match_unit, split, snapshot, (0, 1), Chosen(), ReadOptions(), NONE_REPEATED)
        units.append((str(each.number), partial(work, first=True, parts=False)))
    output = Output(folder / "out")
    with output.locked():
        output.commit(run_units(session, output, units, "match", silent))
    found = {each.number: [set[str]() for _ in each.published] for each in drawings}
    for row in pq.read_table(folder / "out", columns=["id", "subscriptions"]).to_pylist():
        number, _, place = row["id"].partition(":")
        found[int(number)][int(place)] |= set(row["subscriptions"])
    return found


# ── comparing ───────────────────────────────────────────────────────────────────────────────────────────────────────


def compare(drawings: Sequence[Drawing], ways: Sequence[str], session: SparkSession | None) -> Iterator[Disagreement]:
    """Every pair on which some way and the oracle disagree."""
    spark: dict[int, Answers] = {}
    if "spark" in ways and session is not None:
        with tempfile.TemporaryDirectory() as folder:
            spark = by_spark(drawings, session, Path(folder))
    for each in drawings:
        found = by_library(each, ways)
        if "http" in ways:
            found["http"] = by_http(each)
        if each.number in spark:
            found["spark"] = spark[each.number]
        for way, answers in found.items():
            for event, wanted, got in zip(each.published, each.expected, answers, strict=True):
                for name in sorted(wanted ^ got):
                    tree = to_tree(each.asked[name])
                    said = {"data": event.data, "context": dict(event.context)}
                    text = to_text(each.asked[name])
                    yield Disagreement(each.number, way, text, tree, said, name in wanted, name in got)


def run(options: Any, told: Told) -> Outcome:
    """As many worlds as make so many pairs."""
    return run_worlds("agreement", options, told, drawing)


def run_worlds(name: str, options: Any, told: Told, draw: Callable[[int, int, int, int], Drawing]) -> Outcome:
    """The worlds of a campaign of this name, each as `draw` has it from number, seed, and sizes."""
    ways = tuple(options.ways.split(","))
    of_one = options.subscriptions * options.events
    numbers = range(-(-options.pairs // of_one)) if options.world is None else range(options.world, options.world + 1)
    sizes = {"seed": options.seed, "subscriptions": options.subscriptions, "events": options.events, "ways": ways}
    place = STATE / f"{name}-{options.seed}.json"
    kept: dict[str, Any] = {
        "sizes": json.loads(json.dumps(sizes)),
        "worlds": 0,
        "matches": 0,
        "documents": 0,
        "disagreements": [],
    }
    if options.world is None and place.exists():
        before = json.loads(place.read_text(encoding="utf-8"))
        kept = before if before["sizes"] == kept["sizes"] else kept
    with contextmanager(_session)("spark" in ways) as session:
        for start in range(kept["worlds"] if options.world is None else numbers[0], numbers[-1] + 1, options.together):
            some = []
            for number in range(start, min(start + options.together, numbers[-1] + 1)):
                some.append(draw(number, options.seed, options.subscriptions, options.events))
                told(number * of_one, len(numbers) * of_one, f"{number * of_one:,} pairs, {_wrong(kept)}")
            for each in compare(some, ways, session):
                if len(kept["disagreements"]) < TOLD_AT_MOST:
                    kept["disagreements"].append({name: getattr(each, name) for name in Disagreement.__slots__})
            kept["worlds"] = start + len(some)
            kept["matches"] += sum(len(names) for each in some for names in each.expected)
            kept["documents"] += sum(len(each.published) for each in some)
            if options.world is None:
                STATE.mkdir(parents=True, exist_ok=True)
                place.write_text(json.dumps(kept, ensure_ascii=False, default=str), encoding="utf-8")
    pairs = (kept["worlds"] if options.world is None else 1) * of_one
    told(pairs, pairs, f"{pairs:,} pairs, {_wrong(kept)}")
    worlds = pairs // of_one
    within = f"{worlds:,} worlds" if worlds != 1 else "1 world"
    matches = f"{kept['matches']:,} matches of {kept['documents']:,} documents"
    summary = f"{pairs:,} pairs in {within}, {matches}; {', '.join(ways)}"
    failures = [json.dumps(each, ensure_ascii=False, default=str) for each in kept["disagreements"]]
    return Outcome(f"{summary}: {_wrong(kept)}", failures, kept=options.world is None)


def _wrong(kept: Mapping[str, Any]) -> str:
    return f"{len(kept['disagreements'])} disagreements" if kept["disagreements"] else "no disagreement"


def _session(wanted: bool) -> Iterator[SparkSession | None]:
    if not wanted:
        yield None
        return
    with running_spark() as session:
        yield session
