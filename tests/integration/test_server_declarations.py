"""Declarations over HTTP: attributes, synonyms, rates and event types, versioned with the vocabulary."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from kindcast.semantic.vocabulary.declarations import MOST_WORDS
from kindcast.server.api import declarations
from kindcast.server.broker import vocabulary_commands
from tests.harness.application import problem_code, publish, running_application, show, subscribe
from tests.harness.server_thread import running_app


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with running_application(tmp_path) as client:
        yield client


def put(client: httpx.Client, path: str, body: Any, **params: Any) -> httpx.Response:
    return client.put(f"/v1/{path}", json=body, params=params)


def version_in_force(client: httpx.Client) -> str:
    version: str = client.get("/v1/ontologies").json()["vocabulary_version"]
    return version


def test_attribute_declared_unit_reads_bare_numbers(client: httpx.Client) -> None:
    """A bare number has the declared unit from the next event on; taking the declaration back ends that."""
    subscribe(client, "value > 30 degC")
    assert publish(client, value=87) == 0
    answer = put(client, "attributes/value", {"kind": "number", "unit": "degF"})
    assert (answer.status_code, answer.json()["version"]) == (201, 1)
    assert answer.json()["impact"]["attributes"]["listed"][0]["attribute"] == "value"
    assert answer.json()["subscriptions"]["changed"] == 1
    assert [publish(client, value=87, n=1), publish(client, value=85, n=1)] == [1, 0]
    assert client.delete("/v1/attributes/value").status_code == 200
    assert publish(client, value=87, n=2) == 0
    gone = client.get("/v1/attributes/value")
    assert (gone.status_code, problem_code(gone)) == (404, "unknown-declaration")


def test_attribute_unit_stands_in_a_sibling(client: httpx.Client) -> None:
    """86 degF and 30 degC are one limit, where the schema names the attribute that holds the unit."""
    for expression in ("value > 86 degF", "value > 30 degC"):
        subscribe(client, expression)
    assert put(client, "attributes/value", {"kind": "number", "unit_from": "unit"}).status_code == 201
    assert publish(client, value=30.1, unit="degC") == 2
    assert publish(client, value=86.1, unit="degF") == 2
    assert publish(client, value=30, unit="degC") == 0


def test_attribute_may_have_a_slash_in_its_name(client: httpx.Client) -> None:
    """Columns of tables are called so. What cannot be declared could not be hidden either."""
    subscribe(client, "`Speed km/h` > 30 km/h")
    assert publish(client, **{"Speed km/h": 31}) == 0
    assert put(client, "attributes/Speed%20km%2Fh", {"kind": "number", "unit": "km/h"}).status_code == 201
    assert publish(client, n=1, **{"Speed km/h": 31}) == 1
    assert client.get("/v1/attributes/Speed%20km%2Fh").json()["declaration"] == {"kind": "number", "unit": "km/h"}
    assert client.delete("/v1/attributes/Speed%20km%2Fh").status_code == 200


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("synonyms", {"red": "crimson"}),
        ("code-systems", {"identifiers": "urn:oid:1.2"}),
        ("aliases", {"prefixes": {"http://schema.org/": "https://schema.org/"}}),
        ("splits", {"split": "lines"}),
        ("relations", {"union": ["isPartOf"]}),
    ],
)
def test_declaration_may_have_a_slash_in_its_name(client: httpx.Client, kind: str, body: dict[str, Any]) -> None:
    """A name that may be written has an address under which it is read and deleted."""
    path = f"/v1/{kind}/EU%2Fshop"
    assert client.put(path, json=body).status_code == 201
    assert client.get(path).json()["name"] == "EU/shop"
    assert client.delete(path).status_code == 200


def test_declaration_same_body_again_is_the_same_version(client: httpx.Client) -> None:
    """Other bodies are other versions; an earlier body puts the earlier version in force again."""
    first = put(client, "attributes/value", {"unit": "degF"})
    again = put(client, "attributes/value", {"unit": "degF"})
    assert (first.status_code, again.status_code, again.json()["version"]) == (201, 200, 1)
    other = put(client, "attributes/value", {"unit": "degC"})
    assert (other.status_code, other.json()["version"]) == (201, 2)
    back = put(client, "attributes/value", {"unit": "degF"})
    assert (back.status_code, back.json()["version"]) == (200, 1)
    assert back.json()["vocabulary_version"] == first.json()["vocabulary_version"]
    shown = client.get("/v1/attributes/value").json()
    assert (shown["version"], shown["declaration"]) == (1, {"unit": "degF"})
    assert [(each["version"], each["active"]) for each in shown["versions"]] == [(2, False), (1, True)]
    listed = client.get("/v1/attributes").json()
    assert [each["name"] for each in listed["attributes"]] == ["value"]


@pytest.mark.parametrize(
    ("path", "body", "member", "name"),
    [
        ("attributes/value", {"unit": "degF"}, "attributes", "value"),
        ("synonyms/mine", {"Celsius": "degC"}, "words", "degC"),
        ("synonyms/mine", {"Reaumur": "Réaumur"}, "texts", 'note contains "Ré"'),
        ("rates", {"EUR": {"USD": "1.25"}}, "units", "USD"),
    ],
)
def test_declaration_dry_run_tells_and_changes_nothing(
    client: httpx.Client, path: str, body: Any, member: str, name: str
) -> None:
    """The answer names what changes and for how many; the vocabulary in force stays, and nothing is stored."""
    subscribe(client, 'value > 86 degF and scale = "degC" and price < 10 USD and note contains "Ré"')
    before = version_in_force(client)
    answer = put(client, path, body, dry_run=True)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["dry_run"], told["subscriptions"]["changed"]) == (True, 1)
    (changed,) = told["impact"][member]["listed"]
    assert name in changed.values()
    assert changed["subscriptions"] == 1
    assert version_in_force(client) == before == told["vocabulary_version"]
    assert client.get(f"/v1/{path}").status_code == 404
    assert put(client, path, body).json()["impact"] == told["impact"]
    assert version_in_force(client) == told["impact"]["vocabulary_version"]["to"]


def test_dry_runs_run_one_at_a_time(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many at one time would take the processor from everything else. Those of ontologies and of declarations."""
    running, most = 0, 0
    real, lock = vocabulary_commands.prepare, threading.Lock()

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)  # others would begin meanwhile
        try:
            return real(*arguments, **named)
        finally:
            with lock:
                running -= 1

    monkeypatch.setattr(vocabulary_commands, "prepare", counted)

    def tried(number: int) -> int:
        if number % 2:
            return put(client, "attributes/a", {"kind": "number"}, dry_run=True).status_code
        body, headers = f"<urn:a{number}> a <urn:b> .", {"Content-Type": "text/turtle"}
        asked = {"dry_run": "true"}
        return client.put("/v1/ontologies/o", content=body, headers=headers, params=asked).status_code

    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(tried, range(6))) == {200}
    assert most == 1


