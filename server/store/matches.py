"""Stored matches: one row per position when they are decided, and posting pages by subscription later. All matches are
read with this module.

    commit ──insert_matches──▶ match_lists      position → its subscriptions, packed; bindings beside
                                    │ in the background, every few thousand positions: fold
                                    ▼
                               posting_pages    a block of positions → each subscription's positions, in pages
                                    │ sixteen blocks of a size: one larger
                                    ▼
    read: pages of the blocks after the cursor, then the tail: the lists that no block has yet

The lists are the primary data: they answer which subscriptions got an event. The pages are derived from the lists: they
answer which events a subscription gets. So a reader needs few pages, however many events there are. Nothing is written
to lists or pages when a match is delivered.

Positions below `ledger.kept_from` are deleted. Deleted subscriptions stay in lists and pages. Their numbers are never
used again, so no query returns them by mistake.

Folded pages never change. `MatchCache`, one per database, keeps decoded pages and the tail in memory. Rows of older
layouts are read from their table until they are moved (`older_matches`).
"""

import threading
import zlib
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, islice
from typing import Any, NamedTuple

import msgspec
import numpy as np
from sqlalchemy import Connection, bindparam, delete, func, select, update

from kindcast.server.store import older_matches
from kindcast.server.store.postings import DamagedBytes, Numbers, Postings, joined, pack_lists, unpack
from kindcast.server.store.tables import (
    insert_rows,
    late,
    ledger,
    mark_of,
    match_lists,
    posting_pages,
    retractions,
    subscriptions,
)

__all__ = [
    "Block",
    "MatchCache",
    "MatchList",
    "Snapshot",
    "bindings_of",
    "cache_of",
    "check_bindings",
    "count_matches",
    "count_waiting",
    "discard_before",
    "end_of_discard",
    "erase_moved",
    "find_fold",
    "find_merge",
    "find_moves",
    "find_positions",
    "had_by",
    "has_older",
    "insert_matches",
    "matched_after",
    "matched_between",
    "numbers_of_recipients",
    "packed",
    "recipients_of",
    "store_fold",
    "store_merge",
    "store_move",
]

FOLD_POSITIONS = 4_096
"""The tail is folded when it has this many positions."""
FOLD_MATCHES = 250_000
"""The tail is folded when it has this many matches, however few its positions are."""
BLOCK_POSITIONS = 65_536
"""The maximum number of positions in a new block."""
BLOCK_MATCHES = 1_000_000
"""The maximum number of matches in a new block, unless one position has more. They are in memory while the block is
made."""
BLOCKS_MERGED = 16
"""The number of adjacent blocks of one level that are merged into one block of the next level."""
MERGED_MATCHES = 8_000_000
"""Blocks with more matches than this in total are not merged, because a merged block is stored in one transaction."""
MOVED_POSITIONS = 8_192
"""The maximum number of positions of an older layout that are moved in one transaction."""
MOVED_MATCHES = 250_000
"""The maximum number of matches that are moved in one transaction, unless one position has more."""
CACHED_BYTES = 64 << 20
"""The maximum memory of decoded pages."""
NUMBERS_PER_QUERY = 500
"""The maximum number of values in one IN list, far below the parameter limit of every database."""


_SEQUENCES: Any = bindparam("sequences", expanding=True)
LISTS_OF_EVENTS = select(match_lists.c.position, match_lists.c.event, match_lists.c.subscriptions).where(
    match_lists.c.position.in_(_SEQUENCES)
    | match_lists.c.position.in_(select(late.c.position).where(late.c.event.in_(_SEQUENCES)))
)


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class MatchList(NamedTuple):
    """A row of `match_lists`: the matches at one position. `event` is the sequence number of the event if it differs
    from the position, else None. `bindings` is None if no match has bindings."""

    position: int
    event: int | None
    size: int
    subscriptions: bytes
    bindings: bytes | None


