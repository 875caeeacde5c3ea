"""From an archive to the order of operators: what the job `learn` found out is where a fresh matcher, and a server,
begin."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kindcast import Matcher, Vocabulary, operator
from kindcast.semantic.planner.learning import Experience, read_priors

EVENTS = 60
PLUGIN = """from kindcast import operator

@operator(name="rare", cost=1.0, selectivity=0.5)
def rare(event: object, n: tuple) -> bool:
    return n[0] % 10 == 0

@operator(name="usual", cost=1.0, selectivity=0.5)
def usual(event: object, n: tuple) -> bool:
    return n[0] % 10 != 1

BOTH = [rare, usual]
"""
ASKED = "n > 0 and usual(@n) and rare(@n)"


def installed(folder: Path) -> Path:
    """A package with two operators, as pip would leave it."""
    folder.mkdir()
    (folder / "asking.py").write_text(PLUGIN, encoding="utf-8")
    told = folder / "asking-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: asking\nVersion: 1.0\n", encoding="utf-8")
    (told / "entry_points.txt").write_text("[kindcast.operators]\nasking = asking:BOTH\n", encoding="utf-8")
    return folder


def first_asked(records: list[dict[str, object]]) -> str:
    """Which of the two a matcher with these records asks first."""
    asked: list[str] = []

    @operator(name="rare", cost=1.0, selectivity=0.5)
    def rare(event: object, n: tuple[int, ...]) -> bool:
        asked.append("rare")
        return n[0] % 10 == 0

    @operator(name="usual", cost=1.0, selectivity=0.5)
    def usual(event: object, n: tuple[int, ...]) -> bool:
        asked.append("usual")
        return n[0] % 10 != 1

    matcher = Matcher(Vocabulary(), operators=(rare, usual))
    matcher.layer.learned(Experience.from_records(records))
    matcher.add("s", ASKED)
    matcher.match({"n": 7})
    return asked[0]


@pytest.mark.slow
def test_what_an_archive_taught_is_where_a_fresh_matcher_begins(tmp_path: Path, repository: Path) -> None:
    """Declared alike, so that only the archive can tell: the call that hardly ever holds is made first."""
    (tmp_path / "in").mkdir()
    lines = "".join(json.dumps({"n": number}) + "\n" for number in range(1, EVENTS + 1))
    (tmp_path / "in" / "events.ndjson").write_text(lines, encoding="utf-8")
    (tmp_path / "asked.ndjson").write_text(json.dumps({"id": "s", "expression": ASKED}) + "\n", encoding="utf-8")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "kindcast.server.cli", "spark", "learn", "--master", "local[1]"),
            *("--archive", str(tmp_path / "in"), "--output", str(tmp_path / "out")),
            *("--subscriptions", str(tmp_path / "asked.ndjson")),
        ],
        env=os.environ | {"PYTHONPATH": f"{installed(tmp_path / 'site')}:{repository}"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-1_000:]
    assert re.search(r"operator predicates +\S* *4\b", done.stdout), done.stdout
    records = [each | {"seconds": 0.0} for each in read_priors(tmp_path / "out" / "priors.json")]  # no matter how long
    known = {each["operator"]: each for each in records if each["predicate"] is None}
    assert known["rare"]["held"] / known["rare"]["asked"] < 0.3
    swapped = [each | {"operator": {"rare": "usual", "usual": "rare"}[each["operator"]]} for each in records]
    alone = [each for each in swapped if each["predicate"] is None]
    assert (first_asked(records), first_asked(alone)) == ("rare", "usual")