def test_synonyms_as_json_are_checked_like_csv(client: httpx.Client) -> None:
    """An empty word would be that of every empty text, and one of two spellings of a word would win silently."""
    for words in ({"": "x"}, {"x": ""}, {"x" * 1_001: "y"}, {"Cafe\u0301": "bar", "Caf\xe9": "coffee"}):
        refused = client.put("/v1/synonyms/mine", json=words)
        assert (refused.status_code, refused.json()["errors"][0]["code"]) == (422, "bad-synonym")
    put(client, "synonyms/mine", {"Cafe\u0301": "coffee"})
    other = client.put("/v1/synonyms/other", json={"Caf\xe9": "bar"})
    assert (other.status_code, other.json()["errors"][0]["code"]) == (422, "synonym-conflict")


def test_synonyms_as_csv_rewrite_words(client: httpx.Client) -> None:
    """A line is a word and its root word; lines that are none are told by their number."""
    subscribe(client, 'kind = "computer"')
    csv = {"Content-Type": "text/csv; charset=utf-8"}
    answer = client.put("/v1/synonyms/mine", content='PC,computer\r\n"Rechner, alt",computer\n', headers=csv)
    assert answer.status_code == 201, answer.text
    assert client.get("/v1/synonyms/mine").json()["declaration"] == {"PC": "computer", "Rechner, alt": "computer"}
    assert [publish(client, kind=kind) for kind in ("PC", "Rechner, alt", "Mac")] == [1, 1, 0]
    refused = client.put("/v1/synonyms/mine", content="PC,computer\nPC\nPC,other\n", headers=csv)
    assert (refused.status_code, problem_code(refused)) == (422, "invalid-declaration")
    assert [fault["line"] for fault in refused.json()["errors"]] == [2, 3]


def test_rates_connect_currencies(client: httpx.Client) -> None:
    """Currencies compare by the uploaded table, and not without one."""
    subscribe(client, "price < 10 USD")
    assert publish(client, price="7 EUR") == 0
    assert put(client, "rates", {"EUR": {"USD": "1.25"}}).status_code == 201
    assert [publish(client, price="7 EUR", n=1), publish(client, price="8 EUR", n=1)] == [1, 0]
    wrong = put(client, "rates", {"EUR": {"XXY": "1.25"}})
    assert (wrong.status_code, problem_code(wrong)) == (422, "invalid-declaration")
    assert client.get("/v1/rates").json()["declaration"] == {"EUR": {"USD": "1.25"}}
    csv = {"Content-Type": "text/csv"}
    assert client.put("/v1/rates", content="base,currency,rate\nEUR,USD,1.50\n", headers=csv).status_code == 201
    assert client.get("/v1/rates").json()["declaration"] == {"EUR": {"USD": "1.50"}}
    refused = client.put("/v1/rates", content="EUR,USD,1.50\nEUR,USD\n", headers=csv)
    assert [fault["line"] for fault in refused.json()["errors"]] == [2]


