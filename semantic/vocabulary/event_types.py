"""Event types as frozen records, envelopes that hold several events, and objects that state one quantity or code.

The notation of Le Subscribe, section 2.1, maps to our names: an element of ET is an `EventType`, its event schema E(e)
is `EventType.uses`, a triple (A, n, u) is a `Use`, and dom(A) is a `Domain`. JSON is nested, the paper's events are
flat. So a type also has its `Shape`, the tree against which the data of an event is checked.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kindcast.semantic.errors import InvalidDeclaration, Problem
from kindcast.semantic.flatten import Comparator, QuantityObject, Stated, StatedCode
from kindcast.semantic.model import Node, Resource, TypedText
from kindcast.semantic.ontology.records import local_name

__all__ = [
    "EVENT_TYPES",
    "FHIR",
    "SHIPPED_SPLITS",
    "STATED",
    "CodeMembers",
    "Correctable",
    "Domain",
    "EventType",
    "Path",
    "QuantityMembers",
    "Shape",
    "Split",
    "Splits",
    "View",
    "code_members",
    "may_be_compared",
    "may_state",
    "path_of",
    "plain_members",
    "quantity_members",
    "split_of",
    "stated_value",
    "view_of",
]

# ── objects that state one value: a quantity or a code (docs/matching-semantics.md, rule 22) ───────────────────────

#     {"value": 185, "unit": "mmHg", "system": "http://unitsofmeasure.org", "code": "mm[Hg]"}     185 mm[Hg]
#     {"numericalValue": 20, "unit": {"@id": "…/MeasurementUnitCode#KGM"}, "@type": "Value"}       20 KGM
#     {"coding": [{"system": "http://snomed.info/sct", "code": "271649006"}], "text": "…"}         a code of SNOMED CT
#
# The members of such an object remain attributes. The members that hold the number and the unit, or the code and its
# system, are known for common standards and declared for others. This module knows no vocabulary: `code_systems` knows
# the meaning of a code.


FHIR: Final = "application/fhir+json"
"""The content type whose objects state quantities and codes without a declaration."""
STATED: Final = ("quantities", "codes")
"""The kinds of values that the objects of an event type may be declared to state."""

NUMBERS: Final = ("value", "numericValue", "numericalValue", "hasNumericalValue")
"""The members for the number in schema.org and FHIR, QUDT (and SOSA results), ONE Record, and OM."""
UNITS: Final = ("unitCode", "unit", "hasUnit", "currency", "currencyUnit", "unitText")
CODES: Final = ("code", "notation", "termCode", "codeValue")
"""The members for the code in FHIR, SKOS, and schema.org's DefinedTerm and CategoryCode."""
SYSTEMS: Final = ("system", "inScheme", "inDefinedTermSet", "inCodeSet")

_LEADING: Final = frozenset({*NUMBERS, *CODES, "coding"})
UNIT_SYSTEMS: Final = frozenset(
    {"http://unitsofmeasure.org", "http://unitsofmeasure.org/", "urn:oid:2.16.840.1.113883.6.8"}
    | {"urn:iso:std:iso:4217", "urn:oid:1.0.4217"}
)
"""The systems of codes that are units: UCUM and ISO 4217."""
COMPARATORS: Final[frozenset[Comparator]] = frozenset(("<", "<=", ">", ">="))
NUMBER: Final = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?")
COMPARED: Final = re.compile(r"[a-z0-9](?:Quantity|Age|Count|Distance|Duration)$")
"""The ends of FHIR's attribute names whose quantities may have a comparator: `valueQuantity`, `onsetAge`."""
MOST_CODINGS = 64
"""The maximum number of codings that are read from one CodeableConcept."""


@dataclass(frozen=True, slots=True)
class QuantityMembers:
    """The members that hold the number and the unit of a quantity. None means those of the known standards."""

    number: str | None = None
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class CodeMembers:
    """The members that hold a code and its system. None means those of the known standards. `within` is the code system
    of codes that name none; plain texts under the attribute are codes of it too."""

    code: str | None = None
    system: str | None = None
    within: str | None = None


