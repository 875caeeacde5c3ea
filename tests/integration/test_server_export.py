"""What is exported comes back as it was: what it asks, where it goes, whether it is paused, when it ends; by an
administrator also its secrets, so that receivers notice nothing."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kindcast.semantic.shipped_vocabularies import shipped
from kindcast.server.api import subscriptions as api
from tests.harness.application import publish, running_application, show, subscribe, ticket, waiting

RDFS = "http://www.w3.org/2000/01/rdf-schema#"
SINK = "http://127.0.0.1:9/hook"


@contextmanager
def server(folder: Path) -> Iterator[httpx.Client]:
    with running_application(folder, allow_private_sinks=True) as client:
        client.put("/v1/ontologies/shop", content=shipped("shop").read_bytes()).raise_for_status()
        yield client


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    folder = tmp_path_factory.mktemp("data")
    with server(folder / "one") as one, server(folder / "two") as two:
        yield one, two


def exported(client: httpx.Client, *, secrets: bool = False) -> list[dict[str, Any]]:
    path = "/v1/subscriptions/export"
    answer = client.post(path) if secrets else client.get(path)
    return [json.loads(line) for line in answer.raise_for_status().text.splitlines()]


def imported(client: httpx.Client, lines: list[dict[str, Any]]) -> dict[str, Any]:
    answer = client.post("/v1/subscriptions/import", content="\n".join(map(json.dumps, lines)))
    told: dict[str, Any] = answer.raise_for_status().json()
    return told


def clear(client: httpx.Client, *made: dict[str, Any]) -> None:
    for each in made:
        client.delete(f"/v1/subscriptions/{each['id']}", headers=ticket(each)).raise_for_status()


EXPRESSIONS = ("target isa Computer and price <= 400 USD", "n = 1", "n > 1 or not m = 2", "")
ASKED = st.fixed_dictionaries(
    {"expression": st.sampled_from(EXPRESSIONS)},
    optional={
        "types": st.lists(st.sampled_from(["offer", "kindcast.event"]), min_size=1, max_size=2, unique=True),
        "source": st.sampled_from(["urn:shop", "urn:kindcast:anonymous"]),
        "metadata": st.dictionaries(st.sampled_from("ab"), st.integers(), max_size=2),
        "attributes": st.lists(st.sampled_from(["n", "price"]), min_size=1, max_size=2, unique=True),
        "ttl_seconds": st.integers(1_000, 100_000),
    },
)
FILTERS = ([{"exact": {"type": "offer"}}], [{"any": [{"prefix": {"source": "urn:"}}]}])
WITH_FILTERS = st.fixed_dictionaries({"expression": st.none(), "filters": st.sampled_from(FILTERS)})
SENT = st.fixed_dictionaries(
    {"sink": st.just(SINK)},
    optional={
        "throttling": st.integers(1, 100),
        "protocolsettings": st.sampled_from(
            [{"format": "cloudevents"}, {"batch": 5}, {"method": "PUT", "headers": {"X-Key": "hush"}}]
        ),
        "sinkcredential": st.just({"credentialtype": "ACCESSTOKEN", "accesstoken": "hush"}),
    },
)
ASKED_AS = ("expression", "filters", "types", "source")
EVENTS = [{"target": "laptop", "price": "5 USD"}, {"n": 1}, {"n": 2, "m": 2}, {"n": 5, "price": 3}]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=ASKED | WITH_FILTERS, sent=st.none() | SENT, paused=st.booleans(), secrets=st.booleans())
def test_what_is_exported_comes_back(
    pair: tuple[httpx.Client, httpx.Client], asked: dict[str, Any], sent: Any, paused: bool, secrets: bool
) -> None:
    """The import, exported again, is the export; it gets the same events; nothing secret is in it unless asked for."""
    one, two = pair
    old = subscribe(one, **asked, **(sent or {}))
    if paused:
        one.post(f"/v1/subscriptions/{old['id']}/pause", headers=ticket(old)).raise_for_status()
    lines = exported(one, secrets=secrets)
    assert ("hush" in json.dumps(lines)) <= secrets
    (told,) = imported(two, lines)["created"]
    new = {"id": told["id"], "ticket": old["ticket"] if secrets else told["ticket"]}
    assert told["was"] == old["id"]
    assert (new["id"] == old["id"]) == secrets
    again = exported(two, secrets=secrets)
    if not secrets:
        lines, again = ([each | {"id": ""} for each in some] for some in (lines, again))
    assert again == lines
    if sent is not None and secrets:
        assert told["secret"] == old["secret"]
    found = []
    for client, made in ((one, old), (two, new)):
        shown = show(client, made).json()
        assert shown["status"] == ("paused" if paused else "active")
        assert {name: shown.get(name) for name in ASKED_AS} == {name: old.get(name) for name in ASKED_AS}
        found.append([publish(client, **event) for event in EVENTS])
        client.post(f"/v1/subscriptions/{made['id']}/resume", headers=ticket(made)).raise_for_status()
        found[-1] += [publish(client, **event) for event in EVENTS]
    assert found[0] == found[1]
    clear(one, old)
    clear(two, new)


def test_rotation_goes_on_after_an_import(pair: tuple[httpx.Client, httpx.Client]) -> None:
    """A receiver that has only the old secret accepts the messages of the new server, as long as those of the old
    one. Without secrets the import makes a new secret, and nobody has an old one."""
    one, two = pair
    old = subscribe(one, "n = 1", sink=SINK)
    path = f"/v1/subscriptions/{old['id']}/rotate-secret"
    new = one.post(path, json={"overlap_seconds": 600}, headers=ticket(old)).raise_for_status().json()
    (line,) = exported(one, secrets=True)
    assert (line["secret"], line["old_secret"]) == (new["secret"], old["secret"])
    assert imported(two, [line])["rejected"] == []
    assert exported(two, secrets=True) == [line]
    assert "old_secret" not in exported(one)[0]
    one.post(path, json={"overlap_seconds": 0}, headers=ticket(old)).raise_for_status()
    assert "old_secret" not in exported(one, secrets=True)[0]
    clear(one, old)
    clear(two, old)


def test_ids_and_tickets_go_on_and_a_second_import_makes_nothing_new(tmp_path: Path) -> None:
    """Readers keep their address and their ticket; another subscription of the id is refused, and its neighbour not."""
    with server(tmp_path / "one") as one, server(tmp_path / "two") as two:
        made = [subscribe(one, f"n = {n}") for n in range(3)]
        lines = exported(one, secrets=True)
        assert [each["id"] for each in imported(two, lines)["created"]] == [each["id"] for each in made]
        publish(two, n=1)
        assert waiting(two, made[1]) == [{"n": 1}]
        told = imported(two, [*lines, lines[0]])
        assert (len(told["created"]), told["rejected"]) == (4, [])
        told = imported(two, [{**lines[0], "expression": "n = 9"}, lines[1]])
        assert [each["line"] for each in told["created"]] == [2]
        assert told["rejected"][0]["problem"]["type"].endswith("idempotency-key-reused")
        assert len(two.get("/v1/subscriptions").json()["subscriptions"]) == 3
        clear(two, made[0])
        told = imported(two, [lines[0], lines[0]])
        assert ([each["line"] for each in told["created"]], [each["line"] for each in told["rejected"]]) == ([1], [2])


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ({"expression": "1 * ?x = 1"}, None),
        ({"expression": "n = 2"}, None),
        ({"expression": "n is nowhere"}, None),
        ({"expression": "n = 1", "types": ["offer"]}, None),
        ({"expression": "n   =  1"}, {"expression": "n   =  1"}),
        ({"where": {"=": ["n", 1]}}, {"where": {"=": ["n", 1]}}),
    ],
)
def test_how_it_was_written_is_kept_where_it_means_the_same(tmp_path: Path, asked: Any, shown: Any) -> None:
    """A line may say what it likes: the subscription matches by its expression, and shows nothing else. The same line
    again makes nothing; with another expression it is another request."""
    line = {"expression": "n = 1", "asked": asked, "id": "sub_0123456789abcdef", "ticket_hash": "0" * 64}
    with server(tmp_path) as client:
        for _ in range(2):
            told = imported(client, [line])
            assert told["rejected"] == []
        (found,) = client.get("/v1/subscriptions").json()["subscriptions"]
        kept = {name: found[name] for name in (*ASKED_AS, "where") if found.get(name) is not None}
        assert kept == (shown or {"expression": "n = 1"})
        assert found["canonical"] == "n = 1"
        assert len(imported(client, [{**line, "expression": "n = 9"}])["rejected"]) == 1


@pytest.mark.parametrize(
    ("line", "pointer"),
    [
        ({"ticket_hash": "0" * 64}, "/id"),
        ({"ticket_hash": "0" * 64, "id": "mine"}, "/id"),
        ({"ticket_hash": "short", "id": "sub_0123456789abcdef"}, "/ticket_hash"),
        ({"sink": "https://example.org/…"}, "/sink"),
        ({"asked": {"expresion": "n = 1"}}, "/asked/expresion"),
        ({"asked": {"types": []}}, "/asked/types"),
        ({"secret": "none", "sink": SINK}, "/secret"),
        ({"status": "asleep"}, "/status"),
    ],
)
def test_lines_that_no_export_has_are_refused(
    pair: tuple[httpx.Client, httpx.Client], line: dict[str, Any], pointer: str
) -> None:
    told = imported(pair[0], [{"expression": "n = 1", **line}])
    assert told["created"] == []
    assert [fault["pointer"] for fault in told["rejected"][0]["problem"]["errors"]] == [pointer]


@pytest.mark.parametrize("length", [80, 230])
def test_what_is_longer_than_a_text_comes_back(tmp_path: Path, length: int) -> None:
    """A long list as a tree: its line has a tree, too, and as a whole it may be longer than a subscription."""
    where = {"in": ["n", [f"{each:04}{'x' * length}" for each in range(1_000)]]}
    with server(tmp_path / "one") as one, server(tmp_path / "two") as two:
        one.post("/v1/subscriptions", json={"where": where}).raise_for_status()
        lines = exported(one, secrets=True)
        for _ in range(2):
            told = imported(two, lines)
            assert ([each["id"] for each in told["created"]], told["rejected"]) == ([lines[0]["id"]], [])
        shown = [each.get(f"/v1/subscriptions/{lines[0]['id']}").json() for each in (one, two)]
        assert shown[0]["canonical"] == shown[1]["canonical"]
        assert shown[0]["where"] == shown[1]["where"] == where


def test_what_is_too_long_with_iris_comes_back_as_it_was_written(tmp_path: Path) -> None:
    """Its labels became long IRIs. The limit is for what somebody writes, and the export can be imported."""
    prefix = f"https://example.org/{'long/' * 20}"
    classes = "".join(f'<{prefix}C{each}> a owl:Class ; rdfs:label "c{each}" .\n' for each in range(20))
    ontology = f"@prefix owl: <http://www.w3.org/2002/07/owl#> .\n@prefix rdfs: <{RDFS}> .\n{classes}"
    written = f"a isa ({', '.join(f'c{each}' for each in range(20))})"
    with running_application(tmp_path, max_subscription_bytes=1_000) as client:
        client.put("/v1/ontologies/long?format=turtle", content=ontology).raise_for_status()
        first = subscribe(client, written, types=["t"])
        [line] = exported(client)
        assert len(json.dumps(line)) > 2_000
        told = imported(client, [line])
        assert (len(told["created"]), told["rejected"]) == (1, [])
        shown = show(client, told["created"][0]).json()
        assert [shown[name] for name in ("expression", "types")] == [written, ["t"]]
        assert shown["canonical"] == first["canonical"]
        told = imported(client, [line | {"asked": None}])
        assert told["rejected"][0]["problem"]["type"].endswith("/body-too-large")


def test_large_subscriptions_do_not_hold_up_other_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines are written in a thread, and a page ends after some bytes. It had a thousand subscriptions, and no
    request was answered while they were written."""
    in_loop: list[bool] = []
    encode = msgspec.json.encode

    def encoded(value: Any) -> bytes:
        if isinstance(value, dict) and "metadata" in value:
            try:
                in_loop.append(asyncio.get_running_loop().is_running())
            except RuntimeError:
                in_loop.append(False)
        return encode(value)

    monkeypatch.setattr(api, "EXPORTED_BYTES", 2_000, raising=False)
    with running_application(tmp_path) as client:
        made = [subscribe(client, f"n = {n}", metadata={"note": "x" * 1_500})["id"] for n in range(5)]
        monkeypatch.setattr(msgspec.json, "encode", encoded)
        assert [each["id"] for each in exported(client)] == made
    assert in_loop == [False] * 5


