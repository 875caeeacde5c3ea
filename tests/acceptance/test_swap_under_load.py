"""Versions swap back and forth while publishers, subscribers and streams run: nothing is lost, and nothing is mixed.

A real process on real sockets. Afterwards each event is matched again in this process, under the very version that its
record names, by a matcher of its own: what the server delivered must be exactly that, for every subscription, those
that were made in the middle of a swap too.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kindcast import Client, Matcher, ProblemError, Vocabulary
from tests.harness.server_process import running_server

PREFIXES = """
@prefix : <http://e/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> . @prefix dcterms: <http://purl.org/dc/terms/> .
:Computer rdfs:subClassOf :Thing . :Laptop rdfs:subClassOf :Computer ; rdfs:label "laptop", "Notebook"@de .
:Mobile rdfs:subClassOf :Thing . :Printer rdfs:subClassOf :Thing ; rdfs:label "printer" .
"""
FIRST = f"{PREFIXES} :Slate rdfs:subClassOf :Mobile ; rdfs:label 'slate' . :Fax rdfs:subClassOf :Printer ."
SECOND = f"""{PREFIXES} :Slate rdfs:subClassOf :Computer ; rdfs:label "slate", "tablet" .
:Laptop rdfs:subClassOf :Mobile .
:Tower rdfs:subClassOf :Computer ; rdfs:label "tower" . :Printer a owl:Class ; rdfs:label "Drucker"@de .
:Copier owl:deprecated true ; dcterms:isReplacedBy :Printer ."""
"""Slates move, laptops gain a parent, towers and words come, faxes go, copiers are read as printers."""

TARGETS = ("laptop", "Notebook", "slate", "tablet", "tower", "Drucker", "printer", "Fax", "Copier", "Mobile", "stone")
EXPRESSIONS = (
    *(f"target {test} <http://e/{name}>" for test in ("isa", "below") for name in ("Computer", "Mobile", "Printer")),
    "target isa <http://e/Fax>",
    "target is <http://e/Slate> and n < 50",
    "target isa <http://e/Computer> and not target isa <http://e/Mobile>",
    "not target isa <http://e/Fax>",
    "n >= 97",
)
ALWAYS = tuple(text for text in EXPRESSIONS if "Fax" not in text)
"""What can be subscribed to under either version."""
SWAPS = 10
PUBLISHERS = 3
BATCH = 40
LEAST = 1_200
"""Events at least: a fast machine must not be through before anything was swapped, nor a slow one wait for long."""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with running_server(tmp_path / "data") as process, Client(process.url) as client:
        yield client


class Load:
    """Threads that work until they are told to stop; what one of them raised is raised at the end."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    def start(self, work: Callable[[], None]) -> None:
        """Do `work` again and again in a thread of its own."""

        def run() -> None:
            try:
                while not self.stopping.is_set():
                    work()
            except BaseException as error:
                self._errors.append(error)
                self.stopping.set()

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def stop(self) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]


