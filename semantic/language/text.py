"""The text form of expressions: parsing, printing as canonical text, and description as a sentence in plain words.

An LALR parser reads the grammar of `grammar.lark` with its own stack. It builds the nodes while it reads, so nesting
needs no recursion. The depth is checked on the result.

`parse_text(to_text(e)) == e` for each expression `e` that a parser made. A resolved term is printed as `<IRI>`, so the
canonical text of a resolved expression never changes its meaning.

`TextShapes` reads many texts that differ only in strings and numbers. It parses two of them and fills in the constants
in the trees of the others.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final, Literal, NamedTuple, assert_never, cast

from lark import Lark, Token, Transformer, UnexpectedInput, v_args

from kindcast.semantic.errors import InvalidSubscription
from kindcast.semantic.language.literals import (
    BARE_TERM,
    KEYWORDS,
    LONGEST_LIST,
    LONGEST_TEXT,
    attribute_text,
    bad_number,
    check_bounds,
    number_of,
    quoted_iri,
    quoted_name,
    quoted_string,
    refuse,
    string_of,
    syntax_problem,
    unquoted_name,
)
from kindcast.semantic.language.tree import SLOT, filled, to_tree
from kindcast.semantic.model import (
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
from kindcast.semantic.units.kinds import parse_dates, parse_duration, parse_instant

__all__ = [
    "FilledTree",
    "Skeleton",
    "TextShapes",
    "parse_text",
    "plain_words",
    "to_text",
]


def to_text(expression: Expression) -> str:
    """Returns the canonical text of `expression`. Linear. The recursion is as deep as the expression (at most 64
    levels)."""
    match expression:
        case All(items):
            return " and ".join(_inner(item) for item in items)
        case AnyOf(items):
            return " or ".join(_inner(item) for item in items)
        case Not(item):
            return f"not {_inner(item)}"
        case EveryOf(attribute, item):
            return f"every {attribute_text(attribute)} ({to_text(item)})"
        case EveryValue(item):
            return f"every {to_text(item)}"
        case SomeOf(attribute, item):
            return f"some {attribute_text(attribute)} ({to_text(item)})"
        case KindTest(attribute, test, terms):
            return f"{attribute_text(attribute)} {test} {_terms(terms)}"
        case RelationTest(attribute, relation, terms):
            return f"{attribute_text(attribute)} {_relation(relation)} {_terms(terms)}"
        case Comparison(attribute, order, operand):
            return f"{attribute_text(attribute)} {order} {_operand(operand)}"
        case Membership(attribute, constants):
            return f"{attribute_text(attribute)} in ({', '.join(map(_operand, constants))})"
        case Between(attribute, low, high, closed):
            return f"{attribute_text(attribute)} between {closed[0]}{_operand(low)}, {_operand(high)}{closed[1]}"
        case Presence(attribute, present):
            return f"{attribute_text(attribute)} {'exists' if present else 'missing'}"
        case TextTest(attribute, test, text, nocase):
            return f"{attribute_text(attribute)} {test} {quoted_string(text)}{' nocase' if nocase else ''}"
        case OperatorCall(name, arguments):
            return f"{name}({', '.join(map(_argument_text, arguments))})"
        case ValueConstraint(left, order, right):
            return f"{_sum(left)} {order} {_sum(right)}"
        case Group(item):
            return to_text(item)
        case _:
            assert_never(expression)


def _inner(item: Expression) -> str:
    return f"({to_text(item)})" if isinstance(item, All | AnyOf | Group) else to_text(item)


def _relation(name: str) -> str:
    """Returns the text of a relation. A resolved relation is an IRI."""
    return quoted_iri(name) if "://" in name or name.startswith("urn:") else quoted_name(name)


def _terms(terms: tuple[Term, ...]) -> str:
    return _term(terms[0]) if len(terms) == 1 else f"({', '.join(map(_term, terms))})"


def _term(term: Term) -> str:
    if term.iri is not None or term.is_iri:
        return quoted_iri(term.iri or term.text)
    bare = BARE_TERM.fullmatch(term.text) and term.text.lower() not in KEYWORDS
    return term.text if bare else quoted_string(term.text)


def _operand(operand: Constant | AttributeRef) -> str:
    if isinstance(operand, AttributeRef):
        return quoted_name(operand.name)
    match operand.value:
        case Term() as term:
            return _term(term)
        case Quantity(number, unit):
            return f"{number!r} {quoted_string(unit)}" if not _is_unit(unit) else f"{number!r} {unit}"
        case Instant(text):
            return text
        case Instance(iri):
            return quoted_iri(iri)
        case bool(value):
            return "true" if value else "false"
        case str(text):
            return quoted_string(text)
        case number:
            return repr(number)


def _argument_text(argument: Constant | AttributeRef | Variable) -> str:
    match argument:
        case Variable(name):
            return f"?{name}"
        case AttributeRef(name):
            return f"@{quoted_name(name)}"
        case _:
            return _operand(argument)


def _sum(node: Arithmetic | Variable | Constant) -> str:
    match node:
        case Arithmetic(operator, left, right):
            return f"{_part(left)} {operator} {_part(right)}"
        case Variable(name):
            return f"?{name}"
        case _:
            return _operand(node)


def _part(node: Arithmetic | Variable | Constant) -> str:
    return f"({_sum(node)})" if isinstance(node, Arithmetic) else _sum(node)


def _is_unit(unit: str) -> bool:
    return unit.isalpha() and unit.lower() not in KEYWORDS


EVENT_TYPE: Final = "ce.type"
"""The attribute of a test of a kind that names no attribute."""
AGGREGATED = "AGGREGATED"
"""The token type of an aggregate."""
EVERY = All(())
"""The expression of the empty text: every event."""
Operand = Constant | AttributeRef
Calculated = Arithmetic | Variable | Constant
"""A side of a comparison over variables."""


def parse_text(text: str) -> Expression:
    """Parses `text`. The empty text is `All(())`, which every event satisfies.

    Linear in the text. Raises `InvalidSubscription` with line and column, the expected tokens, and a suggestion.

    >>> parse_text("price <= 400").order
    '<='
    """
    if len(text) > LONGEST_TEXT:
        detail = f"the text has {len(text):,} characters; at most {LONGEST_TEXT:,} are allowed"
        raise refuse("too-long", detail, Position(1, 1))
    try:
        expression = cast(Expression, _parser().parse(text))
    except UnexpectedInput as error:
        raise InvalidSubscription([syntax_problem(text, error)]) from None
    check_bounds(expression, Position(1, 1))
    return expression


@functools.cache
def _parser() -> Lark:
    grammar = files("kindcast.semantic.language").joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer="contextual", transformer=_Builder(), maybe_placeholders=False)


def _at(token: Token) -> Position:
    return Position(token.line, token.column)


def _name(token: Token, *, offset: int = 0) -> str:
    """Returns the name in a token, from `offset` on. The name of an aggregate is returned as it is."""
    if token.type == AGGREGATED:
        return str(token)
    return _sound(unquoted_name(str(token)[offset:]), token)


def _string(token: Token) -> str:
    return _sound(string_of(str(token)), token)


def _sound(text: str | None, token: Token) -> str:
    if text is None:
        detail = "an unknown escape: \\\" \\' \\` \\\\ \\/ \\b \\f \\n \\r \\t and \\u0000 are known"
        raise refuse("bad-string", detail, _at(token))
    return text


def _listed(items: tuple[Any, ...], at: Position | None) -> tuple[Any, ...]:
    if len(items) > LONGEST_LIST:
        raise refuse("too-many", f"{len(items):,} operands; at most {LONGEST_LIST:,} are allowed", at)
    return items


def _constant(operand: Operand, where: str) -> Constant:
    if isinstance(operand, AttributeRef):
        name = quoted_name(operand.name[:40])
        detail = f"{name} without quotes is an attribute; {where} takes constants: write a string in quotes"
        raise refuse("syntax", detail, operand.at)
    return operand


@v_args(inline=True)
class _Builder(Transformer[Token, Any]):
    """Builds the nodes: one method per grammar rule, called during parsing, children first."""

    # ── structure ───────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, expression: Expression = EVERY) -> Expression:
        return expression

    def any_of(self, *items: Expression) -> Expression:
        return AnyOf(items, items[0].at)

    def all_of(self, *items: Expression) -> Expression:
        return All(items, items[0].at)

    def negated(self, keyword: Token, item: Expression) -> Expression:
        return Not(item, _at(keyword))

    def group(self, expression: Expression = EVERY) -> Expression:
        return expression

    def some(self, keyword: Token, attribute: Token, item: Expression = EVERY) -> Expression:
        return SomeOf(_name(attribute), item, _at(keyword))

    def every_of(self, keyword: Token, attribute: Token, item: Expression = EVERY) -> Expression:
        return EveryOf(_name(attribute), item, _at(keyword))

    def every_value(self, keyword: Token, item: Any) -> Expression:
        if aggregate_of(item.attribute) is not None:
            raise refuse("syntax", "an aggregate has only one value: leave out `every`", _at(keyword))
        if isinstance(item, Presence):
            raise refuse("syntax", "exists and missing do not test values: leave out `every`", _at(keyword))
        return EveryValue(item, _at(keyword))

    # ── predicates ──────────────────────────────────────────────────────────────────────────────────────────────

    def attribute(self, token: Token) -> Token:
        return token

    def aggregate(self, function: Token, attribute: Token) -> Token:
        name = aggregate_name(str(function), _name(attribute))
        return Token(AGGREGATED, name, line=function.line, column=function.column)

    def kind_test(self, attribute: Token, test: Token, *terms: Term) -> Expression:
        at = _at(attribute)
        return KindTest(_name(attribute), cast(Any, test.lower()), _listed(terms, at), at)

    def type_test(self, test: Token, *terms: Term) -> Expression:
        """Without an attribute it tests the type of the event (rule 21)."""
        at = _at(test)
        return KindTest(EVENT_TYPE, cast(Any, test.lower()), _listed(terms, at), at)

    def relation_test(self, attribute: Token, relation: Token, *terms: Term) -> Expression:
        at = _at(attribute)
        name = _string(relation) if relation.type == "IRI" else _name(relation)
        return RelationTest(_name(attribute), name, _listed(terms, at), at)

    def comparison(self, attribute: Token, order: Token, operand: Operand) -> Expression:
        return Comparison(_name(attribute), cast(Order, str(order)), operand, _at(attribute))

    def membership(self, attribute: Token, *operands: Operand) -> Expression:
        at = _at(attribute)
        constants = tuple(_constant(operand, "in") for operand in _listed(operands, at))
        return Membership(_name(attribute), constants, at)

    def between(self, attribute: Token, _o: Token, low: Operand, high: Operand, _c: Token) -> Expression:
        return self._range(attribute, low, high, "[]")

    def between_open(self, attribute: Token, low: Operand, high: Operand, _c: Token) -> Expression:
        return self._range(attribute, low, high, "(]")

    def between_closed_open(self, attribute: Token, _o: Token, low: Operand, high: Operand) -> Expression:
        return self._range(attribute, low, high, "[)")

    def between_open_open(self, attribute: Token, low: Operand, high: Operand) -> Expression:
        return self._range(attribute, low, high, "()")

    def _range(self, attribute: Token, low: Operand, high: Operand, closed: Closed) -> Expression:
        ends = _constant(low, "between"), _constant(high, "between")
        return Between(_name(attribute), *ends, closed, _at(attribute))

    def presence(self, attribute: Token, word: Token) -> Expression:
        return Presence(_name(attribute), word.lower() == "exists", _at(attribute))

    def text_test(self, attribute: Token, test: Token, text: Token, nocase: Token | None = None) -> Expression:
        pattern = str(text)[1:-1].replace("\\/", "/") if text.type == "PATTERN" else _string(text)
        return TextTest(_name(attribute), cast(Any, test.lower()), pattern, nocase is not None, _at(attribute))

    def call(self, name: Token, *arguments: Any) -> Expression:
        at = _at(name)
        return OperatorCall(str(name), tuple(map(_argument, _listed(arguments, at))), at)

    def constraint(self, left: Calculated, order: Token, right: Calculated) -> Expression:
        at = _at(order)
        constraint = ValueConstraint(left, cast(Order, str(order)), right, at)
        if not (_has_variable(left) or _has_variable(right)):
            raise refuse("syntax", "a comparison starts with an attribute (price <= 400) or uses a variable (?n)", at)
        return constraint

    # ── operands ────────────────────────────────────────────────────────────────────────────────────────────────

    def term(self, token: Token) -> Term:
        if token.type == "IRI":
            return Term(_string(token), is_iri=True, at=_at(token))
        return Term(_string(token) if token.type == "STRING" else str(token), at=_at(token))

    def attribute_operand(self, token: Token) -> AttributeRef:
        return AttributeRef(_name(token), _at(token))

    def constant(self, constant: Constant) -> Constant:
        return constant

    def string(self, token: Token) -> Constant:
        return Constant(_string(token), _at(token))

    def truth(self, token: Token) -> Constant:
        return Constant(token.lower() == "true", _at(token))

    def instant(self, token: Token) -> Constant:
        if parse_instant(str(token)) is None and parse_dates(str(token)) is None:
            detail = f"{token[:40]} is neither a date-time of RFC 3339 nor a date between July 1684 and June 2255"
            raise refuse("bad-date-time", detail, _at(token))
        return Constant(Instant(str(token)), _at(token))

    def duration(self, token: Token) -> Constant:
        return Constant(Quantity(parse_duration(str(token)) or 0, "s"), _at(token))

    def term_constant(self, token: Token) -> Constant:
        return Constant(self.term(token), _at(token))

    def network(self, token: Token) -> Constant:
        return Constant(str(token), _at(token))

    def network_membership(self, attribute: Token, token: Token) -> Expression:
        return Membership(_name(attribute), (self.network(token),), _at(attribute))

    def number(self, token: Token, unit: Token | None = None) -> Constant:
        number = number_of(str(token))
        wrong = bad_number(number)
        if wrong:
            raise refuse("bad-number", wrong, _at(token))
        if unit is None:
            return Constant(number, _at(token))
        text = str(unit) if unit.type == "UNIT" else _string(unit)
        return Constant(Quantity(number, text), _at(token))

    def variable(self, token: Token) -> Variable:
        return Variable(str(token)[1:], _at(token))

    def arithmetic(self, left: Calculated, operator: Token, right: Calculated) -> Arithmetic:
        return Arithmetic(cast(Any, str(operator)), left, right)


def _argument(argument: Any) -> Constant | AttributeRef | Variable:
    if not isinstance(argument, Token):
        return cast(Constant, argument)
    if argument.type == "VARIABLE":
        return Variable(str(argument)[1:], _at(argument))
    return AttributeRef(_name(argument, offset=1), _at(argument))


def _has_variable(node: Any) -> bool:
    stack = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, Variable):
            return True
        if isinstance(node, Arithmetic):
            stack += [node.left, node.right]
    return False


_CONSTANT: Final = re.compile(
    r"""("[^?@"'`\\\x00-\x1f][^"'`\\\x00-\x1f]*"|'[^?@"'`\\\x00-\x1f][^"'`\\\x00-\x1f]*')"""
    r"""|(?<![\w.\-:+/*^@?`])(-?[0-9]{1,15}(?:\.[0-9]{1,15})?)(?![\w.\-:/*^])"""
)
"""Matches strings whose text is the same in the tree, and numbers that are whole tokens. The text around such a
constant is parsed in the same way for any other constant of this form."""
_STRING, _WHOLE, _FRACTION = "\x00s", "\x00w", "\x00f"
"""The marks that replace constants in a shape. No expression contains the character NUL."""


