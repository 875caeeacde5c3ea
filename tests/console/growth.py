"""Whether a page that stays open grows: `python -m tests.console.growth --minutes 60`.

One browser for each page, a server, and events that never stop. Once a minute the script engine collects its garbage
and says how much memory, how many elements and how many listeners there are.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from kindcast.semantic.shipped_vocabularies import shipped
from tests.harness.browser import Browser, running_browser
from tests.harness.server_process import running_server

__all__ = ["measure"]

PAGES = ("live", "health", "deliveries")
PATHS = {"live": "#/live", "health": "#/health", "deliveries": "#/deliveries/{id}"}


def measure(minutes: float, every: float, rate: float) -> Iterator[tuple[float, str, float, int, int]]:
    """Minutes since the first look, page, MB of the script engine, elements, listeners: once `every` so many minutes,
    while `rate` events a second come."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        server = stack.enter_context(running_server(Path(folder) / "server"))
        address = server.url
        headers = {"Content-Type": "text/turtle"}
        httpx.put(f"{address}/v1/ontologies/shop", content=shipped("shop").read_bytes(), headers=headers)
        body = {"expression": "target isa Computer and price <= 400 USD"}
        id = httpx.post(f"{address}/v1/subscriptions", json=body).raise_for_status().json()["id"]
        stack.enter_context(_publishing(address, rate))
        browsers = {}
        for page in PAGES:
            browser = browsers[page] = stack.enter_context(running_browser(Path(folder) / page))
            browser.devtools("Performance.enable")
            browser.open(f"{address}/console{PATHS[page].format(id=id)}")
            browser.see("kindcast")
        time.sleep(min(60.0, minutes * 15.0))  # what is filled at first, such as the list of events, is full then
        began = time.monotonic()
        while True:
            for page, browser in browsers.items():
                yield (time.monotonic() - began) / 60.0, page, *_looked(browser)
            if time.monotonic() - began >= minutes * 60.0:
                return
            time.sleep(every * 60.0)


def _looked(browser: Browser) -> tuple[float, int, int]:
    browser.requested()  # the driver keeps the log of the network until it is read
    browser.devtools("HeapProfiler.collectGarbage")
    found = {each["name"]: each["value"] for each in browser.devtools("Performance.getMetrics")["metrics"]}
    return found["JSHeapUsedSize"] / 1e6, int(found["Nodes"]), int(found["JSEventListeners"])


@contextmanager
def _publishing(address: str, rate: float) -> Iterator[None]:
    stopped = threading.Event()

    def publish() -> None:
        words = ("台式机", "Notebook", "Desktop PC", "Chair", "Klapperkiste")
        number = 0
        with httpx.Client(base_url=address, timeout=60.0, trust_env=False) as client:
            while not stopped.wait(1.0 / rate):
                number += 1
                body = {"target": words[number % len(words)], "price": f"{number % 700} USD", "number": number}
                client.post("/v1/events", json=body)

    thread = threading.Thread(target=publish, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(60.0)


def main() -> None:
    """Prints a line at each look."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=1.0, help="minutes between two looks")
    parser.add_argument("--rate", type=float, default=10.0, help="events a second")
    asked = parser.parse_args()
    for minutes, page, heap, nodes, listeners in measure(asked.minutes, asked.every, asked.rate):
        sys.stdout.write(
            f"{minutes:6.1f} min  {page:10}  {heap:6.2f} MB  {nodes:6} elements  {listeners:6} listeners\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
