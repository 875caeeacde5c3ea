"""Every error is a problem document, on every route; and nothing that should stay outside comes in."""

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from kindcast.server.api import problem_types
from kindcast.server.errors import StoreUnavailable
from kindcast.server.store.database import Database
from tests.harness.application import problem_code, running_application

SAMPLES = {"name": "none", "id": "sub_none", "sequence": "7", "type": "none"}
"""Path parameters of things that are not there."""

FREE_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

ENDLESS = frozenset({"/v1/events/stream"})
"""Answers that end only when the client leaves."""

OPEN_TO_OTHERS = frozenset(
    {"/healthz", "/readyz", "/metrics", "/v1/status", "/v1/clock/confirm", "/v1/series", "/asyncapi.json"}
)
"""Probes, collectors of metrics and browsers add parameters of their own."""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with running_application(tmp_path) as client:
        yield client


def routes(client: httpx.Client) -> dict[str, dict[str, Any]]:
    """Path → method → operation, as the server itself lists them."""
    paths: dict[str, dict[str, Any]] = client.get("/openapi.json").json()["paths"]
    return paths


def test_every_route_answers_errors_as_problems(client: httpx.Client) -> None:
    """Walk all routes with things that do not exist, no body and nonsense: any answer that is an error is a problem
    document, none is a 500."""
    walked = 0
    for path, operations in routes(client).items():
        url = re.sub(r"\{(\w+)\}", lambda match: SAMPLES[match[1]], path)
        for method in operations if path not in ENDLESS else ():
            for content, headers in (
                (None, {}),
                (b"{nonsense", {"Content-Type": "application/json"}),
                (b'{"unknown member": 1}', {"Content-Type": "application/json"}),
                (b"\xff\xfe", {"Content-Type": "image/png"}),
            ):
                answer = client.request(method.upper(), url, content=content, headers=headers)
                walked += 1
                if answer.status_code >= 400:
                    assert problem_code(answer), (method, path)
                assert answer.status_code < 500, (method, path, answer.text)
    assert walked > 80


def test_every_route_refuses_other_methods_as_problems(client: httpx.Client) -> None:
    """405 with Allow, in the same form."""
    for path in routes(client):
        url = re.sub(r"\{(\w+)\}", lambda match: SAMPLES[match[1]], path)
        siblings = {
            method.upper()
            for other, methods in routes(client).items()
            if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", other), url)
            for method in methods
        }
        for method in set(FREE_METHODS) - siblings:
            answer = client.request(method, url)
            assert (answer.status_code, problem_code(answer)) == (405, "method-not-allowed"), (method, path)
            assert answer.json()["title"] == "Method not allowed"
            assert answer.headers["allow"]
    for path in ("/", "/console", "/console/live.js", "/docs", "/openapi.json"):  # for browsers: not in the list
        answer = client.delete(path)
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD"), path


def test_an_address_with_a_slash_too_many_is_a_problem(client: httpx.Client) -> None:
    """With and without keys alike. A redirect would name this server as it is known behind its proxy, without TLS."""
    for path in ("/v1/subscriptions/", "/v1/events/", "/console/"):
        answer = client.post(path, json={})
        assert (answer.status_code, problem_code(answer)) == (404, "not-found"), path


def test_unknown_address_is_a_problem(client: httpx.Client) -> None:
    """404 tells where to look."""
    answer = client.get("/v2/events")
    assert (answer.status_code, problem_code(answer)) == (404, "not-found")
    assert answer.json()["title"] == client.get("/console/nothing").json()["title"] == "Not found"
    assert answer.json()["instance"] == "/v2/events"
    assert "/openapi.json" in answer.json()["detail"]


