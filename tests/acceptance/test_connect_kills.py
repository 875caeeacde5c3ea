"""Broker, connector, server and their connections are killed while messages flow in and out: nothing is lost, nothing
that was published once is accepted twice, and what is delivered again is the same under the same cursor.
`KINDCAST_CONNECTOR_ROUNDS` and `KINDCAST_CONNECTOR_SEED` make it longer and other; logs are in
`KINDCAST_CONNECTOR_FOLDER`."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.harness.brokers import running_kafka, running_mosquitto, running_nats, running_rabbitmq, running_redis
from tests.harness.connector_kills import ENVIRONMENT, Kills
from tests.harness.server_process import running_server

ROUNDS = int(os.environ.get("KINDCAST_CONNECTOR_ROUNDS", "4"))
SEED = int(os.environ.get("KINDCAST_CONNECTOR_SEED", "1"))

pytestmark = [
    pytest.mark.slow,
    # aiormq forgets a coroutine where a connection breaks as it is made
    pytest.mark.filterwarnings("ignore:coroutine 'Connection.close' was never awaited:RuntimeWarning"),
]


@pytest.mark.parametrize("broker", ["mosquitto", "mosquitto with ids", "nats", "rabbitmq", "redis", "kafka"])
def test_connect_killed_again_and_again_loses_nothing(broker: str, tmp_path: Path) -> None:
    """Plain JSON, a tenth of it equal to each other, without ids of its own; each part is killed with SIGKILL.

    mosquitto itself is killed only where messages have ids: it saves acknowledgements later than it takes them, and
    sends what was acknowledged again after a kill, as new messages."""
    folder = Path(os.environ.get("KINDCAST_CONNECTOR_FOLDER", tmp_path))
    brokers = {
        "mosquitto": lambda: running_mosquitto(folder / "broker"),
        "nats": lambda: running_nats(folder / "broker"),
        "rabbitmq": lambda: running_rabbitmq(folder / "broker"),
        "redis": lambda: running_redis(folder / "broker"),
        "kafka": running_kafka,
    }
    with brokers[broker.partition(" ")[0]]() as running, running_server(folder / "server", ENVIRONMENT) as server:
        ids = broker.endswith("with ids")
        kinds = ("connector", "server", "connection", *(() if broker == "mosquitto" else ("broker",)))
        sink = broker != "redis"  # there are none at Redis
        place = folder / "connector"
        kills = Kills(broker=running, server=server, folder=place, seed=SEED, ids=ids, kinds=kinds, sink=sink)
        wrong = kills.run(ROUNDS)
    sys.stdout.write(f"\ndone: {json.dumps(kills.counted())}\n")  # for the campaign
    assert wrong == []
    assert sum(kills.done.values()) == ROUNDS


def test_connect_goes_on_however_often_its_connections_are_cut(tmp_path: Path) -> None:
    """Also in the middle of an acknowledgement, where the client library of RabbitMQ raises a bare `Exception`."""
    with running_rabbitmq(tmp_path / "broker") as running, running_server(tmp_path / "server") as server:
        folder = tmp_path / "connector"
        kills = Kills(
            broker=running, server=server, folder=folder, seed=SEED, each=60, kinds=("connection",), sink=False
        )
        assert kills.run(20) == []
