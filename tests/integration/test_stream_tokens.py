"""Tokens that open one stream of one subscription, for browsers; and a page of another origin in a real browser."""

import asyncio
import base64
import functools
import json
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from kindcast.server.api import access
from kindcast.server.security import browser_sessions
from kindcast.server.security.browser_sessions import StreamTokens
from kindcast.server.security.callers import Caller
from kindcast.server.settings import Settings
from kindcast.server.store.backup import backup
from kindcast.server.store.system import SystemStore, used_tokens
from tests.harness.application import problem_code
from tests.harness.browser import running_browser
from tests.harness.identity_provider import running_provider
from tests.harness.postgresql import PostgreSQL
from tests.harness.server_thread import running_app
from tests.integration.test_server_keys import until


class Keyed:
    """A server with keys: one client for each of them."""

    def __init__(self, url: str) -> None:
        self.url = url
        with self.client("") as first:
            self.admin = first.post("/v1/keys", json={"role": "admin"}).raise_for_status().json()["key"]
        self.subscriber, self.subscriber_id = self.key("subscriber")
        with self.client(self.subscriber) as client:
            self.made = client.post("/v1/subscriptions", json={"expression": "n exists"}).raise_for_status().json()
        self.path = f"/v1/subscriptions/{self.made['id']}"

    def client(self, key: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.url, headers=headers, trust_env=False, timeout=30)

    def key(self, role: str) -> tuple[str, str]:
        with self.client(self.admin) as client:
            told = client.post("/v1/keys", json={"role": role}).raise_for_status().json()
        return told["key"], told["id"]

    def token(self) -> str:
        with self.client(self.subscriber) as client:
            told: dict[str, Any] = client.post(f"{self.path}/stream-tokens").raise_for_status().json()
        return str(told["token"])

    def publish(self, n: int) -> None:
        with self.client(self.admin) as client:
            client.post("/v1/events", json={"n": n}).raise_for_status()


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[Keyed]:
    with running_app(tmp_path, stream_ping_seconds=0.2, allowed_origins=(f"http://localhost:{PAGE_PORT}",)) as url:
        yield Keyed(url)


PAGE_PORT = 18_765
"""Of pages whose origin the server allows."""


def test_token_opens_the_stream_once(keyed: Keyed) -> None:
    keyed.publish(7)
    token = keyed.token()
    with keyed.client("") as client:
        with client.stream("GET", f"{keyed.path}/stream?token={token}") as stream:
            assert stream.status_code == 200
            data = next(line for line in stream.iter_lines() if line.startswith("data:"))
            assert json.loads(data.removeprefix("data:"))["event"]["data"] == {"n": 7}
        again = client.get(f"{keyed.path}/stream?token={token}")
        assert (again.status_code, problem_code(again)) == (401, "token-wrong")


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "POST"])
def test_token_is_not_used_by_a_method_that_opens_no_stream(keyed: Keyed, method: str) -> None:
    """Tools that look at an address before they open it send HEAD."""
    keyed.publish(7)
    address = f"{keyed.path}/stream?token={keyed.token()}"
    with keyed.client("") as client:
        assert client.request(method, address).status_code == 401
        with client.stream("GET", address) as stream:
            assert stream.status_code == 200


def test_token_whose_stream_a_limit_refuses_can_be_used_later(keyed: Keyed) -> None:
    with keyed.client(keyed.admin) as client:
        limited = client.post("/v1/keys", json={"role": "subscriber", "limits": {"connections": 1}}).json()
    with keyed.client(limited["key"]) as client:
        token = client.post(f"{keyed.path}/stream-tokens").raise_for_status().json()["token"]
        address = f"{keyed.path}/stream?token={token}"
        with client.stream("GET", f"{keyed.path}/stream") as first:
            assert first.status_code == 200
            refused = httpx.get(keyed.url + address)
            assert (refused.status_code, problem_code(refused)) == (429, "limit-reached")

    def opens() -> bool:
        with keyed.client("") as client, client.stream("GET", address) as stream:
            return stream.status_code == 200

    until(opens)  # the server has noticed that the first stream ended