@pytest.mark.parametrize("path", ["/v1/synonyms/a%00b", "/v1/subscriptions/%00", "/v1/events?type=%00", "/%00"])
def test_address_with_a_nul_character_is_refused(client: httpx.Client, path: str) -> None:
    """PostgreSQL does not store it, nor look for it."""
    answer = client.get(path)
    assert (answer.status_code, problem_code(answer)) == (400, "malformed-request")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/subscriptions", {"expression": "a = 1", "source": "\0"}),
        ("/v1/dead-letters/redrive", {"subscription": "\0"}),
        ("/v1/keys", {"role": "admin", "name": "\x1b[2J"}),
        ("/v1/explain", {"event": {"a": 1}, "subscription": "\0"}),
    ],
)
def test_texts_that_the_database_looks_for_have_no_control_characters(
    client: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    """The name of a key is also shown in terminals."""
    answer = client.post(path, json=body)
    assert answer.status_code == 422, answer.text
    problem_code(answer)


@pytest.mark.parametrize("query", ["limit=0", "limit=99999", "limit=x", "after=-1"])
def test_bad_parameter_is_a_problem_that_names_it(client: httpx.Client, query: str) -> None:
    """The framework's own checks speak the same language."""
    answer = client.get(f"/v1/events?{query}")
    assert (answer.status_code, problem_code(answer)) == (422, "invalid-request")
    assert answer.json()["errors"][0]["parameter"] == f"query: {query.partition('=')[0]}"


def test_text_that_breaks_a_pattern_is_told_in_words(client: httpx.Client) -> None:
    """Each pattern that the interface shows has words: people who choose a name do not read patterns."""
    refused = client.put("/v1/ontologies/a%20b?format=ttl", content=b"").json()
    assert refused["detail"].startswith("path: name: a name has at most 100 letters of English, digits")
    refused = client.put("/v1/operators/a-b", json={}).json()
    assert (
        refused["detail"]
        == "path: name: a name has letters of English, digits and underscores, and begins with no digit"
    )
    shown = {
        json.loads(f'"{each}"')
        for each in re.findall(r'"pattern":"((?:[^"\\]|\\.)*)"', client.get("/openapi.json").text)
    }
    assert len(shown) >= 4
    assert shown <= problem_types._OF_PATTERNS.keys()


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("/v1/match", "event, events"),
        ("/v1/explain", "event, subscription"),
        ("/v1/check", "expression, position"),
        ("/v1/backtests", "expression"),
        ("/v1/matches", "bindings, event, subscription, subscriptions"),
    ],
)
def test_unknown_member_is_a_problem_that_lists_the_known_ones(client: httpx.Client, path: str, known: str) -> None:
    """The pointer is one of RFC 6901."""
    answer = client.post(path, json={"a/b~": 1})
    problem = answer.json()
    assert "unknown member 'a/b~'; known are " in problem["detail"]
    assert known in problem["detail"]
    assert problem["errors"] == [{"pointer": "/a~1b~0", "detail": "unknown member"}]


def test_unknown_parameter_is_refused_on_every_route(client: httpx.Client) -> None:
    """Also where it is misspelt: without `dry_run`, an upload changes something. Probes may have their own."""
    walked = 0
    for path, operations in routes(client).items():
        url = re.sub(r"\{(\w+)\}", lambda match: SAMPLES[match[1]], path)
        for method in operations:
            answer = client.request(method.upper(), url, params={"unheard_of": "1"})
            if path in OPEN_TO_OTHERS:
                assert answer.status_code < 500
                assert "unknown parameter" not in answer.text
            else:
                problem = answer.json()
                assert (answer.status_code, problem_code(answer)) == (422, "invalid-request"), (method, path)
                assert problem["errors"][0]["parameter"] == "query: unheard_of"
                walked += 1
    assert walked > 80
    uploaded = client.put("/v1/ontologies/shop", params={"dryrun": "true"}, content=b"<urn:a> a <urn:b> .")
    assert uploaded.json()["detail"] == "query: dryrun: unknown parameter; did you mean dry_run?"
    assert client.get("/v1/ontologies").json()["ontologies"] == []
    asked = client.get("/v1/events", params={"limit": "1", "sequence": "1"})
    assert asked.json()["detail"] == "query: sequence: unknown parameter; known are after, type, limit, received"
    assert (
        client.get("/v1/rules", params={"a": "1"}).json()["detail"]
        == "query: a: unknown parameter; this route has none"
    )


