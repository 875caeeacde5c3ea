"""Who may do what: keys, roles, the audit log, limits."""

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Lock
from typing import Any, get_args

import httpx
import msgspec
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from kindcast.server import app
from kindcast.server.api import access, requests
from kindcast.server.api.access import AccessControl, running_access
from kindcast.server.cli import serve
from kindcast.server.client import Client, ProblemError
from kindcast.server.errors import KeysLost, KeysNeeded, StoreUnavailable, UnknownKey
from kindcast.server.security.callers import KeyRing
from kindcast.server.security.keys import Key, Role, new_key
from kindcast.server.security.permissions import ROLES, ROUTES, Permission, needs_of
from kindcast.server.settings import Settings
from kindcast.server.store.system import AuditEntry, SystemStore
from tests.harness.application import problem_code, publish, running_application
from tests.harness.server_process import running_server
from tests.harness.server_thread import running_app
from tests.harness.waiting import until
from tests.integration.conftest import Kindcast

ROLES_LISTED = get_args(Role)
SAMPLES = {"name": "x", "type": "x", "id": "x", "sequence": "1"}


class Keyed:
    """A server with a key for each role, and how to send them."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self.secrets: list[str] = []
        self.admin = {"Authorization": f"Bearer {self._made(client.post('/v1/keys', json={'role': 'admin'}))['key']}"}
        self.roles = {role: self.key(role, tenant="default") for role in ROLES_LISTED}

    def make(self, role: str, **more: Any) -> dict[str, Any]:
        """What making a key answers."""
        return self._made(self.client.post("/v1/keys", json={"role": role, **more}, headers=self.admin))

    def key(self, role: str, **more: Any) -> dict[str, str]:
        """The header of a new key."""
        return {"Authorization": f"Bearer {self.make(role, **more)['key']}"}

    def _made(self, answer: httpx.Response) -> dict[str, Any]:
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        self.secrets.append(made["key"])
        return made


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    with running_application(tmp_path_factory.mktemp("keyed")) as client:
        yield Keyed(client)


def operations(client: httpx.Client) -> list[tuple[str, str]]:
    """Method and path of every route, as the server itself lists them."""
    paths: dict[str, dict[str, Any]] = client.get("/openapi.json").json()["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods]


ROUNDS_AT_ONCE = 10


# ── the matrix ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_route_states_its_permission(keyed: Keyed) -> None:
    """A route that is not in the table cannot be reached with keys; the document says what each needs."""
    listed = operations(keyed.client)
    assert [route for route in listed if needs_of(*route) is None] == []
    known = {f"{method} {path}" for method, path in listed}
    beside = {"GET /openapi.json", "HEAD /openapi.json", "GET /docs", "GET /docs/oauth2-redirect"}
    stale = {route.replace(":path}", "}") for route in ROUTES if not route.startswith("WEBSOCKET")} - known - beside
    assert stale == {"GET /static-offline-docs/{path}", "GET /", "GET /console", "GET /console/{name}"}
    document = keyed.client.get("/openapi.json").json()
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    assert document["paths"]["/v1/events"]["post"]["security"] == [{"key": []}]
    assert "security" not in document["paths"]["/healthz"]["get"]


def test_openapi_document_is_made_once_without_keys_and_once_with_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To make and encode it takes time of the event loop, and anybody may ask."""
    made, describe = [0], app.describe_security

    def counted(*arguments: Any) -> dict[str, Any]:
        made[0] += 1
        return describe(*arguments)

    monkeypatch.setattr(app, "describe_security", counted)
    with running_app(tmp_path) as address, httpx.Client(base_url=address) as client:
        first = client.get("/openapi.json").json()["paths"]["/v1/events"]["post"]["security"]
        assert (first, client.head("/openapi.json").status_code, made) == ([{"key": []}, {}], 200, [1])
        key = client.post("/v1/keys", json={"role": "admin"}).json()["key"]
        for _ in range(3):
            document = client.get("/openapi.json", headers={"Authorization": f"Bearer {key}"}).json()
        assert document["paths"]["/v1/events"]["post"]["security"] == [{"key": []}]
        assert made == [2]


@pytest.mark.parametrize("role", [*ROLES_LISTED, None])
def test_matrix_of_routes_and_roles(keyed: Keyed, role: Role | None) -> None:
    """Every route with every role, and without a key: exactly what the role allows is not refused."""
    headers = {} if role is None else keyed.roles[role]
    for method, path in operations(keyed.client):
        if path.endswith(("/stream", "/ws")) or (role == "admin" and path == "/v1/keys/{id}"):
            continue  # has tests of its own
        url = re.sub(r"\{(\w+)\}", lambda match: SAMPLES[match[1]], path)
        answer = keyed.client.request(method, url, headers=headers)
        needs = needs_of(method, path)
        assert needs is not None
        if (method, path) == ("POST", "/v1/session"):
            assert problem_code(answer) == "unsupported-media-type"  # it is there to show a key
        elif Permission.PUBLIC in needs:
            assert answer.status_code == 200, (method, path)
        elif role is None:
            assert (answer.status_code, problem_code(answer)) == (401, "key-missing"), (method, path)
            assert answer.headers["WWW-Authenticate"].startswith("Bearer ")
            assert answer.headers["www-authenticate"].startswith("Bearer")
        elif needs & ROLES[role]:
            assert answer.status_code != 401, (method, path)
            assert answer.status_code != 403 or problem_code(answer) == "ticket-wrong", (method, path, answer.text)
        else:
            assert (answer.status_code, problem_code(answer)) == (403, "not-permitted"), (method, path)


def test_roles_are_those_of_the_contract() -> None:
    """What the table must say, said once more in other words."""
    allowed = {route: {role for role in ROLES_LISTED if ROLES[role] & _needs(route)} for route in ROUTES}
    assert allowed["POST /v1/events"] == allowed["POST /v1/match"] == {"publisher", "admin"}
    assert allowed["POST /v1/subscriptions"] == {"subscriber", "ontologist", "admin"}
    assert allowed["GET /v1/subscriptions/{id}/events"] == {"subscriber", "ontologist", "admin"}
    assert allowed["POST /v1/explain"] == {"subscriber", "ontologist", "admin"}
    assert allowed["PUT /v1/ontologies/{name}"] == allowed["PUT /v1/attributes/{name:path}"] == {"ontologist", "admin"}
    assert allowed["GET /v1/audit"] == allowed["GET /metrics"] == {"auditor", "admin"}
    assert allowed["POST /v1/keys"] == allowed["PUT /v1/operators/{name}"] == {"admin"}
    changing = {route for route, roles in allowed.items() if "auditor" in roles and not route.startswith("GET ")}
    assert not changing - {route for route in ROUTES if Permission.PUBLIC in _needs(route)}


def _needs(route: str) -> frozenset[Permission]:
    needs = ROUTES[route]
    return frozenset(needs if isinstance(needs, tuple) else (needs,))


@pytest.mark.parametrize(
    "wrong",
    ["Bearer x", "Bearer kindcast_0123456789abcdef_" + "x" * 43, "Basic YTpi", "Bearer", "Bearer \xff", "bearer  "],
)
def test_wrong_keys_are_refused(keyed: Keyed, wrong: str) -> None:
    answer = keyed.client.get("/v1/subscriptions", headers=[(b"Authorization", wrong.encode("latin-1"))])
    assert answer.status_code == 401
    assert problem_code(answer) in ("key-wrong", "key-missing")
    assert answer.headers["WWW-Authenticate"].startswith("Bearer ")


def test_a_request_names_one_key_and_one_tenant(keyed: Keyed) -> None:
    """The first value counted, also if a proxy had checked or added the other one."""
    keyed.key("publisher", tenant="north")
    admin = keyed.admin["Authorization"]
    publisher = keyed.roles["publisher"]["Authorization"]
    for name, values in (("Authorization", (admin, publisher)), ("Kindcast-Tenant", ("north", "default"))):
        key = [] if name == "Authorization" else [("Authorization", admin)]
        for path in ("/v1/events", "/v1/match"):
            headers = [*key, *((name, each) for each in values)]
            answer = keyed.client.post(path, json={"event": {}}, headers=headers)
            assert (answer.status_code, problem_code(answer)) == (400, "malformed-request")
            assert answer.json()["detail"] == f"the header {name} has two values: send one"


