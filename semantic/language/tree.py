"""The JSON form of expressions (trees): parsing a tree, and converting an expression to a tree.

A tree has the same structure as the text; `docs/language.md` shows both side by side. Parsing reports every independent
problem with its JSON pointer. It first checks depth and size with an explicit stack, and only then recurses.

`parse_tree(to_tree(e)) == e` for every expression `e` that a parser returned.
"""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, assert_never, cast, get_args

from kindcast.semantic.errors import InvalidSubscription, Problem
from kindcast.semantic.language.literals import (
    BARE_NAME,
    CURIE,
    HABITS,
    LONGEST_LIST,
    MOST_PROBLEMS,
    NESTING,
    TREE_CHARACTERS,
    TREE_LEVELS,
    TREE_VALUES,
    VARIABLE,
    bad_number,
    check_bounds,
    is_absolute_iri,
    is_keyword,
    refuse,
)
from kindcast.semantic.model import (
    AGGREGATES,
    All,
    AnyOf,
    Arithmetic,
    AttributeRef,
    Between,
    Closed,
    Comparison,
    Constant,
    EveryOf,
    EveryValue,
    Expression,
    Group,
    Instance,
    Instant,
    KindTest,
    Membership,
    Not,
    OperatorCall,
    Order,
    Position,
    Presence,
    Quantity,
    RelationTest,
    SomeOf,
    Term,
    TextTest,
    ValueConstraint,
    Variable,
    aggregate_name,
    aggregate_of,
)
from kindcast.semantic.units.kinds import parse_dates, parse_instant

__all__ = ["SLOT", "filled", "filler", "parse_tree", "to_tree"]


Json = Any


def to_tree(expression: Expression) -> dict[str, Json]:
    """Returns the tree of `expression`, which can be encoded as JSON. A resolved term becomes `{"iri": …}`. Linear. The
    recursion is as deep as the expression."""
    match expression:
        case All(items):
            return {"all": [to_tree(item) for item in items]}
        case AnyOf(items):
            return {"any": [to_tree(item) for item in items]}
        case Not(item):
            return {"not": to_tree(item)}
        case EveryOf(attribute, item):
            return {"every": [attribute, to_tree(item)]}
        case EveryValue(item):
            return {"every": to_tree(item)}
        case SomeOf(attribute, item):
            return {"some": [attribute, to_tree(item)]}
        case KindTest(attribute, test, terms):
            return {test: [attribute, _terms(terms)]}
        case RelationTest(attribute, relation, terms):
            return {"relation": [attribute, relation, _terms(terms)]}
        case Comparison(attribute, order, operand):
            return {order: [_attribute(attribute), _compared(operand)]}
        case Membership(attribute, constants):
            return {"in": [_attribute(attribute), [_operand(constant) for constant in constants]]}
        case Between(attribute, low, high, closed):
            return {"between": [_attribute(attribute), [_operand(low), _operand(high)], closed]}
        case Presence(attribute, present):
            return {"exists" if present else "missing": attribute}
        case TextTest(attribute, test, text, nocase):
            return {test: [attribute, text, "nocase"] if nocase else [attribute, text]}
        case OperatorCall(name, arguments):
            return {"op": [name, *map(_argument, arguments)]}
        case ValueConstraint(left, order, right):
            return {order: [_sum(left), _sum(right)]}
        case Group(item):
            return to_tree(item)
        case _:
            assert_never(expression)


def _attribute(name: str) -> Json:
    aggregate = aggregate_of(name)
    if aggregate is not None:
        return {aggregate[0]: aggregate[1]}
    return {"attribute": name} if name.startswith("?") else name


def _terms(terms: tuple[Term, ...]) -> Json:
    return _term(terms[0]) if len(terms) == 1 else [_term(term) for term in terms]


def _term(term: Term) -> Json:
    return {"iri": term.iri or term.text} if term.iri is not None or term.is_iri else term.text


def _operand(operand: Constant | AttributeRef) -> Json:
    if isinstance(operand, AttributeRef):
        return {"attribute": operand.name} if aggregate_of(operand.name) is None else _attribute(operand.name)
    match operand.value:
        case Term() as term:
            shown = _term(term)
            return shown if isinstance(shown, dict) else {"term": shown}
        case Quantity(number, unit):
            return {"value": number, "unit": unit}
        case Instant(text):
            return {"instant": text}
        case Instance(iri):
            return {"instance": iri}
        case value:
            return value


