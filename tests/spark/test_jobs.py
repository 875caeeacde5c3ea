"""DataFrame functions, learning, backtests and the command line: the same answers whichever way one asks."""

import gzip
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from kindcast import Event, Matcher, Vocabulary
from kindcast.semantic.backtest import Backtest, PastEvent
from kindcast.semantic.ontology import encode, read
from kindcast.server.cli import main
from kindcast.server.cli import matching as matching_commands
from kindcast.server.cli import spark as spark_commands
from kindcast.server.cli.output import CommandFailed
from kindcast.spark_jobs import __main__ as commands
from kindcast.spark_jobs import output as output_module
from kindcast.spark_jobs.event_batch import EVENTS, EXPLODED, MATCHES, NORMALISED, QUARANTINE, spark_schema
from kindcast.spark_jobs.learn import learn_archive
from kindcast.spark_jobs.match import backtest_archive, match, match_archive
from kindcast.spark_jobs.normalise import normalise
from kindcast.spark_jobs.output import Output
from kindcast.spark_jobs.report import JobFailed, UnusableOutput
from kindcast.spark_jobs.snapshot import Inputs, Snapshot, forget_older, write_snapshot
from kindcast.spark_jobs.stream import quarantined, read_events, readable
from tests.harness.application import running_application, subscribe

