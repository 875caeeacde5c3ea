"""Tenants share a server and nothing else: what one has, the other cannot see, change, receive or guess."""

import asyncio
import errno
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Connection

from kindcast.semantic import ontology
from kindcast.server import tenants
from kindcast.server.api import checks
from kindcast.server.broker import Broker
from kindcast.server.clock import CLOCK
from kindcast.server.errors import StoreDamaged, StoreUnavailable, StoreUnreadable
from kindcast.server.security.callers import KeyRing
from kindcast.server.security.keys import Key
from kindcast.server.settings import Settings
from kindcast.server.store import subscriptions
from kindcast.server.store.system import SystemStore, Tenant
from kindcast.server.tenants import running_tenants
from kindcast.server.worker_threads import ACTING_TENANT
from tests.campaigns.tenants import mixed_requests
from tests.harness.application import problem_code, running_application
from tests.harness.receiver import running_receiver
from tests.harness.server_thread import running_app
from tests.integration.conftest import Kindcast
from tests.integration.test_server_keys import SAMPLES, Keyed, operations, until

TURTLE = (
    b"@prefix : <http://x.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . :Cat rdfs:subClassOf :Pet ."
)
REQUESTS = 400
PATIENCE_SECONDS = 60


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def keyed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    where = {}
    if request.param == "postgresql":
        where["database"] = request.getfixturevalue("postgresql").new_database()
    folder = tmp_path_factory.mktemp("tenants")
    with running_application(folder, max_open_tenants=4, tenant_idle_seconds=3_600, **where) as client:
        yield Keyed(client)


def test_tenants_share_nothing(keyed: Keyed) -> None:
    """The same source and id, ontologies of one, tickets, numbers of events, keys, the audit log, metrics."""
    client = keyed.client
    one, two = keyed.key("admin", tenant="one"), keyed.key("admin", tenant="two")
    assert (
        client.put("/v1/ontologies/pets", content=TURTLE, headers=one | {"Content-Type": "text/turtle"}).status_code
        == 201
    )
    assert client.get("/v1/ontologies", headers=two).json()["ontologies"] == []
    made = client.post("/v1/subscriptions", json={"expression": "a isa Pet"}, headers=one).json()
    assert client.post("/v1/subscriptions", json={"expression": "a isa Pet"}, headers=two).status_code == 422
    ticket = {"Kindcast-Ticket": made["ticket"]}
    path = f"/v1/subscriptions/{made['id']}"
    for headers in (two | ticket, keyed.roles["admin"] | ticket):
        for method, url in (("GET", path), ("DELETE", path), ("POST", f"{path}/pause"), ("GET", f"{path}/events")):
            assert problem_code(client.request(method, url, headers=headers)) == "unknown-subscription"
    event = {"specversion": "1.0", "source": "s", "id": "1", "type": "t", "data": {"a": "Cat"}}
    for headers, matched in ((one, 1), (two, 0)):
        answer = client.post(
            "/v1/events", json=event, headers=headers | {"Content-Type": "application/cloudevents+json"}
        )
        assert (answer.json()["accepted"], answer.json()["matched"]) == (1, matched)
    ids = [
        client.post("/v1/events", json={"a": "x"}, headers=headers).json()["events"][0]["id"].rpartition("-")
        for headers in (one, one, two)
    ]
    assert ids[0][0] == ids[1][0] != ids[2][0]
    assert [int(number, 16) for _, _, number in ids] == [1, 2, 1]  # nobody counts the events of others
    assert "kindcast_matches_total 1.0" in client.get("/metrics", headers=one).text
    assert "kindcast_matches_total 0.0" in client.get("/metrics", headers=two).text
    assert {each["tenant"] for each in client.get("/v1/keys", headers=two).json()["keys"]} == {"two"}
    assert {each["tenant"] for each in client.get("/v1/audit", headers=two).json()["entries"]} == {"two"}
    refused = client.post("/v1/keys", json={"role": "publisher", "tenant": "one"}, headers=two)
    assert problem_code(refused) == "other-tenant"
    ids = {each["tenant"]: each["id"] for each in client.get("/v1/keys", headers=keyed.admin).json()["keys"]}
    assert problem_code(client.delete(f"/v1/keys/{ids['one']}", headers=two)) == "unknown-key"


