"""Threads take short turns while long work runs, and the usual ones afterwards."""

import asyncio
import sys
import threading

import pytest

from kindcast.server.worker_threads import SHORT_TURN, run_to_the_end, short_turns


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
