"""Webhooks through the whole server: queue, order, retries, giving up, and going on after a restart."""

import gc
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook

from kindcast import Client, ProblemError
from kindcast.server.delivery import outbox
from kindcast.server.delivery.outbox import Courier
from kindcast.server.delivery.turns import Look
from kindcast.server.errors import StoreUnavailable
from kindcast.server.settings import Settings
from kindcast.server.store.deliveries import StoredMatch
from tests.harness.application import problem_code
from tests.harness.certificates import Authority
from tests.harness.receiver import Answer, Received, Receiver, running_receiver
from tests.harness.server_process import running_server
from tests.harness.server_thread import running_app
from tests.harness.waiting import until

QUICK = {"allow_private_sinks": True, "webhook_delays_seconds": (0.05,) * 5, "webhook_jitter": 0.0}
NEVER_AGAIN_SOON = 3_600.0
"""A delay that no test outlives: what is not tried at once is not tried."""

PATIENCE_SECONDS = 30.0


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with running_receiver() as running:
        yield running


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with running_app(tmp_path, **QUICK) as url, Client(url) as client:
        yield client


def publish(client: Client, *numbers: int) -> list[str]:
    """Publishes an event for each number; returns their cursors."""
    return [str(client.publish({"number": number})["events"][0]["sequence"]) for number in numbers]


def numbers_in(requests: list[Received], *, taken: bool = False) -> list[int]:
    """The events that arrived; only those that were answered with success, if `taken`."""
    return [each.message["event"]["data"]["number"] for each in requests if not taken or each.status == 200]


