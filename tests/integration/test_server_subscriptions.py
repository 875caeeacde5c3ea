"""Subscriptions over HTTP: make, refuse, look at, change, pause, delete, export and import."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from kindcast.semantic.shipped_vocabularies import shipped
from kindcast.server.api import subscriptions
from tests.harness.application import problem_code, publish, running_application, show, subscribe, ticket, waiting
from tests.harness.receiver import running_receiver


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with running_application(tmp_path) as client:
        yield client


# ── making ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_subscribe_answers_everything_that_is_shown_once_and_what_it_became(client: httpx.Client) -> None:
    """Id, ticket, canonical form, clauses, cost, end and vocabulary version; the location leads to it."""
    client.put("/v1/ontologies/shop", content=shipped("shop").read_bytes())
    answer = client.post(
        "/v1/subscriptions", json={"expression": "target isa Computer or price < 5", "metadata": {"a": [1]}}
    )
    created = answer.json()
    assert answer.status_code == 201
    assert created["status"] == "active"
    assert "#Computer>" in created["canonical"]
    assert (created["clauses"], created["metadata"]) == (2, {"a": [1]})
    assert created["cost"] > 0
    assert created["vocabulary_version"] == client.get("/v1/ontologies").json()["vocabulary_version"]
    assert len(created["ticket"]) == 43
    assert "secret" not in created
    seen = client.get(answer.headers["location"]).json()
    assert seen["expression"] == "target isa Computer or price < 5"
    assert "ticket" not in seen
    end = datetime.fromisoformat(created["expires_at"])
    assert timedelta(days=29) < end - datetime.now(UTC) <= timedelta(days=30)


@pytest.mark.parametrize(
    "asked",
    [
        {"expression": "price <= 400"},
        {"where": {"<=": ["price", 400]}},
        {"filters": [{"semantic": "price <= 400"}]},
        {"filters": [{"https://kindcast.dev/dialects/semantic/v1": {"<=": ["price", 400]}}]},
    ],
)
def test_subscribe_by_text_tree_and_filters_means_the_same(client: httpx.Client, asked: dict[str, Any]) -> None:
    """The three ways to say it give one canonical form and match the same."""
    answer = client.post("/v1/subscriptions", json=asked)
    assert (answer.status_code, answer.json()["canonical"]) == (201, "price <= 400")
    assert asked.items() <= answer.json().items()
    assert (publish(client, price=350), publish(client, price=450)) == (1, 0)


def test_subscribe_types_and_source_narrow_it(client: httpx.Client) -> None:
    """Only events of these types from this source, beside what the expression asks; alone they are enough."""
    both = subscribe(client, "n exists", types=["a", "b"], source="urn:x")
    alone = client.post("/v1/subscriptions", json={"types": ["a"]}).json()
    for type, source in (("a", "urn:x"), ("b", "urn:x"), ("c", "urn:x"), ("a", "urn:y")):
        headers = {"ce-type": type, "ce-source": source}
        client.post("/v1/events", json={"n": f"{type} {source}"}, headers=headers)
    assert waiting(client, both) == [{"n": "a urn:x"}, {"n": "b urn:x"}]
    assert waiting(client, alone) == [{"n": "a urn:x"}, {"n": "a urn:y"}]


def test_subscribe_to_a_source_that_begins_with_a_question_mark(client: httpx.Client) -> None:
    """It is a relative reference, and no variable of the language."""
    made = subscribe(client, "n exists", source="?sensor=3")
    for source in ("?sensor=3", "?sensor=4"):
        client.post("/v1/events", json={"n": source}, headers={"ce-source": source})
    messages = client.get(f"/v1/subscriptions/{made['id']}/events").json()["events"]
    assert [each["event"]["source"] for each in messages] == ["?sensor=3"]


def test_subscribe_empty_expression_gets_every_event(client: httpx.Client) -> None:
    """The empty text and no filters at all both mean everything."""
    subscribe(client, "")
    client.post("/v1/subscriptions", json={"filters": []})
    assert publish(client, anything=1) == 2


def test_subscribe_gets_later_events_only(client: httpx.Client) -> None:
    """What was accepted before is not for it."""
    publish(client, n=1)
    created = subscribe(client)
    publish(client, n=2)
    assert waiting(client, created) == [{"n": 2}]


def test_subscribe_with_a_sink_answers_a_secret_and_hides_it_later(tmp_path: Path) -> None:
    """The secret to verify signatures is shown once; credentials and header values never."""
    with running_application(tmp_path, allow_private_sinks=True) as client:
        created = subscribe(
            client,
            "n = 1",
            sink="http://127.0.0.1:9/hook",
            protocol="HTTP",
            protocolsettings={"headers": {"X-Key": "hush-1"}, "method": "POST"},
            sinkcredential={"credentialtype": "ACCESSTOKEN", "accesstoken": "hush-2"},
        )
        assert created["secret"].startswith("whsec_")
        for text in (
            show(client, created).text,
            client.get("/v1/subscriptions").text,
            client.get("/v1/subscriptions/export").text,
        ):
            assert "hush" not in text
            assert created["secret"] not in text
            assert created["ticket"] not in text
        seen = show(client, created).json()
        assert seen["sinkcredential"] == {"credentialtype": "ACCESSTOKEN"}
        assert (seen["protocol"], seen["protocolsettings"]["headers"]) == ("HTTP", {"X-Key": "(hidden)"})


def test_a_header_that_is_sent_as_it_is_shown_keeps_its_value(tmp_path: Path) -> None:
    """As when settings are read, changed and sent back. Where there is no stored value, a hidden one is refused."""
    with running_receiver() as receiver, running_application(tmp_path, allow_private_sinks=True) as client:
        sink = receiver.script("/hook", 204)
        created = subscribe(client, "n exists", sink=sink, protocolsettings={"headers": {"X-Key": "hush"}})
        url, owner = f"/v1/subscriptions/{created['id']}", ticket(created)
        shown = show(client, created).json()["protocolsettings"]
        changed = {**shown, "method": "PUT", "headers": {**shown["headers"], "X-More": "1"}}
        assert client.patch(url, json={"protocolsettings": changed}, headers=owner).status_code == 200
        publish(client, n=1)
        [got] = receiver.wait_for("/hook", 1)
        assert (got.headers["x-key"], got.headers["x-more"]) == ("hush", "1")
        moved = {"sink": "http://127.0.0.1:10/hook", "protocolsettings": changed}
        assert problem_code(client.patch(url, json=moved, headers=owner)) == "sink-refused"
        unknown = {"protocolsettings": {"headers": {"X-Other": "(hidden)"}}}
        for answer in (
            client.patch(url, json=unknown, headers=owner),
            client.post("/v1/subscriptions", json={"expression": "", "sink": sink, **unknown}),
        ):
            assert answer.json()["errors"][0]["pointer"] == "/protocolsettings/headers/X-Other"


def test_headers_that_differ_in_case_only_are_refused(tmp_path: Path) -> None:
    """Names of headers have no case, and only one value would be sent."""
    with running_application(tmp_path, allow_private_sinks=True) as client:
        body = {"expression": "n = 1", "sink": "http://127.0.0.1:9/hook"}
        twice = {"protocolsettings": {"headers": {"X-Key": "one", "x-key": "two"}}}
        created = subscribe(client, **body)
        for answer in (
            client.post("/v1/subscriptions", json=body | twice),
            client.patch(f"/v1/subscriptions/{created['id']}", json=twice, headers=ticket(created)),
        ):
            assert (answer.status_code, problem_code(answer)) == (422, "invalid-request")
            assert answer.json()["errors"][0]["pointer"] == "/protocolsettings/headers/x-key"
        assert show(client, created).json()["protocolsettings"] is None


def test_secrets_of_a_sink_are_not_sent_to_another_server(tmp_path: Path) -> None:
    """Whoever changes the sink to another server gives credential and headers again, or none."""
    token = {"credentialtype": "ACCESSTOKEN", "accesstoken": "hush-1"}
    headers = {"headers": {"X-Key": "hush-2"}}
    with running_application(tmp_path, allow_private_sinks=True) as client:
        here = {"sink": "http://127.0.0.1:9/hook", "sinkcredential": token, "protocolsettings": headers}
        created = subscribe(client, "n = 1", **here)
        url, ticket = f"/v1/subscriptions/{created['id']}", {"Kindcast-Ticket": created["ticket"]}
        there = {"sink": "http://127.0.0.1:10/hook"}
        for more in ({}, {"sinkcredential": None}, {"protocolsettings": None}):
            answer = client.patch(url, json={**there, **more}, headers=ticket)
            assert (answer.status_code, problem_code(answer)) == (422, "sink-refused")
            assert "another server" in answer.json()["detail"]
        assert client.patch(url, json={"sink": "http://127.0.0.1:9/other"}, headers=ticket).status_code == 200
        cluster = {"sink": "kafka://127.0.0.1:9092,127.0.0.1:9093", "protocolsettings": {"topicname": "offers"}}
        answer = client.patch(url, json={**cluster, "protocol": "KAFKA", "sinkcredential": None}, headers=ticket)
        assert answer.status_code == 200, answer.text
        answer = client.patch(url, json={"sink": "kafka://127.0.0.1:9093"}, headers=ticket)
        assert answer.status_code == 200, answer.text
        assert client.patch(url, json={**here, "protocol": "HTTP"}, headers=ticket).status_code == 200
        given = {**there, "sinkcredential": token, "protocolsettings": None}
        assert client.patch(url, json=given, headers=ticket).json()["sink"] == there["sink"]


SINK = {"expression": "", "sink": "https://example.org/hook"}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, ""),
        ({"expression": "", "where": {}}, "/expression"),
        ({"expression": "", "colour": 1}, "/colour"),
        ({"expression": 5}, "/expression"),
        ({"expression": "", "ttl_seconds": 0}, "/ttl_seconds"),
        ({"expression": "", "ttl_seconds": 1e12}, "/ttl_seconds"),
        ({"expression": "", "expires_at": "2020-01-01T00:00:00Z"}, "/expires_at"),
        ({"expression": "", "expires_at": "2040-01-01T00:00:00Z", "ttl_seconds": 5}, "/expires_at"),
        ({"expression": "", "protocol": "HTTP"}, "/protocol"),
        ({"expression": "", "protocolsettings": {}}, "/protocolsettings"),
        ({**SINK, "protocol": "FTP"}, "/protocol"),
        ({**SINK, "protocol": "MQTT"}, "/sink"),
        ({"expression": "", "types": []}, "/types"),
        ({"expression": "", "types": [""]}, "/types/0"),
        ({"expression": "", "source": 5}, "/source"),
        ({"expression": "", "sink": "http://127.0.0.1/hook"}, "/sink"),
        ({"expression": "", "sink": "ftp://example.org"}, "/sink"),
    ],
)
def test_subscribe_bad_member_is_refused_with_its_pointer(
    client: httpx.Client, body: dict[str, Any], pointer: str
) -> None:
    """Whatever is wrong is refused with where it stands; nothing is stored."""
    answer = client.post("/v1/subscriptions", json=body)
    assert answer.status_code == 422, answer.text
    assert problem_code(answer) in ("invalid-request", "sink-refused")
    assert pointer in [fault["pointer"] for fault in answer.json()["errors"]]
    assert client.get("/v1/subscriptions").json()["subscriptions"] == []


def test_subscribe_what_this_version_lacks_is_said_honestly(client: httpx.Client) -> None:
    """Members of the contract that are not honoured yet are refused, not ignored."""
    answer = client.post("/v1/subscriptions", json={"expression": "", "config": {"a": 1}})
    assert (answer.status_code, problem_code(answer)) == (501, "not-in-this-version")
    assert answer.json()["errors"][0]["pointer"] == "/config"


@pytest.mark.parametrize("name", ["sparkle", "", "Headers"])
def test_subscribe_a_setting_that_the_protocol_has_not_is_refused(client: httpx.Client, name: str) -> None:
    body = {"expression": "", **SINK, "protocolsettings": {name: None}}
    answer = client.post("/v1/subscriptions", json=body)
    assert (answer.status_code, problem_code(answer)) == (422, "invalid-request")
    assert answer.json()["errors"][0]["pointer"] == f"/protocolsettings/{name}"
    assert "headers" in answer.json()["detail"]


def test_subscribe_credential_of_another_kind_is_refused(client: httpx.Client) -> None:
    """Refresh tokens are not in this version."""
    answer = client.post("/v1/subscriptions", json={**SINK, "sinkcredential": {"credentialtype": "REFRESHTOKEN"}})
    assert (answer.status_code, problem_code(answer)) == (422, "sink-refused")


@pytest.mark.parametrize(
    ("expression", "column"), [("price <= )", 10), ("target isa Computr", 12), ("price <= 4 or or price > 5", 15)]
)
def test_subscribe_bad_expression_names_the_place(client: httpx.Client, expression: str, column: int) -> None:
    """Line and column of what is wrong, and near names for what is unknown."""
    client.put("/v1/ontologies/shop", content=shipped("shop").read_bytes())
    answer = client.post("/v1/subscriptions", json={"expression": expression})
    assert (answer.status_code, problem_code(answer)) == (422, "invalid-subscription")
    fault = answer.json()["errors"][0]
    assert (fault["line"], fault["column"]) == (1, column)
    if "isa" in expression:
        assert fault["suggestions"][0]["label"] == "Computer"


def test_subscribe_bad_tree_names_the_pointer(client: httpx.Client) -> None:
    """A tree's problems carry JSON pointers."""
    answer = client.post("/v1/subscriptions", json={"where": {"all": [{"<=": ["price", 4]}, {"nope": 1}]}})
    assert (answer.status_code, problem_code(answer)) == (422, "invalid-subscription")
    assert answer.json()["errors"][0]["pointer"].startswith("/where/all/1")
    unknown = {"any": [{"=": ["n", 1]}, {"isa": ["a", "nothing like it"]}]}
    for body, pointer in (
        ({"where": unknown}, "/where/any/1/isa/1"),
        ({"where": unknown, "types": ["t"]}, "/where/any/1/isa/1"),
        ({"filters": [{"semantic": "a isa Nothing"}]}, "/filters"),
    ):
        answer = client.post("/v1/subscriptions", json=body)
        assert [each["pointer"] for each in answer.json()["errors"]] == [pointer]
        (rejected,) = client.post("/v1/subscriptions/import", content=json.dumps(body)).json()["rejected"]
        assert [each["pointer"] for each in rejected["problem"]["errors"]] == [pointer]
    for path, body, pointer in (
        ("/v1/explain", {"event": {"a": 1}, "subscription": unknown}, "/subscription/any/1/isa/1"),
        ("/v1/backtests", {"where": unknown}, "/where/any/1/isa/1"),
    ):
        answer = client.post(path, json=body)
        assert [each["pointer"] for each in answer.json()["errors"]] == [pointer], path


