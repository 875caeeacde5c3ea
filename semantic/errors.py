"""The exceptions of this package.

SemanticError
├── OntologyError           a document cannot be read (where, why, what to do)
│   ├── UnsupportedFormat   the syntax of the document is not supported
│   ├── InconsistentOntology  a reasoner found that the axioms contradict each other
│   ├── ReasonerUnavailable no Java runtime, or no HermiT, for reason="owl"
│   ├── UnknownRelation     a requested relation is not in the document; lists the relations that are
│   └── TooCostly           reading the document exceeds a limit of memory or time, or crashes the reader
├── InvalidEvent            the event is invalid; `problems` has all problems
├── InvalidSubscription     the expression is invalid; `problems` has all problems
├── InvalidDeclaration      the declaration of an attribute, a synonym, an event type or the like is invalid; `problems`
├── UnknownContext          JSON-LD contexts are needed that are neither shipped nor uploaded; `urls` has all of them
├── InvalidPattern          RE2 cannot compile the regular expression; says where
├── UnknownUnit             no unit has this name; lists the nearest names
├── InvalidQuantity         the number of a quantity is not finite, not a number, or beyond the range of a double
├── DuplicateSubscription   a subscription with this id exists
├── UnknownSubscription     no subscription has this id
└── UnusableMatcher         a saved matcher cannot be opened; says why

The errors of the index that callers of this package may see are exported, too: IndexFull, IndexingError, UnusableIndex.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from kindcast.index.errors import CopiedWhole, IndexFull, IndexingError, UnusableIndex
from kindcast.semantic.model import Position

__all__ = [
    "DuplicateSubscription",
    "InconsistentOntology",
    "IndexFull",
    "IndexingError",
    "InvalidDeclaration",
    "InvalidEvent",
    "InvalidPattern",
    "InvalidQuantity",
    "InvalidSubscription",
    "OntologyError",
    "Problem",
    "ReasonerUnavailable",
    "SemanticError",
    "TooCostly",
    "UnknownContext",
    "UnknownRelation",
    "UnknownSubscription",
    "UnknownUnit",
    "UnsupportedFormat",
    "UnusableIndex",
    "UnusableMatcher",
]


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem. `code` is stable (`syntax`, `unknown-concept`, `ambiguous-term`, …). `detail` says what is wrong and
    what to do. `at` is the place. `suggestions` has the nearest known names, or the candidates of an ambiguous term.

    Each suggestion is a dict with at least `label` and, for concepts, `iri`. Candidates of an ambiguous term also have
    `curie`, which is None if no CURIE means only this candidate. Attributes have `property`, with the label and the
    IRIs of the property.
    """

    code: str
    detail: str
    at: Position | None = None
    suggestions: tuple[dict[str, Any], ...] = field(default=())

    def below(self, pointer: str) -> "Problem":
        """Returns this problem with its place in the document that has its part at `pointer`."""
        if self.at is None or self.at.line is not None:
            return self
        return replace(self, at=Position(pointer=pointer + (self.at.pointer or "")))

    def __str__(self) -> str:
        text = f"{self.at}: {self.detail}" if self.at else self.detail
        near = (
            (each.get("curie") or each.get("label") or each.get("iri"), each.get("property"))
            for each in self.suggestions
        )
        names = ", ".join(dict.fromkeys(property_in_words(str(each), told) for each, told in near if each))
        return f"{text} (near: {names})" if names else text


def property_in_words(name: str, told: Mapping[str, Any] | None) -> str:
    """Returns the name of an attribute with the label of its property, or the path of labels that leads to it, and its
    IRIs. `told` is the description of the property (`AttributeScheme.described`).

    >>> property_in_words("weight", {"label": "gross weight", "iris": ["http://example.org/weight"]})
    'weight ("gross weight", <http://example.org/weight>)'
    """
    if told is None:
        return name
    path = " → ".join(told.get("path", ())) or told.get("label", name)
    said = [f'"{path}"'] if "label" in told and path != name else []
    said += [f"<{iri}>" for iri in told.get("iris", ()) if f"<{iri}>" not in name]
    return f"{name} ({', '.join(said)})" if said else name


class SemanticError(CopiedWhole):
    """Something is wrong with an ontology, an event or a subscription."""


class OntologyError(SemanticError):
    """The document cannot be read. `line` and `column` (from 1) say where, if the parser knows."""

    def __init__(self, detail: str, *, line: int | None = None, column: int | None = None) -> None:
        place = "" if line is None else f"line {line}: " if column is None else f"line {line}, column {column}: "
        super().__init__(place + detail)
        self.detail = detail
        self.line = line
        self.column = column


class UnsupportedFormat(OntologyError):
    """The syntax of the document is not supported."""


class InconsistentOntology(OntologyError):
    """A reasoner found that the axioms of the document contradict each other."""


