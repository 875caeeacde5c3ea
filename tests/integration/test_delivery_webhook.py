"""One webhook attempt against a real HTTP server."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from email.utils import formatdate
from pathlib import Path
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from kindcast.server.delivery import outbox, webhook
from kindcast.server.delivery.webhook import Delivery, Outcome, WebhookSender, check_protocol
from kindcast.server.security.egress import SinkRefused
from tests.harness.receiver import Answer, Receiver, running_receiver
from tests.harness.server_thread import running_app
from tests.harness.waiting import until

SECRET = "whsec_" + "c2VjcmV0LW9mLWV4YWN0bHktMzItYnl0ZXMhISEhISEh"
BODY = '{"cursor":"7","event":{"data":{"ort":"Köln"}}}'.encode()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with running_receiver() as running:
        yield running


def send(sink: str, *, timeout: float = 20.0, allow_private: bool = True, **more: Any) -> Outcome:
    async def attempt() -> Outcome:
        sender = WebhookSender(allow_private=allow_private, timeout=timeout)
        try:
            return await sender.send(Delivery(sink=sink, secret=SECRET, message_id="msg_s1_7", body=BODY, **more))
        finally:
            await sender.close()

    return asyncio.run(attempt())


def test_send_success_is_signed_for_the_standard_library(receiver: Receiver) -> None:
    """A 2xx is a delivery; body, id and signature pass the verification of the Standard Webhooks library."""
    outcome = send(receiver.script("/hook?x=1", 204))
    [request] = receiver.requests("/hook?x=1")
    assert (outcome.kind, outcome.status_code) == ("delivered", 204)
    assert request.body == BODY
    assert request.headers["webhook-id"] == "msg_s1_7"
    assert request.headers["content-type"] == "application/json"
    assert Webhook(SECRET).verify(request.body, request.headers)["cursor"] == "7"


def test_send_signature_of_another_secret_fails(receiver: Receiver) -> None:
    """The signature depends on the secret: a receiver with another one rejects the message."""
    send(receiver.script("/hook", 200))
    [request] = receiver.requests("/hook")
    with pytest.raises(WebhookVerificationError):
        Webhook("whsec_" + "b3RoZXItc2VjcmV0LW9mLXRoaXJ0eS10d28tYnl0ZXMh").verify(request.body, request.headers)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_send_redirect_fails_unfollowed(receiver: Receiver, status: int) -> None:
    """A redirect is a failure and nobody asks the other place."""
    outcome = send(receiver.script("/old", Answer(status, (("Location", f"{receiver.url}/new"),))))
    assert (outcome.kind, outcome.status_code) == ("failed", status)
    assert receiver.requests("/new") == []


@pytest.mark.parametrize("status", [400, 401, 404, 500, 503])
def test_send_error_status_fails_without_echo(receiver: Receiver, status: int) -> None:
    """Any other status is a failure, told by its number only: what the sink wrote is never repeated."""
    outcome = send(receiver.script("/hook", Answer(status, body=b"internal secret")))
    assert (outcome.kind, outcome.status_code) == ("failed", status)
    assert str(status) in outcome.detail
    assert "secret" not in outcome.detail


def test_send_gone_is_told_apart(receiver: Receiver) -> None:
    """410 says that the sink wants no more, which is not a failure to be tried again."""
    assert send(receiver.script("/hook", 410)).kind == "gone"


@pytest.mark.parametrize("status", [429, 502, 504])
def test_send_busy_sink_asks_to_slow_down(receiver: Receiver, status: int) -> None:
    """These statuses ask for a pause; Retry-After says how long."""
    outcome = send(receiver.script("/hook", Answer(status, (("Retry-After", "120"),))))
    assert (outcome.kind, outcome.slow_down, outcome.retry_after) == ("failed", True, 120.0)


def test_send_retry_after_as_date_counts_from_now(receiver: Receiver) -> None:
    """Retry-After may be a date; one in the past is no wait, nonsense is no wish."""
    in_an_hour = formatdate(time.time() + 3_600, usegmt=True)
    outcome = send(receiver.script("/hook", Answer(503, (("Retry-After", in_an_hour),))))
    assert outcome.retry_after is not None
    assert 3_500 < outcome.retry_after <= 3_600
    assert send(receiver.script("/past", Answer(503, (("Retry-After", formatdate(0)),)))).retry_after == 0.0
    assert send(receiver.script("/odd", Answer(503, (("Retry-After", "soon"),)))).retry_after is None


@pytest.mark.parametrize("form", ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y"])
def test_send_retry_after_has_any_date_of_http(receiver: Receiver, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are in UTC, wherever the server runs."""
    in_an_hour = time.strftime(form, time.gmtime(time.time() + 3_600))
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        outcome = send(receiver.script("/hook", Answer(503, (("Retry-After", in_an_hour),))))
    time.tzset()
    assert outcome.retry_after is not None
    assert 3_500 < outcome.retry_after <= 3_600