@pytest.mark.parametrize(("name", "near"), [("expires", "expires_at"), ("ttl", "ttl_seconds"), ("x", None), ("", None)])
def test_unknown_member_is_told_with_the_one_that_was_meant(client: httpx.Client, name: str, near: str | None) -> None:
    """One with a similar name, or one of which it is the first word."""
    answer = client.post("/v1/subscriptions", json={"expression": "", name: 5})
    told = "unknown member" if near is None else f"unknown member; did you mean {near}?"
    assert [each["detail"] for each in answer.json()["errors"]] == [told]


@pytest.mark.parametrize("format", ["merge-patch", "json-patch"])
def test_formats_of_patches_are_refused(client: httpx.Client, format: str) -> None:
    """A change replaces each member as a whole; a merge patch would keep the members of `metadata` that it lacks."""
    made = subscribe(client, "n = 1", metadata={"team": "a"})
    headers = ticket(made) | {"Content-Type": f"application/{format}+json"}
    answer = client.patch(f"/v1/subscriptions/{made['id']}", content='{"metadata": {"room": 5}}', headers=headers)
    assert (answer.status_code, problem_code(answer)) == (415, "unsupported-media-type")
    assert show(client, made).json()["metadata"] == {"team": "a"}


def test_what_cannot_be_changed_is_told(client: httpx.Client) -> None:
    made = subscribe(client, "n = 1")
    for name, value in (("expression", "n = 2"), ("types", ["t"]), ("start_at", 5)):
        answer = client.patch(f"/v1/subscriptions/{made['id']}", json={name: value}, headers=ticket(made))
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, f"/{name}")
        assert f"{name} cannot be changed" in answer.json()["detail"]


