"""The exceptions of the index.

Only a caller's mistake, or a file that is not what it should be, raises; no engine fails on a clause or an event that
is well formed.

    IndexingError
    ├── UnknownRow       a row that holds no clause
    ├── UnknownEngine    a name that no engine has
    ├── IndexFull        the byte budget has no room for another clause
    └── UnusableIndex    what was saved cannot be opened
        ├── DamagedIndex     it is damaged
        ├── OtherLayout      another version of this program wrote it
        └── OtherGraph       it was made under another concept graph
"""

from pathlib import Path

__all__ = [
    "DamagedIndex",
    "IndexFull",
    "IndexingError",
    "OtherGraph",
    "OtherLayout",
    "UnknownEngine",
    "UnknownRow",
    "UnusableIndex",
]


class IndexingError(Exception):
    """The index was used wrongly."""


class UnknownRow(IndexingError):
    """No clause is stored at this row."""

    def __init__(self, row: int) -> None:
        super().__init__(f"no clause is stored at row {row}")
        self.row = row


class UnknownEngine(IndexingError):
    """There is no engine of this name."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(f"there is no engine named {name!r}; choose one of {', '.join(known)}")
        self.name = name
        self.known = known


class IndexFull(IndexingError):
    """The byte limit of an engine has no room for new clauses. None of them was added."""

    def __init__(self, budget: int) -> None:
        super().__init__(f"the index has used all of its {budget:,} bytes: remove clauses, or raise the limit")
        self.budget = budget


class UnusableIndex(IndexingError):
    """What was saved cannot be opened. Nothing was changed; the way out is to build the index again."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"cannot open {path}: {reason}. Remove the file and build the index from the subscriptions")
        self.path = path
        self.reason = reason


class DamagedIndex(UnusableIndex):
    """The file is damaged, or no such file."""


class OtherLayout(UnusableIndex):
    """The file holds something else, or was written by a version of this program that lays its arrays out
    differently."""

    def __init__(self, path: Path, found: str, expected: str) -> None:
        super().__init__(path, f"it has {found!r}, but {expected!r} is expected")


class OtherGraph(UnusableIndex):
    """The index was made under another concept graph."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "it was made with another concept graph, so its concept numbers are wrong")