SHOP = """@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix : <http://example.org/> .
:Laptop rdfs:subClassOf :Computer ; rdfs:label "Notebook"@de . :Tablet rdfs:subClassOf :Computer . :Sofa a rdfs:Class .
"""
ASKED = {"computers": "target isa Computer", "cheap": "target isa Computer and price < 100", "all": ""}
COUNT = 600
EVENT = {"target": "Notebook", "price": 500}


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    return write_snapshot(tmp_path / "snapshot", [read(SHOP.encode(), format="turtle")], ASKED.items())


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Two files, a line of the second is none."""
    (tmp_path / "raw").mkdir()
    events = [offer(n) for n in range(COUNT)]
    for number, part in enumerate((events[: COUNT // 2], events[COUNT // 2 :])):
        lines = [json.dumps(each) for each in part] + (["{"] if number else [])
        (tmp_path / "raw" / f"{number}.ndjson").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path / "raw"


def offer(n: int) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "id": str(n),
        "source": "/shop",
        "type": "offer",
        "time": f"2026-01-0{1 + n % 2}T00:00:00Z",
        "data": {"target": ("Notebook", "Tablet", "Sofa")[n % 3], "price": n},
    }


def wanted(n: int) -> list[str]:
    computer = n % 3 != 2
    return sorted(["all", *(["computers"] if computer else []), *(["cheap"] if computer and n < 100 else [])])


def test_functions_of_data_frames_have_their_schemas_and_compose(
    archive: Path, snapshot: Snapshot, spark: SparkSession
) -> None:
    """read → readable → match, exploded or not; normalise → match; quarantined."""
    raw = read_events(spark, str(archive)).persist()
    events, bad = readable(raw), quarantined(raw)
    assert (events.schema, bad.schema) == (spark_schema(EVENTS), spark_schema(QUARANTINE))
    assert [(row.file, row.line) for row in bad.collect()] == [("1.ndjson", COUNT // 2 + 1)]
    matched = match(events, snapshot)
    assert matched.schema == spark_schema(MATCHES)
    assert {int(row.id): sorted(row.subscriptions) for row in matched.collect()} == {n: wanted(n) for n in range(COUNT)}
    exploded = match(events, snapshot, explode=True)
    assert exploded.schema == spark_schema(EXPLODED)
    counts = {row.subscription: row["count"] for row in exploded.groupBy("subscription").count().collect()}
    assert counts == Counter(name for n in range(COUNT) for name in wanted(n))
    normalised = normalise(events, snapshot)
    assert normalised.schema == spark_schema(NORMALISED)
    first = normalised.where("id = '0'").collect()[0]
    assert first.attributes["target"][0].concepts == ["http://example.org/Laptop"]
    assert [(change.published, change.became, change.why) for change in first.changes] == [
        ("Notebook", "http://example.org/Laptop", "concept")
    ]
    again = match(normalised.selectExpr(*EVENTS.names[:5], "'x' file", "1L line"), snapshot)
    assert {int(row.id): sorted(row.subscriptions) for row in again.collect()} == {n: wanted(n) for n in range(COUNT)}
    raw.unpersist()


def test_normalised_values_keep_the_published_text_beside_the_root_word(tmp_path: Path, spark: SparkSession) -> None:
    """Whoever asks a normalised archive for texts finds what was published, as subscriptions do (rule 9)."""
    asked = {"packard": 'brand contains "Packard"', "hp": 'brand = "HP"', "none": 'not brand startswith "Hew"'}
    declared = {"synonyms": {"Hewlett-Packard": "HP"}}
    snapshot = write_snapshot(tmp_path / "snapshot", [], asked.items(), declarations=declared)
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"brand": "Hewlett-Packard"}}
    (tmp_path / "events.ndjson").write_text(json.dumps(event) + "\n", encoding="utf-8")
    events = readable(read_events(spark, str(tmp_path / "events.ndjson")))
    (row,) = normalise(events, snapshot).collect()
    (value,) = row.attributes["brand"]
    assert (value.text, value.root_word) == ("Hewlett-Packard", "HP")
    assert [(each.published, each.became, each.why) for each in row.changes] == [("Hewlett-Packard", "HP", "synonym")]
    (matched,) = match(events, snapshot).collect()
    assert sorted(matched.subscriptions) == ["hp", "packard"]


def test_learning_counts_predicates_values_and_drift(
    archive: Path, snapshot: Snapshot, spark: SparkSession, tmp_path: Path
) -> None:
    """Everything can be counted by hand here."""
    summary = learn_archive(spark, str(archive), tmp_path / "learned", snapshot)
    assert (summary["events"], summary["days"], summary["predicates"]) == (COUNT, 2, 2)
    priors = json.loads((tmp_path / "learned" / "priors.json").read_text(encoding="utf-8"))
    trues = {each["predicate"]: each["trues"] for each in priors["predicates"]}
    assert trues == {"target isa <http://example.org/Computer>": COUNT * 2 // 3, "price < 100": 100}
    assert priors["values"]["target"]["http://example.org/Laptop"] == COUNT // 3
    (pair,) = pq.read_table(tmp_path / "learned" / "together").to_pylist()
    assert pair["events"] == sum(n % 3 != 2 for n in range(100))
    days = pq.read_table(tmp_path / "learned" / "predicates").to_pylist()
    assert sum(row["holds"] for row in days if row["predicate"] == "price < 100") == 100
    drift = {row["attribute"]: row["distance"] for row in pq.read_table(tmp_path / "learned" / "drift").to_pylist()}
    assert drift["target"] == pytest.approx(0.0)


def test_learning_counts_what_it_could_not_read(snapshot: Snapshot, spark: SparkSession, tmp_path: Path) -> None:
    """If that is everything, the command fails."""
    (tmp_path / "half.ndjson").write_text('{"price": 1}\n[1]\n{"price\n', encoding="utf-8")
    summary = learn_archive(spark, str(tmp_path / "half.ndjson"), tmp_path / "learned", snapshot)
    assert (summary["events"], summary["unreadable"]) == (1, 2)


def test_learning_waits_for_no_other_job_in_its_output(
    archive: Path, snapshot: Snapshot, spark: SparkSession, tmp_path: Path
) -> None:
    """Both wrote the same files at the same time."""
    with Output(tmp_path / "out").held(), pytest.raises(UnusableOutput, match="another job is writing"):
        learn_archive(spark, str(archive), tmp_path / "out", snapshot)


def test_learning_reads_events_as_matching_does(snapshot: Snapshot, spark: SparkSession, tmp_path: Path) -> None:
    """Linked data by its content type; events without a meaning are unreadable; events without a time are no day."""
    head = {"specversion": "1.0", "source": "/s", "type": "t"}
    turtle = {"datacontenttype": "text/turtle", "data": '<urn:e> <urn:colour> "red" .', "time": "2026-01-01T00:00:00Z"}
    events = [head | {"id": "1"} | turtle, head | {"id": "2", "data": {"price": 1 << 60 | 1}}]
    events += [head | {"id": "3", "data": {"urn:colour": "blue"}}]
    lines = "".join(json.dumps(each) + "\n" for each in events)
    (tmp_path / "few.ndjson").write_text(lines, encoding="utf-8")
    summary = learn_archive(spark, str(tmp_path / "few.ndjson"), tmp_path / "learned", snapshot)
    assert (summary["events"], summary["unreadable"], summary["largest_drift"]) == (2, 1, None)
    values = pq.read_table(tmp_path / "learned" / "values").to_pylist()
    assert "red" in {row["value"] for row in values}
    assert not any(row["attribute"].startswith("ce.") for row in values)


def test_backtest_over_an_archive_is_that_of_one_process(
    archive: Path, snapshot: Snapshot, spark: SparkSession
) -> None:
    """Counts, days, samples and what cuts, whoever counts and in whatever parts."""
    vocabulary = Vocabulary([read(SHOP.encode(), format="turtle")])
    here = Backtest(vocabulary, ASKED["cheap"])
    for n in range(COUNT):
        said = offer(n)
        event = Event(said.pop("data"), said)
        here.feed([PastEvent("/shop", str(n), said["time"][:10], event)])
    report = backtest_archive(spark, str(archive), snapshot, ASKED["cheap"])
    assert report.pop("unreadable") == 1
    expected = here.report()
    expected.pop("unreadable")
    assert report == expected


@pytest.mark.slow
def test_backtest_of_many_events_is_a_spark_job_of_the_server(tmp_path: Path) -> None:
    """Beyond the setting the events go to a process of its own; what comes back is the same."""
    with running_application(tmp_path, backtest_events=100) as client:
        client.put("/v1/ontologies/shop", content=SHOP, headers={"Content-Type": "text/turtle"})
        headers = {"Content-Type": "application/cloudevents-batch+json"}
        assert client.post("/v1/events", json=[offer(n) for n in range(300)], headers=headers).json()["accepted"] == 300
        job = client.post("/v1/backtests", json={"expression": ASKED["cheap"]}).json()
        stages = set()
        while job["status"] == "running":
            stages.add(job["progress"]["stage"])
            time.sleep(0.1)
            job = client.get(f"/v1/backtests/{job['id']}").json()
        assert job["status"] == "done", job
        assert "start" in stages
        assert (job["result"]["events"], job["result"]["matched"]) == (
            300,
            sum("cheap" in wanted(n) for n in range(100)),
        )
        assert [day["events"] for day in job["result"]["days"]] == [150, 150]
    assert not list(tmp_path.glob("backtest-*"))


@pytest.mark.slow
def test_backtest_by_spark_takes_an_expression_that_no_command_line_holds(tmp_path: Path) -> None:
    """Linux refuses an argument of more than 128 KiB; an expression may have more. A language may begin with a dash."""
    names = [f"{n:04}{'x' * 200}" for n in range(1_000)]
    with running_application(tmp_path, backtest_events=1) as client:
        for name in (names[-1], "another"):
            assert client.post("/v1/events", json={"name": name}).status_code == 202
        report = backtested(client, {"not": {"in": ["name", names]}}, lang="-en")
    assert (report["events"], report["matched"]) == (2, 1)


@pytest.mark.slow
def test_backtest_by_spark_matches_json_ld_with_hidden_values_and_shows_its_verdict(tmp_path: Path) -> None:
    """As one in the server does."""
    with running_application(tmp_path, backtest_events=1) as client:
        client.headers["Authorization"] = f"Bearer {client.post('/v1/keys', json={'role': 'admin'}).json()['key']}"
        client.put("/v1/attributes/ssn", json={"readable_by": []}).raise_for_status()
        context = {"@context": {"@vocab": "http://e.org/ns/"}}
        for more in ({}, context):
            answer = client.post("/v1/events", json={**more, "n": 7, "ssn": "secret"})
            assert answer.status_code == 202, answer.text
        made = client.post("/v1/keys", json={"role": "subscriber"}).json()
        client.headers["Authorization"] = f"Bearer {made['key']}"
        report = backtested(client, "n = 7")
    assert (report["matched"], report["unreadable"]) == (2, 0)
    shown = {str(each["data"]): bool(each["explanation"]["clauses"]) for each in report["samples"]}
    assert shown == {"None": False, "{'n': 7}": True}
    assert "secret" not in str(report)


@pytest.mark.slow
def test_backtest_by_spark_has_the_regions_tables_and_windows_of_the_server(tmp_path: Path) -> None:
    """As the server's own subscriptions have: some are uploaded, and some are in its folder."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "windows.json").write_text('{"noon": ["mon-sun 11:00-13:00 UTC"]}', encoding="utf-8")
    with running_application(tmp_path, backtest_events=1, operator_data=tmp_path / "own") as client:
        square = {"type": "Polygon", "coordinates": [[[0, 0], [3, 0], [3, 3], [0, 3], [0, 0]]]}
        region = {"type": "Feature", "properties": {"name": "yard"}, "geometry": square}
        assert client.put("/v1/operator-data/regions", json=region).status_code == 201
        assert client.put("/v1/operator-data/tables/known", content="key\n7\n").status_code == 201
        calls = [("inRegion", "yard", "place"), ("inTable", "known", "number"), ("inWindow", "noon", "at")]
        where = {"all": [{"op": [name, of, {"attribute": about}]} for name, of, about in calls]}
        made = client.post("/v1/subscriptions", json={"where": where})
        assert made.status_code == 201, made.text
        events = [
            {"place": place, "number": number, "at": f"2026-01-01T{hour}:00:00Z"}
            for place in ("geo:1,1", "geo:4,4")
            for number in (7, 8)
            for hour in (10, 12)
        ]
        for event in events:
            assert client.post("/v1/events", json=event).status_code == 202
        report = backtested(client, where)
    assert (report["events"], report["matched"], report["undecided"]) == (8, 1, 0)


