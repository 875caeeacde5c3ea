"""The in-memory state of the broker's thread: the matcher, and the number, status and end time of each subscription.

Invariant: between groups, the state equals what the last commit wrote. Inside a group, every change of the state
registers its undo step (`Group.on_undo`), so a command or commit that fails leaves no trace.
"""

import json
import math
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import structs
from sqlalchemy import Connection, Row

from kindcast.semantic import Matcher, Vocabulary
from kindcast.semantic.vocabulary import Declarations
from kindcast.server.operators.registry import EMPTY, Registry
from kindcast.server.store import subscriptions

__all__ = ["SILENT", "Live", "LiveSubscriptions", "State", "StoredSubscriptions"]

SILENT = ("paused", "expired")
"""The statuses in which a subscription gets no matches."""


# What the broker needs of every subscription at match time.
#
#     in the matcher     ──▶ its slot there ──▶ numbers[slot], ends[slot]    two flat arrays: 16 bytes per subscription
#     not in the matcher ──▶ aside: id ──▶ Live                              paused, expired, or now without a meaning
#
# Names and slots are those of the matcher. So a start with a saved matcher reads two arrays and creates no object per
# subscription.

NEVER = math.inf
"""The end time of a free slot."""


class Live(msgspec.Struct, frozen=True):
    """The state of a subscription that is not purged. `matching`: it is in the matcher, that is, it is neither paused
    nor expired, and its expression has a meaning under the vocabulary."""

    number: int
    id: str
    status: str
    expires_at: float
    matching: bool