class Skeleton:
    """The tree of the texts of one shape, with slots for their constants."""

    __slots__ = ("tree",)

    def __init__(self, tree: Any) -> None:
        self.tree = tree


class FilledTree(NamedTuple):
    """A tree as its skeleton and the constant of each slot."""

    skeleton: Skeleton
    constants: Sequence[str | int | float]

    def whole(self) -> dict[str, Any]:
        """Returns the tree."""
        tree: dict[str, Any] = filled(self.skeleton.tree, self.constants)
        return tree


class TextShapes:
    """Parses texts to trees and remembers the tree of each shape. Texts may have unlimited shapes, so the owner must
    look at `remembered`."""

    def __init__(self) -> None:
        self._skeletons: dict[str, Skeleton | Literal[False] | None] = {}

    @property
    def remembered(self) -> int:
        """The number of cached shapes."""
        return len(self._skeletons)

    def tree(self, text: str) -> dict[str, Any] | FilledTree:
        """Returns the tree of `to_tree(parse_text(text))`. Takes about 0.2 ms for the first two texts of a shape, some
        µs for the others. Raises `InvalidSubscription`."""
        if len(text) > LONGEST_TEXT or "\x00" in text:
            return to_tree(parse_text(text))
        constants: list[str | int | float] = []

        def noted(match: re.Match[str]) -> str:
            string, number = match.groups()
            constants.append(string[1:-1] if string is not None else number_of(number))
            return _STRING if string is not None else _form(number)

        shape = _CONSTANT.sub(noted, text)
        if shape in self._skeletons:
            known = self._skeletons[shape]
            if known is None:
                known = self._skeletons[shape] = _skeleton(text, constants)
            if known:
                return FilledTree(known, constants)
        tree = to_tree(parse_text(text))
        self._skeletons.setdefault(shape, None)
        return tree