def test_address_without_a_route(keyed: Keyed) -> None:
    """404 and 405 are told to those who have a key."""
    for headers, status in (({}, 401), (keyed.roles["publisher"], 404)):
        assert keyed.client.get("/v1/nothing", headers=headers).status_code == status
    answer = keyed.client.put("/v1/events", headers=keyed.roles["publisher"])
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_first_key_is_an_administrators(tmp_path: Path) -> None:
    """Else nobody could make a second one. Until it is made nothing is asked for; it survives a restart."""
    with running_application(tmp_path) as client:
        assert problem_code(client.post("/v1/keys", json={"role": "publisher"})) == "invalid-request"
        assert publish(client, a=1) == 0
        made = client.post("/v1/keys", json={"role": "admin", "name": "Ada's"}).json()
        assert client.post("/v1/events", json={"a": 1}).status_code == 401
    with running_application(tmp_path) as client:
        assert client.post("/v1/events", json={"a": 1}).status_code == 401
        headers = {"Authorization": f"bearer {made['key']}"}
        assert client.post("/v1/events", json={"a": 1}, headers=headers).status_code == 202
        (listed,) = client.get("/v1/keys", headers=headers).json()["keys"]
        assert listed == {name: value for name, value in made.items() if name != "key"} | {"used": {}}
        answer = client.delete(f"/v1/keys/{made['id']}", headers=headers)
        assert (answer.status_code, problem_code(answer)) == (409, "last-key")


def test_a_key_of_an_administrator_stays_until_another_lasts_for_a_day(tmp_path: Path) -> None:
    """A key that ends in a moment does not stand in for one without an end, but for one that ends before. A rotated key
    is replaced by one that lasts as long, so it can be revoked."""
    with running_application(tmp_path) as client:
        lasting = client.post("/v1/keys", json={"role": "admin"}).json()
        client.headers["Authorization"] = f"Bearer {lasting['key']}"

        def made(seconds: float) -> str:
            ends = datetime.fromtimestamp(time.time() + seconds, UTC).isoformat()
            id: str = client.post("/v1/keys", json={"role": "admin", "expires_at": ends}).json()["id"]
            return id

        soon = made(3_600)
        answer = client.delete(f"/v1/keys/{lasting['id']}")
        assert (answer.status_code, problem_code(answer)) == (409, "last-key")
        assert "for a day more" in answer.json()["detail"]
        assert client.delete(f"/v1/keys/{soon}").status_code == 200, "one without an end is there"
        further = client.post("/v1/keys", json={"role": "admin"}).json()["id"]
        late = made(2 * 86_400)
        assert client.delete(f"/v1/keys/{further}").status_code == 200
        assert client.delete(f"/v1/keys/{late}").status_code == 200
        new = client.post(f"/v1/keys/{lasting['id']}/rotate", json={"overlap_seconds": 60}).json()
        client.headers["Authorization"] = f"Bearer {new['key']}"
        assert client.delete(f"/v1/keys/{lasting['id']}").status_code == 200


def test_last_two_administrators_who_revoke_each_other_at_once_leave_one(tmp_path: Path) -> None:
    """Both requests are under way at one time; without any key the server would ask for none."""
    with running_app(tmp_path) as url, httpx.Client(base_url=url) as client, ThreadPoolExecutor(2) as threads:
        stays = client.post("/v1/keys", json={"role": "admin"}).json()
        for _ in range(ROUNDS_AT_ONCE):
            headers = {"Authorization": f"Bearer {stays['key']}"}
            pair = [stays, client.post("/v1/keys", json={"role": "admin"}, headers=headers).json()]

            def revoke(by: dict[str, Any], other: dict[str, Any]) -> int:
                headers = {"Authorization": f"Bearer {by['key']}"}
                return httpx.delete(f"{url}/v1/keys/{other['id']}", headers=headers).status_code

            statuses = list(threads.map(revoke, pair, reversed(pair)))
            assert statuses.count(200) == 1, statuses
            stays = pair[statuses.index(200)]


def test_key_is_revoked_at_once(keyed: Keyed) -> None:
    made = keyed.make("publisher")
    headers = {"Authorization": f"Bearer {made['key']}"}
    assert keyed.client.post("/v1/events", json={}, headers=headers).status_code == 202
    assert keyed.client.delete(f"/v1/keys/{made['id']}", headers=keyed.admin).json()["id"] == made["id"]
    assert problem_code(keyed.client.post("/v1/events", json={}, headers=headers)) == "key-wrong"
    assert problem_code(keyed.client.delete(f"/v1/keys/{made['id']}", headers=keyed.admin)) == "unknown-key"


def test_key_expires(keyed: Keyed) -> None:
    ends = time.time() + 0.5
    made = keyed.make("publisher", expires_at=time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ends + 1)) + "Z")
    headers = {"Authorization": f"Bearer {made['key']}"}
    assert keyed.client.post("/v1/events", json={}, headers=headers).status_code == 202
    deadline = time.monotonic() + 30
    while (status := keyed.client.post("/v1/events", json={}, headers=headers).status_code) == 202:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert status == 401
    past = keyed.client.post(
        "/v1/keys", json={"role": "admin", "expires_at": "2020-01-01T00:00:00Z"}, headers=keyed.admin
    )
    assert problem_code(past) == "invalid-request"


def test_rotated_key_overlaps_and_owns_what_the_old_one_made(keyed: Keyed) -> None:
    """Both work until the overlap is over; a subscription of the old one is also the new one's, without its ticket."""
    old = keyed.make("subscriber", limits={"requests_per_second": 1e6})
    headers = {"Authorization": f"Bearer {old['key']}"}
    made = keyed.client.post("/v1/subscriptions", json={"expression": "a = 1"}, headers=headers).json()
    new = keyed.client.post(f"/v1/keys/{old['id']}/rotate", headers=keyed.admin).json()
    assert (new["role"], new["tenant"], new["limits"]) == (old["role"], old["tenant"], old["limits"])
    assert new["expires_at"] is None
    after = {"Authorization": f"Bearer {new['key']}"}
    path = f"/v1/subscriptions/{made['id']}"
    assert keyed.client.post(f"{path}/pause", headers=headers).status_code == 200
    assert keyed.client.post(f"{path}/resume", headers=after).status_code == 200
    last = keyed.client.post(f"/v1/keys/{new['id']}/rotate", json={"overlap_seconds": 0}, headers=keyed.admin).json()
    assert keyed.client.post(f"{path}/pause", headers=after).status_code == 401
    assert keyed.client.delete(path, headers={"Authorization": f"Bearer {last['key']}"}).status_code == 200
    keyed.secrets += [new["key"], last["key"]]


def test_rotated_key_lives_as_long_as_the_old_one_did(keyed: Keyed) -> None:
    """Counted from the rotation: a key for a limited time does not become one for ever."""
    old = keyed.make("publisher", expires_at="2099-01-01T00:00:00Z")
    answer = keyed.client.post(f"/v1/keys/{old['id']}/rotate", headers=keyed.admin)
    keyed.secrets.append(answer.json()["key"])
    assert answer.json()["expires_at"].startswith("2099-01-01T")
    assert answer.headers["cache-control"] == "no-store"