def test_unexpected_error_says_nothing_of_the_inside(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault of ours is a 500 without a stack trace; the log has it."""

    def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("secret inside")

    monkeypatch.setattr("kindcast.server.api.ontologies.ontologies.list_ontologies", broken)
    answer = client.get("/v1/ontologies")
    assert (answer.status_code, problem_code(answer)) == (500, "internal-error")
    assert "secret inside" not in answer.text
    assert "secret inside" in caplog.text


# ── who may come in ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost.", "[::2]:80"])
def test_host_of_another_name_is_refused(client: httpx.Client, host: str) -> None:
    """A page whose name was made to point at this machine does not get in."""
    answer = client.get("/healthz", headers={"Host": host})
    assert (answer.status_code, problem_code(answer)) == (421, "wrong-host")


@pytest.mark.parametrize("path", ["/v1/events", "/v1/subscriptions"])
@pytest.mark.parametrize(
    "twice",
    [
        [("Content-Type", "application/json"), ("Content-Type", "application/x-ndjson")],
        [("Idempotency-Key", "first-of-two-keys"), ("Content-Type", "application/json"), ("Idempotency-Key", "second")],
    ],
)
def test_header_with_two_values_is_refused(client: httpx.Client, path: str, twice: list[tuple[str, str]]) -> None:
    """Nobody could say which one counts. The same value twice, as some proxies send it, means one thing."""
    body = b'{"expression": "n = 1"}'
    answer = client.post(path, content=body, headers=twice)
    assert (answer.status_code, problem_code(answer)) == (400, "malformed-request")
    assert twice[-1][0] in answer.json()["detail"]
    assert client.post(path, content=body, headers=[("Content-Type", "application/json")] * 2).is_success


@pytest.mark.parametrize("host", ["localhost:8080", "LOCALHOST", "[::1]:8080", "127.0.0.1"])
def test_host_of_this_machine_is_let_in(client: httpx.Client, host: str) -> None:
    """Every name of the loopback, with or without a port."""
    assert client.get("/healthz", headers={"Host": host}).status_code == 200


def test_host_that_the_settings_allow_is_let_in(tmp_path: Path) -> None:
    """A proxy's name can be allowed."""
    with running_application(tmp_path, allowed_hosts=("broker.example",)) as client:
        assert client.get("/healthz", headers={"Host": "broker.example"}).status_code == 200


def test_change_asked_by_another_site_is_refused(client: httpx.Client) -> None:
    """A page elsewhere, on another port of this machine too, cannot make its visitor's browser change anything here."""
    foreign = ("https://evil.example", "null", "http://localhost:3000", "http://127.0.0.1.", "http://a@127.0.0.1")
    for origin, expected in (*((each, 403) for each in foreign), ("http://127.0.0.1", 202)):
        answer = client.post("/v1/events", json={}, headers={"Origin": origin})
        assert answer.status_code == expected, origin
    assert client.get("/healthz", headers={"Origin": "https://evil.example"}).status_code == 200


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_body_that_a_form_could_send_is_refused(client: httpx.Client, content_type: str) -> None:
    """What a browser sends across sites without asking first is no request of ours."""
    headers = {"Content-Type": content_type}
    for path in ("/v1/events", "/v1/subscriptions", "/v1/match", "/v1/explain"):
        answer = client.post(path, content=b'{"expression": ""}', headers=headers)
        assert (answer.status_code, problem_code(answer)) == (415, "unsupported-media-type"), path


@pytest.mark.parametrize("path", ["/v1/subscriptions", "/v1/match", "/v1/explain"])
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"event": NaN}', "malformed-json"),
        (b'{"event": 1e999}', "malformed-json"),
        (b'{"event": "\\ud800"}', "malformed-json"),
        (b"", "malformed-json"),
        (b"[]", "malformed-request"),
        (b'{"event": ' + b"[" * 100 + b"]" * 100 + b"}", "too-deep"),
        (b'{"event": ' + b"[" * 100_000, "too-deep"),
    ],
)
def test_body_that_is_no_proper_json_is_refused(client: httpx.Client, path: str, body: bytes, code: str) -> None:
    """Every route that takes JSON takes the same JSON: finite numbers, whole characters, bounded nesting, an object."""
    answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, problem_code(answer)) == (400, code)


@pytest.mark.parametrize("depth", [100, 2_000])
def test_json_that_is_nested_too_deep_has_one_code(client: httpx.Client, depth: int) -> None:
    """Whichever route reads it, whether Python or the limit stops it, and for one of several too."""
    deep = b'{"event": ' + b"[" * depth + b"1" + b"]" * depth + b"}"
    for path in ("/v1/events", "/v1/matches", "/v1/subscriptions", "/v1/match", "/v1/check", "/v1/backtests"):
        answer = client.post(path, content=deep, headers={"Content-Type": "application/json"})
        assert (answer.status_code, problem_code(answer)) == (400, "too-deep"), path
    lines = {"Content-Type": "application/x-ndjson"}
    for path in ("/v1/events", "/v1/subscriptions/import"):
        told = client.post(path, content=b'{"expression": ""}\n' + deep, headers=lines).json()
        assert [each["problem"]["type"].rpartition("/")[2] for each in told["rejected"]] == ["too-deep"], path
    made = client.post("/v1/subscriptions", json={"expression": ""}).json()
    headers = {"Kindcast-Ticket": made["ticket"], "Content-Type": "application/json"}
    deep = b'{"cursor": ' + b"[" * 2_000 + b"]" * 2_000 + b"}"
    answer = client.post(f"/v1/subscriptions/{made['id']}/ack", content=deep, headers=headers)
    assert problem_code(answer) == "too-deep"