def test_explanations_of_unknown_subscriptions_are_not_found(client: httpx.Client) -> None:
    answer = client.post("/v1/explain", json={"event": {"n": 1}, "subscription": "sub_0123456789abcdef"})
    assert (answer.status_code, problem_code(answer)) == (404, "unknown-subscription")


def test_pull_of_an_expired_subscription_says_so_at_once(client: httpx.Client) -> None:
    made = subscribe(client, "n = 1", ttl_seconds=1)
    assert client.get(f"/v1/subscriptions/{made['id']}/events").json().keys() == {"events", "cursor", "expiring"}
    began = time.monotonic()
    page = client.get(f"/v1/subscriptions/{made['id']}/events", params={"wait": 30}).json()
    assert page["expired"]
    assert page["events"] == []
    assert client.get(f"/v1/subscriptions/{made['id']}/events", params={"wait": 30}).json()["expired"]
    assert time.monotonic() - began < 25
    client.post(f"/v1/subscriptions/{made['id']}/renew", json={}, headers=ticket(made))
    assert "expired" not in client.get(f"/v1/subscriptions/{made['id']}/events").json()


@pytest.mark.parametrize("expression", ["`` = 1", 'inRegion("POINT(NaN Infinity)", @p)'])
def test_subscribe_empty_names_and_endless_places_are_refused(client: httpx.Client, expression: str) -> None:
    """The subscriber's mistakes, told as such."""
    answer = client.post("/v1/subscriptions", json={"expression": expression})
    assert (answer.status_code, problem_code(answer)) == (400, "invalid-subscription")
    assert client.post("/v1/explain", json={"subscription": expression, "event": {}}).status_code == 400