def wait_for(client: Client, id: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The subscription, once a claim about it holds."""
    shown: dict[str, Any] = {}

    def comes_true() -> bool:
        shown.clear()
        shown.update(client.subscription(id))
        return holds(shown)

    until(comes_true, PATIENCE_SECONDS, lambda: shown)
    return shown


def test_outbox_match_arrives_signed(client: Client, receiver: Receiver) -> None:
    """A match arrives as the message of a pull, signed with the secret that creating the subscription told."""
    made = client.subscribe("number > 1", sink=f"{receiver.url}/hook")
    cursors = publish(client, 1, 2)
    [request] = receiver.wait_for("/hook", 1)
    message = Webhook(made["secret"]).verify(request.body, request.headers)
    assert message == client.pull(made["id"], after=0)["events"][0]
    assert message["cursor"] == cursors[1]
    assert request.headers["webhook-id"] == f"msg_{made['id']}_{cursors[1]}"


def test_outbox_success_moves_cursor_and_counters(client: Client, receiver: Receiver) -> None:
    """What was delivered is acknowledged; the subscription counts it."""
    id = client.subscribe("number exists", sink=f"{receiver.url}/hook")["id"]
    cursors = publish(client, 1, 2, 3)
    shown = wait_for(client, id, lambda shown: shown["times_sent"] == 3)
    assert (shown["status"], shown["cursor"], shown["pending"]) == ("active", cursors[-1], 0)
    assert (shown["times_failed"], shown["last_failure"], shown["last_error"]) == (0, None, None)
    assert shown["last_success"] is not None
    assert client.pull(id)["events"] == []


def test_outbox_looks_again_soon_after_the_database_was_away(
    client: Client, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A second later, without a traceback; the pause after errors of our own is much longer."""
    left = [StoreUnavailable("the database cannot be reached")] * 2
    looked = outbox.awaiting_webhooks

    def away(*arguments: Any, **more: Any) -> Any:
        if left:
            raise left.pop()
        return looked(*arguments, **more)

    monkeypatch.setattr(outbox, "awaiting_webhooks", away)
    client.subscribe("number exists", sink=f"{receiver.url}/hook")
    monkeypatch.setattr(outbox, "FAULT_PAUSE_SECONDS", 3_600.0)
    publish(client, 1)
    receiver.wait_for("/hook", 1)
    told = [each for each in caplog.records if "the outbox cannot reach the database" in each.getMessage()]
    assert told
    assert not any(each.exc_info for each in told)


def test_outbox_failures_are_retried_with_the_same_id_in_order(client: Client, receiver: Receiver) -> None:
    """After failures the same message comes again under the same id, and only then the next one."""
    sink = receiver.script("/hook", 200, 500, 503, 404)
    id = client.subscribe("number exists", sink=sink)["id"]
    publish(client, 1, 2, 3)
    requests = receiver.wait_for("/hook", 6)
    assert numbers_in(requests) == [1, 2, 2, 2, 2, 3]
    assert len({request.headers["webhook-id"] for request in requests}) == 3
    shown = wait_for(client, id, lambda shown: shown["times_sent"] == 6)
    assert (shown["status"], shown["times_failed"], shown["consecutive_errors"]) == ("active", 3, 0)
    assert shown["last_error"] == "the sink answered 404"


def test_outbox_failing_subscription_tells_why_and_when(tmp_path: Path, receiver: Receiver) -> None:
    """Between the attempts the status is failing, with the last error and the next time; matching goes on."""
    settings = QUICK | {"webhook_delays_seconds": (NEVER_AGAIN_SOON,)}
    with running_app(tmp_path, **settings) as url, Client(url) as client:
        id = client.subscribe("number exists", sink=receiver.script("/hook", 500))["id"]
        publish(client, 1)
        shown = wait_for(client, id, lambda shown: shown["status"] == "failing")
        assert shown["status_reason"] == shown["last_error"] == "the sink answered 500"
        assert shown["consecutive_errors"] == 1
        assert shown["next_attempt_at"] > shown["last_failure"]
        publish(client, 2)
        assert client.subscription(id)["pending"] == 2
        assert len(receiver.requests("/hook")) == 1


def test_outbox_gives_up_after_the_last_delay_and_resumes(client: Client, receiver: Receiver) -> None:
    """After the last try the subscription is disabled, by failures and not by a person; its matches are kept, more are
    recorded, and resume delivers them all in order."""
    id = client.subscribe("number exists", sink=receiver.script("/hook", *[500] * 6))["id"]
    publish(client, 1)
    shown = wait_for(client, id, lambda shown: shown["status"] == "disabled_by_failures")
    assert shown["status_reason"] == "6 failures in a row: the sink answered 500"
    assert (shown["times_failed"], shown["next_attempt_at"]) == (6, None)
    [cursor] = publish(client, 2)
    assert client.subscription(id)["pending"] == 2
    assert len(receiver.requests("/hook")) == 6
    [delivery] = client.trace(cursor)["deliveries"]
    assert (delivery["by"], delivery["state"]) == ("webhook", "dead letter")
    client.resume(id)
    assert numbers_in(receiver.wait_for("/hook", 8), taken=True) == [1, 2]
    assert wait_for(client, id, lambda shown: shown["pending"] == 0)["status"] == "active"


def test_outbox_disabled_webhook_with_another_sink_or_credential_is_tried(client: Client, receiver: Receiver) -> None:
    """The failures were those of the old sink. Other changes, and a pause by its owner, leave the status as it is."""
    id = client.subscribe("number exists", sink=receiver.script("/old", 410, 410))["id"]
    publish(client, 1)
    wait_for(client, id, lambda shown: shown["status"] == "disabled_by_failures")
    assert client.change(id, metadata={"a": 1}, sink=f"{receiver.url}/old")["status"] == "disabled_by_failures"
    token = {"credentialtype": "ACCESSTOKEN", "accesstoken": "t"}
    changed = client.change(id, sinkcredential=token)
    assert (changed["status"], changed["status_reason"], changed["consecutive_errors"]) == ("active", None, 0)
    receiver.wait_for("/old", 2)
    wait_for(client, id, lambda shown: shown["status"] == "disabled_by_failures")
    assert client.change(id, sink=f"{receiver.url}/new")["status"] == "active"
    assert numbers_in(receiver.wait_for("/new", 1)) == [1]
    client.pause(id)
    assert client.change(id, sink=f"{receiver.url}/old")["status"] == "paused"


def test_dead_letters_are_told_counted_and_sent_after_all(client: Client, receiver: Receiver) -> None:
    """By subscription and page, with the reason; neither pending nor lost meanwhile; only with the ticket."""
    one = client.subscribe("number exists", sink=receiver.script("/one", 410))["id"]
    two = client.subscribe("number >= 2", sink=receiver.script("/two", 410))["id"]
    client.subscribe("number exists", sink=f"{receiver.url}/fine")
    publish(client, 1, 2, 3)
    for id in (one, two):
        wait_for(client, id, lambda shown: shown["status"] == "disabled_by_failures")
    receiver.wait_for("/fine", 3)
    letters = client.dead_letters()["dead_letters"]
    told = [(each["subscription"], each["event"]["data"]["number"]) for each in letters]
    assert told == [(one, 1), (one, 2), (one, 3), (two, 2), (two, 3)]
    assert all("410" in each["reason"] and each["last_failure"] for each in letters)
    assert not any({"late", "sequence", "retracted"} & each.keys() for each in letters)
    with httpx.Client(base_url=client.server) as http:
        pages, cursor = [], None
        while True:
            asked = {"limit": "2"} | ({} if cursor is None else {"cursor": cursor})
            page = http.get("/v1/dead-letters", params=asked).json()
            if not page["dead_letters"]:
                break
            pages.append([each["event"]["data"]["number"] for each in page["dead_letters"]])
            cursor = page["cursor"]
        assert pages == [[1, 2], [3, 2], [3]]
        assert http.get("/v1/dead-letters", params={"cursor": "?"}).status_code == 400
        unknown = http.get("/v1/dead-letters", params={"subscription": "sub_none"})
        assert (unknown.status_code, problem_code(unknown)) == (404, "unknown-subscription")
        totals = wait_for_metric(http, "kindcast_matches_pending", 0.0)
        assert totals["kindcast_dead_letters"] == 5
        assert http.post("/v1/dead-letters/redrive", json={"subscription": one}).status_code == 401
    assert [each["subscription"] for each in client.dead_letters(subscription=two)["dead_letters"]] == [two] * 2
    assert client.redrive(one) == {"subscription": one, "status": "active", "redriven": 3}
    assert numbers_in(receiver.wait_for("/one", 4), taken=True) == [1, 2, 3]
    assert client.redrive(one)["redriven"] == 0
    assert {each["subscription"] for each in client.dead_letters()["dead_letters"]} == {two}
    client.unsubscribe(two)
    assert client.dead_letters() == {"dead_letters": [], "cursor": None}
    with httpx.Client(base_url=client.server) as http:
        totals = wait_for_metric(http, "kindcast_matches_pending", 0.0)
    assert (totals["kindcast_dead_letters"], totals["kindcast_matches_discarded_total"]) == (0, 2)
    assert totals["kindcast_matches_total"] == totals["kindcast_matches_delivered_total"] + 2


def wait_for_metric(http: httpx.Client, name: str, value: float) -> dict[str, float]:
    """All metrics, once one has this value."""

    def told() -> dict[str, float]:
        lines = [line.rsplit(" ", 1) for line in http.get("/metrics").text.splitlines() if line[0] != "#"]
        return {key: float(number) for key, number in lines}

    until(lambda: told()[name] == value, PATIENCE_SECONDS, told)
    return told()


def test_outbox_gone_disables_at_once(client: Client, receiver: Receiver) -> None:
    """410 ends the deliveries without another try, and says so."""
    id = client.subscribe("number exists", sink=receiver.script("/hook", 410))["id"]
    publish(client, 1, 2)
    shown = wait_for(client, id, lambda shown: shown["status"] == "disabled_by_failures")
    assert "410" in shown["status_reason"]
    assert shown["pending"] == 2
    assert len(receiver.requests("/hook")) == 1


def test_outbox_without_its_sink_nothing_fails_any_more(client: Client, receiver: Receiver) -> None:
    """The messages wait for readers, and are no dead letters."""
    id = client.subscribe("number exists", sink=receiver.script("/hook", 410))["id"]
    publish(client, 1)
    wait_for(client, id, lambda shown: shown["status"] == "disabled_by_failures")
    changed = client.change(id, sink=None)
    assert (changed["status"], changed["status_reason"], changed["consecutive_errors"]) == ("active", None, 0)
    assert client.dead_letters()["dead_letters"] == []
    assert len(client.pull(id)["events"]) == 1


@pytest.mark.parametrize("mended", ["another sink", "replay"])
def test_outbox_failure_from_before_a_change_does_not_delay_what_follows(
    tmp_path: Path, receiver: Receiver, mended: str
) -> None:
    """Whoever mended a webhook does not wait for hours because an old attempt was still under way."""
    settings: dict[str, Any] = {"allow_private_sinks": True, "webhook_delays_seconds": (1.0, NEVER_AGAIN_SOON)}
    with running_app(tmp_path, **settings) as url, Client(url) as client:
        id = client.subscribe("number exists", sink=receiver.script("/old", 500, 500))["id"]
        publish(client, 1)
        receiver.wait_for("/old", 1)
        receiver.swallow("/old")
        receiver.wait_for("/old", 2)
        if mended == "replay":
            client.replay(id)
        else:
            client.change(id, sink=f"{receiver.url}/new")
        receiver.release()
        shown = wait_for(client, id, lambda shown: shown["pending"] == 0)
        assert (shown["status"], shown["times_failed"], shown["consecutive_errors"]) == ("active", 2, 0)
        assert numbers_in(receiver.requests("/old" if mended == "replay" else "/new"), taken=True) == [1]


@pytest.mark.parametrize("answered", [410, 500])
@pytest.mark.parametrize("changed", ["sink", "credential", "no sink"])
def test_outbox_answer_to_an_earlier_destination_does_not_stop_the_new_one(
    tmp_path: Path, receiver: Receiver, changed: str, answered: int
) -> None:
    """An old sink that says "no more" after the change of the sink says nothing about the new one."""
    token = {"credentialtype": "ACCESSTOKEN", "accesstoken": "t"}
    change: dict[str, Any] = {"sink": {"sink": f"{receiver.url}/new"}, "credential": {"sinkcredential": token}}.get(
        changed, {"sink": None}
    )
    settings: dict[str, Any] = {"allow_private_sinks": True, "webhook_delays_seconds": (NEVER_AGAIN_SOON,)}
    with running_app(tmp_path, **settings) as url, Client(url) as client:
        receiver.script("/old", answered)
        id = client.subscribe("number exists", sink=receiver.swallow("/old"))["id"]
        publish(client, 1)
        receiver.wait_for("/old", 1)
        client.change(id, **change)
        receiver.release()
        shown = wait_for(client, id, lambda shown: shown["times_failed"] == 1)
        if changed != "no sink":
            shown = wait_for(client, id, lambda shown: shown["pending"] == 0)
        assert (shown["status"], shown["status_reason"], shown["consecutive_errors"]) == ("active", None, 0)


def test_outbox_change_of_the_batch_under_way_repeats_nothing(
    client: Client, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next request begins after the last delivered message, although storing that it was delivered takes long."""
    record = outbox.record_progress

    def slowly(*arguments: Any) -> set[int]:
        time.sleep(0.3)
        return record(*arguments)

    monkeypatch.setattr(outbox, "record_progress", slowly)
    id = client.subscribe("number exists", sink=receiver.swallow("/hook"))["id"]
    client.publish([{"number": number} for number in (1, 2, 3)])
    receiver.wait_for("/hook", 1)
    client.change(id, protocolsettings={"batch": 2})
    receiver.release()
    wait_for(client, id, lambda shown: shown["pending"] == 0)
    first, second = (each.message for each in receiver.requests("/hook"))
    assert [each["event"]["data"]["number"] for each in (first, *second)] == [1, 2, 3]


def test_outbox_replay_under_way_begins_at_once(client: Client, receiver: Receiver) -> None:
    """The messages that the courier had read before come once more, not twice."""
    id = client.subscribe("number exists", sink=f"{receiver.url}/hook")["id"]
    publish(client, 1, 2)
    wait_for(client, id, lambda shown: shown["pending"] == 0)
    receiver.swallow("/hook")
    client.publish([{"number": number} for number in (3, 4, 5)])
    receiver.wait_for("/hook", 3)
    client.replay(id)
    receiver.release()
    wait_for(client, id, lambda shown: shown["pending"] == 0)
    assert numbers_in(receiver.requests("/hook")) == [1, 2, 3, 1, 2, 3, 4, 5]


def test_outbox_replay_to_a_place_within_the_page_that_is_sent_begins_at_once(
    client: Client, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of the page comes once, after the messages that are wanted again."""
    id = client.subscribe("number exists", sink=f"{receiver.url}/hook")["id"]
    answer = receiver.answer

    def replay_during_the_fourth(*arguments: Any) -> Answer:
        answered = answer(*arguments)
        cursors = [each.message["cursor"] for each in receiver.requests("/hook")]
        if len(cursors) == 4:
            wait_for(client, id, lambda shown: shown["cursor"] == cursors[2])
            client.replay(id, after=cursors[1])
        return answered

    monkeypatch.setattr(receiver, "answer", replay_during_the_fourth)
    client.publish([{"number": number} for number in range(1, 7)])
    receiver.wait_for("/hook", 8)
    wait_for(client, id, lambda shown: shown["pending"] == 0)
    assert numbers_in(receiver.requests("/hook")) == [1, 2, 3, 4, 3, 4, 5, 6]


def test_outbox_retry_after_is_obeyed(client: Client, receiver: Receiver) -> None:
    """A sink that names a time is not asked before it, whatever the schedule says."""
    busy = Answer(429, (("Retry-After", "1800"),))
    id = client.subscribe("number exists", sink=receiver.script("/busy", busy))["id"]
    publish(client, 1)
    shown = wait_for(client, id, lambda shown: shown["status"] == "failing")
    failed, again = (_seconds(shown[name]) for name in ("last_failure", "next_attempt_at"))
    assert again - failed >= 1_800
    assert len(receiver.requests("/busy")) == 1


def test_outbox_busy_endpoint_rests_for_all_its_subscriptions(client: Client, receiver: Receiver) -> None:
    """After a 503 the whole endpoint gets a pause: others there wait with it, and are not counted as failing."""
    tired = client.subscribe("number = 1", sink=receiver.script("/tired", Answer(503, (("Retry-After", "600"),))))["id"]
    other = client.subscribe("number = 2", sink=f"{receiver.url}/other")["id"]
    publish(client, 1)
    wait_for(client, tired, lambda shown: shown["status"] == "failing")
    publish(client, 2)
    assert client.subscription(other)["pending"] == 1
    assert client.subscription(other)["status"] == "active"
    assert receiver.requests("/other") == []


def test_outbox_says_why_there_is_no_tls(client: Client, receiver: Receiver, tmp_path: Path) -> None:
    """An authority that is not known here, and a port for http."""
    certificate, key = Authority(tmp_path).issue(tmp_path)
    with running_app(tmp_path / "sink", tls_certificate=certificate, tls_key=key) as unknown:
        for sink, said in (
            (f"{unknown}/hook", "the certificate of the sink is not trusted: "),
            (f"{receiver.url.replace('http://', 'https://')}/hook", "the sink does not speak TLS"),
        ):
            id = client.subscribe("number exists", sink=sink)["id"]
            assert said in client.test_sink(id)["detail"]


def test_outbox_redirect_is_a_failure_unfollowed(client: Client, receiver: Receiver) -> None:
    """A redirect is not followed, and the owner is told."""
    sink = receiver.script("/old", *[Answer(302, (("Location", f"{receiver.url}/new"),))] * 6)
    id = client.subscribe("number exists", sink=sink)["id"]
    publish(client, 1)
    shown = wait_for(client, id, lambda shown: shown["status"] == "disabled_by_failures")
    assert "redirects are not followed" in shown["last_error"]
    assert receiver.requests("/new") == []


def test_outbox_black_hole_delays_nobody_else(tmp_path: Path, receiver: Receiver) -> None:
    """While sinks on another endpoint swallow every request, all others are served to the end."""
    with (
        running_receiver() as hole,
        running_app(tmp_path, **QUICK, webhook_timeout_seconds=3_600, webhook_concurrency=8) as url,
        Client(url) as client,
    ):
        for n in range(20):
            client.subscribe("number exists", sink=hole.swallow(f"/hole{n}"))
        for n in range(20):
            client.subscribe("number exists", sink=f"{receiver.url}/good{n}")
        publish(client, *range(10))
        for n in range(20):
            assert numbers_in(receiver.wait_for(f"/good{n}", 10)) == list(range(10))
        assert all(each.status is None for each in hole.requests())  # still unanswered
        assert len(hole.requests()) > 0
        hole.release()


def test_outbox_private_sink_is_refused(tmp_path: Path, receiver: Receiver) -> None:
    """A sink on this machine is refused when subscribing; one that was allowed once is not called any more."""
    with running_app(tmp_path, **QUICK) as url, Client(url) as client:
        id = client.subscribe("number exists", sink=f"{receiver.url}/hook")["id"]
    with running_app(tmp_path, **QUICK | {"allow_private_sinks": False}) as url, Client(url) as client:
        with pytest.raises(ProblemError, match="Sink refused"):
            client.subscribe("number exists", sink=f"{receiver.url}/hook")
        publish(client, 1)
        shown = wait_for(client, id, lambda shown: shown["status"] == "disabled_by_failures")
        assert shown["last_error"].startswith("not sent")
        assert receiver.requests() == []


def test_outbox_forgets_deleted_subscriptions_whose_last_attempt_failed(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It kept two entries of each for as long as the server ran."""
    couriers: list[Courier] = []
    deliver = Courier.deliver

    async def noted(courier: Courier, number: int, announced: Any) -> float | None:
        couriers.append(courier)
        return await deliver(courier, number, announced)

    monkeypatch.setattr(Courier, "deliver", noted)
    with running_app(tmp_path, **QUICK) as url, Client(url) as client:
        gone = client.subscribe("number exists", sink=receiver.script("/gone", 410))["id"]
        publish(client, 1)
        wait_for(client, gone, lambda shown: shown["status"] == "disabled_by_failures")
        assert couriers[0]._failed_group
        client.unsubscribe(gone)
        until(lambda: not couriers[0]._failed_group and not couriers[0]._slow)


def test_outbox_paused_and_deleted_subscriptions_get_nothing_more(tmp_path: Path, receiver: Receiver) -> None:
    """Pause holds back what waits, until resume; deleting ends it."""
    settings = QUICK | {"webhook_delays_seconds": (NEVER_AGAIN_SOON,)}
    with running_app(tmp_path, **settings) as url, Client(url) as client:
        paused = client.subscribe("number exists", sink=receiver.script("/paused", 500))["id"]
        deleted = client.subscribe("number exists", sink=receiver.script("/deleted", 500))["id"]
        publish(client, 1)
        for id in (paused, deleted):
            wait_for(client, id, lambda shown: shown["status"] == "failing")
        client.pause(paused)
        client.unsubscribe(deleted)
        publish(client, 2)
        assert client.subscription(paused)["status"] == "paused"
        client.resume(paused)
        publish(client, 3)
        assert numbers_in(receiver.wait_for("/paused", 3)) == [1, 1, 3]
        assert numbers_in(receiver.requests("/deleted")) == [1]


def test_outbox_acknowledged_by_hand_is_skipped(tmp_path: Path, receiver: Receiver) -> None:
    """An owner may get past a message that its sink can never take."""
    settings = QUICK | {"webhook_delays_seconds": (NEVER_AGAIN_SOON,)}
    with running_app(tmp_path, **settings) as url, Client(url) as client:
        id = client.subscribe("number exists", sink=receiver.script("/hook", 400))["id"]
        cursors = publish(client, 1, 2)
        wait_for(client, id, lambda shown: shown["status"] == "failing")
        client.ack(id, cursors[0])
        client.resume(id)
        assert numbers_in(receiver.wait_for("/hook", 2)) == [1, 2]


def test_outbox_restart_goes_on_from_what_was_delivered(tmp_path: Path, receiver: Receiver) -> None:
    """Killed while a message was under way and more waited: after the restart that message comes again under its id,
    the delivered one does not, and the rest follows in order."""
    environment = {"KINDCAST_ALLOW_PRIVATE_SINKS": "true"}
    with running_server(tmp_path, environment) as server, Client(server.url) as client:
        id = client.subscribe("number = 1 or number > 1", sink=f"{receiver.url}/hook")["id"]
        [first] = publish(client, 1)
        wait_for(client, id, lambda shown: shown["cursor"] == first)
        receiver.swallow("/hook")
        publish(client, 2, 3)
        receiver.wait_for("/hook", 2)
        server.kill()
        receiver.release()
        server.start()
        requests = receiver.wait_for("/hook", 4)
    assert numbers_in(requests) == [1, 2, 2, 3]
    assert requests[1].headers["webhook-id"] == requests[2].headers["webhook-id"]


def test_outbox_restart_keeps_the_schedule(tmp_path: Path, receiver: Receiver) -> None:
    """A restart is no reason to try a failing sink early, nor to forget it."""
    slow = QUICK | {"webhook_delays_seconds": (NEVER_AGAIN_SOON,)}
    with running_app(tmp_path, **slow) as url, Client(url) as client:
        made = client.subscribe("number exists", sink=receiver.script("/hook", 500))
        id = made["id"]
        publish(client, 1)
        before = wait_for(client, id, lambda shown: shown["status"] == "failing")
    with running_app(tmp_path, **slow) as url, Client(url) as client:
        publish(client, 2)
        after = client.subscription(id)
        assert (after["status"], after["next_attempt_at"]) == ("failing", before["next_attempt_at"])
        assert len(receiver.requests("/hook")) == 1
        client.resume(id, ticket=made["ticket"])
        assert numbers_in(receiver.wait_for("/hook", 3)) == [1, 1, 2]


def test_outbox_trace_lists_every_attempt(client: Client, receiver: Receiver) -> None:
    """Each attempt for an event can be read back, numbered, with its outcome."""
    id = client.subscribe("number exists", sink=receiver.script("/hook", 500))["id"]
    [cursor] = publish(client, 1)
    wait_for(client, id, lambda shown: shown["times_sent"] == 2)
    [delivery] = client.trace(cursor)["deliveries"]
    attempts = [(each["attempt"], each["outcome"], each["status_code"]) for each in delivery["attempts"]]
    assert (delivery["subscription"], delivery["state"]) == (id, "delivered")
    assert attempts == [(1, "failed", 500), (2, "delivered", 200)]


@pytest.mark.parametrize("memory", [outbox.PAGES_BYTES, 20_000])
def test_outbox_many_subscriptions_each_in_order(
    client: Client, receiver: Receiver, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many events for many subscriptions on one endpoint, some answers failing: each gets every event once, in order,
    also if there is little memory for those that wait."""
    monkeypatch.setattr(outbox, "PAGES_BYTES", memory)
    for n in range(12):
        client.subscribe("number exists", sink=receiver.script(f"/hook{n}", *([200] * n + [500])))
    for start in range(0, 60, 20):
        client.publish([{"number": number} for number in range(start, start + 20)])
    for n in range(12):
        assert numbers_in(receiver.wait_for(f"/hook{n}", 61), taken=True) == list(range(60))


def test_outbox_large_messages_that_wait_for_a_slot_are_not_in_memory(
    client: Client, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One event of 15 MB for a few hundred subscriptions with a sink that hangs filled the memory."""
    reads: list[int] = []

    read = Look.read

    def counting(*arguments: Any, **more: Any) -> list[StoredMatch]:
        found = read(*arguments, **more)
        reads.append(len(found))
        return found

    monkeypatch.setattr(Look, "read", counting)
    monkeypatch.setattr(outbox, "PAGES_BYTES", 300_000)
    for n in range(30):
        client.subscribe("number exists", sink=receiver.swallow(f"/slow{n}"))
    client.publish({"number": 1, "text": "x" * 100_000})
    until(lambda: len(reads) >= 30, PATIENCE_SECONDS, lambda: reads)
    most = 3 + Settings().webhook_concurrency_per_endpoint + outbox.READS_ALONE

    def held() -> int:
        return sum(type(each) is StoredMatch for each in gc.get_objects())

    until(lambda: 1 <= held() <= most, PATIENCE_SECONDS, held)  # at first there are those of one look
    receiver.release()
    for n in range(30):
        receiver.wait_for(f"/slow{n}", 1)


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def test_outbox_message_that_was_deleted_under_way_counts_once(tmp_path: Path, receiver: Receiver) -> None:
    """Its event gets older than the retention while the sink takes its time: it is delivered, and not discarded."""
    with running_app(tmp_path, **QUICK, retention_seconds=0.2, sweep_seconds=0.1) as url, Client(url) as client:
        id = client.subscribe("number exists", sink=receiver.swallow("/slow"))["id"]
        publish(client, 1, 2, 3)
        wait_for(client, id, lambda shown: shown["discarded"] == 3)
        receiver.release()
        shown = wait_for(client, id, lambda shown: shown["times_sent"] >= 1)
        assert shown["discarded"] == 3 - shown["times_sent"]
        totals = client.status()["ledger"]
        assert totals["delivered"] + totals["discarded"] == totals["matches"] == 3