def test_keys_that_another_server_has_just_made_or_revoked_are_changed_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are looked for: the next regular look may be a second away. A revoked key gets no successor."""
    monkeypatch.setattr(access, "LOOK_SECONDS", 3_600.0)
    other = SystemStore(Settings(data=tmp_path))
    with running_application(tmp_path) as client:
        keyed = Keyed(client)
        revoked = keyed.make("admin")
        other.open()
        try:
            made = Key(
                id="0123456789abcdef", hash="", role="publisher", tenant=None, name="", created_at=0.0, expires_at=None
            )
            also, late = (msgspec.structs.replace(made, id=id) for id in ("123456789abcdef0", "23456789abcdef01"))
            for each in (made, also):
                other.add_key(each)
            assert client.post(f"/v1/keys/{made.id}/rotate", headers=keyed.admin).status_code == 201
            assert client.delete(f"/v1/keys/{also.id}", headers=keyed.admin).status_code == 200
            assert other.delete_key(revoked["id"])
            answer = client.post(f"/v1/keys/{revoked['id']}/rotate", headers=keyed.admin)
            assert (answer.status_code, problem_code(answer)) == (404, "unknown-key")
            with pytest.raises(UnknownKey):
                other.add_key(late, replaces=revoked["id"], until=time.time())
            assert late.id not in {each["id"] for each in client.get("/v1/keys", headers=keyed.admin).json()["keys"]}
        finally:
            other.close()


def test_stream_and_websocket_end_with_their_key(tmp_path: Path) -> None:
    """Revoking a key closes what is open with it, not only what comes later."""
    with (
        running_app(tmp_path, stream_ping_seconds=0.1) as address,
        httpx.Client(base_url=address, trust_env=False, timeout=30.0) as client,
    ):
        admin = {"Authorization": f"Bearer {client.post('/v1/keys', json={'role': 'admin'}).json()['key']}"}
        made = client.post("/v1/keys", json={"role": "subscriber"}, headers=admin).json()
        mine = {"Authorization": f"Bearer {made['key']}"}
        id = client.post("/v1/subscriptions", json={"expression": ""}, headers=mine).json()["id"]
        socket = connect(
            f"{address.replace('http', 'ws', 1)}/v1/subscriptions/{id}/ws", additional_headers=mine, proxy=None
        )
        with socket, client.stream("GET", f"/v1/subscriptions/{id}/stream", headers=mine) as stream:
            lines = enumerate(stream.iter_lines())
            next(lines)
            assert client.delete(f"/v1/keys/{made['id']}", headers=admin).status_code == 200
            assert max((number for number, _ in lines), default=0) < 1_000  # ends, though pings would go on
            with pytest.raises(ConnectionClosed):
                socket.recv(timeout=30.0)
            assert socket.close_code == 1008


def test_long_poll_whose_key_was_revoked_gets_nothing(tmp_path: Path) -> None:
    """Neither the message for which it waited, nor an empty page."""
    with running_app(tmp_path) as address, httpx.Client(base_url=address, trust_env=False, timeout=30.0) as client:
        admin = {"Authorization": f"Bearer {client.post('/v1/keys', json={'role': 'admin'}).json()['key']}"}
        made = client.post("/v1/keys", json={"role": "subscriber"}, headers=admin).json()
        mine = {"Authorization": f"Bearer {made['key']}"}
        path = (
            f"/v1/subscriptions/{client.post('/v1/subscriptions', json={'expression': ''}, headers=mine).json()['id']}"
        )
        with ThreadPoolExecutor(2) as threads:
            polls = [
                threads.submit(httpx.get, f"{address}{path}/events?wait={wait}", headers=mine, timeout=30.0)
                for wait in (1, 20)
            ]
            time.sleep(0.5)
            assert client.delete(f"/v1/keys/{made['id']}", headers=admin).status_code == 200
            empty = polls[0].result()
            assert client.post("/v1/events", json={"a": 1}, headers=admin).json()["matched"] == 1
            answers = [empty, polls[1].result()]
    assert [(each.status_code, problem_code(each)) for each in answers] == [(401, "key-wrong")] * 2


@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/events"), ("PUT", "/v1/ontologies/pets")])
def test_body_whose_key_was_revoked_meanwhile_is_refused(tmp_path: Path, method: str, path: str) -> None:
    """A body may arrive slowly, for hours."""
    with running_app(tmp_path) as address, httpx.Client(base_url=address, trust_env=False, timeout=30.0) as client:
        admin = {"Authorization": f"Bearer {client.post('/v1/keys', json={'role': 'admin'}).json()['key']}"}
        made = client.post("/v1/keys", json={"role": "admin", "tenant": "default"}, headers=admin).json()
        mine = {"Authorization": f"Bearer {made['key']}", "Content-Type": "text/turtle"}

        def parts() -> Iterator[bytes]:
            yield b"<http://x.org/a> "
            assert client.get("/v1/keys", headers=admin).status_code == 200  # the first part is there
            assert client.delete(f"/v1/keys/{made['id']}", headers=admin).status_code == 200
            yield b"<http://x.org/p> 1 ."

        answer = httpx.request(method, f"{address}{path}", content=parts(), headers=mine, timeout=30.0)
        assert (answer.status_code, problem_code(answer)) == (401, "key-wrong")
        assert client.get("/v1/events", headers=admin).json()["events"] == []
        assert client.get("/v1/ontologies", headers=admin).json()["ontologies"] == []


def test_administrators_of_a_tenant_make_so_many_keys(tmp_path: Path) -> None:
    """All keys are in memory, and each change reads all. An administrator of all tenants may make more."""
    with running_application(tmp_path, max_tenant_keys=2) as client:
        keyed = Keyed(client)  # of `default`, one for each role
        first = keyed.make("admin", tenant="pets")
        mine = {"Authorization": f"Bearer {first['key']}"}
        second = client.post("/v1/keys", json={"role": "publisher"}, headers=mine)
        assert second.status_code == 201
        for path, body in (("/v1/keys", {"role": "publisher"}), (f"/v1/keys/{first['id']}/rotate", {})):
            refused = client.post(path, json=body, headers=mine)
            assert (refused.status_code, problem_code(refused)) == (429, "limit-reached")
            assert int(refused.headers["Retry-After"]) > 0
        keyed.make("publisher", tenant="pets")
        keyed.make("admin", tenant="birds")


def test_export_whose_key_is_revoked_breaks_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not end as if it were whole."""
    read = SystemStore.audited

    def without_end(store: SystemStore, **chosen: Any) -> list[dict[str, Any]]:
        time.sleep(0.01)
        return read(store, **chosen | {"after": 0})

    monkeypatch.setattr(SystemStore, "audited", without_end)
    with running_app(tmp_path) as address, httpx.Client(base_url=address, trust_env=False, timeout=30.0) as client:
        admin = {"Authorization": f"Bearer {client.post('/v1/keys', json={'role': 'admin'}).json()['key']}"}
        made = client.post("/v1/keys", json={"role": "auditor"}, headers=admin).json()
        mine = {"Authorization": f"Bearer {made['key']}"}
        with client.stream("GET", "/v1/audit/export", headers=mine) as export:
            parts = export.iter_bytes()
            assert next(parts)
            assert httpx.delete(f"{address}/v1/keys/{made['id']}", headers=admin).status_code == 200
            with pytest.raises(httpx.RemoteProtocolError):
                for _ in parts:
                    pass


def test_one_huge_body_of_a_tenant_is_carried_out_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As objects they take many times the memory. Those of another tenant do not wait for them."""
    parse, lock = requests._object, Lock()
    running, most = Counter[str](), Counter[str]()

    def slowly(body: bytes, depth: int) -> dict[str, Any]:
        found = parse(body, depth)
        if len(body) < (1 << 20):
            return found
        tenant = found["event"]["tenant"]
        with lock:
            running[tenant] += 1
            most[tenant] = max(most[tenant], running[tenant])
        until(lambda: all(running[each] for each in ("one", "other")) or len(most) == 2)
        time.sleep(0.1)
        with lock:
            running[tenant] -= 1
        return found

    monkeypatch.setattr(requests, "_object", slowly)
    with running_app(tmp_path) as address, httpx.Client(base_url=address, trust_env=False, timeout=60.0) as client:
        admin = {"Authorization": f"Bearer {client.post('/v1/keys', json={'role': 'admin'}).json()['key']}"}

        def asked(tenant: str) -> int:
            made = client.post("/v1/keys", json={"role": "admin", "tenant": tenant}, headers=admin).json()
            body = {"event": {"tenant": tenant, "text": "x" * (1 << 20)}}
            mine = {"Authorization": f"Bearer {made['key']}"}
            return httpx.post(f"{address}/v1/match", json=body, headers=mine, timeout=60.0).status_code

        with ThreadPoolExecutor(8) as threads:
            assert set(threads.map(asked, ["one", "other"] * 4)) == {200}
    assert most == {"one": 1, "other": 1}


def _full(*_: object, **__: object) -> None:
    """What the store does if the disk is full."""
    raise StoreUnavailable


def test_refusals_do_not_wait_for_the_audit_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has no key is refused while the log cannot be written; a change waits until it can be."""

    with running_app(tmp_path) as address, httpx.Client(base_url=address, trust_env=False, timeout=30.0) as client:
        client.post("/v1/keys", json={"role": "admin"}).raise_for_status()
        with monkeypatch.context() as patched:
            patched.setattr(SystemStore, "record", _full)
            assert client.get("/v1/subscriptions").status_code == 401


def test_change_that_the_store_refuses_does_not_wait_for_the_audit_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk is full, neither can be written: the client is told so at once. The entry follows."""

    with running_app(tmp_path) as address, httpx.Client(base_url=address, trust_env=False, timeout=10.0) as client:
        admin = {"Authorization": f"Bearer {client.post('/v1/keys', json={'role': 'admin'}).json()['key']}"}
        with monkeypatch.context() as patched:
            patched.setattr(SystemStore, "record", _full)
            patched.setattr(SystemStore, "add_key", _full)
            refused = client.post("/v1/keys", json={"role": "publisher"}, headers=admin)
            assert (refused.status_code, problem_code(refused)) == (503, "store-unavailable")
            assert refused.headers["retry-after"]
        client.post("/v1/keys", json={"role": "publisher"}, headers=admin).raise_for_status()
        entries = client.get("/v1/audit", headers=admin).json()["entries"]
    assert [each["outcome"] for each in entries if each["action"] == "POST /v1/keys"][-2:] == [503, 201]


def test_refused_change_does_not_wait_for_the_audit_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It changed nothing. The entry follows when the log can be written, before those of later changes."""

    with running_app(tmp_path) as address, httpx.Client(base_url=address, trust_env=False, timeout=10.0) as client:
        admin = {"Authorization": f"Bearer {client.post('/v1/keys', json={'role': 'admin'}).json()['key']}"}
        with monkeypatch.context() as patched:
            patched.setattr(SystemStore, "record", _full)
            assert client.post("/v1/subscriptions", json={"expression": "price <"}, headers=admin).status_code == 422
            assert client.delete("/v1/subscriptions/sub_none", headers=admin).status_code == 404
            assert client.post("/v1/keys", json={"role": "boss"}, headers=admin).status_code == 422
        client.post("/v1/keys", json={"role": "publisher"}, headers=admin).raise_for_status()
        entries = client.get("/v1/audit", headers=admin).json()["entries"]
    assert [each["outcome"] for each in entries][-4:] == [422, 404, 422, 201]


