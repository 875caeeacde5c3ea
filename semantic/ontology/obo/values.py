r"""The values of OBO clauses: escapes, quoted texts, trailing modifiers and comments.

CL:0000542 {source="x"} ! lymphocyte          reference, modifiers, comment
"T-cell" EXACT COMMON_NAME [CL:dup]           quoted text, words, cross references
a text with \n escapes \! and more            unquoted text
"""

import re
from typing import Final, NamedTuple

__all__ = ["Quoted", "Value", "quoted", "split", "unescaped", "words"]

_ESCAPES: Final = {"n": "\n", "W": " ", "t": "\t"}
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*+"|\\.|(?<!\S)!', re.DOTALL)
_MODIFIERS = re.compile(r'(?:^|\s)\{((?:\s*[\w:.-]+\s*=\s*(?:"(?:[^"\\]|\\.)*+"|[^\s",{}]*)\s*,?)*+)\s*\}$')
_MODIFIER = re.compile(r'([\w:.-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*+)"|([^\s",{}]*))')
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*+)"', re.DOTALL)
_QUOTED_TO_THE_LAST = re.compile(r'"(.*)"', re.DOTALL)


class Value(NamedTuple):
    """What a clause says, and the modifiers behind it."""

    text: str
    modifiers: dict[str, str]


class Quoted(NamedTuple):
    """A quoted text, what follows it, and whether the quotes were as they should be."""

    text: str
    rest: str
    clean: bool


def split(value: str) -> Value:
    """`value` without trailing comment and modifiers, still escaped. Linear.

    >>> split('CL:1 {cardinality="2"} ! a cell')
    Value(text='CL:1', modifiers={'cardinality': '2'})
    """
    if "!" in value:
        for piece in _PIECE.finditer(value):
            if piece[0] == "!":
                value = value[: piece.start()]
                break
    value = value.strip()
    if not value.endswith("}"):
        return Value(value, {})
    found = _MODIFIERS.search(value)
    if not found:
        return Value(value, {})
    modifiers = {each[1]: each[2] if each[2] is not None else each[3] for each in _MODIFIER.finditer(found[1])}
    return Value(value[: found.start()].rstrip(), modifiers)


def unescaped(text: str) -> str:
    r"""`text` with its escapes resolved: `\n`, `\t`, `\W` (a blank), any other character for itself.

    >>> unescaped(r"a\:b\Wc")
    'a:b c'
    """
    return _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]), text) if "\\" in text else text


def quoted(text: str) -> Quoted | None:
    """The quoted text that `text` begins with; a quote within it that should be escaped is forgiven. None where there
    is no pair of quotes.

    >>> quoted('"T-cell" EXACT []')
    Quoted(text='T-cell', rest='EXACT []', clean=True)
    >>> quoted('"the "T" cell" EXACT []').text
    'the "T" cell'
    """
    found = _QUOTED.match(text)
    if found is None:
        return None
    rest = text[found.end() :]
    if not rest or rest[0] in " \t[{":
        return Quoted(unescaped(found[1]), rest.strip(), True)
    references = text.rfind("[")
    inside = text if references < found.end() else text[:references]
    longest = _QUOTED_TO_THE_LAST.match(inside)
    if longest is None:
        return None
    return Quoted(unescaped(longest[1]), text[longest.end() :].strip(), False)


def words(text: str) -> list[str]:
    """The words of a reference, unescaped: an escaped blank does not part them.

    >>> words(r"part_of CL\\:0000084")
    ['part_of', 'CL:0000084']
    """
    return [unescaped(word) for word in text.split()]
