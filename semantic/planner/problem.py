"""What is still open for one event: candidates with their remaining predicates, predicates with their open candidates.

    candidates ──literals──▶ (predicate, wanted outcome)          a candidate is decided as soon as one outcome is not
    predicates ──holders───▶ candidates                           the wanted one, or when all of them are

These are the two tables of Liu et al., "Scalable Event Matching for Overlapping Subscriptions" (2007), section 5.1, as
flat arrays: every strategy works on the same ones, and settling a predicate costs one step for each candidate that
holds it. A negated predicate is a literal that wants `false`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kindcast.semantic.planner.kernels import (
    close_candidate,
    count_work,
    hold_candidates,
    index_holders,
    release_candidates,
    settle_literals,
)

__all__ = ["CERTAIN", "NOT_NEEDED", "OPEN", "UNKNOWN", "WAIT", "Estimates", "Literals", "Undecided"]


# What is known beforehand of each predicate of an event's problem: how likely it holds, and what asking costs.

CERTAIN = 1e-6
"""Probabilities stay this far from 0 and 1: nothing that was learned is certain, and orders divide by them."""


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """`holds[p]`: the probability that predicate `p` is true; `cost[p]`: seconds, or any unit common to all. Both
    float64."""

    holds: npt.NDArray[np.float64]
    cost: npt.NDArray[np.float64]

    def passing(self, predicate: npt.NDArray[np.int32], wanted: npt.NDArray[np.int8]) -> npt.NDArray[np.float64]:
        """The probability that each literal comes out as wanted."""
        holds = np.clip(self.holds[predicate], CERTAIN, 1 - CERTAIN)
        return np.where(wanted == 1, holds, 1 - holds)


OPEN, SATISFIED, DECIDED_FALSE, UNDECIDABLE, NOT_NEEDED = 0, 1, 2, 3, 4
"""States of a candidate; undecidable: it hangs on a predicate whose operator failed; not needed: another clause of its
subscription is satisfied."""

UNKNOWN, FALSE, TRUE, FAILED, UNDER_WAY = -1, 0, 1, 2, -2
"""Outcomes of a predicate."""

WAIT = -1
"""What a strategy answers in place of a predicate: all that is left hangs on predicates that are under way."""

Ints = npt.NDArray[np.int32]


class Literals:
    """The literals of candidates, by candidate: those of `c` stand at `first[c] : first[c + 1]` of `predicate` (int32)
    and `wanted` (int8, 0 or 1). No predicate stands twice in a candidate. Immutable."""

    __slots__ = ("first", "predicate", "wanted")

    def __init__(self, first: Ints, predicate: Ints, wanted: npt.NDArray[np.int8]) -> None:
        self.first, self.predicate, self.wanted = first, predicate, wanted

    @classmethod
    def of(cls, candidates: Sequence[Sequence[tuple[int, bool]]]) -> "Literals":
        """From (predicate, wanted outcome) pairs by candidate. Linear.

        >>> Literals.of([[(0, True), (1, False)], [(1, False)]]).first.tolist()
        [0, 2, 3]
        """
        first = np.zeros(len(candidates) + 1, dtype=np.int32)
        np.cumsum([len(each) for each in candidates], out=first[1:])
        flat = [literal for each in candidates for literal in each]
        predicate = np.array([number for number, _ in flat], dtype=np.int32)
        return cls(first, predicate, np.array([wanted for _, wanted in flat], dtype=np.int8))

    def __len__(self) -> int:
        return len(self.first) - 1


class Undecided:
    """The progress of one event. Owned by one thread.

    `state[c]` of each candidate; `outcome[p]` of each predicate; `popularity[p, w]`: open candidates that hold `p` and
    want the outcome `w`; `work[p, w]`: literals not yet evaluated in those candidates. A predicate that is held by no
    open candidate need not be evaluated any more.

    Several predicates may be under way at once: `begin` takes the candidates that hold one, and those that its outcome
    may make superfluous (`group`), out of all counts until `settle` brings its outcome. So whatever a strategy chooses
    meanwhile is needed whatever that outcome is, and no unnecessary call is made.
    """

    def __init__(self, literals: Literals, predicates: int) -> None:
        """`predicates` are numbered from 0. Cost: linear in the literals."""
        self.literals = literals
        self.predicates = predicates
        self.state = np.zeros(len(literals), dtype=np.int8)
        self.remaining = np.diff(literals.first).astype(np.int32)
        self.state[self.remaining == 0] = SATISFIED
        self.outcome = np.full(predicates, UNKNOWN, dtype=np.int8)
        self.first_holder, self.holder, self.holder_wants = index_holders(
            literals.first, literals.predicate, literals.wanted, predicates
        )
        self.popularity, self.work = count_work(self.first_holder, self.holder, self.holder_wants, self.remaining)
        self.waits = np.zeros(len(literals), dtype=np.int32)
        self.under_way: dict[int, Ints] = {}
        """The predicates that are being evaluated, each with the candidates that wait for it."""
        self.grown: list[Ints] = []
        """Predicates that more open candidates hold than before; who keeps an order of them takes these out."""
        self._satisfied = np.zeros(len(literals), dtype=np.int32)
        self._siblings: dict[int, Sequence[int]] = {}

    def holders(self, predicate: int) -> Ints:
        """The candidates that hold `predicate`, decided ones too."""
        return self.holder[self.first_holder[predicate] : self.first_holder[predicate + 1]]

    def needed(self, predicate: int) -> bool:
        """Whether an open candidate waits for `predicate`."""
        return bool(self.outcome[predicate] == UNKNOWN and self.popularity[predicate].any())

    def is_held(self, predicate: int) -> bool:
        """Whether an open candidate holds `predicate`, whatever it waits for."""
        return bool((self.state[self.holders(predicate)] == OPEN).any())

    def is_open(self, candidate: int) -> bool:
        """Whether it is undecided, and hangs on nothing that is under way."""
        return bool(self.state[candidate] == OPEN and self.waits[candidate] == 0)

    def group(self, candidates: Sequence[int], decisive: Sequence[int]) -> None:
        """One satisfied candidate of `decisive` is enough for all of `candidates`: the others are not needed then."""
        for each in decisive:
            self._siblings[each] = candidates
            if self.state[each] == SATISFIED:
                self._drop_siblings(each)

    def begin(self, predicate: int) -> None:
        """`predicate` is being evaluated; `settle` ends it."""
        held = self.under_way[predicate] = self._waiting_for(predicate)
        hold_candidates(
            predicate,
            held,
            self.literals.first,
            self.literals.predicate,
            self.literals.wanted,
            self.outcome,
            self.state,
            self.remaining,
            self.waits,
            self.popularity,
            self.work,
        )

    def settle(self, predicate: int, outcome: bool | None) -> None:
        """Note what `predicate` came to; None: its operator failed, and decides nothing. Cost: the literals of the
        candidates that hold it."""
        self.release(predicate)
        value = FAILED if outcome is None else TRUE if outcome else FALSE
        self.outcome[predicate] = value
        satisfied = settle_literals(
            predicate,
            value,
            self.first_holder,
            self.holder,
            self.holder_wants,
            self.literals.first,
            self.literals.predicate,
            self.literals.wanted,
            self.outcome,
            self.state,
            self.remaining,
            self.waits,
            self.popularity,
            self.work,
            self._satisfied,
        )
        if satisfied and self._siblings:
            for candidate in self._satisfied[:satisfied].tolist():
                if candidate in self._siblings:
                    self._drop_siblings(candidate)

    def give_up(self, predicate: int) -> None:
        """The operator of `predicate` has no answer for now, and what hangs on it is left for later: its open
        candidates are undecidable, whatever else they hold. Cost as `settle`."""
        self.release(predicate)
        for each in self.holders(predicate).tolist():
            if self.state[each] == OPEN:
                self._close(each, UNDECIDABLE)
        self.outcome[predicate] = FAILED

    def _waiting_for(self, predicate: int) -> Ints:
        """The candidates that wait while `predicate` is under way: its holders, and the other candidates of theirs of
        which one is enough."""
        holders = self.holders(predicate)
        if not self._siblings:
            return holders
        found = dict.fromkeys(holders.tolist())
        for each in list(found):
            if self.state[each] == OPEN:
                found.update(dict.fromkeys(self._siblings.get(each, ())))
        return np.array(list(found), dtype=np.int32)

    def release(self, predicate: int) -> None:
        """`predicate` is not being evaluated any more."""
        held = self.under_way.pop(predicate, None)
        if held is not None:
            grown = release_candidates(
                predicate,
                held,
                self.literals.first,
                self.literals.predicate,
                self.literals.wanted,
                self.outcome,
                self.state,
                self.remaining,
                self.waits,
                self.popularity,
                self.work,
            )
            self.grown.append(grown)

    def _close(self, candidate: int, state: int) -> None:
        close_candidate(
            candidate,
            state,
            self.literals.first,
            self.literals.predicate,
            self.literals.wanted,
            self.outcome,
            self.state,
            self.remaining,
            self.waits,
            self.popularity,
            self.work,
        )

    def _drop_siblings(self, candidate: int) -> None:
        for each in self._siblings[candidate]:
            if each != candidate and self.state[each] == OPEN:
                self._close(each, NOT_NEEDED)

    def unsettled(self) -> int:
        """How many candidates are open."""
        return int(np.count_nonzero(self.state == OPEN))

    def open(self) -> list[int]:
        """The candidates that are not settled, ascending."""
        found: list[int] = np.flatnonzero(self.state == OPEN).tolist()
        return found

    def satisfied(self) -> list[int]:
        """The candidates whose literals all came out as wanted, ascending."""
        found: list[int] = np.flatnonzero(self.state == SATISFIED).tolist()
        return found

    def undecidable(self) -> list[int]:
        """The candidates that would have been satisfied, had no operator failed, ascending."""
        found: list[int] = np.flatnonzero(self.state == UNDECIDABLE).tolist()
        return found

    def check_invariants(self) -> None:
        """Raise AssertionError if the counts are not what the states say. Slow; for tests."""
        first, predicate = self.literals.first.tolist(), self.literals.predicate.tolist()
        wanted = self.literals.wanted.tolist()
        popularity, work = np.zeros((self.predicates, 2)), np.zeros((self.predicates, 2))
        for candidate in range(len(self.literals)):
            own = range(first[candidate], first[candidate + 1])
            waiting = [each for each in own if self.outcome[predicate[each]] == UNKNOWN]
            pending = sum(self.outcome[predicate[each]] == UNDER_WAY for each in own)
            waits = sum(candidate in held.tolist() for held in self.under_way.values())
            if self.state[candidate] == OPEN:
                assert self.waits[candidate] == waits >= pending, candidate
                assert self.remaining[candidate] == len(waiting) + pending > 0, candidate
                for each in waiting if not waits else ():
                    popularity[predicate[each], wanted[each]] += 1
                    work[predicate[each], wanted[each]] += len(waiting)
        unknown = self.outcome == UNKNOWN
        assert self.popularity[unknown].tolist() == popularity[unknown].tolist()
        assert self.work[unknown].tolist() == work[unknown].tolist()
