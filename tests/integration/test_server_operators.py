"""Operators over HTTP: registered, called beside the broker, late matches delivered, failures told."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Never

import httpcore
import httpx
import pytest
from sqlalchemy import Connection, create_engine, delete

from kindcast.semantic import CanonicalEvent
from kindcast.server import late_matching
from kindcast.server.late_matching import Case, LateMatcher
from kindcast.server.security.egress import Connections, EarlyAnswer
from kindcast.server.store import pending as pending_store
from kindcast.server.store.tables import operators
from tests.harness.application import problem_code, running_application, show, subscribe, ticket, waiting
from tests.harness.operator_service import OperatorService, running_service
from tests.harness.postgresql import PostgreSQL, driver_url
from tests.harness.waiting import until

QUICK: dict[str, Any] = {"allow_private_sinks": True, "operator_delays_seconds": (0.05, 0.05), "plugins": False}
"""Settings: services on this machine, and tries that come soon."""


@pytest.fixture(scope="module")
def service() -> Iterator[OperatorService]:
    with running_service() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """A folder, and where the database is: whatever waits for an operator waits in it, over restarts too."""
    if request.param == "sqlite":
        return {"data": tmp_path}
    cluster: PostgreSQL = request.getfixturevalue("postgresql")
    return {"data": tmp_path, "database": cluster.new_database()}


def register(client: httpx.Client, service: OperatorService, name: str, **more: Any) -> httpx.Response:
    """A remote operator that behaves as its name says."""
    return client.put(f"/v1/operators/{name}", json={"url": f"{service.url}/{name}", "timeout_seconds": 0.5, **more})


def publish(client: httpx.Client, **data: Any) -> dict[str, Any]:
    """What became of one event."""
    answer = client.post("/v1/events", json=data)
    assert answer.status_code == 202, answer.text
    outcome: dict[str, Any] = answer.json()["events"][0]
    return outcome


def _has(client: httpx.Client, created: dict[str, Any], messages: int) -> bool:
    return len(waiting(client, created)) == messages


def trace(client: httpx.Client, sequence: int) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/v1/events/{sequence}/trace").json()
    return found


def test_candidate_that_is_decided_during_a_read_is_not_decided_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The read still sees it. A call that is made again costs, and would be measured twice."""
    due = pending_store.due

    def due_before(connection: Connection, now: float, *, limit: int) -> Any:
        rows = due(connection, now, limit=limit)
        time.sleep(0.2)  # decisions are stored meanwhile
        return rows

    monkeypatch.setattr(pending_store, "due", due_before)
    with running_service() as own, running_application(tmp_path, **QUICK) as client:
        register(client, own, "yes", timeout_seconds=30.0)
        made = subscribe(client, "yes()")
        for n in range(10):
            publish(client, n=n)
            time.sleep(0.03)
        until(lambda: _has(client, made, 10))
        assert own.asked() == {"/yes": 10}
        assert client.get("/v1/operators/yes").json()["learned"]["calls"] == 10


def test_answer_that_nobody_asked_for_is_not_the_answer_to_the_next_call(
    tmp_path: Path, service: OperatorService
) -> None:
    """On a connection that is used again it would be taken for it, and so would each answer after it."""
    with running_application(tmp_path, **QUICK) as client:
        register(client, service, "twice")
        made = subscribe(client, "twice()")
        for n in range(4):
            publish(client, n=n)
            until(partial(_has, client, made, n + 1))


