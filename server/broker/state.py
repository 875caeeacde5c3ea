"""The in-memory state of the broker's thread: the matcher, and what matching needs of each subscription.

Invariant: between groups it says what the last commit says. Inside a group every change of it registers how to undo it
(`Group.on_undo`), so a command or a commit that fails leaves no trace.
"""

import json
import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from kindcast.semantic import Matcher, Vocabulary
from kindcast.semantic.vocabulary import Declarations
from kindcast.server.operators.registry import EMPTY, Registry

__all__ = ["Live", "LiveSubscriptions", "State"]


# Who is subscribed: what the broker must know of every subscription at match time, however many there are.
#
#     in the matcher ──▶ its slot there ──▶ numbers[slot], ends[slot]     two flat arrays: 16 bytes per subscription
#     not in it      ──▶ aside: id ──▶ Live                               paused, expired, or without a meaning at
# present
#
# The names and slots are the matcher's own, so a start that opens a saved matcher reads two arrays and makes no object
# a subscription.

NEVER = math.inf
"""The end of a slot that is free."""


@dataclass(frozen=True, slots=True)
class Live:
    """A subscription that is not purged, as it is now. `matching`: it is in the matcher (neither paused nor expired,
    and its expression has a meaning under the vocabulary)."""

    number: int
    id: str
    status: str
    expires_at: float
    matching: bool


class LiveSubscriptions:
    """One owner. Invariant: a subscription of the matcher is active and stands in the arrays at its slot; any other
    stands in `aside`. Whoever changes the matcher keeps it so, by `enter` and `leave`."""

    def __init__(self, matcher: Matcher) -> None:
        """For a matcher without subscriptions; see `opened`."""
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
        """What is known of one. Raises `KeyError`."""
        slot = self.matcher.slots.get(id)
        if slot is None:
            return self.aside[id]
        return Live(self._numbers[slot], id, "active", self._ends[slot], matching=True)

    def number(self, id: str) -> int:
        """The number of one. Raises `KeyError`."""
        slot = self.matcher.slots.get(id)
        return self.aside[id].number if slot is None else self._numbers[slot]

    def numbers_in_time(self, slots: npt.NDArray[np.int32], now: float) -> npt.NDArray[np.int64]:
        """The numbers of the subscriptions in these slots of the matcher, `int64[slots]`; 0 for one whose time is
        over."""
        if not slots.size:
            return np.zeros(0, dtype=np.int64)
        numbers = np.frombuffer(self._numbers, dtype=np.int64)[slots]
        return np.where(np.frombuffer(self._ends, dtype=np.float64)[slots] > now, numbers, 0)

    def numbers_sum(self) -> int:
        """The sum of all numbers, to be compared with the store's. Some ns per subscription."""
        inside = int(np.frombuffer(self._numbers, dtype=np.int64).sum()) if self._numbers else 0
        return inside + sum(each.number for each in self.aside.values())

    # ── changes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def put_aside(self, live: Live) -> Live:
        """A subscription that is not in the matcher, new or changed."""
        live = replace(live, matching=False)
        self.keep(live)
        return live

    def keep(self, live: Live) -> None:
        """`put_aside` one that says so itself."""
        self.aside[live.id] = live

    def drop(self, id: str) -> None:
        """Forget one that is aside."""
        del self.aside[id]

    def enter(self, live: Live) -> Live:
        """It is in the matcher now."""
        slot = self.matcher.slots[live.id]
        more = slot + 1 - len(self._numbers)
        if more > 0:
            self._numbers.frombytes(bytes(8 * more))
            self._ends.extend([NEVER] * more)
        self._numbers[slot] = live.number
        self._ends[slot] = live.expires_at
        self.aside.pop(live.id, None)
        return live if live.matching else replace(live, matching=True)

    def leave(self, id: str) -> Live:
        """It will not be in the matcher any more: to be called before it is removed there."""
        live = self[id]
        slot = self.matcher.slots[id]
        self._numbers[slot], self._ends[slot] = 0, NEVER
        return self.put_aside(live)

    def set_end(self, id: str, expires_at: float) -> None:
        """When one ends."""
        slot = self.matcher.slots.get(id)
        if slot is None:
            self.aside[id] = replace(self.aside[id], expires_at=expires_at)
        else:
            self._ends[slot] = expires_at

    def enter_found(self, ids: Iterable[str]) -> None:
        """`enter` those of `ids`, all of which are aside, that the matcher has by now."""
        for id in ids:
            if id in self.matcher:
                self.enter(self.aside[id])

    def under(self, matcher: Matcher) -> "LiveSubscriptions":
        """The same subscriptions with another matcher, which may have more of them or fewer. This one stays as it
        is. Some 0.5 µs per subscription."""
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
        """(end, id) of the `count` subscriptions of the matcher that end first and of all aside that have not, and the
        time up to which none is missing. Some ns per subscription, and 1 µs for each that is told."""
        ends = np.frombuffer(self._ends, dtype=np.float64)
        until = NEVER
        first = np.arange(ends.size)
        if ends.size > count:
            first = np.argpartition(ends, count)[:count]
            until = float(np.nextafter(ends[first].max(), -NEVER))  # there may be more that end with the last one
        first = first[ends[first] < NEVER]
        name = self.matcher.name
        told = [(end, name(slot)) for end, slot in zip(ends[first].tolist(), first.tolist(), strict=True)]
        return told + [(each.expires_at, each.id) for each in self.aside.values() if each.status != "expired"], until

    # ── on disk ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """What `opened` needs, beside the matcher: copies."""
        rest = [[each.number, each.id, each.status, each.expires_at] for each in self.aside.values()]
        return {
            "numbers": np.array(self._numbers, dtype=np.int64),
            "ends": np.array(self._ends, dtype=np.float64),
            "aside": np.frombuffer(json.dumps(rest).encode(), dtype=np.uint8),
        }

    @classmethod
    def opened(cls, matcher: Matcher, arrays: Mapping[str, npt.NDArray[Any]]) -> "LiveSubscriptions":
        """From a matcher that was saved, and the arrays beside it. Raises `ValueError` where they do not fit
        together."""
        live_subscriptions = cls(matcher)
        live_subscriptions._numbers = array("q", arrays["numbers"].tobytes())
        live_subscriptions._ends = array("d", arrays["ends"].tobytes())
        slots = _slots(matcher)
        fits = len(live_subscriptions._numbers) == len(live_subscriptions._ends) > slots.max(initial=-1)
        if not fits or np.count_nonzero(arrays["numbers"]) != slots.size or not arrays["numbers"][slots].all():
            raise ValueError("the numbers of the subscriptions do not fit the index")
        for number, id, status, end in json.loads(arrays["aside"].tobytes()):
            live_subscriptions.put_aside(Live(number, id, status, end, matching=False))
        return live_subscriptions


