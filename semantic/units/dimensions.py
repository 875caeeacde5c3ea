"""Dimensions multiplied and divided by name: `length/time` times `time` is `length`.

`scales` names a dimension after the powers in it; here the name is taken apart again. For derived attributes.
"""

from semantic.units.scales import dimension_of

__all__ = ["powers_of", "product_of"]

NONE = "dimensionless"
Powers = dict[str, int]
"""Base dimension → exponent, none zero."""


def powers_of(dimension: str) -> Powers:
    """The powers in a dimension that `scales` named.

    >>> powers_of("mass/length^3")
    {'mass': 1, 'length': -3}
    """
    above, *below = dimension.split("/")
    powers: Powers = {}
    for sign, names in ((1, above.split("*")), (-1, below)):
        for each in names:
            name, _, exponent = each.partition("^")
            if name not in (NONE, "1"):
                powers[name] = sign * int(exponent or 1)
    return powers


def product_of(one: str, other: str, sign: int) -> str:
    """The dimension of a product (`sign` 1) or a quotient (-1).

    >>> product_of("length/time", "time", 1), product_of("mass", "mass", -1)
    ('length', 'dimensionless')
    """
    powers = powers_of(one)
    for name, exponent in powers_of(other).items():
        powers[name] = powers.get(name, 0) + sign * exponent
    return dimension_of({name: powers[name] for name in sorted(powers) if powers[name]})
