"""OWL 2 functional syntax to expressions, one axiom at a time.

    Prefix(:=<http://e.org/>)
    Ontology(<http://e.org/shop>
      SubClassOf(:Laptop :Computer)         ──▶  Expression("SubClassOf", [<…Laptop>, <…Computer>])
    )

Brackets are kept on a stack of our own, so depth costs no recursion here; it is bounded for what comes after.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyoxigraph as ox

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology.oddities import Oddities, shown
from kindcast.semantic.ontology.owl_syntaxes.expressions import Argument, Expression, Names, OddName
from kindcast.semantic.ontology.records import Limits

__all__ = ["functional_expressions"]

_NAME = r"""[^\s()<>"=@^\#:]*+:[^\s()<>"=@^\#]*+"""
_BETWEEN = re.compile(r"(?:\s++|#[^\n]*+)*+")
_TOKEN = re.compile(
    rf""" (?P<open>[A-Za-z]*+)\s*+\(
      | (?P<close>\))
      | <(?P<iri>[^<>"]*+)>
      | "(?P<text>(?:[^"\\]|\\.)*+)"
        (?: @(?P<language>[A-Za-z0-9_-]++) | \^\^ (?: <(?P<type>[^<>"]*+)> | (?P<short_type>{_NAME}) ) )?+
      | _:(?P<blank>[^\s()<>"=@^]++)
      | (?P<name>{_NAME})
      | (?P<number>[0-9]{{1,18}})(?![0-9A-Za-z])
      | (?P<equals>=)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def functional_expressions(text: str, names: Names, odd: Oddities, limits: Limits) -> Iterator[Expression]:
    """`Ontology` with its IRIs, then every axiom, annotation and import of it. Linear; one axiom is kept at a time.

    An axiom with a name of which no IRI can be made is left out, with a warning. Raises OntologyError with the line
    where brackets, prefixes or tokens are wrong.
    """
    reader = _Reader(names, odd, limits)
    at, line = 0, 1
    while True:
        start = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing as well
        line += text.count("\n", at, start)
        if start == len(text):
            break
        token = _TOKEN.match(text, start)
        if token is None:
            raise OntologyError(f"this cannot be read: {shown(text[start : start + 40])}", line=line)
        found = reader.token(token, line)
        if found is not None:
            yield from found
        at = token.end()
        line += text.count("\n", start, at)
    reader.end(line)


@dataclass(slots=True)
class _Open:
    """A pair of brackets that is not closed yet."""

    keyword: str
    line: int
    arguments: list[Argument] = field(default_factory=list)


class _Reader:
    """What is open, token by token."""

    def __init__(self, names: Names, odd: Oddities, limits: Limits) -> None:
        self._names = names
        self._odd = odd
        self._depth = limits.depth
        self._stack: list[_Open] = []
        self._prefix: str | None = None  # of `Prefix(`, what stands before `=`
        self._problem = ""  # why the axiom that is being read is left out
        self._headed = False  # whether the IRIs of the ontology were given away
        self._done = False  # whether the ontology is closed

    def token(self, token: re.Match[str], line: int) -> Iterator[Expression] | None:
        """Takes one token; the expressions that it completes."""
        kind = token.lastgroup
        if kind == "open":
            return self._opened(token["open"], line)
        if kind == "close":
            return self._closed(line)
        if not self._stack:
            raise OntologyError(f"this stands outside of Ontology(…): {shown(token[0])}", line=line)
        inner = self._stack[-1]
        if inner.keyword == "Prefix":
            self._prefix_token(token, line)
            return None
        if kind == "equals":
            raise OntologyError("= stands in prefixes only", line=line)
        try:
            inner.arguments.append(self._argument(token, line))
        except OddName as error:
            self._problem = self._problem or str(error)
            inner.arguments.append(ox.BlankNode())
        return None

    def end(self, line: int) -> None:
        """The document is over. Raises OntologyError where it should go on."""
        if self._stack:
            inner = self._stack[-1]
            raise OntologyError(f"the document ends within {inner.keyword}( of line {inner.line}", line=line)
        if not self._done:
            raise OntologyError("the document holds no Ontology(…)", line=line)

    def _opened(self, keyword: str, line: int) -> Iterator[Expression] | None:
        if not self._stack and (self._done or keyword not in ("Prefix", "Ontology")):
            raise OntologyError(f"{keyword}( stands outside of Ontology(…)", line=line)
        if len(self._stack) >= self._depth:
            raise OntologyError(f"nested more than {self._depth} deep", line=line)
        self._stack.append(_Open(keyword, line))
        if len(self._stack) == 2 and not self._headed:
            return self._head()
        return None

    def _closed(self, line: int) -> Iterator[Expression] | None:
        if not self._stack:
            raise OntologyError("a bracket is closed that was not opened", line=line)
        found = self._stack.pop()
        if found.keyword == "Prefix":
            self._prefix = None
            return None
        if not self._stack:
            self._done = True
            return None if self._headed else self._head(found)
        expression = Expression(found.keyword, found.arguments, found.line)
        if len(self._stack) > 1:
            self._stack[-1].arguments.append(expression)
            return None
        if self._problem:
            self._odd.add(found.line, "no IRI", f"this {found.keyword} is left out: {self._problem}")
            self._problem = ""
            return None
        return iter((expression,))

    def _head(self, found: _Open | None = None) -> Iterator[Expression]:
        """The ontology with its names, which come before everything else in it."""
        found = found or self._stack[0]
        self._headed = True
        self._problem = ""
        names = [each for each in found.arguments if isinstance(each, ox.NamedNode)]
        if names:
            self._names.base = names[0].value
        found.arguments.clear()
        yield Expression("Ontology", names, found.line)

    def _prefix_token(self, token: re.Match[str], line: int) -> None:
        kind = token.lastgroup
        if kind == "name" and self._prefix is None and token["name"].endswith(":"):
            self._prefix = token["name"][:-1]
        elif kind == "iri" and self._prefix is not None:
            self._names.declare(self._prefix, token["iri"], line)
        elif kind != "equals":
            raise OntologyError(f"a prefix is written Prefix(name:=<IRI>), not with {shown(token[0])}", line=line)

    def _argument(self, token: re.Match[str], line: int) -> Argument:
        if token["iri"] is not None:
            return self._names.full(token["iri"])
        if token["name"] is not None:
            return self._names.short(token["name"], line)
        if token["blank"] is not None:
            return ox.BlankNode("n" + re.sub(r"\W", "_", token["blank"]))
        if token["number"] is not None:
            return int(token["number"])
        kind = None
        if token["type"] is not None:
            kind = self._names.full(token["type"])
        elif token["short_type"] is not None:
            kind = self._names.short(token["short_type"], line)
        text = token["text"]
        text = _ESCAPED.sub(r"\1", text) if "\\" in text else text
        return self._names.literal(text, kind, token["language"])