def test_token_opens_a_websocket_and_the_cursor_is_obeyed(keyed: Keyed) -> None:
    for n in range(3):
        keyed.publish(n)
    with keyed.client(keyed.subscriber) as client:
        first = client.get(f"{keyed.path}/events").json()["events"][0]["cursor"]
    address = keyed.url.replace("http", "ws", 1) + f"{keyed.path}/ws?after={first}&token="
    with connect(address + keyed.token()) as websocket:
        assert json.loads(websocket.recv(timeout=30))["event"]["data"] == {"n": 1}
    with pytest.raises(InvalidStatus), connect(address + "wrong"):
        pass


def test_token_is_for_one_subscription_and_for_streams_only(keyed: Keyed) -> None:
    with keyed.client(keyed.subscriber) as client:
        other = client.post("/v1/subscriptions", json={"expression": "m exists"}).raise_for_status().json()
        assert client.post("/v1/subscriptions/sub_none/stream-tokens").status_code == 404
    with keyed.client("") as client:
        refused = client.get(f"/v1/subscriptions/{other['id']}/stream?token={keyed.token()}")
        assert problem_code(refused) == "token-wrong"
        for path in (keyed.path, f"{keyed.path}/events"):
            assert problem_code(client.get(f"{path}?token={keyed.token()}")) == "key-missing"
        assert problem_code(client.post(f"{keyed.path}/stream-tokens")) == "key-missing"
    with keyed.client(keyed.key("publisher")[0]) as client:
        assert problem_code(client.post(f"{keyed.path}/stream-tokens")) == "not-permitted"


def test_token_ends_after_a_minute_and_with_its_key(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser_sessions, "STREAM_TOKEN_SECONDS", -1.0)
    late = keyed.token()
    monkeypatch.undo()
    orphan, running = keyed.token(), keyed.token()
    with keyed.client("") as client, client.stream("GET", f"{keyed.path}/stream?token={running}") as stream:
        lines = stream.iter_lines()
        next(lines)
        with keyed.client(keyed.admin) as admin:
            admin.delete(f"/v1/keys/{keyed.subscriber_id}").raise_for_status()
        for _ in lines:
            pass  # it ends; the time limit of the client is shorter than for ever
        for token in (late, orphan):
            assert problem_code(client.get(f"{keyed.path}/stream?token={token}")) == "token-wrong"


LONG = 1e6
"""Seconds between two looks for changed keys where none may come by chance."""


def opened(url: str, path: str, token: str) -> int:
    """The status of the answer to a request for a stream."""
    with httpx.stream("GET", f"{url}{path}/stream", params={"token": token}, trust_env=False, timeout=30) as stream:
        return stream.status_code


def test_token_is_valid_after_a_restart_and_still_only_once(tmp_path: Path) -> None:
    with running_app(tmp_path) as url:
        keyed = Keyed(url)
        used, unused = keyed.token(), keyed.token()
        assert opened(url, keyed.path, used) == 200
    with running_app(tmp_path) as url:
        assert [opened(url, keyed.path, token) for token in (used, unused, unused)] == [401, 200, 401]