@pytest.mark.slow
def test_backtest_by_spark_does_not_begin_with_an_operator_that_jobs_lack(tmp_path: Path) -> None:
    """It says so before the events are written out."""
    with running_application(tmp_path, backtest_events=1, allow_private_sinks=True) as client:
        body = {"url": "http://127.0.0.1:9/", "arguments": 0}
        assert client.put("/v1/operators/far", json=body).status_code == 201
        for price in (1, 2):
            client.post("/v1/events", json={"price": price})
        job = client.post("/v1/backtests", json={"expression": "far()"}).json()
        while job["status"] == "running":
            time.sleep(0.1)
            job = client.get(f"/v1/backtests/{job['id']}").json()
    wanted = "Spark jobs do not call remote operators such as far: ask for fewer events with since and until"
    assert job["problem"]["detail"] == wanted


def backtested(client: httpx.Client, where: Any, **options: str) -> Any:
    """The report of a backtest of a tree."""
    job = client.post("/v1/backtests", json={"where": where}, params=options).json()
    while job["status"] == "running":
        time.sleep(0.1)
        job = client.get(f"/v1/backtests/{job['id']}").json()
    assert job["status"] == "done", job
    return job["result"]


@pytest.fixture
def jobs_in_this_process(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run their jobs in the session of the tests: a process with a Java of its own takes some ten seconds. In
    `test_what_an_archive_taught_is_where_a_fresh_matcher_begins` a command has one."""

    def run_job(arguments: Sequence[str]) -> dict[str, Any]:
        with redirect_stdout(StringIO()) as said:
            commands.main(arguments)
        last = json.loads(said.getvalue().splitlines()[-1])
        if "problem" in last:
            raise CommandFailed(last["problem"])
        result: dict[str, Any] = last["result"]
        return result

    monkeypatch.setattr(spark_commands, "run_job", run_job)
    monkeypatch.setattr(matching_commands, "run_job", run_job)
    monkeypatch.setattr(commands, "_session", lambda _: spark)


@pytest.mark.usefixtures("jobs_in_this_process")
def test_command_matches_by_what_a_server_has_in_its_data_folder(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`kindcast spark match --data`: the ontologies, declarations and subscriptions of a server, no server running."""
    with running_application(tmp_path / "data") as client:
        client.put("/v1/ontologies/shop", content=SHOP, headers={"Content-Type": "text/turtle"})
        client.put("/v1/attributes/price", json={"kind": "number"})
        ids = {subscribe(client, text)["id"]: name for name, text in ASKED.items()}
    places = ["--archive", str(archive), "--output", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as ended:
        main(["spark", "match", *places, "--data", str(tmp_path / "data"), "--master", "local[2]", "--json"])
    assert ended.value.code == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["events"], summary["quarantined"], summary["subscriptions"]) == (COUNT, 1, 3)
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert {int(row["id"]): sorted(ids[id] for id in row["subscriptions"]) for row in rows} == {
        n: wanted(n) for n in range(COUNT)
    }


@pytest.mark.usefixtures("jobs_in_this_process")
def test_spellings_that_a_server_declared_count_in_a_job(tmp_path: Path) -> None:
    """The declaration is part of the vocabulary, so that archives match as the server does."""
    (tmp_path / "in.ndjson").write_text('{"target": "LAP-TOPS"}\n{"target": "Lap Top"}\n', encoding="utf-8")
    shop = b"@prefix : <urn:s:> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n"
    shop += b':L rdfs:subClassOf :C ; rdfs:label "Lap top" .'
    found = []
    with running_application(tmp_path / "data") as client:
        client.put("/v1/ontologies/s", content=shop, headers={"Content-Type": "text/turtle"}).raise_for_status()
        subscribe(client, "target isa C")
    for number in range(2):
        places = ["--archive", str(tmp_path / "in.ndjson"), "--output", str(tmp_path / f"out{number}")]
        with pytest.raises(SystemExit) as ended:
            main(["spark", "match", *places, "--data", str(tmp_path / "data"), "--master", "local[2]"])
        assert ended.value.code == 0
        found.append(sum(bool(row["subscriptions"]) for row in pq.read_table(tmp_path / f"out{number}").to_pylist()))
        with running_application(tmp_path / "data") as client:
            client.put("/v1/aliases/words", json={"spellings": ["en"]}).raise_for_status()
            assert client.post("/v1/events", json={"target": "LAP-TOPS"}).json()["matched"] == 1
    assert found == [1, 2]


@pytest.mark.parametrize("window", ["", "1", "soon", "-1 hour"])
def test_window_of_a_stream_that_is_no_time_is_told_before_java_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], window: str
) -> None:
    (tmp_path / "in").mkdir()
    places = ["--archive", str(tmp_path / "in"), "--output", str(tmp_path / "out")]
    assert commands.main(["stream", *places, f"--window={window}"]) == 1
    problem = json.loads(capsys.readouterr().out)["problem"]
    assert problem == f"--window {window!r} is no time: write for example '1 hour' or '90 minutes'"


