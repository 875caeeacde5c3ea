"""The matcher's snapshot: a folder that every Python worker opens once, and what it keeps of it from task to task.

    FOLDER/snapshot.json         versions, shards, what the subscriptions ask for
    FOLDER/vocabulary/           the records of each ontology, and what is declared beside them
    FOLDER/shard-000/ …          `Matcher.save`: the subscriptions, in as many shards as fit a worker's memory

The id of a subscription determines its shard, so a changed subscription changes one shard. No pickle: records are
MessagePack and JSON, the index is flat arrays. On a cluster, Spark copies the folder to the workers.
"""

import fcntl
import gc
import gzip
import hashlib
import json
import os
import shutil
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, cast

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql import SparkSession

from kindcast.semantic import CanonicalEvent, Event, InvalidEvent, InvalidSubscription, Matcher, Operator, Vocabulary
from kindcast.semantic.errors import SemanticError, UnusableMatcher
from kindcast.semantic.events import Canonicaliser, correction_key, correction_of
from kindcast.semantic.language import parse, to_tree
from kindcast.semantic.matching import MatchTable, saved_trees
from kindcast.semantic.ontology import Ontology, Reason, decode, encode, read_several
from kindcast.semantic.operators import load_operators
from kindcast.semantic.operators.builtin import builtin_operators, operators_of_documents
from kindcast.semantic.subscriptions import as_new, restore_expression
from kindcast.semantic.vocabulary import MEANING, arguments_of
from kindcast.spark_jobs.event_batch import EventBatch, Rejected, reason_of, unnamed
from kindcast.spark_jobs.report import JobFailed, UnusableSnapshot
from kindcast.spark_jobs.session import is_local

__all__ = [
    "SHARD_SUBSCRIPTIONS",
    "Inputs",
    "Matched",
    "ShardMatcher",
    "Snapshot",
    "added_up",
    "event_keys",
    "forget_older",
    "opened",
    "operators_for_jobs",
    "parts_of",
    "records_of",
    "settle",
    "vocabulary_of",
    "write_snapshot",
]

# Operators in jobs, and the statistics of their calls. Jobs can use the built-in operators and those that are installed
# on the driver and on every worker.


def operators_for_jobs(data: Path | None = None) -> Iterable[Operator]:
    """Returns the built-in operators and the operators of the entry point group `kindcast.operators`. The latter
    replace built-in operators of the same name. `data` is a file with regions, tables and windows. Only
    the backtests of a server have it."""
    installed = load_operators()
    return (*(each for each in _builtin(data) if each.name not in installed), *installed.values())


@lru_cache(maxsize=1)
def _builtin(data: Path | None) -> list[Operator]:
    if data is None:
        return builtin_operators()
    return operators_of_documents(msgspec.msgpack.decode(data.read_bytes(), type=list[tuple[str, str, bytes]]))


def records_of(matcher: Matcher) -> list[dict[str, Any]]:
    """Returns the statistics of each operator predicate that a matcher has collected, in the form of the planner."""
    return matcher.layer.experience.as_records()


