"""The data types of expressions, canonical values, events and matches. All are frozen and independent of matching.

An *expression* is the tree of a subscription. `kindcast.semantic.language` reads and prints it as text and as JSON.
Before matching, `kindcast.semantic.subscriptions.compilation` replaces each `Term` by its IRI. Each node has `at`, its
position in the source, for error messages. Comparisons of nodes ignore positions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NewType

import msgspec

from kindcast.index.clause import ConceptId

__all__ = [
    "AGGREGATES",
    "All",
    "AnyOf",
    "Arithmetic",
    "AttributeRef",
    "Between",
    "CanonicalEvent",
    "Closed",
    "Comparison",
    "Constant",
    "ConstantValue",
    "Event",
    "EveryOf",
    "EveryValue",
    "Expression",
    "Group",
    "Instance",
    "Instant",
    "KindTest",
    "Match",
    "Membership",
    "Node",
    "Not",
    "Note",
    "OperatorCall",
    "Order",
    "Position",
    "Predicate",
    "Presence",
    "Quantity",
    "RelationTest",
    "Resource",
    "SomeOf",
    "SubscriptionSlot",
    "Term",
    "TextTest",
    "TypedText",
    "Value",
    "ValueConstraint",
    "Variable",
    "aggregate_name",
    "aggregate_of",
    "told_text",
]

SubscriptionSlot = NewType("SubscriptionSlot", int)
"""The number of a subscription within one matcher. It is reused after the subscription is removed."""


# ── positions in the source ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a subscription: `line` and `column` (from 1) in text, or a JSON `pointer` (RFC 6901) in a tree."""

    line: int | None = None
    column: int | None = None
    pointer: str | None = None

    def __str__(self) -> str:
        return self.pointer or "/" if self.line is None else f"line {self.line}, column {self.column}"


# ── operands ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Term:
    """The name of a concept as the subscriber wrote it (`text`: label, short form, CURIE or IRI; `is_iri` if it was in
    `<…>`) and, once resolved, its `iri`."""

    text: str
    is_iri: bool = False
    iri: str | None = None
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with a unit, as written: `400 USD`, `86 degF`."""

    value: int | float
    unit: str


@dataclass(frozen=True, slots=True)
class Instant:
    """A date-time literal (RFC 3339) as written; without an offset it is UTC. Also a date or partial date, which is an
    interval (rule 26)."""

    text: str


@dataclass(frozen=True, slots=True)
class Instance:
    """A thing given by its absolute IRI, which the vocabulary did not know when the subscription was made (rule 25). It
    is the concept in versions that have it, else the IRI itself."""

    iri: str


ConstantValue = str | bool | int | float | Quantity | Instant | Instance | Term


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant operand. It is a `Term` if an IRI or CURIE is compared (`kind = brick:Sensor`).

    `true` is not 1: Python's `True == 1` would make `a = 1 or a = true` one predicate. `is_text`: a text that names no
    concept, although its attribute holds concepts.
    """

    value: ConstantValue
    at: Position | None = field(default=None, compare=False)
    is_text: bool = field(default=False, compare=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant):
            return NotImplemented
        return isinstance(self.value, bool) is isinstance(other.value, bool) and self.value == other.value

    def __hash__(self) -> int:
        return hash((type(self.value) is bool, self.value))


@dataclass(frozen=True, slots=True)
class AttributeRef:
    """An attribute of the event as operand: `price < listPrice`, or `@image` in an operator call."""

    name: str
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Variable:
    """`?n`: bound by an operator, and used in other operators and value constraints of the same clause. `name` is
    without `?`."""

    name: str
    at: Position | None = field(default=None, compare=False)


AGGREGATES = ("count", "sum", "min", "max")
"""The aggregate functions that a comparison may apply to an attribute: `count(items) > 3` (rule 26)."""


def aggregate_name(function: str, attribute: str) -> str:
    """Returns the name of an aggregate, in the form of an attribute name that no data can contain (rule 1)."""
    return f"ce.{function}({attribute})"


def aggregate_of(name: str) -> tuple[str, str] | None:
    """Returns the function and the attribute of an aggregate; None if `name` is the name of an attribute."""
    if not name.endswith(")") or not name.startswith("ce."):
        return None
    function, _, attribute = name[3:-1].partition("(")
    return (function, attribute) if function in AGGREGATES else None


