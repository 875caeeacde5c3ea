"""Which worker of a parallel run has which tests."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from tests.conftest import FileScheduling

TESTS = (
    *("tests/spark/test_a.py::test_one[a::b@c]", "tests/spark/test_b.py::test_two", "tests/spark/test_b.py::test_six"),
    *("tests/unit/test_c.py::test_three", "tests/unit/test_c.py::test_four", "tests/unit/test_d.py::test_five"),
)


def configuration() -> Any:
    """Two workers."""
    option = SimpleNamespace(maxprocesses=None, loadscopereorder=True, tx=["popen", "popen"], px=[])
    return SimpleNamespace(option=option, getvalue=lambda name: getattr(option, name, None))


def test_scheduling_gives_a_file_and_all_of_spark_to_one_worker() -> None:
    """In the order in which they were collected, however many tests a file has."""
    sent: dict[str, list[int]] = {"gw0": [], "gw1": []}
    scheduling = FileScheduling(configuration(), None)
    for numbers in sent.values():
        node = Mock(send_runtest_some=numbers.extend)
        scheduling.add_node(node)
        scheduling.add_node_collection(node, TESTS)
    scheduling.schedule()
    assert sent == {"gw0": [0, 1, 2], "gw1": [3, 4]}  # the third file waits until a worker is nearly done


def test_scheduling_is_that_of_a_parallel_run(pytestconfig: pytest.Config) -> None:
    """xdist asks the first plug-in that answers."""
    if not pytestconfig.pluginmanager.hasplugin("xdist"):
        pytest.skip("xdist is not loaded")
    assert isinstance(pytestconfig.hook.pytest_xdist_make_scheduler(config=configuration(), log=None), FileScheduling)
