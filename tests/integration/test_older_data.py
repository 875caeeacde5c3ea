"""Data of commit 96216f5 (tests/fixtures) under the present server: everything is there, and goes on as it was."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.harness.application import problem_code, running_application
from tests.harness.operator_service import running_service
from tests.harness.receiver import running_receiver
from tests.harness.waiting import until

SAVED = Path(__file__).resolve().parents[1] / "fixtures" / "commit_96216f5"
SAID: dict[str, Any] = json.loads((SAVED / "said.json").read_text(encoding="utf-8"))
IDS: dict[str, str] = {name: each["id"] for name, each in SAID["tickets"].items()}
YEARS = 75 * 366 * 86_400.0
SETTINGS: dict[str, Any] = {
    "plugins": False,
    "allow_private_sinks": True,
    "retention_seconds": YEARS,
    "grace_seconds": YEARS,
    "webhook_delays_seconds": (3_600.0,) * 10,
    "operator_delays_seconds": (3_600.0,) * 10,
}
KEPT = (
    *("id", "status", "expression", "where", "filters", "types", "source", "canonical", "clauses", "flagged", "sink"),
    *("metadata", "created_at", "expires_at", "cursor", "pending", "waiting_for_operators", "undecided"),
)
"""What a subscription is, whatever the words and the costs of later versions."""


@pytest.fixture(params=["data", "killed"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the data folder."""
    return shutil.copytree(SAVED / request.param, tmp_path / "data")


@pytest.fixture
def client(folder: Path) -> Iterator[httpx.Client]:
    with running_application(folder, **SETTINGS) as client:
        yield client


def ticket(name: str) -> dict[str, str]:
    return {"Kindcast-Ticket": SAID["tickets"][name]["ticket"]}


def messages(client: httpx.Client, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"/v1/subscriptions/{IDS[name]}/events").json()["events"]
    return found