def test_send_silent_sink_fails_at_the_deadline(receiver: Receiver) -> None:
    """A sink that takes the request and says nothing ends as a failure."""
    outcome = send(receiver.swallow("/hole"), timeout=1.5)
    assert (outcome.kind, outcome.status_code) == ("failed", None)
    assert "no answer within 1.5 s" in outcome.detail
    assert len(receiver.requests("/hole")) == 1


def test_send_nobody_there_fails(receiver: Receiver) -> None:
    """A refused connection is a failure in plain words."""
    assert send("http://127.0.0.1:9/").detail == "no connection to the sink"


def test_send_private_sink_is_refused_unsent(receiver: Receiver) -> None:
    """Without the operator's leave nothing is sent to this machine, whatever was stored as sink."""
    outcome = send(receiver.script("/hook", 200), allow_private=False)
    assert outcome.kind == "failed"
    assert outcome.detail.startswith("not sent")
    assert receiver.requests() == []


def answer_raw(payload: bytes, *, hold: bool = False) -> Outcome:
    """Sends to a server that answers these bytes, then closes or, with `hold`, says nothing more."""

    async def scenario() -> Outcome:
        done = asyncio.Event()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(payload)
            await writer.drain()
            if hold:
                await done.wait()
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        sender = WebhookSender(allow_private=True, timeout=1.0 if hold else 20.0)
        sink = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with server:
            outcome = await sender.send(Delivery(sink=sink, secret=SECRET, message_id="msg_s1_7", body=BODY))
            done.set()
            await sender.close()
        return outcome

    return asyncio.run(scenario())


def test_send_answer_to_an_earlier_message_is_not_the_answer_to_this_one() -> None:
    """A sink that answers the first message twice has not taken the second one, whose own answer never comes."""

    async def scenario() -> list[Outcome]:
        asked: list[asyncio.StreamWriter] = []

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append(writer)
            await reader.readuntil(BODY)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" * 2)
            await reader.read()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        sender = WebhookSender(allow_private=True, timeout=5.0)
        sink = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        message = Delivery(sink=sink, secret=SECRET, message_id="msg_s1_7", body=BODY)
        async with server:
            found = [await sender.send(message) for _ in range(3)]
            await sender.close()
            for each in asked:
                each.close()
                await each.wait_closed()
        assert len(asked) == 2, "the connection was used again"
        return found

    first, second, third = asyncio.run(scenario())
    assert [first.kind, second.kind, third.kind] == ["delivered", "failed", "delivered"]
    assert second.detail == "the sink answers requests twice: the answer was sent before the request"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 204 No Content\r\n\r\nok",
        b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
    ],
    ids=["length", "bare", "chunked", "200", "empty"],
)
def test_send_after_a_body_that_must_not_be(answer: bytes, request: pytest.FixtureRequest) -> None:
    """An answer with status 204 has no body. What a sink sends all the same is not the begin of its next answer."""
    is_right = request.node.callspec.id in ("200", "empty")

    async def scenario() -> tuple[list[Outcome], int]:
        asked: list[asyncio.StreamWriter] = []

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append(writer)
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while await reader.readuntil(BODY):
                    writer.write(answer)
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        sender = WebhookSender(allow_private=True, timeout=5.0)
        sink = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        message = Delivery(sink=sink, secret=SECRET, message_id="msg_s1_7", body=BODY)
        async with server:
            found = []
            for _ in range(3):
                found.append(await sender.send(message))
                while sender.under_way:
                    await asyncio.sleep(0.01)
            await sender.close()
            for each in asked:
                await each.wait_closed()
        return found, len(asked)

    outcomes, connections = asyncio.run(scenario())
    assert [each.kind for each in outcomes] == ["delivered"] * 3, outcomes[1].detail
    assert connections == (1 if is_right else 3)


def test_send_endless_answer_counts_by_its_status() -> None:
    """The status decides: a success whose body never ends is a success, and is not read for ever."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n"
    assert answer_raw(head + b"x" * 1_000, hold=True).kind == "delivered"
    assert answer_raw(head + b"x" * 1_000_000, hold=True).kind == "delivered"


def test_send_broken_answers_fail() -> None:
    """What is not HTTP, or breaks off before its status, is a failure."""
    detail = "the sink closed the connection without an answer, or did not answer in HTTP"
    for payload in (b"", b"SSH-2.0-OpenSSH\r\n\r\n"):
        assert answer_raw(payload).detail == detail


def test_send_own_headers_and_token_are_added(receiver: Receiver) -> None:
    """The subscription's headers and access token are sent; a stored header never replaces ours."""
    outcome = send(
        receiver.script("/hook", 200),
        protocolsettings={"method": "PUT", "headers": {"X-Team": "blue\t and ~", "X-No": ""}},
        sinkcredential={"credentialtype": "ACCESSTOKEN", "accesstoken": "t0ken"},
    )
    [request] = receiver.requests("/hook")
    assert outcome.kind == "delivered"
    assert (request.headers["x-team"], request.headers["x-no"]) == ("blue\t and ~", "")
    assert request.headers["authorization"] == "Bearer t0ken"


