"""Reports from stored events and subscriptions about the vocabulary: unknown terms, existing attributes, and uses of a
concept.

Each report reads only the newest rows, in worker threads and in turns of the clients, and says how many it read. Large
events are read for a limited time. Nothing is counted while events are published, so publishing is not slower.
"""

import time
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import Any, TypeVar

from sqlalchemy import Connection, Row

from kindcast.semantic import CanonicalEvent, SemanticError, Vocabulary
from kindcast.semantic.events import Canonicaliser
from kindcast.semantic.model import AGGREGATES
from kindcast.semantic.subscriptions import SeenAttributes
from kindcast.semantic.vocabulary import ConceptId, View
from kindcast.server.broker import Broker, RecentAttributes
from kindcast.server.cloudevents import EventReader, arrived
from kindcast.server.security.permissions import Roles, hidden_in
from kindcast.server.store.events import last_sequence, newest_page
from kindcast.server.store.subscriptions import newest_subscriptions
from kindcast.server.worker_threads import long_turns, run_to_the_end

__all__ = ["attributes_seen", "recent_attributes", "unknown_terms", "uses_of"]

RECENT_EVENTS = 50
"""The number of newest events whose attributes are compared with those of a new subscription."""
LEAST = 10
"""This many events are always read. After that, `RECENT_BUDGET` or `REPORT_BUDGET` limits the time (seconds)."""
REPORT_BUDGET = 1.0
RECENT_BUDGET = 0.25
RECENT_SECONDS = 2.0
EVENTS = 500
"""The maximum number of newest events that one report reads."""
SUBSCRIPTIONS = 5_000
"""The number of newest live subscriptions that one report reads."""
LISTED = 50
LONGEST_TERM = 100
"""The maximum number of characters of a term. Longer strings are text and no names."""
LONGEST_IRI = 1_000
"""The maximum number of characters in the IRI of a counted property."""
MOST_COUNTED = 10_000
"""The maximum number of different properties that one report counts, from the newest event on."""

T = TypeVar("T")


async def unknown_terms(
    broker: Broker, reader: EventReader, client: Hashable, view: View | None = None, lang: str = "en"
) -> dict[str, Any]:
    """Returns the strings of the newest events, in attributes that hold concepts, that are no known concept, most
    frequent first. An attribute holds concepts if it is declared so, if a subscription uses it with a kind, or if
    another event had a known concept in it. Also returns the properties of graphs that no ontology, declaration or live
    subscription knows."""
    vocabulary = broker.vocabulary

    def look() -> dict[str, Any]:
        examined = 0
        holds = {name for tree in trees for name in _kinds_asked(tree.tree)}
        counted: Counter[tuple[str, str]] = Counter()
        last: dict[tuple[str, str], int] = {}
        properties = _Properties(vocabulary, (name for tree in trees for name in _attributes_asked(tree.tree)))
        for row, event in _in_time(_read(rows, reader, vocabulary, view), REPORT_BUDGET):
            examined += 1
            properties.count(row, event)
            for attribute, values in event.attributes.items():
                if attribute.startswith("ce."):
                    continue
                for value in values:
                    if value.concepts:
                        holds.add(attribute)
                    elif isinstance(value.published, str) and _is_word(value):
                        counted[attribute, value.published] += 1
                        last.setdefault((attribute, value.published), row.sequence)
        declared = vocabulary.attributes.declaration
        holds |= {name for name, _ in counted if (said := declared(name)) is not None and said.range}
        found = [(each, times) for each, times in counted.most_common() if each[0] in holds]
        return {
            "terms": [
                {"term": term, "attribute": attribute, "count": times, "last_sequence": last[attribute, term]}
                | {"suggestions": [_named(vocabulary, each, lang) for each in vocabulary.suggest(term, 3)]}
                for (attribute, term), times in found[:LISTED]
            ],
            "count": len(found),
            "properties": properties.listed(),
            "properties_count": len(properties),
            "examined": {"events": examined, "subscriptions": len(trees)},
            "vocabulary_version": vocabulary.version,
        }

    async with long_turns().of(client):
        rows = await broker.read(_newest_events)
        trees = await broker.read(_newest_trees)
        return await run_to_the_end(look)