def test_operator_whose_every_answer_came_early_is_told_so(
    tmp_path: Path, service: OperatorService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its author sees what it does, and not that it "cannot be reached"."""

    def early(*given: Any) -> Never:
        raise EarlyAnswer("the answer was sent before the request")

    monkeypatch.setattr(Connections, "request", early)
    with running_application(tmp_path, **QUICK) as client:
        register(client, service, "yes", retries=0)
        subscribe(client, "yes()")
        sequence = publish(client, price=1)["sequence"]
        (told,) = until(lambda: [each for each in trace(client, sequence)["undecided"] if each["state"] == "given_up"])
        assert "yes(): answers calls twice: the answer was sent before the request" in told["reason"]


@pytest.mark.parametrize(
    ("name", "call", "cache_seconds"),
    [
        pytest.param("bom", "bom()", 0, id="behind a byte order mark, which some libraries write"),
        pytest.param("heals", "heals(?n)", 0, id="after an invalid one: the operator may be repaired meanwhile"),
        pytest.param("mends", "mends(?n)", 3_600, id="after an invalid one, which is not kept in the cache"),
    ],
)
def test_answer_decides_the_candidate(
    tmp_path: Path, service: OperatorService, name: str, call: str, cache_seconds: int
) -> None:
    with running_application(tmp_path, **QUICK) as client:
        register(client, service, name, cache_seconds=cache_seconds)
        made = subscribe(client, call)
        publish(client, n=1)
        until(partial(_has, client, made, 1))


def test_operator_that_takes_other_arguments_now_is_not_called_as_before(
    tmp_path: Path, service: OperatorService
) -> None:
    """The subscription is undecided for that reason, until the operator takes its arguments again."""
    with running_application(tmp_path, **QUICK | {"operator_delays_seconds": (0.05,) * 1_000}) as client:
        register(client, service, "yes", arguments=1)
        made = subscribe(client, "yes(@n)")
        register(client, service, "yes", arguments=2)
        before = service.asked().get("/yes", 0)
        (told,) = client.post("/v1/match", json={"event": {"n": 1}}).json()["undecided"]
        assert told["kind"] == "failed"
        assert "takes other arguments now; the call has 1" in told["reason"]
        sequence = publish(client, n=1)["sequence"]
        until(lambda: "takes other arguments now; the call has 1" in trace(client, sequence)["undecided"][0]["reason"])
        assert service.asked().get("/yes", 0) == before
        register(client, service, "yes", arguments=[0, 1])
        until(partial(_has, client, made, 1))


def test_constants_of_a_call_are_sent_as_in_events(tmp_path: Path, service: OperatorService) -> None:
    """A date-time is a text, a quantity an object of number and unit."""
    with running_application(tmp_path, **QUICK) as client:
        register(client, service, "echoes")
        subscribe(client, 'echoes("a", 1, 2.5, true, 5 km, 2026-01-31, 2026-01-31T08:00:00Z, @n, ?told)')
        (match,) = client.post("/v1/match", json={"event": {"n": [1, "b"]}}).json()["matches"]
        dates = ["2026-01-31", "2026-01-31T08:00:00Z"]
        assert json.loads(match["bindings"][0]["told"]) == [
            *("a", 1, 2.5, True, {"value": 5, "unit": "km"}, *dates),
            [1, "b"],
        ]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (httpcore.ConnectError("refused"), "cannot be reached: ConnectError"),
        (httpcore.RemoteProtocolError("no line"), "broke off, or did not answer in HTTP: RemoteProtocolError"),
        (httpcore.ReadError("reset"), "broke off, or did not answer in HTTP: ReadError"),
    ],
)
def test_operator_that_was_reached_is_not_said_to_be_out_of_reach(
    tmp_path: Path, service: OperatorService, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    """Its author looks at its answer, and not at the network."""

    def broken(*given: Any) -> Never:
        raise error

    monkeypatch.setattr(Connections, "request", broken)
    with running_application(tmp_path, **QUICK) as client:
        register(client, service, "yes", retries=0)
        subscribe(client, "yes()")
        (told,) = client.post("/v1/match", json={"event": {"n": 1}}).json()["undecided"]
        assert (told["kind"], told["reason"]) == ("failed", f"yes(): {words}")


def test_operator_registered_is_listed_changed_and_deleted(tmp_path: Path, service: OperatorService) -> None:
    """PUT makes or changes it, GET tells what was declared, DELETE waits until nobody calls it."""
    with running_application(tmp_path, **QUICK) as client:
        assert register(client, service, "yes", headers={"Authorization": "Bearer x"}).status_code == 201
        changed = register(client, service, "yes", cost=0.5, selectivity=0.1, arguments=[0, 1])
        assert changed.status_code == 200
        shown = client.get("/v1/operators/yes").json()
        assert shown["kind"] == "remote"
        assert shown["declared"] == {"cost": 0.5, "selectivity": 0.1}
        assert "Bearer" not in client.get("/v1/operators").text
        created = subscribe(client, "yes()")
        refused = client.delete("/v1/operators/yes")
        assert (refused.status_code, problem_code(refused)) == (409, "operator-in-use")
        assert client.delete(f"/v1/subscriptions/{created['id']}", headers=ticket(created)).status_code == 200
        assert client.delete("/v1/operators/yes").status_code == 200
        gone = client.get("/v1/operators/yes")
        assert (gone.status_code, problem_code(gone)) == (404, "unknown-operator")


def test_operator_of_our_own_is_not_registered_or_deleted(tmp_path: Path, service: OperatorService) -> None:
    """Names of built-in operators are taken."""
    with running_application(tmp_path, **QUICK) as client:
        for answer in (register(client, service, "inRegion"), client.delete("/v1/operators/inRegion")):
            assert (answer.status_code, problem_code(answer)) == (409, "operator-fixed")


def test_operator_with_the_name_of_a_keyword_is_refused(tmp_path: Path, service: OperatorService) -> None:
    """No subscription could call it."""
    with running_application(tmp_path, **QUICK) as client:
        for name in ("in", "OR", "true"):
            refused = register(client, service, name)
            assert (refused.status_code, problem_code(refused)) == (422, "invalid-declaration")
            assert f"'{name}' is a keyword" in refused.json()["detail"]
        assert register(client, service, "every").status_code == 201
        subscribe(client, "every()")


@pytest.mark.parametrize(
    ("body", "code", "why"),
    [
        ({}, "invalid-declaration", "missing required field `url`"),
        ({"url": "http://127.0.0.1/x"}, "sink-refused", "the host of the url is not a public address"),
        ({"url": "ftp://example.org/x"}, "sink-refused", "the url must be an absolute http:// or https:// URL"),
        ({"url": "http://me:x@example.org/"}, "sink-refused", "give them as one of the headers instead"),
        ({"timeout_seconds": 1e9}, "invalid-declaration", "timeout_seconds are above 0, at most 60"),
        ({"concurrency": 0}, "invalid-declaration", "concurrency is from 1 to"),
        ({"arguments": [2, 1]}, "invalid-declaration", "arguments are from 0 to"),
        ({"cost": -1}, "invalid-declaration", "cost"),
        ({"headers": {"Host": "x"}}, "invalid-declaration", "the names of headers are"),
        ({"headers": {"A": "ü"}}, "invalid-declaration", "4,096 visible ASCII characters"),
        ({"headers": {"A": "Bearer x "}}, "invalid-declaration", "without spaces at its ends"),
        ({"headers": dict.fromkeys(map(str, range(17)), "x")}, "invalid-declaration", "at most 16 headers"),
        ({"attributes": [*map(str, range(1_001))]}, "invalid-declaration", "at most 1,000 attributes"),
        ({"headers": {"A": "(hidden)"}}, "invalid-declaration", "give the value of each header"),
        ({"surprise": 1}, "invalid-declaration", "an operator has no member 'surprise'; known are url, version"),
    ],
)
def test_operator_badly_described_is_refused(tmp_path: Path, body: dict[str, Any], code: str, why: str) -> None:
    """What makes no sense, or leads into our network, is refused with its reason, and nothing is registered."""
    whole = {"url": "https://example.org/"} | body if body else {}
    with running_application(tmp_path, plugins=False) as client:
        answer = client.put("/v1/operators/odd", json=whole)
        assert (answer.status_code, problem_code(answer)) == (422, code)
        assert why in answer.json()["detail"]
        assert client.get("/v1/operators/odd").status_code == 404


def test_subscription_with_operator_is_checked_against_its_signature(tmp_path: Path, service: OperatorService) -> None:
    """An unknown operator and a wrong number of arguments are refused when subscribing, not found out later."""
    with running_application(tmp_path, **QUICK) as client:
        register(client, service, "yes", arguments=1)
        for expression in ("yes()", 'yes("a", "b")', "nobody()"):
            answer = client.post("/v1/subscriptions", json={"expression": expression})
            assert (answer.status_code, problem_code(answer)) == (422, "invalid-subscription")
        subscribe(client, 'yes("a")')


def test_operator_that_holds_gives_a_late_match_with_bindings(store: dict[str, Any], service: OperatorService) -> None:
    """The cheap match is there with the answer; the others come when the operators have spoken, behind it."""
    with running_application(**store | QUICK) as client:
        register(client, service, "bindings", attributes=["count"])
        register(client, service, "no")
        cheap = subscribe(client, "price < 5")
        crowd = subscribe(client, "price < 5 and bindings(?n) and ?n > 2")
        never = subscribe(client, "price < 5 and no()")
        outcome = publish(client, price=1, count=[2, 3, 4])
        assert (outcome["matched"], outcome["undecided"]) == (1, 2)
        assert waiting(client, cheap) == [{"price": 1, "count": [2, 3, 4]}]
        until(lambda: not trace(client, outcome["sequence"])["undecided"])
        page = client.get(f"/v1/subscriptions/{crowd['id']}/events").json()["events"]
        assert [(each["bindings"], each["late"]) for each in page] == [([{"n": 3}, {"n": 4}], True)]
        assert int(page[0]["cursor"]) > outcome["sequence"]
        assert waiting(client, never) == []
        told = trace(client, outcome["sequence"])
        assert told["matched"] == 2
        assert {each["subscription"]: each["late"] for each in told["deliveries"]} == {
            cheap["id"]: False,
            crowd["id"]: True,
        }


def test_late_match_is_not_skipped_by_a_cursor_behind_later_events(
    store: dict[str, Any], service: OperatorService
) -> None:
    """Who acknowledged later events still gets the earlier one that an operator held up."""
    with running_application(**store | QUICK | {"operator_delays_seconds": (0.2,) * 100}) as client:
        register(client, service, "yes")
        created = subscribe(client, "price < 5 or kind = 1 and yes()")
        client.put("/v1/operators/yes", json={"url": "http://127.0.0.1:9/", "timeout_seconds": 0.2})
        held_up = publish(client, kind=1)
        later = publish(client, price=1)
        assert waiting(client, created) == [{"price": 1}]
        acked = client.post(
            f"/v1/subscriptions/{created['id']}/ack", json={"cursor": str(later["sequence"])}, headers=ticket(created)
        )
        assert acked.status_code == 200
        register(client, service, "yes")
        until(lambda: waiting(client, created) == [{"kind": 1}])
        assert trace(client, held_up["sequence"])["deliveries"][0]["state"] == "pending"


@pytest.mark.parametrize("way", ["hang", "rubbish", "text", "big", "lies", "kinds", "error", "redirect"])
def test_operator_that_fails_delays_nobody_else_and_is_told_after_the_last_try(
    way: str, tmp_path: Path, service: OperatorService
) -> None:
    """Whatever it does: others are delivered at once, and in the end subscriber and trace say that it decided
    nothing."""
    with running_application(tmp_path, **QUICK) as client:
        register(client, service, way, timeout_seconds=0.2 if way == "hang" else 60.0, retries=0)
        register(client, service, "yes")
        expression = f"{way}(?n) and ?n > 1" if way in ("lies", "kinds") else f"{way}()"
        hangs, quick, cheap = subscribe(client, expression), subscribe(client, "yes()"), subscribe(client, "")
        sequence = publish(client, price=1)["sequence"]
        assert waiting(client, cheap) == [{"price": 1}]
        until(lambda: waiting(client, quick) == [{"price": 1}])
        (told,) = until(lambda: [each for each in trace(client, sequence)["undecided"] if each["state"] == "given_up"])
        assert (told["subscription"], told["tries"]) == (hangs["id"], 3)
        assert way in told["reason"]
        assert told["kind"] == ("timed_out" if way == "hang" else "failed")
        assert way != "text" or "$.holds" in told["reason"]  # where the answer is wrong
        shown = show(client, hangs).json()
        assert (shown["undecided"], shown["waiting_for_operators"]) == (1, 0)
        assert way in shown["last_undecided_reason"]
        assert shown["last_undecided_kind"] == told["kind"]
        assert client.get("/readyz").status_code == 200


def test_previews_do_not_wait_for_all_published_events(
    tmp_path: Path, service: OperatorService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many events wait, as after a failure of an operator. Whoever waits for an answer goes first."""
    begin, number, seconds = LateMatcher.begin, 40, 0.1

    def slow(*args: Any, learns: bool = True, **more: Any) -> Case:
        time.sleep(seconds if learns else 0.0)  # only previews do not learn
        return begin(*args, learns=learns, **more)

    monkeypatch.setattr(LateMatcher, "begin", slow)
    with running_application(tmp_path, **QUICK) as client:
        register(client, service, "yes")
        created = subscribe(client, "yes()")
        for each in range(number):
            publish(client, number=each)
        started = time.monotonic()
        (matched,) = client.post("/v1/match", json={"event": {"price": 1}}).json()["matches"]
        assert matched["subscription"] == created["id"]
        assert client.get("/v1/operators/yes").status_code == client.get("/metrics").status_code == 200
        assert time.monotonic() - started < number * seconds / 2
        until(lambda: len(waiting(client, created)) == number)


def test_short_event_does_not_wait_for_all_long_ones(
    tmp_path: Path, service: OperatorService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long texts and pictures keep built-in operators busy. An event that calls another operator goes between them."""
    begin, number = LateMatcher.begin, 40

    def slow(self: LateMatcher, event: CanonicalEvent, *args: Any, **more: Any) -> Case:
        time.sleep(0.1 if "text" in event.attributes else 0.0)
        return begin(self, event, *args, **more)

    monkeypatch.setattr(LateMatcher, "begin", slow)
    with running_application(tmp_path, **QUICK) as client:
        register(client, service, "yes")
        long, short = subscribe(client, "text exists and yes()"), subscribe(client, "n exists and yes()")
        lines = "".join(json.dumps({"text": f"{each}" * 5_000}) + "\n" for each in range(number))
        client.post("/v1/events", content=lines, headers={"Content-Type": "application/x-ndjson"}).raise_for_status()
        publish(client, n=1)
        until(partial(_has, client, short, 1))
        assert len(waiting(client, long)) < number / 2
        until(partial(_has, client, long, number))


def test_waiting_events_are_not_read_again_for_each_that_ends(
    tmp_path: Path, service: OperatorService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If more events wait than can be decided at once, a read finds also the candidates that are being decided."""
    begin, due, number = LateMatcher.begin, pending_store.due, 60
    reads = []

    def slow(*args: Any, **more: Any) -> Case:
        time.sleep(0.02)
        return begin(*args, **more)

    def counted(*args: Any, **more: Any) -> Any:
        reads.append(time.monotonic())
        return due(*args, **more)

    monkeypatch.setattr(LateMatcher, "begin", slow)
    monkeypatch.setattr("kindcast.server.late_matching.EVENTS_AT_ONCE", 10)
    with running_application(tmp_path, **QUICK) as client:
        register(client, service, "yes")
        created = subscribe(client, "yes()")
        lines = "\n".join(f'{{"number": {each}}}' for each in range(number))
        monkeypatch.setattr(pending_store, "due", counted)
        client.post("/v1/events", content=lines, headers={"Content-Type": "application/x-ndjson"}).raise_for_status()
        until(lambda: len(waiting(client, created)) == number)
    assert len(reads) < number / 2


def test_new_event_does_not_wait_for_a_backlog_of_an_operator_that_fails(
    tmp_path: Path, service: OperatorService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many events wait for one operator. The subscription of another operator gets its event before most of these have
    been tried."""
    begin, number, begun = LateMatcher.begin, 100, []

    def slow(self: LateMatcher, *args: Any, **more: Any) -> Any:
        time.sleep(0.01)
        begun.append(args)
        return begin(self, *args, **more)

    monkeypatch.setattr(LateMatcher, "begin", slow)
    monkeypatch.setattr("kindcast.server.late_matching.EVENTS_AT_ONCE", 4)
    monkeypatch.setattr("kindcast.server.late_matching.FULL_SECONDS", 0.02)
    monkeypatch.setattr("kindcast.server.late_matching.ROWS_PER_READ", 4)
    with running_application(tmp_path, **QUICK) as client:
        register(client, service, "error")
        register(client, service, "yes")
        subscribe(client, "error()")
        fresh = subscribe(client, "yes() and fresh exists")
        lines = "\n".join(f'{{"number": {each}}}' for each in range(number))
        client.post("/v1/events", content=lines, headers={"Content-Type": "application/x-ndjson"}).raise_for_status()
        publish(client, fresh=1)
        until(lambda: waiting(client, fresh) == [{"fresh": 1}])
        assert len(begun) < number / 2


def test_operator_repaired_decides_what_was_given_up(store: dict[str, Any], service: OperatorService) -> None:
    """Given up is not lost: as long as the event is kept it can be tried again, and is delivered once."""
    with running_application(**store | QUICK | {"operator_delays_seconds": (0.01,)}) as client:
        register(client, service, "yes")
        client.put("/v1/operators/yes", json={"url": f"{service.url}/error"})
        created = subscribe(client, "yes()")
        sequence = publish(client, price=1)["sequence"]
        until(lambda: trace(client, sequence)["undecided"][0]["state"] == "given_up")
        register(client, service, "yes")
        assert client.post("/v1/operators/retry").json() == {"again": 1}
        until(lambda: waiting(client, created) == [{"price": 1}])
        assert trace(client, sequence)["undecided"] == []
        assert client.post("/v1/operators/retry").json() == {"again": 0}


def test_operator_of_a_deleted_subscription_decides_nothing(store: dict[str, Any], service: OperatorService) -> None:
    """What is parked goes with its subscription, and the totals add up."""
    with running_application(**store | QUICK | {"operator_delays_seconds": (600.0,)}) as client:
        register(client, service, "error")
        created = subscribe(client, "error()")
        sequence = publish(client, price=1)["sequence"]
        until(lambda: trace(client, sequence)["undecided"][0]["tries"] == 1)
        client.delete(f"/v1/subscriptions/{created['id']}", headers=ticket(created))
        assert trace(client, sequence)["undecided"] == []
        assert 'kindcast_parked_decided_total{result="withdrawn"} 1.0' in client.get("/metrics").text


def test_subscription_made_again_with_its_id_is_decided_by_its_new_expression(
    store: dict[str, Any], service: OperatorService
) -> None:
    """What decides about operators remembers subscriptions. One that was deleted is not the one that has its id now:
    here by the same `Idempotency-Key`, as by an import."""
    key = {"Idempotency-Key": "0198f2b0-7c1d-7000-8000-0123456789ab"}
    with running_application(**store | QUICK) as client:
        register(client, service, "yes")
        for number, expression in enumerate(("yes() and a = 1", "yes() and a = 2", "yes() and a = 1"), 1):
            answer = client.post("/v1/subscriptions", json={"expression": expression}, headers=key)
            made, wanted = answer.json(), {"number": number, "a": int(expression[-1])}
            (matched,) = client.post("/v1/match", json={"event": wanted}).json()["matches"]
            assert matched["subscription"] == made["id"]
            for a in (1, 2):
                publish(client, number=number, a=a)
            until(partial(_has, client, made, 1))
            assert waiting(client, made) == [wanted]
            client.delete(f"/v1/subscriptions/{made['id']}", headers=ticket(made)).raise_for_status()


def test_subscriptions_that_were_deleted_are_forgotten_by_what_decides(
    tmp_path: Path, service: OperatorService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short subscriptions with operators come and go for months, while neither vocabulary nor operators change."""
    sizes: list[int] = []
    begin = LateMatcher.begin

    def counted(self: LateMatcher, *given: Any, **named: Any) -> Case:
        sizes.append(len(self))
        return begin(self, *given, **named)

    monkeypatch.setattr(LateMatcher, "begin", counted)
    monkeypatch.setattr(late_matching, "FEW", 3)
    with running_application(tmp_path, **QUICK) as client:
        register(client, service, "yes")
        stays = subscribe(client, "yes() and a = 1")
        for number in range(20):
            made = subscribe(client, f"yes() and a = 1 and n = {number}")
            publish(client, a=1, n=number)
            until(partial(_has, client, made, 1))
            client.delete(f"/v1/subscriptions/{made['id']}", headers=ticket(made)).raise_for_status()
        until(partial(_has, client, stays, 20))
        assert waiting(client, stays) == [{"a": 1, "n": number} for number in range(20)]
    assert max(sizes) <= 6


def test_operator_statistics_and_parked_candidates_survive_a_restart(
    store: dict[str, Any], service: OperatorService
) -> None:
    """What was learned is used at once, and what was parked is decided."""
    with running_application(**store | QUICK) as client:
        register(client, service, "yes", cost=5.0, selectivity=0.01)
        created = subscribe(client, "yes()")
        for number in range(5):
            publish(client, price=number)
        until(lambda: len(waiting(client, created)) == 5)
        client.put("/v1/operators/error", json={"url": f"{service.url}/error"})
        held_up = subscribe(client, "error()")
        sequence = publish(client, price=9)["sequence"]
        client.put("/v1/operators/error", json={"url": f"{service.url}/error"})
    with running_application(**store | QUICK) as client:
        learned = client.get("/v1/operators/yes").json()["learned"]
        assert learned["calls"] >= 5
        assert learned["selectivity"] > 0.3
        assert learned["cost"] < 4.0
        client.put("/v1/operators/error", json={"url": f"{service.url}/yes"})
        client.post("/v1/operators/retry")
        until(lambda: waiting(client, held_up) == [{"price": 9}])
        until(lambda: not trace(client, sequence)["undecided"])  # by `yes` for both, one after the other


def test_parked_candidate_is_decided_under_the_vocabulary_of_its_event(
    store: dict[str, Any], service: OperatorService
) -> None:
    """Words that changed meanwhile, even over a restart, do not change what an accepted event meant: neither its root
    word nor the text that was published."""
    synonyms = {"PC": "computer"}
    slow = QUICK | {"operator_delays_seconds": (0.3,) * 100}
    with running_application(**store | slow) as client:
        assert client.put("/v1/synonyms/words", json=synonyms).status_code in (200, 201)
        client.put("/v1/operators/yes", json={"url": f"{service.url}/error"})
        created = subscribe(client, 'target = "computer" and target startswith "P" and target contains "put" and yes()')
        assert publish(client, target="PC")["undecided"] == 1
        assert client.delete("/v1/synonyms/words").status_code == 200
        assert publish(client, target="PC").get("undecided", 0) == 0
    with running_application(**store | slow) as client:
        register(client, service, "yes")
        until(lambda: waiting(client, created) == [{"target": "PC"}])


def test_parked_candidate_from_before_the_rules_changed_keeps_the_parts_of_its_vocabulary(
    tmp_path: Path, service: OperatorService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its version has another digest today; the documents and declarations that it names are the same ones."""
    slow: dict[str, Any] = {**QUICK, "data": tmp_path, "operator_delays_seconds": (0.3,) * 100}
    with monkeypatch.context() as older, running_application(**slow) as client:
        older.setattr("kindcast.semantic.vocabulary.vocabulary.MEANING", 1)
        assert client.put("/v1/synonyms/words", json={"PC": "computer"}).status_code in (200, 201)
        client.put("/v1/operators/yes", json={"url": f"{service.url}/error"})
        created = subscribe(client, 'target = "computer" and yes()')
        assert publish(client, target="PC")["undecided"] == 1
        assert client.delete("/v1/synonyms/words").status_code == 200
    with running_application(**slow) as client:
        register(client, service, "yes")
        until(lambda: waiting(client, created) == [{"target": "PC"}])


def test_operator_that_is_gone_after_a_restart_loses_no_event(store: dict[str, Any], service: OperatorService) -> None:
    """A plug-in that is not installed any more: it is listed as missing, and events wait for it."""
    with running_application(**store | QUICK) as client:
        register(client, service, "yes")
        created = subscribe(client, "yes()")
    database = store.get("database", f"sqlite:///{store['data'] / 'kindcast.db'}")
    engine = create_engine(driver_url(database))
    with engine.begin() as connection:
        connection.execute(delete(operators))
    engine.dispose()
    with running_application(**store | QUICK | {"operator_delays_seconds": (0.2,) * 100}) as client:
        assert client.get("/v1/operators/yes").json()["kind"] == "missing"
        assert client.post("/v1/subscriptions", json={"expression": "yes()"}).status_code == 422
        assert publish(client, price=1)["undecided"] == 1
        register(client, service, "yes")
        until(lambda: waiting(client, created) == [{"price": 1}])


def test_match_and_explain_ask_operators_and_tell_the_plan(tmp_path: Path, service: OperatorService) -> None:
    """Without publishing: who would match, which calls were made and why, what was saved; and a subscription's
    chain."""
    with running_application(tmp_path, **QUICK) as client:
        register(client, service, "yes")
        register(client, service, "no")
        both = subscribe(client, "no() and yes()")
        one = subscribe(client, "no() or price < 5 and yes()")
        found = client.post("/v1/match", json={"event": {"price": 1}}).json()
        assert [each["subscription"] for each in found["matches"]] == [one["id"]]
        assert {each["call"] for each in found["operators"]["calls"]} == {"no()", "yes()"}
        assert found["operators"]["asked"] == 2
        assert found["operators"]["saved"] == 2
        told = client.post("/v1/explain", json={"event": {"price": 1}, "subscription": both["id"]}).json()
        assert told["matches"] is False
        assert [each["verdict"] for each in told["clauses"][0]["predicates"]] == [False, True]
        plan = client.get(f"/v1/subscriptions/{both['id']}/plan").json()
        assert {each["call"] for each in plan["clauses"][0]["calls"]} == {"no()", "yes()"}
        assert plan["expected_seconds"] > 0


def test_explain_and_trace_say_that_an_operator_has_not_decided(
    store: dict[str, Any], service: OperatorService
) -> None:
    """Neither `matches: true` nor `false`; and what the explanation finds out is not taken for what is recorded."""
    delays = (600.0,)
    with running_application(**store | QUICK | {"operator_delays_seconds": delays}) as client:
        client.put("/v1/operators/yes", json={"url": f"{service.url}/error"})
        created = subscribe(client, "price < 5 and yes()")
        sequence = publish(client, price=1)["sequence"]
        until(lambda: trace(client, sequence)["undecided"][0]["tries"] == 1)
        told = client.post("/v1/explain", json={"event": {"price": 1}, "subscription": created["id"]}).json()
        assert (told["matches"], told["clauses"][0]["matches"]) == (None, None)
        assert [each["verdict"] for each in told["clauses"][0]["predicates"]] == [True, None]
        assert told["summary"].startswith("Undecided because of yes alone")

        def why() -> dict[str, Any]:
            found = client.get(f"/v1/events/{sequence}/trace?subscription={created['id']}").json()
            explanation: dict[str, Any] = found["explanation"]
            return explanation

        unanswered = why()
        assert (unanswered["matches"], unanswered["recorded"]) == (None, False)
        assert unanswered["circumstances"][0].startswith("not decided yet: yes(): answered with status 500")
        register(client, service, "yes")
        answered = why()
        assert (answered["matches"], answered["recorded"]) == (True, False), answered
        assert len(answered["circumstances"]) == 1
        assert answered["circumstances"][0].startswith("not decided yet: ")


def test_explanation_uses_the_answers_that_came_in_time(tmp_path: Path, service: OperatorService) -> None:
    """One operator says no, and another never answers: the event does not match."""
    with running_application(tmp_path, **QUICK, max_match_seconds=5.0) as client:
        register(client, service, "hang", timeout_seconds=60.0)
        register(client, service, "no")
        created = subscribe(client, "hang() and no()")
        sequence = publish(client, price=0)["sequence"]
        told = client.post("/v1/explain", json={"event": {"price": 1}, "subscription": "hang() and no()"}).json()
        traced = client.get(f"/v1/events/{sequence}/trace?subscription={created['id']}").json()["explanation"]
        for explanation in (told, traced):
            assert explanation["matches"] is False
            assert [each["verdict"] for each in explanation["clauses"][0]["predicates"]] == [None, False]


def test_explanations_that_wait_for_an_operator_delay_nobody(tmp_path: Path, service: OperatorService) -> None:
    """No thread waits with them. In the end they say which operator has not answered."""
    asked = 40
    with (
        running_application(tmp_path, **QUICK, max_match_seconds=10.0) as client,
        ThreadPoolExecutor(asked) as pool,
    ):
        register(client, service, "hang", timeout_seconds=60.0, concurrency=asked)
        created = subscribe(client, "hang()")
        sequence = publish(client, price=0)["sequence"]

        def ask(number: int) -> dict[str, Any]:
            body = {"event": {"price": number}, "subscription": "hang()"}
            found: dict[str, Any] = client.post("/v1/explain", json=body).json()
            return found

        answers = [pool.submit(ask, number) for number in range(1, asked)]
        traced = pool.submit(lambda: client.get(f"/v1/events/{sequence}/trace?subscription={created['id']}").json())
        until(lambda: client.get("/v1/operators/hang").json()["running"] == asked)
        subscribe(client, "price < 5")
        assert not any(each.done() for each in answers)
        for told in (*(each.result() for each in answers), traced.result()["explanation"]):
            assert told["matches"] is None
            assert "has not answered yet" in told["summary"]
        matched = client.post("/v1/match", json={"event": {"price": 9}}).json()
        assert [(each["subscription"], each["kind"]) for each in matched["undecided"]] == [(created["id"], "waiting")]
        until(lambda: client.get("/v1/operators/hang").json()["running"] == 1)


def test_ontology_is_not_deleted_while_a_parked_candidate_needs_it(
    store: dict[str, Any], service: OperatorService
) -> None:
    """What waits is to be decided under the version its event names, so that version stays until it is."""
    document = "@prefix : <http://e/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . :A rdfs:subClassOf :B ."
    with running_application(**store | QUICK | {"operator_delays_seconds": (0.2,) * 100}) as client:
        client.put("/v1/ontologies/tiny", content=document, headers={"Content-Type": "text/turtle"})
        client.put("/v1/operators/yes", json={"url": f"{service.url}/error"})
        created = subscribe(client, "price < 5 and yes()")
        publish(client, price=1)
        refused = client.delete("/v1/ontologies/tiny")
        assert (refused.status_code, problem_code(refused)) == (409, "ontology-in-use")
        register(client, service, "yes")
        until(lambda: waiting(client, created) == [{"price": 1}])
        assert client.delete("/v1/ontologies/tiny").status_code == 200


def test_retention_takes_events_with_their_late_matches_and_what_is_parked(
    store: dict[str, Any], service: OperatorService
) -> None:
    """Nothing stays for ever because an operator is out of order, a gap is told, and the totals add up."""
    settings = QUICK | {"operator_delays_seconds": (600.0,), "retention_seconds": 1.0, "sweep_seconds": 0.05}
    with running_application(**store | settings) as client:
        register(client, service, "yes")
        register(client, service, "error")
        created, stuck = subscribe(client, "yes()"), subscribe(client, "error()")
        sequence = publish(client, price=1)["sequence"]
        until(lambda: waiting(client, created) == [{"price": 1}])
        assert show(client, stuck).json()["waiting_for_operators"] == 1
        until(lambda: client.get(f"/v1/events/{sequence}/trace").status_code == 404)
        until(lambda: show(client, stuck).json()["waiting_for_operators"] == 0)
        gone = client.get(f"/v1/subscriptions/{created['id']}/events?after=0")
        assert (gone.status_code, problem_code(gone)) == (410, "cursor-gone")
        told = client.get("/metrics").text
        assert "kindcast_parked_waiting 0.0" in told
        assert 'kindcast_parked_decided_total{result="withdrawn"} 1.0' in told
        assert "kindcast_matches_discarded_total 1.0" in told
        assert "kindcast_matches_pending 0.0" in told


def test_remote_operator_answer_is_kept_for_the_same_question(tmp_path: Path, service: OperatorService) -> None:
    """With `cache_seconds` the service is asked once for events that look alike to it."""
    with running_application(tmp_path, **QUICK) as client:
        register(client, service, "slow", cache_seconds=60, attributes=["kind"])
        created = subscribe(client, "slow()")
        before = service.asked().get("/slow", 0)
        for number in range(5):
            publish(client, kind="a", n=number)
            until(partial(_has, client, created, number + 1))
        assert service.asked()["/slow"] == before + 1


@pytest.mark.parametrize(("planner", "order"), [("greedy", ["cheap()", "dear()"]), ("naive", ["dear()", "cheap()"])])
def test_match_and_plan_tell_the_calls_that_publishing_makes(
    tmp_path: Path, service: OperatorService, planner: str, order: list[str]
) -> None:
    """The order of the setting `planner`; what one answer decides, no other is asked for."""
    with running_application(tmp_path, **QUICK | {"planner": planner}) as client:
        for name, cost in (("cheap", 0.001), ("dear", 10.0)):
            url = f"{service.url}/says/{planner}-{name}"
            client.put(f"/v1/operators/{name}", json={"url": url, "cost": cost, "selectivity": 0.1})
        created = subscribe(client, "dear() and cheap()")
        plan = client.get(f"/v1/subscriptions/{created['id']}/plan").json()
        assert (plan["planner"], [each["call"] for each in plan["clauses"][0]["calls"]]) == (planner, order)
        told = client.post("/v1/match", json={"event": {"n": 1}}).json()
        assert told["operators"]["planner"] == planner
        assert [(each["call"], each["held"]) for each in told["operators"]["calls"]] == [(order[0], False)]
        sequence = publish(client, n=1)["sequence"]
        until(lambda: not trace(client, sequence)["undecided"])
        first = order[0].removesuffix("()")
        asked = {path: count for path, count in service.asked().items() if path.startswith(f"/says/{planner}-")}
        assert asked == {f"/says/{planner}-{first}": 2}


def test_match_tells_the_kind_of_a_failure(tmp_path: Path, service: OperatorService) -> None:
    """Typed, in what is undecided and in the call of the plan; words that a user wrote are not taken for one."""
    with running_application(tmp_path, **QUICK) as client:
        register(client, service, "error", arguments=1)
        register(client, service, "hang", timeout_seconds=0.2)
        made = {
            subscribe(client, 'error("is still being asked | has too many calls at present")')["id"]: "failed",
            subscribe(client, "hang()")["id"]: "timed_out",
        }
        told = client.post("/v1/match", json={"event": {"n": 1}}).json()
        assert {each["subscription"]: each["kind"] for each in told["undecided"]} == made
        assert {each["failure"]["kind"] for each in told["operators"]["calls"]} == {"failed", "timed_out"}
        sequence = publish(client, n=1)["sequence"]
        until(lambda: [each["state"] for each in trace(client, sequence)["undecided"]] == ["given_up"] * 2)