def test_numbers_of_audit_entries_tell_nothing_of_other_tenants(keyed: Keyed) -> None:
    """They are cursors still, and each tenant has its own."""
    client, one, two = keyed.client, keyed.key("admin", tenant="one"), keyed.key("admin", tenant="two")
    for headers in (one, two, two, one):
        client.put("/v1/ontologies/pets", content=TURTLE, headers=headers | {"Content-Type": "text/turtle"})
    every = client.get("/v1/audit", params={"limit": 1_000}, headers=keyed.admin).json()["entries"]
    whole = client.get("/v1/audit", headers=one).json()
    assert [each["at"] for each in whole["entries"]] == [each["at"] for each in every if each["tenant"] == "one"]
    read, after = [], "0"
    for _ in whole["entries"]:
        page = client.get("/v1/audit", params={"after": after, "limit": 1}, headers=one).json()
        read += page["entries"]
        after = page["cursor"]
    assert read == whole["entries"]
    assert client.get("/v1/audit", params={"after": after}, headers=one).json() == {"entries": [], "cursor": after}
    assert {each["number"] for each in read}.isdisjoint(each["number"] for each in every)
    assert all(each["number"] < 2**52 for each in read)
    for number in (every[-1]["number"], after):  # of the list of all tenants, and of another tenant
        answer = client.get("/v1/audit", params={"after": number}, headers=two)
        assert problem_code(answer) == "invalid-cursor"


def test_no_key_of_a_tenant_acts_in_another(keyed: Keyed) -> None:
    """Every route, with the name of another tenant: 403 for a tenant's administrator; one of all chooses."""
    one = keyed.key("admin", tenant="one")
    for method, path in operations(keyed.client):
        if method == "OPTIONS" or path in ("/healthz", "/readyz", "/asyncapi.json"):
            continue
        if path == "/v1/session" and method in ("POST", "DELETE"):
            continue  # they look at the key in the body, and at the cookie
        url = path
        for name, value in SAMPLES.items():
            url = url.replace(f"{{{name}}}", value)
        answer = keyed.client.request(method, url, headers=one | {"Kindcast-Tenant": "two"})
        assert (answer.status_code, problem_code(answer)) == (403, "other-tenant"), (method, path)
    everywhere = keyed.admin | {"Kindcast-Tenant": "one"}
    assert keyed.client.get("/v1/subscriptions", headers=everywhere).status_code == 200
    for name, status in (("nowhere", 404), ("../x", 422)):
        assert (
            keyed.client.get("/v1/subscriptions", headers=keyed.admin | {"Kindcast-Tenant": name}).status_code == status
        )