def _named(vocabulary: Vocabulary, suggestion: dict[str, Any], lang: str) -> dict[str, Any]:
    """Adds `shown`, the label of the concept in a language. `label` is the similar name."""
    concept = vocabulary.concept(suggestion["iri"])
    return suggestion | {"shown": suggestion["label"] if concept is None else vocabulary.label(concept, lang)}


class _Properties:
    """Counts the events with each unknown property, and keeps the newest event as an example. Rows must come newest
    first. At most `MOST_COUNTED` properties with IRIs of at most `LONGEST_IRI` characters are counted, because
    publishers choose them."""

    def __init__(self, vocabulary: Vocabulary, asked: Iterable[str]) -> None:
        self._attributes = vocabulary.attributes
        self._mentioned = self._attributes.mentioned(asked)
        self._counted: Counter[str] = Counter()
        self._examples: dict[str, tuple[str, Row[Any]]] = {}

    def __len__(self) -> int:
        return len(self._counted)

    def count(self, row: Row[Any], event: CanonicalEvent) -> None:
        pairs = (pair for name in event.attributes for pair in self._attributes.strangers(name, self._mentioned))
        for iri, attribute in dict(pairs).items():
            if iri in self._examples or (len(self._examples) < MOST_COUNTED and len(iri) <= LONGEST_IRI):
                self._counted[iri] += 1
                self._examples.setdefault(iri, (attribute, row))

    def listed(self) -> list[dict[str, Any]]:
        """Returns the most frequent properties."""
        return [
            {"iri": iri, "attribute": attribute, "count": times, "last_sequence": row.sequence, "source": row.source}
            for iri, times in self._counted.most_common(LISTED)
            for attribute, row in [self._examples[iri]]
        ]


async def uses_of(
    broker: Broker,
    reader: EventReader,
    client: Hashable,
    vocabulary: Vocabulary,
    concept: ConceptId,
    view: View | None = None,
) -> dict[str, Any]:
    """Returns the live subscriptions that name the concept or a narrower one, and the newest events that state it, as
    far as a view shows them."""

    def look() -> dict[str, Any]:
        beneath = {concept, *vocabulary.descendants(concept)}
        names = {iri for each in beneath for iri in vocabulary.iris(each)}
        asked = [row for row in trees if not names.isdisjoint(_iris(row.tree)) and not hidden_in(view, row.tree)]
        read = list(_in_time(_read(rows, reader, vocabulary, view), REPORT_BUDGET))
        stated = [
            {
                "sequence": row.sequence,
                "type": row.type,
                "source": row.source,
                "matched": row.matched if view is None else None,
            }
            for row, event in read
            if any(not beneath.isdisjoint(value.concepts) for values in event.attributes.values() for value in values)
        ]
        return {
            "descendants_count": len(beneath) - 1,
            "subscriptions": {
                "count": len(asked),
                "listed": [{"id": row.id, "canonical": row.canonical, "status": row.status} for row in asked[:LISTED]],
            },
            "events": {"count": len(stated), "listed": stated[:LISTED]},
            "examined": {"events": len(read), "subscriptions": len(trees)},
        }

    async with long_turns().of(client):
        rows = await broker.read(_newest_events)
        trees = await broker.read(_newest_trees)
        return await run_to_the_end(look)


def attributes_seen(seen: SeenAttributes, vocabulary: Vocabulary) -> list[str]:
    """Returns names of attributes: those of recent events, most frequent first, the declared ones, and those of the
    envelope."""
    ours = [name for name in seen.kinds if not name.startswith("ce.")]
    envelope = sorted(name for name in seen.kinds if name.startswith("ce."))
    return list(dict.fromkeys([*ours, *sorted(vocabulary.attributes.declarations), *envelope]))


