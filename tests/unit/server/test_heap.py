"""The garbage collector waits while something large is built, and only then."""

import gc

import pytest

from kindcast.server.broker import garbage_collection


def test_building_keeps_the_collector_waiting_until_the_last_is_done() -> None:
    """Several things may be built at one time; what fails counts as done."""
    assert gc.isenabled()
    with garbage_collection.paused():
        with pytest.raises(ValueError, match="broken"), garbage_collection.paused():
            raise ValueError("broken")
        assert not gc.isenabled()
    assert gc.isenabled()
