"""What was asked of a server that is killed again and again, what it promised, and whether it kept every promise.

In the manner of Jepsen's queue checkers: publishers and subscribers write down each operation when they begin it and
how it ended; "in doubt" is what got no answer. Afterwards `broken_promises` compares the history with what can be read
back:

    answered 202        it is there, once, under the sequence that was told; sent again it is a duplicate
    in doubt            it may be there, once
    never sent          it is not there
subscription made   it is there; it gets every computer of its lot that was sent after its 201, in order, and no other
    webhook             arrives at least once, always under the same webhook-id; first arrivals are in order
    acknowledged        the cursor never goes back
    version activated   it is in force, unless another activation is in doubt; events are matched under a known one

A logical clock orders beginnings and endings; real time plays no part.
"""

import itertools
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["COMPUTERS", "ONTOLOGY", "OTHER_VERSION", "History", "Made", "Sent", "broken_promises"]

Key = tuple[str, str]
"""Source and id of an event."""

ONTOLOGY = b"""
@prefix : <http://example.org/crash#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:Computer a owl:Class ; rdfs:label "computer"@en .
:Laptop a owl:Class ; rdfs:subClassOf :Computer ; rdfs:label "laptop"@en, "Klapprechner"@de .
:Desktop a owl:Class ; rdfs:subClassOf :Computer ; rdfs:label "desktop PC"@en .
:Printer a owl:Class ; rdfs:label "printer"@en .
"""

OTHER_VERSION = ONTOLOGY + b':Slate a owl:Class ; rdfs:subClassOf :Laptop ; rdfs:label "slate"@en .'
"""Means something else, and the same for every event that is published here."""

COMPUTERS = ("Klapprechner", "desktop PC", "http://example.org/crash#Laptop")
"""Targets that are computers, none by the word that subscriptions use: they match by the ontology or not at all."""

Lots = dict[int, list[tuple[int, Key]]]
"""Lot → when first sent, and key, of the promised computers in it."""


@dataclass(slots=True)
class Sent:
    """An event that was sent, perhaps several times: when first, its data, and the sequence once it was promised."""

    began: int
    data: Mapping[str, Any]
    sequence: int | None = None

    @property
    def lot(self) -> int | None:
        """The lot whose subscribers get it; None when it is no computer."""
        return self.data["lot"] if self.data["target"] in COMPUTERS else None


@dataclass(frozen=True, slots=True)
class Made:
    """A subscription that was answered with 201; `lot` is the part of the events that it wants, `path` its
    webhook's."""

    id: str
    ticket: str
    lot: int
    path: str | None
    ended: int


@dataclass(slots=True)
class History:
    """Written by any number of threads."""

    sent: dict[Key, Sent] = field(default_factory=dict)
    made: dict[str, Made] = field(default_factory=dict)
    acked: dict[str, int] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    _clock: Iterator[int] = field(default_factory=itertools.count)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, what: str, **more: Any) -> int:
        """Writes a step down; returns its time."""
        with self._lock:
            now = next(self._clock)
            self.steps.append({"at": now, "what": what, **more})
            return now

    def fault(self, text: str) -> None:
        """Writes down a promise that was seen broken on the way."""
        self.note("fault", text=text)
        with self._lock:
            self.faults.append(text)

    def begin(self, events: Iterable[tuple[Key, Mapping[str, Any]]]) -> None:
        """These events are about to be sent, for the first time or again."""
        events = list(events)
        now = self.note("send", events=[key for key, _ in events])
        with self._lock:
            for key, data in events:
                self.sent.setdefault(key, Sent(now, data))

    def promised(self, answer: Mapping[str, Any]) -> None:
        """The server answered 202."""
        self.note("promised", events=[[each["source"], each["id"], each["sequence"]] for each in answer["events"]])
        for each in answer["events"]:
            sent = self.sent[each["source"], each["id"]]
            if sent.sequence is not None and sent.sequence != each["sequence"]:
                self.fault(f"{each['id']} was promised as {sent.sequence}, and again as {each['sequence']}")
            sent.sequence = each["sequence"]

    def in_doubt(self) -> dict[Key, Sent]:
        """What was sent and never answered."""
        return {key: sent for key, sent in self.sent.items() if sent.sequence is None}

    def write(self, path: Path) -> Path:
        """The history as JSON lines, for whoever looks into a failure."""
        with path.open("wb") as file:
            for step in self.steps:
                file.write(msgspec.json.encode(step) + b"\n")
        return path