class LiveSubscriptions:
    """Every subscription that is not purged. Only one thread may use it.

    Invariant: a subscription in the matcher is active, and the arrays hold it at its slot; `aside` holds every other
    subscription. Code that changes the matcher keeps the invariant by calling `enter` and `leave`.
    """

    def __init__(self, matcher: Matcher) -> None:
        """Takes a matcher without subscriptions; `opened` takes one that has some."""
        self.matcher = matcher
        self.aside: dict[str, Live] = {}
        self._numbers = array("q")
        self._ends = array("d")

    def __len__(self) -> int:
        return len(self.matcher) + len(self.aside)

    def __contains__(self, id: object) -> bool:
        return id in self.matcher or id in self.aside

    def __iter__(self) -> Iterator[str]:
        return chain(self.matcher, self.aside)

    def __getitem__(self, id: str) -> Live:
        """Returns the state of one subscription. Raises `KeyError`."""
        slot = self.matcher.slots.get(id)
        if slot is None:
            return self.aside[id]
        return Live(self._numbers[slot], id, "active", self._ends[slot], matching=True)

    def find(self, id: str) -> Live | None:
        """Returns the state of one subscription; None if there is none."""
        if id not in self:
            return None
        return self[id]

    def number(self, id: str) -> int:
        """Returns the number of one subscription. Raises `KeyError`."""
        slot = self.matcher.slots.get(id)
        return self.aside[id].number if slot is None else self._numbers[slot]

    def numbers_in_time(
        self, slots: npt.NDArray[np.int32], now: float | npt.NDArray[np.float64]
    ) -> npt.NDArray[np.int64]:
        """Returns the numbers of the subscriptions in these slots of the matcher, `int64[slots]`. The number is 0 if
        the subscription has expired at `now`, which is one time or one for each slot."""
        if not slots.size:
            return np.zeros(0, dtype=np.int64)
        numbers = np.frombuffer(self._numbers, dtype=np.int64)[slots]
        return np.where(np.frombuffer(self._ends, dtype=np.float64)[slots] > now, numbers, 0)

    def numbers_sum(self) -> int:
        """Returns the sum of all numbers, for comparison with the store. Cost: some ns per subscription."""
        inside = int(np.frombuffer(self._numbers, dtype=np.int64).sum()) if self._numbers else 0
        return inside + sum(each.number for each in self.aside.values())

    def all_numbers(self) -> set[int]:
        """Returns the numbers of all subscriptions."""
        return {self.number(id) for id in self}

    def newer(self, number: int) -> set[str]:
        """Returns the ids of the subscriptions with greater numbers, which were made later. Cost: some ns per
        subscription."""
        slots = np.flatnonzero(np.array(self._numbers, dtype=np.int64) > number)
        return {
            *map(self.matcher.name, slots.tolist()),
            *(each.id for each in self.aside.values() if each.number > number),
        }

    def purgeable(self, over: float, at_most: int) -> list[Live]:
        """Returns at most `at_most` expired subscriptions whose end time is not after `over`."""
        found = [each for each in self.aside.values() if each.status == "expired" and each.expires_at <= over]
        return found[:at_most]

    def reads(self, connection: Connection) -> None:
        """Called when a group begins on this connection. Does nothing here, because everything is in memory."""

    # ── changes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def put_aside(self, live: Live) -> Live:
        """Adds or changes a subscription that is not in the matcher."""
        live = structs.replace(live, matching=False) if live.matching else live
        self.keep(live)
        return live

    def keep(self, live: Live) -> None:
        """Like `put_aside`, for a `Live` whose `matching` is already False."""
        self.aside[live.id] = live

    def drop(self, id: str) -> None:
        """Removes a subscription that is not in the matcher."""
        del self.aside[id]

    def enter(self, live: Live) -> Live:
        """Records a subscription that was just added to the matcher."""
        self.enter_many([live])
        return live if live.matching else structs.replace(live, matching=True)

    def enter_many(self, lives: Sequence[Live]) -> None:
        """Calls `enter` for each."""
        slots = [self.matcher.slots[live.id] for live in lives]
        more = max(slots, default=-1) + 1 - len(self._numbers)
        if more > 0:
            self._numbers.frombytes(bytes(8 * more))
            self._ends.extend([NEVER] * more)
        for slot, live in zip(slots, lives, strict=True):
            self._numbers[slot] = live.number
            self._ends[slot] = live.expires_at
            self.aside.pop(live.id, None)

    def leave(self, id: str) -> Live:
        """Records that a subscription leaves the matcher. Call it before the matcher removes the subscription."""
        live = self[id]
        slot = self.matcher.slots[id]
        self._numbers[slot], self._ends[slot] = 0, NEVER
        return self.put_aside(live)

    def set_end(self, id: str, expires_at: float) -> None:
        """Sets the end time of a subscription."""
        slot = self.matcher.slots.get(id)
        if slot is None:
            self.aside[id] = structs.replace(self.aside[id], expires_at=expires_at)
        else:
            self._ends[slot] = expires_at

    def enter_found(self, ids: Iterable[str]) -> None:
        """Calls `enter` for those of `ids` that the matcher now has. All of `ids` must be aside."""
        self.enter_many([self.aside[id] for id in ids if id in self.matcher])

    def under(self, matcher: Matcher) -> "LiveSubscriptions":
        """Returns the same subscriptions with another matcher, which may have more or fewer of them. This object does
        not change. Cost: some 0.5 µs per subscription."""
        other = LiveSubscriptions(matcher)
        slots = _slots(matcher)
        size = int(slots.max(initial=-1)) + 1
        numbers, ends = np.zeros(size, dtype=np.int64), np.full(size, NEVER)
        before = np.fromiter((self.matcher.slots.get(id, -1) for id in matcher), dtype=np.int64, count=len(matcher))
        known = before >= 0
        if known.any():
            numbers[slots[known]] = np.frombuffer(self._numbers, dtype=np.int64)[before[known]]
            ends[slots[known]] = np.frombuffer(self._ends, dtype=np.float64)[before[known]]
        other._numbers, other._ends = array("q", numbers.tobytes()), array("d", ends.tobytes())
        other.aside = dict(self.aside)
        other.enter_found([id for id in self.aside if id in matcher])
        if int(known.sum()) < len(self.matcher):
            for id in self.matcher:
                if id not in matcher:
                    other.put_aside(self[id])
        return other

    # ── looking ahead ───────────────────────────────────────────────────────────────────────────────────────────────

    def soonest(self, count: int) -> tuple[list[tuple[float, str]], float]:
        """Returns the next subscriptions to end, and the time up to which the list is complete.

        The list has (end, id) of the `count` subscriptions in the matcher that end first, and of all subscriptions
        aside that have not expired. Cost: some ns per subscription, and 1 µs per entry.
        """
        ends = np.frombuffer(self._ends, dtype=np.float64)
        until = NEVER
        first = np.arange(ends.size)
        if ends.size > count:
            first = np.argpartition(ends, count)[:count]
            until = float(np.nextafter(ends[first].max(), -NEVER))  # others may end at the same time as the last one
        first = first[ends[first] < NEVER]
        name = self.matcher.name
        told = [(end, name(slot)) for end, slot in zip(ends[first].tolist(), first.tolist(), strict=True)]
        return told + [(each.expires_at, each.id) for each in self.aside.values() if each.status != "expired"], until

    # ── on disk ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Returns copies of the arrays that `opened` needs besides the matcher."""
        rest = [[each.number, each.id, each.status, each.expires_at] for each in self.aside.values()]
        return {
            "numbers": np.array(self._numbers, dtype=np.int64),
            "ends": np.array(self._ends, dtype=np.float64),
            "aside": np.frombuffer(json.dumps(rest).encode(), dtype=np.uint8),
        }

    @classmethod
    def opened(cls, matcher: Matcher, arrays: Mapping[str, npt.NDArray[Any]]) -> "LiveSubscriptions":
        """Restores the subscriptions from a saved matcher and its arrays. Raises `ValueError` if the two do not belong
        together."""
        live_subscriptions = cls(matcher)
        live_subscriptions._numbers = array("q", arrays["numbers"].tobytes())
        live_subscriptions._ends = array("d", arrays["ends"].tobytes())
        slots = _slots(matcher)
        fits = len(live_subscriptions._numbers) == len(live_subscriptions._ends) > slots.max(initial=-1)
        if not fits or np.count_nonzero(arrays["numbers"]) != slots.size or not arrays["numbers"][slots].all():
            raise ValueError("the numbers of the subscriptions do not match the index")
        for number, id, status, end in json.loads(arrays["aside"].tobytes()):
            live_subscriptions.put_aside(Live(number, id, status, end, matching=False))
        return live_subscriptions