OFFER = {
    "type": "object",
    "properties": {"price": {"type": "number"}, "state": {"type": "string", "enum": ["new", "used"]}},
    "required": ["price"],
}


def test_schema_is_extended_while_publishers_run(client: httpx.Client) -> None:
    """A type may gain optional attributes and members of an enumeration; anything else is refused with its place, until
    the whole is replaced on purpose."""
    assert put(client, "schemas/com.example/offer", OFFER).status_code == 201
    assert client.get("/v1/schemas/com.example%2Foffer").json()["declaration"] == OFFER
    created = subscribe(client, 'state = "new"')
    more = {**OFFER, "properties": {**OFFER["properties"], "note": {"type": "string"}}}  # type: ignore[dict-item]
    assert put(client, "schemas/com.example/offer", more).json()["version"] == 2
    less = {**OFFER, "properties": {"price": {"type": "string"}}}
    for params in ({}, {"dry_run": True}):
        refused = put(client, "schemas/com.example/offer", less, **params)
        assert (refused.status_code, problem_code(refused)) == (422, "invalid-declaration")
        assert all("pointer" in fault for fault in refused.json()["errors"]), refused.text
    told = put(client, "schemas/com.example/offer", less, replace=True)
    assert told.status_code == 201, told.text
    (change,) = told.json()["impact"]["attributes"]["listed"]
    assert change["attribute"] == "state"
    assert change["declaration"]["from"]["enumeration"] == {"members": ["new", "used"]}
    assert [each["id"] for each in told.json()["impact"]["subscriptions"]["listed"]] == [created["id"]]
    listed = client.get("/v1/schemas").json()["schemas"]
    assert [(each["name"], each["version"]) for each in listed] == [("com.example/offer", 3)]
    assert client.delete("/v1/schemas/com.example/offer").status_code == 200
    assert client.get("/v1/schemas").json()["schemas"] == []


def test_schemas_of_several_types_are_viewed_as_one(client: httpx.Client) -> None:
    """The JSON Schema of an event of all these types, or of some of its attributes; unknown types and attributes are
    errors."""
    put(client, "schemas/old", {"properties": {"price": {"type": "number"}, "period": {}}, "required": ["period"]})
    put(client, "schemas/seat", {"properties": {"price": {"type": "number"}, "legs": {"type": "integer"}}})
    told = client.get("/v1/schemas", params={"type": ["seat", "old"]}).json()
    assert told["types"] == ["old", "seat"]
    assert set(told["view"]["properties"]) == {"price", "period", "legs"}
    assert told["view"]["required"] == ["period"]
    chosen = client.get("/v1/schemas", params={"type": ["seat", "old"], "attribute": ["price", "period"]}).json()
    assert set(chosen["view"]["properties"]) == {"price", "period"}
    assert client.get("/v1/schemas", params={"type": "chair"}).status_code == 404
    refused = client.get("/v1/schemas", params={"type": "seat", "attribute": "wings"})
    assert refused.status_code == 422
    assert "wings" in refused.json()["detail"]


def test_schema_that_is_none_is_refused_with_pointers(client: httpx.Client) -> None:
    """Every mistake of a schema with its JSON pointer."""
    refused = put(client, "schemas/offer", {"type": "object", "properties": {"price": {"type": "colour"}}})
    assert (refused.status_code, problem_code(refused)) == (422, "invalid-declaration")
    assert [fault["pointer"] for fault in refused.json()["errors"]] == ["/properties/price/type"]


@pytest.mark.parametrize("kind", ["version", "ip"])
def test_declaration_that_cannot_read_a_constant_flags_its_subscription(client: httpx.Client, kind: str) -> None:
    created = client.post("/v1/subscriptions", json={"expression": 'release = "newest"'}).json()
    told = put(client, "attributes/release", {"kind": kind}, dry_run=True).json()
    assert told["subscriptions"]["flagged"] == {"count": 1, "listed": [created["id"]]}
    put(client, "attributes/release", {"kind": kind})
    assert show(client, created).json()["flagged"] is True


