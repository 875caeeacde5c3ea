"""Regular expressions in linear time, and text without case. RE2 is used here and nowhere else.

docs/matching-semantics.md, rule 5. A subscriber's pattern runs on the strings of every candidate, so it must never
be able to burn the matcher's time: RE2 has neither look-around nor back-references, and a search costs at most the
pattern's size times the text's length. Patterns and texts are compared in NFC, as all texts are (rule 9).
"""

import re
import time
from collections.abc import Callable
from contextvars import ContextVar
from functools import lru_cache
from typing import TypeVar

import re2

from kindcast.semantic.errors import InvalidPattern
from kindcast.semantic.unicode_text import nfc

__all__ = [
    "LONG",
    "Pattern",
    "SearchBudget",
    "TooCostlyNow",
    "check_size",
    "compile_pattern",
    "fold",
    "searching_within",
    "worked_within",
]

T = TypeVar("T")

LONGEST = 1_000
"""Characters of a pattern; people write patterns of some dozens."""
MEMORY = 1 << 20
"""Bytes that one compiled pattern may take, its cache of states included; `\\pL{1000}` and its like end here."""
STATES = 20_000
"""States of a new pattern, its repetitions and classes written out."""
STEPS = 20_000_000
"""States times characters that one search may have under a budget: a tenth of a second, if all of them are visited."""
CACHED = 1_024
"""Patterns kept compiled: the subscriptions of a server repeat few, and `CACHED * MEMORY` stays bearable."""

UNSUPPORTED = (
    (re.compile(r"\(\?<?[=!]"), "look-ahead and look-behind are"),
    (re.compile(r"\(\?P=|\\[1-9]|\\k[<{]"), "references back to a group are"),
    (re.compile(r"\(\?>|[*+?}]\+"), "atomic groups and possessive repetition are"),
    (re.compile(r"\(\?\(|\(\?R\)|\(\?[0-9]"), "conditions and recursion are"),
)
"""What people know from other engines and RE2 leaves out, since it cannot be searched for in linear time."""
SURROGATES = re.compile("[\ud800-\udfff]")


class TooCostlyNow(Exception):
    """A search that the budget does not allow: whether the text matches is undecided. `steps`: what it may cost at
    worst, states times characters, of which some 200 million take a second."""

    def __init__(self, steps: int) -> None:
        super().__init__(f"a search of up to {steps:,} steps")
        self.steps = steps


class SearchBudget:
    """The budget of the searches of one event: `STEPS` for each, and `seconds` for all together. For one thread."""

    __slots__ = ("_left",)

    def __init__(self, seconds: float) -> None:
        self._left = seconds

    def search(self, pattern: "Pattern", text: str) -> bool:
        """Returns `pattern.found_in(text)`. Raises `TooCostlyNow`."""
        return self.spend(pattern.states * len(text), lambda: pattern.found_in(text))

    def spend(self, steps: int, work: Callable[[], T]) -> T:
        """Returns the result of `work`, which takes at most `steps`. Raises `TooCostlyNow`."""
        if steps > STEPS or self._left <= 0.0:
            raise TooCostlyNow(steps)
        left, began = self._left, time.perf_counter()
        try:
            return work()
        finally:  # `work` may have spent a part itself, or been too costly after a while
            self._left = left - (time.perf_counter() - began)


_budget: ContextVar[SearchBudget | None] = ContextVar("search budget", default=None)


class searching_within:  # noqa: N801, used like a function
    """A context manager. Searches in its block raise `TooCostlyNow` if `budget` does not allow them. None allows all.
    It is entered for each candidate, and a class takes a third of the time of a generator."""

    __slots__ = ("_before", "_own")

    def __init__(self, budget: SearchBudget | None) -> None:
        self._own = budget

    def __enter__(self) -> None:
        self._before = _budget.set(self._own)

    def __exit__(self, *raised: object) -> None:
        _budget.reset(self._before)


def worked_within(steps: int, work: Callable[[], T]) -> T:
    """Returns the result of `work`, which takes at most `steps`. Raises `TooCostlyNow` under a budget that does not
    allow it."""
    budget = _budget.get()
    return work() if budget is None else budget.spend(steps, work)


