"""Browsers that sign in with a key: cookies, other sites' pages, and what ends a session."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from kindcast.server.client import Client
from kindcast.server.security import browser_sessions
from kindcast.server.security.browser_sessions import Sessions
from kindcast.server.security.permissions import ROLES
from tests.harness.application import problem_code, running_application
from tests.harness.server_thread import running_app
from tests.integration.conftest import Kindcast

OWN = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_app(tmp_path_factory.mktemp("sessions")) as address:
        yield address


@pytest.fixture(scope="module")
def admin(address: str) -> str:
    """The first key, of an administrator of all tenants."""
    before = httpx.get(f"{address}/v1/session").json()
    assert (before["needs_key"], before["who"], before["tenant"]) == (False, "anybody", "default")
    refused = httpx.post(f"{address}/v1/session", json={"key": "x"}, headers=OWN)
    assert problem_code(refused) == "invalid-request"
    return str(made(address, None, role="admin")["key"])


def made(address: str, admin: str | None, **body: Any) -> dict[str, Any]:
    headers = {} if admin is None else {"Authorization": f"Bearer {admin}"}
    found: dict[str, Any] = httpx.post(f"{address}/v1/keys", json=body, headers=headers).raise_for_status().json()
    return found


@contextmanager
def signed_in(address: str, key: str, **more: Any) -> Iterator[httpx.Client]:
    """A browser, more or less."""
    with httpx.Client(base_url=address, headers=OWN, timeout=60.0) as browser:
        browser.post("/v1/session", json={"key": f" {key}\n", **more}).raise_for_status()
        yield browser


def test_session_cookie_is_kept_from_scripts_and_other_sites(address: str, admin: str) -> None:
    """The answer never has the key; the cookie is HttpOnly and SameSite=Strict, named after the port, and under TLS
    Secure with the prefix that browsers enforce."""
    told = httpx.post(f"{address}/v1/session", json={"key": admin}, headers=OWN)
    port = address.rpartition(":")[2]
    cookie = told.headers["set-cookie"]
    assert cookie.startswith(f"kindcast-{port}=")
    assert {"HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert admin not in told.text + cookie
    assert told.headers["cache-control"] == "no-store"
    body = told.json()
    assert (body["role"], body["tenant"], body["all_tenants"], body["needs_key"]) == ("admin", "default", True, True)


def test_session_under_tls_is_secure(tmp_path: Path) -> None:
    """By the scheme of the request."""
    with running_application(tmp_path) as client:
        key = client.post("/v1/keys", json={"role": "admin"}).json()["key"]
        there = "https://127.0.0.1"
        told = client.post(f"{there}/v1/session", json={"key": key}, headers=OWN)
        cookie = told.headers["set-cookie"]
        assert cookie.startswith("__Host-kindcast=")
        assert {"Secure", "HttpOnly"} <= set(cookie.split("; "))
        sent = {"Cookie": cookie.partition(";")[0]}
        assert client.get(f"{there}/v1/keys", headers=sent | OWN).status_code == 200
        own = {"Origin": there}
        assert client.post(f"{there}/v1/keys", headers=sent | own, json={"role": "auditor"}).status_code == 201


@pytest.mark.parametrize("role", ROLES)
def test_session_may_do_what_its_key_may_and_nothing_else(address: str, admin: str, role: str) -> None:
    """The permissions that the console reads are those of the role, and the gate holds it to them."""
    key = made(address, admin, role=role, tenant="default", name=f"the {role}")
    with signed_in(address, key["key"]) as browser:
        told = browser.get("/v1/session").json()
        assert (told["who"], told["name"], told["role"]) == (f"key {key['id']}", f"the {role}", role)
        assert set(told["permissions"]) == set(ROLES[role])  # type: ignore[index]  # it is one
        expected = {"/v1/keys": "administer", "/v1/concepts?q=a": "see-vocabulary", "/v1/audit": "audit"}
        for path, permission in expected.items():
            answer = browser.get(path)
            assert answer.status_code == (200 if permission in told["permissions"] else 403), path


def test_session_works_behind_a_proxy_that_asks_for_a_password(address: str, admin: str) -> None:
    """The browser sends the password (Basic) with each request; a key that is sent still decides, also a wrong one."""
    with signed_in(address, admin) as browser:
        password = {"Authorization": "Basic YW5uOnNlY3JldA=="}
        assert browser.get("/v1/session", headers=password).json()["role"] == "admin"
        assert browser.get("/v1/keys", headers=password).status_code == 200
        other = browser.post(
            "/v1/subscriptions", json={"expression": ""}, headers=password | {"Sec-Fetch-Site": "none"}
        )
        assert problem_code(other) == "wrong-origin"
        wrong = browser.get("/v1/keys", headers={"Authorization": "Bearer kindcast_wrong"})
        assert problem_code(wrong) == "key-wrong"
    assert problem_code(httpx.get(f"{address}/v1/keys", headers=password)) == "key-missing"


def test_session_other_pages_are_refused(address: str, admin: str) -> None:
    """A change needs the browser's word that a page of this server asks for it; what only reads must not come from
    elsewhere. A request with a key needs neither."""
    with signed_in(address, admin) as browser:
        del browser.headers["Sec-Fetch-Site"]
        body = {"role": "auditor", "tenant": "default"}
        port = address.rpartition(":")[2]
        refused: tuple[dict[str, str], ...] = (
            {},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site", "Origin": address},
            {"Sec-Fetch-Site": "none"},
            {"Origin": "null"},
            {"Origin": f"http://localhost:{port}"},
            {"Origin": f"https://127.0.0.1:{port}"},
        )
        for headers in refused:
            answer = browser.post("/v1/keys", json=body, headers=headers)
            assert (answer.status_code, problem_code(answer)) == (403, "wrong-origin"), headers
            assert problem_code(browser.delete("/v1/session", headers=headers)) == "wrong-origin", headers
        for headers in ({"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "cross-site"}):
            assert problem_code(browser.get("/v1/keys", headers=headers)) == "wrong-origin"
        for headers in ({}, {"Sec-Fetch-Site": "none"}, OWN):
            assert browser.get("/v1/keys", headers=headers).status_code == 200
        for headers in ({"Origin": address}, OWN):
            assert browser.post("/v1/keys", json=body, headers=headers).status_code == 201
        with_key = {"Authorization": f"Bearer {admin}", "Sec-Fetch-Site": "cross-site"}
        assert browser.get("/v1/keys", headers=with_key).status_code == 200
        assert problem_code(browser.get("/v1/keys", headers={"Authorization": "Bearer x"})) == "key-wrong"


def test_session_ends_with_sign_out_key_and_time(address: str, admin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ends it, the next request is refused, and an open stream ends."""
    with signed_in(address, admin) as browser:
        token = dict(browser.cookies)
        assert browser.delete("/v1/session").json()["who"] is None
        assert not dict(browser.cookies)
        assert browser.get("/v1/session").json()["who"] is None
        assert problem_code(browser.get("/v1/keys")) == "key-missing"
        assert problem_code(httpx.get(f"{address}/v1/keys", cookies=token)) == "key-missing"

    revoked = made(address, admin, role="subscriber")
    with signed_in(address, revoked["key"]) as browser:
        assert browser.get("/v1/ontologies").status_code == 200
        headers = {"Authorization": f"Bearer {admin}"}
        httpx.delete(f"{address}/v1/keys/{revoked['id']}", headers=headers).raise_for_status()
        assert problem_code(browser.get("/v1/ontologies")) == "key-missing"

    with signed_in(address, admin) as browser, browser.stream("GET", "/v1/events/stream") as stream:
        lines = stream.iter_lines()
        assert next(line for line in lines if line).startswith("retry")
        httpx.delete(f"{address}/v1/session", cookies=browser.cookies, headers=OWN).raise_for_status()
        assert not any(line.startswith("data") for line in lines)  # it ends, or this waits for the timeout

    held = Sessions(seconds=100.0)
    now = time.time()
    token_of_one, session = held.open("k")
    assert held.find(token_of_one) is session
    assert held.find(token_of_one + "x") is None
    monkeypatch.setattr(time, "time", lambda: now + 101.0)
    assert held.find(token_of_one) is None


