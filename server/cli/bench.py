"""The command `kindcast bench`: the speed of a temporary server on this machine.

The benchmarks of the repository (`make bench`) put the same load on a server.
"""

import time
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from kindcast.server.cli import output
from kindcast.server.cli.demo import DemoServerFailed, running_server
from kindcast.server.cli.output import CommandFailed

if TYPE_CHECKING:
    from rich.progress import Progress

LINES = 1_000
"""The number of subscriptions in a request."""
MAX_SUBSCRIPTIONS = 1_000_000
WARM_UP_SECONDS = 2.0
"""Each load runs so long before it is measured, because a new server still builds what it uses later."""


def bench(
    subscriptions: Annotated[
        int,
        typer.Option(
            "--subscriptions", min=1, max=MAX_SUBSCRIPTIONS, metavar="COUNT", help="How many subscriptions there are."
        ),
    ] = 10_000,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="SECONDS", min=0.1, max=600.0, help="How long each load lasts.")
    ] = 5.0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure how many events a second a server on this machine accepts, and how long a publisher waits.

    It starts a temporary server with a database on disk, creates subscriptions, and publishes events of four values,
    each of which matches two or three subscriptions. The clients run on the same machine and take a part of its time.
    """
    from kindcast.server.cli.bench_load import CONNECTIONS

    try:
        with running_server() as url, output.progress() as bar:
            taken = _subscribe(url, subscriptions, bar)
            runs = [_run(url, subscriptions, events, seconds, bar) for events in CONNECTIONS]
    except DemoServerFailed as error:
        raise CommandFailed(str(error)) from error
    if json:
        output.print_json({"subscriptions": subscriptions, "import_seconds": round(taken, 2), "runs": runs})
        return
    output.paragraph(f"{output.plural(subscriptions, 'subscription')} created in {taken:.1f} s")
    output.table(
        ("events a request", "connections", "events a second", "median wait", "99 % wait at most"),
        [
            (
                *(f"{run[name]:,}" for name in ("events_a_request", "connections", "events_a_second")),
                *(f"{run[name]:.1f} ms" for name in ("median_ms", "p99_ms")),
            )
            for run in runs
        ],
    )


def _subscribe(url: str, count: int, bar: "Progress") -> float:
    """Creates the subscriptions. Returns the seconds that this took."""
    from kindcast.server.cli.bench_load import lines
    from kindcast.server.client import Client

    task = bar.add_task("subscriptions", total=count)
    began = time.perf_counter()
    with Client(url) as client:
        for start in range(0, count, LINES):
            end = min(start + LINES, count)
            client.import_subscriptions(lines(start, end))
            bar.update(task, completed=end)
    return time.perf_counter() - began


def _run(url: str, subscriptions: int, events: int, seconds: float, bar: "Progress") -> dict[str, Any]:
    import asyncio
    from statistics import median, quantiles

    from kindcast.server.cli.bench_load import CONNECTIONS, bodies, load

    task = bar.add_task(f"{output.plural(events, 'event')} a request", total=None)
    port, given, connections = urlsplit(url).port or 0, bodies(subscriptions, events), CONNECTIONS[events]
    asyncio.run(load(port, given, events, connections, WARM_UP_SECONDS))
    found = asyncio.run(load(port, given, events, connections, seconds))
    bar.remove_task(task)
    return {
        "events_a_request": events,
        "connections": connections,
        "events_a_second": round(found.rate * events),
        "median_ms": round(median(found.waits) * 1e3, 2),
        "p99_ms": round(quantiles(found.waits, n=100, method="inclusive")[-1] * 1e3, 2),
    }
