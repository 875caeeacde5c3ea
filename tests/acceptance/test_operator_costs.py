"""What publishing costs in calls of remote operators: counted at a real HTTP service, beside the library's plan.

A real server process. Some calls fail, some never answer, and the server is killed with SIGKILL while calls are under
way; the calls that this spoils do not count, all others do.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.operator_costs import COSTS, CostService, Question, Trouble, Workload, library_cost, running_costs
from tests.harness.server_process import ServerProcess, running_server

PATIENCE_SECONDS = 60.0
MOST = 1.1
"""Times the cost of the library's plan."""
TRIES = 3
"""On a busy machine calls take longer than they cost, so the server learns other costs than the library: other work can
only add to what it pays."""
ENVIRONMENT = {
    "KINDCAST_ALLOW_PRIVATE_SINKS": "true",
    "KINDCAST_PLUGINS": "false",
    "KINDCAST_OPERATOR_DELAYS_SECONDS": str([0.3] * 100),
}


@contextmanager
def publishing(
    folder: Path, workload: Workload, planner: str, **more: Any
) -> Iterator[tuple[ServerProcess, httpx.Client, CostService, list[str]]]:
    """A server with the subscriptions of a workload, and their ids."""
    with (
        running_costs() as service,
        running_server(folder, ENVIRONMENT | {"KINDCAST_PLANNER": planner}) as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=60.0) as client,
    ):
        for name in COSTS:
            client.put(f"/v1/operators/{name}", json=service.registration(name, **more)).raise_for_status()
        created = (client.post("/v1/subscriptions", json={"expression": each}) for each in workload.expressions)
        yield server, client, service, [each.raise_for_status().json()["id"] for each in created]


def publish(client: httpx.Client, number: int) -> None:
    headers = {"ce-id": str(number), "ce-source": "s", "Connection": "close"}
    client.post("/v1/events", json={"n": number}, headers=headers).raise_for_status()


def wait_until_decided(client: httpx.Client) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        told = client.get("/metrics", headers={"Connection": "close"}).text
        if "\nkindcast_parked_waiting 0.0" in told:
            return
        time.sleep(0.05)
    raise AssertionError("operators did not decide in time")


def matches(client: httpx.Client, ids: list[str]) -> list[list[int]]:
    """The numbers of the events that each subscription got."""
    pages = (client.get(f"/v1/subscriptions/{id}/events?limit=1000", headers={"Connection": "close"}) for id in ids)
    return [sorted(each["event"]["data"]["n"] for each in page.json()["events"]) for page in pages]


def expected(workload: Workload) -> list[list[int]]:
    got: list[list[int]] = [[] for _ in workload.calls]
    for number in workload.events:
        for subscription in workload.matches(number):
            got[subscription].append(number)
    return got


@pytest.mark.slow
def test_publishing_costs_what_the_library_plans_in_spite_of_failures_and_a_kill(tmp_path: Path) -> None:
    """Everybody gets what is theirs, once, for at most a tenth more than the library's plan for the same truth."""
    workload = Workload(events=12)
    least = min_cost(lambda number: cost_with_troubles(tmp_path / str(number), workload), library_cost(workload))
    assert least <= MOST * library_cost(workload)


def min_cost(run: Callable[[int], float], plan: float) -> float:
    """The lowest cost of some runs; as soon as one is low enough, there are no more."""
    costs: list[float] = []
    while len(costs) < TRIES and min(costs, default=math.inf) > MOST * plan:
        costs.append(run(len(costs)))
    return min(costs)


def cost_with_troubles(folder: Path, workload: Workload) -> float:
    """The cost of publishing while calls fail, hang, and the server is killed."""

    def trouble(question: Question, times: int) -> Trouble:
        operator, argument, number = question
        if times > 1 or number >= 6:
            return "none"
        if operator == "dear" and (argument + number) % 12 == 0:
            return "hangs"
        return "fails" if (argument + number) % 9 == 0 else "none"

    with publishing(folder, workload, "greedy", timeout_seconds=5.0) as (server, client, service, ids):
        service.trouble = trouble
        for number in workload.events[:6]:
            publish(client, number)
        wait_until_decided(client)
        assert {each.trouble for each in service.requests} == {"none", "fails", "hangs"}
        for number in workload.events[6:11]:
            publish(client, number)
        wait_until_decided(client)
        before = len(service.requests)
        publish(client, workload.events[11])
        while not any(each.end is None for each in service.requests[before:]):
            time.sleep(0.001)
        killed = time.monotonic()
        server.kill()
        time.sleep(0.3)
        server.start()
        cut_short = (killed, time.monotonic())
        wait_until_decided(client)
        assert matches(client, ids) == expected(workload)
        spoilt = [each for each in service.requests[before:] if each not in service.counted(killed=[cut_short])]
        assert spoilt
        return service.cost(killed=[cut_short])


@pytest.mark.slow
def test_publishing_with_the_naive_planner_costs_more(tmp_path: Path) -> None:
    """The setting `planner` is what decides: naive pays for the order that is written, as it does in the library."""
    workload = Workload(events=3)

    def run(number: int) -> float:
        with publishing(tmp_path / str(number), workload, "naive") as (_, client, service, ids):
            for event in workload.events:
                publish(client, event)
            wait_until_decided(client)
            assert matches(client, ids) == expected(workload)
            return service.cost()

    plan = library_cost(workload, "naive")
    cost = min_cost(run, plan)
    assert cost <= MOST * plan
    assert cost > 3 * library_cost(workload)