class StoredSubscriptions(LiveSubscriptions):
    """`LiveSubscriptions` for sharded matching. The state of a subscription is in the store and is read there inside a
    group. The matcher is empty and only reads events. The methods that change something do nothing, because the command
    changes the row."""

    _connection: Connection
    _counted = (0, -math.inf)

    def reads(self, connection: Connection) -> None:
        self._connection = connection

    def __len__(self) -> int:
        """The count is at most one second old. Few subscriptions are counted each time."""
        count, at = self._counted
        if count < COUNTED_ALWAYS or time.monotonic() > at + 1.0:
            count = subscriptions.numbers_of_all(self._connection)[0]
            self._counted = count, time.monotonic()
        return count

    def __contains__(self, id: object) -> bool:
        return self.find(str(id)) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(row.id for row in subscriptions.renewable(self._connection))

    def __getitem__(self, id: str) -> Live:
        if (live := self.find(id)) is None:
            raise KeyError(id)
        return live

    def find(self, id: str) -> Live | None:
        row = subscriptions.find_subscription(self._connection, id)
        return None if row is None else _live(row)

    def number(self, id: str) -> int:
        return self[id].number

    def all_numbers(self) -> set[int]:
        return {row.number for row in subscriptions.renewable(self._connection)}

    def newer(self, number: int) -> set[str]:
        return {row.id for row in subscriptions.renewable(self._connection) if row.number > number}

    def purgeable(self, over: float, at_most: int) -> list[Live]:
        return [_live(row) for row in subscriptions.expired_before(self._connection, over, at_most)]

    def put_aside(self, live: Live) -> Live:
        return structs.replace(live, matching=False) if live.matching else live

    def keep(self, live: Live) -> None:
        pass

    def drop(self, id: str) -> None:
        pass

    def enter_many(self, lives: Sequence[Live]) -> None:
        pass

    def leave(self, id: str) -> Live:
        return self.put_aside(self[id])

    def set_end(self, id: str, expires_at: float) -> None:
        pass

    def enter_found(self, ids: Iterable[str]) -> None:
        pass

    def under(self, matcher: Matcher) -> "StoredSubscriptions":
        other = StoredSubscriptions(matcher)
        other._connection, other._counted = self._connection, self._counted
        return other

    def soonest(self, count: int) -> tuple[list[tuple[float, str]], float]:
        rows = subscriptions.soonest_to_end(self._connection, count + 1)
        told = [(row.expires_at, row.id) for row in rows[:count]]
        until = float(np.nextafter(told[-1][0], -NEVER)) if len(rows) > count else NEVER
        return told, until


COUNTED_ALWAYS = 10_000
"""Up to this many subscriptions are counted each time, which takes a millisecond."""


def _live(row: Row[Any]) -> Live:
    return Live(row.number, row.id, row.status, row.expires_at, matching=row.status not in SILENT)


def _slots(matcher: Matcher) -> npt.NDArray[np.int64]:
    return np.fromiter(matcher.slots.values(), dtype=np.int64, count=len(matcher))


# ── state ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class State:
    """The state in memory. It belongs to the broker's thread. Other threads may read only `vocabulary`, a reference to
    a frozen object, and how many subscriptions and names the matcher has."""

    live_subscriptions: LiveSubscriptions
    """Every subscription that is not purged, with the matcher of those that match."""
    new_matcher: Callable[[Vocabulary], Matcher]
    """Makes an empty matcher with the engine and limits of the settings, without operators."""
    declarations: Declarations = field(default_factory=Declarations)
    """The declarations of the vocabulary, without its ontologies."""
    operators: Registry = EMPTY
    """The operators that subscriptions may call. The matcher knows them and does not call them."""
    parked_under: str = ""
    """The version of the vocabulary of the last parked candidate. Its ontologies and declarations are on disk."""
    snapshot: str | None = None
    """The token of the snapshot on disk that the store names. The store records every later change. None: nothing is
    recorded, and no snapshot may be used."""
    changes_since_snapshot: int = 0
    """How many changes the store has recorded since that snapshot."""
    commits: int = 0
    put_in_force: int = 0
    """The last commit of this server that activated a vocabulary or operators."""
    sequence: int = 0
    last_accepted_at: float = 0.0
    shards: int = 0
    """The number of shards that match the subscriptions; 0 if the broker's matcher matches them."""

    def empty_matcher(self, vocabulary: Vocabulary) -> Matcher:
        """Returns a matcher without subscriptions that knows the operators and does not call them. May be called in any
        thread."""
        matcher = self.new_matcher(vocabulary)
        for operator in self.operators.known.values():
            matcher.declare(operator)
        matcher.defers = True
        return matcher

    @property
    def matcher(self) -> Matcher:
        return self.live_subscriptions.matcher

    @property
    def vocabulary(self) -> Vocabulary:
        return self.matcher.vocabulary