@pytest.mark.parametrize(
    ("settings", "credential"),
    [
        ({"method": "DELETE"}, {}),
        ({"headers": {"Host": "internal"}}, {}),
        ({"headers": {"webhook-signature": "v1,none"}}, {}),
        ({"headers": {"X-Team": "blue\r\nHost: internal"}}, {}),
        ({"headers": {"X Team": "blue"}}, {}),
        ({"headers": {"X-Team": "blue "}}, {}),
        ({"headers": {"X-Team": "\tblue"}}, {}),
        ({"headers": {"X-Team": 7}}, {}),
        ({"headers": ["X-Team"]}, {}),
        ({"headers": {f"X-{n}": "" for n in range(33)}}, {}),
        ({}, {"credentialtype": "REFRESHTOKEN", "refreshtoken": "x"}),
        ({}, {"credentialtype": "ACCESSTOKEN", "accesstoken": "x\r\ny"}),
        ({}, {"credentialtype": "ACCESSTOKEN", "accesstoken": "x "}),
        ({}, {"credentialtype": "ACCESSTOKEN", "accesstoken": ""}),
    ],
)
def test_check_protocol_bad_settings_refuses(settings: dict[str, Any], credential: dict[str, Any]) -> None:
    """Methods, headers and credentials that we cannot or must not send are refused when the subscription is created."""
    with pytest.raises(SinkRefused):
        check_protocol(settings, credential)


def test_check_protocol_name_with_colon_refuses_and_says_so() -> None:
    """The receiver would take the part behind the colon for the password (RFC 7617)."""
    with pytest.raises(SinkRefused, match="colon"):
        check_protocol({}, {"credentialtype": "PLAIN", "identifier": "a:b", "secret": "x"})


def test_check_protocol_plain_credential_accepts() -> None:
    """Name and password are fine as a credential."""
    check_protocol({}, {"credentialtype": "PLAIN", "identifier": "me", "secret": "pass:word"})


# ── sinks that would hold the server ────────────────────────────────────────────────────────────────────────────────


def answer_endlessly(head: bytes, piece: bytes) -> Outcome:
    """Sends to a server that answers `head`, and then `piece` again and again for as long as it is listened to."""

    async def scenario() -> Outcome:
        handled = asyncio.Event()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head)
            with suppress(ConnectionError):
                while True:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.1 if len(piece) == 1 else 0.0)
            writer.close()
            handled.set()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        sender = WebhookSender(allow_private=True, timeout=10_000.0)
        sink = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with asyncio.timeout(30.0):
            outcome = await sender.send(Delivery(sink=sink, secret=SECRET, message_id="msg_s1_7", body=BODY))
            await sender.close()
            server.close()
            await handled.wait()
        return outcome

    return asyncio.run(scenario())


def test_send_slow_body_does_not_hold_the_slot() -> None:
    """The outcome is there with the status, however slowly the rest drips."""
    outcome = answer_endlessly(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"x")
    assert (outcome.kind, outcome.status_code) == ("delivered", 200)


@pytest.mark.parametrize("piece", [b"HTTP/1.1 103 Early Hints\r\n\r\n", b"X-More: and more\r\n"], ids=["1xx", "header"])
def test_send_answer_that_never_comes_to_its_status_ends(piece: bytes) -> None:
    """Interim answers and headers are bounded in bytes, not only in time."""
    is_interim = piece.startswith(b"HTTP")
    outcome = answer_endlessly(b"" if is_interim else b"HTTP/1.1 200 OK\r\n", piece * 500)
    assert outcome.kind == "failed"
    assert ("too many interim answers (1xx)" in outcome.detail) == is_interim


@pytest.mark.parametrize(
    "value",
    [
        "Mon, 01 Jan 2024 00:00:00 +999999999999999",
        "Mon, 01 Jan 99999 00:00:00 GMT",
        "-5",
        "1e400",
        "x" * 5_000,
        "Mon, 00 Jan 0000 99:99:99",
    ],
    ids=["zone", "year", "negative", "infinite", "long", "zeros"],
)
def test_send_unreadable_retry_after_is_a_failure_like_any_other(receiver: Receiver, value: str) -> None:
    """It is told and counted; what cannot be read counts as absent."""
    outcome = send(receiver.script("/hook", Answer(503, (("Retry-After", value),))))
    assert (outcome.kind, outcome.status_code, outcome.retry_after) == ("failed", 503, None)


