"""Data for the built-in operators over HTTP: regions, tables, calendar windows, kept over restarts."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from kindcast.server.operators import registry
from tests.harness.application import problem_code, running_application, subscribe, ticket, waiting
from tests.harness.waiting import until

SQUARE = {"type": "Polygon", "coordinates": [[[16.2, 48.1], [16.6, 48.1], [16.6, 48.3], [16.2, 48.3], [16.2, 48.1]]]}
VIENNA = json.dumps({"features": [{"properties": {"name": "Vienna"}, "geometry": SQUARE}]})


def put(client: httpx.Client, path: str, document: str) -> httpx.Response:
    return client.put(f"/v1/operator-data/{path}", content=document, headers={"Content-Type": "text/csv"})


def decided(client: httpx.Client, **data: Any) -> dict[str, Any]:
    """Publish an event, wait until no operator has yet to decide it, and return its trace."""
    sequence = client.post("/v1/events", json=data).json()["events"][0]["sequence"]

    def trace() -> dict[str, Any]:
        told: dict[str, Any] = client.get(f"/v1/events/{sequence}/trace").json()
        return told if all(each["state"] == "given_up" for each in told["undecided"]) else {}

    return until(trace)


def test_data_uploaded_is_known_at_once_and_after_a_restart(tmp_path: Path) -> None:
    """Subscriptions may name it, events are decided by it, another version of it takes its place."""
    pytest.importorskip("shapely", reason="the extra `operators` is not installed")
    with running_application(tmp_path, plugins=False) as client:
        refused = client.post("/v1/subscriptions", json={"expression": 'inTable("blocked", @from)'})
        assert problem_code(refused) == "invalid-subscription"
        told = put(client, "tables/blocked", "name\nAcme\nBolt\n")
        assert (told.status_code, told.json()) == (
            201,
            {"kind": "tables", "name": "blocked", "entries": 2, "uploaded": True},
        )
        assert put(client, "regions", VIENNA).status_code == 201
        assert put(client, "windows", '{"always": ["00:00-24:00 Europe/Vienna"]}').status_code == 201
        created = subscribe(
            client, 'inTable("blocked", @from) and inRegion("Vienna", @place) and inWindow("always", @at)'
        )
        event = {"place": "geo:48.2,16.4", "at": "2026-11-19T10:00:00Z"}
        decided(client, **event, **{"from": "Acme"})
        decided(client, **event, **{"from": "Cord"})
        assert [each["from"] for each in waiting(client, created)] == ["Acme"]
    with running_application(tmp_path, plugins=False) as client:
        listed = client.get("/v1/operator-data").json()["data"]
        assert [(each["kind"], each["entries"]) for each in listed] == [("regions", 1), ("tables", 2), ("windows", 1)]
        decided(client, n=2, **event, **{"from": "Bolt"})
        assert put(client, "tables/blocked", "name\nCord\n").status_code == 200
        decided(client, n=3, **event, **{"from": "Acme"})
        decided(client, n=3, **event, **{"from": "Cord"})
        assert [each["from"] for each in waiting(client, created)] == ["Acme", "Bolt", "Cord"]


def test_data_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    """The answer names the place; what was there before still counts."""
    pytest.importorskip("shapely", reason="the extra `operators` is not installed")
    with running_application(tmp_path, plugins=False) as client:
        put(client, "tables/t", "key,more\na,1\n")
        for path, document, place in [
            ("tables/t", "key,more\na\n", "line 2"),
            ("tables/t", "", "first line"),
            ("tables/t", "key;more\na;1\n", "only one column, 'key;more'"),
            ("tables/t", "key\tmore\na\t1\n", "commas separate the columns"),
            ("regions", '{"features": [{"geometry": null}]}', "feature 1"),
            ("windows", '{"odd": ["sometimes"]}', "odd"),
            ("windows", "[1]", "JSON object"),
        ]:
            answer = put(client, path, document)
            assert (answer.status_code, problem_code(answer)) == (422, "invalid-declaration")
            assert place in answer.json()["detail"]
        assert [each["kind"] for each in client.get("/v1/operator-data").json()["data"]] == ["tables"]
        big = put(client, "tables/t", "x" * (17 << 20))
        assert (big.status_code, problem_code(big)) == (413, "body-too-large")


@pytest.mark.parametrize("name", ["%2E", "%2E%2E"])
def test_name_of_dots_is_refused(tmp_path: Path, name: str) -> None:
    """Many clients resolve it as a part of the path, so they could not delete it. `...` is a name like any other."""
    with running_application(tmp_path, plugins=False) as client:
        for answer in (
            put(client, f"tables/{name}", "key\na\n"),
            client.put(f"/v1/synonyms/{name}", json={"a": "b"}),
            client.put(f"/v1/attributes/{name}", json={"kind": "text"}),
        ):
            assert (answer.status_code, problem_code(answer)) == (400, "invalid-request")
            assert "choose another one" in answer.json()["detail"]
        assert put(client, "tables/...", "key\na\n").status_code == 201


def test_data_in_use_is_not_deleted(tmp_path: Path) -> None:
    """As long as a subscription calls an operator that reads tables no table goes; then the folder's counts again."""
    folder = tmp_path / "known"
    (folder / "tables").mkdir(parents=True)
    (folder / "tables" / "t.csv").write_text("key\na\n")
    with running_application(tmp_path, plugins=False, operator_data=folder) as client:
        assert put(client, "tables/t", "key\nb\nc\n").status_code == 201
        created = subscribe(client, 'inTable("t", @x)')
        refused = client.delete("/v1/operator-data/tables/t")
        assert (refused.status_code, problem_code(refused)) == (409, "operator-in-use")
        client.delete(f"/v1/subscriptions/{created['id']}", headers=ticket(created))
        assert client.delete("/v1/operator-data/tables/t").status_code == 200
        assert client.get("/v1/operator-data").json()["data"] == [
            {"kind": "tables", "name": "t", "entries": 1, "uploaded": False}
        ]
        again = client.delete("/v1/operator-data/tables/t")
        assert (again.status_code, problem_code(again)) == (404, "unknown-operator-data")
        assert client.delete("/v1/operator-data/regions").status_code == 404


def test_tables_together_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many tables within the limit of one could fill the memory. A smaller one in place of another is taken."""
    monkeypatch.setattr(registry, "MOST_CELLS", 8)
    with running_application(tmp_path, plugins=False) as client:
        assert put(client, "tables/t", "key,grade\na,1\nb,2\n").status_code == 201
        assert put(client, "tables/u", "key,grade\na,1\nb,2\n").status_code == 201
        refused = put(client, "tables/v", "key\na\n")
        assert (refused.status_code, problem_code(refused)) == (422, "invalid-declaration")
        assert "8 cells" in refused.json()["detail"]
        assert put(client, "tables/u", "key\na\n").status_code == 200
        assert put(client, "tables/v", "key\na\n").status_code == 201


def test_table_with_other_columns_leaves_its_subscriptions_undecided(tmp_path: Path) -> None:
    """A call that does not fit any more decides nothing, and says why."""
    with running_application(tmp_path, plugins=False, operator_delays_seconds=()) as client:
        put(client, "tables/t", "key,grade\na,1\n")
        subscribe(client, 'lookUp("t", @x, ?grade) and ?grade < 2')
        put(client, "tables/t", "key,grade,country\na,1,AT\n")
        (told,) = decided(client, x="a")["undecided"]
        assert "2 values for 1 variables" in told["reason"]