def without_version(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what changes from version to version; older ones did not tell `sequence`."""
    return [{key: each[key] for key in each.keys() - {"vocabulary_version", "sequence"}} for each in messages]


def chosen(shown: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: shown[name] for name in names if name in shown}


def got(client: httpx.Client, sequence: int) -> set[str]:
    """Who got an event so far; operators may take a moment."""
    return {each["subscription"] for each in client.get(f"/v1/events/{sequence}/trace").json()["deliveries"]}


def publish(client: httpx.Client, number: int, id: str) -> dict[str, Any]:
    """Event `number` of those that are stored, under another id."""
    event = {**SAID["events"][number]["event"], "id": id}
    answer = client.post("/v1/events", json=event, headers={"Content-Type": "application/cloudevents+json"})
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json()["events"][0]
    return found


def test_older_data_are_asked_what_other_rules_change(client: httpx.Client) -> None:
    """The first start is a dry run of the rules; by these, none of those subscriptions means something else."""
    told = client.get("/v1/rules").json()
    assert told["impact"]["subscriptions"] == {
        "live": told["impact"]["subscriptions"]["live"],
        "changed": 0,
        "listed": [],
    }
    assert told["impact"]["subscriptions"]["live"] > 0


def test_older_data_are_all_there(client: httpx.Client) -> None:
    """Subscriptions with status, expiry and cursor; messages that wait; events, traces; ontologies, declarations,
    operators with what they know."""
    for name, id in IDS.items():
        shown = client.get(f"/v1/subscriptions/{id}").json()
        assert chosen(shown, KEPT) == chosen(SAID["subscriptions"][name], KEPT), name
        assert without_version(messages(client, name)) == without_version(SAID["messages"][name]["events"]), name
    kept = ("sequence", "event", "accepted_at", "matched")
    events = client.get("/v1/events?limit=1000").json()["events"]
    assert [chosen(each, kept) for each in events] == [chosen(each, kept) for each in SAID["events"]]
    for said in SAID["traces"]:
        trace = client.get(f"/v1/events/{said['sequence']}/trace").json()
        for member, names in (
            ("undecided", ("subscription", "state", "since")),
            ("deliveries", ("subscription", "by", "state", "late", "bindings")),
        ):
            assert [chosen(each, names) for each in trace[member]] == [chosen(each, names) for each in said[member]]
    kept = ("name", "version", "active", "sha256", "format", "relations", "created_at", "concepts", "edges")
    ontologies = client.get("/v1/ontologies").json()["ontologies"]
    assert [chosen(each, kept) for each in ontologies] == [chosen(each, kept) for each in SAID["ontologies"]]
    for path, member in (("attributes", "attributes"), ("synonyms", "synonyms"), ("schemas", "schemas")):
        assert client.get(f"/v1/{path}").json()[member] == SAID[path][member]
    assert client.get("/v1/rates").json() == SAID["rates"]
    assert set(SAID["operators"]) <= {each["name"] for each in client.get("/v1/operators").json()["operators"]}
    assert client.get("/v1/operator-data").json()["data"] == SAID["operator_data"]


def test_older_subscriptions_match_new_events_as_before(client: httpx.Client) -> None:
    """The same event under another id goes to those that got it then and are still active; one that is there is a
    duplicate; sequences go on."""
    last = max(int(each["cursor"]) for page in SAID["messages"].values() for each in page["events"])
    for number, said in enumerate(SAID["events"]):
        assert publish(client, number, said["event"]["id"])["duplicate"]
        outcome = publish(client, number, f"again-{number}")
        assert outcome["sequence"] > last
        active = {id for name, id in IDS.items() if name != "paused"}
        then = {each["subscription"] for each in SAID["traces"][number]["deliveries"]}
        until(lambda now=outcome["sequence"], then=then & active: got(client, now) == then)  # type: ignore[misc]


def test_older_tickets_and_cursors_go_on(client: httpx.Client) -> None:
    """A reader acknowledges the rest with its ticket and no other; a paused subscription is resumed."""
    half = IDS["read halfway"]
    rest = messages(client, "read halfway")
    body = {"cursor": rest[-1]["cursor"]}
    refused = client.post(f"/v1/subscriptions/{half}/ack", json=body, headers=ticket("paused"))
    assert problem_code(refused) == "ticket-wrong"
    assert client.post(f"/v1/subscriptions/{half}/ack", json=body, headers=ticket("read halfway")).status_code == 200
    assert messages(client, "read halfway") == []
    resumed = client.post(f"/v1/subscriptions/{IDS['paused']}/resume", headers=ticket("paused"))
    assert resumed.json()["status"] == "active"
    publish(client, 1, "after the pause")
    assert [each["event"]["id"] for each in messages(client, "paused")] == ["e0", "e1", "after the pause"]


def test_older_subscription_is_restored_with_its_concept(client: httpx.Client) -> None:
    """The version of the ontology that has the concept is still there to go back to."""
    assert client.post("/v1/ontologies/devices/activate", params={"version": 1}).status_code == 200
    shown = client.get(f"/v1/subscriptions/{IDS['flagged']}").json()
    assert shown["flagged"] is False
    event = {"specversion": "1.0", "id": "fax", "source": "/shop", "type": "new", "data": {"device": "Fax"}}
    client.post("/v1/events", json=event, headers={"Content-Type": "application/cloudevents+json"})
    assert [each["event"]["id"] for each in messages(client, "flagged")] == ["fax"]


def test_older_candidates_are_decided_when_their_operator_answers(folder: Path) -> None:
    """What waited for an operator, and what was given up, becomes late matches."""
    soon = SETTINGS | {"operator_delays_seconds": (0.1,) * 1_000}
    with running_application(folder, **soon) as client, running_service() as service:
        for name in ("slow_service", "lost_service"):
            client.put(f"/v1/operators/{name}", json={"url": f"{service.url}/yes", "timeout_seconds": 5})
        client.post("/v1/operators/retry")
        for name, wanted in (("waiting", ["e1", "e2", "e5"]), ("given up", ["e0", "e1", "e2", "e5"])):
            until(lambda name=name, wanted=wanted: len(messages(client, name)) == len(wanted))  # type: ignore[misc]
            found = messages(client, name)
            assert sorted(each["event"]["id"] for each in found) == wanted
            assert all(each["late"] for each in found)


def test_older_messages_go_to_a_webhook_that_answers_now(folder: Path) -> None:
    """Each message that waited arrives once, under the webhook-id that it always had."""
    id = IDS["by hook"]
    soon = SETTINGS | {"webhook_delays_seconds": (0.1,) * 1_000}
    with running_application(folder, **soon) as client, running_receiver() as receiver:
        body = {"sink": f"{receiver.url}/hook"}
        assert client.patch(f"/v1/subscriptions/{id}", json=body, headers=ticket("by hook")).status_code == 200
        client.post(f"/v1/subscriptions/{id}/resume", headers=ticket("by hook"))
        cursors = [each["cursor"] for each in SAID["messages"]["by hook"]["events"]]
        received = receiver.wait_for("/hook", len(cursors))
        assert [each.headers["webhook-id"] for each in received] == [f"msg_{id}_{cursor}" for cursor in cursors]
        until(lambda: client.get(f"/v1/subscriptions/{id}").json()["pending"] == 0)


def test_older_data_open_again_after_a_stop(folder: Path) -> None:
    """What the present server wrote into the folder it reads itself, from the snapshot of the index."""
    for _ in range(2):
        with running_application(folder, **SETTINGS) as client:
            for name, id in IDS.items():
                shown = client.get(f"/v1/subscriptions/{id}").json()
                assert chosen(shown, KEPT) == chosen(SAID["subscriptions"][name], KEPT), name


def test_older_export_is_imported(tmp_path: Path) -> None:
    """Into a server with the same ontologies and operators every line is taken and means what it meant."""
    with running_application(shutil.copytree(SAVED / "data", tmp_path / "data"), **SETTINGS) as client:
        client.post("/v1/ontologies/devices/activate", params={"version": 1})
        answer = client.post("/v1/subscriptions/import", content=(SAVED / "export.ndjson").read_bytes()).json()
        assert answer["rejected"] == []
        assert {each["was"] for each in answer["created"]} == set(IDS.values())
        for each in answer["created"]:
            (name,) = [name for name, id in IDS.items() if id == each["was"]]
            shown = client.get(f"/v1/subscriptions/{each['id']}").json()
            kept = ("canonical", "clauses", "metadata")
            assert chosen(shown, kept) == chosen(SAID["subscriptions"][name], kept)


LINKED: dict[str, Any] = {"@context": {"w": "http://p/weight"}, "w": 7}


def test_older_folder_reads_json_ld_as_plain_json_until_it_is_told_otherwise(folder: Path) -> None:
    """Rule 21: nothing that was subscribed there changes its meaning, also after another start, and by what content
    type or setting it may."""

    def matched(client: httpx.Client, number: int) -> list[bool]:
        found = []
        for kind in ("application/json", "application/ld+json"):
            event = msgspec.json.encode({**LINKED, "number": number})
            answer = client.post("/v1/events", content=event, headers={"Content-Type": kind}).json()
            found.append(created["id"] in got(client, answer["events"][0]["sequence"]))
        return found

    with running_application(folder, **SETTINGS) as client:
        created = client.post("/v1/subscriptions", json={"expression": "weight = 7"}).json()
        assert matched(client, 1) == [False, False]
    with running_application(folder, **SETTINGS) as client:
        assert matched(client, 2) == [False, False]
    with running_application(folder, **SETTINGS | {"linked_data": "graphs"}) as client:
        assert matched(client, 3) == [True, True]
    with running_application(folder, **SETTINGS) as client:
        assert matched(client, 4) == [True, True]


def test_new_folder_reads_json_ld_as_graphs_and_unknown_contexts_as_it_is_told(tmp_path: Path) -> None:
    """A folder of this version; what needs an unknown context is refused, or plain JSON with a note."""
    event = {"content": msgspec.json.encode({"@context": "http://nowhere/", "weight": 7})}
    headers = {"headers": {"Content-Type": "application/ld+json"}}
    with running_application(tmp_path) as client:
        client.post("/v1/subscriptions", json={"expression": "weight = 7"}).raise_for_status()
        assert client.post("/v1/events", json=LINKED).json()["matched"] == 1
        assert client.post("/v1/events", **event, **headers).status_code == 422
    with running_application(tmp_path, unknown_contexts="plain") as client:
        answer = client.post("/v1/events", **event, **headers).json()
        assert (answer["matched"], answer["events"][0]["notes"][0]["code"]) == (1, "unknown-context")
    with running_application(tmp_path, linked_data="plain") as client:
        assert client.post("/v1/events", json=LINKED).json()["matched"] == 0
