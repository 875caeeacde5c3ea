"""When a failed webhook is tried again, and how much goes out at a time."""

import asyncio
from contextlib import AsyncExitStack

import httpcore
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindcast.server.api.subscriptions import SubscriptionBody
from kindcast.server.delivery.outbox import LONGEST_WISH_SECONDS, PLACE_BYTES, Endpoints, RetrySchedule
from kindcast.server.delivery.protocols import DEFAULT_PROTOCOL, PROTOCOLS
from kindcast.server.security.egress import Connections
from kindcast.server.settings import Settings

STANDARD_DELAYS = Settings.model_fields["webhook_delays_seconds"].default


def test_schedule_standard_ends_after_three_days() -> None:
    """Ten attempts over 75 hours, 35 minutes and 5 seconds; the settings say the same."""
    assert len(STANDARD_DELAYS) + 1 == 10
    assert sum(STANDARD_DELAYS) == 75 * 3_600 + 35 * 60 + 5


@given(st.integers(1, 12), st.floats(0, 1), st.none() | st.floats(0, 1e9))
def test_schedule_delay_is_between_plan_and_jitter_unless_the_sink_wants_more(
    failures: int, jitter: float, wish: float | None
) -> None:
    """Never earlier than planned or wished for, at most the jitter later, None after the last; wishes have a bound."""
    delay = RetrySchedule(STANDARD_DELAYS, jitter).delay(failures, wish)
    if failures > len(STANDARD_DELAYS):
        assert delay is None
        return
    assert delay is not None
    planned, wished = STANDARD_DELAYS[failures - 1], min(wish or 0.0, LONGEST_WISH_SECONDS)
    assert max(planned, wished) <= delay <= max(planned * (1 + jitter) + 1e-6, wished)


async def waits(endpoints: Endpoints, endpoint: str, *, failing: bool = False, size: int = 0) -> bool:
    """Whether a slot is not to be had now."""
    slot = endpoints.slot(endpoint, failing=failing, size=size)
    task = asyncio.ensure_future(slot.__aenter__())
    for _ in range(5):
        await asyncio.sleep(0)
    if not task.done():
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return True
    await slot.__aexit__(None, None, None)
    return False


def test_endpoints_full_endpoint_lets_others_through() -> None:
    """One endpoint has its slots and no more; who waits for it takes nothing from others."""

    async def scenario() -> list[bool]:
        endpoints = Endpoints(at_once=64, at_once_per_endpoint=2)
        async with AsyncExitStack() as taken:
            for _ in range(2):
                await taken.enter_async_context(endpoints.slot("a", failing=False))
            found = [await waits(endpoints, "a"), await waits(endpoints, "b")]
        return [*found, await waits(endpoints, "a")]

    assert asyncio.run(scenario()) == [True, False, False]


def test_endpoints_full_lane_leaves_the_others_free() -> None:
    """New endpoints that say nothing fill their own lane only: proven ones, and retries, still get slots."""

    async def scenario() -> list[bool]:
        endpoints = Endpoints(at_once=16, at_once_per_endpoint=1)
        endpoints.note("proven", answered=True)
        async with AsyncExitStack() as taken:
            for n in range(4):
                await taken.enter_async_context(endpoints.slot(f"silent{n}", failing=False))
            return [
                await waits(endpoints, "new"),
                await waits(endpoints, "proven"),
                await waits(endpoints, "retried", failing=True),
            ]

    assert asyncio.run(scenario()) == [True, False, False]


def test_endpoints_large_messages_take_several_places() -> None:
    """So a lane is full with fewer of them. One that is larger than the lane gets in alone."""

    async def scenario() -> list[bool]:
        endpoints = Endpoints(at_once=16, at_once_per_endpoint=1)
        found = []
        for size in (3 * PLACE_BYTES, 9 * PLACE_BYTES):
            async with endpoints.slot("large", failing=False, size=size):
                found += [await waits(endpoints, "a"), await waits(endpoints, "b", size=2 * PLACE_BYTES)]
        return found

    assert asyncio.run(scenario()) == [False, True, True, True]


def test_endpoints_silent_endpoint_is_not_proven_any_more() -> None:
    """An endpoint that stopped answering goes back to the lane of the new ones."""

    async def scenario() -> bool:
        endpoints = Endpoints(at_once=16, at_once_per_endpoint=1)
        endpoints.note("a", answered=True)
        endpoints.note("a", answered=False)
        async with AsyncExitStack() as taken:
            for n in range(4):
                await taken.enter_async_context(endpoints.slot(f"silent{n}", failing=False))
            return await waits(endpoints, "a")

    assert asyncio.run(scenario())


def test_endpoints_pause_is_kept_until_it_is_over() -> None:
    """A pause is told, never shortened, and outlives the slots."""

    async def scenario() -> list[bool]:
        endpoints = Endpoints(at_once=16, at_once_per_endpoint=1)
        endpoints.pause("a", 3_600.0)
        first = endpoints.rests_until("a")
        endpoints.pause("a", 1.0)
        async with endpoints.slot("a", failing=False):
            pass
        endpoints.pause("b", 0.0)
        return [endpoints.rests_until("a") == first > 0.0, endpoints.rests_until("b") == 0.0]

    assert asyncio.run(scenario()) == [True, True]


def test_connections_unused_pools_are_closed_used_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the bound the longest unused pool goes; one that is in use stays, and is the same for everybody."""
    monkeypatch.setattr("kindcast.server.security.egress.MAX_POOLS", 2)

    async def scenario() -> list[bool]:
        connections = Connections(allow_private=True)
        async with connections.to("a") as first, connections.to("a") as again:
            for other in ("b", "c", "d"):
                async with connections.to(other):
                    pass
            async with connections.to("a") as still:
                kept = [first is again, first is still]
        for other in ("b", "c", "d"):
            async with connections.to(other):
                pass
        async with connections.to("a") as later:
            found = [*kept, later is first]
        await connections.close()
        return found

    assert asyncio.run(scenario()) == [True, True, False]


def test_connections_requests_that_close_unused_pools_together_do_not_disturb_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While one request closes a pool, others close the next ones, and open such a pool again."""
    monkeypatch.setattr("kindcast.server.security.egress.MAX_POOLS", 1)

    async def slow(pool: httpcore.AsyncConnectionPool) -> None:
        await asyncio.sleep(0.01)

    monkeypatch.setattr(httpcore.AsyncConnectionPool, "aclose", slow)

    async def scenario() -> None:
        connections = Connections(allow_private=True)

        async def request(endpoint: str) -> None:
            async with connections.to(endpoint):
                await asyncio.sleep(0.03)

        for _ in range(3):
            await asyncio.gather(*(request(endpoint) for endpoint in "abcdef"))
        await connections.close()

    asyncio.run(scenario())


def test_every_protocol_that_a_subscription_may_name_has_a_sender() -> None:
    """The schema of the request and the table of protocols name the same ones."""
    (names, _) = SubscriptionBody.model_json_schema()["properties"]["protocol"]["anyOf"]
    assert set(names.get("enum", [names.get("const")])) == PROTOCOLS.keys()
    assert DEFAULT_PROTOCOL in PROTOCOLS