def test_tenants_are_made_limited_and_deleted(tmp_path: Path, where: dict[str, Any]) -> None:
    """By administrators of all tenants only. Of a deleted one nothing is left, also for a later one of its name."""
    with running_application(tmp_path, tenant_limits={"subscriptions": 5}, **where) as client:
        keyed = Keyed(client)
        admin = keyed.admin
        assert client.post("/v1/tenants", json={"name": "shop"}, headers=admin).json()["limits"] == {"subscriptions": 5}
        assert problem_code(client.post("/v1/tenants", json={"name": "shop"}, headers=admin)) == "tenant-exists"
        assert problem_code(client.post("/v1/tenants", json={"name": "default"}, headers=admin)) == "tenant-exists"
        for wrong in (
            {"name": "a/b"},
            {"name": "x", "limits": {"bread": 1}},
            {"name": "x", "limits": {"connections": 0}},
        ):
            assert problem_code(client.post("/v1/tenants", json=wrong, headers=admin)) == "invalid-request"
        browser = {"Sec-Fetch-Site": "same-origin"}
        signing = {"key": admin["Authorization"].removeprefix("Bearer "), "tenant": "shop"}
        assert client.post("/v1/session", json=signing, headers=browser).json()["tenant"] == "shop"
        made = keyed.make("admin", tenant="shop")
        mine = {"Authorization": f"Bearer {made['key']}"}
        assert [each["name"] for each in client.get("/v1/tenants", headers=mine).json()["tenants"]] == ["shop"]
        for method, path, body in (
            ("POST", "/v1/tenants", {"name": "more"}),
            ("PATCH", "/v1/tenants/shop", {"limits": {}}),
            ("DELETE", "/v1/tenants/shop", None),
        ):
            assert problem_code(client.request(method, path, json=body, headers=mine)) == "not-permitted"
        told = client.patch("/v1/tenants/shop", json={"limits": {"subscriptions": 1}}, headers=admin).json()
        assert (told["keys"], told["limits"]) == (1, {"subscriptions": 1})
        body = {"expression": "a exists"}
        statuses = [client.post("/v1/subscriptions", json=body, headers=mine).status_code for _ in range(2)]
        assert statuses == [201, 429]
        assert problem_code(client.delete("/v1/tenants/shop", headers=admin)) == "tenant-in-use"
        assert problem_code(client.delete("/v1/tenants/default", headers=admin)) == "tenant-in-use"
        client.delete(f"/v1/keys/{made['id']}", headers=admin)
        assert client.delete("/v1/tenants/shop", headers=admin).json()["name"] == "shop"
        for method, path in (("DELETE", "/v1/tenants/shop"), ("PATCH", "/v1/tenants/shop")):
            answer = client.request(method, path, json={"limits": {}}, headers=admin)
            assert problem_code(answer) == "unknown-tenant"
        answer = client.get("/v1/subscriptions", headers=admin | {"Kindcast-Tenant": "shop"})
        assert problem_code(answer) == "unknown-tenant"
        assert client.get("/v1/subscriptions", headers=browser).status_code == 200  # in the tenant default again
        assert list((tmp_path / "tenants").iterdir()) == []
        again = keyed.key("admin", tenant="shop")
        assert client.get("/v1/subscriptions", headers=again).json()["subscriptions"] == []
        assert made["id"] not in client.get("/v1/audit/export", headers=again).text
        assert made["id"] not in client.get("/v1/usage", headers=again).text
        assert made["id"] in client.get("/v1/audit/export", headers=admin).text
        (tmp_path / "tenants" / "shop.deleted-0").mkdir()
    with running_application(tmp_path, **where):
        until(lambda: not (tmp_path / "tenants" / "shop.deleted-0").exists())


@pytest.mark.parametrize("restarts", [False, True])
def test_tenant_whose_deletion_breaks_off_keeps_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    """As when the process dies, or the disk is full, after the files were renamed and before the commit."""
    rename = Path.rename

    def break_off(path: Path, target: Path) -> None:
        rename(path, target)
        raise OSError(errno.ENOSPC, "no space left")

    with ExitStack() as stack:
        keyed = Keyed(stack.enter_context(running_application(tmp_path)))
        shop = keyed.admin | {"Kindcast-Tenant": "shop"}
        keyed.client.post("/v1/tenants", json={"name": "shop"}, headers=keyed.admin).raise_for_status()
        keyed.client.post("/v1/events", json={"a": 1}, headers=shop).raise_for_status()
        with monkeypatch.context() as patched:
            patched.setattr(Path, "rename", break_off)
            assert keyed.client.delete("/v1/tenants/shop", headers=keyed.admin).status_code == 500
        client = keyed.client
        if restarts:
            stack.close()
            client = stack.enter_context(running_application(tmp_path))
        assert len(client.get("/v1/events", headers=shop).json()["events"]) == 1
        assert client.delete("/v1/tenants/shop", headers=keyed.admin).status_code == 200
        assert list((tmp_path / "tenants").iterdir()) == []


