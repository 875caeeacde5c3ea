"""Versions of an ontology under live subscriptions: compared, tried out, put in force, taken back."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from kindcast.server.broker import vocabulary_commands
from tests.harness.application import problem_code, publish, running_application, show, subscribe, ticket
from tests.harness.broker import matched, new, run, running

PREFIXES = """
@prefix : <http://e/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> . @prefix dcterms: <http://purl.org/dc/terms/> .
"""
FIRST = f"""{PREFIXES}
:Laptop rdfs:subClassOf :Computer ; rdfs:label "laptop" . :Slate rdfs:subClassOf :Gadget ; rdfs:label "slate" .
:Fax rdfs:subClassOf :Gadget . :Desktop rdfs:subClassOf :Computer . :Tower rdfs:subClassOf :Computer .
"""
SECOND = f"""{PREFIXES}
:Laptop rdfs:subClassOf :Computer ; rdfs:label "laptop", "Notebook"@de .
:Slate rdfs:subClassOf :Computer ; rdfs:label "slate" . :Gadget a owl:Class .
:Desktop rdfs:subClassOf :Computer ; owl:deprecated true ; dcterms:isReplacedBy :Tower .
:Tower rdfs:subClassOf :Computer ; owl:equivalentClass :Minitower . :Minitower a owl:Class .
"""
TURTLE = {"Content-Type": "text/turtle"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    """With the first version in force, and the second one stored."""
    with running_application(tmp_path) as client:
        put(client, FIRST)
        put(client, SECOND, activate=False)
        yield client


def put(client: httpx.Client, document: str, **params: Any) -> dict[str, Any]:
    answer = client.put("/v1/ontologies/x", content=document.encode(), headers=TURTLE, params=params)
    assert answer.status_code in (200, 201), answer.text
    report: dict[str, Any] = answer.json()
    return report


def post(client: httpx.Client, what: str, **params: Any) -> dict[str, Any]:
    answer = client.post(f"/v1/ontologies/x/{what}", params=params)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def iris(part: dict[str, Any]) -> list[str]:
    assert part["count"] == len(part["concepts"])
    return [each["iri"].removeprefix("http://e/") for each in part["concepts"]]


def test_many_differences_do_not_keep_others_waiting(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is made at a time, and the threads that others need stay free."""
    compare, lock, running, most = vocabulary_commands.difference_between, threading.Lock(), [0], [0]
    free = threading.Event()

    def slow(*arguments: Any) -> Any:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        free.wait(10)
        with lock:
            running[0] -= 1
        return compare(*arguments)

    monkeypatch.setattr(vocabulary_commands, "difference_between", slow)
    asked = min(32, (os.cpu_count() or 1) + 4) + 2  # more than the threads of asyncio
    with ThreadPoolExecutor(asked) as pool:
        answers = [pool.submit(client.get, "/v1/ontologies/x/diff") for _ in range(asked)]
        while not most[0]:
            time.sleep(0.01)
        began = time.monotonic()
        subscribe(client, "value exists")
        waited = time.monotonic() - began
        free.set()
        assert {each.result().status_code for each in answers} == {200}
    assert most == [1]
    assert waited < 5


def test_diff_tells_what_an_ontologist_would(client: httpx.Client) -> None:
    """From the active to the newest version unless told otherwise; each list with its details."""
    found = client.get("/v1/ontologies/x/diff").json()
    assert (found["from"], found["to"]) == (1, 2)
    assert iris(found["added"]) == ["Minitower"]
    assert iris(found["removed"]) == ["Fax"]
    (moved,) = found["moved"]["concepts"]
    assert (moved["label"], moved["parents_before"], moved["parents"]) == (
        "slate",
        ["http://e/Gadget"],
        ["http://e/Computer"],
    )
    (deprecated,) = found["deprecated"]["concepts"]
    assert (deprecated["iri"], deprecated["replaced_by"]) == ("http://e/Desktop", ["http://e/Tower"])
    (relabelled,) = found["relabelled"]["concepts"]
    assert (relabelled["labels"], relabelled["labels_gone"]) == ([{"value": "Notebook", "lang": "de"}], [])
    back = client.get("/v1/ontologies/x/diff?from=2&to=1&limit=0").json()
    assert (back["added"], back["removed"]) == ({"count": 1, "concepts": []}, {"count": 1, "concepts": []})
    assert back["restored"]["count"] == 1
    missing = client.get("/v1/ontologies/x/diff?to=9")
    assert (missing.status_code, problem_code(missing)) == (404, "unknown-ontology")


