"""The same events through HTTP and through each kind of broker give the same matches, with a kill of each part once:
a sample of the campaign `pairs`."""

from pathlib import Path

import pytest

from tests.harness.event_pairs import BROKERS, DrawnEvents, by_broker, by_http

EVENTS = DrawnEvents(seed=16, count=800)

pytestmark = [
    pytest.mark.slow,
    # aiormq forgets a coroutine where a connection breaks as it is made
    pytest.mark.filterwarnings("ignore:coroutine 'Connection.close' was never awaited:RuntimeWarning"),
]


def test_events_over_http_match_as_they_should(tmp_path: Path) -> None:
    """The server is killed in the middle of a batch."""
    assert by_http(tmp_path, EVENTS).pairs == EVENTS.pairs()


@pytest.mark.parametrize("name", BROKERS)
def test_events_through_a_broker_match_as_over_http(tmp_path: Path, name: str) -> None:
    """Connector, server, connections and broker are killed, each once; Kafka's mock cluster is not."""
    found = by_broker(tmp_path, EVENTS, name)
    assert found.wrong == []
    assert found.pairs == EVENTS.pairs()
