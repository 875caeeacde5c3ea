"""Backtests over HTTP: counts, days, samples, what cuts; other versions; what is refused."""

import asyncio
import json
import sqlite3
import time
from collections import Counter
from collections.abc import Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from kindcast import Client, ProblemError
from kindcast.semantic.ontology import Progress
from kindcast.server import backtests
from kindcast.server.backtests import WAITING, Asked, Backtests
from kindcast.server.errors import StoreUnavailable
from kindcast.server.store import events as store_events
from kindcast.server.store.database import Database
from tests.harness.application import problem_code, running_application

PREFIXES = "@prefix : <http://example.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> ."
FIRST = PREFIXES + ":Laptop rdfs:subClassOf :Computer . :Phone a rdfs:Class ."
SECOND = FIRST + ":Phone rdfs:subClassOf :Computer ."
PATIENCE_SECONDS = 60.0


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    """A server with two versions of an ontology, the second in force, and 300 events on three days."""
    with running_application(tmp_path) as client:
        for document in (FIRST, SECOND):
            answer = client.put("/v1/ontologies/shop", content=document, headers={"Content-Type": "text/turtle"})
            assert answer.status_code == 201, answer.text
        kinds = ("Laptop", "Phone", "Sofa")
        events = [
            {
                "specversion": "1.0",
                "id": str(n),
                "source": "/shop",
                "type": "offer",
                "time": f"2026-01-0{1 + n % 3}T12:00:00Z",
                "data": {"target": kinds[n % 3], "price": n},
            }
            for n in range(300)
        ]
        headers = {"Content-Type": "application/cloudevents-batch+json"}
        assert client.post("/v1/events", json=events, headers=headers).json()["accepted"] == 300
        yield client


def backtested(client: httpx.Client, **body: Any) -> Any:
    """What came of a backtest."""
    answer = client.post("/v1/backtests", json=body)
    assert answer.status_code == 202, answer.text
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        job = client.get(answer.headers["location"]).json()
        if job["status"] != "running":
            assert job["status"] == "done", job
            return job["result"]
        assert time.monotonic() < deadline, job
        time.sleep(0.02)


def test_backtest_counts_by_day_with_samples_and_what_cuts(client: httpx.Client) -> None:
    """Of 300 events 200 are computers now, 100 cost less than 100; 67 are both."""
    report = backtested(client, expression="target isa Computer and price < 100")
    assert (report["events"], report["matched"], report["unreadable"]) == (300, 67, 0)
    assert report["days"] == [
        {"day": "2026-01-01", "events": 100, "matched": 34},
        {"day": "2026-01-02", "events": 100, "matched": 33},
        {"day": "2026-01-03", "events": 100, "matched": 0},
    ]
    kind, cheap = report["clauses"][0]["predicates"]
    assert (kind["holds"], kind["left"], kind["cuts"]) == (200, 200, 33)
    assert (cheap["holds"], cheap["left"], cheap["cuts"]) == (100, 67, 133)
    assert len(report["samples"]) == 10
    for sample in report["samples"]:
        assert sample["data"]["price"] < 100
        assert sample["explanation"]["matches"]


def test_backtest_under_another_version_says_what_would_have_matched_then(client: httpx.Client) -> None:
    """Phones were no computers in the first version."""
    assert backtested(client, expression="target isa Computer")["matched"] == 200
    report = backtested(client, where={"isa": ["target", "Computer"]}, ontologies={"shop": 1})
    assert report["matched"] == 100
    assert client.get("/v1/ontologies").json()["vocabulary_version"] != report["vocabulary_version"]


def test_backtest_between_two_moments_looks_at_no_other_events(client: httpx.Client) -> None:
    """By the time at which the server accepted them."""
    assert backtested(client, expression="", until="2020-01-01T00:00:00Z")["events"] == 0
    assert backtested(client, expression="", since="2020-01-01T00:00:00Z")["matched"] == 300