def plain_members(node: Node) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns the members of a node of a graph as members of a JSON object, by local name and by IRI, and the name of
    each in the node. Of several values the first one counts, except for codings. Cost: one look at each member, and at
    the members of nodes directly beneath."""
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
    """Returns whether a node of a graph with members of these names may state a quantity or a code."""
    return any(local_name(name[1:-1]) in _LEADING for name in names if name.startswith("<"))


def _plain_member(value: Any, *, deep: bool = True) -> Any:
    """Returns a value as JSON: the IRI of a node, and its members unless it is inside another node."""
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
    """Reads `true` or `{"number": …, "unit": …}` of a declaration. Raises InvalidDeclaration."""
    given = _given(attribute, "quantity", declared, ("number", "unit"))
    return None if given is None else QuantityMembers(given.get("number"), given.get("unit"))


def code_members(attribute: str, declared: Any) -> CodeMembers | None:
    """Reads `true`, or an object with some of `code`, `system` and `in`. Raises InvalidDeclaration."""
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
    """Returns whether quantities under a dotted name may have a comparator without a declaration, by FHIR's names."""
    return COMPARED.search(attribute) is not None


def stated_value(
    node: Mapping[str, Any],
    quantities: QuantityMembers | None,
    codes: CodeMembers | None,
    is_unit: Callable[[str], bool],
) -> Stated | None:
    """Returns the quantity or code that `node`, an object or a node of a graph, states; None if it states neither.
    `is_unit` tells whether a unit is known. If several members may name the unit, the first one with a known unit
    counts. Cost: a few look-ups."""
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
    if comparator is not None and not (isinstance(comparator, str) and comparator in COMPARATORS):
        return None  # `ad`, or what no standard has: nothing is known of the amount
    return Stated(QuantityObject(number, unit, dict(node), comparator), name)


def _units(node: Mapping[str, Any]) -> list[str]:
    """Returns the texts that may be the unit, the most likely first."""
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
    """Returns (system of the code, code)."""
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
    """Returns a text, or the IRI or literal that a node stands for."""
    if isinstance(value, Mapping):
        value = value.get("@id", value.get("@value"))
    return value if isinstance(value, str) and value else None


# ── envelopes: documents that hold several events, and the paths to these (docs/matching-semantics.md, rule 21) ────

#     {"split": "epcisBody.eventList", "inherit": "@context", "where": {"type": "EPCISDocument"}, "id": "eventID"}
#
# A path consists of names of members, joined with dots. It goes through all elements of a list. The path `<IRI>` is a
# property of a graph. Envelopes of common standards are shipped. A declaration of the same name takes precedence over
# the shipped one.


KEYS: Final = frozenset({"split", "inherit", "where", "id", "revision"})
MOST_PATHS: Final = 16
MOST_SPLITS: Final = 200
LONGEST_PATH: Final = 1_000
ANY: Final = "*"
"""At the end of a text of `where`: any continuation matches."""

Path = tuple[str, ...]

