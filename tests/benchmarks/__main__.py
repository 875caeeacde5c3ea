"""`python -m tests.benchmarks`: measures and prints JSON on standard output."""

import argparse
import json
import platform
import sys
import time
from importlib.metadata import version
from typing import Any

from index.engines import ENGINES
from semantic import Matcher
from tests.benchmarks.full_scan_ratios import ratio, summary
from tests.benchmarks.measuring import repeated
from tests.benchmarks.workload_kinds import Kinds, kinds
from tests.benchmarks.workload_papers import WORKLOADS

SIZES = (1_000, 10_000)
PAPER_SIZES = (100_000,)
"""More need minutes to be added."""
EVENTS = 200
"""Few enough that the full scan ends today; the rate of an engine does not depend on it."""


def measure(workload: Kinds, engine: str) -> dict[str, Any]:
    """One engine on one workload: seconds to add, seconds to match, and what follows."""
    matcher = Matcher(workload.vocabulary, engine=engine)
    began = time.perf_counter()
    matcher.add_many(workload.subscriptions)
    added = time.perf_counter() - began

    def match() -> int:
        return sum(len(found) for found in matcher.match_batch(workload.events))

    matches = match()
    seconds = repeated(match)
    return {
        "engine": engine,
        **workload.description,
        "matches": matches,
        "add_seconds": round(added, 4),
        "match_seconds": {name: round(value, 5) for name, value in seconds.items()},
        "events_per_second": round(len(workload.events) / seconds["median"]),
    }


def main() -> int:
    """Runs the sweep. Returns 1 when engines disagree about the number of matches."""
    options = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    options.add_argument("--subscriptions", type=int, nargs="+", default=SIZES, help="sizes to sweep")
    options.add_argument("--events", type=int, default=EVENTS, help="events of one batch")
    options.add_argument("--engines", nargs="+", choices=sorted(ENGINES), default=sorted(ENGINES))
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--papers", nargs="*", choices=WORKLOADS, default=WORKLOADS, help="workloads against the scan")
    options.add_argument("--paper-subscriptions", type=int, nargs="+", default=PAPER_SIZES, help="their sizes")
    options.add_argument("--paper-engines", nargs="+", choices=sorted(ENGINES), default=["fused"])
    options.add_argument("--height", type=int, default=5, help="of the trees of W3 and W4")
    options.add_argument("--threads", type=int, default=1, help="of match_table")
    given = options.parse_args()
    results: list[dict[str, Any]] = []
    for size in given.subscriptions:
        workload = kinds(subscriptions=size, events=given.events, seed=given.seed)
        for engine in given.engines:
            print(f"{size:,} subscriptions, engine {engine} …", file=sys.stderr)  # noqa: T201 - a command
            results.append(measure(workload, engine))
        if len({result["matches"] for result in results if result["subscriptions"] == size}) > 1:
            print("the engines disagree; no figure of this run means anything", file=sys.stderr)  # noqa: T201
            return 1
    papers: list[dict[str, Any]] = []
    for name in given.papers:
        for size in given.paper_subscriptions:
            for engine in given.paper_engines:
                papers.append(
                    ratio(
                        name,
                        subscriptions=size,
                        engine=engine,
                        seed=given.seed,
                        height=given.height,
                        threads=given.threads,
                    )
                )
                summary(papers[-1])
    machine = {"python": platform.python_version(), "system": platform.system(), "processor": platform.machine()}
    report = {"kindcast": version("kindcast"), "machine": machine, "results": results, "full_scan_ratios": papers}
    print(json.dumps(report, indent=2))  # noqa: T201 - the result of the command
    return 0


if __name__ == "__main__":
    sys.exit(main())