@pytest.mark.slow
@pytest.mark.usefixtures("jobs_in_this_process")
def test_command_reads_times_in_csv_and_fails_where_something_was_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seconds since 1970 are text in CSV. Who starts the job by a schedule sees the exit status; why stands in the
    summary."""
    (tmp_path / "shop.ttl").write_text(SHOP, encoding="utf-8")
    asked = tmp_path / "asked.ndjson"
    asked.write_text('{"id": "cheap", "expression": "price < 100"}\n', encoding="utf-8")
    archive = tmp_path / "in.csv"
    archive.write_text("price,when\n5,1700000000\n500,1700000000.5\n7,soon\n8,later\n", encoding="utf-8")

    def run(output: str, job: str = "match") -> tuple[Any, str, str]:
        places = ["--archive", str(archive), "--output", str(tmp_path / output), "--time", "when", "--numbers", "price"]
        named = ["--ontology", str(tmp_path / "shop.ttl"), "--subscriptions", str(asked), "--master", "local[1]"]
        with pytest.raises(SystemExit) as ended:
            main(["spark", job, *places, *named])
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    status, out, _ = run("one")
    assert status == 0
    assert [row["day"] for row in pq.read_table(tmp_path / "one").to_pylist()] == ["2023-11-14"] * 2
    assert "not 'soon' 1" in out
    archive.write_text("price,when\n7,soon\n8,soon\n", encoding="utf-8")
    status, out, err = run("two")
    assert (status, "not 'soon' 2" in out) == (1, True)
    assert "no event could be read: 2 lines are in _quarantine" in err
    status, _, err = run("statistics", "learn")
    assert status == 1
    assert "no event could be read: 2 lines are not events" in err
    archive.write_text("price,when\n5,1700000000\n", encoding="utf-8")
    asked.write_text('{"id": "cheap", "expression": "price <"}\n{"id": "dear", "expression": "price > 1"}\n')
    status, out, err = run("three")
    assert status == 1
    assert "cheap was left out" in err
    assert "not all subscriptions were used: 1 subscription left out." in err
    status, out, err = run("more statistics", "learn")
    assert (status, "predicates           1" in out) == (1, True)
    assert "cheap was left out" in err
    assert "not all subscriptions were used: 1 subscription left out." in err


@pytest.mark.usefixtures("jobs_in_this_process")
def test_backtest_of_csv_reads_numbers_with_their_declarations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise they are texts, and no comparison with a number or a quantity ever holds."""
    archive, declared = tmp_path / "in.csv", tmp_path / "declared.json"
    archive.write_text("value,unit\n86,degF\n20,degC\n", encoding="utf-8")
    declared.write_text('{"attributes": {"value": {"kind": "number", "unit_from": "unit"}}}', encoding="utf-8")
    options = ["--archive", str(archive), "--numbers", "value", "--declarations", str(declared), "--json"]
    with pytest.raises(SystemExit) as ended:
        main(["backtest", "value > 25 degC", *options])
    assert ended.value.code == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["matched"], report["events"]) == (1, 2)


