"""Values of an attribute, and of an aggregate over one: `count(items)`, `sum(items.price)`, `min(x)`, `max(x)`.

docs/matching-semantics.md, rule 26: aggregates range over occurrences, so that [5, 5] has the sum 10. What has no
number, or not all of one dimension, has no sum: the aggregate is absent, as an attribute is.
"""

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction

from kindcast.semantic.model import CanonicalEvent, Value, aggregate_of

__all__ = ["values_of"]


def values_of(event: CanonicalEvent, name: str) -> tuple[Value, ...]:
    """The values of an attribute or aggregate, none where it is absent."""
    found = aggregate_of(name)
    if found is None:
        return event.attributes.get(name, ())
    function, attribute = found
    values = event.attributes.get(attribute, ())
    counts = event.repeated.get(attribute, ())
    counts += (1,) * (len(values) - len(counts))  # each once, and what was derived
    named = sum(count for value, count in zip(values, counts, strict=True) if isinstance(value.published, Mapping))
    others = max(len(event.elements.get(attribute, ())) - named, 0)  # elements that are no values themselves
    if function == "count":
        total = sum(counts) + others
        return (Value(total, number=float(total)),) if total else ()
    if not values or others:
        return ()
    value = _sum(values, counts) if function == "sum" else _extreme(values, function == "max")
    return () if value is None else (value,)


def _sum(values: tuple[Value, ...], counts: tuple[int, ...]) -> Value | None:
    """Exact, rounded once."""
    dimension = _dimension(values)
    amounts = [each.amount for each in values if each.amount is not None] if dimension is not None else []
    numbers = [each.number for each in values if each.number is not None]
    amount = _added(amounts, counts) if amounts else None
    number = _added(numbers, counts) if len(numbers) == len(values) else None
    if amount is None and (number is None or any(each.amount is not None for each in values)):
        return None
    published = amount if number is None else number
    return Value(published or 0.0, number=number, amount=amount, dimension=dimension)


def _extreme(values: tuple[Value, ...], most: bool) -> Value | None:
    """The least or the greatest."""
    choose = max if most else min
    dimension = _dimension(values)
    amounts = [each.amount for each in values if each.amount is not None] if dimension is not None else []
    numbers = [each.number for each in values if each.number is not None]
    instants = [each.instant for each in values if each.instant is not None]
    amount = choose(amounts) if amounts else None
    number = choose(numbers) if len(numbers) == len(values) else None
    if amount is None and any(each.amount is not None for each in values):
        number = None
    instant = choose(instants) if len(instants) == len(values) else None
    if amount is None and number is None and instant is None:
        return None
    published = next(each for each in (number, amount, instant) if each is not None)
    return Value(published, number=number, instant=instant, amount=amount, dimension=dimension)


def _dimension(values: tuple[Value, ...]) -> str | None:
    """The one dimension of all values; None where some have none, or another."""
    found = {each.dimension if each.amount is not None else None for each in values}
    return found.pop() if len(found) == 1 else None


def _added(numbers: list[float], counts: tuple[int, ...]) -> float | None:
    total = sum(Fraction(Decimal(repr(each))) * count for each, count in zip(numbers, counts, strict=True))
    try:
        return total.numerator / total.denominator + 0.0
    except OverflowError:
        return None
