"""Operators in processes of their own: whatever they do, the call fails at most, and the next one works."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kindcast import Matcher, Operator, Vocabulary
from kindcast.semantic.model import Quantity
from kindcast.semantic.operators.calls import run, stop
from kindcast.semantic.operators.failures import OperatorFailed
from kindcast.semantic.operators.isolation import Cancellation, Workers
from tests.harness import isolated_operators
from tests.harness.isolated_operators import behaves, echoes, hangs, holds_many, in_batches, waits


@pytest.fixture(autouse=True, scope="module")
def _no_process_is_left() -> Iterator[None]:
    yield
    for each in (behaves, echoes, hangs, holds_many, in_batches, waits):
        stop(each)


def said(operator: Operator, *asked: tuple[Any, ...]) -> Any:
    """The outcome of one call on an event."""
    return run(operator, [({"a": (1, "x", Quantity(5, "kg"))}, *asked)])[0]


def gone(process: int) -> bool:
    """Whether a process has ended, within some seconds; one that nobody waits for counts as ended."""
    for _ in range(200):
        try:
            state = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def test_isolated_operator_gets_and_returns_values_as_here() -> None:
    """Quantities, tuples, texts that are no UTF-8; an absent attribute has no values; printing disturbs nothing."""
    value, process = said(echoes, "Wien \ud800", 2.5, ("a", Quantity(1, "m")))
    given = ("Wien \ud800", 2.5, ("a", Quantity(1, "m")))
    assert value == ((1, "x", Quantity(5, "kg")), (), False, given, Quantity(2, "km"))
    assert process != os.getpid()
    assert said(echoes)[1] == process, "the process is kept for the next call"


@pytest.mark.parametrize(
    ("how", "reason", "for_good", "after"),
    [
        ("hangs", "took longer than 1.5 seconds and was stopped", False, None),
        ("exits", "its process died", False, None),
        ("raises", "raised RuntimeError: out of order", False, None),
        ("later", "the camera is booting", False, 30),
        ("never", "no picture", True, None),
        ("floods", "10,000,000 are allowed", False, None),
        ("object", "object is not a value", False, None),
        ("frame", "reply of the wrong form", False, None),
    ],
)
def test_isolated_operator_that_misbehaves_fails_with_its_reason_and_the_next_call_works(
    how: str, reason: str, for_good: bool, after: float | None
) -> None:
    """Hanging in a loop, dying, lying: the process is begun anew where it has to be."""
    asked = hangs if how == "hangs" else behaves
    failure = said(asked, how)
    assert isinstance(failure, OperatorFailed)
    assert reason in str(failure)
    assert (failure.for_good, failure.after) == (for_good, after)
    assert said(asked, "well") is True


def test_isolated_operator_may_write_to_standard_output() -> None:
    """What a plug-in prints, byte by byte, is not taken for an answer."""
    assert said(behaves, "writes") is True


def test_isolated_operator_may_return_scalars_of_numpy() -> None:
    """Models and pictures give them; in this process they are read, too."""
    assert said(behaves, "numpy") == (True, 3, 2.5, "x")


def test_isolated_operator_endless_bindings_come_as_one_too_many() -> None:
    """Whoever checks the answer sees that the bound is passed."""
    matcher = Matcher(Vocabulary.from_ontologies([]), operators=[holds_many])
    matcher.add("s", "holdsMany(?n) and ?n > 5")
    assert "more than 1,000 bindings" in matcher.decide({}).undecided[0].reason


def test_isolated_operator_batch_answers_each_call_by_itself() -> None:
    """One frame there and back; one call of it may fail."""
    found = run(in_batches, [({}, number) for number in range(3)])
    assert found[0] == ((0, 3),)
    assert found[2] == ((2, 3),)
    assert "odd" in str(found[1])
    assert run(in_batches, [({}, 7)]) == [((7, 1),)]


def test_cancel_ends_the_process_and_what_it_began_and_frees_the_caller(tmp_path: Path) -> None:
    """The whole group is killed: nothing of the call goes on, and the place is free for another."""
    file = tmp_path / "processes"
    cancellation = Cancellation()
    found: list[Any] = []
    event = {"file": (str(file),)}
    asking = threading.Thread(target=lambda: found.extend(run(waits, [(event, 500)], cancellation=cancellation)))
    asking.start()
    while not file.exists() or not file.read_text(encoding="ascii").endswith("\n"):
        time.sleep(0.02)
    processes = [int(each) for each in file.read_text(encoding="ascii").split()]
    assert said(waits, 0.0) is True, "two may run at once"
    cancellation.cancel()
    asking.join(10)
    assert not asking.is_alive()
    assert str(found[0]) == "was cancelled"
    assert all(gone(each) for each in processes)
    assert str(run(waits, [(event, 0.0)], cancellation=cancellation)[0]) == "was cancelled"
    assert said(waits, 0.0) is True


def test_workers_never_more_processes_than_allowed() -> None:
    """Five callers, two processes; all get their answer."""
    workers = Workers(f"{isolated_operators.__name__}:waits", most=2, timeout=None)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.extend(workers.ask([({}, 0.05)]))) for _ in range(5)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [True] * 5
    processes = workers.processes()
    assert 1 <= len(processes) <= 2
    workers.close()
    assert all(gone(each) for each in processes)
    assert workers.processes() == []


def test_workers_function_that_cannot_be_imported_is_told_by_name() -> None:
    """Neither the module nor the function need be there."""
    for target in ("no.such.module:f", f"{isolated_operators.__name__}:nothing", "os:name"):
        workers = Workers(target, most=1, timeout=5)
        (failure,) = workers.ask([({},)])
        assert isinstance(failure, OperatorFailed)
        assert f"{target} cannot be run: " in str(failure)
        workers.close()


def test_workers_argument_that_is_no_value_fails_for_good_without_harm() -> None:
    """The process is not to blame, and stays."""
    (failure,) = run(echoes, [({"a": (object(),)},)])
    assert isinstance(failure, OperatorFailed)
    assert failure.for_good
    assert said(echoes)[0][1] == ()
