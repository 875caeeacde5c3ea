"""SIGKILL in the middle of publishing, many times, with a real process: nothing that was promised is lost.

KINDCAST_KILL_ROUNDS sets the number of kills (4 by default), KINDCAST_KILL_SEED the choices of a run (1 by default;
`make campaign kills` takes others); on a failure the history is left in KINDCAST_KILL_HISTORY, or in the test's
folder, as JSON lines. A hundred rounds take longer than pytest lets a test hang:
KINDCAST_KILL_ROUNDS=100 pytest -o faulthandler_timeout=0 tests/acceptance/test_kill.py
"""

import os
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from kindcast import Client
from kindcast.server.store.backup import MAIN, check
from tests.harness.crash_history import broken_promises
from tests.harness.crash_run import CrashRun
from tests.harness.killed_server import VARIABLE
from tests.harness.receiver import running_receiver
from tests.harness.server_process import running_server

ROUNDS = int(os.environ.get("KINDCAST_KILL_ROUNDS", "4"))
SEED = int(os.environ.get("KINDCAST_KILL_SEED", "1"))

ENVIRONMENT = {
    "KINDCAST_ALLOW_PRIVATE_SINKS": "true",
    "KINDCAST_WEBHOOK_DELAYS_SECONDS": "[0.1, 0.1, 0.1, 0.5, 0.5, 0.5]",
}


@pytest.mark.slow
def test_server_killed_again_and_again_keeps_every_promise(tmp_path: Path) -> None:
    """Events answered with 202, subscriptions answered with 201, acknowledgements, order, and webhooks at least
    once."""
    with (
        running_receiver() as receiver,
        running_server(tmp_path / "data", ENVIRONMENT, start=False, module="tests.harness.killed_server") as server,
        Client(server.url) as client,
    ):
        run = CrashRun(server, client, receiver, random.Random(SEED))
        run.prepare()
        for number in range(ROUNDS):
            run.round(number)
        server.start(**{VARIABLE: ""})
        run.check_keys()
        run.settle_doubts()
        pulled = run.pulled()
        run.wait_for_webhooks(pulled)
        arrived: dict[str, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
        for request in receiver.requests():
            arrived[request.path].append((request.headers["webhook-id"], request.message))
        stored, books = run.stored(), run.books()
        checked = check(f"sqlite:///{tmp_path / 'data' / MAIN}")
        broken = broken_promises(run.history, stored, pulled, arrived)
    folder = Path(os.environ.get("KINDCAST_KILL_HISTORY", tmp_path))
    where = "" if not broken else run.history.write(folder / f"kill-{SEED}.ndjson")
    assert broken == [], f"seed {SEED}, history in {where}"
    assert run.history.in_doubt() == {}
    assert checked.damage == []  # counts what waits, and compares it with the ledger
    parts = ("matches_delivered", "matches_pending", "dead_letters", "matches_discarded")
    assert books["events_accepted"] == len(stored)
    assert books["matches"] == sum(books[part] for part in parts)
    assert len(run.history.sent) > ROUNDS, "the rounds were too short to publish anything"
