"""The undecided candidates and predicates of one event, as arrays, and the compiled inner loops of the planners.

The compiled functions see numbers only. The modules that call them define what the numbers mean.

A heap orders predicates by gain, largest first. An entry has the gain that its predicate had when it was pushed. If the
gain differs when the entry is popped, the entry is pushed again with the current gain. So a gain may shrink without an
update of the heap. If a gain grows, the predicate must be pushed again.

    gain of p = sum over the wanted outcomes w of  miss[p, w] · work[p, w] + (1 - miss[p, w]) · popularity[p, w]
                over the cost of p
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kindcast.index.jit import compiled

__all__ = [
    "CERTAIN",
    "NOT_NEEDED",
    "OPEN",
    "UNKNOWN",
    "WAIT",
    "Estimates",
    "Literals",
    "Undecided",
    "build_heap",
    "close_candidate",
    "count_work",
    "hold_candidates",
    "index_holders",
    "join_fragments",
    "next_in_turn",
    "next_of_open",
    "pair_weights",
    "push_all",
    "release_candidates",
    "settle_literals",
    "shared_pairs",
    "sorted_from_top",
    "take_best",
    "walk_fragments",
]

Ints = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.int8]
Floats = npt.NDArray[np.float64]

SAME = 1e-9
"""The relative difference of gains that is regarded as rounding."""


@compiled
def _gain(predicate: int, miss: Floats, cost: Floats, popularity: Ints, work: Ints) -> float:
    total = 0.0
    for wanted in range(2):
        chance = miss[predicate, wanted]
        total += chance * work[predicate, wanted] + (1.0 - chance) * popularity[predicate, wanted]
    return float(total / cost[predicate])


@compiled
def _before(gain: float, predicate: int, other_gain: float, other: int) -> bool:
    return gain > other_gain or (gain == other_gain and predicate < other)


@compiled
def _down(gains: Floats, predicates: Ints, size: int, at: int) -> None:
    gain, predicate = gains[at], predicates[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _before(gains[child + 1], predicates[child + 1], gains[child], predicates[child]):
            child += 1
        if not _before(gains[child], predicates[child], gain, predicate):
            break
        gains[at], predicates[at] = gains[child], predicates[child]
        at = child
    gains[at], predicates[at] = gain, predicate


@compiled
def build_heap(miss: Floats, cost: Floats, popularity: Ints, work: Ints, gains: Floats, predicates: Ints) -> int:
    """Fills `gains` and `predicates` with all predicates that have a gain. Returns how many there are. Linear."""
    size = 0
    for predicate in range(len(cost)):
        gain = _gain(predicate, miss, cost, popularity, work)
        if gain > 0.0:
            gains[size], predicates[size] = gain, predicate
            size += 1
    for at in range(size // 2 - 1, -1, -1):
        _down(gains, predicates, size, at)
    return size


@compiled
def push_all(
    new: Ints, miss: Floats, cost: Floats, popularity: Ints, work: Ints, gains: Floats, predicates: Ints, size: int
) -> int:
    """Pushes the predicates `new` with their current gains. The arrays must have room. Returns the new size."""
    for number in range(len(new)):
        predicate = new[number]
        gain = _gain(predicate, miss, cost, popularity, work)
        if gain <= 0.0:
            continue
        at = size
        size += 1
        while at > 0:
            parent = (at - 1) // 2
            if not _before(gain, predicate, gains[parent], predicates[parent]):
                break
            gains[at], predicates[at] = gains[parent], predicates[parent]
            at = parent
        gains[at], predicates[at] = gain, predicate
    return size


@compiled
def take_best(
    outcome: Bytes, miss: Floats, cost: Floats, popularity: Ints, work: Ints, gains: Floats, predicates: Ints, size: int
) -> tuple[int, int]:
    """Returns (the predicate with the largest gain, or -1; the remaining size). O(log size) per entry popped."""
    while size > 0:
        predicate = predicates[0]
        gain = 0.0
        if outcome[predicate] == -1:
            gain = _gain(predicate, miss, cost, popularity, work)
        if gain > 0.0 and abs(gain - gains[0]) > SAME * gains[0]:
            gains[0] = gain
            _down(gains, predicates, size, 0)
            continue
        size -= 1
        gains[0], predicates[0] = gains[size], predicates[size]
        _down(gains, predicates, size, 0)
        if gain > 0.0:
            return predicate, size
    return -1, 0


# Compiled iteration over candidates, for the strategies that evaluate candidate by candidate. The state of an iteration
# is a position in an order of candidates and a literal of the candidate there. Each call returns the next predicate and
# advances no further, because the outcome of that predicate decides what is still needed.


@compiled
def sorted_from_top(first: Ints, predicate: Ints, rank: Floats) -> Ints:
    """Returns `predicate` with the predicates of each candidate sorted by ascending rank; ties by number. Insertion
    sort, because candidates are short."""
    found = predicate.copy()
    ranks = rank.copy()
    for candidate in range(len(first) - 1):
        for at in range(first[candidate] + 1, first[candidate + 1]):
            own, own_rank = found[at], ranks[at]
            to = at
            while to > first[candidate]:
                above, above_rank = found[to - 1], ranks[to - 1]
                if above_rank < own_rank or (above_rank == own_rank and above < own):
                    break
                found[to], ranks[to] = above, above_rank
                to -= 1
            found[to], ranks[to] = own, own_rank
    return found


@compiled
def next_of_open(
    order: Ints,
    place: int,
    step: int,
    to_the_end: bool,
    first: Ints,
    literal: Ints,
    outcome: Bytes,
    state: Bytes,
    waits: Ints,
    popularity: Ints,
) -> tuple[int, int, int]:
    """Returns (place, step, next predicate that an open candidate needs; -1 at the end). A started candidate is left as
    soon as it is decided or, with `to_the_end`, when no open candidate needs any more of its predicates."""
    while place < len(order):
        candidate = order[place]
        while (to_the_end and step > 0) or (state[candidate] == 0 and waits[candidate] == 0):
            if step == first[candidate + 1] - first[candidate]:
                break
            asked = literal[first[candidate] + step]
            step += 1
            if outcome[asked] == -1 and (popularity[asked, 0] > 0 or popularity[asked, 1] > 0):
                return place, step, asked
        place += 1
        step = 0
    return place, 0, -1


@compiled
def next_in_turn(
    order: Ints,
    place: int,
    step: int,
    waiting: Ints,
    count: int,
    first: Ints,
    literal: Ints,
    wanted: Bytes,
    outcome: Bytes,
    state: Bytes,
    waits: Ints,
) -> tuple[int, int, int, int]:
    """Returns (place, step, count, predicate; -1 at the end). The predicate is the next one with an unknown outcome, in
    a candidate whose earlier literals all had the wanted outcome or failed. Candidates that are given up (3) or not
    needed (4) are skipped. Candidates that wait for a predicate under evaluation are appended to `waiting[:count]`."""
    while place < len(order):
        candidate = order[place]
        while state[candidate] < 3 and step < first[candidate + 1] - first[candidate]:
            if waits[candidate] > 0:
                waiting[count] = candidate
                count += 1
                break
            at = first[candidate] + step
            known = outcome[literal[at]]
            if known == -1:
                return place, step, count, literal[at]
            if known == 1 - wanted[at]:
                break
            step += 1
        place += 1
        step = 0
    return place, 0, count, -1


Longs = npt.NDArray[np.int64]


@compiled
def index_holders(first: Ints, literal: Ints, wanted: Bytes, predicates: int) -> tuple[Ints, Ints, Bytes]:
    """Returns (`first_holder`, `holder`, `holder_wants`): for each predicate the candidates that contain it, ascending,
    and the outcome that each of them wants, at `first_holder[p] : first_holder[p + 1]`. Linear."""
    first_holder = np.zeros(predicates + 1, dtype=np.int32)
    for at in range(len(literal)):
        first_holder[literal[at] + 1] += 1
    for predicate in range(predicates):
        first_holder[predicate + 1] += first_holder[predicate]
    end = first_holder[:-1].copy()
    holder = np.empty(len(literal), dtype=np.int32)
    holder_wants = np.empty(len(literal), dtype=np.int8)
    for candidate in range(len(first) - 1):
        for at in range(first[candidate], first[candidate + 1]):
            to = end[literal[at]]
            end[literal[at]] += 1
            holder[to], holder_wants[to] = candidate, wanted[at]
    return first_holder, holder, holder_wants


@compiled
def count_work(first_holder: Ints, holder: Ints, wants: Bytes, remaining: Ints) -> tuple[Ints, Ints]:
    """Returns, for each predicate and wanted outcome, the number of its candidates and the number of literals in
    them."""
    popularity = np.zeros((len(first_holder) - 1, 2), dtype=np.int32)
    work = np.zeros((len(first_holder) - 1, 2), dtype=np.int32)
    for predicate in range(len(work)):
        for at in range(first_holder[predicate], first_holder[predicate + 1]):
            popularity[predicate, wants[at]] += 1
            work[predicate, wants[at]] += remaining[holder[at]]
    return popularity, work


@compiled
def settle_literals(
    settled: int,
    value: int,
    first_holder: Ints,
    holder: Ints,
    holder_wants: Bytes,
    first: Ints,
    literal: Ints,
    wanted: Bytes,
    outcome: Bytes,
    state: Bytes,
    remaining: Ints,
    waits: Ints,
    popularity: Ints,
    work: Ints,
    satisfied: Ints,
) -> int:
    """Updates states and counts after the predicate `settled` got the outcome `value` (0, 1, or 2 for a failure).
    Candidates that wait for other predicates are in no count. Returns how many candidates became satisfied; they are in
    `satisfied`."""
    count = 0
    for at in range(first_holder[settled], first_holder[settled + 1]):
        candidate = holder[at]
        if state[candidate] != 0:
            continue
        before = remaining[candidate]
        decided = value != 2 and value != holder_wants[at]
        remaining[candidate] = before - 1
        failed = False
        for each in range(first[candidate], first[candidate + 1]):
            other = literal[each]
            failed |= outcome[other] == 2
            if outcome[other] == -1 and waits[candidate] == 0:
                if decided:
                    popularity[other, wanted[each]] -= 1
                    work[other, wanted[each]] -= before
                else:
                    work[other, wanted[each]] -= 1
        if decided:
            state[candidate] = 2
        elif before == 1:
            state[candidate] = 3 if failed else 1
            if not failed:
                satisfied[count] = candidate
                count += 1
    popularity[settled] = 0
    work[settled] = 0
    return count


@compiled
def _count_candidate(
    sign: int,
    candidate: int,
    first: Ints,
    literal: Ints,
    wanted: Bytes,
    outcome: Bytes,
    remaining: Ints,
    popularity: Ints,
    work: Ints,
) -> None:
    """Adds a candidate to the counts of its unknown predicates (`sign` 1), or subtracts it (-1)."""
    for each in range(first[candidate], first[candidate + 1]):
        if outcome[literal[each]] == -1:
            popularity[literal[each], wanted[each]] += sign
            work[literal[each], wanted[each]] += sign * remaining[candidate]


@compiled
def close_candidate(
    candidate: int,
    closed: int,
    first: Ints,
    literal: Ints,
    wanted: Bytes,
    outcome: Bytes,
    state: Bytes,
    remaining: Ints,
    waits: Ints,
    popularity: Ints,
    work: Ints,
) -> None:
    """Sets an open candidate to the state `closed` and subtracts it from the counts of its predicates."""
    if waits[candidate] == 0:
        _count_candidate(-1, candidate, first, literal, wanted, outcome, remaining, popularity, work)
    state[candidate] = closed


@compiled
def hold_candidates(
    begun: int,
    held: Ints,
    first: Ints,
    literal: Ints,
    wanted: Bytes,
    outcome: Bytes,
    state: Bytes,
    remaining: Ints,
    waits: Ints,
    popularity: Ints,
    work: Ints,
) -> None:
    """Subtracts the candidates `held` from the counts while the predicate `begun` is under evaluation."""
    for candidate in held:
        if state[candidate] == 0 and waits[candidate] == 0:
            _count_candidate(-1, candidate, first, literal, wanted, outcome, remaining, popularity, work)
        waits[candidate] += 1
    outcome[begun] = -2


@compiled
def release_candidates(
    ended: int,
    held: Ints,
    first: Ints,
    literal: Ints,
    wanted: Bytes,
    outcome: Bytes,
    state: Bytes,
    remaining: Ints,
    waits: Ints,
    popularity: Ints,
    work: Ints,
) -> Ints:
    """Adds the candidates `held` to the counts again, except those that wait for another predicate. Returns the
    predicates whose counts grew; some may occur twice."""
    outcome[ended] = -1
    room = 0
    for candidate in held:
        room += first[candidate + 1] - first[candidate]
    grown = np.empty(room, dtype=np.int32)
    count = 0
    for candidate in held:
        waits[candidate] -= 1
        if state[candidate] == 0 and waits[candidate] == 0:
            _count_candidate(1, candidate, first, literal, wanted, outcome, remaining, popularity, work)
            for each in range(first[candidate], first[candidate + 1]):
                if outcome[literal[each]] == -1 and literal[each] != ended:
                    grown[count] = literal[each]
                    count += 1
    return grown[:count]


@compiled
def shared_pairs(first: Ints, node: Ints, first_holder: Ints, holder: Ints) -> Ints:
    """Returns the pairs (u, v), u < v, of chains that share a predicate, as int32[k, 2]. Each pair occurs once, at its
    first shared predicate. `node[first[c] : first[c + 1]]` are the predicates of chain `c`, in an order common to all
    chains."""
    count = 0
    pairs = np.empty((1024, 2), dtype=np.int32)
    for predicate in range(len(first_holder) - 1):
        begin, end = first_holder[predicate], first_holder[predicate + 1]
        for one in range(begin, end):
            for other in range(one + 1, end):
                low, high = min(holder[one], holder[other]), max(holder[one], holder[other])
                if _first_shared(first, node, low, high) != predicate:
                    continue
                if count == len(pairs):
                    larger = np.empty((2 * count, 2), dtype=np.int32)
                    larger[:count] = pairs
                    pairs = larger
                pairs[count, 0], pairs[count, 1] = low, high
                count += 1
    return pairs[:count]


@compiled
def _first_shared(first: Ints, node: Ints, one: int, other: int) -> int:
    least = np.int32(2147483647)
    for here in range(first[one], first[one + 1]):
        for there in range(first[other], first[other + 1]):
            if node[here] == node[there] and node[here] < least:
                least = node[here]
    return int(least)


@compiled
def pair_weights(pairs: Ints, first: Ints, node: Ints, passing: Floats, cost: Floats) -> Floats:
    """Returns for each pair (u, v) the expected cost of u before v minus the expected cost of v before u.

    `passing` and `cost` are indexed by node. The result is the sum over the shared predicates e, from the top, of (1 -
    p_e) (P_v C'_u - P_u C'_v). P is the product over all nodes above e; C' is the cost of the nodes above e that are
    not shared.
    """
    weights = np.zeros(len(pairs))
    for number in range(len(pairs)):
        u, v = pairs[number]
        here, there = first[u], first[v]
        above_u = above_v = 1.0  # P: the probability that all nodes above pass
        alone_u = alone_v = 1.0  # the same over nodes that are not shared
        cost_u = cost_v = 0.0  # C'
        total = 0.0
        while here < first[u + 1] and there < first[v + 1]:
            # The order is common to all chains, so the next shared predicate is found by a walk down u.
            step = there
            while step < first[v + 1] and node[step] != node[here]:
                step += 1
            if step == first[v + 1]:  # only in u
                cost_u += alone_u * cost[here]
                alone_u *= passing[here]
                above_u *= passing[here]
                here += 1
                continue
            while there < step:  # only in v
                cost_v += alone_v * cost[there]
                alone_v *= passing[there]
                above_v *= passing[there]
                there += 1
            total += (1.0 - passing[here]) * (above_v * cost_u - above_u * cost_v)
            above_u *= passing[here]
            above_v *= passing[there]
            here += 1
            there += 1
        weights[number] = total
    return weights


@compiled
def join_fragments(edges: Ints, chains: int) -> tuple[Ints, Ints]:
    """Directed Kruskal: takes each edge (u, v), best first, if u has no successor yet, v has no predecessor, and the
    edge closes no cycle. Returns `successor[u]` and `predecessor[v]`; -1 for none."""
    successor = np.full(chains, -1, dtype=np.int32)
    predecessor = np.full(chains, -1, dtype=np.int32)
    root = np.arange(chains).astype(np.int32)
    for number in range(len(edges)):
        u, v = edges[number]
        if successor[u] != -1 or predecessor[v] != -1:
            continue
        one, other = u, v
        while root[one] != one:
            root[one] = root[root[one]]
            one = root[one]
        while root[other] != other:
            root[other] = root[root[other]]
            other = root[other]
        if one != other:
            root[one] = other
            successor[u], predecessor[v] = v, u
    return successor, predecessor


@compiled
def walk_fragments(heads: Ints, successor: Ints, merit: Floats) -> tuple[Floats, Ints]:
    """Walks the fragments that start at `heads`. Returns the best `merit` of a chain in each fragment, and all chains
    in order."""
    best = np.full(len(heads), -np.inf)
    order = np.empty(len(successor), dtype=np.int32)
    count = 0
    for number in range(len(heads)):
        chain = heads[number]
        while chain != -1:
            best[number] = max(best[number], merit[chain])
            order[count] = chain
            count += 1
            chain = successor[chain]
    return best, order


# ── the undecided state of one event: candidates with remaining predicates, predicates with open candidates ─────────

#     candidates ──literals──▶ (predicate, wanted outcome)          a candidate is decided as soon as one outcome is not
#     predicates ──holders───▶ candidates                           the wanted one, or when all of them are
#
# These are the two tables of Liu et al., "Scalable Event Matching for Overlapping Subscriptions" (2007), section 5.1,
# as flat arrays. All strategies use them. Settling a predicate costs one step per candidate that contains it. A negated
# predicate is a literal that wants `false`.


# Estimates for each predicate of an event: the probability that it holds, and the cost of its evaluation.

CERTAIN = 1e-6
"""The least distance of probabilities from 0 and 1: no estimate is certain, and the orders divide by probabilities."""


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """`holds[p]` is the probability that predicate `p` is true. `cost[p]` is in seconds or another unit common to all
    predicates. Both are float64."""

    holds: npt.NDArray[np.float64]
    cost: npt.NDArray[np.float64]

    def passing(self, predicate: npt.NDArray[np.int32], wanted: npt.NDArray[np.int8]) -> npt.NDArray[np.float64]:
        """Returns the probability that each literal has its wanted outcome."""
        holds = np.clip(self.holds[predicate], CERTAIN, 1 - CERTAIN)
        return np.where(wanted == 1, holds, 1 - holds)


OPEN, SATISFIED, DECIDED_FALSE, UNDECIDABLE, NOT_NEEDED = 0, 1, 2, 3, 4
"""The states of a candidate. Undecidable: an operator failed on which the candidate depends. Not needed: another clause
of its subscription is satisfied."""

UNKNOWN, FALSE, TRUE, FAILED, UNDER_WAY = -1, 0, 1, 2, -2
"""The outcomes of a predicate."""

WAIT = -1
"""What a strategy returns instead of a predicate if everything that remains depends on predicates under evaluation."""


class Literals:
    """The literals of candidates. Those of candidate `c` are at `first[c] : first[c + 1]` of `predicate` (int32) and
    `wanted` (int8, 0 or 1). A predicate occurs at most once in a candidate. Immutable."""

    __slots__ = ("first", "predicate", "wanted")

    def __init__(self, first: Ints, predicate: Ints, wanted: npt.NDArray[np.int8]) -> None:
        self.first, self.predicate, self.wanted = first, predicate, wanted

    @classmethod
    def of(cls, candidates: Sequence[Sequence[tuple[int, bool]]]) -> "Literals":
        """Builds the arrays from the (predicate, wanted outcome) pairs of each candidate. Linear.

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
    """The progress of one event. Used by one thread only.

    `state[c]` is the state of each candidate, and `outcome[p]` the outcome of each predicate. `popularity[p, w]` counts
    the open candidates that contain `p` and want the outcome `w`; `work[p, w]` counts the unevaluated literals in these
    candidates. A predicate that is in no open candidate need not be evaluated.

    Several predicates may be under evaluation at the same time. `begin` removes the candidates that contain the
    predicate, and those that its outcome may make superfluous (`group`), from all counts until `settle` sets the
    outcome. So each predicate that a strategy chooses meanwhile is needed for any outcome, and no unnecessary call is
    made.
    """

    def __init__(self, literals: Literals, predicates: int) -> None:
        """`predicates` is their number; they are numbered from 0. Cost: linear in the literals."""
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
        own = literals.first, literals.predicate, literals.wanted
        self._counted = (*own, self.outcome, self.state, self.remaining, self.waits, self.popularity, self.work)
        """The arrays that the kernels read and change: states and counts."""
        self.under_way: dict[int, Ints] = {}
        """The predicates under evaluation, each with the candidates that wait for it."""
        self.grown: list[Ints] = []
        """Predicates that are in more open candidates than before. A strategy that keeps an order of predicates empties
        it."""
        self._satisfied = np.zeros(len(literals), dtype=np.int32)
        self._siblings: dict[int, Sequence[int]] = {}

    def holders(self, predicate: int) -> Ints:
        """Returns the candidates that contain `predicate`, including decided ones."""
        return self.holder[self.first_holder[predicate] : self.first_holder[predicate + 1]]

    def needed(self, predicate: int) -> bool:
        """Returns whether an open candidate needs the outcome of `predicate`."""
        return bool(self.outcome[predicate] == UNKNOWN and self.popularity[predicate].any())

    def is_held(self, predicate: int) -> bool:
        """Returns whether an open candidate contains `predicate`, even if the candidate waits for others."""
        return bool((self.state[self.holders(predicate)] == OPEN).any())

    def is_open(self, candidate: int) -> bool:
        """Returns whether a candidate is undecided and waits for no predicate under evaluation."""
        return bool(self.state[candidate] == OPEN and self.waits[candidate] == 0)

    def group(self, candidates: Sequence[int], decisive: Sequence[int]) -> None:
        """Declares that one satisfied candidate of `decisive` is enough for all `candidates`; the others are then not
        needed."""
        for each in decisive:
            self._siblings[each] = candidates
            if self.state[each] == SATISFIED:
                self._drop_siblings(each)

    def begin(self, predicate: int) -> None:
        """Marks `predicate` as under evaluation, until `settle` or `release`."""
        held = self.under_way[predicate] = self._waiting_for(predicate)
        hold_candidates(predicate, held, *self._counted)

    def settle(self, predicate: int, outcome: bool | None) -> None:
        """Records the outcome of `predicate`. None means that its operator failed, which decides nothing. Cost: the
        literals of the candidates that contain it."""
        self.release(predicate)
        value = FAILED if outcome is None else TRUE if outcome else FALSE
        self.outcome[predicate] = value
        first, holder, wants = self.first_holder, self.holder, self.holder_wants
        satisfied = settle_literals(predicate, value, first, holder, wants, *self._counted, self._satisfied)
        if satisfied and self._siblings:
            for candidate in self._satisfied[:satisfied].tolist():
                if candidate in self._siblings:
                    self._drop_siblings(candidate)

    def give_up(self, predicate: int) -> None:
        """Makes all open candidates of `predicate` undecidable, whatever else they contain: its operator has no answer
        for now, and they are decided later. Cost as for `settle`."""
        self.release(predicate)
        for each in self.holders(predicate).tolist():
            if self.state[each] == OPEN:
                self._close(each, UNDECIDABLE)
        self.outcome[predicate] = FAILED

    def _waiting_for(self, predicate: int) -> Ints:
        """Returns the candidates that wait while `predicate` is under evaluation: those that contain it, and the other
        candidates in their groups."""
        holders = self.holders(predicate)
        if not self._siblings:
            return holders
        found = dict.fromkeys(holders.tolist())
        for each in list(found):
            if self.state[each] == OPEN:
                found.update(dict.fromkeys(self._siblings.get(each, ())))
        return np.array(list(found), dtype=np.int32)

    def release(self, predicate: int) -> None:
        """Marks `predicate` as no longer under evaluation."""
        held = self.under_way.pop(predicate, None)
        if held is not None:
            self.grown.append(release_candidates(predicate, held, *self._counted))

    def _close(self, candidate: int, state: int) -> None:
        close_candidate(candidate, state, *self._counted)

    def _drop_siblings(self, candidate: int) -> None:
        for each in self._siblings[candidate]:
            if each != candidate and self.state[each] == OPEN:
                self._close(each, NOT_NEEDED)

    def unsettled(self) -> int:
        """Returns the number of open candidates."""
        return int(np.count_nonzero(self.state == OPEN))

    def open(self) -> list[int]:
        """Returns the open candidates, ascending."""
        found: list[int] = np.flatnonzero(self.state == OPEN).tolist()
        return found

    def satisfied(self) -> list[int]:
        """Returns the candidates whose literals all had the wanted outcome, ascending."""
        found: list[int] = np.flatnonzero(self.state == SATISFIED).tolist()
        return found

    def undecidable(self) -> list[int]:
        """Returns the candidates that no outcome has refuted but that an operator's failure left undecided,
        ascending."""
        found: list[int] = np.flatnonzero(self.state == UNDECIDABLE).tolist()
        return found

    def check_invariants(self) -> None:
        """Raises AssertionError if the counts do not agree with the states. Slow; for tests."""
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
