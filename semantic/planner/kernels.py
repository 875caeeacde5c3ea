"""The inner loops of planning, compiled: settling predicates, choosing greedily, weighing pairs of chains.

The kernels know numbers only; the modules that call them say what the numbers mean.

The heap orders predicates by gain, largest first. An entry has the gain that its predicate had when it was pushed. If
the gain is another when the entry is popped, the entry is pushed again with the present gain; so a gain may shrink
without any notice. If a gain grows, the predicate must be pushed again.

    gain of p = sum over the wanted outcomes w of  miss[p, w] · work[p, w] + (1 - miss[p, w]) · popularity[p, w]
                over the cost of p
"""

import numpy as np
import numpy.typing as npt

from kindcast.index.jit import compiled

__all__ = [
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
"""Relative difference of gains that is rounding."""


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
    """Fill `gains` and `predicates` with all that settle something; answers how many. Linear."""
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
    """Push the predicates `new` with their present gains; there is room. Answers the new size."""
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
    """(the predicate with the largest gain, or -1; the size that is left). O(log size) for each entry looked at."""
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


# Candidates one after another, compiled: where a strategy that walks over them goes on.
#
# A walk stands at a place of an order of candidates and at a literal of the candidate there. It is asked for the next
# predicate again and again, and goes only as far as that one, for the outcomes in between decide what is still needed.


@compiled
def sorted_from_top(first: Ints, predicate: Ints, rank: Floats) -> Ints:
    """`predicate` with those of each candidate by ascending rank, ties by their number. Candidates are short: each is
    sorted by insertion."""
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
    """(place, step, predicate, or -1 at the end): the next predicate that an open candidate needs. A candidate that was
    begun is left as soon as it is decided, or, with `to_the_end`, when nobody needs any more of its predicates."""
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
    """(place, step, count, predicate, or -1 at the end): the next predicate that nobody knows of a candidate whose
    literals so far came out as wanted, or failed, unless it is given up (3) or not needed (4). Candidates that wait for
    one that is under way are added to `waiting[:count]`."""
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
    """(`first_holder`, `holder`, `holder_wants`): the candidates that hold each predicate, ascending, and the outcome
    that each wants, at `first_holder[p] : first_holder[p + 1]`. Linear."""
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
    """For each predicate and wanted outcome: its holders, and the literals that these have together."""
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
    """Bring states and counts up to date after `settled` came to `value` (0, 1, or 2 for a failure). Candidates that
    wait for others stand in no count. Answers how many became satisfied; `satisfied` names them."""
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
    """Add a candidate to the counts of its unknown predicates (`sign` 1), or take it out (-1)."""
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
    """Bring an open candidate to the state `closed`: nobody needs its predicates for it any more."""
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
    """Take the candidates `held` out of the counts while `begun` is under way."""
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
    """Put them back, but for those that wait for another; answers the predicates whose counts grew, some twice."""
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
    """int32[k, 2]: the pairs (u, v), u < v, of chains that share a predicate, each pair once, by its first shared
    predicate. `node[first[c] : first[c + 1]]` are the predicates of chain `c` in one order common to all chains."""
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
    """For each pair (u, v): the expected cost of u before v minus that of v before u.

    `passing` and `cost` are by node. Sum over the shared predicates e, from the top, of
    (1 - p_e) (P_v C'_u - P_u C'_v): P over all nodes above e, C' the cost of those above e that are not shared.
    """
    weights = np.zeros(len(pairs))
    for number in range(len(pairs)):
        u, v = pairs[number]
        here, there = first[u], first[v]
        above_u = above_v = 1.0  # P: all nodes above pass
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
    """Directed Kruskal: `edges` (u, v), best first, are taken where u has no successor yet, v no predecessor, and no
    circle closes. Answers `successor[u]` and `predecessor[v]`, -1 for none."""
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
    """The fragments from each of `heads` on, one after another: the best `merit` of a chain in each, and the chains in
    order."""
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