def test_token_works_once_at_any_server_of_one_database(
    tmp_path: Path, postgresql: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one of a key that the other server has not heard of yet; and none of a key that was revoked."""
    database = postgresql.new_database()
    monkeypatch.setattr(access, "LOOK_SECONDS", LONG)
    with running_app(tmp_path / "first", database=database) as first:
        keyed = Keyed(first)
        with running_app(tmp_path / "second", database=database) as second:
            keyed.subscriber, keyed.subscriber_id = keyed.key("subscriber")
            tokens = [keyed.token() for _ in range(4)]
            assert [opened(url, keyed.path, tokens[0]) for url in (second, first, second)] == [200, 401, 401]
            with ThreadPoolExecutor(8) as threads:
                asked = [(url, keyed.path, tokens[1]) for url in (first, second) * 4]
                assert sorted(threads.map(lambda each: opened(*each), asked)) == [200, *[401] * 7]
            with keyed.client(keyed.admin) as admin:
                admin.delete(f"/v1/keys/{keyed.subscriber_id}").raise_for_status()
            assert keyed.subscriber_id not in known_keys(second, keyed.admin)
            assert [opened(url, keyed.path, token) for url, token in zip((first, second), tokens[2:], strict=True)] == [
                401,
                401,
            ]


def known_keys(url: str, admin: str) -> list[str]:
    """The ids of the keys that a server knows."""
    headers = {"Authorization": f"Bearer {admin}"}
    listed = httpx.get(f"{url}/v1/keys", headers=headers, trust_env=False, timeout=30).raise_for_status().json()
    return [each["id"] for each in listed["keys"]]


def test_changed_tokens_are_refused_without_a_look_into_the_database(
    keyed: Keyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = keyed.token()
    claims, _, signature = token.partition(".")
    content = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    longer = base64.urlsafe_b64encode(json.dumps([content[0], content[1] + 1, *content[2:]]).encode()).decode()
    forged = StreamTokens(b"another secret").issue(
        keyed.made["id"], Caller(who="key x", owner="key x", tenant="default", permissions=frozenset(), key="x")
    )[0]
    wrong = ["", ".", claims, f"{claims}.", f".{signature}", f"{longer.rstrip('=')}.{signature}", f"{token}A", forged]
    wrong += [f"{claims}.{signature.swapcase()}", "é.ü", "x" * 10_000]
    with monkeypatch.context() as patch:
        patch.setattr(SystemStore, "use_token", lambda *_: pytest.fail("the database was asked"))
        assert [opened(keyed.url, keyed.path, each) for each in wrong] == [401] * len(wrong)
    assert opened(keyed.url, keyed.path, token) == 200


def test_token_of_a_subject_has_its_rights_and_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subject of an identity provider; after a restart, too, and not under another issuer."""
    with running_provider() as provider, running_provider() as other:
        settings = {"oidc_audience": "kindcast", "oidc_roles": {"readers": "subscriber"}, "oidc_roles_claim": "roles"}
        settings |= {"oidc_leeway_seconds": 0.0}
        with running_app(tmp_path, oidc_issuer=provider.issuer, **settings) as url:
            headers = {"Authorization": f"Bearer {provider.token(roles=['readers'], exp=int(time.time()) + 30)}"}
            with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=30) as client:
                made = client.post("/v1/subscriptions", json={"expression": "n exists"}).raise_for_status().json()
                path = f"/v1/subscriptions/{made['id']}"
                tokens = [client.post(f"{path}/stream-tokens").json()["token"] for _ in range(3)]
            assert opened(url, path, tokens[0]) == 200
        with running_app(tmp_path, oidc_issuer=other.issuer, **settings) as url:
            assert opened(url, path, tokens[1]) == 401
        with running_app(tmp_path, oidc_issuer=provider.issuer, **settings) as url:
            assert opened(url, path, tokens[1]) == 200
            now = time.time
            monkeypatch.setattr(access, "time", SimpleNamespace(time=lambda: now() + 40, monotonic=time.monotonic))
            assert opened(url, path, tokens[2]) == 401


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_used_tokens_are_forgotten_after_their_end_and_no_backup_has_the_secret(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(access, "USED_TOKENS_SECONDS", 0.2)
    monkeypatch.setattr(browser_sessions, "STREAM_TOKEN_SECONDS", 3.0)
    database = None if kind == "sqlite" else request.getfixturevalue("postgresql").new_database()
    settings = Settings(data=tmp_path / "data", database=database)
    with running_app(tmp_path / "data", database=database) as url:
        keyed = Keyed(url)
        assert opened(url, keyed.path, keyed.token()) == 200
        store = SystemStore(settings)
        store.open()

        def stored() -> int:
            rows = select(func.count()).select_from(used_tokens)
            return store.run(lambda connection: int(connection.execute(rows).scalar_one()))

        assert stored() == 1
        until(lambda: stored() == 0)
        secret = store.secret(access.STREAM_TOKENS)
        store.close()
        backup(settings.database_url, tmp_path / "data", tmp_path / "backup")
    assert len(secret) == 32
    files = list((tmp_path / "backup").iterdir())
    assert "kindcast.system.db" in {each.name for each in files}
    assert all(secret not in each.read_bytes() for each in files)


def test_a_clock_that_jumps_ahead_makes_no_used_token_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another server of the database, whose clock is right, would accept it again."""
    now = time.time
    control = access.AccessControl(Settings(data=tmp_path))
    control.store.open()
    assert control.store.use_token("token", now() + 60.0)
    monkeypatch.setattr(access, "time", SimpleNamespace(time=lambda: now() + 7_200.0))
    asyncio.run(control._forget_used_tokens())
    assert not control.store.use_token("token", now() + 60.0)
    control.store.close()


def test_no_log_shows_a_token(keyed: Keyed, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the log of requests nor the audit log."""
    caplog.set_level(logging.DEBUG)
    token = keyed.token()
    with keyed.client("") as client:
        with client.stream("GET", f"{keyed.path}/stream?token={token}&after=0"):
            pass
        client.get(f"{keyed.path}/stream?token={token}")
    with keyed.client(keyed.admin) as client:
        audited = client.get("/v1/audit").text
    records = (each for each in caplog.records if not each.name.startswith(("httpx", "httpcore")))
    own = "\n".join(each.getMessage() for each in records)
    assert token not in own
    assert token not in audited


PAGE = """<!doctype html><title>page</title><script>
const [server, path, token] = decodeURIComponent(location.hash.slice(1)).split(" ");
const stream = new EventSource(`${server}${path}/stream?token=${token}`);
stream.addEventListener("match", (message) => { document.title = JSON.parse(message.data).event.data.n; });
stream.addEventListener("error", () => { stream.close(); document.title = "refused"; });
</script>"""


@contextmanager
def page_at(folder: Path, port: int) -> Iterator[str]:
    """A server of pages of another origin."""
    (folder / "page.html").write_text(PAGE, encoding="utf-8")
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_address[1]}/page.html"
        server.shutdown()


