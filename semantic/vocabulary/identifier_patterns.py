"""Identifiers that are written in several ways, or that name something in a part of themselves, read by patterns.

    {"match": "attack\\\\.(t[0-9]{4})", "as": "{1}"}

A pattern is matched against the whole text, in linear time (RE2); `{0}` is all of the text, `{1}` its first group.
docs/matching-semantics.md, rules 4 and 24.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kindcast.semantic.errors import InvalidDeclaration, SemanticError
from kindcast.semantic.units.patterns import Pattern, compile_pattern

__all__ = ["IdentifierPattern", "identifier_patterns"]

MOST_PATTERNS = 16
"""Patterns of one declaration: each is tried on each new text."""
LONGEST_PATTERN = 500
LONGEST_TEXT = 500
"""Characters of a text that is tried: identifiers are short."""
GROUP: Final = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class IdentifierPattern:
    """`match` against a whole text gives the text `form`, with groups put in."""

    match: str
    form: str
    _regex: Pattern = field(compare=False, repr=False)

    def reading(self, text: str) -> str | None:
        """What `text` is also, None where it does not match. Linear in the text."""
        if len(text) > LONGEST_TEXT:
            return None
        parts = self._regex.parts(text)
        return None if parts is None else GROUP.sub(lambda group: parts[int(group[1])], self.form)


def identifier_patterns(what: str, key: str, declared: Any) -> tuple[IdentifierPattern, ...]:
    """The patterns of a declaration: one `{"match": …, "as": …}` or a list of them. Raises InvalidDeclaration."""
    listed = [declared] if isinstance(declared, Mapping) else declared
    if not isinstance(listed, list | tuple) or not 0 < len(listed) <= MOST_PATTERNS:
        raise InvalidDeclaration(f'{what}: {key} is {{"match": …, "as": …}}, or a list of 1 to {MOST_PATTERNS} of them')
    return tuple(_pattern(what, key, each) for each in listed)


def _pattern(what: str, key: str, declared: Any) -> IdentifierPattern:
    given = declared if isinstance(declared, Mapping) else {}
    match, form = given.get("match"), given.get("as")
    if given.keys() != {"match", "as"} or not isinstance(match, str) or not isinstance(form, str):
        raise InvalidDeclaration(f'{what}: each of {key} is {{"match": a pattern, "as": a text with {{1}}}}')
    if len(match) > LONGEST_PATTERN or len(form) > LONGEST_PATTERN:
        raise InvalidDeclaration(f"{what}: a pattern and its form have at most {LONGEST_PATTERN} characters")
    try:
        regex = compile_pattern(match, capture=True)
    except SemanticError as error:
        raise InvalidDeclaration(f"{what}: {key}: {error}") from None
    for group in GROUP.findall(form):
        if not group.isdigit() or int(group) > regex.groups:
            raise InvalidDeclaration(f"{what}: {key}: {{{group}}} in {form!r} is no group of {match!r}")
    return IdentifierPattern(match, form, regex)