def test_listing_tenants_does_not_look_at_all_keys_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of both, the server did nothing else for seconds."""
    read: list[int] = []

    def keys(ring: KeyRing) -> dict[str, Key]:
        read.append(len(ring._keys))
        return ring._keys

    with running_application(tmp_path) as client:
        keyed = Keyed(client)
        for name in ("one", "two", "two", "three"):
            keyed.make("publisher", tenant=name)
        monkeypatch.setattr(KeyRing, "keys", property(keys))
        listed = client.get("/v1/tenants", headers=keyed.admin).json()["tenants"]
        assert {each["name"]: each["keys"] for each in listed} == {"default": 5, "one": 1, "two": 2, "three": 1}
        assert len(read) < len(listed)


def test_what_is_used_of_limits_is_shown(tmp_path: Path) -> None:
    """Of a key, and of its tenant: rates on average, subscriptions and connections as they are."""
    with running_application(tmp_path) as client:
        admin = {"Authorization": f"Bearer {client.post('/v1/keys', json={'role': 'admin'}).json()['key']}"}
        limits = {"requests_per_second": 100, "subscriptions": 5, "connections": 9}
        client.post("/v1/tenants", json={"name": "shop", "limits": limits}, headers=admin)
        asked = {"role": "subscriber", "tenant": "shop", "limits": {"requests_per_second": 50, "subscriptions": 4}}
        key = client.post("/v1/keys", json=asked, headers=admin).json()
        for _ in range(3):
            made = client.post(
                "/v1/subscriptions",
                json={"expression": "a = 1"},
                headers={"Authorization": f"Bearer {key['key']}"},
            )
            assert made.status_code == 201
        tenants = {each["name"]: each for each in client.get("/v1/tenants", headers=admin).json()["tenants"]}
        used = tenants["shop"]["used"]
        assert (used["subscriptions"], used["connections"]) == (3, 0)
        assert 0 <= used["requests_per_second"] <= 0.3
        assert tenants["default"]["used"] == {}
        keys = {each["id"]: each for each in client.get("/v1/keys", headers=admin).json()["keys"]}
        used = keys[key["id"]]["used"]
        assert used.keys() == {"requests_per_second", "subscriptions"}
        assert used["subscriptions"] == 3
        rotated = client.post(f"/v1/keys/{key['id']}/rotate", headers=admin).json()
        keys = {each["id"]: each for each in client.get("/v1/keys", headers=admin).json()["keys"]}
        assert keys[rotated["id"]]["used"]["subscriptions"] == 3  # it owns what the old key made


def test_keys_are_listed_also_if_a_tenant_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Just then somebody may have to revoke one."""

    def damaged(connection: Connection) -> dict[str, int]:
        raise StoreDamaged("the database is damaged")

    with running_application(tmp_path) as client:
        keyed = Keyed(client)
        made = keyed.make("publisher", limits={"subscriptions": 1, "connections": 9})
        monkeypatch.setattr(subscriptions, "count_by_creator", damaged)
        answer = client.get("/v1/keys", headers=keyed.admin)
        assert answer.status_code == 200, answer.text
        (used,) = (each["used"] for each in answer.json()["keys"] if each["id"] == made["id"])
        assert used == {"connections": 0}


def test_a_tenant_cannot_lift_its_own_limits(tmp_path: Path) -> None:
    with running_application(tmp_path, key_limits={"subscriptions": 2}) as client:
        keyed = Keyed(client)
        mine = keyed.key("admin", tenant="shop")
        for limits, status in (({"subscriptions": 3}, 403), ({"subscriptions": 1}, 201), ({"connections": 9}, 201)):
            asked = {"role": "subscriber", "limits": limits}
            assert client.post("/v1/keys", json=asked, headers=mine).status_code == status
        assert keyed.make("subscriber", tenant="shop", limits={"subscriptions": 3})["limits"] == {"subscriptions": 3}