def broken_promises(
    history: History,
    stored: list[dict[str, Any]],
    pulled: Mapping[str, list[dict[str, Any]]],
    arrived: Mapping[str, list[tuple[str, dict[str, Any]]]],
) -> list[str]:
    """Every promise that was broken, in words. `stored`: what GET /v1/events reads back, with sequences; `pulled`: the
    messages of each subscription from its beginning; `arrived`: (webhook-id, message) by path, in order of arrival."""
    lots = _promised_by_lot(history)
    return [
        *history.faults,
        *_events(history, stored),
        *_pulls(history, lots, pulled),
        *_webhooks(history, lots, arrived),
    ]


def _events(history: History, stored: list[dict[str, Any]]) -> Iterator[str]:
    sequences: dict[Key, list[int]] = defaultdict(list)
    for event in stored:
        sequences[event["source"], event["id"]].append(event["sequence"])
    for key, sent in history.sent.items():
        found = sequences.get(key, [])
        if len(found) > 1:
            yield f"{key} is stored {len(found)} times"
        if sent.sequence is not None and found != [sent.sequence]:
            yield f"{key} was answered with 202 as {sent.sequence} and is stored as {found or 'nothing'}"
    for key in sequences.keys() - history.sent.keys():
        yield f"{key} is stored and was never sent"


def _pulls(history: History, lots: Lots, pulled: Mapping[str, list[dict[str, Any]]]) -> Iterator[str]:
    for id, made in history.made.items():
        if id not in pulled:
            yield f"subscription {id} was answered with 201 and is gone"
            continue
        keys = [_key(message) for message in pulled[id]]
        cursors = [int(message["cursor"]) for message in pulled[id]]
        if cursors != sorted(set(cursors)):
            yield f"subscription {id}: its messages are out of order, or twice"
        for key in sorted(_wanted(lots, made) - set(keys)):
            yield f"subscription {id}: {key} was answered with 202, matches, and never came"
        for key in keys:
            if key not in history.sent or history.sent[key].lot != made.lot:
                yield f"subscription {id}: {key} came and does not match"


def _webhooks(history: History, lots: Lots, arrived: Mapping[str, list[tuple[str, dict[str, Any]]]]) -> Iterator[str]:
    for made in history.made.values():
        if made.path is None:
            continue
        ids: dict[Key, set[str]] = defaultdict(set)
        firsts: list[int] = []
        for webhook_id, message in arrived.get(made.path, []):
            if _key(message) not in ids:
                firsts.append(int(message["cursor"]))
            ids[_key(message)].add(webhook_id)
        for key in sorted(_wanted(lots, made) - ids.keys()):
            yield f"webhook {made.path}: {key} never arrived"
        if any(len(each) > 1 for each in ids.values()) or len(set().union(*ids.values())) != len(ids):
            yield f"webhook {made.path}: webhook-id and message are not one to one"
        if firsts != sorted(firsts):
            yield f"webhook {made.path}: first arrivals are out of order"


def _promised_by_lot(history: History) -> Lots:
    lots: Lots = defaultdict(list)
    for key, sent in history.sent.items():
        if sent.sequence is not None and sent.lot is not None:
            lots[sent.lot].append((sent.began, key))
    return lots


def _wanted(lots: Lots, made: Made) -> set[Key]:
    """What the subscription must get: promised, matching, and first sent after the subscription was answered."""
    return {key for began, key in lots.get(made.lot, []) if began > made.ended}


def _key(message: Mapping[str, Any]) -> Key:
    return message["event"]["source"], message["event"]["id"]
