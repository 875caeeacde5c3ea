"""The errors of a client that has an answer. Imports no HTTP library, so the command line starts fast."""

from collections.abc import Mapping
from typing import Any

__all__ = ["Json", "ProblemError", "UnexpectedAnswer", "UnusableArgument"]

Json = dict[str, Any]


class ProblemError(Exception):
    """The server refused a request with an RFC 9457 problem. `type` is stable. `errors` has each single fault with its
    place. `document` is the whole problem: some types have more members, such as `oldest`. `retry_after` has the
    seconds of the answer's `Retry-After`, or 0."""

    retry_after = 0.0

    def __init__(
        self, status: int, type: str, title: str, detail: str, errors: list[Json], document: Mapping[str, Any]
    ) -> None:
        lines = [f"{status} {title}: {detail}" if detail else f"{status} {title}"]
        faults = [f"{_place(error)}{error.get('detail', '')}" for error in errors]
        lines += [f"  {fault}" for fault in faults if fault not in detail]  # it often repeats the first
        super().__init__("\n".join(lines))
        self.status = status
        self.type = type
        self.title = title
        self.detail = detail
        self.errors = errors
        self.document = document

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickling and copying keep everything: Python's own way would pass the text alone to `__init__`."""
        return type(self), (self.status, self.type, self.title, self.detail, self.errors, self.document), vars(self)

    @classmethod
    def of(cls, told: Mapping[str, Any], status: int = 500, reason: str = "") -> "ProblemError":
        """Makes the error of a problem document, from an answer or from a job that failed."""
        return cls(
            int(told.get("status") or status),
            str(told.get("type", "about:blank")),
            str(told.get("title") or reason),
            str(told.get("detail") or ""),
            [error for error in told.get("errors") or [] if isinstance(error, dict)],
            told,
        )


class UnexpectedAnswer(ValueError):
    """The answer is not from a kindcast server: another program listens at the address, or a proxy is in front of
    it."""


class UnusableArgument(ValueError):
    """An argument of a call cannot be sent. Nothing was sent."""


def _place(error: Json) -> str:
    if "line" in error:
        return f"line {error['line']}, column {error.get('column', 1)}: "
    return f"{error['pointer']}: " if error.get("pointer") else ""
