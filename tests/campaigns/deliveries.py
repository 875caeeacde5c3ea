"""Matches that a Spark stream found, delivered by a server that is killed again and again: each arrives once.

Each event matches ten of twenty subscriptions. The stream goes on while the server is away; a second run delivers what
the first one had left. Data and log of a run that failed are kept in `build/campaigns/deliveries/SEED`.
"""

import argparse
import json
import random
import shutil
import subprocess
from collections import Counter
from typing import Any

from tests.campaigns.campaign import STATE, Outcome, Told
from tests.harness.delivering_streams import DeliveringStreams

__all__ = ["ABOUT", "add_options", "run"]

ABOUT = "matches that a Spark stream found arrive once each, over kills of the server"
SUBSCRIPTIONS, MATCHED = 20, 10
EVENTS_IN_A_FILE = 5_000
SECONDS_BETWEEN_KILLS = (2.0, 15.0)


def add_options(parser: argparse.ArgumentParser) -> None:
    """How many."""
    parser.add_argument("--matches", type=int, default=1_000_000, help="in all")
    parser.add_argument("--kills", type=int, default=10, help="of the server, at most, while the stream runs")


def run(options: Any, told: Told) -> Outcome:
    """One stream, and a run after it."""
    draw, events = random.Random(options.seed), max(1, options.matches // MATCHED)
    folder = STATE / "deliveries" / str(options.seed)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    streams = DeliveringStreams(folder)
    try:
        streams.subscribe(**{f"s{number}": _expression(number) for number in range(SUBSCRIPTIONS)})
        _write(streams, events)
        kills = _run_with_kills(streams, draw, options.kills, told)
        status, last, errors = streams.once()
        failures = [f"the last run ended with {status}: {errors}"] if status else []
        told(1, 1, "counting what arrived")
        arrived = lost = repeated = wrong = 0
        for number in range(SUBSCRIPTIONS):
            expected = {each for each in range(events) if number in _matching(each)}
            counted = Counter(int(message["event"]["id"]) for message in streams.got(f"s{number}"))
            arrived += len(counted.keys() & expected)
            lost += len(expected - counted.keys())
            wrong += len(counted.keys() - expected)
            repeated += sum(counted.values()) - len(counted)
        if lost or repeated or wrong:
            failures.append(f"{lost} lost, {repeated} twice, {wrong} wrong; {folder}")
    finally:
        streams.server.kill()
    if not failures:
        shutil.rmtree(folder, ignore_errors=True)
    left = last.get("delivered", {}).get("matches", 0)
    summary = (
        f"{arrived:,} matches of {events:,} events, {kills} kills of the server, {left:,} delivered by the next run"
    )
    return Outcome(f"{summary}: {lost} lost, {repeated} twice, {wrong} wrong", failures)


def _expression(number: int) -> str:
    """Of a group of ten."""
    return f"n >= 0 and part = {number // MATCHED}"


def _matching(event: int) -> range:
    """The subscriptions that an event matches."""
    part = event % (SUBSCRIPTIONS // MATCHED)
    return range(part * MATCHED, (part + 1) * MATCHED)


def _write(streams: DeliveringStreams, events: int) -> None:
    for first in range(0, events, EVENTS_IN_A_FILE):
        numbers = range(first, min(events, first + EVENTS_IN_A_FILE))
        lines = [
            json.dumps(
                {
                    "specversion": "1.0",
                    "id": str(number),
                    "source": "/campaign",
                    "type": "reading",
                    "data": {"n": number, "part": number % (SUBSCRIPTIONS // MATCHED)},
                }
            )
            for number in numbers
        ]
        (streams.folder / "in" / f"{first:09}.ndjson").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _run_with_kills(streams: DeliveringStreams, draw: random.Random, most: int, told: Told) -> int:
    """A run that ends by itself; how often the server was killed meanwhile."""
    job, kills = streams.stream("--once"), 0
    while True:
        try:
            job.communicate(timeout=draw.uniform(*SECONDS_BETWEEN_KILLS))
            return kills
        except subprocess.TimeoutExpired:
            outbox = streams.folder.glob("out/batch=*/_outbox/*.ndjson")
            if kills < most and any(outbox):  # it is delivering
                streams.server.kill()
                streams.server.start()
                kills += 1
            told(kills, most + 1, f"{kills} kills")