def packed(position: int, event: int | None, bindings: Mapping[int, str | None]) -> MatchList:
    """Packs the matches of one position. `bindings` maps the number of each subscription to its bindings as JSON text,
    or None."""
    numbers = np.array(sorted(bindings), dtype=np.int64)
    (data,) = pack_lists(numbers, np.array([0, numbers.size]))
    told = [bindings[number] for number in numbers.tolist()]
    return MatchList(position, event, numbers.size, data, pack_bindings(told))


def pack_bindings(told: Sequence[str | None]) -> bytes | None:
    """Packs the bindings of a list, each JSON text or None, in the order of the subscriptions. Returns None if there
    are none."""
    if not any(told):
        return None
    text = msgspec.json.encode([None if each is None else msgspec.Raw(each.encode()) for each in told])
    return zlib.compress(text, 1)


def bindings_of(subscriptions: bytes, bindings: bytes) -> dict[int, str | None]:
    """Returns the bindings of each subscription from the columns of their list."""
    return dict(zip(unpack(subscriptions).tolist(), _bindings(bindings), strict=True))


def check_bindings(data: bytes | None, size: int) -> bool:
    """Whether a list has no bindings, or readable bindings for each of its `size` matches. Raises `DamagedBytes`."""
    return data is None or len(_bindings(bytes(data))) == size


def _bindings(data: bytes) -> list[str | None]:
    try:
        told = msgspec.json.decode(zlib.decompress(data), type=list[msgspec.Raw])
    except (zlib.error, msgspec.DecodeError) as error:
        raise DamagedBytes("the bindings of matches are damaged") from error
    return [None if bytes(each) == b"null" else bytes(each).decode() for each in told]


def insert_matches(connection: Connection, lists: Sequence[MatchList]) -> None:
    """Stores the matches of positions that were assigned in the same transaction."""
    insert_rows(connection, match_lists.name, MatchList._fields, [each for each in lists if each.size])


def _batched(numbers: Iterable[int], size: int) -> Iterator[list[int]]:
    """Yields the numbers in batches of at most `size`."""
    left = iter(numbers)
    while some := list(islice(left, size)):
        yield some


# ── one snapshot ────────────────────────────────────────────────────────────────────────────────────────────────────


class _Reach(NamedTuple):
    """The extent of the data that a transaction sees. All positions up to `sequence` are committed. `folded_through` is
    the end of the last block. `folds` counts the changes of blocks. Rows of an older layout have the positions from
    `older_from` to `older_through`."""

    sequence: int
    kept_from: int
    folded_through: int
    folds: int
    older_from: int
    older_through: int

    @property
    def older(self) -> tuple[int, int] | None:
        """The first and the last position that are still read from the table of an older layout; None if there are
        none."""
        first = max(self.older_from, self.kept_from)
        return (first, self.older_through) if self.older_from and first <= self.older_through else None


class _Directory(NamedTuple):
    """The directory of pages: block, end of the block, and first and last subscription of each page. It is sorted by
    block and then by subscription. Each array is `int64[pages]`."""

    block: Numbers
    last: Numbers
    low: Numbers
    high: Numbers


