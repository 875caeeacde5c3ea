"""JSON-LD is looked through once before it is read: its depth, the length of its names and the work its contexts make.

The RDF parser needs time quadratic in the depth, and copies all terms in force at every context that it meets, so a
small document could keep it busy for hours. One pass of a regular expression over the tokens finds both beforehand.
"""

import json
import re

from semantic.errors import OntologyError
from semantic.ontology.records import Limits

__all__ = ["inspect"]

CONTEXT_WORK = 50_000_000
"""Terms that may be copied while contexts are processed: some 80 ns each, so a few seconds."""

_TOKEN = re.compile(rb'"((?:[^"\\]++|\\.)*+)(?:"(\s*+:)?|\\?\Z)|([{\[])|([}\]])', re.DOTALL)  # an open string ends it


def inspect(data: bytes, limits: Limits) -> None:
    """Raises OntologyError, with line and column, where a limit is crossed; says nothing of other errors.

    The work of contexts is bounded from above: contexts × terms in all of them, and for contexts within contexts, which
    belong to terms, objects × terms in those.
    """
    depth = objects = contexts = terms = scoped = 0
    inside = 0  # the depth at which the outermost open context stands
    items = 0  # the depth of the objects that define its terms: deeper by one when it is an array of contexts
    nested = 0  # the same for a context within it
    expected = False  # the value of `@context` comes next
    for token in _TOKEN.finditer(data):
        if token[3]:
            depth += 1
            objects += token[3] == b"{"
            if expected and not inside:
                inside = depth
                items = depth + (token[3] == b"[")
            elif expected and not nested:
                nested = depth
            contexts += inside > 0 and depth == items and token[3] == b"{"
            expected = False
        elif token[4]:
            inside = 0 if depth == inside else inside
            nested = 0 if depth == nested else nested
            depth -= 1
        else:
            if inside and len(token[1]) > limits.iri:
                raise _refused(data, token.start(), f"a name in @context has more than {limits.iri:,} characters")
            expected = token[2] is not None and _is_context(token[1])
            terms += inside > 0 and token[2] is not None
            scoped += nested > 0 and token[2] is not None
        if depth > limits.depth:
            raise _refused(data, token.start(), f"nested more than {limits.depth} deep")
        if contexts * terms + objects * scoped > CONTEXT_WORK:
            raise _refused(data, token.start(), "the contexts so far are too many and too large: write one for all")


def _is_context(text: bytes) -> bool:
    if b"\\" not in text:
        return text == b"@context"
    try:
        return json.loads(b'"' + text + b'"') == "@context"  # type: ignore[no-any-return]
    except ValueError:
        return False


def _refused(data: bytes, at: int, detail: str) -> OntologyError:
    return OntologyError(detail, line=data.count(b"\n", 0, at) + 1, column=at - data.rfind(b"\n", 0, at))
