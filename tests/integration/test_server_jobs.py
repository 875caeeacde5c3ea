"""Uploads that are answered before they are read: jobs, how far they are, what comes of them, how they end."""

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from kindcast import Client
from kindcast.semantic import ontology
from tests.harness.application import problem_code, running_application
from tests.harness.server_thread import running_app
from tests.harness.waiting import until

PREFIXES = "@prefix : <http://example.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> ."
COMPUTERS = PREFIXES + ":Laptop rdfs:subClassOf :Computer ."
TURTLE = {"Content-Type": "text/turtle"}
ASYNC = {**TURTLE, "Prefer": "respond-async"}
PATIENCE_SECONDS = 300.0


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with running_application(tmp_path) as client:
        yield client


def classes(count: int) -> bytes:
    """A document of so many classes that reading it takes a while."""
    lines = (f":C{number} rdfs:subClassOf :C{number // 2} ; rdfs:label 'class {number}' ." for number in range(count))
    return (PREFIXES + "\n".join(lines)).encode()


def put(client: httpx.Client, name: str, document: bytes | str, **params: Any) -> httpx.Response:
    content = document if isinstance(document, bytes) else document.encode()
    return client.put(f"/v1/ontologies/{name}", content=content, headers=ASYNC, params=params)


def ended(client: httpx.Client, location: str) -> Any:
    """The job once it is no longer running."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        job = client.get(location).json()
        if job["status"] != "running":
            return job
        assert time.monotonic() < deadline, job
        time.sleep(0.02)


def test_put_that_prefers_not_to_wait_is_a_job(client: httpx.Client) -> None:
    """202 at once with the job's address; in the end it holds what the request would have been answered."""
    answer = put(client, "computers", COMPUTERS)
    assert answer.status_code == 202
    assert answer.headers["preference-applied"] == "respond-async"
    job = answer.json()
    assert answer.headers["location"] == f"/v1/jobs/{job['id']}"
    assert job["status"] == "running"
    assert set(job["progress"]) == {"stage", "done", "total"}
    done = ended(client, answer.headers["location"])
    assert (done["status"], done["result"]["version"], done["result"]["concepts"]) == ("done", 1, 2)
    assert "problem" not in done
    again = ended(client, put(client, "computers", COMPUTERS).headers["location"])
    assert again["result"]["version"] == 1


@pytest.mark.parametrize("prefer", ["wait=10", "respond-sync", ""])
def test_put_with_other_preferences_waits(client: httpx.Client, prefer: str) -> None:
    """Only the one preference is honoured; the others are ignored, as preferences may be."""
    headers = {"Content-Type": "text/turtle", "Prefer": prefer}
    answer = client.put("/v1/ontologies/x", content=COMPUTERS.encode(), headers=headers)
    assert answer.status_code == 201
    assert "preference-applied" not in answer.headers


def test_job_that_fails_holds_the_problem(client: httpx.Client) -> None:
    """The same problem that waiting would have been answered with, and the old version goes on serving."""
    ended(client, put(client, "computers", COMPUTERS).headers["location"])
    before = client.get("/v1/ontologies").json()
    job = ended(client, put(client, "computers", "@prefix : broken").headers["location"])
    assert job["status"] == "failed"
    assert job["problem"]["type"].endswith("/malformed-ontology")
    assert (job["problem"]["status"], job["problem"]["errors"][0]["line"]) == (400, 1)
    assert client.get("/v1/ontologies").json() == before


def test_job_that_is_not_known_is_not_found(client: httpx.Client) -> None:
    """Never begun, or forgotten."""
    answer = client.get("/v1/jobs/job_0000000000000000")
    assert (answer.status_code, problem_code(answer)) == (404, "unknown-job")


def test_jobs_beyond_the_number_that_is_kept_are_forgotten(tmp_path: Path) -> None:
    """The oldest go first; what is still asked for by nobody does not fill the memory."""
    with running_application(tmp_path, max_jobs=2) as client:
        locations = []
        for number in range(4):
            location = put(client, f"x{number}", COMPUTERS).headers["location"]
            ended(client, location)
            locations.append(location)
        found = [client.get(location).status_code for location in locations]
    assert found == [404, 404, 200, 200]


def test_jobs_older_than_their_time_are_forgotten(tmp_path: Path) -> None:
    """And so is what ended long ago."""
    with running_application(tmp_path, job_seconds=1e-6) as client:
        location = put(client, "x", COMPUTERS).headers["location"]
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (answer := client.get(location)).status_code == 200 and time.monotonic() < deadline:
            assert answer.json()["status"] == "running"
    assert problem_code(answer) == "unknown-job"


def test_job_progress_tells_stages_and_counts(tmp_path: Path) -> None:
    """A large document: the stages come in their order, and the numbers grow. Requests of a client can miss a stage;
    that none is left out is in `tests/unit/semantic/test_ontology_isolation.py`."""
    seen: list[tuple[str, int]] = []
    with running_app(tmp_path) as url, Client(url) as client:
        job = client.start_ontology("large", classes(25_000), format="turtle")
        while job["status"] == "running":
            step = (job["progress"]["stage"], job["progress"]["done"])
            if not seen or seen[-1] != step:
                seen.append(step)
            time.sleep(0.01)
            job = client.job(job["id"])
        assert job["status"] == "done", job
        assert job["result"]["concepts"] == 25_000
    order = ["wait", "unpack", "parse", "extract", "encode", "decode", "build", "compile"]
    stages = [stage for stage, _ in seen]
    assert stages == sorted(stages, key=order.index)
    assert len(set(stages)) >= 3, seen
    assert seen == sorted(seen, key=lambda step: (order.index(step[0]), step[1]))