def test_many_sessions_of_one_key_end_none_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own oldest one ends."""
    monkeypatch.setattr(browser_sessions, "MAX_SESSIONS", 4)
    monkeypatch.setattr(browser_sessions, "MAX_SESSIONS_OF_KEY", 2)
    held = Sessions(seconds=100.0)
    theirs, _ = held.open("theirs")
    mine = [held.open("mine")[0] for _ in range(5)]
    assert held.find(theirs) is not None
    assert [held.find(each) is not None for each in mine] == [False, False, False, True, True]


def test_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound the oldest one ends."""
    monkeypatch.setattr(browser_sessions, "MAX_SESSIONS", 2)
    held = Sessions(seconds=100.0)
    opened = [held.open("k")[0] for _ in range(3)]
    assert [held.find(each) is not None for each in opened] == [False, True, True]


def test_session_of_administrator_of_all_chooses_a_tenant(address: str, admin: str) -> None:
    """For all requests of the session, its streams too; others have no choice, and names are checked."""
    other = made(address, admin, role="subscriber", tenant="bakery")
    with signed_in(address, admin, tenant="bakery") as browser:
        assert browser.get("/v1/session").json()["tenant"] == "bakery"
        browser.post("/v1/subscriptions", json={"expression": "a > 1"}).raise_for_status()
        assert len(browser.get("/v1/subscriptions").json()["subscriptions"]) == 1
        for role, tenant in {"subscriber": "bakery", "admin": None}.items():
            assert browser.post("/v1/keys", json={"role": role}).json()["tenant"] == tenant
        assert browser.patch("/v1/session", json={"tenant": "default"}).json()["tenant"] == "default"
        assert browser.get("/v1/subscriptions").json()["subscriptions"] == []
        assert problem_code(browser.patch("/v1/session", json={"tenant": "nobody"})) == "unknown-tenant"
        assert problem_code(browser.patch("/v1/session", json={"tenant": "../x"})) == "invalid-request"
        assert browser.get("/v1/session").json()["tenant"] == "default"
        audited = [each["detail"] for each in browser.get("/v1/audit?limit=1000").json()["entries"]]
        assert "signed in" in audited
        assert "acts in default" in audited
    headers = {"Authorization": f"Bearer {admin}"}
    without = httpx.patch(f"{address}/v1/session", json={"tenant": "default"}, headers=headers)
    assert problem_code(without) == "invalid-request"
    with signed_in(address, other["key"]) as browser:
        assert problem_code(browser.patch("/v1/session", json={"tenant": "default"})) == "not-permitted"
        refused = browser.post("/v1/session", json={"key": other["key"], "tenant": "default"})
        assert problem_code(refused) == "other-tenant"


