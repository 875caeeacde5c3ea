"""What an operator's function takes, read from its annotations, and why a call does not fit it.

    def near(event, place: str, within: Quantity, image: tuple): ...       near("Vienna", 5 km, @image, ?d)

`str`, `bool`, `int`, `float`, `Quantity` and `Instant`, and unions of them, are kinds of constants; an annotation that
is `tuple` asks for the values of an attribute. A parameter without annotation, or with any other, takes everything.
"""

import inspect
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

from semantic.model import AttributeRef, Constant, Instant, Quantity, Term, Variable

__all__ = ["KINDS", "constant_given", "kind_of_type", "kinds_given", "misfit", "signature_of"]

KINDS: dict[type, str] = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "text",
    Quantity: "quantity",
    Instant: "instant",
    tuple: "attribute",
}
"""Annotation → kind, in words for people."""


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature with its annotations as types where they can be found, as written otherwise."""
    try:
        return inspect.signature(function, eval_str=True)
    except (NameError, AttributeError, SyntaxError, TypeError):
        return inspect.signature(function)


def kind_of_type(annotation: object) -> str | None:
    """The kind that a plain type stands for; None for any other."""
    return KINDS.get(annotation) if isinstance(annotation, type) else None


def kinds_given(signature: inspect.Signature) -> dict[str, frozenset[str] | None]:
    """The kinds that each parameter after the event takes; None where it takes all."""
    return {each.name: _kinds(each.annotation) for each in list(signature.parameters.values())[1:]}


def constant_given(constant: Constant) -> object:
    """A constant as a function gets it: a term as its IRI."""
    value = constant.value
    return (value.iri or value.text) if isinstance(value, Term) else value


def misfit(signature: inspect.Signature, arguments: Sequence[Constant | AttributeRef | Variable]) -> str | None:
    """Why a call with these arguments does not fit, variables left out; None where it does.

    >>> def near(event, place: str, image: tuple): ...
    >>> misfit(signature_of(near), [Constant("Vienna"), Constant(5)])
    'image is for the values of an attribute (@name), not for a number'
    """
    given = [each for each in arguments if not isinstance(each, Variable)]
    try:
        bound = signature.bind(None, *given)
    except TypeError:
        shape = ", ".join(list(signature.parameters)[1:])
        return f"it takes ({shape}) besides its variables; {len(given)} arguments are given"
    kinds = kinds_given(signature)
    for name, value in bound.arguments.items():
        taken = kinds.get(name)
        for each in value if isinstance(value, tuple) else (value,):
            if taken is not None and each is not None and (kind := _kind_of(each)) not in taken:
                return f"{name} is for {_words(taken)}, not for {_words({kind})}"
    return None


def _kinds(annotation: object) -> frozenset[str] | None:
    if annotation is inspect.Parameter.empty:
        return None
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        parts = [_kinds(each) for each in typing.get_args(annotation) if each is not type(None)]
        return None if None in parts else frozenset().union(*(part for part in parts if part is not None))
    kind = kind_of_type(tuple if origin is tuple else annotation)
    return None if kind is None else frozenset({kind})


def _kind_of(argument: Constant | AttributeRef) -> str:
    if isinstance(argument, AttributeRef):
        return "attribute"
    value = argument.value
    return "text" if isinstance(value, Term) else KINDS[type(value)]


_IN_WORDS = {
    "attribute": "the values of an attribute (@name)",
    "boolean": "true or false",
    "instant": "a date-time",
    "number": "a number",
    "quantity": "a number with a unit",
    "text": "text",
}


def _words(kinds: typing.AbstractSet[str]) -> str:
    return " or ".join(_IN_WORDS[kind] for kind in sorted(kinds))