def _compared(operand: Constant | AttributeRef) -> Json:
    if isinstance(operand, Constant) and isinstance(operand.value, str) and operand.value.startswith("?"):
        return {"value": operand.value}
    return _operand(operand)


def _argument(argument: Constant | AttributeRef | Variable) -> Json:
    match argument:
        case Variable(name):
            return f"?{name}"
        case AttributeRef(name):
            return {"attribute": name}
        case Constant(str(text)) if text.startswith(("?", "@")):
            return {"value": text}
        case _:
            return _operand(argument)


def _sum(node: Arithmetic | Variable | Constant) -> Json:
    match node:
        case Arithmetic(operator, left, right):
            return {operator: [_sum(left), _sum(right)]}
        case _:
            return _argument(node)


EXAMPLE = '{"all": [{"isa": ["target", "Computer"]}, {"<=": ["price", 400]}]}'
MEANT = {**HABITS, "and": "all", "or": "any", "&&": "all", "||": "any", "&": "all", "|": "any"}
"""From keys of other languages to those of this language."""
ROOT = Position(pointer="")
ARITHMETIC = ("+", "-", "*", "/")
_WRITTEN = re.compile(r"\d{4}-\d\d(-\d\d([Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)?)?)?", re.ASCII)
"""A date-time or date that can be written in the text form."""


def parse_tree(tree: object) -> Expression:
    """Parses `tree` (JSON values) into an expression. Linear. Raises `InvalidSubscription` with all problems, at most
    `MOST_PROBLEMS`.

    >>> parse_tree({"<=": ["price", 400]}).order
    '<='
    """
    _check_size(tree)
    reader = _Reader()
    expression = reader.expression(tree, "")
    if reader.problems:
        raise InvalidSubscription(reader.problems)
    check_bounds(expression, ROOT)
    return expression


def _check_size(tree: object) -> None:
    """Checks the numbers of levels, values and characters with an explicit stack, before any recursion."""
    values = characters = 0
    stack: list[tuple[Any, int]] = [(tree, 1)]
    while stack:
        node, level = stack.pop()
        values += 1
        if level > TREE_LEVELS:
            raise refuse("too-deep", f"the tree is nested deeper than {NESTING} expressions", ROOT)
        if isinstance(node, str):
            characters += len(node)
        elif isinstance(node, Mapping):
            stack.extend((value, level + 1) for value in node.values())
        elif isinstance(node, list | tuple):
            stack.extend((value, level + 1) for value in node)
        if values > TREE_VALUES or characters > TREE_CHARACTERS:
            detail = f"the tree is too large: at most {TREE_VALUES:,} values and {TREE_CHARACTERS:,} characters"
            raise refuse("too-long", detail, ROOT)


_NOTHING = All(())
"""The placeholder for an expression that could not be read. `parse_tree` never returns it, but raises the problem."""


