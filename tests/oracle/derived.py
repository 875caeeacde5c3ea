"""Derived attributes as the oracle works them out: Python's own parser of expressions, and fractions.

An expression is read by `ast` after `5 kg` became `(5, "kg")`; it is walked, never run. A worth is a date-time or a
pair of fraction and powers of dimensions.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any

from tests.oracle.reading import Dimension, Reading, measure
from tests.oracle.world import World

__all__ = ["with_derived"]

Worth = datetime | tuple[Fraction, Counter[str]]
"""A date-time, or a number with the powers of its dimensions."""


Aggregate = Callable[[str, str, dict[str, list[Reading]]], list[Reading]]
"""The value of an aggregate: of a function, a name, and the attributes as far as they are known."""


def with_derived(attributes: dict[str, list[Reading]], world: World, aggregate: Aggregate) -> dict[str, list[Reading]]:
    """`attributes` of a whole event, and those that are derived from them. What was published is never replaced."""
    published = set(attributes)
    types = {text for reading in attributes.get("ce.type", []) for text in (reading.text, reading.root)}
    found = dict(attributes)
    wanted = {
        name: each
        for name, each in world.declarations.items()
        if each.derived and name not in published and (not each.of_types or types & set(each.of_types))
    }
    done: set[str] = set()
    while ready := [
        name for name in sorted(set(wanted) - done) if not _inputs(wanted[name].derived, world) & (wanted.keys() - done)
    ]:
        for name in ready:
            done.add(name)
            text = _without_aggregates(wanted[name].derived or "")
            aggregates = {
                key: aggregate(*pair, found) for key, pair in _aggregates(wanted[name].derived, world).items()
            }
            readings = _derived(text, wanted[name].unit, {**found, **aggregates}, world)
            for upper in world.broader(name) if readings else ():
                found[upper] = [*found.get(upper, []), *readings]
    return found


AGGREGATE = r"\b(count|sum|min|max)\(([a-z.]+)\)"


def _aggregates(text: str | None, world: World) -> dict[str, tuple[str, str]]:
    """By the name that stands for it in `_without_aggregates`, each aggregate's function and attribute."""
    found = re.findall(AGGREGATE, text or "")
    return {
        f"aggregate_{function}_{name.replace('.', '_')}": (function, world.attribute(name)) for function, name in found
    }


def _without_aggregates(text: str) -> str:
    return re.sub(AGGREGATE, lambda found: f"aggregate_{found[1]}_{found[2].replace('.', '_')}", text)


def _tree(text: str) -> ast.expr:
    return ast.parse(re.sub(r"([0-9.]+) ([A-Za-z]+)", r'(\1, "\2")', text), mode="eval").body


def _inputs(text: str | None, world: World) -> set[str]:
    tree = _tree(_without_aggregates(text or "0"))
    names = (ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute))
    aggregated = {name for _, name in _aggregates(text, world).values()}
    return {world.attribute(name) for name in names} - {"now", "year"} | aggregated


def _derived(text: str, unit: str | None, attributes: Mapping[str, list[Reading]], world: World) -> list[Reading]:
    names = sorted(_inputs(text, world))  # aggregates have names of their own here
    readings = []
    for values in product(*(attributes.get(name, []) for name in names)):
        try:
            worth = _worth(_tree(text), dict(zip(names, values, strict=True)), attributes, world)
            readings.append(_reading(worth, unit))
        except (ArithmeticError, TypeError, ValueError):
            continue  # undefined for these values
    return readings


def _worth(node: Any, given: Mapping[str, Reading], attributes: Mapping[str, list[Reading]], world: World) -> Worth:
    def inner(each: ast.expr) -> Worth:
        return _worth(each, given, attributes, world)

    match node:
        case ast.Constant(int() | float() as number):
            return Fraction(repr(number)), Counter()
        case ast.Tuple([ast.Constant(number), ast.Constant(str(unit))]):
            return _amount(measure(number, unit))
        case ast.UnaryOp(ast.USub(), operand):
            number, powers = _pair(inner(operand))
            return -number, powers
        case ast.Name("now"):
            return next(reading.instant for reading in attributes["ce.time"] if reading.instant)
        case ast.Call(ast.Name("year"), [moment]):
            when = inner(moment)
            return (Fraction(when.year), Counter()) if isinstance(when, datetime) else _refuse()
        case ast.Name() | ast.Attribute():
            return _of_reading(given[world.attribute(ast.unparse(node))])
        case ast.BinOp(left, operator, right):
            return _calculated(type(operator), inner(left), inner(right))
        case _:
            raise NotImplementedError(ast.dump(node))


def _of_reading(reading: Reading) -> Worth:
    if reading.instant is not None:
        return reading.instant
    if reading.amount is not None:
        return _amount(reading.amount)
    if reading.number is None:
        raise ValueError(reading)
    return Fraction(Decimal(repr(reading.number))), Counter()


def _amount(amount: tuple[Dimension, float] | None) -> Worth:
    if amount is None:
        raise ValueError(amount)
    dimension, number = amount
    return Fraction(Decimal(repr(number))), Counter({dimension: 1} if isinstance(dimension, str) else dict(dimension))


def _calculated(operator: type[ast.operator], left: Worth, right: Worth) -> Worth:
    if isinstance(left, datetime) and isinstance(right, datetime) and operator is ast.Sub:
        elapsed = left - right
        return Fraction(elapsed // timedelta(microseconds=1), 1_000_000), Counter({"time": 1})
    if isinstance(right, datetime) and operator is ast.Add:
        left, right = right, left
    if isinstance(left, datetime):
        seconds, powers = _pair(right)
        if powers != Counter({"time": 1}) or operator not in (ast.Add, ast.Sub):
            raise ValueError(powers)
        step = timedelta(microseconds=round(seconds * 1_000_000))
        return left + step if operator is ast.Add else left - step
    (one, powers), (other, others) = left, _pair(right)
    if operator in (ast.Add, ast.Sub):
        if powers != others:
            raise ValueError((powers, others))
        return (one + other if operator is ast.Add else one - other), powers
    if operator is ast.Mult:
        return one * other, Counter({name: powers[name] + others[name] for name in {*powers, *others}})
    return one / other, Counter({name: powers[name] - others[name] for name in {*powers, *others}})


def _pair(worth: Worth) -> tuple[Fraction, Counter[str]]:
    return worth if isinstance(worth, tuple) else _refuse()


def _refuse() -> Any:
    raise TypeError("a date-time is not a number")


def _reading(worth: Worth, unit: str | None) -> Reading:
    if isinstance(worth, datetime):
        return Reading(instant=worth)
    number, powers = float(worth[0]), {name: power for name, power in worth[1].items() if power}
    if not powers:
        return Reading(number=number, amount=measure(number, unit) if unit else None)
    dimension: Dimension = next(iter(powers)) if list(powers.values()) == [1] else tuple(sorted(powers.items()))
    return Reading(amount=(dimension, number))
