"""Calls of operators that take their time: shared by all who ask the same, cancelled when nobody needs them."""

import asyncio
import time
from typing import Any

import pytest

from kindcast.semantic.operators import OperatorFailed
from kindcast.server.late_matching import EVENTS_AT_ONCE
from kindcast.server.operators.operator_clients import LONGEST_WAIT, WAITING_EACH, Limits, SharedCalls


class Slow:
    """Answers when it is let go; knows how often it was asked, and cancelled."""

    def __init__(self) -> None:
        self.asked = self.cancelled = 0
        self.go = asyncio.Event()

    async def __call__(self, event: Any, arguments: tuple[Any, ...]) -> object:
        self.asked += 1
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return True


def way(slow: Slow) -> SharedCalls:
    limits = Limits(seconds=30.0, concurrency=4, attributes=("n",))
    return SharedCalls(slow, limits, asyncio.get_running_loop())


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_call_under_way_is_shared_by_events_that_look_alike_to_the_operator() -> None:
    """One request; the seconds are told once, so that nothing is learned twice. Other arguments are another call."""

    async def body() -> None:
        slow = Slow()
        caller = way(slow)
        one = caller.start({"n": (1,), "id": ("a",)}, ("x",))
        other = caller.start({"n": (1,), "id": ("b",)}, ("x",))
        different = caller.start({"n": (2,)}, ("x",))
        await settle()
        assert slow.asked == 2
        slow.go.set()
        answers = [await asyncio.wrap_future(each) for each in (one, other, different)]
        assert [each.value for each in answers] == [True] * 3
        assert [each.seconds > 0.0 for each in answers] == [True, False, True]

    asyncio.run(body())


def test_operator_with_many_concurrent_calls_does_not_hold_all_events_that_are_being_decided() -> None:
    """Each event that waits for it is one of these; the other operators need some, too."""

    async def body() -> None:
        slow = Slow()
        caller = SharedCalls(slow, Limits(seconds=30.0, concurrency=256), asyncio.get_running_loop())
        calls = [caller.start({"n": (number,)}, ()) for number in range(EVENTS_AT_ONCE)]
        await settle()
        refused = [each.exception() for each in calls if each.done()]
        assert all(isinstance(each, OperatorFailed) and each.kind == "busy" for each in refused)
        assert len(refused) == EVENTS_AT_ONCE / 2
        for each in calls:
            each.cancel()
        await settle()

    asyncio.run(body())


def test_refused_call_waits_longer_the_longer_no_call_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the events of an operator that hangs are tried again and again, and keep all others waiting."""

    async def body() -> None:
        caller = SharedCalls(Slow(), Limits(seconds=30.0, concurrency=1), asyncio.get_running_loop())
        calls = [caller.start({"n": (number,)}, ()) for number in range(WAITING_EACH + 1)]
        await settle()
        clock = time.perf_counter
        monkeypatch.setattr(time, "perf_counter", lambda: clock() + 10.0)
        calls.append(caller.start({"n": (-1,)}, ()))
        await settle()
        soon, later = (each.exception() for each in calls[WAITING_EACH:])
        assert isinstance(soon, OperatorFailed)
        assert isinstance(later, OperatorFailed)
        assert soon.after is not None
        assert soon.after < LONGEST_WAIT
        assert later.after == LONGEST_WAIT
        for each in calls:
            each.cancel()
        await settle()

    asyncio.run(body())


def test_call_under_way_is_cancelled_when_the_last_one_leaves() -> None:
    """Not before; who asks afterwards begins a new one."""

    async def body() -> None:
        slow = Slow()
        caller = way(slow)
        one, other = (caller.start({"n": (1,)}, ()) for _ in range(2))
        await settle()
        one.cancel()
        await settle()
        assert (slow.asked, slow.cancelled) == (1, 0)
        other.cancel()
        await settle()
        assert (slow.asked, slow.cancelled) == (1, 1)
        again = caller.start({"n": (1,)}, ())
        await settle()
        assert slow.asked == 2
        slow.go.set()
        assert (await asyncio.wrap_future(again)).value is True

    asyncio.run(body())