_LINKED = "@context"
SHIPPED_SPLITS: Final[Mapping[str, Mapping[str, Any]]] = {
    "epcis": {
        "split": ["epcisBody.eventList", "epcisBody.queryResults.resultsBody.eventList"],
        "inherit": [_LINKED],
        "where": {"type": ["EPCISDocument", "EPCISQueryDocument"]},
        "id": ["eventID"],
        "revision": ["errorDeclaration.declarationTime"],
    },
    "fhir": {
        "split": ["entry.resource"],
        "where": {"resourceType": ["Bundle"], "ce.datacontenttype": ["application/fhir+json*"]},
    },
    "stix": {
        "split": ["objects"],
        "where": {"type": ["bundle"], "id": ["bundle--*"]},
        "id": ["id"],
        "revision": ["modified"],
    },
    "activitystreams": {
        "split": ["items", "orderedItems"],
        "inherit": [_LINKED],
        "where": {
            _LINKED: ["https://www.w3.org/ns/activitystreams"],
            "type": ["Collection", "OrderedCollection", "CollectionPage", "OrderedCollectionPage"],
        },
        "id": ["id", "@id"],
        "revision": ["updated"],
    },
    "ngsi-ld": {
        "split": ["data"],
        "inherit": [_LINKED],
        "where": {_LINKED: ["https://uri.etsi.org/ngsi-ld/*"], "type": ["Notification"]},
        "id": ["id"],
    },
    "ldes": {"split": ["tree:member", "<https://w3id.org/tree#member>"], "inherit": [_LINKED], "id": ["@id", "id"]},
}
"""The declarations of the shipped envelopes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """An envelope. `paths` lead to its events, and `inherit` to the members that each event receives from it. `where`
    maps attributes, as published, to the texts of which one must be among their values. `id` and `revision` are the
    paths to the ID and revision in an event."""

    name: str
    paths: tuple[Path, ...]
    inherit: tuple[Path, ...] = ()
    where: tuple[tuple[str, tuple[str, ...]], ...] = ()
    id: tuple[str, ...] = ()
    revision: tuple[str, ...] = ()

    @property
    def properties(self) -> tuple[str, ...]:
        """The paths that are properties of graphs, as IRIs."""
        return tuple(path[0][1:-1] for path in self.paths if path[0].startswith("<"))

    @property
    def members(self) -> tuple[Path, ...]:
        """The paths through members of JSON."""
        return tuple(path for path in self.paths if not path[0].startswith("<"))

    @property
    def declaration(self) -> dict[str, Any]:
        """Returns the declaration in the form that `split_of` reads."""
        found: dict[str, Any] = {"split": [".".join(path) for path in self.paths]}
        found |= {"inherit": [".".join(path) for path in self.inherit]} if self.inherit else {}
        found |= {"where": {name: list(texts) for name, texts in self.where}} if self.where else {}
        return found | {key: list(names) for key, names in (("id", self.id), ("revision", self.revision)) if names}


def path_of(text: str) -> Path:
    """Parses a path into steps.

    >>> path_of("entry.resource"), path_of("<https://w3id.org/tree#member>")
    (('entry', 'resource'), ('<https://w3id.org/tree#member>',))
    """
    return (text,) if text.startswith("<") else tuple(text.split("."))


def split_of(name: str, declared: Any) -> Split:
    """Reads the declaration of an envelope. Raises `InvalidDeclaration`."""
    what = f"split {name!r}"
    if not isinstance(declared, Mapping) or declared.keys() - KEYS or "split" not in declared:
        raise InvalidDeclaration(
            f"{what}: an object with the member split is expected; {', '.join(sorted(KEYS - {'split'}))} are optional"
        )
    where = declared.get("where", {})
    if not isinstance(where, Mapping) or len(where) > MOST_PATHS:
        raise InvalidDeclaration(f"{what}: where is an object of at most {MOST_PATHS} members")
    conditions: list[tuple[str, tuple[str, ...]]] = []
    for key, texts in where.items():
        listed = texts if isinstance(texts, list) else [texts]
        if not 0 < len(listed) <= MOST_PATHS or not all(isinstance(each, str) and each for each in listed):
            raise InvalidDeclaration(f"{what}: where must give {key} a text, or a list of at most {MOST_PATHS} texts")
        conditions.append((key, tuple(listed)))
    names = {key: _names(what, key, declared.get(key, [])) for key in KEYS - {"where"}}
    if any(each.startswith("<") for key in ("inherit", "id", "revision") for each in names[key]):
        raise InvalidDeclaration(f"{what}: only split names a property of a graph")
    _names(what, "where", list(where))
    return Split(
        name=name,
        paths=tuple(map(path_of, names["split"])),
        inherit=tuple(map(path_of, names["inherit"])),
        where=tuple(conditions),
        id=names["id"],
        revision=names["revision"],
    )


def _names(what: str, key: str, given: Any) -> tuple[str, ...]:
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, list) or len(listed) > MOST_PATHS:
        raise InvalidDeclaration(f"{what}: {key} is a path, or a list of at most {MOST_PATHS} paths")
    for each in listed:
        is_text = isinstance(each, str) and 0 < len(each) <= LONGEST_PATH
        if not is_text or (each.startswith("<") and not (each.endswith(">") and len(each) > 2)):
            raise InvalidDeclaration(f"{what}: {key} names members with dots, such as epcisBody.eventList")
        if not all(path_of(each)):
            raise InvalidDeclaration(f"{what}: {key}: {each!r} has an empty name")
    return tuple(listed)


class Splits:
    """The envelopes of one vocabulary: declared ones in the order of their names, then shipped ones. Immutable."""

    def __init__(self, declared: Mapping[str, Any] | None = None, *, shipped: bool = True) -> None:
        """`declared`: name → declaration. A declaration without paths disables the shipped envelope of the same name.
        Raises `InvalidDeclaration`."""
        given = dict(sorted((declared or {}).items()))
        if len(given) > MOST_SPLITS:
            raise InvalidDeclaration(f"at most {MOST_SPLITS} splits can be declared, not {len(given)}")
        whole = {
            **given,
            **({name: body for name, body in SHIPPED_SPLITS.items() if name not in given} if shipped else {}),
        }
        self.all = tuple(found for name, body in whole.items() if (found := split_of(name, body)).paths)
        self.properties = tuple(dict.fromkeys(each for split in self.all for each in split.properties))
        """The properties of graphs whose values are events."""
        self.names = frozenset(path[0] for split in self.all for path in split.members)
        """The members of a document that may lead to its events. A document without any of them is no envelope."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """The single values that an attribute may have, dom(A).

    `types` are JSON types (None: any). `members` are the members of an enumeration, and `order` its chains, each from
    low to high. `concepts` are IRIs; a value must be one of them or beneath one. `unit` is the unit of bare numbers,
    and `unit_from` the sibling attribute that holds the unit. `derived` is the expression that computes the attribute.
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
        """Whether the domain is numeric: only numbers are allowed, or there is a unit."""
        if self.unit is not None or self.unit_from is not None:
            return True
        return self.types is not None and bool(self.types) and self.types <= {"number", "integer"}

    def facets(self) -> dict[str, Any]:
        """Returns the restrictions of the domain by name, for messages about differences."""
        return {name: getattr(self, name) for name in self.__slots__ if getattr(self, name) not in (None, (), False)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The JSON values that are allowed at one place. `types` are the allowed JSON types (None: any).

    A scalar must be in `domain`. An object has `members`; those of `required` are mandatory, and `closed` forbids
    others. An array has from `fewest` to `most` elements of the shape `items`.
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
        """Returns whether JSON of this type is allowed here."""
        return self.types is None or type in self.types


EVENT_TYPES = "@type"
"""The member of data with its further types (rule R1). It may be in each event and is no attribute of a type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """An attribute as an event type uses it: the triple (A, n, u) and the domain of the attribute."""

    attribute: str
    domain: Domain
    mandatory: bool
    multiple: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Correctable:
    """The attributes in which an event of a type states corrections: its subject (by default its ID), the revision of
    that subject, and the subjects that it withdraws. See `kindcast.semantic.events.documents`."""

    subject: str | None = None
    revision: str | None = None
    retracts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventType:
    """A named event type. `stated` says what objects in its events may state: "quantities", "codes" or both (rule 22).
    `correctable` has the attributes that state corrections. `split` says where the events are in an envelope. Two types
    are equal if all members except `title` and `description` are equal."""

    name: str
    shape: Shape
    stated: frozenset[str] = frozenset()
    correctable: Correctable | None = None
    split: Split | None = None
    title: str | None = field(default=None, compare=False)
    description: str | None = field(default=None, compare=False)

    @property
    def uses(self) -> dict[str, Use]:
        """Returns all attributes of the type by dotted name, E(e). Linear in the shape."""
        return {use.attribute: use for use in uses_of(self.shape)}

    @property
    def refers_to_all(self) -> bool:
        """Whether attributes that it does not name decide, too, whether an event is one of this type: it forbids
        others, or compares objects."""
        return _refers_to_all(self.shape)


def _refers_to_all(shape: Shape) -> bool:
    inner = [*shape.members.values(), *([] if shape.items is None else [shape.items])]
    return shape.closed or shape.distinct or any(map(_refers_to_all, inner))


def uses_of(shape: Shape, prefix: str = "", *, mandatory: bool = True, multiple: bool = False) -> Iterator[Use]:
    """Yields the attributes beneath an object's shape. An attribute is mandatory only if all objects around it are."""
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


# Views: the attributes that the events of one or several types have together.
#
# Le Subscribe, section 2.1: a view is a pair (E, R) of event types and triples (A, n, u), such that
#
#     1  an attribute that is mandatory in a type of E is mandatory in R,
#     2  R has only attributes of the types of E,
#     3  an attribute has one triple; mandatory takes precedence over optional, and multiple over unique.
#
# The view of an event includes all attributes. A publisher who promises less than the types allow may choose fewer
# optional attributes.


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The pair (E, R): `types` by name, sorted. `shape` is the shape of data that has all these types."""

    types: tuple[str, ...]
    shape: Shape
    stated: frozenset[str] = frozenset()

    @property
    def uses(self) -> Mapping[str, Use]:
        """R, by attribute."""
        return {use.attribute: use for use in uses_of(self.shape)}


def view_of(types: Iterable[EventType], attributes: Iterable[str] | None = None) -> View:
    """Returns the view of `types` with all their attributes or the chosen ones (dotted names).

    Raises `InvalidDeclaration` with one problem for each condition that a choice violates, naming the attribute.
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
    """Merges the shapes of two types: mandatory and multiple take precedence (condition 3). The domains of both agree
    already, because `EventSchemas` checks it."""
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
    """Returns `shape` with only the chosen attributes. Objects without a chosen attribute are removed."""
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