def test_upload_while_too_many_wait_is_told_to_come_later(tmp_path: Path) -> None:
    """Each document that waits is in memory, so there are so many and no more; waiting requests count as well."""
    with running_app(tmp_path, max_queue_ontologies=1) as url, httpx.Client(base_url=url) as client:
        first = put(client, "large", classes(20_000))
        second = put(client, "other", COMPUTERS)
        assert (second.status_code, problem_code(second)) == (503, "busy")
        assert second.headers["retry-after"]
        assert ended(client, first.headers["location"])["status"] == "done"
        assert put(client, "other", COMPUTERS).status_code == 202


@pytest.mark.parametrize("headers", [ASYNC, {"Content-Type": "text/turtle"}])
def test_large_uploads_leave_room_for_all_other_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]
) -> None:
    """Two that nearly take all bytes that bodies may have, while they are read: the second is told to come later, and
    small ones and events are accepted."""
    began, go_on, read = threading.Event(), threading.Event(), ontology.read_encoded

    def wait(document: bytes, **more: Any) -> bytes:
        began.set()
        assert go_on.wait(PATIENCE_SECONDS)
        return read(document, **more)

    monkeypatch.setattr(ontology, "read_encoded", wait)
    whole, second = 8 << 20, (4 << 20) - 20_000
    with running_app(tmp_path, max_reading_bytes=whole, ontology_readers=2) as url, ThreadPoolExecutor(2) as threads:

        def upload(name: str, size: int) -> httpx.Response:
            content = COMPUTERS.encode() + b"\n#" + b"x" * (size - len(COMPUTERS) - 2)
            path = f"{url}/v1/ontologies/{name}"
            return httpx.put(path, content=content, headers=headers, timeout=PATIENCE_SECONDS)

        try:
            first = threads.submit(upload, "first", whole - second)
            assert began.wait(PATIENCE_SECONDS)
            refused = upload("second", second)
            assert (refused.status_code, problem_code(refused)) == (503, "busy")
            small = threads.submit(upload, "small", 1_000)
            event = httpx.post(f"{url}/v1/events", json={"text": "x" * 60_000}, timeout=PATIENCE_SECONDS)
            assert event.status_code == 202, event.text
        finally:
            go_on.set()
        assert first.result().status_code == small.result().status_code in (201, 202)
        # An ontology is listed before its job has ended.
        until(lambda: upload("second", second).status_code in (201, 202))


def test_upload_whose_client_has_left_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it waits, and while it is read. The document of a job is read nevertheless."""
    began, go_on, names, read = threading.Event(), threading.Event(), list[str](), ontology.read_encoded

    def wait(document: bytes, **more: Any) -> bytes:
        names.append(more["name"])
        began.set()
        assert go_on.wait(PATIENCE_SECONDS)
        return read(document, **more)

    def leave(url: str, name: str, document: bytes) -> None:
        with suppress(httpx.ReadTimeout):
            httpx.put(f"{url}/v1/ontologies/{name}", content=document, headers=TURTLE, timeout=httpx.Timeout(9, read=1))

    monkeypatch.setattr(ontology, "read_encoded", wait)
    with running_app(tmp_path, ontology_readers=1) as url, httpx.Client(base_url=url) as client:
        first = put(client, "first", COMPUTERS).headers["location"]
        assert began.wait(PATIENCE_SECONDS)
        leave(url, "waits", COMPUTERS.encode())
        last = put(client, "last", COMPUTERS).headers["location"]
        go_on.set()
        assert [ended(client, each)["status"] for each in (first, last)] == ["done", "done"]
        assert names == ["first", "last"]
        leave(url, "large", classes(30_000))
        until(lambda: _children() == [])
        assert [each["name"] for each in client.get("/v1/ontologies").json()["ontologies"]] == ["first", "last"]


def test_upload_beyond_the_processor_time_is_refused_and_the_server_serves_on(tmp_path: Path) -> None:
    """The limit is a setting; crossing it is an error of the document, not of the server."""
    with running_app(tmp_path, ontology_cpu_seconds=0.01) as url, httpx.Client(base_url=url, timeout=60) as client:
        answer = client.put("/v1/ontologies/large", content=classes(50_000), headers={"Content-Type": "text/turtle"})
        assert (answer.status_code, problem_code(answer)) == (422, "ontology-too-costly")
        assert answer.json()["limit"] == "cpu"
        assert client.get("/v1/ontologies").json()["ontologies"] == []
        assert client.get("/readyz").status_code == 200


def test_other_ontologies_are_changed_while_a_large_one_is_read(tmp_path: Path) -> None:
    """Reading holds nobody up: a small upload overtakes a large one."""
    with running_app(tmp_path) as url, httpx.Client(base_url=url) as client:
        slow = put(client, "large", classes(30_000)).headers["location"]
        quick = put(client, "computers", COMPUTERS).headers["location"]
        ended(client, quick)
        assert client.get(slow).json()["status"] == "running"
        assert ended(client, slow)["status"] == "done"


def test_server_that_stops_ends_what_is_being_read(tmp_path: Path) -> None:
    """Stopping does not wait for documents, and leaves no child behind."""
    before = threading.active_count()
    with running_app(tmp_path) as url, httpx.Client(base_url=url) as client:
        put(client, "large", classes(200_000))
    assert _children() == []
    assert threading.active_count() <= before + 1


def _children() -> list[str]:
    """Processes begun by this one that read documents."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if int(parent) == os.getpid() and b"semantic/ontology/child.py" in command:
            found.append(folder.name)
    return found
