"""Views: what the events of one or several types hold together.

Le Subscribe, section 2.1: a view is a pair (E, R) of event types and triples (A, n, u), such that

    1  what is mandatory in some type of E is mandatory in R,
    2  R has only attributes of the types of E,
    3  an attribute has one triple; mandatory and multiple go before optional and unique.

The view of an event is the one that leaves nothing out. A publisher who promises less than his types allow may choose
fewer optional attributes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from semantic.errors import InvalidDeclaration, Problem
from semantic.schemas.records import EventType, Shape, Use, uses_of

__all__ = ["View", "view_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The pair (E, R): `types` by name, sorted; `shape` is that of data under all of them together."""

    types: tuple[str, ...]
    shape: Shape

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
    view = View(types=tuple(each.name for each in found), shape=shape)
    if attributes is None:
        return view
    chosen = frozenset(attributes)
    uses = view.uses
    names = ", ".join(view.types)
    problems = [
        Problem("view-misses-mandatory", f"condition 1: {name} is mandatory in {names}, so a view of them has it")
        for name, use in uses.items()
        if use.mandatory and name not in chosen
    ] + [
        Problem("view-has-stranger", f"condition 2: {name} is an attribute of none of {names}")
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
