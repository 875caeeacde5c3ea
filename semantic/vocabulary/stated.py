"""What an object states as a whole: a quantity, or a code (docs/matching-semantics.md, rule 22).

    {"value": 185, "unit": "mmHg", "system": "http://unitsofmeasure.org", "code": "mm[Hg]"}     185 mm[Hg]
    {"numericalValue": 20, "unit": {"@id": "…/MeasurementUnitCode#KGM"}, "@type": "Value"}       20 KGM
    {"coding": [{"system": "http://snomed.info/sct", "code": "271649006"}], "text": "…"}         a code of SNOMED CT

Its members stay attributes. Which members hold the number and the unit, or the code and its system, is known for the
shapes of common standards, and declared for others. Knows no vocabulary: `code_systems` knows what a code means.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.flatten import Comparator, QuantityObject, Stated, StatedCode
from kindcast.semantic.model import Node, Resource, TypedText
from kindcast.semantic.ontology.iris import local_name

__all__ = [
    "FHIR",
    "STATED",
    "CodeMembers",
    "QuantityMembers",
    "code_members",
    "may_be_compared",
    "may_state",
    "plain_members",
    "quantity_members",
    "stated_value",
]

FHIR: Final = "application/fhir+json"
"""The content type whose objects state quantities and codes without any declaration."""
STATED: Final = ("quantities", "codes")
"""What the objects of an event type may be declared to state."""

NUMBERS: Final = ("value", "numericValue", "numericalValue", "hasNumericalValue")
"""schema.org and FHIR, QUDT (and SOSA results), ONE Record, OM."""
UNITS: Final = ("unitCode", "unit", "hasUnit", "currency", "currencyUnit", "unitText")
CODES: Final = ("code", "notation", "termCode", "codeValue")
"""FHIR, SKOS, schema.org's DefinedTerm and CategoryCode."""
SYSTEMS: Final = ("system", "inScheme", "inDefinedTermSet", "inCodeSet")

_LEADING: Final = frozenset({*NUMBERS, *CODES, "coding"})
UNIT_SYSTEMS: Final = frozenset(
    {"http://unitsofmeasure.org", "urn:oid:2.16.840.1.113883.6.8", "urn:iso:std:iso:4217", "urn:oid:1.0.4217"}
)
"""UCUM and ISO 4217: the systems of codes that are units."""
COMPARATORS: Final[frozenset[Comparator]] = frozenset(("<", "<=", ">", ">="))
NUMBER: Final = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?")
COMPARED: Final = re.compile(r"[a-z0-9](?:Quantity|Age|Count|Distance|Duration)$")
"""How FHIR's names of attributes end whose quantities may have a comparator: `valueQuantity`, `onsetAge`."""
MOST_CODINGS = 64
"""Codings of one CodeableConcept that are read."""


@dataclass(frozen=True, slots=True)
class QuantityMembers:
    """The members that hold the number and the unit of a quantity; None: those of the shapes that are known."""

    number: str | None = None
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class CodeMembers:
    """The members that hold a code and its system; None: those of the shapes that are known. `within` is the code
    system of what does not name one: plain texts under the attribute are codes of it, too."""

    code: str | None = None
    system: str | None = None
    within: str | None = None


def plain_members(node: Node) -> tuple[dict[str, Any], dict[str, str]]:
    """The members of a node of a graph as those of a JSON object, by local name and by IRI, and the name that each has
    in the node. Of several values the first one counts, but for codings. Costs a look at each member, and at those of
    nodes right below."""
    members: dict[str, Any] = {}
    names: dict[str, str] = {}
    for name, values in node.items():
        if name.startswith("<") and name.endswith(">"):
            iri = name[1:-1]
            listed = values if isinstance(values, list) else [values]
            if not listed:
                continue
            local = local_name(iri) or iri
            inner = [_plain_member(each) for each in listed[:MOST_CODINGS]]
            for each in dict.fromkeys((local, iri)):
                members[each] = inner if local == "coding" else inner[0]
                names[each] = name
    return members, names


def may_state(names: Iterable[str]) -> bool:
    """Whether a node of a graph with members of these names may state a quantity or a code."""
    return any(local_name(name[1:-1]) in _LEADING for name in names if name.startswith("<"))


def _plain_member(value: Any, *, deep: bool = True) -> Any:
    """A value as JSON has it: the IRI of a node, and its members, where it is not inside another."""
    match value:
        case Resource(iri=iri):
            return {"@id": iri}
        case TypedText(text=text):
            return text
        case Node(value=resource):
            found: dict[str, Any] = {} if resource is None or resource.iri is None else {"@id": resource.iri}
            for name, each in value.items() if deep else ():
                if name.startswith("<") and name.endswith(">"):
                    first = each[0] if isinstance(each, list) and each else each
                    found[local_name(name[1:-1]) or name] = _plain_member(first, deep=False)
            return found
        case _:
            return value