@pytest.mark.slow
def test_swap_under_load_loses_nothing_and_mixes_nothing(client: Client) -> None:
    """Every event that was accepted is there, once; every subscription gets exactly the events that match under the
    version of their record, in their order; both versions had their share."""
    versions = {put(client, document): document for document in (FIRST, SECOND)}
    first = next(iter(versions))
    client.activate_ontology("x", 1)
    made = [client.subscribe(expression) for expression in EXPRESSIONS]
    promised: dict[str, int] = {}
    streamed: list[dict[str, Any]] = []
    load, numbers, lock = Load(), iter(range(1_000_000_000)), threading.Lock()
    chance = random.Random(5)

    def publish() -> None:
        with lock:
            ids = [f"e{next(numbers)}" for _ in range(BATCH)]
        events = [
            {"specversion": "1.0", "type": "t", "source": "s", "id": id, "data": data}
            for id in ids
            for data in [{"target": chance.choice(TARGETS), "n": chance.randrange(100)}]
        ]
        answer = client.publish(events)
        assert answer["accepted"] == BATCH, answer
        with lock:
            promised.update((each["id"], each["sequence"]) for each in answer["events"])

    def subscribe() -> None:
        created = client.subscribe(chance.choice(ALWAYS))
        with lock:
            made.append(created)
        load.stopping.wait(0.05)

    def listen() -> None:
        for message in client.listen(made[0]["id"], after="0"):
            streamed.append(message)
            if load.stopping.is_set():
                return

    for work in (*[publish] * PUBLISHERS, subscribe, listen):
        load.start(work)
    try:
        swap_back_and_forth(client, load, lambda: len(promised))
    finally:
        load.stopping.set()
        client.publish({"target": "laptop", "n": 99})  # wakes the listener, whatever version is in force
        load.stop()

    stored = {each["sequence"]: each for each in pages(lambda after: client.events(after=after, limit=1_000)["events"])}
    assert promised.items() <= {each["event"]["id"]: sequence for sequence, each in stored.items()}.items()
    assert len(stored) == len(promised) + 1
    shares = Counter(each["vocabulary_version"] for each in stored.values())
    assert shares.keys() == versions.keys()
    assert min(shares.values()) > len(stored) // 20, shares

    vocabularies = [Vocabulary.from_bytes(text.encode(), format="turtle", name="x") for text in versions.values()]
    matchers = {each.version: Matcher(each) for each in vocabularies}
    assert matchers.keys() == versions.keys()
    tree = {text: matchers[first].compile(text).tree for text in EXPRESSIONS}
    for matcher in matchers.values():
        for text in EXPRESSIONS:
            matcher.restore(text, tree[text])
    wanted: dict[str, list[int]] = {text: [] for text in EXPRESSIONS}
    for sequence, each in stored.items():
        for match in matchers[each["vocabulary_version"]].match(each["event"]["data"]):
            wanted[match.subscription].append(sequence)

    for created in made:
        start = int(created["cursor"])
        messages = list(pages(lambda after: client.pull(created["id"], after=after, limit=1_000)["events"], start))  # noqa: B023
        got = [int(message["cursor"]) for message in messages]
        assert got == [sequence for sequence in wanted[created["expression"]] if sequence > start], created
        assert all(
            message["vocabulary_version"] == stored[int(message["cursor"])]["vocabulary_version"]
            for message in messages
        )
    told = [int(message["cursor"]) for message in streamed]
    assert told == wanted[EXPRESSIONS[0]][: len(told)]
    assert told

    totals = client.ontology("x")
    flagged = {each["expression"] for each in made if client.subscription(each["id"])["flagged"]}
    assert flagged == (set() if totals["version"] == 1 else {text for text in EXPRESSIONS if "Fax" in text})


def swap_back_and_forth(client: Client, load: Load, published: Callable[[], int]) -> None:
    """Versions by turns, some of them asked for by two at once, with a dry run and an unreadable upload in between: the
    one changes nothing, the other is refused."""
    for number in range(SWAPS):
        version = 2 - number % 2
        if number % 4 == 3:
            others = [threading.Thread(target=client.activate_ontology, args=("x", each)) for each in (1, 2)]
            for each in others:
                each.start()
            for each in others:
                each.join()
        told = client.activate_ontology("x", version, dry_run=True)
        assert told["dry_run"]
        assert client.activate_ontology("x", version)["version"] == version
        if number % 6 == 5:
            with pytest.raises(ProblemError, match="line"):
                client.put_ontology("x", b":this is no Turtle", format="turtle")
        load.stopping.wait(0.05)
        assert not load.stopping.is_set(), "a thread failed"
    while published() < LEAST:
        load.stopping.wait(0.05)
        assert not load.stopping.is_set(), "a thread failed"


def put(client: Client, document: str) -> str:
    """Uploads a version; returns the version of the vocabulary that it makes."""
    version: str = client.put_ontology("x", document.encode(), format="turtle")["vocabulary_version"]
    return version


def pages(read: Callable[[str], list[dict[str, Any]]], start: int = 0) -> Iterator[dict[str, Any]]:
    after = str(start)
    while page := read(after):
        yield from page
        after = str(page[-1].get("cursor") or page[-1]["sequence"])
