"""Routes of liveness, readiness, metrics, status, and the measurements of one day. Those without a key show no
confidential detail.
"""

import asyncio
import shutil
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Query, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from sqlalchemy import Connection, make_url, select

from kindcast.server.api.access import services_of
from kindcast.server.api.problem_types import Problem
from kindcast.server.api.requests import JSON, AppBroker, AppCaller, AppSettings, moment, reader_of
from kindcast.server.broker import Broker
from kindcast.server.broker.writer_thread import MOVED
from kindcast.server.clock import CLOCK
from kindcast.server.errors import StoreUnavailable
from kindcast.server.metrics import History, Stored
from kindcast.server.store.deliveries import webhooks_wait_since
from kindcast.server.store.ledger import read_totals
from kindcast.server.store.servers import members
from kindcast.server.store.shards import Lag, lags
from kindcast.server.store.subscriptions import count_by_status, count_flagged
from kindcast.server.store.system import KEYS_MOVED
from kindcast.server.store.tables import ledger

__all__ = ["router"]

router = APIRouter(tags=["health"])

T = TypeVar("T")

ANSWER_SECONDS = 10.0
"""How long the routes of the server's state wait for the database."""
FULL = 1 << 20
"""A disk with less free space than this, in bytes, counts as full. SQLite may still store small changes on it."""


@router.get("/healthz", summary="Is the process alive?")
async def healthz() -> dict[str, str]:
    """Returns `alive`. It accesses nothing else."""
    return {"status": "alive"}


def _keys_in_place(request: Request) -> bool:
    return bool(request.app.state.access.store.is_in_place)


@router.get("/readyz", summary="Is the server ready for requests?")
async def readyz(
    broker: AppBroker, settings: AppSettings, keys_in_place: Annotated[bool, Depends(_keys_in_place)]
) -> dict[str, str]:
    """Returns `ready`, or 503 if the broker does not run, the queue is too long, the store did not accept the last
    change (and does not accept one now), the disk of a SQLite database is full, its file is gone, the database is
    damaged, a command has waited longer than `max_command_seconds`, or a shard of this server is behind by more than
    `max_shard_lag_seconds`. A `warning` reports that the clock jumped ahead, that stored records are damaged, or that a
    shard at another server is behind. `check` is the progress of the check of all stored data, which begins at every
    start."""
    if not broker.is_in_place:
        raise Problem("not-ready", MOVED)
    if not keys_in_place:
        raise Problem("not-ready", KEYS_MOVED)
    if broker.trouble is not None and broker.damage.of_file is None:
        try:
            await _in_time(broker.execute(_touch))
        except StoreUnavailable:
            raise Problem("not-ready", broker.trouble or "the database does not accept changes") from None
    if broker.trouble is not None:
        raise Problem("not-ready", broker.trouble)
    if settings.is_sqlite and _is_full(Path(make_url(settings.database_url).database or "").parent):
        raise Problem("not-ready", "the disk of the database is full")
    if (waited := broker.oldest_wait) > settings.max_command_seconds:
        raise Problem("not-ready", f"the oldest waiting command has waited for {waited:.1f} s")
    behind = [each for each in await _in_time(_lags(broker)) if _seconds(each) > settings.max_shard_lag_seconds]
    for each in behind:
        if each.server == broker.name:
            raise Problem("not-ready", f"shard {each.shard} is {each.events:,} events, {_seconds(each):.0f} s behind")
    elsewhere = f"shards elsewhere are behind: {', '.join(str(each.shard) for each in behind)}" if behind else None
    told = {"status": "ready"}
    if warnings := [each for each in (CLOCK.trouble, broker.damage.summary, elsewhere) if each is not None]:
        told["warning"] = "; ".join(warnings)
    if broker.damage.progress is not None:
        told["check"] = broker.damage.progress
    return told


def _is_full(folder: Path) -> bool:
    """Whether the disk of a SQLite database is full."""
    return shutil.disk_usage(folder).free < FULL