def test_backtest_counts_damaged_events_and_reads_the_others(client: httpx.Client, tmp_path: Path) -> None:
    """The answer is about the rest, and says so."""
    with closing(sqlite3.connect(tmp_path / "kindcast.db")) as store, store:
        store.execute("UPDATE events SET body = replace(body, 'Laptop', 'Phone') WHERE sequence IN (1, 4, 300)")
    report = backtested(client, expression="target isa Computer")
    assert (report["events"], report["matched"], report["unreadable"]) == (298, 198, 2)
    assert "event 4" in client.get("/readyz").json()["warning"]


def test_large_events_are_written_for_spark_in_small_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has one file in memory at a time. It was one file for 50,000 events, whatever their size."""
    written: list[int] = []

    async def no_job(*_: Any, **__: Any) -> None:
        await asyncio.sleep(0)
        raise OSError("no job is started here")

    monkeypatch.setattr(store_events, "PAGE_BYTES", 1_000)
    monkeypatch.setattr(backtests, "FILE_BYTES", 3_000)
    monkeypatch.setattr(pq, "write_table", lambda table, _: written.append(len(table)))
    monkeypatch.setattr(asyncio, "create_subprocess_exec", no_job)
    with running_application(tmp_path, backtest_events=1) as client:
        lines = json.dumps({"name": "x" * 1_000}) + "\n"
        headers = {"Content-Type": "application/x-ndjson"}
        assert client.post("/v1/events", content=lines * 10, headers=headers).json()["accepted"] == 10
        job = client.post("/v1/backtests", json={"expression": ""}).json()
        while job["status"] == "running":
            time.sleep(0.02)
            job = client.get(f"/v1/backtests/{job['id']}").json()
    assert written == [3, 3, 3, 1]


def test_events_that_a_killed_server_wrote_for_spark_are_removed_at_the_next_start(tmp_path: Path) -> None:
    """Otherwise they would outlive the retention, and fill the disk."""
    left = tmp_path / "backtest-x1" / "events"
    left.mkdir(parents=True)
    (left / "000000.parquet").write_bytes(b"events")
    with running_application(tmp_path):
        assert not list(tmp_path.glob("backtest-*"))


@pytest.mark.parametrize("backtest_events", [1, 1_000])
@pytest.mark.parametrize("is_early", [True, False])
def test_backtest_of_a_server_that_stops_has_no_result_of_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backtest_events: int, is_early: bool
) -> None:
    """Other servers of the database would show it as the whole result. No job of Spark begins."""
    run, begun = Backtests.run, []

    async def stopped(self: Backtests, asked: Asked, progress: Progress) -> dict[str, Any]:
        def stop_at(stage: str, done: int, total: int | None) -> None:
            if done:
                self.stop()

        if is_early:
            self.stop()
        return await run(self, asked, stop_at)

    async def no_job(*_: Any, **__: Any) -> None:
        begun.append("job")
        await asyncio.sleep(0)
        raise OSError("no job is started here")

    monkeypatch.setattr(Backtests, "run", stopped)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", no_job)
    monkeypatch.setattr(store_events, "PAGE_BYTES", 1)
    monkeypatch.setattr(backtests, "FILE_BYTES", 1)
    with running_application(tmp_path, backtest_events=backtest_events) as client:
        for number in range(4):
            assert client.post("/v1/events", json={"n": number}).status_code == 202
        job = client.post("/v1/backtests", json={"expression": ""}).json()
        while job["status"] == "running":
            time.sleep(0.02)
            job = client.get(f"/v1/backtests/{job['id']}").json()
    assert (job["status"], begun) == ("failed", [])
    assert "the server is stopping" in job["problem"]["detail"]


def test_backtest_while_the_database_is_away_is_refused_at_once(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not accepted, and failed afterwards."""

    def away(*_: object) -> None:
        raise StoreUnavailable("the database cannot be reached")

    monkeypatch.setattr(Database, "read", away)
    answer = client.post("/v1/backtests", json={"expression": "target isa Computer"})
    assert (answer.status_code, problem_code(answer)) == (503, "store-unavailable")
    assert "retry-after" in answer.headers


