"""`make campaign`: the campaigns; `make campaign agreement`: one of them; its line is kept in docs/campaigns.md.

python -m tests.campaigns
python -m tests.campaigns agreement --pairs 1000000 --seed 7
"""

import argparse
import importlib
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from tests.campaigns.campaign import STATE, Campaign, another_seed, bar

NAMES = (
    "agreement",
    "connectors",
    "deliveries",
    "fuzz",
    "graphs",
    "hostile",
    "kills",
    "neighbours",
    "pairs",
    "requests",
    "servers",
    "soak",
    "tenants",
    "w3c",
)
PAGE = Path(__file__).resolve().parents[2] / "docs" / "campaigns.md"
END = "<!-- further runs are added above this line -->"


def campaign(name: str) -> Campaign:
    """The module of a campaign; imported when it is needed, since one of them needs Spark."""
    return cast("Campaign", importlib.import_module(f"tests.campaigns.{name}"))


def main(arguments: list[str]) -> int:
    """The exit status: 1 where anything failed."""
    if not arguments or arguments[0] not in NAMES:
        for name in NAMES:
            sys.stdout.write(f"  make campaign {name:<10} {campaign(name).ABOUT}\n")
        return 0 if not arguments else 2
    name = arguments[0]
    parser = argparse.ArgumentParser(prog=f"python -m tests.campaigns {name}", description=campaign(name).ABOUT)
    parser.add_argument("--seed", type=int, default=None, help="of all that is drawn; default: another one each time")
    parser.add_argument("--dry", action="store_true", help="do not keep the result in docs/campaigns.md")
    campaign(name).add_options(parser)
    options = parser.parse_args(arguments[1:])
    if options.seed is None:
        options.seed = another_seed()
    sys.stdout.write(f"campaign {name}, seed {options.seed}\n")
    sys.stdout.flush()
    began = time.monotonic()
    outcome = campaign(name).run(options, bar())
    minutes = (time.monotonic() - began) / 60
    sys.stdout.write(f"{outcome.summary}\n")
    for failure in outcome.failures[:20]:
        sys.stdout.write(f"  {failure}\n")
    if outcome.failures:
        STATE.mkdir(parents=True, exist_ok=True)
        place = STATE / f"{name}-{options.seed}-failures.txt"
        place.write_text("\n".join(outcome.failures) + "\n", encoding="utf-8")
        sys.stdout.write(f"{len(outcome.failures)} failures, all in {place}\n")
    if outcome.kept and not options.dry:
        keep(name, options.seed, outcome.summary, minutes)
    return 1 if outcome.failures else 0


def keep(name: str, seed: int, summary: str, minutes: float) -> None:
    """A line of the table in docs/campaigns.md."""
    day = datetime.now(UTC).date().isoformat()
    line = f"| {day} | {name} | {seed} | {minutes:,.0f} min on {os.cpu_count()} cores | {summary} |\n"
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(text.replace(END, line + END), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
