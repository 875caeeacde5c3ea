"""Threads take short turns while long work runs, and the usual ones afterwards."""

import asyncio
import sys
import threading
from collections import Counter

import pytest

from kindcast.server import worker_threads
from kindcast.server.worker_threads import (
    LONG,
    MOST_BESIDE,
    SHORT_TURN,
    Shares,
    run_in_turn,
    run_to_the_end,
    short_turns,
)


def test_turns_are_short_until_the_last_has_left() -> None:
    """However the threads come and go; an interval that is shorter already stays."""
    usual = sys.getswitchinterval()
    first, second = threading.Event(), threading.Event()

    def other() -> None:
        with short_turns():
            first.set()
            assert second.wait(30)

    thread = threading.Thread(target=other)
    with short_turns():
        thread.start()
        assert first.wait(30)
        assert sys.getswitchinterval() == pytest.approx(SHORT_TURN)
    assert sys.getswitchinterval() == pytest.approx(SHORT_TURN)
    second.set()
    thread.join()
    assert sys.getswitchinterval() == usual


def test_turns_are_short_in_work_that_fails_too() -> None:
    usual = sys.getswitchinterval()

    def work() -> None:
        raise ValueError(sys.getswitchinterval())

    with pytest.raises(ValueError, match=f"{SHORT_TURN}"):
        asyncio.run(run_to_the_end(work))
    assert sys.getswitchinterval() == usual


def test_long_work_runs_one_after_another_and_short_work_beside_it() -> None:
    """Also after one that fails, and one whose client left."""
    running, most = 0, 0
    lock, free = threading.Lock(), threading.Event()

    def long() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        assert free.wait(30)
        with lock:
            running -= 1
        raise ValueError

    async def body() -> None:
        waiting = [asyncio.ensure_future(run_in_turn(long, LONG, "key a")) for _ in range(4)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        assert await run_in_turn(lambda: "short", LONG - 1, "key a") == "short"
        assert not any(each.done() for each in waiting)
        free.set()
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(each) for each in ended] == [asyncio.CancelledError, ValueError, ValueError, ValueError]

    asyncio.run(body())
    assert most == 1


def test_many_long_requests_of_one_client_delay_another_client_by_one_turn() -> None:
    order, free = list[str](), threading.Event()

    def long(name: str) -> None:
        assert free.wait(30)
        order.append(name)

    async def body() -> None:
        asked = ["many"] * 20 + ["one"]
        waiting = [asyncio.ensure_future(run_in_turn(lambda each=each: long(each), LONG, each)) for each in asked]
        await asyncio.sleep(0)
        free.set()
        await asyncio.gather(*waiting)

    asyncio.run(body())
    assert order.index("one") == 1


def test_many_keys_of_one_tenant_delay_another_tenant_by_one_turn() -> None:
    """A tenant makes as many keys as it likes."""
    order, free = list[str](), threading.Event()

    def long(tenant: str) -> None:
        assert free.wait(30)
        order.append(tenant)

    async def request(tenant: str, key: str) -> None:
        worker_threads.ACTING_TENANT.set(tenant)
        await run_in_turn(lambda: long(tenant), LONG, key)

    async def body() -> None:
        waiting = [asyncio.ensure_future(request("many", f"key {number}")) for number in range(20)]
        waiting.append(asyncio.ensure_future(request("one", "key")))
        await asyncio.sleep(0)
        free.set()
        await asyncio.gather(*waiting)

    asyncio.run(body())
    assert order.index("one") == 1


def test_one_client_does_one_short_work_at_a_time() -> None:
    """And each client, beside the others."""
    running, most = Counter[str](), Counter[str]()
    lock, both = threading.Lock(), threading.Barrier(2)

    def short(client: str) -> None:
        with lock:
            running[client] += 1
            most[client] = max(most[client], running[client])
        both.wait(30)
        with lock:
            running[client] -= 1

    async def body() -> None:
        await asyncio.gather(*(run_in_turn(lambda each=each: short(each), LONG - 1, each) for each in "aaaabbbb"))

    asyncio.run(body())
    assert most == {"a": 1, "b": 1}


def test_many_keys_of_one_tenant_do_short_work_in_a_few_threads() -> None:
    """Another tenant does its own beside them."""
    running, most, lock = set[str](), [0], threading.Lock()
    crowded, other_is_done = threading.Event(), threading.Event()

    def short(key: str) -> None:
        with lock:
            running.add(key)
            most[0] = max(most[0], len(running))
            if len(running) == MOST_BESIDE:
                crowded.set()
        assert other_is_done.wait(30)
        with lock:
            running.discard(key)

    async def request(tenant: str, key: str) -> None:
        worker_threads.ACTING_TENANT.set(tenant)
        if tenant == "many":
            await run_in_turn(lambda: short(key), LONG - 1, key)
        else:
            await run_to_the_end(lambda: crowded.wait(30))
            await run_in_turn(other_is_done.set, LONG - 1, key)

    async def body() -> None:
        many = [request("many", f"key {number}") for number in range(20)]
        await asyncio.gather(*map(asyncio.ensure_future, [*many, request("one", "key")]))

    asyncio.run(body())
    assert most == [MOST_BESIDE]


def test_shares_let_in_what_fits_in_order() -> None:
    """Also behind one that is cancelled while it waits, or after it was let in. One of any size is let in alone."""

    async def body() -> None:
        shares, inside = Shares(10), list[int]()
        leave = {number: asyncio.Event() for number in range(6)}

        async def work(number: int, size: int) -> None:
            async with shares.of("client", size):
                inside.append(number)
                await leave[number].wait()

        tasks = [asyncio.create_task(work(number, size)) for number, size in enumerate((4, 4, 99, 2, 50, 3))]

        async def seen() -> list[int]:
            for _ in range(10):
                await asyncio.sleep(0)
            return inside

        assert await seen() == [0, 1]
        tasks[2].cancel()
        assert await seen() == [0, 1, 3]
        for number in (0, 1):
            leave[number].set()
        assert await seen() == [0, 1, 3]  # 50 is alone only
        leave[3].set()
        tasks[3].cancel()
        assert await seen() == [0, 1, 3, 4]
        leave[4].set()
        assert await seen() == [0, 1, 3, 4, 5]
        leave[5].set()
        await asyncio.gather(*tasks, return_exceptions=True)
        async with shares.of("client", 99):
            pass

    asyncio.run(body())
