"""What a stored subscription depends on: the concepts, attributes, units and words that stand in its tree.

Only stored trees are read (`Compiled.tree`): their terms are IRIs and their attributes canonical names already. It is a
plain walk over JSON, a few microseconds a predicate, so that a hundred thousand of them can be looked through while a
server works.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

__all__ = ["AttributePart", "PairPart", "Part", "TermPart", "TextPart", "UnitPart", "WordPart", "footprint"]


class TermPart(NamedTuple):
    """A concept by its IRI, and how it is asked for; `relation` is empty for the three tests of kinds."""

    test: Literal["isa", "below", "is", "relation"]
    iri: str
    relation: str = ""


class AttributePart(NamedTuple):
    """An attribute by its name."""

    attribute: str


class UnitPart(NamedTuple):
    """A unit as it is written."""

    unit: str


class WordPart(NamedTuple):
    """A string that a published one must equal."""

    word: str


class TextPart(NamedTuple):
    """A predicate that looks into texts or compares them by order: its tree, as JSON. Inside `some`, `array` is the
    whole name of the array."""

    predicate: str
    array: str = ""


class PairPart(NamedTuple):
    """A comparison of two attributes: its tree, as JSON; `array` as above."""

    predicate: str
    array: str = ""


Part = TermPart | AttributePart | UnitPart | WordPart | TextPart | PairPart


def footprint(tree: Any) -> tuple[Part, ...]:
    """The distinct parts of a stored tree, in the order in which they stand there. Linear; never recurses.

    >>> footprint({"all": [{"isa": ["target", {"iri": "http://e/Computer"}]}, {"<=": ["price", 400]}]})[:2]
    (AttributePart(attribute='target'), TermPart(test='isa', iri='http://e/Computer', relation=''))
    """
    return tuple(dict.fromkeys(_parts(tree)))


def _parts(tree: Any) -> Iterator[Part]:
    waiting = [("", tree)]
    while waiting:
        array, node = waiting.pop()
        if not isinstance(node, Mapping):
            continue
        for key, operands in node.items():
            match key, operands:
                case (("all" | "any"), [*items]):
                    waiting.extend((array, item) for item in reversed(items))
                case "not", item:
                    waiting.append((array, item))
                case "some", [str(attribute), item]:
                    waiting.append((f"{array}.{attribute}" if array else attribute, item))
            for part in _parts_of(key, operands):
                yield part if not isinstance(part, TextPart | PairPart) else part._replace(array=array)
                if array and isinstance(part, AttributePart):
                    # Inside elements of an array, a declaration of the whole dotted name goes first.
                    yield AttributePart(f"{array}.{part.attribute}")


def _parts_of(key: str, operands: Any) -> Iterator[Part]:
    """Those of one predicate."""
    match key, operands:
        case (("all" | "any" | "not"), _):
            pass
        case "some", [str(attribute), _]:
            yield AttributePart(attribute)
        case (("isa" | "below" | "is"), [attribute, terms]):
            yield from _attribute(attribute)
            yield from (TermPart(key, iri) for iri in _iris(terms))
        case "relation", [attribute, str(relation), terms]:
            yield from _attribute(attribute)
            yield from (TermPart("relation", iri, relation) for iri in _iris(terms))
        case (("exists" | "missing"), attribute):
            yield from _attribute(attribute)
        case (("startswith" | "endswith" | "contains" | "matches"), [attribute, *_]):
            yield from _attribute(attribute)
            yield TextPart(json.dumps({key: operands}))
        case "op", [_, *arguments]:
            for each in arguments:
                if isinstance(each, Mapping):
                    yield from _operand(each, equal=False)
        case _, [attribute, operand, *_]:  # the comparisons, `in` and `between`
            yield from _attribute(attribute)
            several = operand if isinstance(operand, list) else [operand]
            for each in several:
                yield from _operand(each, equal=key in ("=", "!=", "in"))
            if (
                isinstance(operand, Mapping)
                and isinstance(operand.get("attribute"), str)
                and isinstance(attribute, str)
            ):
                yield PairPart(json.dumps({key: operands}))
            elif key not in ("=", "!=", "in") and any(isinstance(each, str) for each in several):
                yield TextPart(json.dumps({key: operands}))


def _attribute(name: Any) -> Iterator[Part]:
    if isinstance(name, Mapping):
        name = name.get("attribute")
    if isinstance(name, str) and not name.startswith("?"):
        yield AttributePart(name)


def _operand(operand: Any, *, equal: bool) -> Iterator[Part]:
    if isinstance(operand, str):
        if equal:
            yield WordPart(operand)
    elif isinstance(operand, Mapping):
        if isinstance(operand.get("iri"), str):
            yield TermPart("is", operand["iri"])
        elif isinstance(operand.get("unit"), str):
            yield UnitPart(operand["unit"])
        elif isinstance(operand.get("attribute"), str):
            yield AttributePart(operand["attribute"])
        elif equal and isinstance(operand.get("value"), str):
            yield WordPart(operand["value"])


def _iris(terms: Any) -> Iterator[str]:
    for term in terms if isinstance(terms, list) else [terms]:
        if isinstance(term, Mapping) and isinstance(term.get("iri"), str):
            yield term["iri"]
