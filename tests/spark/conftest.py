"""The Spark session that every test here shares."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.harness.spark import running_spark


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Made once for all tests."""
    with running_spark() as session:
        yield session