def test_limits_hold_also_while_a_tenant_is_being_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 8 requests that arrive meanwhile, two wait for it; the others are refused before it is open."""
    refused: list[httpx.Response] = []
    begin = tenants.Tenants._begin

    async def waiting(self: tenants.Tenants, name: str) -> None:
        end = time.monotonic() + 20
        while len(refused) < 6 and time.monotonic() < end:
            await asyncio.sleep(0.01)
        await begin(self, name)

    monkeypatch.setattr(tenants.Tenants, "_begin", waiting)
    with running_application(tmp_path) as client, ThreadPoolExecutor(8) as pool:
        key = Keyed(client).make("subscriber", tenant="shop", limits={"connections": 2})["key"]

        def asked(_: int) -> int:
            answer = client.get("/v1/subscriptions", headers={"Authorization": f"Bearer {key}"})
            if answer.status_code == 429:
                refused.append(answer)
            return answer.status_code

        assert sorted(pool.map(asked, range(8))) == [200] * 2 + [429] * 6


def test_long_work_takes_the_turns_of_its_tenant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worked: list[str] = []

    def noted(*_: object) -> dict[str, Any]:
        worked.append(ACTING_TENANT.get())
        return {"valid": False, "errors": []}

    monkeypatch.setattr(checks, "_checked", noted)
    with running_application(tmp_path) as client:
        keyed = Keyed(client)
        for headers in (keyed.key("subscriber", tenant="one"), keyed.admin | {"Kindcast-Tenant": "one"}, keyed.admin):
            assert client.post("/v1/check", json={"expression": "a = 1"}, headers=headers).status_code == 200
    assert worked == ["one", "one", "default"]


def test_a_server_without_keys_has_only_the_tenant_default(tmp_path: Path) -> None:
    """What is sent to another one must not end up in `default`."""
    with running_application(tmp_path) as client:
        shop = {"Kindcast-Tenant": "shop"}
        made = client.post("/v1/tenants", json={"name": "shop"})
        for answer in (
            made,
            client.post("/v1/events", json={"a": 1}, headers=shop),
            client.get("/v1/events", headers=shop),
        ):
            assert (answer.status_code, problem_code(answer)) == (403, "keys-needed")
        assert client.get("/v1/events", headers={"Kindcast-Tenant": "default"}).json()["events"] == []
        assert client.get("/readyz", headers=shop).status_code == 200
        assert client.post("/v1/events", json={"a": 1}).status_code == 202


def test_commands_of_tenants(tmp_path: Path, kindcast: Kindcast, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_app(tmp_path) as url:
        monkeypatch.setenv("KINDCAST_SERVER", url)
        monkeypatch.setenv("KINDCAST_KEY", kindcast("key", "create", "--role", "admin", "--json").json["key"])
        assert "subscriptions=7" in kindcast("tenant", "create", "bakery", "--limit", "subscriptions=7").out
        assert kindcast("tenant", "limit", "bakery", "--limit", "connections=2", "--json").json["limits"] == {
            "connections": 2
        }
        assert kindcast("tenant", "limit", "bakery", "--limit", "connections").status == 2
        listed = kindcast("tenant", "list", "--json").json["tenants"]
        assert [each["name"] for each in listed] == ["bakery", "default"]
        assert kindcast("tenant", "delete", "bakery").out == "deleted bakery\n"
        assert kindcast("tenant", "delete", "bakery", "--json").status == 1
        assert "no limits" in kindcast("tenant", "list").out


def test_tenants_close_and_open_again(tmp_path: Path, where: dict[str, Any]) -> None:
    """No more than so many are open; whoever comes back finds everything, in this process and in the next."""
    tickets: dict[str, dict[str, Any]] = {}
    with running_application(tmp_path, max_open_tenants=3, **where) as client:
        keyed = Keyed(client)
        keys = {name: keyed.key("admin", tenant=name) for name in ("a", "b", "c", "d")}
        for name, headers in keys.items():
            tickets[name] = client.post(
                "/v1/subscriptions", json={"expression": f"{name} exists"}, headers=headers
            ).json()
        for name, headers in keys.items():
            assert client.post("/v1/events", json={name: 1}, headers=headers).json()["matched"] == 1
        folders = {each.name for each in (tmp_path / "tenants").iterdir()}
        assert {each.removeprefix("kindcast_tenant_").partition("_")[0] for each in folders} == set(keys)
    with running_application(tmp_path, max_open_tenants=3, **where) as client:
        for name, headers in keys.items():
            page = client.get(f"/v1/subscriptions/{tickets[name]['id']}/events", headers=headers).json()
            assert [each["event"]["data"] for each in page["events"]] == [{name: 1}]


def test_no_more_tenants_are_open_than_allowed_when_many_open_at_once(tmp_path: Path, where: dict[str, Any]) -> None:
    """Those that are being opened count; who finds no place is told so, and comes again."""
    with running_app(tmp_path, max_open_tenants=3, **where) as url, httpx.Client(base_url=url, timeout=60) as client:
        keyed = Keyed(client)
        keys = [keyed.key("admin", tenant=f"t{number}") for number in range(8)]

        def publish(headers: dict[str, str]) -> int:
            return httpx.post(f"{url}/v1/events", json={"a": 1}, headers=headers, timeout=60).status_code

        for _ in range(3):
            with ThreadPoolExecutor(len(keys)) as pool:
                answers = list(pool.map(publish, keys))
            assert set(answers) <= {202, 503}
            assert 202 in answers
            listed = client.get("/v1/tenants", headers=keyed.admin).json()["tenants"]
            assert sum(each["open"] for each in listed) <= 3


def test_a_webhook_keeps_its_tenant_awake(tmp_path: Path, where: dict[str, Any]) -> None:
    """Nobody asks, and it is still delivered: the tenant is not closed, and the next start opens it."""
    with running_receiver() as receiver:
        sink = receiver.script("/hook", *[503] * 3, 200)
        delays = {"allow_private_sinks": True, "webhook_delays_seconds": (0.3,) * 100, "tenant_idle_seconds": 0.05}
        delays |= where
        with running_application(tmp_path, **delays) as client:
            headers = Keyed(client).key("admin", tenant="hooks")
            body = {"expression": "a exists", "sink": sink}
            assert client.post("/v1/subscriptions", json=body, headers=headers).status_code == 201
            assert client.post("/v1/events", json={"a": 1}, headers=headers).json()["matched"] == 1
        with running_application(tmp_path, **delays):
            receiver.wait_for("/hook", 4)


def test_tenants_whose_webhooks_fail_leave_room_for_others(
    tmp_path: Path, where: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were open until the last attempt, for days, and others were refused. They are opened for each attempt."""
    monkeypatch.setattr(tenants, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(tenants, "SHARED_LOOK_SECONDS", 0.05)
    delays = {"webhook_delays_seconds": (1.0, *9 * (3_600.0,)), "webhook_jitter": 0.0}
    with running_receiver() as receiver:
        sink = receiver.script("/hook", *20 * (503,))
        with running_application(tmp_path, allow_private_sinks=True, max_open_tenants=3, **delays, **where) as client:
            keyed = Keyed(client)
            keys = {name: keyed.key("admin", tenant=name) for name in ("one", "two", "three", "four")}
            body = {"expression": "a exists", "sink": sink}
            for name in ("one", "two"):
                assert client.post("/v1/subscriptions", json=body, headers=keys[name]).status_code == 201
                assert client.post("/v1/events", json={"a": 1}, headers=keys[name]).status_code == 202

            def failed_twice(name: str) -> bool:
                (each,) = client.get("/v1/subscriptions", headers=keys[name]).json()["subscriptions"]
                return bool(each["consecutive_errors"] == 2)

            until(lambda: failed_twice("one") and failed_twice("two"))  # the next attempts are not soon

            def others_are_open() -> bool:
                for name in ("three", "four"):
                    client.post("/v1/events", json={"a": 1}, headers=keys[name])
                listed = client.get("/v1/tenants", headers=keyed.admin).json()["tenants"]
                return {each["name"] for each in listed if each["open"]} == {"default", "three", "four"}

            until(others_are_open)
            later = CLOCK.now() + 3_600.0
            monkeypatch.setattr(CLOCK, "now", lambda: later)
            receiver.wait_for("/hook", 6)


def test_a_tenant_that_cannot_be_opened_at_the_start_is_opened_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As when the process has too many open files. Nobody asks, and its webhook is still delivered."""
    folder, away = tmp_path / "tenants" / "hooks", tmp_path / "away"
    with running_receiver() as receiver:
        sink = receiver.script("/hook", 503, 200)
        options = {"allow_private_sinks": True, "webhook_delays_seconds": (1.0,) * 9, "tenant_idle_seconds": 0.05}
        with running_application(tmp_path, **options) as client:
            headers = Keyed(client).key("admin", tenant="hooks")
            client.post("/v1/subscriptions", json={"expression": "", "sink": sink}, headers=headers)
            assert client.post("/v1/events", json={"a": 1}, headers=headers).json()["matched"] == 1
            receiver.wait_for("/hook", 1)
        folder.rename(away)
        folder.write_text("no folder")
        with running_application(tmp_path, **options):
            until(lambda: "tenant hooks cannot be opened" in caplog.text)
            folder.unlink()
            away.rename(folder)
            receiver.wait_for("/hook", 2)


def test_tenants_are_awake_although_the_database_was_away_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def awake(store: SystemStore) -> list[Tenant]:
        asked.append(len(asked))
        if len(asked) == 1:
            raise StoreUnavailable("the database cannot be reached")
        return []

    monkeypatch.setattr(SystemStore, "awake", awake)
    with running_application(tmp_path, tenant_idle_seconds=0.05):
        until(lambda: len(asked) == 2)


def test_a_tenant_whose_files_cannot_be_opened_is_answered(tmp_path: Path) -> None:
    """As when the process has too many open files. It opens as soon as that is over."""
    with running_application(tmp_path) as client:
        headers = Keyed(client).key("admin", tenant="shop")
        (tmp_path / "tenants").mkdir(exist_ok=True)
        (tmp_path / "tenants" / "shop").write_text("no folder")
        answer = client.post("/v1/events", json={"a": 1}, headers=headers)
        assert (answer.status_code, problem_code(answer)) == (503, "store-unavailable")
        (tmp_path / "tenants" / "shop").unlink()
        assert client.post("/v1/events", json={"a": 1}, headers=headers).status_code == 202


def test_a_tenant_is_opened_when_threads_start_again(
    where: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the machine, or a limit of the service, allows no further thread."""
    begin, few = threading.Thread.start, threading.Event()

    def start(self: threading.Thread) -> None:
        if few.is_set() and self.name == "kindcast-broker":
            raise RuntimeError("can't start new thread")
        begin(self)

    monkeypatch.setattr(threading.Thread, "start", start)
    with running_application(tmp_path, **where) as client:
        headers = Keyed(client).key("admin", tenant="shop")
        few.set()
        for _ in range(2):
            answer = client.post("/v1/events", json={"a": 1}, headers=headers)
            assert (answer.status_code, problem_code(answer)) == (503, "store-unavailable"), answer.text
        few.clear()
        assert client.post("/v1/events", json={"a": 1}, headers=headers).status_code == 202


def test_a_tenant_that_fails_unexpectedly_while_it_opens_is_answered_as_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Publishing is answered before the framework, which answers errors elsewhere."""

    async def fail(_: Broker) -> None:
        raise KeyError("a fault of the server")

    with running_application(tmp_path) as client:
        headers = Keyed(client).key("admin", tenant="shop")
        monkeypatch.setattr(Broker, "start", fail)
        for answer in (
            client.post("/v1/events", json={"a": 1}, headers=headers),
            client.get("/v1/events", headers=headers),
        ):
            assert (answer.status_code, problem_code(answer)) == (500, "internal-error")
        assert "POST /v1/events failed" in caplog.text


def test_a_tenant_with_due_work_that_cannot_be_read_is_not_tried_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PostgreSQL, servers look for tenants with due work every second."""
    tried: list[int] = []

    async def fail(_: Broker) -> None:
        tried.append(len(tried))
        raise StoreUnreadable("an ontology cannot be read")

    async def drive() -> None:
        settings = Settings(data=tmp_path)
        store = SystemStore(settings)
        store.open()
        async with running_tenants(settings, store) as running:
            monkeypatch.setattr(Broker, "start", fail)
            store.add_tenant("shop", {}, time.time())
            store.wake("shop")
            for _ in range(3):
                assert await running.wake()
            assert len(tried) == 1
            with pytest.raises(StoreUnreadable):
                async with running.enter("shop"):
                    pass
            monkeypatch.setattr(tenants, "UNREADABLE_SECONDS", 0.0)
            running._unreadable.clear()
            for _ in range(2):
                assert await running.wake()
            assert len(tried) == 4
        store.close()

    asyncio.run(drive())


def test_a_tenant_that_cannot_be_read_keeps_no_other_one_from_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has been idle for the longest time, so it would be closed first. Another one is closed instead."""
    due_at = tenants._due_at

    def due_at_or_damaged(connection: Connection) -> float | None:
        if "tenants/damaged/" in str(connection.engine.url.database):
            raise StoreDamaged("the database is damaged")
        return due_at(connection)

    monkeypatch.setattr(tenants, "_due_at", due_at_or_damaged)
    with running_application(tmp_path, max_open_tenants=3) as client:
        keyed = Keyed(client)
        for name in ("damaged", "second", "third"):
            answer = client.post("/v1/events", json={"a": 1}, headers=keyed.key("admin", tenant=name))
            assert answer.status_code == 202, answer.text
        listed = client.get("/v1/tenants", headers=keyed.admin).json()["tenants"]
        assert {each["name"] for each in listed if each["open"]} == {"default", "damaged", "third"}


def test_generated_requests_of_two_tenants(keyed: Keyed) -> None:
    """A sample of the campaign: each word belongs to one tenant, and no answer to the other has it."""
    mixed_requests(
        keyed.client, {name: keyed.key("admin", tenant=name) for name in ("left", "right")}, REQUESTS, seed=7
    )


def test_request_that_leaves_while_its_tenant_opens_leaves_it_open_for_the_next(tmp_path: Path) -> None:
    """The database of the tenant has a lock: a half-opened tenant would refuse everybody."""

    async def drive() -> None:
        settings = Settings(data=tmp_path)
        store = SystemStore(settings)
        store.open()
        store.add_tenant("shop", {}, time.time())
        async with running_tenants(settings, store) as tenants:

            async def ask() -> None:
                async with tenants.enter("shop"):
                    pass

            leaving = asyncio.create_task(ask())
            while not (tmp_path / "tenants" / "shop" / "kindcast.db.lock").exists():
                await asyncio.sleep(0)
            leaving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaving
            await asyncio.wait_for(ask(), PATIENCE_SECONDS)
            assert tenants.is_open("shop")
        store.close()

    asyncio.run(drive())


def test_tenants_with_equal_ontologies_share_one_vocabulary(tmp_path: Path, where: dict[str, Any]) -> None:
    """One object of both, after an upload as after a start; a declaration of one is not the other's."""

    async def drive() -> None:
        settings = Settings(data=tmp_path, **where)
        store = SystemStore(settings)
        store.open()
        for name in ("left", "right"):
            store.add_tenant(name, {}, time.time())
        for _ in range(2):  # the second time what was uploaded is restored
            async with (
                running_tenants(settings, store) as tenants,
                tenants.enter("left") as left,
                tenants.enter("right") as right,
            ):
                for each in (left.broker, right.broker):
                    await each.put_ontology("o", TURTLE, format="ttl", activate=True)
                assert left.broker.vocabulary.concept("http://x.org/Cat") is not None
                assert left.broker.vocabulary is right.broker.vocabulary
                assert tenants.default.broker.vocabulary is not left.broker.vocabulary
                await left.broker.declaration_commands.put("attribute", "a", {"kind": "number"})
                assert left.broker.vocabulary is not right.broker.vocabulary
                assert right.broker.vocabulary.attributes.declaration("a") is None
                await left.broker.declaration_commands.delete("attribute", "a")
                assert left.broker.vocabulary is right.broker.vocabulary
        store.close()

    asyncio.run(drive())


def test_all_tenants_together_read_no_more_ontologies_than_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is read in a process of its own, which may need much memory. All are read, one after the other."""
    read, lock, running, most = ontology.read_encoded, threading.Lock(), 0, 0
    another = threading.Event()

    def counted(*arguments: Any, **more: Any) -> bytes:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running > 1:
                another.set()
        another.wait(0.5)
        try:
            return read(*arguments, **more)
        finally:
            with lock:
                running -= 1

    monkeypatch.setattr(ontology, "read_encoded", counted)
    with running_application(tmp_path, ontology_readers=1) as client:
        keyed = Keyed(client)
        keys = [keyed.key("ontologist", tenant=tenant) for tenant in ("default", "one", "two")]

        def put(key: dict[str, str]) -> int:
            headers = {**key, "Content-Type": "text/turtle"}
            return client.put("/v1/ontologies/x", content="<urn:a> a <urn:b> .", headers=headers).status_code

        with ThreadPoolExecutor(3) as threads:
            assert list(threads.map(put, keys)) == [201] * 3
    assert most == 1
