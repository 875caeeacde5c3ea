"""Which pairs of values decide a comparison of two attributes (rule 9). One pair is enough, and an event may have
millions of pairs: they would take minutes, and nothing else happens while an event is matched.

An order is decided by the least and the greatest of the values that are compared in the same way. For equality each
value is compared with the values that have something in common with it, and with those that span several values.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence

from kindcast.semantic.model import Value

__all__ = ["Pairs", "equal_pairs", "extremes"]

Pairs = list[tuple[Value, Sequence[Sequence[Value]]]]
"""Values of one attribute, each with groups of values of the other. Groups are shared, because there may be millions of
pairs."""

Span = tuple[float, float]


def extremes(
    values: Sequence[Value], dates: Callable[[Value], Span | None], is_numeric: Callable[[Value], bool]
) -> list[Value]:
    """Returns the values that decide every order: if one of `values` is less (or greater, …) than some other value,
    one of these is. `dates` returns the ends of a date or date-time, if the value is compared as such, and `is_numeric`
    whether it is compared as a number or quantity."""
    alike: dict[Hashable, list[Value]] = {}
    for value in values:
        way = (is_numeric(value), value.dimension, value.amounts is None, dates(value) is None, value.number is None)
        alike.setdefault(way, []).append(value)
    found: dict[int, Value] = {}
    for group in alike.values():
        for key in (_number, _low, _high, _least_text, _greatest_text, _end_of(dates, 0), _end_of(dates, 1)):
            keyed = [(at, value) for value in group if (at := key(value)) is not None]
            if keyed:
                for decides in (min(keyed, key=_first)[1], max(keyed, key=_first)[1]):
                    found[id(decides)] = decides
    return list(found.values())


def equal_pairs(
    lefts: Sequence[Value],
    rights: Sequence[Value],
    left_dates: Callable[[Value], Span | None],
    right_dates: Callable[[Value], Span | None],
) -> Pairs:
    """Returns each of `lefts` with those of `rights` that may equal it."""
    having: dict[Hashable, list[Value]] = {}
    wide = []
    for right in rights:
        spans = (right.interval, right_dates(right))
        if any(span is not None and span[0] < span[1] for span in spans):
            wide.append(right)
        for key in _shared(right, right_dates):
            having.setdefault(key, []).append(right)
    return [(left, [wide, *(having[key] for key in _shared(left, left_dates) if key in having)]) for left in lefts]


def _shared(value: Value, dates: Callable[[Value], Span | None]) -> Iterator[Hashable]:
    """Yields what equal values have in common, unless one of them spans several values."""
    yield from (("concept", concept) for concept in value.concepts)
    if value.interval is not None:
        yield "amounts", value.dimension, value.interval
    if value.number is not None:
        yield "number", value.number
    if value.boolean is not None:
        yield "boolean", value.boolean
    if (span := dates(value)) is not None:
        yield "dates", span
    if value.root_word is not None:
        yield from (("word", word) for word in {value.root_word, *value.also})


def _first(keyed: tuple[float | str, Value]) -> float | str:
    return keyed[0]


def _number(value: Value) -> float | None:
    return value.number


def _low(value: Value) -> float | None:
    return None if value.interval is None else value.interval[0]


def _high(value: Value) -> float | None:
    return None if value.interval is None else value.interval[1]


def _least_text(value: Value) -> str | None:
    return min(value.texts, default=None)


def _greatest_text(value: Value) -> str | None:
    return max(value.texts, default=None)


def _end_of(dates: Callable[[Value], Span | None], end: int) -> Callable[[Value], float | None]:
    def of(value: Value) -> float | None:
        span = dates(value)
        return None if span is None else span[end]

    return of