def test_refusals_that_are_not_logged_are_told_to_their_own_tenant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many of them there were is in the next entry of the same tenant, and tells others nothing."""
    with running_application(tmp_path) as client:
        keyed = Keyed(client)
        publisher = keyed.key("publisher")
        with monkeypatch.context() as patched:
            patched.setattr(access, "REFUSALS_PER_SECOND", 0.0)
            patched.setattr(access, "MAX_REFUSALS", 1.0)
            for _ in range(3):
                assert client.get("/v1/keys").status_code == 401  # the first one is logged
        monkeypatch.setattr(access, "REFUSALS_PER_SECOND", 1e9)
        assert client.get("/v1/keys", headers=publisher).status_code == 403
        assert client.get("/v1/keys").status_code == 401
        keyed.make("publisher")  # is in the log when it is answered, and what came before it too
        entries = client.get("/v1/audit", headers=keyed.admin).json()["entries"]
    told = [each["detail"] for each in entries if each["outcome"] in (401, 403)]
    assert ["2 more requests were refused before" in each for each in told] == [False, False, True]


def test_refusals_of_one_tenant_hide_none_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do those of callers without a key: each tenant has a rate of its own. What is kept of a deleted tenant
    goes."""
    monkeypatch.setattr(access, "REFUSALS_PER_SECOND", 0.0)
    monkeypatch.setattr(access, "MAX_REFUSALS", 2.0)
    with running_application(tmp_path) as client:
        keyed = Keyed(client)
        ours, theirs = (keyed.key("publisher", tenant=name) for name in ("ours", "theirs"))
        for _ in range(5):
            assert client.get("/v1/keys").status_code == 401
            assert client.get("/v1/keys", headers=theirs).status_code == 403
        assert client.get("/v1/keys", headers=ours).status_code == 403
        keyed.make("publisher")  # is in the log when it is answered, and what came before it too
        entries = client.get("/v1/audit", headers=keyed.admin).json()["entries"]
    refused = Counter(each["tenant"] for each in entries if each["outcome"] in (401, 403))
    assert refused == {"": 2, "theirs": 2, "ours": 1}


