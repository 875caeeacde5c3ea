"""An event type as records: domains, shapes, attributes. All frozen; `documents` makes them of JSON Schema.

Le Subscribe, section 2.1, in our words: an element of ET is an `EventType`, its event schema E(e) is `EventType.uses`,
a triple (A, n, u) is a `Use`, and dom(A) is a `Domain`. JSON nests where the paper is flat, so a type keeps its `Shape`
as well: the tree against which the data of an event is checked.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ANY", "EVENT_TYPES", "Domain", "EventType", "Shape", "Use", "uses_of"]


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
    """What JSON may stand in one place. `types` are the JSON types that it may have (None: any).

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


ANY = Shape()
"""Nothing is said of what stands here."""
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
class EventType:
    """A named event type. Two types are the same when their names and shapes are; words for people do not count."""

    name: str
    shape: Shape
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