@pytest.mark.usefixtures("jobs_in_this_process")
def test_jobs_reason_and_keep_relations_if_they_are_asked_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark jobs had no option for reasoning, and backtests of archives none for relations."""
    archive, asked, ontology = (tmp_path / name for name in ("in.ndjson", "asked.ndjson", "t.ttl"))
    archive.write_text('{"kind": "Piston"}\n{"kind": "Wheel"}\n', encoding="utf-8")
    asked.write_text('{"id": "s", "expression": "kind isa Part"}\n', encoding="utf-8")
    ontology.write_text(
        "@prefix : <http://example.org/> . @prefix owl: <http://www.w3.org/2002/07/owl#> ."
        "@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix skos: <http://www.w3.org/2004/02/skos/core#> ."
        ":under rdfs:subPropertyOf skos:broader . :Part a skos:Concept . :Piston a skos:Concept ; :under :Part ."
        ":Wheel a owl:Class ; rdfs:subClassOf [ owl:onProperty :partOf ; owl:someValuesFrom :Car ] ."
        ":Car a owl:Class . :partOf a owl:ObjectProperty .",
        encoding="utf-8",
    )
    places = ["--archive", str(archive), "--ontology", str(ontology), "--json"]

    def matched(*arguments: str) -> int:
        with pytest.raises(SystemExit) as ended:
            main([*arguments, *places])
        assert ended.value.code == 0
        told = json.loads(capsys.readouterr().out)
        return int(told["matches" if "spark" in arguments else "matched"])

    match = ("spark", "match", "--subscriptions", str(asked), "--output", str(tmp_path / "out"))
    assert (matched(*match), matched(*match, "--reason", "rdfs")) == (0, 1)
    assert (matched("backtest", "kind isa Part"), matched("backtest", "kind isa Part", "--reason", "rdfs")) == (0, 1)
    assert matched("backtest", "kind partOf Car", "--relations", "partOf") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ontology", "shop.ttl", "--data", "x"], "in exactly one way"),
        (["--data", "absent"], "no database"),
        (["--data", "absent", "--tenant", "bakery"], "absent/tenants/bakery has no database"),
        (["--ontology", "absent.ttl"], "absent.ttl"),
        (["--ontology", "shop.ttl", "--subscriptions", "absent.ndjson"], "there is no file absent.ndjson"),
        (["--ontology", "shop.ttl", "--declarations", "absent.json"], "there is no file absent.json"),
        (["--ontology", "shop.ttl", "--subscriptions", __file__], "the next run would read it as events"),
    ],
)
def test_command_that_cannot_begin_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    """Before Java is started."""
    places = ["--archive", str(tmp_path), "--output", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as ended:
        main(["spark", "match", *places, *arguments])
    assert ended.value.code == 1
    assert said in capsys.readouterr().err


def test_job_without_pyspark_says_what_to_install(tmp_path: Path) -> None:
    """The server and its commands run without it."""
    code = "import sys; sys.modules['pyspark'] = None; "
    code += "from kindcast.spark_jobs.__main__ import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "match", "--archive", "x", "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'kindcast[spark]'" in json.loads(done.stdout)["problem"]


def test_matcher_of_a_snapshot_is_the_matcher(snapshot: Snapshot) -> None:
    """Opened again it has the same subscriptions and decides the same."""
    vocabulary = snapshot.vocabulary()
    opened, here = snapshot.matcher(0, vocabulary), Matcher(vocabulary)
    here.add_many(ASKED.items())
    assert set(opened) == set(here)
    event = {"target": "Notebook", "price": 5}
    assert sorted(opened.match(event)) == sorted(here.match(event))


def test_snapshot_written_under_other_rules_is_compiled_again_and_jobs_write_another(
    tmp_path: Path, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened by itself, nothing of its index is used; a job that goes on in its old output writes another."""
    told = json.loads((tmp_path / "snapshot" / "snapshot.json").read_text())
    older = {k: v for k, v in told.items() if k != "meaning"} | {"vocabulary_version": "older"}
    (tmp_path / "snapshot" / "snapshot.json").write_text(json.dumps(older))
    (tmp_path / "snapshot" / snapshot.shards[0].folder / "fused.index").unlink()
    opened = Snapshot.read(tmp_path / "snapshot")
    assert opened.vocabulary_version == snapshot.vocabulary_version
    assert {"computers", "all"} == {each.subscription for each in opened.matcher(0, opened.vocabulary()).match(EVENT)}
    (tmp_path / "shop.ttl").write_text(SHOP)
    inputs = Inputs(ontologies=(tmp_path / "shop.ttl",))
    with monkeypatch.context() as older:
        for module in (
            "kindcast.semantic.vocabulary.vocabulary",
            "kindcast.spark_jobs.snapshot",
            "kindcast.spark_jobs.snapshot",
            "kindcast.semantic.matching.saved_matcher",
        ):
            older.setattr(f"{module}.MEANING", 1)
        before = inputs.snapshot(tmp_path / "out")
    after = inputs.snapshot(tmp_path / "out")
    assert before.vocabulary_version != after.vocabulary_version
    assert Snapshot.read(Path(after.folder)) == after


