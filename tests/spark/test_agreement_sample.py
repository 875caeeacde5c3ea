"""A sample of the campaigns `agreement` and `graphs` through Spark, in the session that all tests share."""

import pytest
from pyspark.sql import SparkSession

from tests.campaigns import graphs
from tests.campaigns.agreement import compare, drawing


@pytest.mark.slow
def test_agreement_of_spark_over_small_worlds(spark: SparkSession) -> None:
    """Three worlds in one job, one of them with graphs: each pair is decided as the oracle does."""
    drawings = [drawing(number, 2, subscriptions=40, published=25) for number in range(2)]
    drawings.append(graphs.drawing(2, 2, subscriptions=40, published=10))
    assert list(compare(drawings, ["spark"], spark)) == []
