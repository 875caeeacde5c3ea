"""The normal forms of Unicode, in linear time.

`unicodedata.normalize` sorts the combining marks that follow a letter by insertion, while no other thread can run: one
text of a megabyte with nothing but marks takes many minutes. Here long runs of marks are sorted before. The order of
marks of different classes has no meaning, and marks of one class keep theirs, so the result is the same.
"""

import re
import unicodedata
from functools import cache, partial
from typing import Final, Literal

__all__ = ["nfc", "nfkc"]

SHORT: Final = 256
"""Texts up to this length are normalised as they are, because sorting so few marks costs little."""
RUN: Final = 32
"""Runs of at least this number of marks are sorted. Texts that people read have shorter ones."""
END_OF_MARKS: Final = 0x1F000
"""No character from here on is a mark, or is decomposed into marks."""


def nfc(text: str) -> str:
    """Returns `text` in NFC.

    >>> nfc("e\\u0301")
    'é'
    """
    if len(text) > SHORT and not text.isascii():
        text = _with_sorted_marks("NFD", text)
    return unicodedata.normalize("NFC", text)


def nfkc(text: str) -> str:
    """Returns `text` in NFKC.

    >>> nfkc("ﬁ")
    'fi'
    """
    if len(text) > SHORT and not text.isascii():
        text = _with_sorted_marks("NFKD", text)
    return unicodedata.normalize("NFKC", text)


_Decomposed = Literal["NFD", "NFKD"]
_WIDE = re.compile("[\U00010000-\U0001efff]")  # where all marks beyond U+FFFF are


def _with_sorted_marks(form: _Decomposed, text: str) -> str:
    is_wide = _WIDE.search(text) is not None
    return _runs(form, is_wide).sub(partial(_sorted, form), text)


def _sorted(form: _Decomposed, run: re.Match[str]) -> str:
    decomposed = {ord(each): unicodedata.normalize(form, each) for each in set(run[0])}
    marks = run[0].translate(decomposed)
    return "".join(sorted(marks, key=unicodedata.combining))


@cache
def _runs(form: _Decomposed, is_wide: bool) -> re.Pattern[str]:
    """Returns a pattern of `RUN` or more characters that are decomposed into nothing but marks. Without `is_wide`, only
    those up to U+FFFF, which are found faster. Made once, in some tens of milliseconds."""
    marks = (
        each
        for each in map(chr, range(END_OF_MARKS if is_wide else 1 << 16))
        if all(map(unicodedata.combining, unicodedata.normalize(form, each)))
    )
    return re.compile(f"[{''.join(map(re.escape, marks))}]{{{RUN},}}")