def _form(number: str) -> str:
    sign = "-" if number.startswith("-") else ""
    return sign + (_FRACTION if "." in number else _WHOLE)


def _skeleton(text: str, constants: list[str | int | float]) -> Skeleton | Literal[False]:
    """Returns the skeleton of `text`. False if a constant is not a separate value in the tree, or if the text is no
    expression."""
    marks: list[str | int | float] = []

    def marked(match: re.Match[str]) -> str:
        """Returns a constant of the same form that occurs nowhere else in the text."""
        string, number = match.groups()
        told, count = 7_310_001 + len(marks), len(marks)
        while str(told) in text:
            told += 10_000_019
        if string is not None:
            marks.append(f"slot {told} {count}")
            return f"{string[0]}{marks[-1]}{string[0]}"
        written = ("-" if number.startswith("-") else "") + (f"{told}.5" if "." in number else f"{told}")
        marks.append(number_of(written))
        return written

    other = _CONSTANT.sub(marked, text)
    try:
        given, tree = to_tree(parse_text(text)), to_tree(parse_text(other))
    except InvalidSubscription:
        return False
    found: list[int] = []
    skeleton = _slotted(tree, {(type(mark), mark): number for number, mark in enumerate(marks)}, found)
    sound = sorted(found) == list(range(len(marks))) and filled(skeleton, constants) == given
    return Skeleton(skeleton) if sound else False