def test_subscribe_more_than_the_server_takes_is_refused(tmp_path: Path) -> None:
    """The limit is a setting; deleting one makes room."""
    with running_application(tmp_path, max_subscriptions=1) as client:
        first = subscribe(client)
        answer = client.post("/v1/subscriptions", json={"expression": ""})
        assert (answer.status_code, problem_code(answer)) == (507, "too-many-subscriptions")
        client.delete(f"/v1/subscriptions/{first['id']}", headers=ticket(first))
        subscribe(client)


# ── tickets ─────────────────────────────────────────────────────────────────────────────────────────────────────────

CHANGES = [("POST", "/renew"), ("POST", "/pause"), ("POST", "/resume"), ("PATCH", ""), ("DELETE", "")]


@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_change_needs_the_ticket(client: httpx.Client, method: str, path: str) -> None:
    """No ticket 401, another's 403, an unknown id 404; none of them changes anything."""
    one, other = subscribe(client, "n = 1"), subscribe(client, "n = 2")
    before = show(client, one).json()

    def change(id: str, headers: dict[str, str]) -> tuple[int, str]:
        body = None if method == "DELETE" else {}
        answer = client.request(method, f"/v1/subscriptions/{id}{path}", headers=headers, json=body)
        return answer.status_code, problem_code(answer)

    assert change(one["id"], {}) == (401, "ticket-missing")
    assert change(one["id"], ticket(other)) == (403, "ticket-wrong")
    assert change("sub_nobody", ticket(one)) == (404, "unknown-subscription")
    assert show(client, one).json() == before