# ── expressions ─────────────────────────────────────────────────────────────────────────────────────────────────────

Order = Literal["=", "!=", "<", "<=", ">", ">="]
Closed = Literal["[]", "[)", "(]", "()"]


@dataclass(frozen=True, slots=True)
class All:
    """All items hold. Without items it is always true. Text: `a and b`; the empty text is `All(())`."""

    items: tuple["Expression", ...]
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one item holds. Text: `a or b`."""

    items: tuple["Expression", ...]
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Not:
    """Negation (rule 8): the attribute is present and no value satisfies the predicate. Groups are negated item by
    item."""

    item: "Expression"
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class KindTest:
    """`target isa Computer`, `below`, `is`. Several terms are alternatives: `target isa (Laptop, Tablet)`."""

    attribute: str
    test: Literal["isa", "below", "is"]
    terms: tuple[Term, ...]
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class RelationTest:
    """`target part_of Heart`: a path over is-a and the named relation, with at least one step of the relation."""

    attribute: str
    relation: str
    terms: tuple[Term, ...]
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Comparison:
    """`price <= 400`, `price < listPrice`."""

    attribute: str
    order: Order
    operand: Constant | AttributeRef
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Membership:
    """`colour in ("red", "green", 3)`."""

    attribute: str
    constants: tuple[Constant, ...]
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Between:
    """`price between [0, 400)`: a single value is within both bounds."""

    attribute: str
    low: Constant
    high: Constant
    closed: Closed = "[]"
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Presence:
    """`price exists` (`present`), `price missing`."""

    attribute: str
    present: bool
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class TextTest:
    """`name startswith "HP" nocase`; `matches` takes an RE2 pattern, found anywhere in the text."""

    attribute: str
    test: Literal["startswith", "endswith", "contains", "matches"]
    text: str
    nocase: bool = False
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SomeOf:
    """`some items (name = "x" and price < 5)`: the condition holds for one element of an array of objects. Names inside
    are relative to the element."""

    attribute: str
    item: "Expression"
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class EveryOf:
    """`every items (price < 5)`: the condition holds for each element of an array of objects. Names inside are relative
    to the element (rule 26)."""

    attribute: str
    item: "Expression"
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class EveryValue:
    """`every tags = "a"`: `item`, a predicate on one attribute, holds for each value of the attribute (rule 26)."""

    item: "KindTest | RelationTest | Comparison | Membership | Between | TextTest"
    at: Position | None = field(default=None, compare=False)

    @property
    def attribute(self) -> str:
        """The attribute whose values are tested."""
        return self.item.attribute


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """`pedestrianCount(@image, ?n)`: an expensive predicate."""

    name: str
    arguments: tuple[Constant | AttributeRef | Variable, ...]
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`?a - ?b * 2` inside a value constraint."""

    operator: Literal["+", "-", "*", "/"]
    left: "Arithmetic | Variable | Constant"
    right: "Arithmetic | Variable | Constant"


@dataclass(frozen=True, slots=True)
class ValueConstraint:
    """`?n > 250`: a comparison over variables."""

    left: Arithmetic | Variable | Constant
    order: Order
    right: Arithmetic | Variable | Constant
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Group:
    """A negated expression that contains a variable (rule 8). It is not split: its negation holds if `item` alone has
    no joined binding. Only the normal form creates it."""

    item: "Expression"
    at: Position | None = field(default=None, compare=False)


Predicate = (
    KindTest
    | RelationTest
    | Comparison
    | Membership
    | Between
    | Presence
    | TextTest
    | SomeOf
    | EveryOf
    | EveryValue
    | OperatorCall
    | ValueConstraint
    | Group
)
Expression = All | AnyOf | Not | Predicate


# ── events ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Event(msgspec.Struct, frozen=True):
    """An event as published: the JSON `data`, and the CloudEvents context attributes without the prefix `ce.`."""

    data: Any
    context: Mapping[str, str | int | bool] = msgspec.field(default_factory=dict)


# ── events that are graphs ──────────────────────────────────────────────────────────────────────────────────────────


class Resource(msgspec.Struct, frozen=True, gc=False):
    """A node of a graph as a value: its IRI (None for a blank node, a value without text), and the IRIs of the types
    that the event states for it."""

    iri: str | None
    types: tuple[str, ...] = ()


