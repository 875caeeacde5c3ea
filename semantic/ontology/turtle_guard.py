"""Turtle and its family are looked through once before they are read: triple terms in triple terms, and long IRIs.

A triple term nested a hundred thousand deep overflows the stack of the process, and three bytes of a prefix can stand
for an IRI of a megabyte, again and again; both are bounded here, by two searches over the bytes.
"""

import re

from semantic.errors import OntologyError
from semantic.ontology.records import Limits

__all__ = ["inspect"]

_TERMS = re.compile(rb"<<|>>")


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


def _refused(data: bytes, at: int, detail: str) -> OntologyError:
    return OntologyError(detail, line=data.count(b"\n", 0, at) + 1, column=at - data.rfind(b"\n", 0, at))
