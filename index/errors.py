"""What can go wrong in the index.

Only a caller's mistake raises; no engine fails on a clause or an event that is well formed.

    IndexingError
    ├── UnknownRow       a row that holds no clause
    └── UnknownEngine    a name that no engine has
"""

__all__ = ["IndexingError", "UnknownEngine", "UnknownRow"]


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