# ── health ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_metrics_add_up(client: httpx.Client) -> None:
    """accepted = matched + unmatched; matches = delivered + pending + discarded (+ dead)."""
    made = [client.post("/v1/subscriptions", json={"expression": text}).json() for text in ("n > 1", "n > 2", "n > 2")]
    for number in (1, 2, 3, 4):
        client.post("/v1/events", json={"n": number})
    client.post("/v1/events", content=b"{nonsense", headers={"Content-Type": "application/json"})

    def ticket(number: int) -> dict[str, str]:
        return {"Kindcast-Ticket": made[number]["ticket"]}

    client.post(f"/v1/subscriptions/{made[0]['id']}/ack", json={"cursor": "3"}, headers=ticket(0))
    client.delete(f"/v1/subscriptions/{made[1]['id']}", headers=ticket(1))
    found = dict(re.findall(r"^kindcast_(\w+) (\S+)$", client.get("/metrics").text, re.MULTILINE))
    figures = {name: float(value) for name, value in found.items()}
    expected = {
        "events_accepted_total": 4,
        "events_matched_total": 3,
        "events_unmatched_total": 1,
        "events_rejected_total": 1,
        "matches_total": 7,
        "matches_delivered_total": 2,
        "matches_discarded_total": 2,
        "matches_pending": 3,
    }
    assert {name: figures[name] for name in expected} == expected