class MatchCache:
    """A cache of decoded pages, the directory of pages and the tail, for all connections of one database.

    Only committed data is cached: positions up to the committed sequence number, and blocks. Code that undoes a change
    of blocks must call `forget`. A reader with a snapshot older than the cache reads the store.
    """

    def __init__(self) -> None:
        self._door = threading.Lock()
        self._pages: OrderedDict[tuple[int, int, int], Postings] = OrderedDict()
        self._bytes = 0
        self._directory: tuple[int, _Directory] | None = None
        self._runs: list[Postings] = []
        self._from = self._through = 0

    def forget(self) -> None:
        """Empties the cache."""
        with self._door:
            self._pages.clear()
            self._bytes = 0
            self._directory = None
            self._runs, self._from, self._through = [], 0, 0

    def tail(self, connection: Connection, reach: _Reach) -> list[Postings]:
        """Returns the postings of the committed positions that no block contains, as a few runs in the order of
        positions.

        Each new run is merged with the runs before it that are not larger. So each posting is merged O(log n) times.
        """
        with self._door:
            if reach.folded_through < self._from or reach.sequence < self._through:
                return _runs(connection, reach.folded_through, reach.sequence)
            if reach.folded_through > self._from:
                self._from = reach.folded_through
                self._through = max(self._through, self._from)
                self._runs = [each.behind(self._from) for each in self._runs if each.last > self._from]
            if reach.sequence > self._through:
                self._runs += _runs(connection, self._through, reach.sequence)
                self._through = reach.sequence
                while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
                    self._runs[-2:] = [joined(self._runs[-2:])]
            return list(self._runs)

    def directory(self, connection: Connection, reach: _Reach) -> _Directory:
        """Returns the directory of pages. It is read again after each change of blocks."""
        with self._door:
            if self._directory is not None and self._directory[0] == reach.folds:
                return self._directory[1]
            found = _read_directory(connection)
            if self._directory is None or self._directory[0] < reach.folds:
                self._directory = reach.folds, found
            return found

    def page(self, connection: Connection, block: int, last: int, low: int) -> Postings:
        """Returns a decoded page. It is empty if the page was deleted because all its matches were too old."""
        key = (block, last, low)
        with self._door:
            if (page := self._pages.get(key)) is not None:
                self._pages.move_to_end(key)
                return page
        page = _read_page(connection, block, last, low)
        with self._door:
            if key not in self._pages and len(page):
                self._pages[key] = page
                self._bytes += page.nbytes
            while self._bytes > CACHED_BYTES and len(self._pages) > 1:
                _, old = self._pages.popitem(last=False)
                self._bytes -= old.nbytes
        return page


def cache_of(connection: Connection) -> MatchCache:
    """Returns the cache that all connections of the database share."""
    found = connection.get_execution_options().get("matches")
    return found if isinstance(found, MatchCache) else MatchCache()