def test_declaration_that_contradicts_a_subscription_flags_it(client: httpx.Client) -> None:
    """A unit of another dimension leaves a subscription without a meaning: kept, flagged, told of, and back with the
    declaration that fits."""
    created = subscribe(client, "value > 30 degC")
    told = put(client, "attributes/value", {"unit": "kg"}).json()
    assert told["subscriptions"]["flagged"] == {"count": 1, "listed": [created["id"]]}
    assert show(client, created).json()["flagged"] is True
    assert [each["id"] for each in client.get("/v1/subscriptions?flagged=true").json()["subscriptions"]] == [
        created["id"]
    ]
    assert "kindcast_subscriptions_flagged 1.0" in client.get("/metrics").text
    told = put(client, "attributes/value", {"unit": "degC"}).json()
    assert told["subscriptions"]["unflagged"] == {"count": 1, "listed": [created["id"]]}
    assert show(client, created).json()["flagged"] is False
    assert publish(client, value=31) == 1


def test_subscription_to_a_text_that_is_no_member_of_an_enumeration_is_not_flagged(client: httpx.Client) -> None:
    """The declaration of an attribute refuses no event, so the subscription may match. A note says what is unlikely."""
    put(client, "attributes/stage", {"enum": ["draft", "review"]})
    created = subscribe(client, 'stage = "final"')
    assert ([note["code"] for note in created["notes"]], created["flagged"]) == (["not-a-member"], False)
    assert publish(client, stage="final") == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("attributes/value", {"kind": "colour"}),
        ("attributes/value", {"unit": "no such unit"}),
        ("synonyms/mine", {"a": "b", "b": "a"}),
        ("rates", {"EUR": {"USD": "-1"}}),
    ],
)
def test_declaration_wrong_is_refused(client: httpx.Client, path: str, body: Any) -> None:
    """What cannot be is a 422 with its reason, and leaves everything as it was."""
    before = version_in_force(client)
    for params in ({}, {"dry_run": True}):
        answer = put(client, path, body, **params)
        assert (answer.status_code, problem_code(answer)) == (422, "invalid-declaration")
        assert answer.json()["errors"]
    assert version_in_force(client) == before


def test_restart_restores_declarations(tmp_path: Path) -> None:
    """The same vocabulary version, from the store alone."""
    with running_application(tmp_path) as client:
        put(client, "attributes/value", {"unit": "degF"})
        put(client, "synonyms/a", {"PC": "computer"})
        put(client, "rates", {"EUR": {"USD": "1.25"}})
        subscribe(client, 'value > 30 degC and kind = "computer" and price < 10 USD')
        before = version_in_force(client)
    with running_application(tmp_path) as client:
        assert version_in_force(client) == before
        assert publish(client, value=87, kind="PC", price="7 EUR") == 1


@pytest.mark.parametrize("kind", ["application/json", "text/csv"])
def test_table_of_too_many_words_is_refused(client: httpx.Client, kind: str) -> None:
    """Each new text of an event is looked up in it. As JSON, any number was accepted."""
    words = [f"w{number}" for number in range(MOST_WORDS + 1)]
    rows = "".join(f"{word},r\n" for word in words)
    body = rows.encode() if kind == "text/csv" else msgspec.json.encode(dict.fromkeys(words, "r"))
    answer = client.put("/v1/synonyms/many", content=body, headers={"Content-Type": kind})
    assert (answer.status_code, problem_code(answer)) == (422, "invalid-declaration")
    assert "at most 200,000 words" in answer.json()["detail"]


def test_tables_of_one_client_do_not_hold_up_the_events_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of events are read in threads, too. Forty tables at a time occupied all threads for minutes."""
    begun, free = threading.Event(), threading.Event()

    def slowly(*_: Any) -> dict[str, str]:
        begun.set()
        assert free.wait(60)
        return {}

    monkeypatch.setattr(declarations, "read_table", slowly)
    with running_app(tmp_path) as address, ThreadPoolExecutor(40) as threads:
        headers = {"Content-Type": "text/csv"}
        body = b"a,b\n" * 2_000
        uploads = [
            threads.submit(httpx.put, f"{address}/v1/synonyms/t{number}", content=body, headers=headers, timeout=90.0)
            for number in range(40)
        ]
        try:
            assert begun.wait(30)
            time.sleep(1.0)  # the other uploads arrive
            lines: dict[str, Any] = {
                "content": b'{"a": 1}\n' * 1_000,
                "headers": {"Content-Type": "application/x-ndjson"},
            }
            event = httpx.post(f"{address}/v1/events", timeout=20.0, **lines)
        finally:
            free.set()
        assert event.status_code == 202
        assert {each.result().status_code for each in uploads} <= {200, 201}
