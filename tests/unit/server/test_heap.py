"""The garbage collector waits while something large is built, and only then."""

import gc
from pathlib import Path

import pytest

from kindcast.server.broker import garbage_collection
from kindcast.server.cli import main


def test_building_keeps_the_collector_waiting_until_the_last_is_done() -> None:
    """Several things may be built at one time; what fails counts as done."""
    assert gc.isenabled()
    with garbage_collection.paused():
        with pytest.raises(ValueError, match="broken"), garbage_collection.paused():
            raise ValueError("broken")
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_collector_that_was_disabled_stays_disabled() -> None:
    """A server that starts enables it when all modules are frozen. Else a collection visits all of them."""
    gc.disable()
    try:
        with garbage_collection.paused(), garbage_collection.paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_server_that_does_not_start_enables_the_collector_again(tmp_path: Path) -> None:
    """Otherwise the process that called the command would go on without it."""
    assert gc.isenabled()
    with pytest.raises(SystemExit, match="2"):
        main(["serve", "--data", str(tmp_path), "--planner", "no such planner"])
    assert gc.isenabled()


def test_a_server_collects_after_more_objects_than_a_group_of_events_has() -> None:
    """Else the events of each group are visited several times over while they are carried out."""
    before = gc.get_threshold()
    try:
        gc.set_threshold(700, *before[1:])  # Python's own; a server of an earlier test may have set another
        garbage_collection.collect_rarely()
        first, *others = gc.get_threshold()
        assert first >= 10 * 2_000
        assert tuple(others) == before[1:]
    finally:
        gc.set_threshold(*before)