@router.get("/v1/status", summary="Servers, queue, lag and ledger")
async def status(broker: AppBroker) -> dict[str, Any]:
    """Returns the state of this server and its database: `commits`; the `ledger`, whose totals add up; what waits in
    the `queue` of this server; `lag_seconds`, how long the oldest message to a sink has waited; on PostgreSQL all live
    servers, with the number of subscriptions for which each delivers, and the shards if matching is sharded. If the
    database does not answer, the answer is 503 within seconds."""

    def read(connection: Connection) -> dict[str, Any]:
        layout, commits = connection.execute(select(ledger.c.layout, ledger.c.commits)).one()
        totals = read_totals(connection)
        several = broker.leases.membership is not None
        return {
            "layout": layout,
            "commits": commits,
            "ledger": asdict(totals),
            "subscriptions": count_by_status(connection),
            "waits_since": webhooks_wait_since(connection) if totals.pending else None,
            "servers": [each._asdict() for each in members(connection)] if several else [],
        }

    told = await _in_time(broker.read(read))
    since = told.pop("waits_since")
    shards = [
        {
            "shard": each.shard,
            "server": each.server,
            "position": each.position,
            "events": each.events,
            "lag_seconds": round(_seconds(each), 3),
        }
        for each in await _in_time(_lags(broker))
    ]
    return {
        "server": broker.name,
        "program": f"kindcast {version('kindcast')}",
        "database": broker.database,
        "trouble": broker.trouble,
        "queue": {"waiting": broker.waiting, "oldest_seconds": round(broker.oldest_wait, 3)},
        "lag_seconds": 0.0 if since is None else round(max(0.0, CLOCK.now() - since), 3),
        **told,
        "shards": shards,
    }


@router.post("/v1/clock/confirm", summary="Confirm the time of this machine")
async def confirm_clock(broker: AppBroker) -> dict[str, str | None]:
    """Confirms that the time of this machine is right. After its clock jumped ahead, nothing expires and nothing is
    deleted until somebody confirms the new time. Then the new time applies, and what has expired by it expires. `was`
    is the problem that was reported before."""
    was = CLOCK.trouble
    CLOCK.restart()
    await broker.execute(_touch)
    return {"time": moment(CLOCK.now()), "was": was}


@router.get("/metrics", summary="Prometheus metrics", response_class=Response)
async def metrics(broker: AppBroker) -> Response:
    """Returns counters, gauges and histograms in Prometheus' text format. While the database cannot be read,
    `kindcast_database_up` is 0 and the metrics from the database are missing. While the other servers
    go on without this one, it does not read the database. If the network is cut, this would take longer than
    Prometheus waits."""

    def read(connection: Connection) -> Stored:
        behind = [] if broker.settings.shards is None else lags(connection)
        return Stored(
            read_totals(connection),
            count_by_status(connection),
            count_flagged(connection),
            {each.shard: (each.events, _seconds(each)) for each in behind},
        )

    stored = index_bytes = None
    if broker.is_current:
        with suppress(StoreUnavailable):
            stored = await _in_time(broker.read(read))
        with suppress(StoreUnavailable):
            index_bytes = await _in_time(broker.index_bytes())
    vocabulary = broker.vocabulary
    text = broker.metrics.text(
        stored,
        version=vocabulary.version,
        concepts=len(vocabulary),
        waiting=broker.waiting,
        index_bytes=index_bytes,
        index_allowed=broker.settings.index_bytes,
    )
    return Response(text, media_type=CONTENT_TYPE_LATEST)


async def _history(request: Request) -> History:
    history: History = services_of(request).history
    return history


@router.get("/v1/series", summary="The last day", tags=["events"])
async def series(
    history: Annotated[History, Depends(_history)],
    broker: AppBroker,
    caller: AppCaller,
    points: Annotated[int, Query(ge=2, le=2_880, description="Samples at most.")] = 720,
) -> Response:
    """Returns rates, times, queues and sizes of the last day, measured by this process every 30 seconds. They are lost
    at a restart. Values of the whole process, and so of all tenants, are shown only to callers who may act in all
    tenants; others get null. Callers from whom attributes are hidden get no operators: what was learned about them
    depends on the values."""
    operators = reader_of(caller, broker).view is None
    told = history.encoded(points, whole_process=caller.of_all, operators=operators)
    return Response(told, media_type=JSON)


async def _in_time(work: Coroutine[Any, Any, T]) -> T:
    """Returns what `work` returns. If the database does not answer in time, raises `StoreUnavailable`, and `work` goes
    on: a thread that waits for the database cannot be interrupted."""
    running = asyncio.create_task(work)
    running.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps nobody waits for it any more
    if not (await asyncio.wait({running}, timeout=ANSWER_SECONDS))[0]:
        raise StoreUnavailable(f"the database has not answered for {ANSWER_SECONDS:g} s")
    return running.result()


async def _lags(broker: Broker) -> list[Lag]:
    """Returns how far each shard is behind; an empty list if matching is not sharded."""
    return [] if broker.settings.shards is None else await broker.read(lags)


def _seconds(lag: Lag) -> float:
    return 0.0 if lag.oldest is None else max(0.0, CLOCK.now() - lag.oldest)


def _touch(connection: Connection) -> None:
    """Does nothing, so only the ledger is written."""