class Pattern:
    """A compiled pattern. Any number of threads may search with it, and other threads run during a search."""

    __slots__ = ("_compiled", "nocase", "states", "text")

    def __init__(self, text: str, nocase: bool, compiled: "re2._Regexp") -> None:
        self.text = text
        self.nocase = nocase
        self._compiled = compiled
        self.states: int = compiled.programsize
        """RE2's instructions: a search visits at most so many for each character."""

    def search(self, text: str) -> bool:
        """Whether the pattern is found anywhere in `text`. At most linear in its length; about 3 µs for a short one.
        Raises `TooCostlyNow` under a budget that does not allow it."""
        budget = _budget.get()
        return self.found_in(text) if budget is None else budget.search(self, text)

    def found_in(self, text: str) -> bool:
        """Does the same as `search`, without a budget."""
        try:
            return self._compiled.search(text) is not None
        except UnicodeEncodeError:
            # Half a surrogate pair is no character: JSON can carry one, UTF-8 cannot.
            return self._compiled.search(SURROGATES.sub("\ufffd", text)) is not None

    @property
    def groups(self) -> int:
        """The number of groups, if the pattern was compiled to keep them."""
        return int(self._compiled.groups)

    def parts(self, text: str) -> tuple[str, ...] | None:
        """Returns `text` and its groups if the pattern matches all of it, otherwise None. Linear in the text."""
        try:
            found = self._compiled.fullmatch(text)
        except UnicodeEncodeError:
            return None
        return None if found is None else (text, *(each or "" for each in found.groups()))


@lru_cache(maxsize=CACHED)
def compile_pattern(text: str, nocase: bool = False, *, capture: bool = False) -> Pattern:
    """Compiles `text`, a pattern in the syntax of RE2. With `nocase`, letters match in either case; `capture` keeps
    groups.

    Raises `InvalidPattern`, with the position, if RE2 does not understand the pattern, or if it is too long or large.

    >>> compile_pattern("hp .*book", nocase=True).search("my HP NoteBook")
    True
    """
    if len(text) > LONGEST:
        raise InvalidPattern(f"a pattern has at most {LONGEST} characters, this one has {len(text)}", text)
    options = re2.Options()
    options.max_mem = MEMORY
    options.case_sensitive = not nocase
    options.never_capture = not capture
    options.log_errors = False
    try:
        return Pattern(text, nocase, re2.compile(nfc(text), options))
    except re2.error as error:
        cause = error.args[0] if error.args else b""
        raise _explained(cause.decode(errors="replace") if isinstance(cause, bytes) else str(cause), text) from error
    except UnicodeEncodeError as error:
        raise InvalidPattern("a single surrogate is not a character", text, error.start) from error


def check_size(pattern: Pattern) -> Pattern:
    """Returns the pattern if it is small enough for a new subscription. Raises `InvalidPattern`."""
    if pattern.states > STATES:
        raise InvalidPattern(
            f"the pattern has {pattern.states:,} states, but at most {STATES:,} are allowed: use smaller repetitions, "
            "or repetitions without an upper bound",
            pattern.text,
        )
    return pattern


def fold(text: str) -> str:
    """Returns `text` as `nocase` compares it: NFC, case-folded (so `STRASSE` and `Straße` are the same), NFC again.

    >>> fold("Straße") == fold("STRASSE")
    True
    """
    return _fold(text) if len(text) < LONG else _fold_long(text)


LONG = 10_000
"""The number of characters from which the last folded texts are cached, and from which every search counts against the
budget."""


def _fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    return nfc(nfc(text).casefold())


_fold_long = lru_cache(maxsize=2)(_fold)


def _explained(cause: str, text: str) -> InvalidPattern:
    """Returns an error with the message of RE2 in words, and with its position. RE2 quotes the part that it did not
    understand."""
    if "too large" in cause:
        return InvalidPattern("the pattern is too large with expanded repetitions", text)
    what, _, part = cause.partition(": ")
    position = text.find(part) if part else len(text) if what.startswith("trailing") else -1
    for syntax, name in UNSUPPORTED:
        for found in syntax.finditer(text):
            if part and text.startswith(part, found.start()):
                return InvalidPattern(f"{name} not supported (RE2 syntax)", text, found.start())
    if what == "unexpected )":
        return InvalidPattern("a closing parenthesis has no opening parenthesis", text)
    if what == "missing )":
        return InvalidPattern("an opening parenthesis has no closing parenthesis", text, len(text))
    return InvalidPattern(cause.replace("perl operator", "group"), text, position if position >= 0 else None)
