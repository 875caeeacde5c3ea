"""The matcher's snapshot: a folder that every Python worker opens once and shares through the page cache.

    FOLDER/snapshot.json         versions, shards, what the subscriptions ask for
    FOLDER/vocabulary/           the records of each ontology, and what is declared beside them
    FOLDER/shard-000/ …          `Matcher.save`: the subscriptions, in as many shards as fit a worker's memory

The id of a subscription determines its shard, so a changed subscription changes one shard. No pickle: records are
MessagePack and JSON, the index is flat arrays. The folder lies where all workers see it, or Spark carries it to them.
"""

import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from kindcast.semantic import InvalidSubscription, Matcher, SemanticError, Vocabulary
from kindcast.semantic.errors import UnusableMatcher
from kindcast.semantic.events.canonical_events import Canonicaliser
from kindcast.semantic.matching.saved_matcher import saved_trees
from kindcast.semantic.ontology import Ontology
from kindcast.semantic.ontology.encoding import decode, encode
from kindcast.semantic.vocabulary.vocabulary import MEANING
from kindcast.spark_jobs.errors import UnusableSnapshot
from kindcast.spark_jobs.operators import operators_for_jobs

__all__ = ["SHARD_SUBSCRIPTIONS", "Refused", "Shard", "Snapshot", "shard_of", "write_snapshot"]

SHARD_SUBSCRIPTIONS = 1_000_000
"""Of one shard: an index of some 800 MB, which leaves a worker room below 1.5 GB (docs/scale.md)."""
LAYOUT = 1
ADDED_TOGETHER = 5_000
CONTEXT = ("id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "specversion")

Subscriptions = Iterable[tuple[str, str | Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Refused:
    """A subscription that was not taken, and why."""

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
    """What a snapshot holds. Small: it goes to the workers with every task. With `carried` the folder is not where
    `folder` says but where Spark has put it on each worker."""

    folder: str
    vocabulary_version: str
    shards: tuple[Shard, ...]
    context: bool
    """Whether some subscription, or a declared event type, looks at context attributes."""
    layout: int = LAYOUT
    meaning: int = 1
    """`kindcast.semantic.vocabulary.vocabulary.MEANING` when it was written; those of the first meaning do not say it.
    One of another meaning is compiled again from its trees whenever it is opened: write it again to have that done
    once."""
    carried: bool = False
    refused: tuple[Refused, ...] = field(default=(), compare=False)

    @property
    def place(self) -> Path:
        """The folder on this machine."""
        if self.carried:
            from pyspark import SparkFiles

            return Path(SparkFiles.get(Path(self.folder).name))
        return Path(self.folder)

    def groups(self, together: int = SHARD_SUBSCRIPTIONS) -> tuple[tuple[int, ...], ...]:
        """The shards in groups that a worker holds at one time: so many subscriptions, one shard at least."""
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
                raise UnusableSnapshot(f"{folder} was written by another version of kindcast: write it again")
            shards = tuple(Shard(**each) for each in said.pop("shards"))
            refused = tuple(Refused(**each) for each in said.pop("refused"))
            found = cls(**said | {"folder": str(folder)}, shards=shards, refused=refused)
            return found if found.meaning == MEANING else found._with_present_meaning()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UnusableSnapshot(f"{folder} holds no snapshot of a matcher: {error}") from error

    def _with_present_meaning(self) -> "Snapshot":
        """The same, with the versions that its vocabulary and shards have by the present rules."""
        version = self._built().version
        shards = (replace(each, digest=f"{version}:{each.digest.partition(':')[2]}") for each in self.shards)
        return replace(self, vocabulary_version=version, shards=tuple(shards))

    def vocabulary(self) -> Vocabulary:
        """Built again from its records. Raises `UnusableSnapshot`."""
        vocabulary = self._built()
        if vocabulary.version != self.vocabulary_version:
            detail = f"the vocabulary in {self.place} is another one than snapshot.json says: write it again"
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
        """The subscriptions of one shard. Raises `UnusableSnapshot`."""
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
) -> Snapshot:
    """Compile all subscriptions (id, text or tree) and write the folder, whole or not at all; one that is there is
    replaced. `declarations` is what `Vocabulary` takes beside ontologies. `shards`: as many as
    `SHARD_SUBSCRIPTIONS` needs, unless told. What cannot be compiled is in `refused`."""
    listed = list(subscriptions)
    count = shards or max(1, -(-len(listed) // SHARD_SUBSCRIPTIONS))
    vocabulary = Vocabulary(ontologies, **(declarations or {}))
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
    refused: list[Refused] = []
    written: list[Shard] = []
    context = bool(vocabulary.schemas) or _context_has_names_above(vocabulary)
    for number, part in enumerate(parts):
        matcher = Matcher(vocabulary, operators=operators_for_jobs())
        refused += _add(matcher, part)
        name = f"shard-{number:03}"
        digest, asks = _save_matcher(matcher, writing / name)
        context = context or asks
        written.append(Shard(name, len(matcher), f"{vocabulary.version}:{digest}"))
    snapshot = Snapshot(
        folder=str(folder),
        vocabulary_version=vocabulary.version,
        shards=tuple(written),
        context=context,
        meaning=MEANING,
        refused=tuple(refused),
    )
    told = {name: value for name, value in asdict(snapshot).items() if name not in ("folder", "carried")}
    (writing / "snapshot.json").write_text(json.dumps(told, ensure_ascii=False), encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    writing.rename(folder)
    return snapshot


def _add(matcher: Matcher, part: Sequence[tuple[str, str | Mapping[str, Any]]]) -> Iterator[Refused]:
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
                    yield Refused(id, "; ".join(str(problem.detail) for problem in error.problems))


def _context_has_names_above(vocabulary: Vocabulary) -> bool:
    """Whether a context attribute counts as some other attribute, too."""
    names = Canonicaliser(vocabulary).names
    return any(names(f"ce.{each}") != (f"ce.{each}",) for each in CONTEXT)


# ── a shard on disk ─────────────────────────────────────────────────────────────────────────────────────────────────


def _save_matcher(matcher: Matcher, folder: Path) -> tuple[str, bool]:
    """A digest of the subscriptions, and whether one of them asks for context attributes."""
    matcher.save(folder)
    digest, context = hashlib.sha256(), False
    for name in sorted(matcher):
        said = json.dumps([name, matcher.tree(name)], ensure_ascii=False)
        digest.update(said.encode())
        context = context or '"ce.' in said or '"@ce.' in said
    return digest.hexdigest(), context


def _compile_again(folder: Path, vocabulary: Vocabulary) -> Matcher:
    """The matcher of a shard that was compiled by other rules. What has no meaning any more matches nothing."""
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