def quantity_members(attribute: str, declared: Any) -> QuantityMembers | None:
    """`true` or `{"number": …, "unit": …}` of a declaration. Raises InvalidDeclaration."""
    given = _given(attribute, "quantity", declared, ("number", "unit"))
    return None if given is None else QuantityMembers(given.get("number"), given.get("unit"))


def code_members(attribute: str, declared: Any) -> CodeMembers | None:
    """`true`, or an object with some of `code`, `system` and `in`. Raises InvalidDeclaration."""
    given = _given(attribute, "code", declared, ("code", "system", "in"))
    return None if given is None else CodeMembers(given.get("code"), given.get("system"), given.get("in"))


def _given(attribute: str, key: str, declared: Any, known: tuple[str, ...]) -> Mapping[str, str] | None:
    if declared is None or declared is False:
        return None
    if declared is True:
        return {}
    given = declared if isinstance(declared, Mapping) else {}
    if not given or given.keys() - set(known) or not all(isinstance(each, str) and each for each in given.values()):
        raise InvalidDeclaration(
            f"attribute {attribute!r}: {key} is true, or an object with some of {', '.join(known)}, each a name"
        )
    return dict(given)


def may_be_compared(attribute: str) -> bool:
    """Whether quantities under a dotted name may have a comparator without being declared: by FHIR's names."""
    return COMPARED.search(attribute) is not None


def stated_value(
    node: Mapping[str, Any],
    quantities: QuantityMembers | None,
    codes: CodeMembers | None,
    is_unit: Callable[[str], bool],
) -> Stated | None:
    """The quantity or code that `node`, an object or a node of a graph, states; None for neither. `is_unit` says
    whether a unit is known: of several members that may name it, the first with a known one is taken. Cost: a few
    look-ups."""
    if isinstance(node, Node):
        members, names = plain_members(node)
        stated = stated_value(members, quantities, codes, is_unit)
        if stated is None:
            return None
        number = None if stated.number is None else names[stated.number]
        return Stated(replace(stated.scalar, node=node.value), number)
    found = None if quantities is None else _quantity(node, quantities, is_unit)
    return _code(node, codes) if found is None and codes is not None else found


def _quantity(node: Mapping[str, Any], members: QuantityMembers, is_unit: Callable[[str], bool]) -> Stated | None:
    name = members.number or next((each for each in NUMBERS if each in node), None)
    number = None if name is None else _number(node.get(name))
    if name is None or number is None:
        return None
    if members.unit is None:
        units = _units(node)
    else:
        given = _text(node.get(members.unit))
        units = [] if given is None else [given]
    if not units:
        return None
    unit = next(filter(is_unit, units), units[0])
    comparator = node.get("comparator")
    if comparator is not None and comparator not in COMPARATORS:
        return None  # `ad`, or what no standard has: nothing is known of the amount
    return Stated(QuantityObject(number, unit, dict(node), comparator), name)


def _units(node: Mapping[str, Any]) -> list[str]:
    """The texts that may be the unit, the likeliest first."""
    code = _text(node.get("code"))
    first = [code] if code is not None and _text(node.get("system")) in UNIT_SYSTEMS else []
    others = (_text(node[each]) for each in UNITS if each in node)
    return first + [each for each in others if each is not None]


def _code(node: Mapping[str, Any], members: CodeMembers) -> Stated | None:
    codings = node.get("coding") if members.code is None else None
    if isinstance(codings, Mapping):
        codings = [codings]
    if isinstance(codings, list | tuple):
        each_of = [_pair(each, members) for each in codings[:MOST_CODINGS] if isinstance(each, Mapping)]
        found = tuple(dict.fromkeys(pair for pair in each_of if pair is not None))
    else:
        pair = _pair(node, members)
        found = () if pair is None else (pair,)
    return Stated(StatedCode(found, dict(node))) if found else None


def _pair(node: Mapping[str, Any], members: CodeMembers) -> tuple[str, str] | None:
    """The system of a code and the code."""
    if members.code is None and "@value" in node and "@type" in node:
        code, system = _text(node["@value"]), _text(node["@type"])
    else:
        own = CODES if members.code is None else (members.code,)
        code = next((text for each in own if (text := _text(node.get(each))) is not None), None)
        systems = SYSTEMS if members.system is None else (members.system,)
        system = next((text for each in systems if (text := _text(node.get(each))) is not None), members.within)
    return None if code is None or system is None else (system, code)


def _number(value: Any) -> int | float | None:
    if isinstance(value, Mapping):
        value = value.get("@value")
    if isinstance(value, str) and NUMBER.fullmatch(value):
        found = float(value)
        return int(found) if found.is_integer() and abs(found) < 1 << 53 else found if found - found == 0.0 else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if _is_exact(value) else None


def _is_exact(value: int | float) -> bool:
    if isinstance(value, float):
        return value - value == 0.0
    return abs(value) <= 1 << 53


def _text(value: Any) -> str | None:
    """A text, or the IRI or literal that a node stands for."""
    if isinstance(value, Mapping):
        value = value.get("@id", value.get("@value"))
    return value if isinstance(value, str) and value else None