async def recent_attributes(broker: Broker, reader: EventReader, roles: Roles = None) -> SeenAttributes:
    """Returns the attributes of the newest events that these roles may see, for advice to subscribers. They are read
    again if there are newer events, but at most every `RECENT_SECONDS` after the first event, and once for all clients
    that wait for them. Reading stops after `RECENT_BUDGET` seconds or `RECENT_EVENTS` events."""
    vocabulary = broker.vocabulary
    view = vocabulary.view_of_roles(roles)
    seeing = None if view is None else roles  # who sees everything sees the same
    newest = await broker.read(last_sequence)

    def fresh() -> SeenAttributes | None:
        known = broker.recent_attributes.get(seeing)
        if known is None or known.version != vocabulary.version:
            return None
        is_recent = known.sequence > 0 and time.monotonic() < known.made_at + RECENT_SECONDS
        is_fresh = known.sequence >= newest or is_recent
        return known.seen if is_fresh else None

    def look() -> SeenAttributes:
        read = _in_time(_read(rows, reader, vocabulary, view), RECENT_BUDGET)
        return SeenAttributes.of((event for _, event in read), vocabulary)

    if (seen := fresh()) is not None:
        return seen
    async with long_turns().beside((broker, seeing)):
        if (seen := fresh()) is None:  # another request may have read them meanwhile
            rows = await broker.read(lambda connection: newest_page(connection, RECENT_EVENTS, after=newest - EVENTS))
            seen = await run_to_the_end(look)
            broker.recent_attributes[seeing] = RecentAttributes(seen, newest, vocabulary.version, time.monotonic())
        return seen


def _in_time(events: Iterator[T], seconds: float) -> Iterator[T]:
    """Yields the first events, and the others until this time is over."""
    until = time.monotonic() + seconds
    yield from islice(events, LEAST)
    yield from takewhile(lambda _: time.monotonic() < until, events)


def _newest_events(connection: Connection) -> Sequence[Row[Any]]:
    return newest_page(connection, EVENTS, after=max(0, last_sequence(connection) - EVENTS))


def _newest_trees(connection: Connection) -> Sequence[Row[Any]]:
    return newest_subscriptions(connection, SUBSCRIPTIONS)


def _read(
    rows: Sequence[Row[Any]], reader: EventReader, vocabulary: Vocabulary, view: View | None = None
) -> Iterator[tuple[Row[Any], CanonicalEvent]]:
    """Yields the events as the active vocabulary reads them. Events that it cannot read are left out."""
    canonicaliser = Canonicaliser(vocabulary)
    for row in rows:
        try:
            body = row.body if view is None else view.explainable(row.body)
            yield row, canonicaliser.canonicalise(arrived(reader.stored(body), row.accepted_at))
        except SemanticError:
            continue


def _is_word(value: Any) -> bool:
    """Whether a published string may be a name: it is no number, quantity, date, address or text."""
    read = (value.number, value.amount, value.instant, value.dates)
    text = value.published
    return all(each is None for each in read) and 0 < len(text) <= LONGEST_TERM and any(c.isalpha() for c in text)


def _kinds_asked(node: Any) -> Iterator[str]:
    """Yields the attributes that a tree compares with a kind."""
    if isinstance(node, Mapping):
        for key, body in node.items():
            if key in ("isa", "is", "below") and isinstance(body, list) and isinstance(body[0], str):
                yield body[0]
            else:
                yield from _kinds_asked(body)
    elif isinstance(node, list):
        for each in node:
            yield from _kinds_asked(each)


def _attributes_asked(node: Any) -> Iterator[str]:
    """Yields the attributes in a tree."""
    if isinstance(node, list):
        for each in node:
            yield from _attributes_asked(each)
    if not isinstance(node, Mapping):
        return
    for key, body in node.items():
        if isinstance(body, str):
            if key in ("exists", "missing", "attribute", *AGGREGATES):
                yield body
        else:
            if key != "op" and isinstance(body, list) and body and isinstance(body[0], str):
                yield body[0]
            yield from _attributes_asked(body)


def _iris(node: Any) -> Iterator[str]:
    """Yields the IRIs of concepts in a tree."""
    if isinstance(node, Mapping):
        for key, body in node.items():
            if key in ("iri", "instance") and isinstance(body, str):
                yield body
            else:
                yield from _iris(body)
    elif isinstance(node, list):
        for each in node:
            yield from _iris(each)