class Snapshot:
    """All postings that one transaction sees, as consecutive parts. What the transaction writes later is not seen."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cache = cache_of(connection)
        self.reach = _reach(connection)

    @property
    def gone(self) -> int:
        """The last deleted position."""
        return self.reach.kept_from - 1

    def of(self, subscription: int, after: int) -> Iterator[Numbers]:
        """Yields the positions of a subscription, part by part."""
        after = max(after, self.gone)
        directory = self._cache.directory(self._connection, self.reach)
        mine = (directory.low <= subscription) & (directory.high >= subscription) & (directory.last > after)
        older = self.reach.older
        for at in np.flatnonzero(mine).tolist():
            if older is not None and directory.block[at] > older[1]:
                yield older_matches.positions_of(self._connection, subscription, max(after + 1, older[0]), older[1])
                older = None
            yield self._page(directory, at).of(subscription, after)
        if older is not None:
            yield older_matches.positions_of(self._connection, subscription, max(after + 1, older[0]), older[1])
        for run in self._tail:
            yield run.of(subscription, after)

    def positions(self, subscription: int, *, after: int, limit: int) -> list[int]:
        """Returns what `find_positions` returns."""
        found: list[int] = []
        for positions in self.of(subscription, after):
            found += positions[: limit - len(found)].tolist()
            if len(found) >= limit:
                break
        return found

    def count(self, subscription: int, *, after: int, through: int | None = None) -> int:
        """Returns what `count_matches` returns."""
        count = 0
        for positions in self.of(subscription, after):
            count += positions.size if through is None else int(np.searchsorted(positions, through, side="right"))
        return count

    def backwards(self, least: int) -> Iterator[Postings]:
        """Yields the postings of lists and pages after the position `least`, newest first. Postings of an older layout
        are not included."""
        yield from reversed(self._tail)
        directory = self._cache.directory(self._connection, self.reach)
        for at in reversed(np.flatnonzero(directory.last > max(least, self.gone)).tolist()):
            yield self._page(directory, at)

    def _page(self, directory: _Directory, at: int) -> Postings:
        block, last, low = int(directory.block[at]), int(directory.last[at]), int(directory.low[at])
        return self._cache.page(self._connection, block, last, low)

    @cached_property
    def _tail(self) -> list[Postings]:
        """The tail, including what this transaction wrote."""
        tail = [
            each for each in self._cache.tail(self._connection, self.reach) if each.last > self.reach.folded_through
        ]
        return tail + _runs(self._connection, max(self.reach.sequence, self.reach.folded_through), None)


def _reach(connection: Connection) -> _Reach:
    """Reads the extent of the data. Cost: one row."""
    row = connection.exec_driver_sql(f"SELECT {', '.join(_Reach._fields)} FROM {ledger.name}").one_or_none()
    return _Reach(*row) if row is not None else _Reach(0, 0, 0, 0, 0, 0)


def _runs(connection: Connection, after: int, through: int | None) -> list[Postings]:
    """Returns the lists of these positions as one run; an empty list if there are none."""
    mark = mark_of(connection)
    statement = f"SELECT position, subscriptions FROM {match_lists.name} WHERE position > {mark}"
    bounds: tuple[int, ...] = (after,)
    if through is not None:
        statement, bounds = f"{statement} AND position <= {mark}", (after, through)
    lists = connection.exec_driver_sql(f"{statement} ORDER BY position", bounds).all()
    if not lists:
        return []
    return [Postings.of_lists([(row[0], bytes(row[1])) for row in lists], lists[0][0], lists[-1][0])]


def _read_directory(connection: Connection) -> _Directory:
    columns = (posting_pages.c.block, posting_pages.c.last, posting_pages.c.low, posting_pages.c.high)
    rows = connection.execute(select(*columns).order_by(posting_pages.c.block, posting_pages.c.low)).all()
    return _Directory(*np.array(rows, dtype=np.int64).reshape(-1, 4).T.copy())


def _read_page(connection: Connection, block: int, last: int, low: int) -> Postings:
    wanted = (posting_pages.c.block == block) & (posting_pages.c.low == low) & (posting_pages.c.last == last)
    data = connection.execute(select(posting_pages.c.data).where(wanted)).scalar_one_or_none()
    if data is None:
        return Postings(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), block, last)
    return Postings.decoded(data, block, last)


# ── what a subscription gets ────────────────────────────────────────────────────────────────────────────────────────


def find_positions(connection: Connection, subscription: int, *, after: int, limit: int) -> list[int]:
    """Returns the next positions of a subscription after a cursor, ascending. Cost: one page of each block that may
    contain the subscription, and the tail."""
    return Snapshot(connection).positions(subscription, after=after, limit=limit)


def matched_between(connection: Connection, after: int, through: int) -> Numbers:
    """Returns the numbers of the subscriptions with a match at a position in (`after`, `through`], once for each
    match."""
    found = _runs(connection, after, through) if through > after else []
    return found[0].subscriptions if found else np.zeros(0, dtype=np.int64)


def count_matches(connection: Connection, subscription: int, *, after: int, through: int | None = None) -> int:
    """Returns how many matches a subscription has after one position and up to another."""
    return Snapshot(connection).count(subscription, after=after, through=through)


def count_waiting(connection: Connection, cursors: Mapping[int, int]) -> dict[int, int]:
    """Returns how many matches each subscription has after its cursor, by number. Subscriptions without such matches
    are left out. Cost: one pass over the pages after the lowest cursor."""
    if not cursors:
        return {}
    snapshot = Snapshot(connection)
    numbers, after = _arrays(cursors)
    after = np.maximum(after, snapshot.gone)
    counts = np.zeros(numbers.size, dtype=np.int64)
    for part in snapshot.backwards(int(after.min())):
        counts += part.count_after(numbers, after)
    waiting = np.flatnonzero(counts)
    found = Counter(dict(zip(numbers[waiting].tolist(), counts[waiting].tolist(), strict=True)))
    if snapshot.reach.older is not None:
        found.update(older_matches.count_waiting(connection, cursors.keys(), *snapshot.reach.older))
    return found


def matched_after(connection: Connection, cursors: Mapping[int, int]) -> set[int]:
    """Returns the subscriptions that have a match after their cursor. The cost is low if the last match of each is
    recent."""
    if not cursors:
        return set()
    snapshot = Snapshot(connection)
    numbers, after = _arrays(cursors)
    after = np.maximum(after, snapshot.gone)
    found: set[int] = set()
    for part in snapshot.backwards(int(after.min())):
        last = part.last_of(numbers)
        waits = last > after
        found.update(numbers[waits].tolist())
        open = (last == 0) & (after < part.last)  # another page of the block, or an earlier block, may contain it
        numbers, after = numbers[open], after[open]
        if not numbers.size:
            break
    if snapshot.reach.older is not None:
        found.update(older_matches.count_waiting(connection, cursors.keys() - found, *snapshot.reach.older))
    return found


def _arrays(cursors: Mapping[int, int]) -> tuple[Numbers, Numbers]:
    numbers = np.fromiter(cursors, dtype=np.int64, count=len(cursors))
    return numbers, np.fromiter(cursors.values(), dtype=np.int64, count=len(cursors))


# ── who got an event ────────────────────────────────────────────────────────────────────────────────────────────────


class Recipient(NamedTuple):
    """A subscription that got an event, or a message about it. `bindings` is JSON text or None."""

    number: int
    position: int
    bindings: str | None


def recipients_of(connection: Connection, sequence: int, *, retractions_too: bool = False) -> list[Recipient]:
    """Returns the subscriptions that got an event, sorted by number and position. With `retractions_too` it also
    returns those that got this event as a retraction of another event. Deleted subscriptions are included. Cost: some
    ns per match."""
    late_positions = select(late.c.position).where(late.c.event == sequence)
    columns = (match_lists.c.position, match_lists.c.subscriptions, match_lists.c.bindings)
    query = select(*columns).where(
        (match_lists.c.position == sequence) | match_lists.c.position.in_(late_positions),
        func.coalesce(match_lists.c.event, match_lists.c.position) == sequence,
    )
    if not retractions_too:
        query = query.where(~select(retractions).where(retractions.c.position == match_lists.c.position).exists())
    found: list[Recipient] = []
    for position, numbers, bindings in connection.execute(query):
        known = unpack(bytes(numbers)).tolist()
        texts = [None] * len(known) if bindings is None else _bindings(bytes(bindings))
        found += [Recipient(number, position, text) for number, text in zip(known, texts, strict=True)]
    if (older := _reach(connection).older) is not None:
        rows = older_matches.recipients_of(connection, sequence, *older, retractions_too=retractions_too)
        found += [Recipient(row.subscription, row.position, row.bindings) for row in rows]
    return sorted(found)


def numbers_of_recipients(connection: Connection, sequences: Collection[int]) -> dict[int, Numbers]:
    """Returns, for each event, the numbers of the subscriptions that got it, or got it as a retraction of another
    event, ascending. Deleted subscriptions are included. Cost: one query for some hundred events, and some ns per
    match."""
    lists: dict[int, list[Numbers]] = {each: [] for each in sequences}
    older = _reach(connection).older
    for some in _batched(sequences, NUMBERS_PER_QUERY):
        for position, event, data in connection.execute(LISTS_OF_EVENTS, {"sequences": some}):
            if (sequence := position if event is None else event) in lists:
                lists[sequence].append(unpack(bytes(data)))
    if older is not None:
        for sequence, found in lists.items():
            rows = older_matches.recipients_of(connection, sequence, *older, retractions_too=True)
            found.append(np.array([row.subscription for row in rows], dtype=np.int64))
    return {each: np.unique(np.concatenate(found)) for each, found in lists.items() if found}


def had_by(connection: Connection, wanted: Mapping[int, Collection[int]]) -> dict[int, set[int]]:
    """Returns, for each event, which of the wanted subscriptions got it. Retractions do not count. Cost: some ns per
    match of the events."""
    found: dict[int, set[int]] = {sequence: set() for sequence in wanted}
    older = _reach(connection).older
    for some in _batched(wanted, NUMBERS_PER_QUERY):
        events = {sequence: sequence for sequence in some}
        query = select(late.c.position, late.c.event).where(late.c.event.in_(some))
        events |= {row.position: row.event for row in connection.execute(query)}
        for positions in _batched(events, NUMBERS_PER_QUERY):
            of_event = select(match_lists.c.position, match_lists.c.subscriptions).where(
                match_lists.c.position.in_(positions),
                ~select(retractions).where(retractions.c.position == match_lists.c.position).exists(),
            )
            for position, data in connection.execute(of_event):
                event = events[position]
                asked = np.fromiter(wanted[event], dtype=np.int64, count=len(wanted[event]))
                found[event].update(asked[np.isin(asked, unpack(bytes(data)))].tolist())
    if older is not None:
        for sequence, numbers in wanted.items():
            rows = older_matches.recipients_of(connection, sequence, *older, retractions_too=False)
            found[sequence].update({row.subscription for row in rows}.intersection(numbers))
    return found


# ── retention ───────────────────────────────────────────────────────────────────────────────────────────────────────


def end_of_discard(connection: Connection, number: int, *, at_most: int) -> int | None:
    """Returns the position before which matches may be discarded in one step. It is at most `number`, and the step has
    at most `at_most` matches, unless one position has more. Matches of an older layout are not discarded before they
    are moved. Returns None if all matches before it are deleted."""
    reach = _reach(connection)
    if reach.older is not None:
        number = min(number, reach.older[0])
    if number <= max(reach.kept_from, 1):
        return None
    room = at_most
    sizes = select(match_lists.c.position, match_lists.c.size).where(match_lists.c.position < number)
    for count, (position, size) in enumerate(connection.execute(sizes.order_by(match_lists.c.position))):
        room -= size
        if room < 0 and count:
            return int(position)
    return number


def discard_before(connection: Connection, number: int) -> dict[int, tuple[int, int]]:
    """Deletes the matches at positions below `number`. Returns of each subscription its last deleted position, and how
    many of its deleted matches were pending. Cost: some ns per match, and one query of the subscriptions. This changes
    blocks: code that undoes it must call `MatchCache.forget`."""
    parts = _runs(connection, 0, number - 1)
    lost: dict[int, tuple[int, int]] = {}
    if parts:
        cursors = _cursors(connection, np.unique(parts[0].subscriptions))
        numbers, acked = _arrays(cursors)
        pending = parts[0].count_after(numbers, acked)
        through = parts[0].last_of(numbers)
        lost = dict(zip(numbers.tolist(), zip(through.tolist(), pending.tolist(), strict=True), strict=True))
    connection.execute(delete(match_lists).where(match_lists.c.position < number))
    connection.execute(delete(posting_pages).where(posting_pages.c.last < number))
    connection.execute(
        update(ledger).where(ledger.c.kept_from < number).values(kept_from=number, folds=ledger.c.folds + 1)
    )
    return lost


def _cursors(connection: Connection, numbers: Numbers) -> dict[int, int]:
    """Returns the cursors of these subscriptions by number. Deleted subscriptions are left out."""
    query = select(subscriptions.c.number, subscriptions.c.acked)
    if numbers.size > 10 * NUMBERS_PER_QUERY:
        wanted = set(numbers.tolist())
        return {number: acked for number, acked in connection.execute(query) if number in wanted}
    found: dict[int, int] = {}
    for start in range(0, numbers.size, NUMBERS_PER_QUERY):
        some = numbers[start : start + NUMBERS_PER_QUERY].tolist()
        found |= {number: acked for number, acked in connection.execute(query.where(subscriptions.c.number.in_(some)))}
    return found


# ── folding ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# A worker thread reads what is committed and makes the pages; the writer stores them. Lists and pages that a fold reads
# can only disappear meanwhile, because they are too old.


@dataclass(frozen=True, slots=True)
class Block:
    """The pages of the positions from `first` to `last`. Each page is (first subscription, last subscription, number of
    matches, encoded data). `level` is how often blocks were merged to make this one."""

    first: int
    last: int
    level: int
    pages: tuple[tuple[int, int, int, bytes], ...]

    @classmethod
    def of(cls, postings: Postings) -> "Block":
        """Makes a block from postings."""
        return cls(postings.first, postings.last, 0, tuple(_encoded(page) for page in postings.pages()))


def _encoded(page: Postings) -> tuple[int, int, int, bytes]:
    return int(page.subscriptions[0]), int(page.subscriptions[-1]), len(page), page.encoded()


def find_fold(connection: Connection) -> Block | None:
    """Returns the next block; None if the tail is not long enough."""
    reach = _reach(connection)
    mark = mark_of(connection)
    tail = f"FROM {match_lists.name} WHERE position > {mark} AND position <= {mark}"
    bounds = reach.folded_through, reach.sequence
    if bounds[1] == bounds[0]:
        return None
    count, size = connection.exec_driver_sql(f"SELECT count(*), coalesce(sum(size), 0) {tail}", bounds).one()
    if not count or (bounds[1] - bounds[0] < FOLD_POSITIONS and size < FOLD_MATCHES):
        return None
    rows = connection.exec_driver_sql(f"SELECT position, size {tail} ORDER BY position", bounds).all()
    last, room = min(reach.sequence, reach.folded_through + BLOCK_POSITIONS), BLOCK_MATCHES
    for count, (position, size) in enumerate(rows):
        room -= size
        if room < 0 and count:
            last = min(last, position - 1)
            break
    runs = _runs(connection, reach.folded_through, last)
    first = reach.folded_through + 1
    if not runs:
        return Block(first, last, 0, ())
    return Block.of(Postings(runs[0].subscriptions, runs[0].positions, first, last))


def store_fold(connection: Connection, block: Block) -> bool:
    """Stores a block that `find_fold` made. Returns False, and stores nothing, if it is no longer the next block."""
    if _reach(connection).folded_through != block.first - 1:
        return False
    _insert_block(connection, block)
    connection.execute(update(ledger).values(folded_through=block.last, folds=ledger.c.folds + 1))
    return True


class Move(NamedTuple):
    """Matches of an older layout for a block of positions, converted to the present layout."""

    lists: list[MatchList]
    block: Block


def find_moves(connection: Connection) -> list[Move]:
    """Returns the next matches of an older layout, one `Move` of bounded size per transaction. Empty if all are
    moved."""
    reach = _reach(connection)
    if reach.older is None:
        return []
    rows, through = older_matches.next_rows(connection, reach.older_from, reach.older_through)
    positions, starts = np.unique(np.sort(rows.positions), return_index=True)
    order = np.argsort(rows.positions, kind="stable")
    bounds = np.append(starts, order.size)
    moves: list[Move] = []
    at, first = 0, reach.older_from
    while at < positions.size:
        end = int(np.searchsorted(bounds, bounds[at] + MOVED_MATCHES, side="right")) - 1
        end = max(at + 1, min(end, at + MOVED_POSITIONS))
        last = through if end >= positions.size else int(positions[end]) - 1
        moves.append(_move(rows, order[bounds[at] : bounds[end]], bounds[at : end + 1] - bounds[at], first, last))
        at, first = end, last + 1
    return moves or [Move([], Block(first, through, 0, ()))]


def _move(rows: older_matches.OlderMatches, chosen: Numbers, bounds: Numbers, first: int, last: int) -> Move:
    """Makes a move of the chosen rows, grouped by position."""
    numbers, positions = rows.subscriptions[chosen], rows.positions[chosen]
    lists = []
    for at, data in enumerate(pack_lists(numbers, bounds)):
        start, end = bounds[at : at + 2].tolist()
        position = int(positions[start])
        told = (
            [rows.bindings.get((number, position)) for number in numbers[start:end].tolist()] if rows.bindings else []
        )
        lists.append(MatchList(position, rows.events.get(position), end - start, data, pack_bindings(told)))
    order = np.argsort(numbers, kind="stable")
    return Move(lists, Block.of(Postings(numbers[order], positions[order], first, last)))


def store_move(connection: Connection, move: Move) -> bool:
    """Stores a move that `find_moves` made. Returns False, and stores nothing, if it is no longer the next move."""
    if _reach(connection).older_from != move.block.first:
        return False
    insert_matches(connection, move.lists)
    _insert_block(connection, move.block)
    connection.execute(update(ledger).values(older_from=move.block.last + 1, folds=ledger.c.folds + 1))
    return True


def erase_moved(connection: Connection) -> bool:
    """Deletes some rows of an older layout after all of them were moved. Returns whether there is more to do."""
    reach = _reach(connection)
    return older_matches.erase_some(connection) if reach.older_from and reach.older is None else False


def has_older(connection: Connection) -> bool:
    """Whether the table of an older layout exists."""
    return _reach(connection).older_from > 0


def find_merge(connection: Connection) -> Block | None:
    """Merges adjacent blocks of one level into one block of the next level. Returns None if there are too few. The
    blocks are merged one range of subscriptions after the other, so only the encoded result is in memory as a whole."""
    if _reach(connection).older_from:
        return None  # a merged block could span positions that are not moved yet
    columns = (posting_pages.c.block, posting_pages.c.last, posting_pages.c.level)
    query = select(*columns, func.sum(posting_pages.c.size)).group_by(*columns).order_by(posting_pages.c.block)
    for level, rows in groupby(connection.execute(query).all(), key=lambda row: int(row.level)):
        blocks = list(rows)
        for start in range(len(blocks) - BLOCKS_MERGED + 1):
            some = blocks[start : start + BLOCKS_MERGED]
            if sum(row[3] for row in some) <= MERGED_MATCHES:
                return _merged(connection, some, level + 1)
    return None


def _merged(connection: Connection, blocks: Sequence[Any], level: int) -> Block:
    first, last = int(blocks[0].block), int(blocks[-1].last)
    pages: list[tuple[int, int, int, bytes]] = []
    ahead = [_Pages(connection, row.block, row.last) for row in blocks]
    while bound := min((each.high for each in ahead if each.high is not None), default=0):
        whole = joined([each.take(bound) for each in ahead])
        pages += [_encoded(page) for page in Postings(whole.subscriptions, whole.positions, first, last).pages()]
    return Block(first, last, level, tuple(pages))


class _Pages:
    """Iterates over the pages of a block. One page is in memory."""

    def __init__(self, connection: Connection, block: int, last: int) -> None:
        query = select(posting_pages.c.low).where(posting_pages.c.block == block).order_by(posting_pages.c.low)
        self._connection, self._block, self._last = connection, block, last
        self._lows: list[int] = list(connection.execute(query).scalars())
        self._page = _read_page(connection, block, last, -1)
        self._advance()

    @property
    def high(self) -> int | None:
        """The last subscription of the page; None after the last page."""
        return int(self._page.subscriptions[-1]) if len(self._page) else None

    def take(self, bound: int) -> Postings:
        """Removes and returns the postings of the subscriptions up to `bound`, which must not be after `high`."""
        page = self._page
        end = int(np.searchsorted(page.subscriptions, bound, side="right"))
        self._page = Postings(page.subscriptions[end:], page.positions[end:], page.first, page.last)
        if end == len(page):
            self._advance()
        return Postings(page.subscriptions[:end], page.positions[:end], page.first, page.last)

    def _advance(self) -> None:
        if self._lows:
            self._page = _read_page(self._connection, self._block, self._last, self._lows.pop(0))


def store_merge(connection: Connection, block: Block) -> bool:
    """Replaces the source blocks by a block that `find_merge` made. Returns False, and stores nothing, if some of them
    no longer exist."""
    inside = (posting_pages.c.block >= block.first) & (posting_pages.c.last <= block.last)
    there = connection.execute(select(func.min(posting_pages.c.block)).where(inside)).scalar_one()
    if there != block.first:
        return False
    connection.execute(delete(posting_pages).where(inside))
    _insert_block(connection, block)
    connection.execute(update(ledger).values(folds=ledger.c.folds + 1))
    return True


def _insert_block(connection: Connection, block: Block) -> None:
    columns = ("block", "last", "level", "low", "high", "size", "data")
    rows = [(block.first, block.last, block.level, *page) for page in block.pages]
    insert_rows(connection, posting_pages.name, columns, rows)