def added_up(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Merges the records of several workers: adds the numbers of the same predicate."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for record in records:
        key = tuple((name, value) for name, value in record.items() if not _is_number(value))
        mine = found.setdefault(key, dict(key))
        for name, value in record.items():
            if _is_number(value):
                mine[name] = mine.get(name, 0) + value
    return list(found.values())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# ── snapshot ──────────────────────────────────────────────────────────────────────────────────────────────────────────

SHARD_SUBSCRIPTIONS = 1_000_000
"""Of one shard: an index of some 800 MB, which leaves a worker room below 1.5 GB (docs/scale.md)."""
LAYOUT = 1
ADDED_TOGETHER = 5_000
OTHER_FILTERS = ("types", "source", "filters")
"""Members of a subscription as a server takes it, which restrict it further. An export has them in the expression."""
CONTEXT = ("id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "specversion")

Subscriptions = Iterable[tuple[str, str | Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Refused:
    """A subscription that was refused, and why."""

    subscription: str
    reason: str


@dataclass(frozen=True, slots=True)
class Shard:
    """`digest` covers the vocabulary and every subscription of the shard."""

    folder: str
    subscriptions: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The description of a snapshot. It is small, because it is sent to the workers with every task."""

    folder: str
    """Absolute. Workers open it; on a cluster they open their own copies of it (`sent`)."""
    vocabulary_version: str
    shards: tuple[Shard, ...]
    context: bool
    """Whether some subscription, or a declared event type, looks at context attributes."""
    layout: int = LAYOUT
    meaning: int = 1
    """`kindcast.semantic.vocabulary.vocabulary.MEANING` when it was written; those of the first meaning do not say it.
    One of another meaning is compiled again from its trees whenever it is opened: write it again to have that done
    once."""
    refused: tuple[Refused, ...] = field(default=(), compare=False)
    sent: str = field(default="", compare=False)
    """Where the folder is among the files that Spark gives to its workers; empty where all run on this machine."""

    @property
    def place(self) -> Path:
        """The folder on the machine of this process."""
        return Path(SparkFiles.get(self.sent)) if self.sent else Path(self.folder)

    def for_workers(self, session: SparkSession) -> "Snapshot":
        """Returns the snapshot for use in tasks. On a cluster, Spark copies the folder once to each executor, so no
        shared file system is needed."""
        context = session.sparkContext
        if self.sent or is_local(context.master):
            return self
        told = repr((self.vocabulary_version, self.shards, self.meaning))
        name = f"kindcast-{hashlib.sha256(told.encode()).hexdigest()[:20]}"
        root = Path(SparkFiles.getRootDirectory())  # the driver's: Spark removes it at the end
        if not (root / name).exists():
            packed = shutil.make_archive(str(root / "packed" / name), "tar", self.place.parent, self.place.name)
            context.addArchive(f"{packed}#{name}")
        return replace(self, sent=f"{name}/{self.place.name}")

    def groups(self, together: int = SHARD_SUBSCRIPTIONS) -> tuple[tuple[int, ...], ...]:
        """Returns the shards in groups that a worker holds at one time. A group has up to `together` subscriptions, but
        at least one shard."""
        found: list[list[int]] = []
        held = 0
        for number, shard in enumerate(self.shards):
            if not found or held + shard.subscriptions > together:
                found.append([])
                held = 0
            found[-1].append(number)
            held += shard.subscriptions
        return tuple(map(tuple, found))

    @classmethod
    def read(cls, folder: Path) -> "Snapshot":
        """Raises `UnusableSnapshot`."""
        try:
            said = json.loads((folder / "snapshot.json").read_text(encoding="utf-8"))
            if said["layout"] != LAYOUT:
                raise UnusableSnapshot(f"{folder} was written by another version of kindcast: write the snapshot again")
            shards = tuple(Shard(**each) for each in said.pop("shards"))
            refused = tuple(Refused(**each) for each in said.pop("refused"))
            found = cls(**said | {"folder": str(folder.absolute())}, shards=shards, refused=refused)
            return found if found.meaning == MEANING else found._with_present_meaning()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UnusableSnapshot(f"{folder} has no snapshot of a matcher: {error}") from error

    def _with_present_meaning(self) -> "Snapshot":
        """Returns the snapshot with the versions that its vocabulary and shards have under the current rules."""
        version = self._built().version
        shards = (replace(each, digest=f"{version}:{each.digest.partition(':')[2]}") for each in self.shards)
        return replace(self, vocabulary_version=version, shards=tuple(shards))

    def vocabulary(self) -> Vocabulary:
        """Builds the vocabulary from its records. Raises `UnusableSnapshot`."""
        vocabulary = self._built()
        if vocabulary.version != self.vocabulary_version:
            detail = f"the vocabulary in {self.place} differs from the one in snapshot.json: write the snapshot again"
            raise UnusableSnapshot(detail)
        return vocabulary

    def _built(self) -> Vocabulary:
        folder = self.place / "vocabulary"
        try:
            declared = json.loads((folder / "declarations.json").read_text(encoding="utf-8"))
            return Vocabulary(
                [decode(path.read_bytes(), older=True) for path in sorted(folder.glob("*.records"))], **declared
            )
        except (OSError, ValueError, SemanticError) as error:
            raise UnusableSnapshot(f"the vocabulary in {folder} cannot be read: {error}") from error

    def matcher(self, shard: int, vocabulary: Vocabulary) -> Matcher:
        """Opens the matcher of one shard. Raises `UnusableSnapshot`."""
        open_one = _open_matcher if self.meaning == MEANING else _compile_again
        return open_one(self.place / self.shards[shard].folder, vocabulary)


def shard_of(id: str, shards: int) -> int:
    """The shard that a subscription belongs to.

    >>> shard_of("s1", 1), shard_of("s1", 4) == shard_of("s1", 4)
    (0, True)
    """
    return zlib.crc32(id.encode()) % shards


def write_snapshot(
    folder: Path,
    ontologies: Sequence[Ontology],
    subscriptions: Subscriptions,
    *,
    declarations: Mapping[str, Any] | None = None,
    shards: int | None = None,
    refused: Sequence[Refused] = (),
    stored: bool = False,
) -> Snapshot:
    """Compiles all subscriptions (id, text or tree) and writes the folder atomically. An existing folder is replaced.
    `declarations` are the arguments of `Vocabulary` other than the ontologies. The default of `shards` follows from
    `SHARD_SUBSCRIPTIONS`. Subscriptions that cannot be compiled are listed in `refused`, after those given. `stored`
    says that a server has them: texts stay texts, and what is gone leaves them the meaning that it leaves them there
    (rule 14)."""
    listed = list(subscriptions)
    count = shards or max(1, -(-len(listed) // SHARD_SUBSCRIPTIONS))
    vocabulary = Vocabulary(ontologies, **(declarations or {}))
    if stored:
        listed = [(id, as_new(each, vocabulary) if isinstance(each, Mapping) else each) for id, each in listed]
    writing = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(writing, ignore_errors=True)
    (writing / "vocabulary").mkdir(parents=True)
    for number, ontology in enumerate(ontologies):
        (writing / "vocabulary" / f"{number:03}.records").write_bytes(encode(ontology))
    declared = json.dumps(dict(declarations or {}), ensure_ascii=False)
    (writing / "vocabulary" / "declarations.json").write_text(declared, encoding="utf-8")
    parts: list[list[tuple[str, str | Mapping[str, Any]]]] = [[] for _ in range(count)]
    for id, expression in listed:
        parts[shard_of(id, count)].append((id, expression))
    left_out = list(refused)
    written: list[Shard] = []
    context = bool(vocabulary.schemas) or _context_has_names_above(vocabulary)
    for number, part in enumerate(parts):
        matcher = Matcher(vocabulary, operators=operators_for_jobs())
        left_out += _add(matcher, part, stored=stored)
        name = f"shard-{number:03}"
        digest, asks = _save_matcher(matcher, writing / name)
        context = context or asks
        written.append(Shard(name, len(matcher), f"{vocabulary.version}:{digest}"))
    snapshot = Snapshot(
        folder=str(folder.absolute()),
        vocabulary_version=vocabulary.version,
        shards=tuple(written),
        context=context,
        meaning=MEANING,
        refused=tuple(left_out),
    )
    told = {name: value for name, value in asdict(snapshot).items() if name not in ("folder", "sent")}
    (writing / "snapshot.json").write_text(json.dumps(told, ensure_ascii=False), encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    writing.rename(folder)
    return snapshot


def _add(matcher: Matcher, part: Sequence[tuple[str, str | Mapping[str, Any]]], *, stored: bool) -> Iterator[Refused]:
    for start in range(0, len(part), ADDED_TOGETHER):
        some = part[start : start + ADDED_TOGETHER]
        try:
            matcher.add_many(some)
        except SemanticError:  # one of them: add what can be added
            for id, expression in some:
                if id in matcher:
                    continue
                try:
                    matcher.add(id, expression)
                except InvalidSubscription as error:
                    if not (stored and _is_restored(matcher, id, expression)):
                        yield Refused(id, "; ".join(str(problem.detail) for problem in error.problems))


def _is_restored(matcher: Matcher, id: str, expression: str | Mapping[str, Any]) -> bool:
    """Adds a subscription as a server keeps it, although something that it names is gone. Returns False if it cannot be
    read, or calls an operator that jobs lack."""
    try:
        compiled = restore_expression(to_tree(parse(expression)), matcher.vocabulary, matcher.operators)
    except InvalidSubscription:
        return False
    if any(note.code == "operator-gone" for note in compiled.notes):
        return False
    matcher.add_compiled(id, compiled)
    return True


def _context_has_names_above(vocabulary: Vocabulary) -> bool:
    """Returns whether a context attribute also counts as another attribute."""
    names = Canonicaliser(vocabulary).names
    return any(names(f"ce.{each}") != (f"ce.{each}",) for each in CONTEXT)


# ── a shard on disk ─────────────────────────────────────────────────────────────────────────────────────────────────


def _save_matcher(matcher: Matcher, folder: Path) -> tuple[str, bool]:
    """Saves a shard. Returns a digest of its subscriptions, and whether one of them uses context attributes."""
    matcher.save(folder)
    digest, context = hashlib.sha256(), False
    for name in sorted(matcher):
        said = json.dumps([name, matcher.tree(name)], ensure_ascii=False)
        digest.update(said.encode())
        context = context or '"ce.' in said or '"@ce.' in said
    return digest.hexdigest(), context


def _compile_again(folder: Path, vocabulary: Vocabulary) -> Matcher:
    """Compiles a shard again that was compiled under other rules. Subscriptions without a meaning under the current
    rules match nothing."""
    matcher = Matcher(vocabulary, operators=operators_for_jobs())
    try:
        matcher.restore_many(saved_trees(folder))
    except UnusableMatcher as error:
        raise UnusableSnapshot(f"{error}: write the snapshot again") from error
    return matcher


def _open_matcher(folder: Path, vocabulary: Vocabulary) -> Matcher:
    try:
        return Matcher.open(folder, vocabulary, operators=operators_for_jobs())
    except UnusableMatcher as error:
        raise UnusableSnapshot(f"{error}: write the snapshot again, by running the job with another output") from error


# ── inputs ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The inputs of a job: ontologies, declarations and subscriptions, from files or a snapshot.
#
#     --ontology FILE …  --declarations FILE  --subscriptions FILE      the user's files
#     --inputs DIR                                                       what the command line fetched from a server
#
# A subscriptions file is NDJSON as a server exports it: one `{"id", "expression"}` per line, or `where` with a
# tree. A bad line is reported with its number and does not stop the rest. A paused subscription (`status`) is left out,
# because a server does not match it either.


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The paths of the inputs."""

    ontologies: tuple[Path, ...] = ()
    relations: tuple[str, ...] = ()
    reason: Reason = "none"
    declarations: Path | None = None
    subscriptions: Path | None = None
    folder: Path | None = None
    shards: int | None = None

    def stamp(self) -> str:
        """A digest that changes whenever a file or the rules of matching (`MEANING`) change."""
        files = [*self.ontologies, self.declarations, self.subscriptions]
        if self.folder is not None:
            files += sorted(self.folder.iterdir())
        told = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files if path is not None]
        return hashlib.sha256(repr((MEANING, told, self.relations, self.reason, self.shards)).encode()).hexdigest()[:16]

    def snapshot(self, below: Path) -> Snapshot:
        """Returns the snapshot of these inputs. It has its own folder in `below` and is written if it does not exist.
        Raises `JobFailed`, `SemanticError`, `OSError`."""
        with self._at_rest():
            place = below / f"snapshot-{self.stamp()}"
            if (place / "snapshot.json").exists():
                return Snapshot.read(place)
            ontologies, declared = self._ontologies(), self._declared()
            bad: list[Refused] = []
            subscriptions = list(self._subscriptions(bad))
        below.mkdir(parents=True, exist_ok=True)
        return write_snapshot(
            place,
            ontologies,
            subscriptions,
            declarations=declared,
            shards=self.shards,
            refused=bad,
            stored=self.folder is not None,
        )

    @contextmanager
    def _at_rest(self) -> Iterator[None]:
        """A context manager in which what was fetched from a server is not replaced: the command line locks the same
        file while it does so."""
        if self.folder is None:
            yield
            return
        folder = self.folder.absolute()  # `.` has no name
        with folder.with_name(f"{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            yield

    def _ontologies(self) -> list[Ontology]:
        try:
            if self.folder is not None:
                return [decode(path.read_bytes(), older=True) for path in sorted(self.folder.glob("*.records"))]
            documents = [(path.name, path.read_bytes()) for path in self.ontologies]
            return list(read_several(documents, limits=None, reason=self.reason, relations=self.relations))
        except OSError as error:
            raise JobFailed(f"an ontology cannot be read: {error}") from error
        except SemanticError as error:
            raise JobFailed(f"{_unreadable(documents)}: {error}") from error

    def _declared(self) -> Mapping[str, Any]:
        path = self.folder / "declarations.json" if self.folder is not None else self.declarations
        if path is None or (self.folder is not None and not path.exists()):
            return {}
        try:
            with _text(path) as file:
                found = json.load(file)
        except (OSError, ValueError, EOFError, zlib.error) as error:
            raise JobFailed(f"{path} is not a JSON file of declarations: {error}") from error
        try:
            return arguments_of(found)
        except SemanticError as error:
            raise JobFailed(f"{path}: {error}") from error

    def _subscriptions(self, bad: list[Refused]) -> Iterator[tuple[str, Any]]:
        path = self.folder / "subscriptions.ndjson" if self.folder is not None else self.subscriptions
        if path is None or (self.folder is not None and not path.exists()):
            return
        seen: set[str] = set()
        try:
            with _text(path) as file:
                for number, line in enumerate(file, 1):
                    if line.strip():
                        try:
                            found = _subscription(line, seen)
                        except (ValueError, SemanticError) as error:
                            bad.append(Refused(f"line {number}", str(error)))
                            continue
                        if found is not None:
                            yield found
        except (OSError, UnicodeDecodeError, EOFError, zlib.error) as error:
            raise JobFailed(f"the subscriptions cannot be read: {path}: {error}") from error


def forget_older(snapshot: Snapshot) -> None:
    """Deletes the snapshots beside this one that are older, because every change of the inputs writes another one."""
    own = Path(snapshot.folder)
    newest = own.stat().st_mtime_ns
    for path in own.parent.iterdir():
        if path.name.lstrip(".").startswith("snapshot-"):
            with suppress(FileNotFoundError):  # another job has just renamed it
                if path.stat().st_mtime_ns < newest:
                    shutil.rmtree(path, ignore_errors=True)


def _unreadable(documents: Sequence[tuple[str, bytes]]) -> str:
    """Returns the name of the document that cannot be read; all names if only the documents together cannot be
    read."""
    for name, content in documents:
        try:
            read_several([(name, content)], limits=None, reason="none")
        except SemanticError:
            return name
    return ", ".join(name for name, _ in documents)


def _text(path: Path) -> IO[str]:
    """Opens a text file, plain or gzip."""
    with path.open("rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
    return cast(IO[str], gzip.open(path, "rt", encoding="utf-8-sig")) if zipped else path.open(encoding="utf-8-sig")


def _subscription(line: str, seen: set[str]) -> tuple[str, Any] | None:
    """Returns the id and the expression of a line; None if the subscription is paused. Raises `ValueError`."""
    said = json.loads(line)
    if not isinstance(said, dict) or not isinstance(said.get("id"), str):
        raise ValueError('a line must be {"id": text, "expression": text}')
    expression = said.get("expression", said.get("where"))
    if not isinstance(expression, str | dict):
        raise ValueError("expected `expression` or `where`")
    if others := [name for name in OTHER_FILTERS if said.get(name) is not None]:
        raise ValueError(f"{', '.join(others)}: jobs read only the expression, so write ce.type = … into it")
    if said["id"] in seen:
        raise ValueError(f"the id {said['id']!r} is used twice")
    seen.add(said["id"])
    return None if said.get("status") == "paused" else (said["id"], expression)


# ── caches of a Python worker that last from task to task: a vocabulary, and the shards that it matches with ──────────

# A worker serves one task at a time, and tasks come group by group: shards that fit into a worker's memory at one time
# are one group, and what is read of an event serves all of them.


@dataclass(frozen=True, slots=True)
class Matched:
    """The result of a batch: the events that can be read, their matches, and the events that cannot be read."""

    batch: EventBatch
    table: MatchTable
    rejected: list[Rejected]


@dataclass(slots=True)
class ShardMatcher:
    """Open shards. In tables of matches, the slots of a shard follow those of the shard before it."""

    matchers: Sequence[Matcher]
    context: bool
    _names: Any = field(default=None, repr=False)
    _first: list[int] = field(default_factory=list, repr=False)

    def match(self, batch: EventBatch) -> Matched:
        """The matches of a batch. An event that cannot be read is set aside and does not affect the others."""
        try:
            return Matched(batch, self._matches(batch), [])
        except InvalidEvent:
            kept, rejected = self._sorted_out(batch)
        try:
            return Matched(kept, self._matches(kept), rejected)
        except InvalidEvent:  # as a row of columns, an event has a value for each name of the others: too many
            return Matched(kept, self._matches_alone(kept), rejected)

    def _matches_alone(self, batch: EventBatch) -> MatchTable:
        events = list(batch.each())
        return self._in_one([matcher.match_batch(events).table for matcher in self.matchers])

    def _matches(self, batch: EventBatch) -> MatchTable:
        if batch.needs_reading or batch.has_names(self.matchers[0].vocabulary.envelope_names):
            return self._matches_alone(batch)
        columns = batch.columns(with_context=self.context)
        return self._in_one([matcher.match_table(columns) for matcher in self.matchers])

    def _in_one(self, tables: Sequence[MatchTable]) -> MatchTable:
        self._learn_names(tables)
        if len(tables) == 1:
            return tables[0]
        offsets = sum(table.offsets for table in tables)
        assert not isinstance(offsets, int)
        slots = np.zeros(int(offsets[-1]), dtype=np.int32)
        bindings: list[Any] | None = None
        if any(table.bindings is not None for table in tables):
            bindings = [()] * slots.size
        start = offsets[:-1].copy()
        for table, first in zip(tables, self._first, strict=True):
            lengths = np.diff(table.offsets)
            places = np.arange(table.slots.size) + np.repeat(start - table.offsets[:-1], lengths)
            slots[places] = table.slots + first
            if bindings is not None and table.bindings is not None:
                for place, each in zip(places.tolist(), table.bindings, strict=True):
                    bindings[place] = each
            start += lengths
        return MatchTable(offsets, slots, bindings, {})

    def _learn_names(self, tables: Sequence[MatchTable]) -> None:
        if self._names is not None:
            return
        texts: list[str] = []
        for table in tables:
            known = table.names
            self._first.append(len(texts))
            own = [""] * (1 + max(known, default=-1))  # a slot that nobody has is never met
            for slot in known:
                own[slot] = known[slot]
            texts += own
        self._names = pa.array(texts, pa.string())

    @property
    def names(self) -> Any:
        """`string[slots]`: the id of each subscription at its slot, once something was matched."""
        return self._names

    def ids(self, table: MatchTable) -> Any:
        """`dictionary<string>[matches]`: the subscription of each match. No text is copied."""
        return pa.DictionaryArray.from_arrays(pa.array(table.slots), self._names)

    def subscriptions(self, table: MatchTable) -> Any:
        """`list<dictionary<string>>[events]`: the subscriptions that each event matches."""
        return pa.ListArray.from_arrays(pa.array(table.offsets.astype(np.int32)), self.ids(table))

    def spent(self) -> dict[str, float]:
        """The number of operator calls so far, and of clauses that they could not decide."""
        told = [matcher.statistics for matcher in self.matchers]
        asked = sum(sum(each.evaluations.values()) for each in told)
        return {"evaluations": asked, "undecided": sum(each.undecided for each in told)}

    def spent_since(self, before: dict[str, float]) -> dict[str, float]:
        """The same since then."""
        return {name: value - before[name] for name, value in self.spent().items() if value - before[name]}

    def _sorted_out(self, batch: EventBatch) -> tuple[EventBatch, list[Rejected]]:
        kept: list[tuple[int, Event | None]] = []
        rejected: list[Rejected] = []
        matcher = self.matchers[0]
        for row, event in enumerate(batch.each()):
            line = int(batch.lines[row])
            try:
                kept += [(row, part) for part, _ in parts_of(event, line, matcher.canonicalise, matcher.events_of)]
            except InvalidEvent as error:
                rejected.append(batch.rejected(row, reason_of(error), shown(event.data)))
        return batch.expanded(kept), rejected


def parts_of(
    event: Event,
    line: int,
    canonicalise: Callable[[Event], CanonicalEvent],
    events_of: Callable[[Event], list[Event]],
) -> list[tuple[Event | None, CanonicalEvent]]:
    """Returns the events of a document with their canonical forms; None in place of an event that is the whole
    document. Raises `InvalidEvent` if one of them cannot be read, because they are accepted or refused together."""
    try:
        return [(None, canonicalise(event))]
    except InvalidEvent as error:
        if not any(problem.code == "several-events" for problem in error.problems):
            raise
    return [(part, canonicalise(part)) for part in events_of(unnamed(event, line))]


_vocabularies: dict[tuple[str, str], Vocabulary] = {}
_shards: dict[tuple[tuple[str, str], ...], ShardMatcher] = {}


def vocabulary_of(snapshot: Snapshot) -> Vocabulary:
    """Returns the vocabulary of a snapshot. The last one is cached."""
    key = (snapshot.folder, snapshot.vocabulary_version)
    if key not in _vocabularies:
        with _collector.replacing(_vocabularies):
            _vocabularies[key] = snapshot.vocabulary()
    return _vocabularies[key]


def event_keys(snapshot: Snapshot) -> Callable[[Event], str] | None:
    """Returns the function that gives the key of an event, which identifies it among the events of its source as on a
    server. None if every key is the id, because no event type declares corrections."""
    vocabulary = vocabulary_of(snapshot)
    types = vocabulary.schemas.types
    if not vocabulary.schemas.corrects:
        return None
    published = Canonicaliser(vocabulary).published

    def key(event: Event) -> str:
        id = str(event.context["id"])
        try:
            said = correction_of(published(event), types)
        except InvalidEvent:  # matching the event reports the problem
            return id
        return id if said is None else correction_key(id, said.revision)

    return key


def opened(snapshot: Snapshot, shards: Sequence[int]) -> ShardMatcher:
    """Shards of a snapshot; the last ones are kept. Costs their opening the first time in this worker."""
    key = tuple((snapshot.folder, snapshot.shards[shard].digest) for shard in shards)
    if key not in _shards:
        with _collector.replacing(_shards):
            vocabulary = vocabulary_of(snapshot)
            matchers = [snapshot.matcher(shard, vocabulary) for shard in shards]
            _shards[key] = ShardMatcher(matchers, snapshot.context)
    return _shards[key]


COLLECTING_SHARE = 0.02
"""Maximum share of a worker's time for collecting small things that were closed."""


@dataclass(slots=True)
class _Collector:
    """What `settle` has to do."""

    opening: float = 0.0
    """Seconds of opening something, since the last `settle`."""
    closed: bool = False
    """Whether something was closed that is not collected."""
    collecting: float = 0.0
    """Seconds of the last collection of what was closed."""
    due: float = 0.0
    """When the next such collection is due, by the monotonic clock."""

    @contextmanager
    def replacing(self, kept: dict[Any, Any]) -> Iterator[None]:
        """A context manager that closes what is kept, in which the caller opens something else."""
        self.closed = self.closed or bool(kept)
        kept.clear()
        began = time.monotonic()
        yield
        self.opening += time.monotonic() - began


_collector = _Collector()


def settle() -> None:
    """Freezes the open objects, so that garbage collections skip them. A worker calls this when a task ends: Spark's
    daemon runs a collection after each task, which would take as long as the task itself.

    What was closed has cycles of references. Collecting it visits all frozen objects, also those of imported modules.
    So it is collected at once only if opening its successor took longer: then it is large, too. Otherwise the
    collection waits until it is due, because the subscriptions of a stream may change with every batch."""
    began = time.monotonic()
    if _collector.closed and (_collector.opening >= _collector.collecting or began >= _collector.due):
        gc.unfreeze()
        gc.collect()
        _collector.closed, _collector.collecting = False, time.monotonic() - began
        _collector.due = began + _collector.collecting / COLLECTING_SHARE
    elif _collector.opening:
        gc.collect()
    else:
        return
    gc.freeze()
    _collector.opening = 0.0


def shown(data: Any) -> str:
    """Returns the beginning of the data of an event."""
    return json.dumps(data, ensure_ascii=False, default=str)[:200]
