"""The registry of operators: built-in, from plug-ins, and remote. A start restores it from the store.

A registry is immutable; a change replaces it. `available` has the operators that new subscriptions may call. `known`
also has a placeholder for every removed operator that stored subscriptions still call. It never answers, so their
events wait for it.
"""

import inspect
import threading
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
from sqlalchemy import Connection

from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.operators import Operator, OperatorFailed, entry_points_at_start, load_operators
from kindcast.semantic.operators.builtin import MOST_CELLS, Regions, Table, builtin_operators
from kindcast.semantic.planner import Experience, read_priors
from kindcast.server.errors import StoreUnreadable
from kindcast.server.security.egress import check_sink
from kindcast.server.settings import Settings
from kindcast.server.store import declarations

if TYPE_CHECKING:
    from kindcast.server.operators.operator_clients import EventAnswers

__all__ = [
    "CALLED",
    "EMPTY",
    "MOST_TABLES",
    "DataKind",
    "Deferred",
    "Entry",
    "Event",
    "Key",
    "OwnData",
    "Piece",
    "Registration",
    "Registry",
    "answering_from",
    "data_documents",
    "first_expectations",
    "folder_data",
    "missing",
    "operators_of",
    "piece_size",
    "read_piece",
    "read_registration",
    "restore_registry",
]

# ── the function of an operator ───────────────────────────────────────────────────────────────────────────────────────

Event = Mapping[str, tuple[Any, ...]]
"""Attribute → its values."""


def missing(name: str) -> OperatorFailed:
    """Returns the error for an operator that is no longer provided."""
    return OperatorFailed(f"there is no operator {name!r} at present", kind="missing")