def test_endpoints_that_hang_leave_their_lane_to_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many hang: the next new one comes in after a moment."""
    monkeypatch.setattr(outbox, "HANGING_SECONDS", 0.01)

    async def scenario() -> None:
        endpoints = outbox.Endpoints(8, 8)
        async with asyncio.timeout(20.0), AsyncExitStack() as hanging:
            for number in range(50):
                await hanging.enter_async_context(endpoints.slot(f"http://hole-{number}", failing=False))

    asyncio.run(scenario())


def test_slow_endpoints_begin_one_after_the_other_and_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that do not answer, or fail, wait for each other's beginning; the others do not wait for them."""
    monkeypatch.setattr(outbox, "BEGIN_SECONDS", 3_600.0)

    async def scenario() -> None:
        endpoints = outbox.Endpoints(256, 8)
        endpoints.note("http://slow", answered=True, slow=True)
        endpoints.note("http://prompt", answered=True)
        async with asyncio.timeout(20.0), AsyncExitStack() as begun:
            for _ in range(outbox.SLOW_AT_ONCE):
                await begun.enter_async_context(endpoints.slot("http://slow", failing=False))
            waiting = asyncio.create_task(_through(endpoints, "http://slow", failing=False))
            failing = asyncio.create_task(_through(endpoints, "http://other", failing=True))
            await _through(endpoints, "http://prompt", failing=False)
            assert not waiting.done()
            assert not failing.done()
            await begun.aclose()
            await asyncio.gather(waiting, failing)
            endpoints.note("http://slow", answered=True)
            for _ in range(outbox.SLOW_AT_ONCE + 1):
                await begun.enter_async_context(endpoints.slot("http://slow", failing=False))

    asyncio.run(scenario())


def test_slow_endpoint_that_begun_lets_the_next_one_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hang for as long as it likes then."""
    monkeypatch.setattr(outbox, "BEGIN_SECONDS", 0.01)

    async def scenario() -> None:
        endpoints = outbox.Endpoints(256, 8)
        async with asyncio.timeout(20.0), AsyncExitStack() as hanging:
            for number in range(20):
                await hanging.enter_async_context(endpoints.slot(f"http://failing-{number}", failing=True))
        async with asyncio.timeout(20.0), AsyncExitStack() as again:  # and all turns are there again
            for number in range(outbox.SLOW_AT_ONCE):
                await again.enter_async_context(endpoints.slot(f"http://failing-{number}", failing=True))

    asyncio.run(scenario())


async def _through(endpoints: outbox.Endpoints, endpoint: str, *, failing: bool) -> None:
    async with endpoints.slot(endpoint, failing=failing):
        pass


def test_send_tells_that_an_answer_before_did_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until one ends: such an endpoint costs a new connection for every message."""
    monkeypatch.setattr(webhook, "DRAIN_SECONDS", 0.05)

    async def scenario() -> list[bool]:
        bodies = iter((b"o", b"o", b"ok", b"ok"))

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await reader.readuntil(b"\r\n\r\n")
                body = next(bodies)
                writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n" + body)
                if len(body) < 2:
                    await reader.read()
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        sender = WebhookSender(allow_private=True, timeout=30.0)
        sink = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        delivery = Delivery(sink=sink, secret=SECRET, message_id="msg_s1_7", body=BODY)
        told = []
        for _ in range(4):
            outcome = await sender.send(delivery)
            assert outcome.kind == "delivered"
            told.append(outcome.unfinished)
            while sender.under_way:
                await asyncio.sleep(0.01)
        await sender.close()
        server.close()
        return told

    assert asyncio.run(scenario()) == [False, True, True, False]


def test_event_in_a_circle_of_servers_ends_where_it_began(tmp_path: Path) -> None:
    """Each of them has it once: in the format of CloudEvents it comes back as a duplicate."""
    with (
        running_app(tmp_path / "one", allow_private_sinks=True) as one,
        running_app(tmp_path / "two", allow_private_sinks=True) as two,
    ):
        paths = []
        for here, there in ((one, two), (two, one)):
            body = {"expression": "", "sink": f"{there}/v1/events", "protocolsettings": {"format": "cloudevents"}}
            made = httpx.post(f"{here}/v1/subscriptions", json=body).raise_for_status().json()
            paths.append(f"{here}/v1/subscriptions/{made['id']}")
        assert httpx.post(f"{one}/v1/events", json={"a": 1}).status_code == 202
        until(lambda: [httpx.get(each).json()["times_sent"] for each in paths] == [1, 1])
        for each in (one, two):
            assert [found["event"]["data"] for found in httpx.get(f"{each}/v1/events").json()["events"]] == [{"a": 1}]