class ReasonerUnavailable(OntologyError):
    """The reasoner is not installed, or there is no Java runtime for it."""


class UnknownRelation(OntologyError):
    """The document does not have a requested relation, or has several of its name. `missing` are the names that it does
    not have."""

    def __init__(
        self, detail: str, *, line: int | None = None, column: int | None = None, missing: tuple[str, ...] = ()
    ) -> None:
        super().__init__(detail, line=line, column=column)
        self.missing = missing


class TooCostly(OntologyError):
    """Reading the document exceeds a limit. `limit` says which: `memory`, `cpu` or `wall`; `crash` if the reader
    crashed."""

    def __init__(self, detail: str, limit: str) -> None:
        super().__init__(detail)
        self.limit = limit


class _Problems(SemanticError):
    """An error that collects all problems before it is raised."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = problems

    def below(self, pointer: str) -> Self:
        """Returns this error about a part of a document with its places in the document. `pointer` is the place of the
        part. Places in a text stay."""
        return type(self)([each.below(pointer) for each in self.problems]) if pointer else self


class InvalidEvent(_Problems):
    """The event cannot be understood. `is_cut`: it has more problems than are listed."""

    def __init__(self, problems: list[Problem], *, is_cut: bool = False) -> None:
        super().__init__(problems)
        self.is_cut = is_cut

    def below(self, pointer: str) -> Self:
        """Returns this error with its places in the document that has the event at `pointer`."""
        moved = super().below(pointer)
        moved.is_cut = self.is_cut
        return moved

    def first(self, most: int) -> "InvalidEvent":
        """Returns this error with at most so many problems."""
        return self if len(self.problems) <= most else InvalidEvent(self.problems[:most], is_cut=True)


class InvalidSubscription(_Problems):
    """The subscription cannot be understood."""


class InvalidDeclaration(_Problems):
    """An attribute, a synonym, a rate or an event type is declared wrongly."""

    def __init__(self, problems: str | list[Problem]) -> None:
        super().__init__([Problem("invalid-declaration", problems)] if isinstance(problems, str) else problems)


class UnknownContext(SemanticError):
    """JSON-LD refers to contexts that are neither shipped nor uploaded, by itself or through another context. `urls`
    are all of them. `users` are the contexts that refer to a context that was to be deleted."""

    def __init__(self, urls: tuple[str, ...], users: tuple[str, ...] = ()) -> None:
        listed, using = (", ".join(map(_short, each)) for each in (urls, users))
        if users:
            super().__init__(f"other contexts refer to {listed}: delete or replace these first: {using}")
        else:
            super().__init__(f"unknown JSON-LD contexts: upload them first (PUT /v1/contexts?url=…): {listed}")
        self.urls = urls


class InvalidPattern(SemanticError):
    """The regular expression cannot be compiled. `position` (from 0, in characters) says where, if that is known."""

    def __init__(self, detail: str, pattern: str, position: int | None = None) -> None:
        place = "" if position is None else f" at character {position + 1}"
        shown = _short(pattern)
        super().__init__(f"bad pattern /{shown}/{place}: {detail}")
        self.detail = detail
        self.pattern = pattern
        self.position = position


class UnknownUnit(SemanticError):
    """No unit has this name, or several have it. `suggestions` are the nearest names, or the units of that name."""

    def __init__(self, unit: str, detail: str = "no unit has this name", suggestions: tuple[str, ...] = ()) -> None:
        near = f" (near: {', '.join(suggestions)})" if suggestions else ""
        super().__init__(f"unknown unit {_short(unit)!r}: {detail}{near}")
        self.unit = unit
        self.detail = detail
        self.suggestions = suggestions


class InvalidQuantity(SemanticError):
    """The number of a quantity is not finite, not a number, or beyond the range of a double."""


class DuplicateSubscription(SemanticError):
    """A subscription with this id exists."""

    def __init__(self, subscription: str) -> None:
        super().__init__(f"the subscription {subscription!r} exists already: remove it first, or choose another id")
        self.subscription = subscription


class UnknownSubscription(SemanticError):
    """No subscription has this id."""

    def __init__(self, subscription: str) -> None:
        super().__init__(f"there is no subscription {subscription!r}")
        self.subscription = subscription


def _short(text: str) -> str:
    """Returns at most 80 characters of a client's text. Characters that UTF-8 cannot encode are escaped."""
    plain = text if len(text) <= 80 else text[:79] + "…"
    return plain.encode("utf-8", "backslashreplace").decode()


class UnusableMatcher(SemanticError):
    """A saved matcher cannot be opened. Nothing was changed. Build a new matcher from the subscriptions."""

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(f"cannot open the matcher in {folder}: {reason}. Build it from the subscriptions instead")
        self.folder = folder
        self.reason = reason
