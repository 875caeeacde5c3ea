"""How many events a second one server and two servers on one PostgreSQL accept, and what they wait for."""

import asyncio
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, text

from kindcast.server.cli.bench_load import bodies, load
from tests.benchmarks.baselines.postgres import missing
from tests.benchmarks.experiments import publish_rates
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.harness.postgresql import driver_url, running_postgresql
from tests.harness.server_process import running_server

NAME = "several_servers"
TITLE = "Accepted events a second, by servers on one PostgreSQL"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("servers", "events a second", log_y=True, bars=True)
SEED = 1

SIZES: dict[Scale, int] = {"quick": 1_000, "default": 100_000, "full": 100_000}
SERVERS = (1, 2)
CONNECTIONS = {1: 32, 100: 8}
"""Clients that each wait for their answer, by the events in a request; the servers share them."""
SECONDS: dict[Scale, float] = {"quick": 1.0, "default": 10.0, "full": 30.0}
ROUNDS = 3
SAMPLE_SECONDS = 0.02


def tasks(scale: Scale) -> Sequence[Task]:
    """Singles, and batches of a hundred; none where there is no PostgreSQL."""
    if missing():
        return []
    return [
        Task(
            "singles" if events == 1 else f"batches of {events}",
            str(servers),
            {"n": SIZES[scale], "events": events, "servers": servers, "seconds": SECONDS[scale]},
        )
        for events in CONNECTIONS
        for servers in SERVERS
    ]


def measure(*, n: int, events: int, servers: int, seconds: float) -> dict[str, Any]:
    """The best of some rounds: events and commits a second, the cores that the servers and PostgreSQL took, and in
    which share of the samples a server was waiting for the lock of another one (`waits`), PostgreSQL for the disk
    (`disk`), and PostgreSQL for a server that held the lock (`held`)."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        database = stack.enter_context(running_postgresql()).new_database()
        environment = {"KINDCAST_DATABASE": database, "KINDCAST_PLUGINS": "false"}
        running = [stack.enter_context(running_server(Path(folder) / "server-0", environment))]
        publish_rates.subscribe(running[0].url, n)
        for number in range(1, servers):
            running.append(stack.enter_context(running_server(Path(folder) / f"server-{number}", environment)))
        engine = create_engine(driver_url(database), isolation_level="AUTOCOMMIT")
        stack.callback(engine.dispose)
        best: dict[str, Any] = {"y": 0}
        for _ in range(ROUNDS):
            before = [publish_rates.cpu_seconds(each.number) for each in running]
            commits, others = _commits(engine), _postgresql_seconds(engine)
            with _sampled(engine) as waits:
                rate = asyncio.run(_load([each.port for each in running], n, events, seconds)) * events
            used = sum(publish_rates.cpu_seconds(each.number) for each in running) - sum(before)
            groups = (_commits(engine) - commits) / seconds
            if rate > best["y"]:
                best = {
                    "y": round(rate),
                    "groups_a_second": round(groups, 1),
                    "events_a_group": round(rate / groups, 1),
                    "server_cores": round(used / seconds, 2),
                    "postgresql_cores": round((_postgresql_seconds(engine) - others) / seconds, 2),
                    **{name: round(waits[name] / max(1, waits["samples"]), 2) for name in ("waits", "held", "disk")},
                }
    return best


async def _load(ports: Sequence[int], n: int, events: int, seconds: float) -> float:
    """Requests a second that were answered 202, by all servers."""
    given = bodies(n, events), events, CONNECTIONS[events] // len(ports), seconds
    return sum(each.rate for each in await asyncio.gather(*(load(port, *given) for port in ports)))


def _commits(engine: Any) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT commits FROM ledger")).scalar_one())


def _postgresql_seconds(engine: Any) -> float:
    """What the processes of the clients' connections have used until now."""
    with engine.connect() as connection:
        processes = connection.execute(text("SELECT pid FROM pg_stat_activity")).scalars().all()
    found = 0.0
    for each in processes:
        try:
            found += publish_rates.cpu_seconds(each)
        except FileNotFoundError:
            continue  # it has ended
    return found


@contextmanager
def _sampled(engine: Any) -> Iterator[Counter[str]]:
    """Counts what the connections of the database wait for, until the block ends."""
    found: Counter[str] = Counter()
    over = threading.Event()
    query = text(
        "SELECT bool_or(wait_event_type = 'Lock'), bool_or(state = 'idle in transaction'),"
        " bool_or(wait_event_type = 'IO' AND wait_event LIKE 'WAL%') FROM pg_stat_activity"
    )

    def run() -> None:
        with engine.connect() as connection:
            while not over.wait(SAMPLE_SECONDS):
                lock, held, disk = connection.execute(query).one()
                found.update(samples=1, waits=bool(lock), held=bool(held), disk=bool(disk))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
