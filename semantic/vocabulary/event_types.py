"""Event types as frozen records: domains, shapes, attributes. `event_schemas` reads them from JSON Schema.

Le Subscribe, section 2.1, in our words: an element of ET is an `EventType`, its event schema E(e) is `EventType.uses`,
a triple (A, n, u) is a `Use`, and dom(A) is a `Domain`. JSON nests where the paper is flat, so a type keeps its `Shape`
as well: the tree against which the data of an event is checked.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kindcast.semantic.errors import InvalidDeclaration, Problem
from kindcast.semantic.vocabulary.splits import Split

__all__ = ["EVENT_TYPES", "Correctable", "Domain", "EventType", "Shape", "View", "view_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Which single values an attribute may have, dom(A).

    `types` are JSON types (None: any). `members` are those of an enumeration, `order` its chains, each from low to
    high. `concepts` are IRIs, of which a value is one or beneath one. `unit` is that of a bare number, `unit_from` the
    sibling attribute that holds the unit; `derived` is the expression that gives the attribute its value.
    """

    types: frozenset[str] | None = None
    members: tuple[str | int | float | bool, ...] | None = None
    order: tuple[tuple[str, ...], ...] | None = None
    minimum: int | float | None = None
    maximum: int | float | None = None
    above: int | float | None = None
    under: int | float | None = None
    shortest: int | None = None
    longest: int | None = None
    pattern: str | None = None
    date_time: bool = False
    concepts: tuple[str, ...] = ()
    unit: str | None = None
    unit_from: str | None = None
    derived: str | None = None

    @property
    def is_numeric(self) -> bool:
        """Whether numbers are what is meant: nothing else is allowed, or they have a unit."""
        if self.unit is not None or self.unit_from is not None:
            return True
        return self.types is not None and bool(self.types) and self.types <= {"number", "integer"}

    def facets(self) -> dict[str, Any]:
        """What is said of the domain, by name: for messages about what differs."""
        return {name: getattr(self, name) for name in self.__slots__ if getattr(self, name) not in (None, (), False)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The JSON values that are allowed at one place. `types` are the JSON types that it may have (None: any).

    A scalar must be of `domain`. An object has `members`, of which `required` must be there; `closed` allows no others.
    An array holds `items`, `fewest` to `most` of them.
    """

    types: frozenset[str] | None = None
    domain: Domain = field(default_factory=Domain)
    members: Mapping[str, "Shape"] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    closed: bool = False
    items: "Shape | None" = None
    fewest: int = 0
    most: int | None = None
    distinct: bool = False

    def allows(self, type: str) -> bool:
        """Whether JSON of this type may stand here."""
        return self.types is None or type in self.types


EVENT_TYPES = "@type"
"""Where data says its further types: R1's own pair, which belongs to every event and is no attribute of a type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """An attribute as an event type uses it: the triple (A, n, u) and the attribute's domain."""

    attribute: str
    domain: Domain
    mandatory: bool
    multiple: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Correctable:
    """Where an event of a type says what it is about (by default its id), which revision of that it is, and what it
    withdraws: names of attributes, see `kindcast.semantic.events.corrections`."""

    subject: str | None = None
    revision: str | None = None
    retracts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventType:
    """A named event type. Two types are the same when their names and shapes are, what their objects state
    (`quantities`, `codes`: rule 22), where they tell of corrections, and how they come in an envelope (`split`); words
    for people do not count."""

    name: str
    shape: Shape
    stated: frozenset[str] = frozenset()
    correctable: Correctable | None = None
    split: Split | None = None
    title: str | None = field(default=None, compare=False)
    description: str | None = field(default=None, compare=False)

    @property
    def uses(self) -> dict[str, Use]:
        """Every attribute of the type, by its dotted name: E(e). Linear in the shape."""
        return {use.attribute: use for use in uses_of(self.shape)}


def uses_of(shape: Shape, prefix: str = "", *, mandatory: bool = True, multiple: bool = False) -> Iterator[Use]:
    """The attributes beneath an object's shape: mandatory only where every object around it is."""
    for name, member in shape.members.items():
        if name == EVENT_TYPES:
            continue
        needed = mandatory and name in shape.required
        several = multiple or member.allows("array")
        inner = member if member.items is None or member.members else member.items
        if inner.members:
            yield from uses_of(inner, f"{prefix}{name}.", mandatory=needed, multiple=several)
        else:
            domain = (
                member.items.domain
                if member.items is not None and member.domain.types == frozenset()
                else member.domain
            )
            yield Use(attribute=prefix + name, domain=domain, mandatory=needed, multiple=several)


# Views: what the events of one or several types hold together.
#
# Le Subscribe, section 2.1: a view is a pair (E, R) of event types and triples (A, n, u), such that
#
#     1  what is mandatory in some type of E is mandatory in R,
#     2  R has only attributes of the types of E,
#     3  an attribute has one triple; mandatory and multiple go before optional and unique.
#
# The view of an event is the one that leaves nothing out. A publisher who promises less than his types allow may choose
# fewer optional attributes.


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The pair (E, R): `types` by name, sorted; `shape` is that of data under all of them together."""

    types: tuple[str, ...]
    shape: Shape
    stated: frozenset[str] = frozenset()

    @property
    def uses(self) -> Mapping[str, Use]:
        """R, by attribute."""
        return {use.attribute: use for use in uses_of(self.shape)}


def view_of(types: Iterable[EventType], attributes: Iterable[str] | None = None) -> View:
    """The view of `types`, of all their attributes or of those chosen (dotted names).

    Raises `InvalidDeclaration` with a problem for each condition that a choice breaks, naming the attribute.
    """
    found = sorted(types, key=lambda each: each.name)
    shape = found[0].shape if found else Shape()
    for each in found[1:]:
        shape = merged(shape, each.shape)
    stated = frozenset[str]().union(*(each.stated for each in found))
    view = View(types=tuple(each.name for each in found), shape=shape, stated=stated)
    if attributes is None:
        return view
    chosen = frozenset(attributes)
    uses = view.uses
    names = ", ".join(view.types)
    problems = [
        Problem("view-misses-mandatory", f"condition 1: {name} is mandatory in {names}, so their view must have it")
        for name, use in uses.items()
        if use.mandatory and name not in chosen
    ] + [
        Problem("view-has-stranger", f"condition 2: {name} is not an attribute of {names}")
        for name in sorted(chosen - uses.keys())
    ]
    if problems:
        raise InvalidDeclaration(problems)
    return replace(view, shape=_chosen(shape, chosen, ""))


def merged(one: Shape, other: Shape) -> Shape:
    """What may stand where both types have something to say: mandatory and multiple go first (condition 3). The two
    agree about domains already (`EventSchemas` sees to it)."""
    if one == other:
        return one
    members = dict(one.members)
    for name, shape in other.members.items():
        members[name] = merged(members[name], shape) if name in members else shape
    both = one.items is not None and other.items is not None
    return Shape(
        types=None if one.types is None or other.types is None else one.types | other.types,
        domain=other.domain if one.domain.types == frozenset() else one.domain,
        members=members,
        required=one.required | other.required,
        closed=one.closed or other.closed,  # each type keeps what it promises
        items=merged(one.items, other.items) if one.items and other.items else one.items or other.items,
        fewest=min(one.fewest, other.fewest) if both else one.fewest or other.fewest,
        most=_widest(one.most, other.most) if both else one.most or other.most,
        distinct=one.distinct and other.distinct if both else one.distinct or other.distinct,
    )


def _widest(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)


def _chosen(shape: Shape, chosen: frozenset[str], prefix: str) -> Shape:
    """`shape` with the chosen attributes only; objects that hold none of them go."""
    members: dict[str, Shape] = {}
    for name, member in shape.members.items():
        inner = prefix + name
        if member.members:
            kept = _chosen(member, chosen, f"{inner}.")
            if kept.members:
                members[name] = kept
        elif member.items is not None and member.items.members:
            items = _chosen(member.items, chosen, f"{inner}.")
            if items.members:
                members[name] = replace(member, items=items)
        elif inner in chosen:
            members[name] = member
    return replace(shape, members=members, required=shape.required & members.keys(), closed=True)