# ── changing ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pause_and_resume_stop_and_start_matching(client: httpx.Client) -> None:
    """Events accepted while it is paused are not for it; what waited before stays."""
    created = subscribe(client, "n exists")
    publish(client, n=1)
    paused = client.post(f"/v1/subscriptions/{created['id']}/pause", headers=ticket(created)).json()
    assert paused["status"] == "paused"
    assert publish(client, n=2) == 0
    again = client.post(f"/v1/subscriptions/{created['id']}/pause", headers=ticket(created))
    assert again.json()["status"] == "paused"
    assert (
        client.post(f"/v1/subscriptions/{created['id']}/resume", headers=ticket(created)).json()["status"] == "active"
    )
    assert publish(client, n=3) == 1
    assert waiting(client, created) == [{"n": 1}, {"n": 3}]


def test_update_sink_comes_with_its_secret_once(tmp_path: Path) -> None:
    """A subscription that was pulled may get a sink; the first sink comes with a secret, the next keeps it."""
    with running_application(tmp_path, allow_private_sinks=True) as client:
        created = subscribe(client, "n = 1")
        url = f"/v1/subscriptions/{created['id']}"
        first = client.patch(url, json={"sink": "http://127.0.0.1:9/a", "metadata": {"k": 1}}, headers=ticket(created))
        assert first.json()["secret"].startswith("whsec_")
        assert (first.json()["protocol"], first.json()["metadata"]) == ("HTTP", {"k": 1})
        for protocol in ("HTTP", None):  # the one that it has; none is not taken away while there is a sink
            same = client.patch(url, json={"protocol": protocol}, headers=ticket(created))
            assert (same.status_code, same.json()["protocol"]) == (200, "HTTP")
        assert client.patch(url, json={"protocol": "MQTT"}, headers=ticket(created)).status_code == 422
        second = client.patch(url, json={"sink": "http://127.0.0.1:9/b"}, headers=ticket(created))
        assert "secret" not in second.json()
        assert (second.json()["sink"], second.json()["metadata"]) == ("http://127.0.0.1:9/b", {"k": 1})
        gone = client.patch(url, json={"sink": None, "metadata": None}, headers=ticket(created)).json()
        assert (gone["sink"], gone["protocol"], gone["metadata"]) == (None, None, None)


