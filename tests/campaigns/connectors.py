"""Messages through a broker, `kindcast connect`, a server and back to the broker, with a kill each round: of the
connector, the server, all connections to the broker, or the broker.

Each part is `tests/acceptance/test_connect_kills.py` for one kind of broker, with a seed and so many kills; the parts
take the brokers in turn. Kafka's mock cluster lives in the process of the test, so it is not killed. Data and logs of a
part that failed are kept in `build/campaigns/connectors/SEED`.
"""

import argparse
from collections import Counter
from typing import Any

from tests.campaigns.campaign import STATE, Outcome, Told, part_of_test

__all__ = ["ABOUT", "add_options", "run"]

ABOUT = "brokers, connectors and servers that are killed lose no message, on the way in and on the way out"
BROKERS = ("mosquitto", "nats", "rabbitmq", "redis", "kafka", "mosquitto with ids")
OF_ONE_PART = 12


def add_options(parser: argparse.ArgumentParser) -> None:
    """How often, and with which brokers."""
    parser.add_argument("--kills", type=int, default=300, help=f"in all, in parts of {OF_ONE_PART}")
    parser.add_argument("--broker", action="append", choices=BROKERS, help="one of them; default: all in turn")


def run(options: Any, told: Told) -> Outcome:
    """Parts one after the other, each on new folders."""
    done, parts, counted = 0, 0, Counter[str]()
    failures: list[str] = []
    brokers = options.broker or BROKERS
    while done < options.kills:
        told(done, options.kills, f"{done} kills, {len(failures)} parts failed")
        kills, broker = min(OF_ONE_PART, options.kills - done), brokers[parts % len(brokers)]
        problem, more = part(options.seed + parts, kills, broker)
        counted.update(more)
        if problem:
            failures.append(f"seed {options.seed + parts}, {broker}, {kills} kills:\n{problem}")
        done, parts = done + kills, parts + 1
    told(done, options.kills, f"{done} kills, {len(failures)} parts failed")
    said = ", ".join(f"{number:,} {what}" for what, number in counted.items())
    summary = f"{done} kills ({said}): {len(failures)} of {parts} parts failed"
    return Outcome(summary, failures)


def part(seed: int, kills: int, broker: str) -> tuple[str, dict[str, int]]:
    """The end of what pytest said where it failed, and what was done."""
    folder = STATE / "connectors" / str(seed)
    variables = {
        "KINDCAST_CONNECTOR_FOLDER": str(folder),
        "KINDCAST_CONNECTOR_ROUNDS": str(kills),
        "KINDCAST_CONNECTOR_SEED": str(seed),
    }
    test = f"tests/acceptance/test_connect_kills.py::test_connect_killed_again_and_again_loses_nothing[{broker}]"
    return part_of_test(folder, test, variables)