def test_a_key_of_one_tenant_does_not_learn_which_others_there_are(
    keyed: Keyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even by the time that an answer takes: the server does not look for a tenant that the key may not use."""

    async def no_look(access: AccessControl) -> None:
        raise StoreUnavailable

    mine = keyed.key("subscriber", tenant="ours")
    keyed.make("subscriber", tenant="theirs")
    with monkeypatch.context() as patched:
        patched.setattr(AccessControl, "refresh", no_look)
        for tenant in ("theirs", "nobodys"):
            refused = keyed.client.get("/v1/subscriptions", headers=mine | {"Kindcast-Tenant": tenant})
            assert problem_code(refused) == "other-tenant"


def test_audit_log_names_the_key_that_was_sent_for_another_tenant(keyed: Keyed) -> None:
    """In the log of its own tenant. The other tenant is told nothing."""
    made, client = keyed.make("subscriber", tenant="ours"), keyed.client
    mine = {"Authorization": f"Bearer {made['key']}"}
    logs = {name: keyed.key("auditor", tenant=name) for name in ("ours", "theirs")}
    for path in ("/v1/subscriptions", "/v1/session"):
        assert problem_code(client.get(path, headers=mine | {"Kindcast-Tenant": "theirs"})) == "other-tenant"
    body = {"key": made["key"], "tenant": "theirs"}
    assert problem_code(client.post("/v1/session", json=body)) == "other-tenant"
    assert client.get("/v1/session", headers={"Authorization": "Bearer wrong"}).status_code == 401
    keyed.make("publisher")  # is in the log when it is answered, and what came before it too
    entries = {name: client.get("/v1/audit?limit=1000", headers=key).json()["entries"] for name, key in logs.items()}
    told = [each["action"] for each in entries["ours"] if (each["who"], each["outcome"]) == (f"key {made['id']}", 403)]
    assert told == ["GET /v1/subscriptions", "GET /v1/session", "POST /v1/session"]
    assert "other-tenant" not in str(entries["theirs"])
    for headers in (keyed.admin, logs["ours"]):  # page by page from the newest, also with hidden numbers
        oldest = client.get("/v1/audit?limit=1000", headers=headers).json()["entries"]
        newest, after = [], "0"
        while page := client.get(f"/v1/audit?limit=2&newest_first=true&after={after}", headers=headers).json():
            newest += page["entries"]
            if not page["entries"]:
                break
            after = page["cursor"]
        assert newest == oldest[::-1]
    every = client.get("/v1/audit?limit=1000&who=nobody%20known", headers=keyed.admin).json()["entries"]
    assert [(each["action"], each["outcome"]) for each in every][-1] == ("GET /v1/session", 401)


def test_audit_log_escapes_control_characters(tmp_path: Path) -> None:
    """A path is shown in terminals."""
    with running_application(tmp_path) as client:
        keyed = Keyed(client)
        assert client.get("/%1b[2J").status_code == 401
        keyed.make("publisher")  # is in the log when it is answered, and what came before it too
        entries = client.get("/v1/audit", headers=keyed.admin).json()["entries"]
    assert "GET /%1B%5B2J" in {each["action"] for each in entries}


def test_only_an_administrator_of_all_tenants_confirms_the_clock(keyed: Keyed) -> None:
    """All tenants share it."""
    assert keyed.client.post("/v1/clock/confirm", headers=keyed.roles["admin"]).status_code == 403
    assert keyed.client.post("/v1/clock/confirm", headers=keyed.admin).status_code == 200


def test_changes_need_ticket_creating_key_or_administrator(keyed: Keyed) -> None:
    client, mine, other = keyed.client, keyed.key("subscriber"), keyed.key("subscriber")
    made = client.post("/v1/subscriptions", json={"expression": "a = 1"}, headers=mine).json()
    path, ticket = f"/v1/subscriptions/{made['id']}", {"Kindcast-Ticket": made["ticket"]}
    assert problem_code(client.post(f"{path}/pause", headers=other)) == "ticket-missing"
    assert problem_code(client.post(f"{path}/pause", headers=other | {"Kindcast-Ticket": "x"})) == "ticket-wrong"
    for headers in (mine, other | ticket, keyed.admin, keyed.roles["admin"]):
        paused = client.post(f"{path}/pause", headers=headers)
        by = "its owner" if headers in (mine, other | ticket) else "an administrator"
        assert (paused.status_code, paused.json()["status_reason"]) == (200, f"paused by {by}")
        assert client.post(f"{path}/resume", headers=headers).status_code == 200
    assert problem_code(client.post(f"{path}/pause", headers=keyed.roles["publisher"] | ticket)) == "not-permitted"
    assert client.post(f"{path}/ack", json={"cursor": "0"}, headers=mine).status_code == 200
    assert problem_code(client.post(f"{path}/ack", json={"cursor": "0"}, headers=other)) == "ticket-missing"
    assert client.delete(path, headers=keyed.admin).status_code == 200


def test_auditor_sees_no_payload(keyed: Keyed) -> None:
    """Neither in events, nor in traces, nor in dead letters."""
    client = keyed.client
    made = client.post(
        "/v1/subscriptions", json={"expression": "secret exists"}, headers=keyed.roles["subscriber"]
    ).json()
    accepted = client.post("/v1/events", json={"secret": "Zanzibar"}, headers=keyed.roles["publisher"]).json()
    sequence = accepted["events"][0]["sequence"]
    auditor = keyed.roles["auditor"]
    for path in (
        "/v1/events",
        f"/v1/events/{sequence}/trace",
        f"/v1/events/{sequence}/trace?subscription={made['id']}",
    ):
        seen = client.get(path, headers=auditor)
        assert seen.status_code == 200
        assert accepted["events"][0]["id"] in seen.text
        assert "Zanzibar" not in seen.text
        assert "Zanzibar" in client.get(path, headers=keyed.admin).text
    assert client.get(f"/v1/subscriptions/{made['id']}/events", headers=auditor).status_code == 403


def test_auditor_sees_of_an_operator_its_server_alone(keyed: Keyed) -> None:
    """As of a sink: path and query may be what allows to call it."""
    url = "https://operators.example.org/very-secret?key=very-secret"
    made = keyed.client.put("/v1/operators/asked", json={"url": url}, headers=keyed.admin)
    assert made.status_code == 201, made.text
    for path in ("/v1/operators", "/v1/operators/asked"):
        seen = keyed.client.get(path, headers=keyed.roles["auditor"])
        assert "very-secret" not in seen.text
        assert '"url":"https://operators.example.org/…"' in seen.text
        assert url in keyed.client.get(path, headers=keyed.roles["subscriber"]).text
    assert keyed.client.delete("/v1/operators/asked", headers=keyed.admin).status_code == 200


def test_auditor_sees_of_a_sink_its_server_alone(keyed: Keyed) -> None:
    """Path and query of an address often let whoever knows them post there."""
    client = keyed.client
    body = {"expression": "a exists", "sink": "https://hooks.example.org/services/T0/very-secret?token=x"}
    made = client.post("/v1/subscriptions", json=body, headers=keyed.roles["subscriber"]).json()
    for path in ("/v1/subscriptions", "/v1/cloudevents/subscriptions"):
        for address in (path, f"{path}/{made['id']}"):
            seen = client.get(address, headers=keyed.roles["auditor"])
            assert seen.status_code == 200
            assert '"sink":"https://hooks.example.org/…"' in seen.text
            assert "very-secret" not in seen.text
            assert body["sink"] in client.get(address, headers=keyed.roles["subscriber"]).text
    assert "very-secret" not in client.get("/v1/subscriptions/export", headers=keyed.roles["auditor"]).text


# ── starting ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_other_addresses_need_a_key(tmp_path: Path) -> None:
    """The server does not start beyond loopback without one; with one it does, and asks for it."""
    with (
        pytest.raises(KeysNeeded, match="kindcast key create --role admin"),
        running_application(tmp_path, host="0.0.0.0"),
    ):
        pass
    with (
        pytest.raises(KeysNeeded, match=r"--data .* --database URL"),
        running_application(tmp_path, host="0.0.0.0", database=f"sqlite:///{tmp_path / 'elsewhere.db'}"),
    ):
        pass
    with running_application(tmp_path) as client:
        key = client.post("/v1/keys", json={"role": "admin"}).json()["key"]
    with running_application(tmp_path, host="0.0.0.0") as client:
        assert client.get("/v1/subscriptions").status_code == 401
        assert client.get("/v1/subscriptions", headers={"Authorization": f"Bearer {key}"}).status_code == 200


def test_commands_beside_a_server_whose_database_is_elsewhere_ask_for_it(tmp_path: Path, kindcast: Kindcast) -> None:
    """A key in the data folder of a server on PostgreSQL would be none of its keys, and leave the server open."""
    data = ("--data", str(tmp_path))
    with serve.running(tmp_path, "http://127.0.0.1:9"):
        for words in (
            ("key", "create", "--role", "admin"),
            ("key", "list"),
            ("backup", str(tmp_path / "b")),
            ("check",),
        ):
            refused = kindcast(*words, *data)
            assert (refused.status, "whose database is elsewhere" in refused.err) == (1, True), words
        elsewhere = ("--database", f"sqlite:///{tmp_path / 'elsewhere.db'}")
        assert kindcast("key", "create", "--role", "admin", *data, *elsewhere).status == 0
        (tmp_path / "kindcast.db").touch()
        assert kindcast("key", "create", "--role", "admin", *data).status == 0


def test_command_line_makes_the_first_key_beside_a_running_server(tmp_path: Path, kindcast: Kindcast) -> None:
    """Offline on the data folder; the server notices within a moment, and so it does when the key is revoked."""
    with running_application(tmp_path) as client:
        refused = kindcast("key", "create", "--role", "publisher", "--data", str(tmp_path))
        assert (refused.status, "administrator" in refused.err) == (1, True)
        assert kindcast("key", "create", "--role", "king", "--data", str(tmp_path)).status == 2
        made = kindcast("key", "create", "--role", "admin", "--data", str(tmp_path), "--json").json
        datetime.fromisoformat(made["created_at"])  # a text, as over HTTP
        until(lambda: client.get("/v1/subscriptions").status_code == 401)
        headers = {"Authorization": f"Bearer {made['key']}"}
        assert client.get("/v1/subscriptions", headers=headers).status_code == 200
        (entry,) = [
            each for each in client.get("/v1/audit", headers=headers).json()["entries"] if each["outcome"] == 201
        ]
        assert (entry["who"], entry["action"]) == ("command line", "key create")
        assert made["id"] in kindcast("key", "list", "--data", str(tmp_path)).out
        assert kindcast("key", "revoke", made["id"], "--data", str(tmp_path)).status == 0
        assert kindcast("key", "revoke", made["id"], "--data", str(tmp_path)).status == 1
        until(lambda: client.get("/v1/subscriptions").status_code == 200)


def test_a_key_that_was_just_made_is_known_at_once(
    tmp_path: Path, kindcast: Kindcast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one too, which a server without keys would not ask for. A wrong one is refused."""
    monkeypatch.setattr("kindcast.server.api.access.LOOK_SECONDS", 3_600.0)
    made = [("--role", "admin"), ("--role", "admin", "--of", "shop"), ("--role", "auditor", "--of", "shop")]
    ruler = ""
    with running_application(tmp_path) as client:
        for options, tenant in zip(made, ("default", "shop", "shop"), strict=True):
            key = kindcast("key", "create", *options, "--data", str(tmp_path), "--json").json["key"]
            ruler = key if tenant == "default" else ruler
            told = client.get("/v1/session", headers={"Authorization": f"Bearer {key}"}).json()
            assert (told["who"] is not None, told["tenant"]) == (True, tenant)
        chosen = {"Authorization": f"Bearer {ruler}", "Kindcast-Tenant": "bakery"}
        assert kindcast("key", "create", "--role", "auditor", "--of", "bakery", "--data", str(tmp_path)).status == 0
        assert client.get("/v1/session", headers=chosen).json()["tenant"] == "bakery"
        wrong = {"Authorization": f"Bearer {new_key()[1]}"}
        assert problem_code(client.get("/v1/subscriptions", headers=wrong)) == "key-wrong"


def test_a_key_is_for_the_tenant_that_the_command_acts_in(tmp_path: Path, kindcast: Kindcast) -> None:
    """Not for all tenants, whoever makes it: with the data folder or with a key for all tenants."""
    with running_server(tmp_path) as server:
        ruler = kindcast("key", "create", "--role", "admin", "--data", str(tmp_path), "--json").json["key"]
        until(lambda: httpx.get(f"{server.url}/v1/status", trust_env=False).status_code == 401)
        over_http = ("--server", server.url, "--key", ruler)
        for name, where in (("baker", ("--data", str(tmp_path))), ("cook", over_http)):
            for role in ("admin", "publisher"):
                for chosen in (("--tenant", name), ("--tenant", "another", "--of", name)):
                    made = kindcast("key", "create", "--role", role, *chosen, *where, "--json")
                    assert made.json["tenant"] == name


def test_a_key_is_for_the_tenant_of_the_header(tmp_path: Path, kindcast: Kindcast) -> None:
    """If the request names no other one: who acts in a tenant makes no key for all tenants by mistake."""
    key = kindcast("key", "create", "--role", "admin", "--data", str(tmp_path), "--json").json["key"]
    with running_application(tmp_path) as client:
        client.headers["Authorization"] = f"Bearer {key}"
        for name in ("bakery", "cellar"):
            assert client.post("/v1/tenants", json={"name": name}).status_code == 201
        for role in ("admin", "publisher"):
            for header, tenant, expected in (
                ("bakery", None, "bakery"),
                ("bakery", "cellar", "cellar"),
                ("default", None, "default"),
                (None, "cellar", "cellar"),
                (None, None, None if role == "admin" else "default"),
            ):
                headers = {} if header is None else {"Kindcast-Tenant": header}
                made = client.post("/v1/keys", json={"role": role, "tenant": tenant}, headers=headers)
                assert (made.status_code, made.json()["tenant"]) == (201, expected), (role, header, tenant)


def test_a_key_that_nobody_can_look_for_is_not_a_wrong_one(
    tmp_path: Path, kindcast: Kindcast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database is away: the client of a fresh key may try again, and known keys go on."""
    key = kindcast("key", "create", "--role", "admin", "--data", str(tmp_path), "--json").json["key"]

    def away(ring: KeyRing) -> None:
        raise StoreUnavailable("the database cannot be reached")

    with running_application(tmp_path) as client:
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(KeyRing, "load", away)
            answer = client.get("/v1/subscriptions", headers={"Authorization": f"Bearer {new_key()[1]}"})
            assert (answer.status_code, problem_code(answer)) == (503, "store-unavailable")
            assert client.get("/v1/subscriptions", headers={"Authorization": f"Bearer {key}"}).status_code == 200
        answer = client.get("/v1/subscriptions", headers={"Authorization": f"Bearer {new_key()[1]}"})
        assert (answer.status_code, problem_code(answer)) == (401, "key-wrong")


def test_a_server_without_keys_answers_if_nobody_can_look_for_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the first key, which the command line made a moment ago."""

    def away(ring: KeyRing) -> None:
        raise StoreUnavailable("the database cannot be reached")

    with running_application(tmp_path) as client:
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(KeyRing, "load", away)
            answer = client.post("/v1/events", json={"a": 1}, headers={"Authorization": f"Bearer {new_key()[1]}"})
            assert (answer.status_code, problem_code(answer)) == (503, "store-unavailable")
        assert client.post("/v1/events", json={"a": 1}).status_code == 202


def test_requests_with_unknown_keys_look_for_them_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    async def drive() -> None:
        nonlocal looks
        async with running_access(Settings(data=tmp_path)) as access:
            changes = access.store.changes

            def looking() -> int:
                nonlocal looks
                looks += 1
                return changes()

            monkeypatch.setattr(access.store, "changes", looking)
            monkeypatch.setattr("kindcast.server.api.access.LOOK_SECONDS", 3_600.0)
            await asyncio.gather(*(access.look_for_key(new_key()[1]) for _ in range(50)))
            await access.look_for_key("not a key")
            await access.look_for_key(None)

    asyncio.run(drive())
    assert 1 <= looks <= 3  # the periodic look may come in between


def test_roles_of_a_creator_are_found_without_a_look_at_all_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each webhook needs them. With many keys, also those of other tenants, each webhook looked at all of them."""
    settings = Settings(data=tmp_path)
    store = SystemStore(settings)
    store.open()
    ring = KeyRing(store, settings)
    made: list[tuple[str, str, Role]] = [("a", "a", "admin"), ("b", "a", "subscriber"), ("c", "c", "publisher")]
    for id, origin, role in made:
        key = Key(id=id, hash=id, role=role, tenant=None, name="", created_at=0.0, expires_at=None, origin=origin)
        store.add_key(key)
    ring.load()
    looks: list[Key] = []

    def owner(key: Key) -> str:
        looks.append(key)
        return f"key {key.origin}"

    monkeypatch.setattr(Key, "owner", property(owner))
    assert ring.roles_of("key a") == {"admin", "subscriber"}
    assert ring.roles_of("key c") == {"publisher"}
    assert ring.roles_of("key d") == frozenset()
    assert ring.roles_of(None) is None
    assert looks == []
    store.close()


def test_a_request_for_a_key_whose_answer_was_lost(tmp_path: Path) -> None:
    """Sent again it makes no second key, and says which one to rotate; another caller's header is another one."""
    with running_application(tmp_path) as client:
        keyed = Keyed(client)
        once = {"Idempotency-Key": "0d4b5c1e-7c0e-4c52-9f38-4a9c2d0b6f11"}
        body = {"role": "publisher", "name": "scales"}
        made = client.post("/v1/keys", json=body, headers=keyed.admin | once).json()
        again = client.post("/v1/keys", json=body, headers=keyed.admin | once)
        assert (again.status_code, problem_code(again), again.json()["id"]) == (409, "key-made", made["id"])
        assert made["key"] not in again.text
        for change in ({"role": "subscriber"}, {"name": "x"}, {"expires_at": "2100-01-01T00:00:00Z"}):
            reused = client.post("/v1/keys", json=body | change, headers=keyed.admin | once)
            assert (reused.status_code, problem_code(reused)) == (422, "idempotency-key-reused")
        listed = client.get("/v1/keys", headers=keyed.admin).json()["keys"]
        assert [each["id"] for each in listed if each["name"] == "scales"] == [made["id"]]
        assert client.post(f"/v1/keys/{made['id']}/rotate", headers=keyed.admin).status_code == 201
        other = client.post("/v1/keys", json=body, headers=keyed.roles["admin"] | once)
        assert (other.status_code, other.json()["id"] == made["id"]) == (201, False)
        short = client.post("/v1/keys", json=body, headers=keyed.admin | {"Idempotency-Key": "1"})
        assert problem_code(short) == "invalid-request"


# ── the audit log ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_audit_log_says_who_did_what(keyed: Keyed) -> None:
    """Changes and refusals with their outcome; publishing is counted instead."""
    client, mine = keyed.client, keyed.make("subscriber")
    headers = {"Authorization": f"Bearer {mine['key']}"}
    made = client.post("/v1/subscriptions", json={"expression": "a = 1"}, headers=headers).json()
    client.post("/v1/subscriptions", json={"expression": "a ="}, headers=headers)
    client.post("/v1/events", json={"a": 1}, headers=headers)
    client.delete(f"/v1/subscriptions/{made['id']}", headers=headers)
    found = client.get("/v1/audit", params={"who": f"key {mine['id']}"}, headers=keyed.roles["auditor"]).json()[
        "entries"
    ]
    assert [(each["action"], each["outcome"]) for each in found] == [
        ("POST /v1/subscriptions", 201),
        ("POST /v1/subscriptions", 422),
        ("POST /v1/events", 403),
        (f"DELETE /v1/subscriptions/{made['id']}", 200),
    ]
    assert {(each["tenant"], each["address"]) for each in found} == {("default", "127.0.0.1")}
    before = _events_of(keyed, "publisher")
    client.post(
        "/v1/events", content=b"{}\n{}\n", headers=keyed.roles["publisher"] | {"Content-Type": "application/x-ndjson"}
    )
    assert _events_of(keyed, "publisher") == before + 2
    exported = client.get("/v1/audit/export", headers=keyed.admin).text.splitlines()
    assert [json.loads(line)["number"] for line in exported] == sorted(
        {json.loads(line)["number"] for line in exported}
    )
    assert not [line for line in exported if "POST /v1/events" in line and '"outcome":202' in line]


def test_audit_log_has_no_key_that_was_written_in_place_of_its_id(keyed: Keyed) -> None:
    """An auditor would be able to use it."""
    made = keyed.make("admin")
    for written in (made["key"], made["key"].removeprefix("kindcast_"), made["key"][:-1]):
        assert keyed.client.delete(f"/v1/keys/{written}", headers=keyed.admin).status_code == 404

    def exported() -> str:
        return keyed.client.get("/v1/audit/export", headers=keyed.roles["auditor"]).text

    hidden = f"{made['id']}_(hidden)"
    until(lambda: exported().count(hidden) == 3)  # refusals are written beside the answers
    assert f"DELETE /v1/keys/kindcast_{hidden}" in exported()
    assert made["key"].partition(f"{made['id']}_")[2][:-1] not in exported()


def test_audit_log_has_no_ticket_that_was_written_in_place_of_an_id(keyed: Keyed) -> None:
    """Who reads the log could change the subscription with it."""
    client, headers = keyed.client, keyed.roles["subscriber"]
    ticket = client.post("/v1/subscriptions", json={"expression": "a = 1"}, headers=headers).json()["ticket"]
    for path in (f"/v1/subscriptions/{ticket}", f"/v1/cloudevents/subscriptions/{ticket}"):
        assert client.delete(path, headers=headers).status_code == 404
    exported = client.get("/v1/audit/export", headers=keyed.roles["auditor"]).text
    assert ticket not in exported
    assert "DELETE /v1/subscriptions/(hidden)" in exported


def test_reads_are_not_audited_unless_refused(keyed: Keyed) -> None:
    """Only changes and refusals: a console that looks at its pages fills no log."""
    reads = ["/v1/keys", "/v1/tenants", "/v1/terms/unknown", "/v1/jobs/none", "/v1/subscriptions"]
    for path in reads:
        assert keyed.client.get(path, headers=keyed.admin).status_code in (200, 404)
    time.sleep(0.2)  # refusals that the log takes at one time
    refused = keyed.client.get("/v1/keys", headers=keyed.roles["publisher"])
    assert refused.status_code == 403
    newest = keyed.client.get("/v1/audit", params={"limit": 1_000}, headers=keyed.admin).json()["entries"]
    told = {(each["action"], each["outcome"]) for each in newest}
    assert not [each for each in told if each[0].startswith("GET ") and each[1] not in (401, 403)]
    assert ("GET /v1/keys", 403) in told


def _events_of(keyed: Keyed, role: str) -> int:
    keys = keyed.client.get("/v1/keys", headers=keyed.admin).json()["keys"]
    ids = {f"key {each['id']}" for each in keys if each["role"] == role}
    rows = keyed.client.get("/v1/usage", headers=keyed.admin).json()["usage"]
    return sum(each["events"] for each in rows if each["who"] in ids)


def test_usage_that_cannot_be_stored_is_stored_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As while the disk is full, or the database is away."""

    def full(*_: object) -> None:
        raise StoreUnavailable

    with running_application(tmp_path) as client:
        keyed = Keyed(client)
        assert client.post("/v1/events", json={"a": 1}, headers=keyed.key("publisher")).status_code == 202
        with monkeypatch.context() as patched:
            patched.setattr(SystemStore, "add_usage", full)
            assert client.get("/v1/usage", headers=keyed.admin).status_code == 503
        rows = client.get("/v1/usage", headers=keyed.admin).json()["usage"]
        assert sum(each["events"] for each in rows) == 1


def test_no_secret_is_told_or_stored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Keys, tickets and webhook secrets are shown once and are nowhere else: not in answers, exports, traces, the audit
    log, the server's log, or (keys and tickets) the files of the data folder."""
    caplog.set_level("DEBUG")
    with running_application(tmp_path, allow_private_sinks=True) as client:
        keyed = Keyed(client)
        headers = keyed.roles["subscriber"]
        body = {
            "expression": "a exists",
            "sink": "http://127.0.0.1:9/x",
            "sinkcredential": {
                "credentialtype": "ACCESSTOKEN",
                "accesstoken": "very-secret-token",
                "accesstokentype": "bearer",
            },
        }
        made = client.post("/v1/subscriptions", json=body, headers=headers).json()
        sequence = client.post("/v1/events", json={"a": 1}, headers=keyed.admin).json()["events"][0]["sequence"]
        client.get("/v1/subscriptions", headers={"Authorization": "Bearer kindcast_0123456789abcdef_" + "s" * 43})
        client.post(
            f"/v1/subscriptions/{made['id']}/pause",
            headers=keyed.roles["subscriber"] | {"Kindcast-Ticket": made["ticket"]},
        )
        hidden = [*keyed.secrets, made["ticket"], "s" * 43]
        told = [
            client.get(path, headers=keyed.admin).text
            for path in (
                "/v1/keys",
                "/v1/audit",
                "/v1/audit/export",
                "/v1/usage",
                "/v1/subscriptions",
                f"/v1/subscriptions/{made['id']}",
                "/v1/subscriptions/export",
                f"/v1/events/{sequence}/trace?subscription={made['id']}",
                "/v1/dead-letters",
                "/metrics",
            )
        ]
    told.append(caplog.text)
    for secret in (*hidden, made["secret"], "very-secret-token"):
        assert [text for text in told if secret in text] == []
    for secret in hidden:
        for file in tmp_path.rglob("*"):
            assert not file.is_file() or secret.encode() not in file.read_bytes(), file


# ── what was open by mistake ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"])
def test_forwarded_requests_are_refused_without_keys(tmp_path: Path, header: str) -> None:
    """A proxy on the same machine would open a server without keys to everybody; a setting allows it."""
    forwarded = {header: "192.0.2.1"}
    with running_application(tmp_path) as client:
        refused = client.post("/v1/events", json={"a": 1}, headers=forwarded)
        assert (refused.status_code, problem_code(refused)) == (403, "keys-needed")
        assert client.get("/v1/events").json()["events"] == []
        keyed = Keyed(client)
        assert client.post("/v1/events", json={"a": 1}, headers=keyed.admin | forwarded).status_code == 202
    with running_application(tmp_path / "open", open_behind_proxy=True) as client:
        assert client.post("/v1/events", json={"a": 1}, headers=forwarded).status_code == 202


def test_server_that_lost_its_keys_does_not_start_without(tmp_path: Path, kindcast: Kindcast) -> None:
    """Deleted, or without its keys: until another one is made, or somebody says that none are needed."""
    database = tmp_path / "kindcast.system.db"
    for _ in range(2):
        with running_application(tmp_path) as client:
            client.post("/v1/keys", json={"role": "admin"}).raise_for_status()
        for each in tmp_path.glob(f"{database.name}*"):
            each.unlink()
        with pytest.raises(KeysLost, match=f"kindcast repair --data {tmp_path}"), running_application(tmp_path):
            pass
        found = kindcast("repair", "--data", str(tmp_path))  # also after that start, which made an empty file
        assert (found.status, f"the keys in {database} are missing" in found.out) == (1, True)
        assert kindcast("repair", "--data", str(tmp_path), "--accept-loss").status == 0
        assert kindcast("repair", "--data", str(tmp_path)).status == 0
    with running_application(tmp_path) as client:
        assert client.get("/v1/subscriptions").status_code == 200
        client.post("/v1/keys", json={"role": "admin"}).raise_for_status()
    database.unlink()
    assert kindcast("key", "create", "--role", "admin", "--data", str(tmp_path)).status == 0
    with running_application(tmp_path) as client:
        assert client.get("/v1/subscriptions").status_code == 401


@pytest.mark.parametrize("damage", ["missing", "file is not a database"])
def test_damaged_file_of_the_keys_is_found(tmp_path: Path, kindcast: Kindcast, damage: str) -> None:
    """The events are intact, and still no server starts."""
    data, keys = tmp_path / "data", tmp_path / "data" / "kindcast.system.db"
    with running_application(data) as client:
        client.post("/v1/keys", json={"role": "admin"}).raise_for_status()
    keys.unlink()
    if damage != "missing":
        keys.write_bytes(b"no database" * 1_000)
    for command in ("check", "repair", "doctor"):
        ran = kindcast(command, "--data", str(data))
        assert (ran.status, ran.out.count(str(keys)), damage in ran.out) == (1, 1, True), (command, ran.out, ran.err)
    accepted = kindcast("repair", "--data", str(data), "--accept-loss")
    if damage == "missing":
        assert (accepted.status, "the next start serves" in accepted.err) == (0, True)
    else:
        assert (accepted.status, "move this file away" in accepted.err) == (1, True)
        keys.unlink()
    with running_application(data) as client:
        assert client.get("/v1/subscriptions").status_code == 200


def test_last_key_that_was_revoked_opens_the_server(tmp_path: Path, kindcast: Kindcast) -> None:
    """That is no loss."""
    with running_application(tmp_path) as client:
        made = client.post("/v1/keys", json={"role": "admin"}).json()
    assert kindcast("key", "revoke", made["id"], "--data", str(tmp_path)).status == 0
    with running_application(tmp_path) as client:
        assert client.get("/v1/subscriptions").status_code == 200


def test_audit_log_is_bounded_and_refusals_do_not_push_out_the_rest(tmp_path: Path) -> None:
    store = SystemStore(Settings(data=tmp_path))
    store.open()
    try:
        entry = AuditEntry(at=time.time(), tenant="default", who="key 1", address="", action="POST /v1/x", outcome=201)
        changed = [msgspec.structs.replace(entry, action=f"POST /v1/{number}") for number in range(30)]
        refused = [msgspec.structs.replace(entry, outcome=401) for _ in range(200)]
        store.record([*changed, *refused])
        assert store.forget_audited(0.0, keep=100) == 190
        assert [each["outcome"] for each in store.audited(tenant=None, after=0, limit=1_000)] == [201] * 30 + [401] * 10
        assert store.forget_audited(0.0, keep=20) == 8 + 12
        assert store.audited(tenant=None, after=0, limit=1_000)[0]["action"] == "POST /v1/12"
    finally:
        store.close()


def test_entries_of_one_tenant_do_not_push_out_those_of_another(tmp_path: Path) -> None:
    """Neither its changes nor its refused requests: the tenants with the most entries lose theirs first."""
    store = SystemStore(Settings(data=tmp_path))
    store.open()
    try:
        entry = AuditEntry(at=time.time(), tenant="quiet", who="key 1", address="", action="POST /v1/x", outcome=201)
        quiet = [entry, msgspec.structs.replace(entry, outcome=403)]
        loud = [msgspec.structs.replace(each, tenant="loud") for each in quiet * 200]
        store.record([*quiet, *loud])
        assert store.forget_audited(0.0, keep=100) == 302
        kept = store.audited(tenant=None, after=0, limit=1_000)
        assert Counter((each["tenant"], each["outcome"]) for each in kept) == {
            ("quiet", 201): 1,
            ("quiet", 403): 1,
            ("loud", 201): 89,
            ("loud", 403): 9,
        }
    finally:
        store.close()


def test_memory_of_the_process_is_shown_to_those_of_all_tenants_only(keyed: Keyed) -> None:
    for key, shown in ((keyed.admin, True), (keyed.key("admin", tenant="ours"), False)):
        deadline = time.monotonic() + 30.0
        series = keyed.client.get("/v1/series", headers=key).json()["series"]
        while not series["memory_bytes"]["values"]:  # it is measured beside the requests
            assert time.monotonic() < deadline, "nothing was measured"
            time.sleep(0.05)
            series = keyed.client.get("/v1/series", headers=key).json()["series"]
        assert any(each is not None for each in series["memory_bytes"]["values"]) is shown
        assert any(each is not None for each in series["subscriptions"]["values"])


# ── limits ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_acknowledgements_over_a_websocket_count_as_requests(tmp_path: Path) -> None:
    """They are commands like all others: a frame beyond the limit is refused, and the connection stays."""
    with (
        running_app(tmp_path) as address,
        httpx.Client(base_url=address, trust_env=False, timeout=30.0) as client,
    ):
        keyed = Keyed(client)
        mine = keyed.key("subscriber", limits={"requests_per_second": 0.5})  # five at one time
        id = client.post("/v1/subscriptions", json={"expression": ""}, headers=mine).json()["id"]
        socket = connect(
            f"{address.replace('http', 'ws', 1)}/v1/subscriptions/{id}/ws", additional_headers=mine, proxy=None
        )
        with socket:
            told = []
            for _ in range(20):
                socket.send('{"ack": "0"}')
                told.append(json.loads(socket.recv(timeout=30.0)))
        assert told[0] == {"acked": "0"}
        assert told[-1]["problem"]["status"] == 429
        used = client.get("/v1/usage", headers=keyed.admin)
        assert used.status_code == 200


def test_rate_limits_are_answered_429(keyed: Keyed) -> None:
    """With the fields of the draft, whose window is the time for what they allow; other keys do not notice."""
    made = keyed.make("publisher", limits={"events_per_second": 0.01})
    slow = {"Authorization": f"Bearer {made['key']}"}
    first = keyed.client.post("/v1/events", json={}, headers=slow)
    assert first.status_code == 202
    assert first.headers["ratelimit-policy"] == '"key-events";q=1;qu="events";w=100'
    assert first.headers["ratelimit"].startswith('"key-events";r=0;t=')
    second = keyed.client.post("/v1/events", json={}, headers=slow)
    assert (second.status_code, problem_code(second)) == (429, "limit-reached")
    assert int(second.headers["retry-after"]) > 10
    listed = keyed.client.get("/v1/keys", headers=keyed.admin).json()["keys"]
    assert next(each["used"] for each in listed if each["id"] == made["id"])["events_per_second"] == pytest.approx(
        0.01, abs=1e-3
    )
    assert keyed.client.post("/v1/match", json={"event": {}}, headers=slow).status_code == 200
    assert keyed.client.post("/v1/events", json={}, headers=keyed.roles["publisher"]).status_code == 202


@pytest.mark.parametrize("value", [1e-320, 1e-7, 0, -1, 1e16])
def test_limits_that_are_too_small_or_too_large_are_refused(keyed: Keyed, value: float) -> None:
    """A request over a limit of almost nothing had no time after which it may be sent again."""
    body = {"role": "publisher", "limits": {"bytes_per_second": value}}
    answer = keyed.client.post("/v1/keys", json=body, headers=keyed.admin)
    assert problem_code(answer) == "invalid-request"
    assert "between 0.000001 and 1,000,000,000,000,000" in answer.json()["detail"]


@pytest.mark.parametrize("limit", ["events_per_second", "bytes_per_second"])
def test_requests_at_the_same_time_do_not_get_around_a_limit(tmp_path: Path, limit: str) -> None:
    """All were admitted before any of them said how many events it has, or how long its body is. The one that reaches
    the limit goes on."""
    with running_app(tmp_path) as address, httpx.Client(base_url=address, timeout=30.0) as client:
        keyed = Keyed(client)
        made = keyed.make("publisher", limits={limit: 0.01, "connections": 10})
        headers = {"Authorization": f"Bearer {made['key']}", "Content-Type": "application/x-ndjson"}
        admitted = Event()

        def body() -> Iterator[bytes]:
            assert admitted.wait(30.0)
            yield b'{"a": 1}\n'
            yield b'{"a": 2}\n'

        def send(_: int) -> int:
            return httpx.post(f"{address}/v1/events", content=body(), headers=headers, timeout=30.0).status_code

        def running() -> int:
            listed = client.get("/v1/keys", headers=keyed.admin).json()["keys"]
            return int(next(each["used"]["connections"] for each in listed if each["id"] == made["id"]))

        with ThreadPoolExecutor(6) as threads:
            answers = [threads.submit(send, number) for number in range(6)]
            deadline = time.monotonic() + 30.0
            while running() < 6 and time.monotonic() < deadline:
                time.sleep(0.01)
            admitted.set()
            statuses = Counter(each.result() for each in answers)
    assert statuses == {202: 1, 429: 5}


def test_events_of_one_document_all_count(keyed: Keyed) -> None:
    """They counted as one event, so a key could publish any number of events in spite of its limit."""
    made = keyed.make("publisher", limits={"events_per_second": 1})  # ten at one time
    headers = {"Authorization": f"Bearer {made['key']}", "Content-Type": "application/ld+json"}
    nodes = [{"@id": f"https://example.org/{each}", "@type": "Reading", "value": each} for each in range(12)]
    document = json.dumps({"@context": {"@vocab": "https://example.org/"}, "@graph": nodes})
    statuses = []
    for _ in range(2):
        answer = keyed.client.post("/v1/events", content=document, headers=headers)
        statuses.append(answer.status_code)
    assert statuses == [202, 429]
    batch = [{"specversion": "1.0", "id": each, "source": "/", "type": "x", "data": {}} for each in "ab"]
    batch[1] |= {"datacontenttype": "application/ld+json", "data": json.loads(document)}
    other = keyed.make("publisher", limits={"events_per_second": 1})
    headers = {"Authorization": f"Bearer {other['key']}", "Content-Type": "application/cloudevents-batch+json"}
    assert keyed.client.post("/v1/events", content=json.dumps(batch), headers=headers).json()["accepted"] == 13
    assert keyed.client.post("/v1/events", content=json.dumps(batch), headers=headers).status_code == 429


def test_limits_of_bytes_requests_and_subscriptions(tmp_path: Path) -> None:
    with running_application(tmp_path, tenant_limits={"subscriptions": 3}, key_limits={"subscriptions": 2}) as client:
        keyed = Keyed(client)
        one, two = keyed.key("subscriber"), keyed.key("subscriber")
        body = {"expression": "a = 1"}
        statuses = [client.post("/v1/subscriptions", json=body, headers=each) for each in (one, one, one, two, two)]
        assert [each.status_code for each in statuses] == [201, 201, 429, 201, 429]
        assert statuses[2].headers["ratelimit-policy"] == '"key-subscriptions";q=2;qu="subscriptions"'
        assert statuses[4].headers["ratelimit"] == '"tenant-subscriptions";r=0'
        lines = client.post("/v1/subscriptions/import", content=b'{"expression": "a = 1"}\n', headers=two).json()
        assert lines["rejected"][0]["problem"]["status"] == 429
        small = keyed.key("publisher", limits={"bytes_per_second": 1, "requests_per_second": 0.2})
        assert client.post("/v1/events", json={"a": "x" * 100}, headers=small).status_code == 202
        refused = client.post("/v1/events", json={"a": 1}, headers=small)
        assert refused.status_code == 429
        assert '"key-content-bytes";q=10;qu="content-bytes";w=10' in refused.headers["ratelimit-policy"]


def test_limit_of_matches_per_event(tmp_path: Path) -> None:
    """Of the tenant, and a lower one of the key; an event over it is refused whole."""
    with running_application(tmp_path, tenant_limits={"matches_per_event": 2}) as client:
        keyed = Keyed(client)
        for number in range(3):
            body = {"expression": f"n >= {number}"}
            assert client.post("/v1/subscriptions", json=body, headers=keyed.admin).status_code == 201
        low = keyed.key("publisher", limits={"matches_per_event": 1})
        other = keyed.key("publisher", tenant="other")
        for headers, sizes in (
            (keyed.roles["publisher"], (202, 202, 422)),
            (low, (202, 422, 422)),
            (other, (202,) * 3),
        ):
            answers = [client.post("/v1/events", json={"n": number}, headers=headers) for number in range(3)]
            assert [each.status_code for each in answers] == list(sizes)
        assert problem_code(client.post("/v1/events", json={"n": 2}, headers=low)) == "too-many-matches"
        stored = client.get("/v1/events", headers=keyed.admin).json()["events"]
        assert [each["event"]["data"]["n"] for each in stored] == [0, 1, 0]


# ── the command line and the client ───────────────────────────────────────────────────────────────────────────────────


def test_commands_and_clients_send_the_key(tmp_path: Path, kindcast: Kindcast, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--key` and KINDCAST_KEY, in every command that talks to a server; a wrong use says what to do."""
    with running_server(tmp_path) as server:
        monkeypatch.setenv("KINDCAST_SERVER", server.url)
        made = kindcast("key", "create", "--role", "admin", "--json").json
        refused = kindcast("subscriptions")
        assert refused.status == 1
        assert "needs a key" in refused.err
        assert kindcast("subscriptions", "--key", made["key"]).status == 0
        monkeypatch.setenv("KINDCAST_KEY", made["key"])
        own = kindcast("key", "create", "--role", "publisher", "--name", "scales", "--ttl", "1h", "--json").json
        assert kindcast("publish", '{"a": 1}', "--key", own["key"]).status == 0
        assert kindcast("subscriptions", "--key", own["key"]).status == 1
        assert "scales" in kindcast("key", "list").out
        assert own["id"] in kindcast("audit", "list").out
        who = kindcast("audit", "list", "--json").json["entries"][-1]["who"]
        first = kindcast("audit", "list", "--limit", "1", "--who", who).err
        assert re.search(rf"There may be more: kindcast audit list --after \d+ --who '{who}'", first)
        newest = kindcast("audit", "list", "--newest-first", "--limit", "2")
        numbers = [int(line.split()[0]) for line in newest.out.splitlines()[1:]]
        assert numbers == sorted(numbers, reverse=True)
        assert f"kindcast audit list --after {numbers[-1]} --newest-first" in newest.err
        exported = kindcast("audit", "export").out.splitlines()
        assert json.loads(exported[-1])["who"].startswith("key ")
        replaced = kindcast("key", "rotate", own["id"], "--overlap", "1h", "--json").json
        assert kindcast("key", "revoke", replaced["id"]).status == 0
        with Client(server.url, key=own["key"]) as client:
            assert client.publish({"a": 1})["accepted"] == 1
            with pytest.raises(ProblemError, match="role of this key"):
                client.subscriptions()
        assert "--key" in kindcast("publish", "--help").out
        assert "--key" not in kindcast("match", "--help").out
    assert made["key"] not in (tmp_path / "server.log").read_text()
