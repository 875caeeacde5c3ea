"""A sample of the campaign `agreement` through Spark, in the session that all tests share."""

import pytest
from pyspark.sql import SparkSession

from tests.campaigns.agreement import compare, drawing


@pytest.mark.slow
def test_agreement_of_spark_over_small_worlds(spark: SparkSession) -> None:
    """Two worlds in one job, each pair of subscription and event decided as the oracle does."""
    drawings = [drawing(number, 2, subscriptions=40, published=25) for number in range(2)]
    assert list(compare(drawings, ["spark"], spark)) == []