def _slots(matcher: Matcher) -> npt.NDArray[np.int64]:
    return np.fromiter(matcher.slots.values(), dtype=np.int64, count=len(matcher))


# ── state ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class State:
    """Owned by the broker's thread. Others may read `vocabulary`, one reference to a frozen thing."""

    live_subscriptions: LiveSubscriptions
    """Every subscription that is not purged, and the matcher of those that match."""
    new_matcher: Callable[[Vocabulary], Matcher]
    """An empty one, as the settings want it, without operators."""
    declarations: Declarations = field(default_factory=Declarations)
    """The declarations of the vocabulary, without its ontologies."""
    operators: Registry = EMPTY
    """Those that subscriptions may call. The matcher knows them, and leaves asking to others."""
    parked_under: str = ""
    """The version of the vocabulary under which something was parked last: what it is made of is on disk."""
    snapshot: str | None = None
    """The token of the snapshot on disk that the store knows; what changes after it is noted there. None: nothing is
    noted, and no snapshot may be used."""
    changes_since_snapshot: int = 0
    """Changes that were noted since that snapshot."""
    commits: int = 0
    sequence: int = 0
    last_accepted_at: float = 0.0

    def empty_matcher(self, vocabulary: Vocabulary) -> Matcher:
        """One without subscriptions that knows the operators and leaves asking them to others. Any thread."""
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