def _slotted(node: Any, numbers: dict[tuple[type, Any], int], found: list[int]) -> Any:
    """Returns `node` with a slot instead of each mark, and appends the numbers of the marks to `found`."""
    match node:
        case dict():
            return {name: _slotted(each, numbers, found) for name, each in node.items()}
        case list():
            return [_slotted(each, numbers, found) for each in node]
    number = numbers.get((type(node), node))
    if number is None:
        return node
    found.append(number)
    return {SLOT: number}


# ── expressions in plain words: sentences for people who do not know the subscription language ────────────────────────

# The input is a tree of `kindcast.semantic.language.tree` and a function that returns the label of a concept.


_WORDS: Final[dict[str, dict[str, str]]] = {
    "en": {
        "every": "every event",
        "all": " and ",
        "any": " or ",
        "not": "it is not so that {}",
        "isa": "{0} is a kind of {1}",
        "is": "{0} is exactly {1}",
        "below": "{0} is a narrower kind than {1}",
        "relation": "{0} is related by {2} to {1}",
        "=": "{0} is {1}",
        "!=": "{0} is something other than {1}",
        "<": "{0} is less than {1}",
        "<=": "{0} is at most {1}",
        ">": "{0} is more than {1}",
        ">=": "{0} is at least {1}",
        "in": "{0} is one of {1}",
        "between": "{0} is between {1} and {2}",
        "exists": "{0} is given",
        "missing": "{0} is not given",
        "startswith": "{0} begins with {1}",
        "endswith": "{0} ends with {1}",
        "contains": "{0} contains {1}",
        "matches": "{0} fits the pattern {1}",
        "some": "at least one element of {0} has: {1}",
        "every_of": "each element of {0} has: {1}",
        "op": "the operator {0} says yes to {1}",
        "or": " or ",
        "type": "the type of the event",
    },
    "de": {
        "every": "jedes Ereignis",
        "all": " und ",
        "any": " oder ",
        "not": "es gilt nicht, dass {}",
        "isa": "{0} ist eine Art von {1}",
        "is": "{0} ist genau {1}",
        "below": "{0} ist eine engere Art als {1}",
        "relation": "{0} steht in der Beziehung {2} zu {1}",
        "=": "{0} ist {1}",
        "!=": "{0} ist etwas anderes als {1}",
        "<": "{0} ist kleiner als {1}",
        "<=": "{0} ist höchstens {1}",
        ">": "{0} ist größer als {1}",
        ">=": "{0} ist mindestens {1}",
        "in": "{0} ist eines von {1}",
        "between": "{0} liegt zwischen {1} und {2}",
        "exists": "{0} ist angegeben",
        "missing": "{0} ist nicht angegeben",
        "startswith": "{0} beginnt mit {1}",
        "endswith": "{0} endet mit {1}",
        "contains": "{0} enthält {1}",
        "matches": "{0} passt zum Muster {1}",
        "some": "mindestens ein Element von {0} hat: {1}",
        "every_of": "jedes Element von {0} hat: {1}",
        "op": "der Operator {0} bejaht {1}",
        "or": " oder ",
        "type": "der Typ des Ereignisses",
    },
    "zh": {
        "every": "所有事件",
        "all": ",并且",
        "any": ",或者",
        "not": "不满足:{}",
        "isa": "{0} 是一种 {1}",
        "is": "{0} 正是 {1}",
        "below": "{0} 是比 {1} 更窄的一种",
        "relation": "{0} 与 {1} 有关系 {2}",
        "=": "{0} 等于 {1}",
        "!=": "{0} 不是 {1}",
        "<": "{0} 小于 {1}",
        "<=": "{0} 不超过 {1}",
        ">": "{0} 大于 {1}",
        ">=": "{0} 至少为 {1}",
        "in": "{0} 是以下之一:{1}",
        "between": "{0} 介于 {1} 与 {2} 之间",
        "exists": "给出了 {0}",
        "missing": "没有给出 {0}",
        "startswith": "{0} 以 {1} 开头",
        "endswith": "{0} 以 {1} 结尾",
        "contains": "{0} 包含 {1}",
        "matches": "{0} 符合模式 {1}",
        "some": "{0} 中至少有一个元素:{1}",
        "every_of": "{0} 中的每个元素:{1}",
        "op": "运算 {0} 对 {1} 给出肯定",
        "or": " 或 ",
        "type": "事件类型",
    },
}


