"""Translation of CloudEvents `filters` to expression trees of the subscription language.

It supports the six dialects that every CloudEvents subscription service must support, and ours: `semantic`, by its
short name or as `https://kindcast.dev/dialects/semantic/v1`. Its value is a text or a tree of the subscription
language.

    [{"exact": {"type": "com.example.offer"}}, {"semantic": "target isa Computer"}]
        ──▶ {"all": [{"=": ["ce.type", "com.example.offer"]}, {"isa": ["target", "Computer"]}]}

The `not` of the dialects is plain negation: it holds if the attribute is absent, unlike ours (rule 8 of
matching-semantics.md). So `not` is pushed down here, and each negated test becomes `missing or not …`.
"""

import re
from collections.abc import Mapping
from typing import Any

from kindcast.semantic import InvalidSubscription, Position, Problem
from kindcast.semantic.language import parse, to_tree

__all__ = ["DIALECTS", "SEMANTIC_DIALECT", "filters_to_tree"]

SEMANTIC_DIALECT = "https://kindcast.dev/dialects/semantic/v1"

DEPTH = 32  # nesting of all, any and not; the language also limits the resulting tree
_TESTS = {"exact": "=", "prefix": "startswith", "suffix": "endswith"}
_GROUPS = ("all", "any", "not")
DIALECTS = (*_TESTS, *_GROUPS)
"""The dialects that CloudEvents requires."""
_KNOWN = (*DIALECTS, "semantic")
_NAME = re.compile(r"[a-z0-9]+")
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,9}")

Tree = dict[str, Any]


def filters_to_tree(filters: Any, *, pointer: str = "/filters") -> Tree:
    """Returns the tree of filters that must all hold. No filters give the tree that always holds. Raises
    `InvalidSubscription` with every problem."""
    translation = _Translation()
    tree = translation.group(filters, pointer, negated=False, joined="all", depth=0)
    if translation.problems:
        raise InvalidSubscription(translation.problems)
    return tree


class _Translation:
    """Translates the filters and collects the problems."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def group(self, items: Any, pointer: str, *, negated: bool, joined: str, depth: int) -> Tree:
        """Translates a list of filters. Negation turns `all` into `any` (De Morgan)."""
        if not isinstance(items, list):
            return self._refuse("an array of filters is expected", pointer)
        if depth > DEPTH:
            return self._refuse(f"filters are nested deeper than {DEPTH} levels", pointer)
        if negated:
            joined = "any" if joined == "all" else "all"
        trees = [self.one(item, f"{pointer}/{index}", negated=negated, depth=depth) for index, item in enumerate(items)]
        return trees[0] if len(trees) == 1 else {joined: trees}

    def one(self, item: Any, pointer: str, *, negated: bool, depth: int) -> Tree:
        """Translates one filter, an object with one dialect."""
        if not isinstance(item, dict) or len(item) != 1:
            return self._refuse("a filter is an object with one member, its dialect", pointer)
        dialect, value = next(iter(item.items()))
        inside = f"{pointer}/{dialect.replace('~', '~0').replace('/', '~1')}"
        if dialect in _TESTS:
            return self._tests(dialect, value, inside, negated=negated)
        if dialect in ("all", "any"):
            if value == []:
                return self._refuse(f"{dialect} needs at least one filter", inside)
            return self.group(value, inside, negated=negated, joined=dialect, depth=depth + 1)
        if dialect == "not":
            if depth >= DEPTH:
                return self._refuse(f"filters are nested deeper than {DEPTH} levels", inside)
            return self.one(value, inside, negated=not negated, depth=depth + 1)
        if dialect in ("semantic", SEMANTIC_DIALECT):
            return self._semantic(value, inside, negated=negated)
        if dialect == "sql":
            return self._refuse("the dialect sql is not in this version", inside)
        return self._refuse(f"unknown dialect {dialect[:100]!r}; known are {', '.join(_KNOWN)}", inside)

    def _tests(self, dialect: str, value: Any, pointer: str, *, negated: bool) -> Tree:
        """Translates `{"exact": {attribute: value, …}}`, of which every pair must hold."""
        if not isinstance(value, dict) or not value:
            return self._refuse(f"{dialect} needs an object of attribute names and values", pointer)
        trees = []
        for name, text in value.items():
            if not _NAME.fullmatch(name):
                self._refuse(f"{name[:100]!r} is not a context attribute: use lower-case letters and digits", pointer)
            elif not isinstance(text, str) or not text:
                self._refuse("the value must be a non-empty text", f"{pointer}/{name}")
            else:
                trees.append(_test(dialect, f"ce.{name}", text, negated=negated))
        return trees[0] if len(trees) == 1 else {"any" if negated else "all": trees}

    def _semantic(self, value: Any, pointer: str, *, negated: bool) -> Tree:
        """Translates our own language, with its own `not`."""
        if not isinstance(value, str | Mapping):
            return self._refuse("the dialect semantic needs a text or a tree of the subscription language", pointer)
        try:
            tree: Tree = to_tree(parse(value))
        except InvalidSubscription as error:
            self.problems.extend(_moved(problem, pointer) for problem in error.problems)
            return {}
        return {"not": tree} if negated else tree

    def _refuse(self, detail: str, pointer: str) -> Tree:
        self.problems.append(Problem("bad-filter", detail, Position(pointer=pointer)))
        return {}


def _test(dialect: str, attribute: str, text: str, *, negated: bool) -> Tree:
    """Returns one comparison. Dialects compare the canonical text of a value, but our language distinguishes "5" and 5,
    so `exact` tests both."""
    test: Tree = {_TESTS[dialect]: [attribute, text]}
    if dialect == "exact" and _INTEGER.fullmatch(text):
        test = {"in": [attribute, [text, int(text)]]}
    elif dialect == "exact" and text in ("true", "false"):
        test = {"in": [attribute, [text, text == "true"]]}
    return {"any": [{"missing": attribute}, {"not": test}]} if negated else test


def _moved(problem: Problem, pointer: str) -> Problem:
    """Returns the problem with its place in the whole request. A place inside a text becomes part of the message."""
    at = problem.at
    if at is None or at.pointer is None:
        detail = f"{at}: {problem.detail}" if at else problem.detail
        return Problem(problem.code, detail, Position(pointer=pointer), problem.suggestions)
    return Problem(problem.code, problem.detail, Position(pointer=pointer + at.pointer), problem.suggestions)
