"""The user's own table of synonyms: words → root words, for strings and names of attributes (CTPS, section 3)."""

import unicodedata
from collections.abc import Mapping
from typing import Any

from semantic.errors import InvalidDeclaration

__all__ = ["root_words"]


def root_words(synonyms: Mapping[Any, Any]) -> dict[str, str]:
    """The table in NFC, chains followed to their end: `{"PC": "computer", "computer": "machine"}` makes both a machine.

    Raises InvalidDeclaration for what is no text, and for a circle.

    >>> root_words({"PC": "computer", "computer": "machine"})
    {'PC': 'machine', 'computer': 'machine'}
    """
    table: dict[str, str] = {}
    for word, root in synonyms.items():
        if not (isinstance(word, str) and isinstance(root, str)):
            raise InvalidDeclaration(f"the synonym table maps words to root words; {word!r} → {root!r} does not")
        table[unicodedata.normalize("NFC", word)] = unicodedata.normalize("NFC", root)
    table = {word: root for word, root in table.items() if word != root}
    return {word: _end(word, table) for word in table}


def _end(word: str, table: Mapping[str, str]) -> str:
    seen = {word}
    root = table[word]
    while root in table:
        if root in seen:
            raise InvalidDeclaration(f"the synonym table leads from {word!r} back to itself")
        seen.add(root)
        root = table[root]
    return root