def test_only_administrators_get_secrets_and_it_is_audited(tmp_path: Path) -> None:
    with running_application(tmp_path, allow_private_sinks=True) as client:
        admin = client.post("/v1/keys", json={"role": "admin"}).raise_for_status().json()["key"]
        bearer = {"Authorization": f"Bearer {admin}"}
        for role in ("subscriber", "publisher", "ontologist", "auditor"):
            key = client.post("/v1/keys", json={"role": role}, headers=bearer).raise_for_status().json()["key"]
            asked = client.post("/v1/subscriptions/export", headers={"Authorization": f"Bearer {key}"})
            assert asked.status_code == 403, role
        client.post("/v1/subscriptions/export", headers=bearer).raise_for_status()
        entries = client.get("/v1/audit", headers=bearer).json()["entries"]
        found = [each for each in entries if "with secrets" in (each["detail"] or "")]
        assert len(found) == 1


def test_what_has_ended_is_not_exported_and_older_exports_are_read(tmp_path: Path) -> None:
    with running_application(tmp_path) as client:
        subscribe(client, "n = 1", ttl_seconds=0.2)
        other = subscribe(client, "n = 2")
        while show(client, other).json()["status"] == "active" and len(exported(client)) > 1:
            pass
        assert [each["id"] for each in exported(client)] == [other["id"]]
        old = {"id": "sub_old", "expression": "n = 3", "metadata": None}
        assert imported(client, [old])["created"][0]["was"] == "sub_old"


def test_subscription_whose_sink_was_taken_away_comes_back_without_what_was_for_it(tmp_path: Path) -> None:
    with server(tmp_path) as client:
        more = {"throttling": 5, "protocolsettings": {"batch": 5}}
        made = subscribe(client, "n = 1", sink=SINK, **more)
        client.patch(f"/v1/subscriptions/{made['id']}", json={"sink": None}, headers=ticket(made)).raise_for_status()
        shown = show(client, made).json()
        assert [shown[name] for name in ("sink", "protocol", "protocolsettings", "throttling")] == [None] * 4
        for secrets in (False, True):
            lines = exported(client, secrets=secrets)
            assert "sink" not in lines[0]
            assert len(imported(client, lines[:1])["created"]) == 1
