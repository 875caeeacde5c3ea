"""JSON-LD is looked through once before it is read: its depth, and what its contexts would make the parser do.

The RDF parser needs time quadratic in the depth, copies all terms in force at every context that it meets, and follows
terms that are defined by terms by recursion: a small document could keep it busy for hours, or overflow its stack. One
pass of a regular expression over the tokens, and a look into each context, find this beforehand.
"""

import json
import re
from typing import Any, Final

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology.records import Limits

__all__ = ["inspect"]

CONTEXT_WORK: Final = 50_000_000
"""Terms that may be copied while contexts are processed: some 80 ns each, so a few seconds."""
CHAIN: Final = 8
"""Terms defined by terms defined by terms …: real contexts go two or three deep."""
RELATIVE: Final = 256
"""Characters of a relative `@base` or `@vocab`, which is added to that of the context around, at every level."""

_TOKEN = re.compile(rb'"((?:[^"\\]++|\\.)*+)(?:"(\s*+:)?|\\?\Z)|([{\[])|([}\]])', re.DOTALL)  # an open string ends it
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")

_NAMING: Final = frozenset({"@id", "@type", "@reverse"})  # where a definition may use other terms
_Pairs = list[tuple[str, Any]]


def inspect(data: bytes, limits: Limits) -> None:
    """Raises OntologyError, with line and column, where a limit is crossed; says nothing of other errors.

    The work of contexts is bounded from above: contexts × terms in all of them, and for contexts within contexts, which
    belong to terms, objects × terms in those.
    """
    depth = objects = contexts = terms = scoped = 0
    inside = 0  # the depth at which the outermost open context stands
    start = 0  # where it begins
    items = 0  # the depth of the objects that define its terms: deeper by one when it is an array of contexts
    nested = 0  # the depth of a context within it
    expected = False  # the value of `@context` comes next
    for token in _TOKEN.finditer(data):
        if token[3]:
            depth += 1
            objects += token[3] == b"{"
            if expected and not inside:
                inside, start = depth, token.start()
                items = depth + (token[3] == b"[")
            elif expected and not nested:
                nested = depth
            contexts += inside > 0 and depth == items and token[3] == b"{"
            expected = False
        elif token[4]:
            nested = 0 if depth == nested else nested
            if depth == inside:
                inside = 0
                problem = _problem(data[start : token.end()], limits)
                if problem:
                    raise _refused(data, start, problem)
            depth -= 1
        else:
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


def _problem(context: bytes, limits: Limits) -> str | None:
    """What is wrong with a context, contexts inside it included. Objects are read as pairs: a key may stand twice."""
    try:
        frontier: list[Any] = [json.loads(context, object_pairs_hook=_Object)]
    except ValueError:
        return None  # the parser will say it better
    while frontier:
        node = frontier.pop()
        if isinstance(node, _Object):
            for key, value in node.pairs:
                if len(key) > limits.iri or (isinstance(value, str) and len(value) > limits.iri):
                    return f"a name in @context has more than {limits.iri:,} characters"
                if key in ("@base", "@vocab") and _long_and_relative(value):
                    return f"a relative {key} has more than {RELATIVE} characters"
                frontier.append(value)
            if _chained(node.pairs):
                return f"terms are defined by terms more than {CHAIN} deep"
        elif isinstance(node, list):
            frontier.extend(node)
    return None


def _long_and_relative(value: object) -> bool:
    return isinstance(value, str) and len(value) > RELATIVE and not _ABSOLUTE.match(value)


class _Object:
    """A JSON object as its pairs."""

    def __init__(self, pairs: _Pairs) -> None:
        self.pairs = pairs


def _chained(pairs: _Pairs) -> bool:
    """Whether terms of one context refer to each other in a chain of more than `CHAIN`, or in a circle."""
    uses: dict[str, set[str]] = {}
    for term, definition in pairs:
        found = [term, definition] if isinstance(definition, str) else [term]
        if isinstance(definition, _Object):
            found += [value for key, value in definition.pairs if key in _NAMING and isinstance(value, str)]
        uses.setdefault(term, set()).update(name for text in found for name in (text, text.partition(":")[0]))
    layer = {term: {name for name in names if name in uses and name != term} for term, names in uses.items()}
    for _ in range(CHAIN):
        ends = {term for term, names in layer.items() if not names}
        layer = {term: names - ends for term, names in layer.items() if term not in ends}
        if not layer:
            return False
    return True


def _refused(data: bytes, at: int, detail: str) -> OntologyError:
    return OntologyError(detail, line=data.count(b"\n", 0, at) + 1, column=at - data.rfind(b"\n", 0, at))