def test_metrics_while_the_database_is_away_are_those_of_the_process(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator looks just then. A counter that is not known is left out, and is not 0."""
    assert "kindcast_database_up 1.0" in client.get("/metrics").text

    def away(*_: object) -> None:
        raise StoreUnavailable("the database cannot be reached")

    monkeypatch.setattr(Database, "read", away)
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert "kindcast_database_up 0.0" in answer.text
    assert "kindcast_concepts 0.0" in answer.text.splitlines()
    assert re.search(r"^kindcast_queue_waiting \d", answer.text, re.MULTILINE)
    assert "kindcast_match_duration_seconds_count" in answer.text
    assert "kindcast_events_accepted" not in answer.text


def test_metrics_count_attempts_of_subscriptions_that_are_gone(client: httpx.Client, tmp_path: Path) -> None:
    """A counter never falls: what a deleted subscription had tried is kept in the ledger."""
    made = client.post("/v1/subscriptions", json={"expression": ""}).json()
    with closing(sqlite3.connect(tmp_path / "kindcast.db")) as store, store:
        store.execute("UPDATE subscriptions SET times_sent = 5, times_failed = 2")

    def attempts() -> dict[str, str]:
        return dict(re.findall(r'kindcast_deliveries_total\{result="(\w+)"\} (\S+)', client.get("/metrics").text))

    assert attempts() == {"delivered": "3.0", "failed": "2.0"}
    client.delete(f"/v1/subscriptions/{made['id']}", headers={"Kindcast-Ticket": made["ticket"]})
    assert attempts() == {"delivered": "3.0", "failed": "2.0"}


def test_health_and_docs_are_there(client: httpx.Client) -> None:
    """Alive, ready, the interactive documentation, whose files all come from this server."""
    assert client.get("/healthz").json() == {"status": "alive"}
    assert client.get("/readyz").json() == {"status": "ready"}
    page = client.get("/docs")
    assert page.status_code == 200
    files = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert files
    assert all(each.startswith("/") and client.get(each).status_code == 200 for each in files), files
    told = client.get("/openapi.json").json()
    assert told["openapi"].startswith("3.1")
    assert told["info"]["license"]["identifier"] == "Apache-2.0"


@pytest.mark.parametrize("given", [1_764_150_000, "1764150001", "0.5", 1.5, " 12 "])
def test_a_number_is_no_time(tmp_path: Path, given: object) -> None:
    """Nobody can say whether it is seconds or milliseconds; it was taken for one of them."""
    with running_application(tmp_path) as client:
        refused = client.post("/v1/subscriptions", json={"expression": "a = 1", "expires_at": given})
        assert (refused.status_code, problem_code(refused)) == (422, "invalid-request")
        assert "2026-01-31T12:00:00Z" in refused.text
        assert client.get("/v1/audit", params={"since": str(given)}).status_code == 422
        assert client.get("/v1/audit", params={"since": "2026-01-31T12:00:00Z"}).status_code == 200


@pytest.mark.parametrize("given", [1.5, True, [1], {"a": 1}, "latest", -1])
def test_a_wrong_start_has_one_error(tmp_path: Path, given: object) -> None:
    """Each type that it may have gave an error, at `/start_at/str` and `/start_at/int`."""
    with running_application(tmp_path) as client:
        refused = client.post("/v1/subscriptions", json={"expression": "a = 1", "start_at": given})
        assert (refused.status_code, problem_code(refused)) == (422, "invalid-request")
        (error,) = refused.json()["errors"]
        assert error["pointer"] == "/start_at"
        assert error["detail"].startswith("give earliest, a time such as 2026-01-31T08:00:00Z, or the sequence")


@pytest.mark.parametrize("given", [False, True, "60", None, [60]])
def test_what_is_no_number_is_refused(tmp_path: Path, given: object) -> None:
    """`false` was taken for 0, so that a key was rotated without overlap."""
    with running_application(tmp_path) as client:
        key = client.post("/v1/keys", json={"role": "admin"}).json()
        client.headers["Authorization"] = f"Bearer {key['key']}"
        answers = [
            client.post(f"/v1/keys/{key['id']}/rotate", json={"overlap_seconds": given}),
            client.post("/v1/keys", json={"role": "auditor", "limits": {"connections": given}}),
            client.post("/v1/subscriptions", json={"expression": "a = 1", "ttl_seconds": given}),
        ]
        expected = [422, 422, 201 if given is None else 422]
        assert [each.status_code for each in answers] == expected


def test_the_index_is_explained_after_a_subscription_was_deleted(tmp_path: Path) -> None:
    """Its place in the newest part of the index made a number that JSON does not have."""
    with running_application(tmp_path) as client:
        first, _ = (client.post("/v1/subscriptions", json={"expression": "a = 1"}).json() for _ in range(2))
        ticket = {"Kindcast-Ticket": first["ticket"]}
        assert client.delete(f"/v1/subscriptions/{first['id']}", headers=ticket).status_code == 200
        told = client.post("/v1/explain?index=true", json={"event": {"a": 1}, "subscription": "a = 1"})
        assert (told.status_code, told.json()["index"]["clauses"]["found"]) == (200, 1)


LONG = "x" * 100_000


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/v1/attributes/a", {"kind": "concept", "range": LONG}),
        ("PUT", "/v1/attributes/a", {f"{each}_of_mine": 1 for each in range(50_000)}),
        ("PUT", "/v1/synonyms/a", {LONG: "x"}),
        ("PUT", "/v1/schemas/a", {"properties": {"a": {"$ref": LONG}}}),
        ("PUT", "/v1/aliases/a", {"iris": {LONG: "x"}}),
        ("POST", "/v1/backtests", {"expression": "a = 1", "ontologies": {LONG: 1}}),
        ("POST", "/v1/explain", {"subscription": f"a isa {LONG[:60_000]}", "event": {}}),
        ("PUT", "/v1/contexts?url=http://example.org/c", {"@context": f"http://example.org/{LONG}"}),
        ("PUT", "/v1/contexts?url=http://example.org/c", {"@context": [f"http://a/{each}" for each in range(3_000)]}),
        ("POST", "/v1/subscriptions", {"expression": "a = 1"} | {f"expires_{each}": 1 for each in range(10_000)}),
    ],
)
def test_an_error_does_not_repeat_long_input(client: httpx.Client, method: str, path: str, body: Any) -> None:
    """A request of 15 MB was answered with an error of 28 MB."""
    answer = client.request(method, path, json=body)
    assert problem_code(answer)
    assert answer.status_code < 500
    assert len(answer.content) < 50_000
    assert all(len(each["detail"]) <= 2_000 for each in [answer.json(), *answer.json().get("errors", ())])