@dataclass(frozen=True, slots=True)
class Deferred:
    """The function of an operator on the server. It calls the operator through the `EventAnswers` of the current
    thread."""

    name: str
    __signature__: inspect.Signature = field(repr=False)
    _misfits: dict[int, str | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Number of arguments → why a call with so many does not fit; None if it fits."""

    def __call__(self, event: Event, *arguments: Any) -> object:
        event_answers = getattr(_here, "event_answers", None)
        if event_answers is None:
            raise OperatorFailed("is not called here", kind="missing")
        self._check(event, *arguments)
        answer: object = event_answers.ask(self.name, event, arguments)
        return answer

    def _check(self, *given: Any) -> None:
        """Raises `OperatorFailed` if the operator takes other arguments than when the subscription was created."""
        count = len(given) - 1
        if count not in self._misfits:
            try:
                self.__signature__.bind(*given)
                self._misfits[count] = None
            except TypeError as error:
                self._misfits[count] = f"takes other arguments now; the call has {count}: {error}"
        if (misfit := self._misfits[count]) is not None:
            raise OperatorFailed(misfit)


@contextmanager
def answering_from(event_answers: "EventAnswers") -> Iterator[None]:
    """A context manager: while the block runs, operators are called through `event_answers` in this thread."""
    before = getattr(_here, "event_answers", None)
    _here.event_answers = event_answers
    try:
        yield
    finally:
        _here.event_answers = before


_here = threading.local()


# ── registration ──────────────────────────────────────────────────────────────────────────────────────────────────────
# The registration of a remote operator by an administrator, its checks, and its declaration for the matcher.

MAX_ATTRIBUTES = 1_000
MAX_HEADERS = 16
MAX_HEADER_LENGTH = 4_096
OWN_HEADERS = ("host", "content-length", "transfer-encoding", "connection")
"""Headers that the server itself sends with each call."""
HIDDEN = "(hidden)"
"""What is shown in place of the value of a header."""
MAX_ARGUMENTS = 32
WINDOWS = '{"office hours": ["mon-thu 09:00-17:00 Europe/Vienna", "fri 09:00-13:00 Europe/Vienna"]}'
"""What windows look like, for messages."""
MAX_SECONDS = 60.0
MAX_CONCURRENCY = 256


class Registration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The registration of a remote operator. `arguments` is the number of constants and `@attributes` in a call, or the
    lowest and highest number. `attributes` are the attributes of the event that are sent (None: all). The other numbers
    are priors of the planner and limits."""

    url: str
    version: str = "1"
    arguments: int | tuple[int, int] = (0, MAX_ARGUMENTS)
    attributes: tuple[str, ...] | None = None
    cost: float = 0.05
    selectivity: float = 0.5
    timeout_seconds: float = 5.0
    concurrency: int = 8
    speculate: bool = False
    retries: int = 1
    cache_seconds: float = 0.0
    headers: dict[str, str] = {}

    def shown(self) -> dict[str, Any]:
        """Returns the registration without the values of headers, which may be secrets."""
        told: dict[str, Any] = {name: getattr(self, name) for name in self.__struct_fields__}
        return told | {"headers": dict.fromkeys(self.headers, HIDDEN)}


def read_registration(body: Mapping[str, Any], *, allow_private: bool) -> Registration:
    """Checks a registration and returns it. Raises `InvalidDeclaration`, `SinkRefused`."""
    known = Registration.__struct_fields__
    unknown = next((name for name in body if name not in known), None)
    if unknown is not None:
        raise InvalidDeclaration(f"an operator has no member {unknown[:100]!r}; known are {', '.join(known)}")
    for name, most in (("headers", MAX_HEADERS), ("attributes", MAX_ATTRIBUTES)):
        if isinstance(body.get(name), dict | list) and len(body[name]) > most:
            raise InvalidDeclaration(f"the operator cannot be registered: at most {most:,} {name} are allowed")
    try:
        read = msgspec.convert(body, Registration, strict=True)
    except msgspec.ValidationError as error:
        raise InvalidDeclaration(f"the operator cannot be registered: {error}") from None
    check_sink(read.url, allow_private=allow_private, what="url")
    least, most = _arity(read)
    bounds = {
        f"arguments are from 0 to {MAX_ARGUMENTS}": 0 <= least <= most <= MAX_ARGUMENTS,
        f"timeout_seconds are above 0, at most {MAX_SECONDS:g}": 0 < read.timeout_seconds <= MAX_SECONDS,
        f"concurrency is from 1 to {MAX_CONCURRENCY}": 1 <= read.concurrency <= MAX_CONCURRENCY,
        "retries are from 0 to 5": 0 <= read.retries <= 5,
        "cache_seconds are from 0 to 86,400": 0 <= read.cache_seconds <= 86_400,
        "a version has 1 to 100 characters": 1 <= len(read.version) <= 100,
        f"the names of headers are ASCII letters, digits, - and _, but not {', '.join(OWN_HEADERS)}": all(
            map(_names_header, read.headers)
        ),
        f"a header has at most {MAX_HEADER_LENGTH:,} visible ASCII characters, without spaces at its ends": all(
            len(value) <= MAX_HEADER_LENGTH and all(" " <= each <= "~" for each in value) and value == value.strip()
            for value in read.headers.values()
        ),
        f"give the value of each header, instead of {HIDDEN}": HIDDEN not in read.headers.values(),
    }
    for rule, kept in bounds.items():
        if not kept:
            raise InvalidDeclaration(f"the operator cannot be registered: {rule}")
    return read


def as_operator(name: str, registration: Registration) -> Operator:
    """Returns the declaration for the matcher. Raises `InvalidDeclaration`."""
    least, most = _arity(registration)
    kind = inspect.Parameter.POSITIONAL_ONLY
    parameters = [inspect.Parameter("event", kind)]
    parameters += [
        inspect.Parameter(f"argument{n}", kind, default=inspect.Parameter.empty if n < least else None)
        for n in range(most)
    ]
    return Operator(
        name=name,
        function=Deferred(name, inspect.Signature(parameters)),
        cost=registration.cost,
        selectivity=registration.selectivity,
        version=registration.version,
        speculate=registration.speculate,
    )


def _arity(registration: Registration) -> tuple[int, int]:
    asked = registration.arguments
    return (asked, asked) if isinstance(asked, int) else asked


def _names_header(name: str) -> bool:
    """Whether a caller may set this header."""
    written = bool(name) and all(each.isascii() and (each.isalnum() or each in "-_") for each in name)
    return written and name.lower() not in OWN_HEADERS


# ── data ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Data of the built-in operators: named regions, tables and calendar windows, from a folder or uploaded.
#
# operator_data (a folder, read at the start) ──┐
#                                               ├─▶ OwnData ──▶ the built-in operators over it
# uploads (kept in the store)  ─────────────────┘   an upload has priority over the folder

DataKind = Literal["regions", "tables", "windows"]
Key = tuple[DataKind, str]
"""The kind and name of data. Tables have names. There is one document of regions and one of windows, named ""."""
Piece = Regions | Table | Mapping[str, list[str]]

MOST_TABLES = 1_000
CALLED: Mapping[DataKind, tuple[str, ...]] = {
    "regions": ("inRegion", "distanceFrom"),
    "tables": ("inTable", "lookUp"),
    "windows": ("inWindow",),
}
"""The operators that read each kind of data."""


def read_piece(kind: DataKind, name: str, document: bytes) -> Piece:
    """Checks and reads a document. Cost: linear. Raises `InvalidDeclaration`, and `FailedForGood` if a library is
    missing."""
    if kind == "regions":
        return Regions.from_geojson(document)
    if kind == "tables":
        return Table.from_csv(name, document)
    try:
        windows = msgspec.json.decode(document, type=dict[str, list[str]])
    except msgspec.ValidationError:
        raise InvalidDeclaration(f"windows are a JSON object of names with lists of texts, like {WINDOWS}") from None
    except msgspec.DecodeError as error:
        raise InvalidDeclaration(f"windows are JSON, like {WINDOWS}, but this is not: {error}") from None
    builtin_operators(windows_known=windows)
    return windows


def piece_size(piece: Piece) -> int:
    """Returns the number of regions, rows or windows."""
    return len(piece)


@dataclass(frozen=True, slots=True)
class OwnData:
    """The data of the built-in operators, from a folder and from uploads. Immutable, so it may be used in any
    thread."""

    folder: Mapping[Key, Piece] = field(default_factory=dict)
    uploaded: Mapping[Key, Piece] = field(default_factory=dict)

    @property
    def pieces(self) -> Mapping[Key, Piece]:
        """The data in use: the uploads, and the data of the folder that no upload replaces."""
        return {**self.folder, **self.uploaded}

    def with_upload(self, key: Key, piece: Piece) -> "OwnData":
        """Returns the data with an upload added or replaced. Raises `InvalidDeclaration` for too many tables, and if
        the uploaded tables together have too many cells."""
        changed = replace(self, uploaded={**self.uploaded, key: piece})
        if len(changed.pieces) > MOST_TABLES:
            raise InvalidDeclaration(f"this server takes at most {MOST_TABLES:,} tables")
        if changed.cells > max(MOST_CELLS, self.cells):
            raise InvalidDeclaration(
                f"all uploaded tables together have at most {MOST_CELLS:,} cells, and these would be"
                f" {changed.cells:,}: delete a table, or put large tables into the folder of operator_data"
            )
        return changed

    @property
    def cells(self) -> int:
        """The number of cells of all uploaded tables."""
        return sum(each.cells for each in self.uploaded.values() if isinstance(each, Table))

    def without_upload(self, key: Key) -> "OwnData":
        """Returns the data without an upload. Data of the folder under this name is used again."""
        return replace(self, uploaded={each: piece for each, piece in self.uploaded.items() if each != key})

    def operators(self) -> list[Operator]:
        """Returns the built-in operators with all data. Their version depends on the data."""
        pieces = self.pieces
        windows = cast(Mapping[str, list[str]] | None, pieces.get(("windows", "")))
        regions = cast(Any, pieces.get(("regions", "")))
        tables = [piece for piece in pieces.values() if isinstance(piece, Table)]
        return builtin_operators(regions=regions, tables_known=tables, windows_known=windows)


# ── operators of a subscription ───────────────────────────────────────────────────────────────────────────────────────
# The operators that a stored subscription calls, from its tree: `{"op": ["locIn", "Bronx"]}` at any depth.


def operators_of(tree: Any) -> set[str]:
    """Returns the names of the operators in a tree. Cost: linear in the tree.

    >>> sorted(operators_of({"all": [{"<": ["price", 5]}, {"not": {"op": ["near", "Bronx", "?d"]}}]}))
    ['near']
    """
    found: set[str] = set()
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            called = node.get("op")
            if isinstance(called, list) and called and isinstance(called[0], str):
                found.add(called[0])
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
    return found


# ── registry ──────────────────────────────────────────────────────────────────────────────────────────────────────────

Kind = Literal["builtin", "plugin", "remote", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An operator as it was declared, and where it runs. `registration` is that of a remote operator."""

    operator: Operator
    kind: Kind
    registration: Registration | None = None


@dataclass(frozen=True)
class Registry:
    """The registry of operators. Immutable, so it may be used in any thread. Its views are made once: the shapes of
    imports are cached for one view."""

    entries: Mapping[str, Entry] = field(default_factory=dict)
    data: OwnData = field(default_factory=OwnData)
    """The data of the built-in operators."""

    @classmethod
    def of(cls, data: OwnData, plugins: Iterable[Operator]) -> "Registry":
        """Makes a registry of built-in operators and plug-ins. A plug-in replaces a built-in operator with the same
        name."""
        entries = {each.name: Entry(operator=each, kind="builtin") for each in data.operators()}
        entries |= {each.name: Entry(operator=each, kind="plugin") for each in plugins}
        return cls(entries, data)

    @cached_property
    def available(self) -> Mapping[str, Operator]:
        """The operators that a new subscription may call."""
        return {name: _deferred(each) for name, each in self.entries.items() if each.kind != "missing"}

    @property
    def decided_at_once(self) -> Mapping[str, Operator]:
        """Operators for a matcher that must not wait: built-in operators are called in its thread, and the others have
        no answer."""
        builtin = {name: each.operator for name, each in self.entries.items() if each.kind == "builtin"}
        return {**self.available, **builtin}

    @cached_property
    def known(self) -> Mapping[str, Operator]:
        """All operators that stored subscriptions may call, including missing ones."""
        return {name: _deferred(each) for name, each in self.entries.items()}

    def with_remote(self, name: str, registration: Registration) -> "Registry":
        """Returns the registry with a remote operator added or replaced. Raises `InvalidDeclaration`."""
        entry = Entry(operator=as_operator(name, registration), kind="remote", registration=registration)
        return replace(self, entries={**self.entries, name: entry})

    def with_data(self, data: OwnData) -> "Registry":
        """Returns the registry with other data for the built-in operators. Operators whose data is the same do not
        change."""
        changed = dict(self.entries)
        for operator in data.operators():
            before = changed[operator.name]
            if before.kind == "builtin" and before.operator.version != operator.version:
                changed[operator.name] = Entry(operator=operator, kind="builtin")
        return replace(self, entries=changed, data=data)

    def without(self, name: str) -> "Registry":
        """Returns the registry without an operator."""
        return replace(self, entries={key: each for key, each in self.entries.items() if key != name})

    def with_missing(self, names: Iterable[str]) -> "Registry":
        """Returns the registry with placeholders for those of `names` that are missing."""
        gone = {name: Entry(operator=_stand_in(name), kind="missing") for name in names if name not in self.entries}
        return replace(self, entries={**self.entries, **gone})


EMPTY = Registry()


def _deferred(entry: Entry) -> Operator:
    """Returns the declaration with a function that calls the operator through the `EventAnswers` of the thread."""
    operator = entry.operator
    # The caller decides how it runs. Cache keys are trusted only from built-in operators.
    key = operator.cache_key if entry.kind == "builtin" else None
    function = Deferred(operator.name, operator.signature)
    return replace(operator, function=function, batch=None, timeout=None, isolated=False, cache_key=key)


def _stand_in(name: str) -> Operator:
    def gone(event: object, *arguments: object) -> bool:
        raise missing(name)

    return Operator(name=name, function=Deferred(name, inspect.signature(gone)))


MOST_BYTES = 256 << 20
"""The maximum size of a file, which is read into memory."""


def restore_registry(connection: Connection, settings: Settings) -> Registry:
    """All operators, with placeholders for operators that stored subscriptions call but that no longer exist.

    Raises `StoreUnreadable` for data that cannot be read, because an operator with a part of its data would decide
    wrongly.
    """
    plugins = load_operators(entry_points_at_start()) if settings.plugins else {}
    data = OwnData(folder_data(settings.operator_data), _uploaded(connection))
    registry = Registry.of(data, plugins.values())
    for row in declarations.list_operators(connection):
        entry = registry.entries.get(row.name)
        if entry is None:  # an operator that was installed since has priority over a registration
            registry = registry.with_remote(row.name, _registration(row.body))
    return registry.with_missing(declarations.count_uses(connection))


def folder_data(folder: Path | None) -> dict[Key, Piece]:
    """Returns the data in a folder. Raises `StoreUnreadable`, which names the file."""
    found: dict[Key, Piece] = {}
    for (kind, name), path in _files(folder).items():
        try:
            found[kind, name] = read_piece(kind, name, _bytes(path))
        except (InvalidDeclaration, OperatorFailed, OSError, ValueError) as error:
            raise StoreUnreadable(f"operator_data: {path} cannot be read: {error}") from error
    return found


def data_documents(connection: Connection, folder: Path | None, names: Set[str]) -> list[tuple[DataKind, str, bytes]]:
    """Returns the documents that the operators with these names read. Another process can use them. Raises
    `OSError`."""
    kinds = {kind for kind, called in CALLED.items() if not names.isdisjoint(called)}
    found = {key: _bytes(path) for key, path in _files(folder).items() if key[0] in kinds}
    found |= {(row.kind, row.name): row.document for row in declarations.list_data(connection) if row.kind in kinds}
    return [(kind, name, document) for (kind, name), document in found.items()]


def _files(folder: Path | None) -> dict[Key, Path]:
    """Returns the files of data in a folder. Raises `StoreUnreadable`."""
    if folder is None:
        return {}
    if not folder.is_dir():
        raise StoreUnreadable(f"operator_data: there is no folder {folder}")
    files: dict[Key, Path] = {("regions", ""): folder / "regions.geojson", ("windows", ""): folder / "windows.json"}
    files |= {("tables", path.stem): path for path in sorted((folder / "tables").glob("*.csv"))[: MOST_TABLES + 1]}
    if len(files) > MOST_TABLES:
        raise StoreUnreadable(f"operator_data: more than {MOST_TABLES:,} tables")
    return {key: path for key, path in files.items() if path.exists()}


def _uploaded(connection: Connection) -> dict[Key, Piece]:
    found: dict[Key, Piece] = {}
    for row in declarations.list_data(connection):
        try:
            found[row.kind, row.name] = read_piece(row.kind, row.name, row.document)
        except (InvalidDeclaration, OperatorFailed) as error:
            raise StoreUnreadable(f"the uploaded {row.kind} {row.name!r} cannot be read: {error}") from error
    return found


def first_expectations(path: Path | None) -> list[dict[str, Any]]:
    """Reads the statistics of operators that were measured on an archive, from a file. Raises `StoreUnreadable`, which
    names the file."""
    if path is None:
        return []
    try:
        records = read_priors(path)
        Experience.from_records(records)
    except (OSError, ValueError) as error:
        raise StoreUnreadable(f"operator_priors: {error}") from error
    return records


def _bytes(path: Path) -> bytes:
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"a file has at most {MOST_BYTES:,} bytes")
    return path.read_bytes()


def _registration(body: Mapping[str, Any]) -> Registration:
    return msgspec.convert(body, Registration)
