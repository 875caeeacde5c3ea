"""Turtle and its family are looked through once before they are read: triple terms in triple terms, long IRIs.

A triple term nested a hundred thousand deep overflows the stack of the process; three bytes of a prefix can stand for
an IRI of a megabyte, again and again; and every relative `@base` makes the next one longer. All are bounded here, by
three searches over the bytes.
"""

import re
from typing import Final

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology.records import Limits

__all__ = ["inspect"]

RELATIVE_BASES: Final = 1_000
"""Directives `@base` with a relative IRI (or a comment before it) in one document; real ones have none or one."""

_TERMS = re.compile(rb"<<|>>")
_RELATIVE_BASE = re.compile(rb"(?i)(?:@|\A|(?<=\s))base\s*+#|(?:@|\A|(?<=[\s.]))base\s*+<(?!\w+:)")


def inspect(data: bytes, limits: Limits) -> None:
    """Raises OntologyError, with line and column, where a limit is crossed."""
    # `<<` cannot stand in an IRI, and `>>` only closes. Both may stand in texts and count there too: only a document
    # whose texts hold hundreds of unclosed `<<` is refused in error.
    depth = 0
    for token in _TERMS.finditer(data):
        depth = depth + 1 if token[0] == b"<<" else max(0, depth - 1)
        if depth > limits.depth:
            raise _refused(data, token.start(), f"triple terms are nested more than {limits.depth} deep")
    found = re.search(rb"<[^<>\"\s]{%d}" % limits.iri, data)
    if found:
        raise _refused(data, found.start(), f"an IRI has more than {limits.iri:,} characters")
    for count, base in enumerate(_RELATIVE_BASE.finditer(data), 1):
        if count > RELATIVE_BASES:
            raise _refused(data, base.start(), f"more than {RELATIVE_BASES:,} relative bases, each added to the last")


def _refused(data: bytes, at: int, detail: str) -> OntologyError:
    return OntologyError(detail, line=data.count(b"\n", 0, at) + 1, column=at - data.rfind(b"\n", 0, at))
