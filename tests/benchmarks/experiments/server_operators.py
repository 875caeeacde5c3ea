"""What publishing costs in calls of remote operators: a real server and a real HTTP service, beside the library."""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.harness.operator_costs import COSTS, Workload, library_cost, running_costs
from tests.harness.server_process import running_server

NAME = "server_operators"
TITLE = "Remote operators: cost of publishing over the library's plan for the same truth"
PAPER = "three calls a subscription, the first cheap and selective; each planner beside itself in the library"
PAPER_SHAPE = ""
AXES = Axes("subscriptions", "seconds of calls, times the library's")
SEED = 1

SIZES: dict[Scale, Sequence[int]] = {"quick": (10,), "default": (30, 120), "full": (30, 120, 480)}
EVENTS: dict[Scale, int] = {"quick": 1, "default": 4, "full": 10}
PLANNERS = ("greedy", "sub_order", "sequential", "naive")
PATIENCE_SECONDS = 600.0


def tasks(scale: Scale) -> Sequence[Task]:
    """Planner by planner."""
    return [
        Task(planner, size, {"planner": planner, "subscriptions": size, "events": EVENTS[scale]})
        for planner in PLANNERS
        for size in SIZES[scale]
    ]


def measure(*, planner: str, subscriptions: int, events: int) -> dict[str, Any]:
    """Events published one after the other, decided side by side. `library`, `server`: seconds of the calls made;
    `over_greedy`: the server's over what `greedy` costs in the library."""
    workload = Workload(subscriptions, events, seed=SEED)
    environment = {
        "KINDCAST_ALLOW_PRIVATE_SINKS": "true",
        "KINDCAST_PLUGINS": "false",
        "KINDCAST_PLANNER": planner,
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        running_costs() as service,
        running_server(Path(folder), environment) as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=PATIENCE_SECONDS) as client,
    ):
        for name in COSTS:
            client.put(f"/v1/operators/{name}", json=service.registration(name)).raise_for_status()
        for expression in workload.expressions:
            client.post("/v1/subscriptions", json={"expression": expression}).raise_for_status()
        for number in workload.events:
            client.post("/v1/events", json={"n": number}).raise_for_status()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while "\nkindcast_parked_waiting 0.0" not in client.get("/metrics").text:
            if time.monotonic() > deadline:
                raise TimeoutError("operators did not decide in time")
            time.sleep(0.05)
        found = 'kindcast_parked_decided_total{result="matched"} '
        told = client.get("/metrics").text
        matches = next(float(line.removeprefix(found)) for line in told.splitlines() if line.startswith(found))
    spent, planned = service.cost(), library_cost(workload, planner)
    return {
        "y": round(spent / planned, 3),
        "server": round(spent, 2),
        "library": round(planned, 2),
        "over_greedy": round(spent / library_cost(workload), 3),
        "requests": len(service.counted()),
        "matches": int(matches),
    }