def test_update_what_is_fixed_or_wrong_is_refused(client: httpx.Client) -> None:
    """The expression is fixed; settings for a webhook need a sink."""
    created = subscribe(client, "n = 1")
    url = f"/v1/subscriptions/{created['id']}"
    fixed = client.patch(url, json={"expression": "n = 2"}, headers=ticket(created))
    assert (fixed.status_code, problem_code(fixed)) == (422, "invalid-request")
    settings = {"protocolsettings": {"method": "PUT"}}
    for lonely in (settings, {"protocol": "HTTP"}, {"sink": None, "protocol": "HTTP"}):
        refused = client.patch(url, json=lonely, headers=ticket(created))
        assert (refused.status_code, problem_code(refused)) == (422, "sink-missing")


def test_a_change_cannot_make_a_subscription_larger_than_a_new_one_may_be(tmp_path: Path) -> None:
    """Neither at once nor member by member, in both APIs; what makes it smaller is accepted."""
    with running_application(tmp_path, max_subscription_bytes=1_000, allow_private_sinks=True) as client:
        sink = {"sink": "http://127.0.0.1:9/a"}
        made = client.post("/v1/cloudevents/subscriptions", json={**sink, "protocol": "HTTP"}).json()
        url, kept = f"/v1/subscriptions/{made['id']}", {"metadata": {"k": "x" * 600}}
        assert client.patch(url, json=kept, headers=ticket(made)).json()["metadata"] == kept["metadata"]
        settings = {"headers": {"X-Key": "x" * 600}}
        for large in ({"metadata": {"k": "x" * 1_000}}, {"protocolsettings": settings}):
            refused = client.patch(url, json=large, headers=ticket(made))
            assert (refused.status_code, problem_code(refused)) == (413, "body-too-large")
        put = {**sink, "protocol": "HTTP", "protocolsettings": settings}
        refused = client.put(f"/v1/cloudevents/subscriptions/{made['id']}", json=put, headers=ticket(made))
        assert (refused.status_code, problem_code(refused)) == (413, "body-too-large")
        changed = client.patch(url, json={"metadata": None, "protocolsettings": settings}, headers=ticket(made))
        assert changed.status_code == 200


def test_delete_answers_what_it_was_and_forgets_it(client: httpx.Client) -> None:
    """It matches no more, and neither it nor what waited for it can be read."""
    created = subscribe(client, "n exists")
    publish(client, n=1)
    answer = client.delete(f"/v1/subscriptions/{created['id']}", headers=ticket(created))
    assert (answer.status_code, answer.json()["id"]) == (200, created["id"])
    assert publish(client, n=2) == 0
    for path in ("", "/events"):
        gone = client.get(f"/v1/subscriptions/{created['id']}{path}")
        assert (gone.status_code, problem_code(gone)) == (404, "unknown-subscription")