def test_backtests_at_the_same_time_do_not_get_around_their_number(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All were checked before one of them began."""
    check, arrived, answered = Backtests.check, 0, Event()

    async def together(self: Backtests, asked: Asked, client: Hashable) -> None:
        nonlocal arrived
        await check(self, asked, client)
        arrived += 1
        while arrived < 12:
            await asyncio.sleep(0.001)

    async def run(self: Backtests, asked: Asked, progress: Progress) -> dict[str, Any]:
        assert await asyncio.to_thread(answered.wait, PATIENCE_SECONDS)
        return {}

    monkeypatch.setattr(Backtests, "run", run)
    monkeypatch.setattr(Backtests, "check", together)
    with ThreadPoolExecutor(12) as threads:
        asked = [threads.submit(client.post, "/v1/backtests", json={"expression": "price < 3"}) for _ in range(12)]
        statuses = Counter(each.result().status_code for each in asked)
    answered.set()
    assert statuses == {202: WAITING, 503: 12 - WAITING}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 422, "invalid-request"),
        ({"expression": "a = 1", "where": {}}, 422, "invalid-request"),
        ({"expression": "a = 1", "wher": {}}, 422, "invalid-request"),
        ({"expression": "target isa Gizmo"}, 422, "invalid-subscription"),
        ({"expression": "a = 1", "since": "yesterday"}, 422, "invalid-request"),
        ({"expression": "a = 1", "ontologies": {"shop": 9}}, 404, "unknown-ontology"),
        ({"expression": "a = 1", "ontologies": {"shop": "one"}}, 422, "invalid-request"),
        ({"expression": "a = 1", "ontologies": {"shop": 2**63}}, 422, "invalid-request"),
    ],
)
def test_backtest_that_makes_no_sense_is_refused_at_once(
    client: httpx.Client, body: dict[str, Any], status: int, code: str
) -> None:
    """Before a job is begun."""
    answer = client.post("/v1/backtests", json=body)
    assert (answer.status_code, problem_code(answer)) == (status, code)


@pytest.mark.parametrize("name", ["since", "until"])
def test_backtest_with_a_date_for_a_time_shows_how_a_time_is_written(client: httpx.Client, name: str) -> None:
    """A day has no time zone, so it is no limit. The example is accepted."""
    told = client.post("/v1/backtests", json={"expression": "", name: "2026-11-01"}).json()["detail"]
    assert told == f"`{name}` must be a date-time of RFC 3339, such as 2026-01-31T00:00:00Z"
    assert client.post("/v1/backtests", json={"expression": "", name: told.split()[-1]}).is_success


def test_backtest_calls_the_built_in_operators(client: httpx.Client) -> None:
    """A condition that no index decides: the texts of two kinds are like "laptop" and like nothing else."""
    report = backtested(client, expression='price < 30 and similar("Laptop", @target, ?score) and ?score > 0.9')
    assert (report["matched"], report["undecided"]) == (10, 0)


def test_client_backtests_and_meets_an_unknown_job(client: httpx.Client) -> None:
    """The Python client has both calls."""
    sender = Client("http://127.0.0.1", http=client)
    job = sender.start_backtest({"expression": "target isa Computer"}, lang="de")
    assert job["status"] in ("running", "done")
    with pytest.raises(ProblemError) as caught:
        sender.backtest("job_0")
    assert caught.value.status == 404


def test_records_of_an_ontology_can_be_fetched(client: httpx.Client) -> None:
    """What jobs outside the server read; there are none where no version is active."""
    from kindcast.semantic.ontology.records import decode

    records = client.get("/v1/ontologies/shop/records")
    assert "http://example.org/Phone" in {record.iri for record in decode(records.content).concepts}
    assert problem_code(client.get("/v1/ontologies/absent/records")) == "unknown-ontology"