@pytest.mark.slow
def test_page_of_an_allowed_origin_reads_a_stream_and_another_does_not(keyed: Keyed, tmp_path: Path) -> None:
    """In a real browser, by `EventSource`, on a server with keys; the page has the token alone."""
    keyed.publish(41)
    pages = tmp_path / "pages"
    pages.mkdir()
    with running_browser(tmp_path / "profile") as browser:
        for port, wanted in ((PAGE_PORT, "41"), (0, "refused")):
            with page_at(pages, port) as address:
                browser.open(f"{address}?{port}#{keyed.url} {keyed.path} {keyed.token()}")
                browser.wait("document.title === arguments[0]", wanted)


DOCUMENTED = """<!doctype html><title>page</title><script>
const [server, id] = decodeURIComponent(location.hash.slice(1)).split(" ");
const shown = [], streams = [];
const show = (event) => { shown.push(event.data.n); document.title = shown.join(); };
const Native = EventSource;
window.EventSource = class extends Native { constructor(url) { super(url); streams.push(this); } };
%s
listen();
</script>"""


class TokenService(SimpleHTTPRequestHandler):
    """The service behind the page: it has the key, and hands out tokens."""

    keyed: Keyed

    def do_POST(self) -> None:
        body = json.dumps({"token": self.keyed.token()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.mark.slow
def test_page_of_the_documentation_reads_goes_on_and_ends(keyed: Keyed, tmp_path: Path, repository: Path) -> None:
    """The snippet as it stands in docs/receiving.md, of another origin: the first message; after a broken connection
    the next one, with another token; and no further try when the subscription is deleted."""
    text = (repository / "docs" / "receiving.md").read_text("utf-8")
    snippet = next(
        part.split("```")[0] for part in text.split("```javascript\n")[1:] if part.startswith("async function listen")
    )
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "documented.html").write_text(DOCUMENTED % snippet, encoding="utf-8")
    service = type("Service", (TokenService,), {"keyed": keyed})
    handler = functools.partial(service, directory=str(pages))
    keyed.publish(41)
    with ThreadingHTTPServer(("127.0.0.1", PAGE_PORT), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with running_browser(tmp_path / "profile") as browser:
                browser.open(f"http://localhost:{PAGE_PORT}/documented.html#{keyed.url} {keyed.made['id']}")
                browser.wait("document.title === '41'")
                browser.run("streams[0].dispatchEvent(new Event('error'))")
                keyed.publish(42)
                browser.wait("document.title === '41,42'")
                browser.wait("streams.length === 2")
                with keyed.client(keyed.subscriber) as client:
                    ticket = {"Kindcast-Ticket": keyed.made["ticket"]}
                    client.delete(keyed.path, headers=ticket).raise_for_status()
                browser.wait("streams[1].readyState === EventSource.CLOSED")
                time.sleep(2)  # twice the pause before a further try
                assert browser.run("return streams.length") == 2
        finally:
            server.shutdown()
