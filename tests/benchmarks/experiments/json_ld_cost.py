"""What JSON-LD costs beside the same facts as plain nested JSON: one context, in one process and over HTTP."""

import gc
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec

from kindcast import Event, Matcher, Vocabulary
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.harness.server_process import running_server

NAME = "json_ld_cost"
TITLE = "JSON-LD beside the same facts as plain nested JSON"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("way of publishing", "times the cost of plain JSON", bars=True)
SEED = 1

SIZES: dict[Scale, int] = {"quick": 2_000, "default": 100_000, "full": 100_000}
ROUNDS: dict[Scale, int] = {"quick": 3, "default": 9, "full": 15}
ASKED = 2.5
EVENTS, SINGLES, PAGE = 1_000, 200, 1_000
"""Events of a batch; events that `match` is asked and HTTP is sent one by one; subscriptions that are added at once."""
EX = "http://example.org/shop#"
CONTEXT = {
    "id": "@id", "type": "@type", "xsd": "http://www.w3.org/2001/XMLSchema#", "shop": EX, "Offer": "shop:Offer",
    "Seller": "shop:Seller", "kind": "shop:kind", "price": "shop:price", "seller": "shop:seller", "name": "shop:name",
    "rating": {"@id": "shop:rating", "@type": "xsd:integer"}, "tags": {"@id": "shop:tags", "@container": "@set"},
    "site": {"@id": "shop:site", "@type": "@id"},
}  # fmt: skip
WAYS = ("match_batch", "match", "HTTP, batches", "HTTP, singles")


def tasks(scale: Scale) -> Sequence[Task]:
    """One bar for each way of publishing."""
    return [Task("kindcast", way, {"n": SIZES[scale], "way": way, "rounds": ROUNDS[scale]}) for way in WAYS]


def measure(*, n: int, way: str, rounds: int) -> dict[str, Any]:
    """Both forms in turn, the best round of each. One of `n` subscriptions asks for each kind of offer. Over HTTP the
    client's time counts on both sides; a JSON-LD event has its context with it, as publishers send it."""
    best = {"plain": float("inf"), "JSON-LD": float("inf")}
    matched = {"plain": 0, "JSON-LD": 0}
    if way.startswith("HTTP"):
        _over_http(n, way, rounds, best, matched)
    else:
        _in_process(n, way, rounds, best, matched)
    assert matched["plain"] == matched["JSON-LD"] > 0, matched
    return {
        "y": round(best["JSON-LD"] / best["plain"], 2),
        "asked": ASKED,
        "plain_us": round(best["plain"] * 1e6, 1),
        "json_ld_us": round(best["JSON-LD"] * 1e6, 1),
        "matches": matched["plain"],
    }


def _in_process(n: int, way: str, rounds: int, best: dict[str, float], matched: dict[str, int]) -> None:
    matcher = Matcher(Vocabulary())
    matcher.add_many((str(number), tree) for number, tree in enumerate(_trees(n)))
    gc.collect()
    gc.freeze()
    for round in range(rounds):
        for form in best:
            events = [Event(_data(form, number, n), _context(number)) for number in _numbers(round)]
            events = events if way == "match_batch" else events[:SINGLES]
            began = time.thread_time()
            if way == "match_batch":
                found = matcher.match_batch(events)
                took = time.thread_time() - began
                matched[form] += sum(map(len, found))
            else:
                each_found = [matcher.match(event) for event in events]
                took = time.thread_time() - began
                matched[form] += sum(map(len, each_found))
            best[form] = min(best[form], took / len(events))


def _over_http(n: int, way: str, rounds: int, best: dict[str, float], matched: dict[str, int]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server(Path(folder), {"KINDCAST_PLUGINS": "false"}) as server,
        httpx.Client(base_url=server.url, timeout=600, trust_env=False) as client,
    ):
        trees = _trees(n)
        for start in range(0, n, PAGE):
            lines = b"\n".join(msgspec.json.encode({"where": tree}) for tree in trees[start : start + PAGE])
            answer = client.post(
                "/v1/subscriptions/import", content=lines, headers={"Content-Type": "application/x-ndjson"}
            )
            answer.raise_for_status()
        for round in range(rounds):
            for form in best:
                events = [
                    {**_context(number, f"{form}-{round}-"), "data": _data(form, number, n)}
                    for number in _numbers(round)
                ]
                if way == "HTTP, batches":
                    bodies, kind = [msgspec.json.encode(events)], "application/cloudevents-batch+json"
                else:
                    bodies = [msgspec.json.encode(each) for each in events[:SINGLES]]
                    kind = "application/cloudevents+json"
                began = time.perf_counter()
                for body in bodies:
                    answer = client.post("/v1/events?verbose=false", content=body, headers={"Content-Type": kind})
                    assert answer.status_code == 202, answer.text
                    matched[form] += answer.json()["matched"]
                took = time.perf_counter() - began
                best[form] = min(best[form], took / (EVENTS if way == "HTTP, batches" else SINGLES))


def _trees(n: int) -> list[Any]:
    return [{"all": [{"=": ["kind", f"k{each}"]}, {">=": ["seller.rating", 1]}]} for each in range(n)]


def _numbers(round: int) -> range:
    return range(round * EVENTS, (round + 1) * EVENTS)


def _context(number: int, before: str = "") -> dict[str, str]:
    return {"specversion": "1.0", "id": f"{before}{number}", "source": "/benchmark", "type": "offer"}


def _data(form: str, number: int, n: int) -> dict[str, Any]:
    facts = {
        "id": f"urn:offer:{number}",
        "type": "Offer",
        "kind": f"k{number * 7_919 % n}",
        "price": 10.5 + number % 300,
        "seller": {"type": "Seller", "name": f"seller {number % 40}", "rating": 1 + number % 5},
        "tags": ["new", "sale"],
        "site": f"https://shop.example/{number % 50}",
    }
    return {"@context": CONTEXT, **facts} if form == "JSON-LD" else facts