def test_activate_dry_run_tells_who_gains_and_loses_what(client: httpx.Client) -> None:
    """Each term once, with how many hold it; then the real activation answers the same, and it is so."""
    many = [subscribe(client, "target isa Computer") for _ in range(3)]
    gadget = subscribe(client, "target isa Gadget and price < 5")
    subscribe(client, "target isa Laptop")
    desktop = subscribe(client, "target is Desktop")
    told = post(client, "activate", version=2, dry_run=True)
    assert told["dry_run"]
    assert told["impact"]["subscriptions"]["live"] == 6
    changes = {(each["test"], each["label"]): each for each in told["impact"]["terms"]["listed"]}
    computer = changes["isa", "Computer"]
    assert computer["subscriptions"] == 3
    assert iris(computer["gains"]) == ["Minitower", "Slate"]
    assert iris(computer["loses"]) == []
    assert iris(changes["isa", "Gadget"]["loses"]) == ["Fax", "Slate"]
    assert changes["is", "Desktop"]["replaced"] == {"from": "http://e/Desktop", "to": "http://e/Minitower"}
    assert changes["isa", "laptop"]["words"] == {"count": 1, "listed": ["Notebook"]}
    assert publish(client, target="slate", price=1) == 1
    done = post(client, "activate", version=2)
    assert done["impact"] == told["impact"]
    assert done["vocabulary_version"] == told["impact"]["vocabulary_version"]["to"]
    assert publish(client, target="slate", price=2) == len(many)
    assert publish(client, target="http://e/Minitower") == len([*many, desktop])
    assert show(client, gadget).json()["vocabulary_version"] == done["vocabulary_version"]


def test_put_and_delete_are_tried_without_a_trace(client: httpx.Client) -> None:
    """A dry run of an upload tells what activating it tells, stored or not; nothing changes."""
    subscribe(client, "target isa Computer")
    before = client.get("/v1/ontologies").json(), client.get("/v1/ontologies/x/versions").json()
    third = SECOND + ":Phone rdfs:subClassOf :Computer ."
    tried = put(client, third, dry_run=True)
    assert (tried["dry_run"], tried["active"], "version" in tried) == (True, False, False)
    assert tried["concepts"] > put(client, SECOND, dry_run=True)["concepts"]
    (term,) = tried["impact"]["terms"]["listed"]
    assert {"Phone", "Slate"} <= {each["iri"].removeprefix("http://e/") for each in term["gains"]["concepts"]}
    known = put(client, SECOND, dry_run=True)
    assert (known["version"], known["impact"]) == (2, post(client, "activate", version=2, dry_run=True)["impact"])
    assert put(client, FIRST, dry_run=True)["active"] is True
    kept = client.delete("/v1/ontologies/x", params={"dry_run": True})
    assert (kept.status_code, problem_code(kept)) == (409, "ontology-in-use")
    assert (client.get("/v1/ontologies").json(), client.get("/v1/ontologies/x/versions").json()) == before
    assert put(client, third)["impact"] == tried["impact"]


def test_delete_that_is_only_tried_deletes_nothing(client: httpx.Client) -> None:
    tried = client.delete("/v1/ontologies/x", params={"dry_run": True}).json()
    assert (tried["dry_run"], tried["subscriptions"]["changed"]) == (True, 0)
    assert len(client.get("/v1/ontologies/x/versions").json()["versions"]) == 2
    assert client.delete("/v1/ontologies/x").json()["dry_run"] is False
    assert client.delete("/v1/ontologies/x", params={"dry_run": True}).status_code == 404


def test_activate_concept_that_is_dropped_flags_and_unflags(client: httpx.Client) -> None:
    """Kept, flagged in the listing, counted, told of; matched again as soon as it is back: by one call."""
    created, paused = subscribe(client, "target isa Fax"), subscribe(client, "target isa Fax")
    client.post(f"/v1/subscriptions/{paused['id']}/pause", headers=ticket(paused))
    told = post(client, "activate", version=2)
    assert told["subscriptions"]["flagged"]["count"] == 2
    (change,) = told["impact"]["terms"]["listed"]
    assert change["gone"]
    flagged = client.get("/v1/subscriptions?flagged=true").json()["subscriptions"]
    assert {each["id"] for each in flagged} == {created["id"], paused["id"]}
    assert flagged[0]["notes"][0]["code"] == "gone-concept"
    assert "kindcast_subscriptions_flagged 2.0" in client.get("/metrics").text
    told = post(client, "rollback")
    assert (told["version"], told["subscriptions"]["unflagged"]["count"]) == (1, 2)
    assert client.get("/v1/subscriptions?flagged=true").json()["subscriptions"] == []
    assert publish(client, target="Fax") == 1
    client.post(f"/v1/subscriptions/{paused['id']}/resume", headers=ticket(paused))
    assert publish(client, target="Fax", n=2) == 2


def test_resume_of_what_is_gone_is_flagged_and_not_refused(client: httpx.Client) -> None:
    """Whoever comes back while the concept is away waits for it like the others."""
    created = subscribe(client, "target isa Fax")
    client.post(f"/v1/subscriptions/{created['id']}/pause", headers=ticket(created))
    post(client, "activate", version=2)
    answer = client.post(f"/v1/subscriptions/{created['id']}/resume", headers=ticket(created))
    assert (answer.status_code, answer.json()["status"], answer.json()["flagged"]) == (200, "active", True)
    post(client, "activate", version=1)
    assert publish(client, target="Fax") == 1