def test_session_does_not_act_in_a_later_tenant_of_the_same_name(address: str, admin: str) -> None:
    """The administrator chose the one that was deleted."""
    headers = {"Authorization": f"Bearer {admin}"}
    first = made(address, admin, role="subscriber", tenant="brewery")
    with signed_in(address, admin, tenant="brewery") as browser:
        assert browser.get("/v1/session").json()["tenant"] == "brewery"
        httpx.delete(f"{address}/v1/keys/{first['id']}", headers=headers).raise_for_status()
        httpx.delete(f"{address}/v1/tenants/brewery", headers=headers, timeout=60.0).raise_for_status()
        made(address, admin, role="subscriber", tenant="brewery")
        assert browser.get("/v1/session").json()["tenant"] == "default"
        assert browser.patch("/v1/session", json={"tenant": "brewery"}).json()["tenant"] == "brewery"
        assert browser.get("/v1/session").json()["tenant"] == "brewery"


def test_session_wrong_key_is_refused_and_logged(address: str, admin: str) -> None:
    """Without a word of the key."""
    wrong = "kindcast_0123456789abcdef_" + "x" * 43
    answer = httpx.post(f"{address}/v1/session", json={"key": wrong}, headers=OWN)
    assert (answer.status_code, problem_code(answer)) == (401, "key-wrong")
    assert "set-cookie" not in answer.headers
    with Client(address, key=admin) as client:
        end = time.monotonic() + 60.0
        while True:
            found = [each for each in client.audit(limit=1000)["entries"] if each["action"] == "POST /v1/session"]
            if any(each["outcome"] == 401 for each in found):
                break
            assert time.monotonic() < end
            time.sleep(0.05)
        assert not any(wrong in str(each) for each in found)


def test_who_a_key_is_is_told_to_clients_and_commands(address: str, admin: str, kindcast: Kindcast) -> None:
    """`Client.who_am_i`, and the command of the same."""
    with Client(address, key=admin) as client:
        assert client.who_am_i()["role"] == "admin"
    shown = kindcast("key", "show", "--server", address, "--key", admin)
    assert shown.status == 0, shown.err
    assert "administer-server" in shown.out
    assert kindcast("key", "show", "--server", address, "--key", admin, "--json").json["tenant"] == "default"