@pytest.mark.parametrize("tasks", [output_module.MOST_TASKS, 1])
def test_repeated_events_are_dropped_where_it_is_asked_for(
    tmp_path: Path, snapshot: Snapshot, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tasks: int
) -> None:
    """The first in the order of the archive stays, by source and id; plain data is never taken for a repetition. The
    same where a task has several files."""
    monkeypatch.setattr(output_module, "MOST_TASKS", tasks)
    monkeypatch.setattr(output_module, "TASKS_OF_A_CORE", 0)
    events = [offer(n) for n in range(6)]
    other = events[1] | {"source": "/elsewhere"}
    changed = events[1] | {"data": {"target": "Sofa"}}
    plain = {"target": "Tablet"}
    (tmp_path / "raw").mkdir()
    for name, lines in (
        ("0.ndjson", [*events[:4], events[0], plain, plain]),
        ("1.ndjson", [changed, other, *events[3:], events[5]]),
    ):
        text = "".join(json.dumps(each) + "\n" for each in lines)
        (tmp_path / "raw" / name).write_text(text, encoding="utf-8")
    counts = {}
    for distinct in (False, True):
        out = tmp_path / str(distinct)
        summary = match_archive(spark, str(tmp_path / "raw"), out, snapshot, distinct=distinct)
        counts[distinct] = summary["events"], summary.get("repeated")
    assert counts == {False: (13, None), True: (9, 4)}
    rows = pq.read_table(tmp_path / "True").to_pylist()
    named = [(row["source"], row["id"]) for row in rows]
    assert len(set(named)) == len(named) == 9
    assert sorted(id for source, id in named if source == "/shop") == [str(n) for n in range(6)]
    (first,) = [row for row in rows if (row["source"], row["id"]) == ("/shop", "1")]
    assert sorted(first["subscriptions"]) == ["all", "cheap", "computers"]  # as it was when it came first
    # A repetition that goes changes what is done for its file only.
    text = "".join(json.dumps(each) + "\n" for each in [changed, other, *events[3:]])
    (tmp_path / "raw" / "1.ndjson").write_text(text, encoding="utf-8")
    seen: list[int] = []
    again = match_archive(
        spark,
        *(str(tmp_path / "raw"), tmp_path / "True", snapshot),
        distinct=True,
        progress=lambda stage, done, total: seen.append(done) if stage == "match" else None,
    )
    assert (again["events"], again["repeated"], seen[0]) == (9, 3, 1)