# ── lists ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", ["/v1/subscriptions", "/v1/cloudevents/subscriptions"])
def test_page_of_large_subscriptions_ends_early(tmp_path: Path, path: str) -> None:
    """However many are asked for, an answer has some MiB; following the link still gives each of them once."""
    with running_application(tmp_path, allow_private_sinks=True) as client:
        sink = {"sink": "http://127.0.0.1:9/hook", "protocolsettings": {"headers": {"x-filler": "x"}}}
        names = {"types": [f"{number:02}{'x' * 2_000}" for number in range(90)]}
        made = [subscribe(client, f"n = {number}", **sink, **names)["id"] for number in range(30)]
        seen: list[str] = []
        url, sizes = f"{path}?limit=1000", []
        while url:
            page = client.get(url)
            sizes.append(len(page.content))
            told = page.json()
            seen += [each["id"] for each in (told["subscriptions"] if isinstance(told, dict) else told)]
            url = page.links["next"]["url"] if "next" in page.links else ""
        assert (seen, len(sizes) > 1, max(sizes) < 6 << 20) == (made, True, True)


def test_list_is_searched_in_ids_expressions_and_metadata(client: httpx.Client) -> None:
    """Without regard to case, and to what a pattern of SQL is."""
    bodies: tuple[dict[str, Any], ...] = (
        {"expression": 'room = "100% Köln"', "metadata": {"name": "مرحبا"}},
        {"expression": "price < 5", "metadata": {"owner": ["Team Blue"]}},
        {"expression": "price < 6"},
    )
    made = [client.post("/v1/subscriptions", json=body).json()["id"] for body in bodies]
    texts = {"0% köln": [0], "مرحبا": [0], "team b": [1], "PRICE": [1, 2], made[2][4:]: [2], "_" * 30: [], "5%": []}
    for text, found in texts.items():
        told = client.get("/v1/subscriptions", params={"q": text, "status": "active"}).json()["subscriptions"]
        assert [each["id"] for each in told] == [made[number] for number in found], text
    first = client.get("/v1/subscriptions", params={"q": "price", "limit": 1})
    assert first.json()["subscriptions"][0]["id"] == made[1]
    assert [each["id"] for each in client.get(first.links["next"]["url"]).json()["subscriptions"]] == [made[2]]


@pytest.mark.parametrize("more", ["", "&status=active", "&newest_first=true"])
def test_list_of_large_subscriptions_does_not_end_with_a_link_to_an_empty_page(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    """Whose last page ends with its last subscription, as well as its bytes."""
    monkeypatch.setattr(subscriptions, "LISTED_BYTES", 1)
    made = [subscribe(client, f"n = {number}")["id"] for number in range(3)]
    pages, url = [], f"/v1/subscriptions?limit=10{more}"
    while url:
        page = client.get(url)
        pages.append([each["id"] for each in page.json()["subscriptions"]])
        url = page.links["next"]["url"] if "next" in page.links else ""
    assert pages == [[each] for each in (reversed(made) if "newest" in more else made)]


def test_list_pages_by_the_link_to_the_next(client: httpx.Client) -> None:
    """Following `Link: rel="next"` gives every subscription once, in the order of their creation, or backwards."""
    made = [subscribe(client, f"n = {number}")["id"] for number in range(5)]
    for order, expected in (("", made), ("&newest_first=true", made[::-1])):
        seen: list[str] = []
        url = "/v1/subscriptions?limit=2" + order
        while url:
            page = client.get(url)
            seen += [each["id"] for each in page.json()["subscriptions"]]
            link = page.links.get("next")
            assert (link is None) == (page.json()["cursor"] is None)
            url = link["url"] if link else ""
            assert not url or url.startswith("/v1/subscriptions?limit=2"), "a proxy may have another name and scheme"
        assert seen == expected
    bad = client.get("/v1/subscriptions?cursor=nonsense!")
    assert (bad.status_code, problem_code(bad)) == (400, "invalid-cursor")
