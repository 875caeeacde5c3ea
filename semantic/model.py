"""The data types of expressions, canonical values, events and matches. All are frozen and independent of matching.

An *expression* is what a subscription says, as a tree; `kindcast.semantic.language` reads and prints it as text and as
JSON. Before it is matched, `kindcast.semantic.subscriptions.compilation` replaces each `Term` by the IRI it means.
Every node carries `at`, where it stood in the source, for error messages; positions never count in comparisons.
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
]

SubscriptionSlot = NewType("SubscriptionSlot", int)
"""A subscription, numbered within one matcher; used again after it is removed."""


# ── where something stands ──────────────────────────────────────────────────────────────────────────────────────────


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
    """A name for a concept as the subscriber wrote it (`text`: label, short form, CURIE or IRI; `is_iri` when it stood
    in `<…>`), and, once resolved, the `iri` it means."""

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
    """A date-time literal (RFC 3339), as written; without an offset it is UTC. Or a date or partial date: an interval
    (rule 26)."""

    text: str


@dataclass(frozen=True, slots=True)
class Instance:
    """A thing by its absolute IRI, which no vocabulary knew when the subscription was made (rule 25): the concept where
    a version has it, else the IRI itself."""

    iri: str


ConstantValue = str | bool | int | float | Quantity | Instant | Instance | Term


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant operand. A `Term` stands here when an IRI or CURIE is compared (`kind = brick:Sensor`).

    `true` is not 1: Python's `True == 1` would make `a = 1 or a = true` one predicate.
    """

    value: ConstantValue
    at: Position | None = field(default=None, compare=False)

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
    """`?n`: bound by an operator, used in other operators and value constraints of the same clause. `name` has no
    `?`."""

    name: str
    at: Position | None = field(default=None, compare=False)


AGGREGATES = ("count", "sum", "min", "max")
"""What may stand around an attribute in a comparison: `count(items) > 3` (rule 26)."""


def aggregate_name(function: str, attribute: str) -> str:
    """An aggregate in place of the name of an attribute: as no data may name one (rule 1)."""
    return f"ce.{function}({attribute})"


def aggregate_of(name: str) -> tuple[str, str] | None:
    """The function and the attribute of an aggregate; None for the name of an attribute."""
    if not name.endswith(")") or not name.startswith("ce."):
        return None
    function, _, attribute = name[3:-1].partition("(")
    return (function, attribute) if function in AGGREGATES else None


# ── expressions ─────────────────────────────────────────────────────────────────────────────────────────────────────

Order = Literal["=", "!=", "<", "<=", ">", ">="]
Closed = Literal["[]", "[)", "(]", "()"]