def test_rollback_goes_to_what_was_in_force_before_and_forth_again(client: httpx.Client) -> None:
    """Not to the number below: to the version that was active before this one."""
    put(client, FIRST + ":Third a owl:Class .", activate=False)
    post(client, "activate", version=3)
    assert post(client, "rollback", dry_run=True)["version"] == 1
    assert [post(client, "rollback")["version"] for _ in range(3)] == [1, 3, 1]
    versions = client.get("/v1/ontologies/x/versions").json()["versions"]
    assert [(each["version"], each["active"]) for each in versions] == [(3, False), (2, False), (1, True)]


def test_put_same_bytes_read_in_another_way_is_another_version(client: httpx.Client) -> None:
    """What is asked of the reading belongs to a version; asked for again, it is found again."""
    other = put(client, FIRST, reason="rdfs")
    assert (other["version"], other["active"]) == (3, True)
    assert put(client, FIRST, reason="rdfs")["version"] == 3
    assert put(client, FIRST)["version"] == 1
    shown = client.get("/v1/ontologies/x/versions").json()["versions"]
    assert [each["reason"] for each in shown] == ["rdfs", "none", "none"]


def test_put_with_a_condition_never_replaces_what_was_not_seen(client: httpx.Client) -> None:
    """If-Match takes the ETag of what was looked at; If-None-Match: * makes what is not there."""

    def conditional(name: str, document: str, **condition: str) -> httpx.Response:
        headers = TURTLE | {key.replace("_", "-"): value for key, value in condition.items()}
        return client.put(f"/v1/ontologies/{name}", content=document.encode(), headers=headers)

    seen = client.get("/v1/ontologies/x").headers["ETag"]
    stored = conditional("x", SECOND, if_match=seen)
    assert (stored.json()["version"], stored.headers["ETag"]) == (2, '"2"')
    for condition in ({"if_match": seen}, {"if_none_match": "*"}):
        refused = conditional("x", FIRST, **condition)
        assert (refused.status_code, problem_code(refused)) == (412, "precondition-failed")
    assert client.get("/v1/ontologies/x").headers["ETag"] == '"2"'
    for params in ({"activate": False}, {"dry_run": True}):
        assert "ETag" not in client.put("/v1/ontologies/z", content=FIRST, headers=TURTLE, params=params).headers
    assert conditional("y", FIRST, if_match="*").status_code == 412
    assert conditional("y", FIRST, if_none_match="*").status_code == 201


def test_a_version_that_was_not_seen_is_neither_replaced_nor_activated_nor_deleted(client: httpx.Client) -> None:
    """`If-Match` of all changes of an ontology. It may have several tags, of which one must be that of the version."""
    put(client, SECOND)
    changes = (
        ("POST", "/v1/ontologies/x/activate?version=1"),
        ("POST", "/v1/ontologies/x/rollback"),
        ("DELETE", "/v1/ontologies/x"),
    )
    for dry_run in (True, False):
        for method, path in changes:
            headers, params = {"If-Match": '"1", "77"'}, {"dry_run": dry_run}
            refused = client.request(method, path, headers=headers, params=httpx.URL(path).params.merge(params))
            assert (refused.status_code, problem_code(refused)) == (412, "precondition-failed"), (method, path)
    seen = client.get("/v1/ontologies/x").headers["ETag"]
    assert seen == '"2"'
    both = TURTLE | {"If-Match": f'"1", {seen}'}
    assert client.put("/v1/ontologies/x", content=FIRST.encode(), headers=both).json()["version"] == 1
    assert client.delete("/v1/ontologies/x", headers={"If-Match": seen}).status_code == 412
    assert client.delete("/v1/ontologies/x", headers={"If-Match": '"1"'}).status_code == 200


def test_changes_at_one_time_are_done_one_after_the_other(tmp_path: Path) -> None:
    """Uploads, activations and declarations that arrive together all happen, each upon the one before: none undoes
    another that it did not know of."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.create_subscription(new("s", "value > 30 degC or a exists or b exists"))
            document = f"{PREFIXES} :{{0}} a owl:Class ."
            await asyncio.gather(
                *(
                    broker.put_ontology(name, document.format(name).encode(), format="turtle", activate=True)
                    for name in "ABCD"
                ),
                broker.declaration_commands.put("attribute", "value", {"unit": "degF"}),
                broker.declaration_commands.put("synonyms", "mine", {"x": "y"}),
            )
            assert [each.name for each in broker.vocabulary.ontologies] == list("ABCD")
            assert broker.vocabulary.synonyms == {"x": "y"}
            assert await matched(broker, value=87) == 1
            version = broker.vocabulary.version
        async with running(tmp_path) as broker:
            assert broker.vocabulary.version == version

    run(body)
