"""Regular expressions in linear time, and text without case. RE2 is used here and nowhere else.

docs/matching-semantics.md, rule 5. A subscriber's pattern runs on the strings of every candidate, so it must never
be able to burn the matcher's time: RE2 has neither look-around nor back-references, and a search costs at most the
pattern's size times the text's length. Patterns and texts are compared in NFC, as all texts are (rule 9).
"""

import re
import unicodedata
from functools import lru_cache

import re2

from kindcast.semantic.errors import InvalidPattern

__all__ = ["Pattern", "compile_pattern", "fold"]

LONGEST = 1_000
"""Characters of a pattern; people write patterns of some dozens."""
MEMORY = 1 << 20
"""Bytes that one compiled pattern may take, its cache of states included; `\\pL{1000}` and its like end here."""
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


class Pattern:
    """A compiled pattern. Any number of threads may search with it."""

    __slots__ = ("_compiled", "nocase", "text")

    def __init__(self, text: str, nocase: bool, compiled: "re2._Regexp") -> None:
        self.text = text
        self.nocase = nocase
        self._compiled = compiled

    def search(self, text: str) -> bool:
        """Whether the pattern is found anywhere in `text`. At most linear in its length; about 3 µs for a short one."""
        try:
            return self._compiled.search(text) is not None
        except UnicodeEncodeError:
            # Half a surrogate pair is no character: JSON can carry one, UTF-8 cannot.
            return self._compiled.search(SURROGATES.sub("\ufffd", text)) is not None


@lru_cache(maxsize=CACHED)
def compile_pattern(text: str, nocase: bool = False) -> Pattern:
    """The pattern `text`, in the syntax of RE2; `nocase` lets letters match in either case.

    Raises `InvalidPattern` with the position, for what RE2 does not know, and for patterns that are too long or large.

    >>> compile_pattern("hp .*book", nocase=True).search("my HP NoteBook")
    True
    """
    if len(text) > LONGEST:
        raise InvalidPattern(f"a pattern has at most {LONGEST} characters, this one has {len(text)}", text)
    options = re2.Options()
    options.max_mem = MEMORY
    options.case_sensitive = not nocase
    options.never_capture = True
    options.log_errors = False
    try:
        return Pattern(text, nocase, re2.compile(unicodedata.normalize("NFC", text), options))
    except re2.error as error:
        cause = error.args[0] if error.args else b""
        raise _explained(cause.decode(errors="replace") if isinstance(cause, bytes) else str(cause), text) from error
    except UnicodeEncodeError as error:
        raise InvalidPattern("half a surrogate pair is no character", text, error.start) from error


def fold(text: str) -> str:
    """`text` as `nocase` compares it: NFC, case-folded (so `STRASSE` and `Straße` are the same), NFC again.

    >>> fold("Straße") == fold("STRASSE")
    True
    """
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def _explained(cause: str, text: str) -> InvalidPattern:
    """RE2's message in words, and where: it quotes the part that it did not understand."""
    if "too large" in cause:
        return InvalidPattern("the pattern is too large when its repetitions are written out", text)
    what, _, part = cause.partition(": ")
    position = text.find(part) if part else len(text) if what.startswith("trailing") else -1
    for syntax, name in UNSUPPORTED:
        for found in syntax.finditer(text):
            if part and text.startswith(part, found.start()):
                return InvalidPattern(f"{name} not supported (RE2 syntax)", text, found.start())
    if what == "unexpected )":
        return InvalidPattern("a parenthesis closes what was not opened", text)
    if what == "missing )":
        return InvalidPattern("a parenthesis is not closed", text, len(text))
    return InvalidPattern(cause.replace("perl operator", "group"), text, position if position >= 0 else None)