@dataclass(frozen=True, slots=True)
class All:
    """Every item holds; without items it always holds. Text: `a and b`; the empty text is `All(())`."""

    items: tuple["Expression", ...]
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Some item holds. Text: `a or b`."""

    items: tuple["Expression", ...]
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Not:
    """Rule 8: the attribute is present and no value satisfies; pushed inwards over groups."""

    item: "Expression"
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class KindTest:
    """`target isa Computer`, `below`, `is`; several terms mean any of them: `target isa (Laptop, Tablet)`."""

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
    """`price between [0, 400)`: one and the same value inside both ends."""

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
    """`some items (name = "x" and price < 5)`: of one element of an array of objects; names inside are relative to
    it."""

    attribute: str
    item: "Expression"
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class EveryOf:
    """`every items (price < 5)`: of each element of an array of objects; names inside are relative to it (rule 26)."""

    attribute: str
    item: "Expression"
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class EveryValue:
    """`every tags = "a"`: of each value of an attribute (rule 26). `item` asks one attribute what its values are."""

    item: "KindTest | RelationTest | Comparison | Membership | Between | TextTest"
    at: Position | None = field(default=None, compare=False)

    @property
    def attribute(self) -> str:
        """The attribute whose values are asked."""
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
    """What was negated as a whole because it contains a variable (rule 8): it is not split, and `not` of it holds when
    `item` alone has no joined binding. Only the normal form makes it."""

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


@dataclass(frozen=True, slots=True)
class Event:
    """An event as it was published: the JSON `data`, and CloudEvents context attributes without their `ce.` prefix."""

    data: Any
    context: Mapping[str, str | int | bool] = field(default_factory=dict)


# ── events that are graphs ──────────────────────────────────────────────────────────────────────────────────────────


class Resource(msgspec.Struct, frozen=True, gc=False):
    """A node of a graph as a value: its IRI (None: a blank node, a value without text), and the IRIs of the types that
    the event states of it."""

    iri: str | None
    types: tuple[str, ...] = ()


class TypedText(msgspec.Struct, frozen=True, gc=False):
    """A literal of a datatype that JSON does not have (`xsd:date`, a scheme of codes, …): its text, and the IRI of the
    datatype."""

    text: str
    datatype: str


class Node(dict[str, Any]):
    """A node of a graph with what is stated of it (rule 21), as a dict that is read as JSON is.

    Its names are `<IRI>` of a property, `^<IRI>` of one that is stated from the other end, `@id`, `@type`, `@graph`,
    and `<IRI>.@language`. A member is one value or a list of several: scalars of JSON, `Resource`, `TypedText`, further
    nodes, and what a literal of JSON holds. `value` is what the node is worth under the name that leads to it; None for
    a blank node without type.
    """

    __slots__ = ("value",)

    def __init__(self, members: Mapping[str, Any] | None = None, value: Resource | None = None) -> None:
        super().__init__(members or {})
        self.value = value


@dataclass(frozen=True, slots=True)
class Value:
    """One published value with every reading it has (rule 4: readings are added, the published value stays).

    `text` is a published string in NFC and `root_word` its root word by the user's table of synonyms, itself where the
    table has none; `instant` is microseconds since 1970 UTC; `dates` are the first and the last microsecond of a
    date (rule 26); `amount` is the number of a quantity in the base unit of its `dimension` (rounded once);
    `concepts` are all candidates of an ambiguous term. A quantity with a comparator has no `amount` but `amounts`,
    the closed interval in which it lies, one end of it infinite (rule 22). `also` are the root words of what declared
    patterns read a string as (rule 4). `types` are the classes that a graph
    states of it, as `Vocabulary.instance_of` numbers them: `isa`, `below` and relations read them, no other test
    does (rule 21).
    `keys` are (reading, key) of a version or network address, where the attribute is declared to hold such (rule 26).
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
        """Whether it is read as a number, with a unit or without."""
        return self.number is not None or self.amount is not None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The amounts between which a quantity lies, both ends closed: twice the same, or `amounts`."""
        return self.amounts if self.amount is None else (self.amount, self.amount)

    @property
    def texts(self) -> tuple[str, ...]:
        """What tests of text and comparisons of strings look at (rule 9): the published string, and its root word where
        that is another; nothing where it is no string."""
        if self.text is None or self.root_word is None:
            return ()
        own = (self.text,) if self.root_word == self.text else (self.text, self.root_word)
        return own + self.also


@dataclass(frozen=True, slots=True)
class Note:
    """Something worth telling the publisher: an ambiguous term, a unit that fits nothing. `code` is stable."""

    code: str
    attribute: str
    detail: str


@dataclass(frozen=True, slots=True)
class CanonicalEvent:
    """An event as it is matched: attribute → its distinct values, upwards along the attribute hierarchies too, and, for
    arrays of objects, attribute → its elements as events of their own."""

    attributes: Mapping[str, tuple[Value, ...]]
    elements: Mapping[str, tuple["CanonicalEvent", ...]] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    repeated: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """How often each value of an attribute occurs, where some do so more than once."""


class Match(msgspec.Struct, frozen=True, order=True, gc=False):
    """A subscription that an event matches, with the distinct joined bindings of its operators' variables, sorted.

    A struct and no dataclass: an event may match thousands, and one costs a tenth of what a frozen dataclass does.
    """

    subscription: str
    bindings: tuple[tuple[tuple[str, Any], ...], ...] = ()
    bindings_truncated: bool = False
