"""Several servers on one PostgreSQL, under load, with a mishap each round: a server is killed, stopped or paused, or
the database breaks off.

Each part is `tests/acceptance/test_several_servers.py` with a seed and so many rounds, on a new cluster. The data and
the log of each server of a part that failed are kept in `build/campaigns/servers/SEED`.
"""

import argparse
from collections import Counter
from typing import Any

from tests.campaigns.campaign import STATE, Outcome, Told, part_of_test

__all__ = ["ABOUT", "add_options", "run"]

ABOUT = "servers that share a PostgreSQL database lose nothing, and match by the order of commits"
OF_ONE_PART = 20


def add_options(parser: argparse.ArgumentParser) -> None:
    """How often, and how many servers."""
    parser.add_argument("--rounds", type=int, default=200, help=f"in all, in parts of {OF_ONE_PART}")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--later", type=int, default=0, help="of them, servers of a version with one more layout")
    parser.add_argument("--shards", type=int, choices=(0, 4), default=0, help="parts of the subscriptions; 0: none")
    parser.add_argument("--tenant", choices=("shop",), help="not in the tenant `default` but in this one")


def run(options: Any, told: Told) -> Outcome:
    """Parts one after the other."""
    done, failures, parts, counted = 0, [], 0, Counter[str]()
    while done < options.rounds:
        told(done, options.rounds, f"{done} rounds, {len(failures)} parts failed")
        rounds = min(OF_ONE_PART, options.rounds - done)
        problem, more = part(options.seed + parts, rounds, options)
        counted.update(more)
        if problem:
            failures.append(f"seed {options.seed + parts}, {rounds} rounds:\n{problem}")
        done, parts = done + rounds, parts + 1
    told(done, options.rounds, f"{done} rounds, {len(failures)} parts failed")
    said = ", ".join(f"{number:,} {what}" for what, number in sorted(counted.items()))
    failed = f"{len(failures)} of {parts} parts failed"
    parts_of = (
        f", {options.shards} shards" if options.shards else f", tenant {options.tenant}" if options.tenant else ""
    )
    later = f", {options.later} of a later version" if options.later else ""
    return Outcome(f"{done} rounds with {options.servers} servers{later}{parts_of} ({said}): {failed}", failures)


def part(seed: int, rounds: int, options: Any) -> tuple[str, dict[str, int]]:
    """The end of what pytest said where it failed, and what was done."""
    folder = STATE / "servers" / str(seed)
    variables = {
        "KINDCAST_SERVERS_FOLDER": str(folder),
        "KINDCAST_SERVERS_ROUNDS": str(rounds),
        "KINDCAST_SERVERS_SEED": str(seed),
        "KINDCAST_SERVERS": str(options.servers),
        "KINDCAST_SERVERS_LATER": str(options.later),
    }
    test = "tests/acceptance/test_several_servers.py::test_what_one_server_acknowledged_holds_at_the_others"
    return part_of_test(folder, f"{test}[{options.shards or None}-{options.tenant}]", variables)