def test_distinct_keeps_the_events_that_a_server_accepts(tmp_path: Path, spark: SparkSession) -> None:
    """A revision of a type that declares revisions is an event of its own. A type without them has ids only, and a
    revision that is no text is none."""
    declared = {"x-kindcast-subject": "ref", "x-kindcast-revision": "rev", "x-kindcast-retracts": "revoked"}

    def note(type: str, **data: Any) -> dict[str, Any]:
        return {"specversion": "1.0", "id": "n1", "source": "/notes", "type": type, "data": {"ref": "r"} | data}

    events = [note("note", rev=rev) for rev in (1, 2, 1, {"of": 1}, None, {"of": 2})]
    events += [note("note", rev=3, revoked=True), note("note", rev=2, revoked=True)]
    events += [note("other", rev=rev) for rev in (4, 5)]
    events += [note("note", rev=7) | {"data": [{"ref": "r", "rev": rev}]} for rev in (7, 8)]
    lines = [event | {"n": n} for n, event in enumerate(events)]
    with running_application(tmp_path / "data") as client:
        client.put("/v1/schemas/note", json=declared).raise_for_status()
        accepted = []
        for line in lines:
            answer = client.post("/v1/events", json=line, headers={"Content-Type": "application/cloudevents+json"})
            if answer.json()["accepted"]:
                accepted.append(line["n"])
    (tmp_path / "in.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    asked = [(str(line["n"]), f"ce.n = {line['n']}") for line in lines]
    snapshot = write_snapshot(tmp_path / "snapshot", (), asked, declarations={"schemas": {"note": declared}})
    match_archive(spark, str(tmp_path / "in.ndjson"), tmp_path / "out", snapshot, distinct=True)
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert {row["id"] for row in rows} == {"n1"}
    assert sorted(int(name) for row in rows for name in row["subscriptions"]) == accepted
    assert accepted == [0, 1, 3, 6, 10, 11]


def test_files_of_two_columns_with_one_name_are_told(tmp_path: Path, spark: SparkSession, snapshot: Snapshot) -> None:
    """By a backtest with its notes, and in the quarantine of an output."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one.csv").write_text("a,a\n1,2\n", encoding="utf-8")
    (tmp_path / "in" / "two.csv").write_text("a\n1\n", encoding="utf-8")
    notes: list[str] = []
    report = backtest_archive(spark, str(tmp_path / "in"), snapshot, 'a = "1"', note=notes.append)
    assert notes == ["one.csv: several columns have the name a"]
    assert (report["matched"], report["events"], report["unreadable"]) == (1, 1, 1)
    summary = match_archive(spark, str(tmp_path / "in"), tmp_path / "out", snapshot)
    assert (summary["events"], summary["quarantined"]) == (1, 1)
    (bad,) = pq.read_table(tmp_path / "out" / "_quarantine").to_pylist()
    assert (bad["file"], bad["line"], bad["reason"]) == ("one.csv", None, "several columns have the name a")


def test_lines_that_are_no_subscriptions_are_told_by_every_run(tmp_path: Path) -> None:
    """Also by those that find the snapshot written already. Older snapshots go when they are used no more."""
    asked, below = tmp_path / "asked.ndjson", tmp_path / "snapshots"
    asked.write_text('{"id": "cheap", "expression": "price < 5"}\nnothing\n', encoding="utf-8")
    inputs = Inputs(subscriptions=asked)
    first, again = inputs.snapshot(below), inputs.snapshot(below)
    assert [each.subscription for each in first.refused] == ["line 2"]
    assert again.refused == first.refused
    asked.write_text('{"id": "cheap", "expression": "price < 6"}\n', encoding="utf-8")
    newest = inputs.snapshot(below)
    forget_older(newest)
    assert [str(path.absolute()) for path in below.iterdir()] == [newest.folder]


def test_subscriptions_of_a_server_keep_the_meaning_that_is_left_to_them(tmp_path: Path) -> None:
    """After a concept or relation is gone, a server matches by what is left. Jobs left such subscriptions out, and
    failed. Those that call an operator of the server only are left out still, also those of a file of the user."""
    asked = {
        "gone": "t isa <http://e/gone> or n > 1",
        "not": "not t isa <http://e/gone>",
        "relation": "t <http://e/part> <http://e/whole> or n > 1",
        "operator": "t isa <http://e/gone> or remote(@n) or n > 1",
        "good": "n > 1",
        "bad": "n >",
    }
    lines = "".join(json.dumps({"id": id, "expression": text}) + "\n" for id, text in asked.items())
    lines += (
        json.dumps({"id": "tree", "where": {"any": [{"isa": ["t", {"iri": "http://e/gone"}]}, {">": ["n", 1]}]}}) + "\n"
    )
    (tmp_path / "inputs").mkdir()
    (tmp_path / "inputs" / "subscriptions.ndjson").write_text(lines, encoding="utf-8")
    written = Inputs(folder=tmp_path / "inputs").snapshot(tmp_path / "own")
    assert [each.subscription for each in written.refused] == ["operator", "bad"]
    matcher = written.matcher(0, written.vocabulary())
    assert sorted(each.subscription for each in matcher.match({"n": 2})) == ["gone", "good", "relation", "tree"]
    of_a_user = Inputs(subscriptions=tmp_path / "inputs" / "subscriptions.ndjson").snapshot(tmp_path / "other")
    assert {each.subscription for each in of_a_user.refused} == {*asked, "tree"} - {"good"}


def test_subscription_with_conditions_beside_its_expression_is_left_out(tmp_path: Path) -> None:
    """As a server takes it. It matched events of all types and sources. An export says them in the expression."""
    asked = tmp_path / "asked.ndjson"
    more: list[dict[str, Any]] = [{"types": ["offer"]}, {"source": "/shop"}, {"types": None, "asked": {"types": ["a"]}}]
    lines = [{"id": str(number), "expression": "n > 1"} | each for number, each in enumerate(more)]
    asked.write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")
    written = Inputs(subscriptions=asked).snapshot(tmp_path / "own")
    assert [(each.subscription, each.reason.partition(":")[0]) for each in written.refused] == [
        ("line 1", "types"),
        ("line 2", "source"),
    ]
    assert [each.subscriptions for each in written.shards] == [1]


def test_fetched_inputs_may_be_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock beside the folder needs its name."""
    (tmp_path / "inputs").mkdir()
    (tmp_path / "inputs" / "subscriptions.ndjson").write_text('{"id": "a", "expression": "n > 1"}\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path / "inputs")
    assert [each.subscriptions for each in Inputs(folder=Path()).snapshot(tmp_path / "own").shards] == [1]


def test_fetched_text_stays_a_text_if_its_attribute_holds_concepts_later(tmp_path: Path) -> None:
    """As at the server that it was fetched from (rule 14). The user's own files have new subscriptions."""
    folder = tmp_path / "inputs"
    folder.mkdir()
    (folder / "000.records").write_bytes(encode(read(SHOP.encode(), format="turtle")))
    (folder / "declarations.json").write_text('{"attributes": {"target": {"kind": "concept"}}}', encoding="utf-8")
    line = {"id": "a", "where": {"=": ["target", "no such label"]}}
    (folder / "subscriptions.ndjson").write_text(json.dumps(line), encoding="utf-8")
    snapshot = Inputs(folder=folder).snapshot(tmp_path / "own")
    assert ([each.subscriptions for each in snapshot.shards], snapshot.refused) == ([1], ())


def test_inputs_may_be_packed_and_damaged_ones_are_told(tmp_path: Path) -> None:
    """Declarations and subscriptions are recognised by their first bytes, like ontologies and archives."""
    (tmp_path / "shop.ttl").write_text("@prefix : <http://e/> . :Laptop a :Kind . :Kind a :Class .", "utf-8")
    declared, asked = tmp_path / "declared.json", tmp_path / "asked.ndjson"
    declared.write_bytes(gzip.compress(json.dumps({"synonyms": {"gizmo": "price"}}).encode()))
    asked.write_bytes(gzip.compress(json.dumps({"id": "cheap", "expression": "gizmo < 5"}).encode()))
    inputs = Inputs(ontologies=(tmp_path / "shop.ttl",), declarations=declared, subscriptions=asked)
    written = inputs.snapshot(tmp_path / "below")
    assert (sum(each.subscriptions for each in written.shards), written.refused) == (1, ())
    asked.write_bytes(asked.read_bytes()[:-9])
    with pytest.raises(JobFailed, match=r"asked\.ndjson"):
        inputs.snapshot(tmp_path / "other")
    declared.write_bytes(b"\x1f\x8bno gzip")
    with pytest.raises(JobFailed, match=r"declared\.json is not a JSON file"):
        inputs.snapshot(tmp_path / "third")
