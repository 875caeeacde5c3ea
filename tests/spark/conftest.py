"""The Spark session that every test here shares."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.harness.spark import running_spark

FOLDER = Path(__file__).parent


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Made once for all tests."""
    with running_spark() as session:
        yield session


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker of a parallel run has them all, so that there is one session."""
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("spark"))