class TypedText(msgspec.Struct, frozen=True, gc=False):
    """A literal with a datatype that JSON does not have (`xsd:date`, a scheme of codes, …): its text, and the IRI of
    the datatype."""

    text: str
    datatype: str


def told_text(value: object) -> str | None:
    """Returns the text of a published value: a text, a literal, or the IRI of a node. None for other values."""
    if isinstance(value, str):
        return value
    if isinstance(value, Node):
        value = value.value
    if isinstance(value, TypedText):
        return value.text
    return value.iri if isinstance(value, Resource) else None


class Node(dict[str, Any]):
    """A node of a graph with its statements (rule 21), as a dict that is read like JSON.

    Its names are `<IRI>` of a property, `^<IRI>` of a property stated in the inverse direction, `@id`, `@type`,
    `@graph`, and `<IRI>.@language`. A member is one value or a list of values: JSON scalars, `Resource`, `TypedText`,
    further nodes, and the content of JSON literals. `value` is the value of the node under the name that leads to it;
    None for a blank node without type.
    """

    __slots__ = ("value",)

    def __init__(self, members: Mapping[str, Any] | None = None, value: Resource | None = None) -> None:
        super().__init__(members or {})
        self.value = value


@dataclass(frozen=True, slots=True)
class Value:
    """A published value with all its readings (rule 4: readings are added, the published value remains).

    `text` is a published string in NFC. `root_word` is its root word in the user's table of synonyms, else the string
    itself. `instant` is in microseconds since 1970 UTC. `dates` are the first and the last microsecond of a date (rule
    26). `amount` is the number of a quantity in the base unit of its `dimension` (rounded once). `concepts` are all
    candidates of an ambiguous term. A quantity with a comparator has no `amount` but `amounts`, the closed interval
    that contains it, with one infinite end (rule 22). `also` are the root words of the further readings that declared
    patterns give a string (rule 4). `types` are the classes that a graph states for it, as nodes of
    `Vocabulary.instance_of`: only `isa`, `below` and relations read them (rule 21).
    `keys` are (reading, key) of a version or network address, if the attribute is declared to hold such values (rule
    26).
    """

    published: str | int | float | bool | Mapping[str, Any]
    text: str | None = None
    root_word: str | None = None
    number: float | None = None
    boolean: bool | None = None
    instant: int | None = None
    dates: tuple[int, int] | None = None
    amount: float | None = None
    dimension: str | None = None
    concepts: tuple[ConceptId, ...] = ()
    amounts: tuple[float, float] | None = None
    also: tuple[str, ...] = ()
    types: tuple[ConceptId, ...] = ()
    keys: tuple[tuple[str, str | float], ...] = ()

    @property
    def is_numeric(self) -> bool:
        """Whether the value is read as a number, with or without a unit."""
        return self.number is not None or self.amount is not None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The closed interval of a quantity's amounts: (`amount`, `amount`), or `amounts`."""
        return self.amounts if self.amount is None else (self.amount, self.amount)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that tests of text and comparisons of strings read (rule 9): the published string, and its root
        word if that differs. Empty if the value is no string."""
        if self.text is None or self.root_word is None:
            return ()
        own = (self.text,) if self.root_word == self.text else (self.text, self.root_word)
        return own + self.also


@dataclass(frozen=True, slots=True)
class Note:
    """A hint for the publisher, such as an ambiguous term or a unit that does not fit. `code` is stable."""

    code: str
    attribute: str
    detail: str


@dataclass(frozen=True, slots=True)
class CanonicalEvent:
    """An event in the form that is matched: attribute → its distinct values, also for the attributes above it in the
    hierarchy, and for arrays of objects attribute → its elements as separate events."""

    attributes: Mapping[str, tuple[Value, ...]]
    elements: Mapping[str, tuple["CanonicalEvent", ...]] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    repeated: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """How often each value of an attribute occurs; only for attributes with a repeated value."""


class Match(msgspec.Struct, frozen=True, order=True, gc=False):
    """A subscription that an event matches, with the distinct joined bindings of its operators' variables, sorted.

    It is a struct because an event may match thousands: a struct costs a tenth of a frozen dataclass.
    """

    subscription: str
    bindings: tuple[tuple[tuple[str, Any], ...], ...] = ()
    bindings_truncated: bool = False