_BARE: Final = ("attribute", "instant", "term")
"""Members that hold a text which is shown unchanged. Other members are functions of an attribute, such as `count`."""


def plain_words(tree: Mapping[str, Any], label: Callable[[str], str], language: str = "en") -> str:
    """Returns the meaning of a tree as one sentence in English, German or Chinese (English for other languages).
    `label` returns the name of a concept by its IRI. Linear in the tree.

    >>> plain_words({"all": [{"isa": ["target", "Computer"]}, {"<=": ["price", 400]}]}, str)
    'target is a kind of Computer and price is at most 400'
    """
    return _Teller(_WORDS.get(language.partition("-")[0].lower(), _WORDS["en"]), label).told(tree)


class _Teller:
    def __init__(self, words: Mapping[str, str], label: Callable[[str], str]) -> None:
        self._words = words
        self._label = label

    def told(self, node: Mapping[str, Any], within: str = "") -> str:
        key, body = next(iter(node.items()))
        match key:
            case "all" | "any":
                if not body:
                    return self._words["every"] if key == "all" else self._words["not"].format(self._words["every"])
                text = self._words[key].join(self.told(each, key) for each in body)
                return f"({text})" if within not in ("", key) and len(body) > 1 else text
            case "not":
                return self._words["not"].format(self.told(body, key))
            case "some":
                return self._words["some"].format(self._name(body[0]), self.told(body[1], key))
            case "every":
                name, item = body if isinstance(body, list) else ("", body)
                return self._words["every_of"].format(self._name(name), self.told(item, key)).replace("  ", " ")
            case "isa" | "is" | "below":
                return self._words[key].format(self._name(body[0]), self._terms(body[1]))
            case "relation":
                relation = body[1] if isinstance(body[1], str) else self._term(body[1])
                return self._words[key].format(self._name(body[0]), self._terms(body[2]), _short(relation))
            case "between":
                low, high = body[1]
                return self._words[key].format(self._name(body[0]), self._value(low), self._value(high))
            case "in":
                values = body[1] if isinstance(body[1], list) else [body[1]]
                return self._words[key].format(self._name(body[0]), ", ".join(map(self._value, values)))
            case "exists" | "missing":
                return self._words[key].format(self._name(body))
            case "op":
                return self._words[key].format(body[0], ", ".join(map(self._value, body[1:])))
            case _:
                return self._words[key].format(self._name(body[0]), self._value(body[1]))

    def _name(self, name: Any) -> str:
        if isinstance(name, Mapping):
            return self._value(name)
        if name == "ce.type":
            return self._words["type"]
        return str(name)

    def _terms(self, terms: Any) -> str:
        return self._words["or"].join(map(self._term, terms)) if isinstance(terms, list) else self._term(terms)

    def _term(self, term: Any) -> str:
        return self._label(term["iri"]) if isinstance(term, Mapping) and "iri" in term else str(term)

    def _value(self, value: Any) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, Mapping):
            if "iri" in value:
                return self._label(value["iri"])
            if "value" in value:
                return " ".join(str(each) for each in (value["value"], value.get("unit", "")) if each != "")
            name, part = next(iter(value.items()))
            if isinstance(part, list):  # a sum
                return f" {name} ".join(map(self._value, part))
            return self._label(part) if name == "instance" else str(part) if name in _BARE else f"{name}({part})"
        return str(value)


def _short(iri: str) -> str:
    """Returns the last part of an IRI."""
    return iri.rstrip("/#").rpartition("/")[2].rpartition("#")[2]
