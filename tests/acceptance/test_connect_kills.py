"""Broker, connector, server and their connections are killed while messages flow: nothing is lost, and nothing that was
published once is accepted twice. `KINDCAST_CONNECTOR_ROUNDS` and `KINDCAST_CONNECTOR_SEED` make it
longer and other."""

import os
from pathlib import Path

import pytest

from tests.harness.brokers import running_kafka, running_mosquitto, running_nats, running_rabbitmq
from tests.harness.connector_kills import Kills
from tests.harness.server_process import running_server

ROUNDS = int(os.environ.get("KINDCAST_CONNECTOR_ROUNDS", "4"))
SEED = int(os.environ.get("KINDCAST_CONNECTOR_SEED", "1"))

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("broker", ["mosquitto", "mosquitto with ids", "nats", "rabbitmq", "kafka"])
def test_connect_killed_again_and_again_loses_nothing(broker: str, tmp_path: Path) -> None:
    """Plain JSON, a tenth of it equal to each other, without ids of its own; each part is killed with SIGKILL.

    mosquitto itself is killed only where messages have ids: it saves acknowledgements later than it takes them, and
    sends what was acknowledged again after a kill, as new messages."""
    brokers = {
        "mosquitto": lambda: running_mosquitto(tmp_path / "broker"),
        "nats": lambda: running_nats(tmp_path / "broker"),
        "rabbitmq": lambda: running_rabbitmq(tmp_path / "broker"),
        "kafka": running_kafka,
    }
    with brokers[broker.partition(" ")[0]]() as running, running_server(tmp_path / "server") as server:
        ids = broker.endswith("with ids")
        kinds = ("connector", "server", "connection", *(() if broker == "mosquitto" else ("broker",)))
        folder = tmp_path / "connector"
        kills = Kills(broker=running, server=server, folder=folder, seed=SEED, ids=ids, kinds=kinds)
        wrong = kills.run(ROUNDS)
    assert wrong == []
    assert sum(kills.done.values()) == ROUNDS
