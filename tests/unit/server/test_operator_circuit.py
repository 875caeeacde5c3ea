"""The circuit breaker of an operator, with a clock of the test's own."""

import asyncio
from typing import Any, cast

import pytest

from kindcast.semantic.operators.failures import OperatorFailed
from kindcast.server.operators.operator_clients import (
    FAILURES,
    FIRST_PAUSE_SECONDS,
    OTHER_PROBE_SECONDS,
    Circuit,
    SharedCircuits,
)
from kindcast.server.operators.registry import EMPTY, Registration
from kindcast.server.store.servers import CircuitState

ENTRY = EMPTY.with_remote("x", Registration(url="http://localhost/x")).entries["x"]


class Clock:
    """Stands until it is set."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


async def fail(circuit: Circuit, times: int = 1) -> None:
    for _ in range(times):
        await circuit.enter()
        circuit.failed("no answer")


def test_circuit_opens_after_failures_in_a_row_and_an_answer_between_starts_anew() -> None:
    """Only a row of failures opens it; while it is open nobody is let through, and the reason is told."""

    async def body() -> None:
        circuit = Circuit(Clock())
        await fail(circuit, FAILURES - 1)
        await circuit.enter()
        circuit.succeeded()
        await fail(circuit, FAILURES - 1)
        assert circuit.state == "closed"
        await fail(circuit)
        assert circuit.state == "open"
        with pytest.raises(OperatorFailed, match="no answer") as raised:
            await circuit.enter()
        assert (raised.value.kind, raised.value.after) == ("circuit_open", FIRST_PAUSE_SECONDS)

    asyncio.run(body())


def test_circuit_lets_one_call_try_and_the_others_wait_for_it() -> None:
    """After the pause one goes ahead; when it is answered, all may go."""

    async def body() -> None:
        clock = Clock()
        circuit = Circuit(clock)
        await fail(circuit, FAILURES)
        clock.now += FIRST_PAUSE_SECONDS
        await circuit.enter()
        assert circuit.state == "half_open"
        other = asyncio.create_task(circuit.enter())
        await asyncio.sleep(0)
        assert not other.done()
        circuit.succeeded()
        await other
        assert circuit.state == "closed"

    asyncio.run(body())


def test_circuit_whose_try_fails_waits_twice_as_long() -> None:
    """Each failed try doubles the pause, and those who waited for it are turned away."""

    async def body() -> None:
        clock = Clock()
        circuit = Circuit(clock)
        await fail(circuit, FAILURES)
        clock.now += FIRST_PAUSE_SECONDS
        await circuit.enter()
        other = asyncio.create_task(circuit.enter())
        await asyncio.sleep(0)
        circuit.failed("still no answer")
        with pytest.raises(OperatorFailed):
            await other
        assert circuit.until == clock.now + 2 * FIRST_PAUSE_SECONDS

    asyncio.run(body())


def test_circuit_whose_try_is_cancelled_lets_the_next_one_try() -> None:
    """A call that was dropped says nothing of the operator."""

    async def body() -> None:
        clock = Clock()
        circuit = Circuit(clock)
        await fail(circuit, FAILURES)
        clock.now += FIRST_PAUSE_SECONDS
        await circuit.enter()
        circuit.left()
        await circuit.enter()
        circuit.succeeded()
        assert circuit.state == "closed"

    asyncio.run(body())


def test_circuit_whose_try_another_server_makes_waits_for_what_it_finds() -> None:
    """Denied: nobody is let through for a moment, then it asks again. The state that the other one found counts."""

    async def body() -> None:
        clock, granted = Clock(), [False, False, True]

        async def claim() -> bool:
            return granted.pop(0)

        circuit = Circuit(clock, claim=claim)
        await fail(circuit, FAILURES)
        clock.now += FIRST_PAUSE_SECONDS
        for _ in range(2):
            with pytest.raises(OperatorFailed) as raised:
                await circuit.enter()
            assert raised.value.kind == "circuit_open"
            clock.now += OTHER_PROBE_SECONDS
        await circuit.enter()
        circuit.learn(CircuitState("o", 0, FIRST_PAUSE_SECONDS, None, ""))  # its own try counts, which is on the way
        assert circuit.state == "half_open"
        circuit.failed("no answer")
        circuit.learn(CircuitState("o", 0, FIRST_PAUSE_SECONDS, None, ""))
        assert (circuit.state, circuit.failures) == ("closed", 0)
        circuit.learn(CircuitState("o", 9, 8.0, 5.0, "refused"))
        with pytest.raises(OperatorFailed, match=r"failed 9 times in a row.*refused") as raised:
            await circuit.enter()
        assert raised.value.after == 5.0

    asyncio.run(body())


def test_circuit_tells_what_changed_and_nothing_of_calls_that_work() -> None:
    async def body() -> None:
        clock, told = Clock(), []

        async def claim() -> bool:
            return True

        circuit = Circuit(clock, claim=claim, changed=lambda: told.append(circuit.state))
        for _ in range(10):
            await circuit.enter()
            circuit.succeeded()
        await fail(circuit, FAILURES - 1)
        assert told == []
        await fail(circuit)
        clock.now += FIRST_PAUSE_SECONDS
        await circuit.enter()
        circuit.left()
        await circuit.enter()
        circuit.failed("no answer")
        clock.now += 2 * FIRST_PAUSE_SECONDS
        await circuit.enter()
        circuit.succeeded()
        assert told == ["open", "half_open", "open", "closed"]

    asyncio.run(body())


def test_circuit_whose_question_is_cancelled_blocks_nobody() -> None:
    """The call was dropped while the other servers were asked."""

    async def body() -> None:
        clock, asked = Clock(), []

        async def claim() -> bool:
            asked.append(1)
            if len(asked) == 1:
                await asyncio.sleep(1_000)
            return True

        circuit = Circuit(clock, claim=claim)
        await fail(circuit, FAILURES)
        clock.now += FIRST_PAUSE_SECONDS
        dropped = asyncio.create_task(circuit.enter())
        await asyncio.sleep(0)
        other = asyncio.create_task(circuit.enter())
        await asyncio.sleep(0)
        assert not other.done()
        dropped.cancel()
        await other
        circuit.succeeded()
        assert circuit.state == "closed"

    asyncio.run(body())


@pytest.mark.parametrize("turns", range(6))
def test_exchange_of_circuits_ends_although_one_changes_at_the_same_time(turns: int) -> None:
    """It changes so many turns of the event loop after the exchange was cancelled; with none, just before."""

    async def body() -> None:
        shared = SharedCircuits(cast(Any, None))  # without circuits it asks no broker
        exchanging = asyncio.create_task(shared.run())
        for _ in range(10):
            await asyncio.sleep(0)
        if turns == 0:
            shared.circuit(ENTRY, 1.0)
            shared.forget("x")
        exchanging.cancel()
        for _ in range(turns):
            await asyncio.sleep(0)
        shared.circuit(ENTRY, 1.0)
        shared.forget("x")
        done, _ = await asyncio.wait([exchanging], timeout=5.0)
        assert done

    asyncio.run(body())