class _Reader:
    """Reads one tree. After a problem, the methods return a placeholder, so that reading continues."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._variables = 0  # variables read so far

    def problem(self, code: str, detail: str, pointer: str, *near: str) -> None:
        suggestions = tuple({"label": each} for each in near)
        self.problems.append(Problem(code, detail, Position(pointer=pointer), suggestions))
        if len(self.problems) >= MOST_PROBLEMS:
            raise InvalidSubscription(self.problems)

    # ── structure ───────────────────────────────────────────────────────────────────────────────────────────────

    def expression(self, node: Any, pointer: str) -> Expression:
        if not isinstance(node, Mapping):
            self.problem("syntax", f"an expression is an object such as {EXAMPLE}", pointer)
            return _NOTHING
        if len(node) != 1:
            detail = (
                f"an expression has exactly one key, but this one has {len(node)}: join several expressions with "
                f"all or any"
            )
            self.problem("syntax", detail, pointer)
            return _NOTHING
        ((key, body),) = node.items()
        form = _FORMS.get(key) if isinstance(key, str) else None
        if form is None:
            shown = str(key)[:40]
            meant = MEANT.get(shown.lower(), shown.lower())
            near = [meant] if meant in _FORMS else difflib.get_close_matches(meant, _FORMS, n=1, cutoff=0.5)
            detail = f"{shown!r} is not an operator; known are {' '.join(_FORMS)}"
            self.problem("unknown-operator", detail, pointer, *near)
            return _NOTHING
        return form(self, key, body, f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}")

    def _group(self, key: str, body: Any, pointer: str) -> Expression:
        if not isinstance(body, list | tuple):
            self.problem("syntax", f"{key} takes a list of expressions", pointer)
            return _NOTHING
        items = tuple(self.expression(item, f"{pointer}/{number}") for number, item in enumerate(body))
        if key == "any" and not items:
            self.problem("syntax", "any needs at least one expression; an empty any never holds", pointer)
            return _NOTHING
        if len(items) == 1:
            return items[0]
        at = Position(pointer=pointer)
        return All(items, at) if key == "all" else AnyOf(items, at)

    def _not(self, _: str, body: Any, pointer: str) -> Expression:
        return Not(self.expression(body, pointer), Position(pointer=pointer))

    def _some(self, key: str, body: Any, pointer: str) -> Expression:
        if not self._shape(key, body, pointer, 2, '["items", {"<": ["price", 5]}]'):
            return _NOTHING
        item = self.expression(body[1], f"{pointer}/1")
        return SomeOf(self._attribute(body[0], f"{pointer}/0"), item, Position(pointer=pointer))

    def _every(self, key: str, body: Any, pointer: str) -> Expression:
        if not isinstance(body, Mapping):
            if not self._shape(key, body, pointer, 2, '["items", {"<": ["price", 5]}] or {"=": ["tags", "a"]}'):
                return _NOTHING
            item = self.expression(body[1], f"{pointer}/1")
            return EveryOf(self._attribute(body[0], f"{pointer}/0"), item, Position(pointer=pointer))
        item = self.expression(body, pointer)
        kinds = KindTest | RelationTest | Comparison | Membership | Between | TextTest
        if not isinstance(item, kinds) or aggregate_of(item.attribute) is not None:
            self.problem("syntax", 'every takes one predicate on values, {"=": ["tags", "a"]}', pointer)
            return _NOTHING
        return EveryValue(item, Position(pointer=pointer))

    # ── predicates ──────────────────────────────────────────────────────────────────────────────────────────────

    def _kind(self, key: str, body: Any, pointer: str) -> Expression:
        if not self._shape(key, body, pointer, 2, '["target", "Computer"] or ["target", ["Laptop", "Tablet"]]'):
            return _NOTHING
        attribute = self._attribute(body[0], f"{pointer}/0")
        return KindTest(attribute, cast(Any, key), self._terms(body[1], f"{pointer}/1"), Position(pointer=pointer))

    def _relation(self, key: str, body: Any, pointer: str) -> Expression:
        if not self._shape(key, body, pointer, 3, '["target", "part_of", "Heart"]'):
            return _NOTHING
        attribute, relation = (self._attribute(body[place], f"{pointer}/{place}") for place in (0, 1))
        return RelationTest(attribute, relation, self._terms(body[2], f"{pointer}/2"), Position(pointer=pointer))

    def _comparison(self, key: str, body: Any, pointer: str) -> Expression:
        if not self._shape(key, body, pointer, 2, '["price", 400]'):
            return _NOTHING
        at = Position(pointer=pointer)
        if _is_sum(body[0]):
            before, known = self._variables, len(self.problems)
            left, right = (self._sum(body[place], f"{pointer}/{place}") for place in (0, 1))
            if before == self._variables:
                del self.problems[known:]
                detail = 'a comparison starts with the name of an attribute, or uses a variable "?n"'
                self.problem("syntax", detail, pointer)
            return ValueConstraint(left, cast(Order, key), right, at)
        if isinstance(body[1], str) and body[1].startswith("?"):
            detail = 'a variable is compared only with numbers and variables; write such a string as {"value": "?n"}'
            self.problem("syntax", detail, f"{pointer}/1")
        operand = self._operand(body[1], f"{pointer}/1")
        return Comparison(self._subject(body[0], f"{pointer}/0"), cast(Order, key), operand, at)

    def _membership(self, key: str, body: Any, pointer: str) -> Expression:
        if not self._shape(key, body, pointer, 2, '["colour", ["red", "green"]]'):
            return _NOTHING
        attribute = self._subject(body[0], f"{pointer}/0")
        operands = self._list(body[1], f"{pointer}/1")
        constants = tuple(self._constant(each, f"{pointer}/1/{number}") for number, each in enumerate(operands))
        return Membership(attribute, constants, Position(pointer=pointer))

    def _between(self, key: str, body: Any, pointer: str) -> Expression:
        example = '["price", [0, 400], "[)"]'
        if not (isinstance(body, list | tuple) and len(body) in (2, 3)) or not (
            isinstance(body[1], list | tuple) and len(body[1]) == 2
        ):
            self.problem("syntax", f"{key} takes {example}", pointer)
            return _NOTHING
        closed = body[2] if len(body) == 3 else "[]"
        if closed not in get_args(Closed):
            self.problem("syntax", f"write the ends as one of {' '.join(get_args(Closed))}", f"{pointer}/2")
        low, high = (self._constant(body[1][place], f"{pointer}/1/{place}") for place in (0, 1))
        attribute = self._subject(body[0], f"{pointer}/0")
        return Between(attribute, low, high, cast(Closed, closed), Position(pointer=pointer))

    def _presence(self, key: str, body: Any, pointer: str) -> Expression:
        name = body[0] if isinstance(body, list | tuple) and len(body) == 1 else body
        return Presence(self._attribute(name, pointer), key == "exists", Position(pointer=pointer))

    def _text_test(self, key: str, body: Any, pointer: str) -> Expression:
        sound = isinstance(body, list | tuple) and len(body) in (2, 3) and isinstance(body[1], str)
        if not sound or (len(body) == 3 and body[2] != "nocase"):
            self.problem("syntax", f'{key} takes ["name", "HP"] or ["name", "HP", "nocase"]', pointer)
            return _NOTHING
        attribute = self._attribute(body[0], f"{pointer}/0")
        return TextTest(attribute, cast(Any, key), body[1], len(body) == 3, Position(pointer=pointer))

    def _call(self, key: str, body: Any, pointer: str) -> Expression:
        if not isinstance(body, list | tuple) or not body or not isinstance(body[0], str):
            self.problem("syntax", f'{key} takes ["locIn", "Bronx", "@area", "?n"]', pointer)
            return _NOTHING
        if not BARE_NAME.fullmatch(body[0]) or is_keyword(body[0]):
            detail = f"{body[0][:40]!r} is not the name of an operator: use a word such as locIn, not a keyword"
            self.problem("syntax", detail, f"{pointer}/0")
        if len(body) - 1 > LONGEST_LIST:
            self.problem("too-many", f"{len(body) - 1:,} arguments; at most {LONGEST_LIST:,} are allowed", pointer)
            return _NOTHING
        arguments = tuple(self._argument(each, f"{pointer}/{number}") for number, each in enumerate(body[1:], start=1))
        return OperatorCall(body[0], arguments, Position(pointer=pointer))

    # ── operands ────────────────────────────────────────────────────────────────────────────────────────────────

    def _shape(self, key: str, body: Any, pointer: str, length: int, example: str) -> bool:
        if isinstance(body, list | tuple) and len(body) == length:
            return True
        self.problem("syntax", f"{key} takes {example}", pointer)
        return False

    def _list(self, body: Any, pointer: str) -> list[Any]:
        if not isinstance(body, list | tuple) or not body:
            self.problem("syntax", "a list with at least one value is expected", pointer)
            return []
        if len(body) > LONGEST_LIST:
            self.problem("too-many", f"{len(body):,} values; at most {LONGEST_LIST:,} are allowed", pointer)
            return []
        return list(body)

    def _attribute(self, name: Any, pointer: str) -> str:
        if isinstance(name, Mapping) and set(name) == {"attribute"}:
            name = name["attribute"]
        if not isinstance(name, str):
            self.problem("syntax", "the name of an attribute is expected: a string", pointer)
            return ""
        return name

    def _subject(self, name: Any, pointer: str) -> str:
        """Returns the name of an attribute, or of an aggregate over one."""
        if not _is_aggregate(name):
            return self._attribute(name, pointer)
        ((function, attribute),) = name.items()
        return aggregate_name(function, self._attribute(attribute, f"{pointer}/{function}"))

    def _terms(self, body: Any, pointer: str) -> tuple[Term, ...]:
        if not isinstance(body, list | tuple):
            return (self._term(body, pointer),)
        return tuple(self._term(each, f"{pointer}/{number}") for number, each in enumerate(self._list(body, pointer)))

    def _term(self, term: Any, pointer: str) -> Term:
        at = Position(pointer=pointer)
        if isinstance(term, str):
            return Term(term, at=at)
        if isinstance(term, Mapping) and set(term) == {"iri"} and isinstance(term["iri"], str):
            return self._iri(term["iri"], pointer)
        self.problem("syntax", 'a concept is a string (label, short form, CURIE) or {"iri": "…"}', pointer)
        return Term("", at=at)

    def _iri(self, iri: str, pointer: str) -> Term:
        if not iri:
            self.problem("syntax", "an IRI must not be empty", pointer)
        return Term(iri, is_iri=True, at=Position(pointer=pointer))

    def _operand(self, operand: Any, pointer: str) -> Constant | AttributeRef:
        if isinstance(operand, Mapping) and set(operand) == {"attribute"}:
            return AttributeRef(self._attribute(operand, pointer), Position(pointer=pointer))
        if _is_aggregate(operand):
            return AttributeRef(self._subject(operand, pointer), Position(pointer=pointer))
        return self._constant(operand, pointer)

    def _constant(self, operand: Any, pointer: str) -> Constant:
        at = Position(pointer=pointer)
        match operand:
            case str() | bool():
                return Constant(operand, at)
            case int() | float():
                return Constant(self._number(operand, pointer), at)
            case {"value": bool() | str() as value} if len(operand) == 1:
                return Constant(value, at, is_text=isinstance(value, str))
            case {"value": int() | float() as number, "unit": str(unit)} if len(operand) == 2:
                if not isinstance(number, bool):
                    return Constant(Quantity(self._number(number, pointer), unit), at)
            case {"instant": str(text)} if len(operand) == 1:
                if not _WRITTEN.fullmatch(text) or (parse_instant(text) is None and parse_dates(text) is None):
                    between = "between July 1684 and June 2255"
                    detail = f"{text[:40]!r} is neither a date-time of RFC 3339 nor a date {between}"
                    self.problem("bad-date-time", detail, pointer)
                return Constant(Instant(text), at)
            case {"term": str(text)} if len(operand) == 1:
                if not CURIE.fullmatch(text):
                    self.problem("syntax", f"{text[:40]!r} is not a CURIE such as brick:Sensor", pointer)
                return Constant(Term(text, at=at), at)
            case {"iri": str(text)} if len(operand) == 1:
                return Constant(self._iri(text, pointer), at)
            case {"instance": str(text)} if len(operand) == 1:
                if not is_absolute_iri(text):
                    self.problem("syntax", f"{text[:40]!r} is not an absolute IRI", pointer)
                return Constant(Instance(text), at)
            case _:
                pass
        detail = (
            'a value is a string, a number, true, false, {"value": 86, "unit": "degF"}, {"instant": "…"}, {"iri": "…"} '
            'or {"attribute": "…"}'
        )
        self.problem("syntax", detail, pointer)
        return Constant("", at)

    def _number(self, number: int | float, pointer: str) -> int | float:
        wrong = bad_number(number)
        if wrong:
            self.problem("bad-number", wrong, pointer)
        return number

    def _argument(self, argument: Any, pointer: str) -> Constant | AttributeRef | Variable:
        at = Position(pointer=pointer)
        if isinstance(argument, str) and argument.startswith("?"):
            return self._variable(argument, pointer)
        if isinstance(argument, str) and argument.startswith("@"):
            return AttributeRef(argument[1:], at)
        operand = self._operand(argument, pointer)
        if isinstance(operand, AttributeRef) and aggregate_of(operand.name) is not None:
            self.problem("syntax", "an operator takes attributes, not aggregates", pointer)
        if isinstance(operand, Constant) and isinstance(operand.value, Instance):
            self.problem("syntax", 'an operator takes a concept {"iri": "…"}, or a string', pointer)
        return operand

    def _variable(self, text: str, pointer: str) -> Variable:
        if not VARIABLE.fullmatch(text):
            detail = f'{text[:40]!r} is not a variable such as "?n"; write such a string as {{"value": "?…"}}'
            self.problem("syntax", detail, pointer)
        self._variables += 1
        return Variable(text[1:], Position(pointer=pointer))

    def _sum(self, node: Any, pointer: str) -> Arithmetic | Variable | Constant:
        if isinstance(node, Mapping) and len(node) == 1:
            ((key, body),) = node.items()
            if key in ARITHMETIC:
                if not self._shape(key, body, pointer, 2, '["?a", 2]'):
                    return Constant(0)
                inner = f"{pointer}/{key.replace('/', '~1')}"
                left, right = (self._sum(body[place], f"{inner}/{place}") for place in (0, 1))
                return Arithmetic(cast(Any, key), left, right)
        if isinstance(node, str) and node.startswith("?"):
            return self._variable(node, pointer)
        constant = self._constant(node, pointer)
        if isinstance(constant.value, bool) or not isinstance(constant.value, int | float | Quantity):
            self.problem("syntax", "beside a variable only numbers, quantities and variables are allowed", pointer)
        return constant


_FORMS: dict[str, Callable[[_Reader, str, Any, str], Expression]] = {
    "all": _Reader._group,
    "any": _Reader._group,
    "not": _Reader._not,
    "some": _Reader._some,
    "every": _Reader._every,
    "isa": _Reader._kind,
    "below": _Reader._kind,
    "is": _Reader._kind,
    "relation": _Reader._relation,
    "in": _Reader._membership,
    "between": _Reader._between,
    "exists": _Reader._presence,
    "missing": _Reader._presence,
    "op": _Reader._call,
    **dict.fromkeys(get_args(Order), _Reader._comparison),
    **dict.fromkeys(("startswith", "endswith", "contains", "matches"), _Reader._text_test),
}
"""From the key of an expression to the method that reads the expression."""


def _is_sum(node: Any) -> bool:
    """Whether the left side of a comparison is a variable or arithmetic rather than the name of an attribute."""
    if isinstance(node, str):
        return node.startswith("?")
    if isinstance(node, Mapping):
        return set(node) != {"attribute"} and not _is_aggregate(node)
    return isinstance(node, int | float)


def _is_aggregate(node: Any) -> bool:
    """Whether `node` is an aggregate, such as `{"count": "items"}`."""
    return isinstance(node, Mapping) and len(node) == 1 and next(iter(node)) in AGGREGATES


# ── skeletons: trees of one shape without their constants ─────────────────────────────────────────────────────────────

SLOT = "slot"
"""The key that marks the place of a constant in a skeleton. No operator has this name."""


def filled(node: Any, constants: Sequence[Any]) -> Any:
    """Returns `node` with every `{"slot": k}` replaced by constant k. All containers are copied."""
    if type(node) is dict:
        if SLOT in node:
            return constants[node[SLOT]]
        return {key: filled(value, constants) for key, value in node.items()}
    if type(node) is list:
        return [value if type(value) is str else filled(value, constants) for value in node]
    return node


def filler(node: Any) -> Callable[[Sequence[Any]], Any]:
    """Returns a function that does the same as `filled` for `node`. For many trees that is faster."""
    if type(node) is dict and SLOT in node:
        return itemgetter(node[SLOT])
    if type(node) is dict:
        named = [(key, filler(value)) for key, value in node.items()]
        if len(named) == 1:
            ((key, only),) = named
            return lambda constants: {key: only(constants)}
        return lambda constants: {key: fill(constants) for key, fill in named}
    if type(node) is list:
        items = [filler(value) for value in node]
        if len(node) == 2 and type(node[0]) is str:
            name, second = node[0], items[1]
            return lambda constants: [name, second(constants)]
        return lambda constants: [fill(constants) for fill in items]
    return lambda constants: node
