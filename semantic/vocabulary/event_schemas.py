"""The integrated event schema of Le Subscribe, section 2.1: all declared event types of a vocabulary.

Attributes are global: an attribute has one domain, whichever types use it. Two types that disagree about a domain are
rejected with an error that names both. Each type decides whether its attribute is mandatory or multiple.

Event types are read from JSON Schema documents (2020-12). The keywords that restrict the values of attributes are read.
Any other keyword is an error that names it, so that no other tool accepts an event that is rejected here, or vice
versa. Annotations, which other tools ignore, state what JSON Schema has no keyword for:

    x-kindcast-concept     IRI or IRIs: values are one of these concepts or beneath
    x-kindcast-order       chains of members, each from low to high, or "listed": the order of the enumeration
    x-kindcast-unit        the unit of a bare number
    x-kindcast-unit-from   the sibling attribute that holds the unit
    x-kindcast-derived     the expression that gives the attribute its value where the event does not
    x-kindcast-subject     of the whole document: the attribute that says what an event is about, its id by default
    x-kindcast-revision    of the whole document: the attribute that says which revision of that it is
    x-kindcast-retracts    of the whole document: attributes that name what an event withdraws, or say that it does
    x-kindcast-stated      of the whole document: "quantities", "codes" or both, which objects of the events may state
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from kindcast.semantic.errors import InvalidDeclaration, Problem, SemanticError
from kindcast.semantic.flatten import problem_at
from kindcast.semantic.units.patterns import compile_pattern
from kindcast.semantic.vocabulary.attributes import MOST_MEMBERS, enumeration
from kindcast.semantic.vocabulary.derivation import parse_arithmetic
from kindcast.semantic.vocabulary.event_types import (
    STATED,
    Correctable,
    Domain,
    EventType,
    Shape,
    Split,
    View,
    split_of,
    view_of,
)

__all__ = ["DEEPEST", "MOST_NODES", "EventSchemas", "document_of", "extension_problems", "read_event_type"]


DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
PREFIX: Final = "x-kindcast-"
JSON_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "object", "array"})
SCALARS: Final = frozenset({"string", "number", "integer", "boolean"})

MOST_NODES = 2_000
"""The maximum number of places that one document describes. Each costs a look at each event of the type."""
DEEPEST = 16
"""The maximum nesting of a document, after following references. Data itself has at most 64 levels."""
LONGEST_NAME = 200
"""The maximum length of the name of an attribute or a type."""
MOST_PROBLEMS = 100
"""The maximum number of problems that are reported for one document."""

WORDS: Final = frozenset(
    {"$schema", "$id", "$comment", "$defs", "title", "description", "default", "examples", "deprecated"}
    | {"readOnly", "writeOnly"}
)
"""Keywords that do not restrict events."""
ASSERTIONS: Final = frozenset(
    {"type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength"}
    | {"pattern", "format", "items", "minItems", "maxItems", "uniqueItems", "properties", "required"}
    | {"additionalProperties"}
)
ANNOTATIONS: Final = frozenset(PREFIX + name for name in ("concept", "order", "unit", "unit-from", "derived"))

STATED_BY: Final = PREFIX + "stated"
"""The annotation of a document that tells what the objects of its events may state (rule 22)."""
CORRECTED_BY: Final = tuple(PREFIX + name for name in ("subject", "revision", "retracts"))
"""The annotations of a document that tell where its events state corrections."""
SPLIT_BY: Final = PREFIX + "split"
"""The annotation of a document that tells how its events are in an envelope, as in a declaration of `splits` (rule
21)."""
OF_DOCUMENTS: Final = frozenset((STATED_BY, SPLIT_BY, *CORRECTED_BY))

Path = tuple[Any, ...]


def read_event_type(name: str, document: Any, others: Mapping[str, Any] | None = None) -> EventType:
    """Reads the event type `name` from its `document`.

    `$ref` may refer only to the document's own `$defs` or to those of another type in `others`
    (`furniture#/$defs/Material`). Raises `InvalidDeclaration` with all problems, each with a JSON pointer. The work is
    limited by `MOST_NODES` and `DEEPEST`.
    """
    reader = _Reader(name, {**(others or {}), name: document})
    shape = reader.read(document)
    stated, correctable, split = reader.stated(document), reader.correctable(document), reader.split(document)
    if reader.problems:
        raise InvalidDeclaration(reader.problems)
    title, description = document.get("title"), document.get("description")
    return EventType(
        name=name,
        shape=shape,
        stated=stated,
        correctable=correctable,
        split=split,
        title=title,
        description=description,
    )


def _is_attribute_name(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and all(name.split("."))


class _Reader:
    """Reads one document and collects its problems."""

    def __init__(self, name: str, documents: Mapping[str, Any]) -> None:
        self._name = name
        self._documents = documents
        self._nodes = 0
        self._following: list[str] = []
        self.problems: list[Problem] = []

    def read(self, document: Any) -> Shape:
        if not isinstance(document, Mapping):
            self.refuse((), "an event type is a JSON Schema: an object with properties")
            return Shape()
        if not self._name or len(self._name) > LONGEST_NAME:
            self.refuse((), f"the name of an event type has 1 to {LONGEST_NAME} characters")
        dialect = document.get("$schema", DIALECT)
        if not isinstance(dialect, str) or dialect.rstrip("#") != DIALECT:
            self.refuse(("$schema",), f"only {DIALECT} is supported, not {dialect}")
        if document.get("type", "object") != "object" or "$ref" in document or ANNOTATIONS & document.keys():
            self.refuse((), "the data of an event must be an object: describe its attributes under properties")
            return Shape()
        for key in ("title", "description"):
            if not isinstance(document.get(key, ""), str):
                self.refuse((key,), f"{key} is a string")
        definitions = document.get("$defs", {})
        if isinstance(definitions, Mapping):
            for key, node in definitions.items():
                self.shape(node, ("$defs", key), 1)
        else:
            self.refuse(("$defs",), "$defs must be an object from names to domains")
        of_data = {key: value for key, value in document.items() if key not in OF_DOCUMENTS}
        shape = self.shape({"type": "object"} | of_data, (), 0)
        self._check_siblings(shape, ("properties",))
        return shape

    def stated(self, document: Any) -> frozenset[str]:
        """Returns what the objects of the events state."""
        given = document.get(STATED_BY, []) if isinstance(document, Mapping) else []
        listed = [given] if isinstance(given, str) else given
        if not isinstance(listed, list) or not all(isinstance(each, str) and each in STATED for each in listed):
            self.refuse((STATED_BY,), f"{STATED_BY} lists some of {', '.join(STATED)}")
            return frozenset()
        return frozenset(listed)

    def split(self, document: Any) -> Split | None:
        """Returns the envelope of the events; None without a declaration."""
        if not isinstance(document, Mapping) or SPLIT_BY not in document:
            return None
        try:
            return split_of(self._name, document[SPLIT_BY])
        except InvalidDeclaration as error:
            self.refuse((SPLIT_BY,), str(error))
            return None

    def correctable(self, document: Any) -> Correctable | None:
        """Returns the attributes of corrections; None without a declaration."""
        given = {key: document[key] for key in CORRECTED_BY if key in document} if isinstance(document, Mapping) else {}
        if not given:
            return None
        names: list[tuple[str, ...]] = []
        for key in CORRECTED_BY:
            value = given.get(key, [])
            listed = [value] if isinstance(value, str) else value
            most = 16 if key == CORRECTED_BY[-1] else 1
            if not isinstance(listed, list) or len(listed) > most or not all(map(_is_attribute_name, listed)):
                self.refuse((key,), f"{key} is the name of an attribute" + (", or a list of names" if most > 1 else ""))
                listed = []
            names.append(tuple(listed))
        subject, revision, retracts = names
        return Correctable(subject=(*subject, None)[0], revision=(*revision, None)[0], retracts=retracts)

    def shape(self, node: Any, path: Path, depth: int) -> Shape:
        self._nodes += 1
        if self._nodes > MOST_NODES or depth > DEEPEST:
            what = f"more than {MOST_NODES} places" if depth <= DEEPEST else f"more than {DEEPEST} levels"
            raise InvalidDeclaration([problem_at(path, "too-large", f"a document describes {what}: divide it")])
        if node is True:
            return Shape()
        if not isinstance(node, Mapping):
            self.refuse(path, "a schema must be an object or true")
            return Shape()
        if "$ref" in node:
            return self._referred(node, path, depth)
        self._check_keywords(node, path)
        listed = self._members(node, path)
        types = self._types(node, listed, path)
        domain = self._domain(node, types, listed, path)
        members = node.get("properties", {})
        if not isinstance(members, Mapping):
            self.refuse((*path, "properties"), "properties must be an object from attribute names to schemas")
            members = {}
        closed = node.get("additionalProperties", True)
        if not isinstance(closed, bool):
            self.refuse((*path, "additionalProperties"), "additionalProperties must be true or false")
        return Shape(
            types=types,
            domain=domain,
            members={
                name: self._member(name, inner, (*path, "properties", name), depth) for name, inner in members.items()
            },
            required=self._required(node, members, path),
            closed=closed is False,
            items=self.shape(node["items"], (*path, "items"), depth + 1) if "items" in node else None,
            fewest=self._count(node, "minItems", path) or 0,
            most=self._count(node, "maxItems", path),
            distinct=node.get("uniqueItems", False) is True,
        )

    def _member(self, name: Any, node: Any, path: Path, depth: int) -> Shape:
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
            self.refuse(path, f"the name of an attribute has 1 to {LONGEST_NAME} characters")
        elif "." in name:
            self.refuse(path, "a name must not have a dot: write a.b as b in the properties of a")
        elif name == "ce" and len(path) == 2:
            self.refuse(path, "this name is reserved for context attributes such as ce.type: choose another name")
        return self.shape(node, path, depth + 1)

    def _referred(self, node: Mapping[str, Any], path: Path, depth: int) -> Shape:
        """Returns the shape that `$ref` refers to."""
        reference = node["$ref"]
        strange = set(node) - WORDS - {"$ref"}
        if strange:
            self.refuse(path, f"beside $ref only descriptions are allowed, not {', '.join(sorted(strange))}")
        owner, mark, name = reference.partition("#/$defs/") if isinstance(reference, str) else ("", "", "")
        owner, name = unquote(owner) or self._name, unquote(name).replace("~1", "/").replace("~0", "~")
        document = self._documents.get(owner)
        definitions = document.get("$defs") if isinstance(document, Mapping) else None
        if not mark or not isinstance(definitions, Mapping) or name not in definitions:
            detail = f"$ref must be #/$defs/NAME, or TYPE#/$defs/NAME for another event type, not {reference}"
            self.refuse((*path, "$ref"), detail)
            return Shape()
        step = f"{owner}#/$defs/{name}"
        if step in self._following:
            self.refuse((*path, "$ref"), f"{step} leads back to itself")
            return Shape()
        self._following.append(step)
        before, self._name = self._name, owner
        found = self.shape(definitions[name], (*path, "$ref"), depth + 1)
        self._name = before
        self._following.pop()
        return found

    # ── keywords ────────────────────────────────────────────────────────────────────────────────────────────────

    def _check_keywords(self, node: Mapping[Any, Any], path: Path) -> None:
        for key in node:
            if not isinstance(key, str) or key in WORDS or key in ASSERTIONS or key in ANNOTATIONS:
                continue
            if key.startswith(PREFIX):
                known = ", ".join(sorted({*ANNOTATIONS, *OF_DOCUMENTS}))
                self.refuse((*path, key), f"there is no annotation {key}; known are {known}")
            elif not key.startswith("x-"):
                detail = f"the keyword {key} is not supported, but other tools apply it: leave it out"
                self.refuse((*path, key), detail, "unsupported-keyword")

    def _types(self, node: Mapping[str, Any], listed: tuple[Any, ...] | None, path: Path) -> frozenset[str] | None:
        """Returns the JSON types. The type null is ignored, since null is no value (rule 1). If members of an
        enumeration are listed, the types are scalar in any case."""
        if "type" not in node:
            return None if listed is None else frozenset(map(_type_of, listed))
        given = node["type"]
        types = [given] if isinstance(given, str) else given
        if not isinstance(types, list) or not all(isinstance(each, str) for each in types):
            self.refuse((*path, "type"), "type must be the name of a JSON type, or a list of names")
            return None
        found = frozenset(types) - {"null"}
        if not found or not found <= JSON_TYPES:
            self.refuse((*path, "type"), f"type is one of {', '.join(sorted(JSON_TYPES))}")
            return None
        if listed is not None and not found & SCALARS:
            self.refuse((*path, "enum"), f"no member of the enumeration is of type {' or '.join(sorted(found))}")
        return found if listed is None else found & SCALARS

    def _domain(
        self, node: Mapping[str, Any], types: frozenset[str] | None, members: tuple[Any, ...] | None, path: Path
    ) -> Domain:
        concepts = node.get(PREFIX + "concept", ())
        concepts = (concepts,) if isinstance(concepts, str) else concepts
        if not isinstance(concepts, list | tuple) or not all(isinstance(each, str) for each in concepts):
            self.refuse((*path, PREFIX + "concept"), "the IRI of a concept, or a list of IRIs")
            concepts = ()
        form = node.get("format")
        if form not in (None, "date-time"):
            self.refuse((*path, "format"), f"the format {form} is not supported; date-time is")
        pattern = self._text(node, "pattern", path)
        if pattern is not None:
            self._attempt(lambda: compile_pattern(pattern), (*path, "pattern"))
        derived = self._text(node, PREFIX + "derived", path)
        if derived is not None:
            self._attempt(lambda: parse_arithmetic(derived), (*path, PREFIX + "derived"))
        return Domain(
            types=None if types is None else types - {"array"},
            members=members,
            order=self._order(node, members, path),
            minimum=self._number(node, "minimum", path),
            maximum=self._number(node, "maximum", path),
            above=self._number(node, "exclusiveMinimum", path),
            under=self._number(node, "exclusiveMaximum", path),
            shortest=self._count(node, "minLength", path),
            longest=self._count(node, "maxLength", path),
            pattern=pattern,
            date_time=form == "date-time",
            concepts=tuple(sorted(concepts)),
            unit=self._text(node, PREFIX + "unit", path),
            unit_from=self._text(node, PREFIX + "unit-from", path),
            derived=derived,
        )

    def _members(self, node: Mapping[str, Any], path: Path) -> tuple[Any, ...] | None:
        members: Any
        if "const" in node:
            members = [node["const"]]
            if "enum" in node:
                self.refuse((*path, "const"), "const and enum have the same meaning: leave one out")
        elif "enum" in node:
            members = node["enum"]
        else:
            return None
        if isinstance(members, list) and not 0 < len(members) <= MOST_MEMBERS:
            self.refuse((*path, "enum"), f"an enumeration has 1 to {MOST_MEMBERS} members")
            return None
        if not isinstance(members, list) or not all(isinstance(each, str | int | float) for each in members):
            self.refuse((*path, "enum"), "the members of an enumeration are strings, numbers, true or false")
            return None
        return tuple(dict.fromkeys(members)) if len(set(map(type, members))) == 1 else tuple(members)

    def _order(self, node: Mapping[str, Any], members: tuple[Any, ...] | None, path: Path) -> Any:
        key = PREFIX + "order"
        if key not in node:
            return None
        order = node[key]
        if members is None or not all(isinstance(each, str) for each in members):
            self.refuse((*path, key), "only an enumeration of strings can have an order")
            return None
        chains = [list(members)] if order == "listed" else order
        if not isinstance(chains, list) or not all(
            isinstance(chain, list) and all(isinstance(each, str) for each in chain) for chain in chains
        ):
            self.refuse((*path, key), 'chains of members, each from low to high ([["low", "high"]]), or "listed"')
            return None
        self._attempt(lambda: enumeration(members, chains), (*path, key))
        return tuple(tuple(chain) for chain in chains)

    def _required(self, node: Mapping[str, Any], members: Mapping[str, Any], path: Path) -> frozenset[str]:
        required = node.get("required", [])
        if not isinstance(required, list) or not all(isinstance(each, str) for each in required):
            self.refuse((*path, "required"), "required lists names of attributes")
            return frozenset()
        for each in required:
            inner = members.get(each)
            if each not in members:
                self.refuse((*path, "required"), f"{each} is mandatory but not listed under properties")
            elif isinstance(inner, Mapping) and PREFIX + "derived" in inner:
                self.refuse(
                    (*path, "required"), f"{each} is derived if an event does not have it, so it cannot be mandatory"
                )
        return frozenset(required) & members.keys()

    def _check_siblings(self, shape: Shape, path: Path) -> None:
        """Checks that each attribute for a unit (`unit-from`) exists beside its attribute."""
        for name, member in shape.members.items():
            sibling = member.domain.unit_from or (member.items.domain.unit_from if member.items else None)
            if sibling is not None and sibling.rpartition(".")[2] not in shape.members:
                self.refuse((*path, name, PREFIX + "unit-from"), f"there is no attribute {sibling} beside {name}")
            for inner, step in ((member, "properties"), (member.items, "items")):
                if inner is not None and inner.members:
                    self._check_siblings(inner, (*path, name, step))

    # ── values of keywords ──────────────────────────────────────────────────────────────────────────────────────

    def _number(self, node: Mapping[str, Any], key: str, path: Path) -> int | float | None:
        value = node.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self.refuse((*path, key), f"{key} is a number")
            return None
        return value

    def _count(self, node: Mapping[str, Any], key: str, path: Path) -> int | None:
        value = node.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self.refuse((*path, key), f"{key} is a whole number, 0 or more")
            return None
        return value

    def _text(self, node: Mapping[str, Any], key: str, path: Path) -> str | None:
        value = node.get(key)
        if value is None or isinstance(value, str):
            return value
        self.refuse((*path, key), f"{key} is a string")
        return None

    def _attempt(self, check: Any, path: Path) -> None:
        try:
            check()
        except SemanticError as error:
            self.refuse(path, str(error))

    def refuse(self, path: Path, detail: str, code: str = "invalid-schema") -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem_at(path, code, detail))


def _type_of(member: str | int | float | bool) -> str:
    return "boolean" if isinstance(member, bool) else "string" if isinstance(member, str) else "number"


# Writer of JSON Schema documents for event types and views. The reader above reads them back to the same shape.
#
# Uploaded documents are stored and returned unchanged. The writer is for types without a document, such as views.

_BOUNDS = (
    ("minimum", "minimum"),
    ("maximum", "maximum"),
    ("exclusiveMinimum", "above"),
    ("exclusiveMaximum", "under"),
    ("minLength", "shortest"),
    ("maxLength", "longest"),
    ("pattern", "pattern"),
    (PREFIX + "unit", "unit"),
    (PREFIX + "unit-from", "unit_from"),
    (PREFIX + "derived", "derived"),
)


def document_of(described: EventType | View) -> dict[str, Any]:
    """Returns the JSON Schema of an event type, or of a view (with its types as title). Linear in the shape.

    >>> from kindcast.semantic.vocabulary.event_schemas import read_event_type
    >>> document_of(read_event_type("offer", {"properties": {"price": {"type": "number"}}}))["properties"]
    {'price': {'type': 'number'}}
    """
    document: dict[str, Any] = {"$schema": DIALECT}
    if isinstance(described, View):
        document["title"] = " and ".join(described.types)
    else:
        words = {"title": described.title, "description": described.description}
        document |= {key: text for key, text in words.items() if text is not None}
    if described.stated:
        document[STATED_BY] = sorted(described.stated)
    if isinstance(described, EventType) and (told := described.correctable) is not None:
        values = (told.subject, told.revision, list(told.retracts))
        document |= {key: value for key, value in zip(CORRECTED_BY, values, strict=True) if value}
    if isinstance(described, EventType) and described.split is not None:
        document[SPLIT_BY] = described.split.declaration
    return document | _node(described.shape)


def _node(shape: Shape) -> dict[str, Any]:
    node: dict[str, Any] = {}
    if shape.types is not None:
        node["type"] = sorted(shape.types) if len(shape.types) > 1 else next(iter(shape.types))
    node |= _domain(shape.domain)
    if shape.members:
        node["properties"] = {name: _node(member) for name, member in shape.members.items()}
    if shape.required:
        node["required"] = sorted(shape.required)
    if shape.closed:
        node["additionalProperties"] = False
    if shape.items is not None:
        node["items"] = _node(shape.items)
    counts = {"minItems": shape.fewest or None, "maxItems": shape.most, "uniqueItems": shape.distinct or None}
    return node | {key: value for key, value in counts.items() if value is not None}


def _domain(domain: Domain) -> dict[str, Any]:
    node: dict[str, Any] = {}
    if domain.members is not None:
        node["enum"] = list(domain.members)
    if domain.order is not None:
        node[PREFIX + "order"] = [list(chain) for chain in domain.order]
    if domain.date_time:
        node["format"] = "date-time"
    if domain.concepts:
        node[PREFIX + "concept"] = list(domain.concepts)
    return node | {key: value for key, name in _BOUNDS if (value := getattr(domain, name)) is not None}


# Extension of the shared schema by publishers without conflicts: the four rules of Le Subscribe, section 2.2.
#
#     1  domain creation            a new domain (`$defs`), with its order
#     2  attribute creation         a new attribute, with its domain
#     3  event schema extension     a type gets another attribute, optional, which it did not have
#     4  event schema creation      a new event type with its attributes
#
# Any other change of a type in use is rejected, and the problem names the violated rule, because other publishers'
# events or subscriptions may depend on the type. An administrator may still replace a type as a whole.

RULE_1 = "rule 1 creates domains and never changes them"
RULE_3 = "rule 3 only adds optional attributes to a type"


def extension_problems(before: EventType | None, after: EventType) -> list[Problem]:
    """Returns the changes in `after` that are more than an extension of `before` (None: a new type, rule 4): one
    problem per attribute, with a JSON pointer into the new document. Linear in the shapes."""
    if before is None:
        return []
    problems = list(_changes(before.shape, after.shape, (), after.name))
    if before.stated != after.stated:
        detail = f"the meaning of objects in {after.name} changes, and so does the meaning of its events: {RULE_3}"
        problems.append(_refused((), detail))
    if before.correctable not in (None, after.correctable):
        detail = f"the attributes of corrections of {after.name} change: {RULE_3}"
        problems.append(_refused((), detail))
    if before.split not in (None, after.split):
        problems.append(_refused((SPLIT_BY,), f"the envelope of events of {after.name} changes: {RULE_3}"))
    return problems


def _changes(before: Shape, after: Shape, path: tuple[Any, ...], name: str) -> Iterator[Problem]:
    if before.closed != after.closed:
        was, now = ("closed", "open") if before.closed else ("open", "closed")
        yield _refused((*path, "additionalProperties"), f"{name} is {was} and becomes {now}: {RULE_3}")
    for member, shape in before.members.items():
        place = (*path, "properties", member)
        if member not in after.members:
            yield _refused(place, f"the attribute {member} of {name} was removed: {RULE_3}, and never removes one")
            continue
        if (member in before.required) != (member in after.required):
            was, now = ("mandatory", "optional") if member in before.required else ("optional", "mandatory")
            yield _refused(place, f"the attribute {member} of {name} was {was} and becomes {now}: {RULE_3}")
        yield from _member_changes(shape, after.members[member], place, f"the attribute {member} of {name}")
    for member in after.members.keys() - before.members.keys():
        if member in after.required:
            detail = f"the new attribute {member} of {name} is mandatory, but earlier events do not have it: {RULE_3}"
            yield _refused((*path, "properties", member), detail)


def _member_changes(before: Shape, after: Shape, place: tuple[Any, ...], what: str) -> Iterator[Problem]:
    if before.allows("array") != after.allows("array"):
        was, now = ("multiple", "unique") if before.allows("array") else ("unique", "multiple")
        yield _refused(place, f"{what} was {was} and becomes {now}: {RULE_3}")
    elif before.domain != after.domain or before.types != after.types:
        yield _refused(place, f"{what} has another domain: {RULE_1}")
    elif (before.fewest, before.most, before.distinct) != (after.fewest, after.most, after.distinct):
        yield _refused(place, f"{what} allows another number of values: {RULE_1}")
    elif before.items is not None and after.items is not None:
        yield from _member_changes(before.items, after.items, (*place, "items"), what)
    elif before.items != after.items:
        yield _refused((*place, "items"), f"{what} has another domain: {RULE_1}")
    yield from _changes(before, after, place, what)


def _refused(path: tuple[Any, ...], detail: str) -> Problem:
    return problem_at(path, "not-an-extension", detail)


if TYPE_CHECKING:  # attributes are built of event types
    from kindcast.semantic.vocabulary.attributes import AttributeScheme


MOST_TYPES = 1_000
"""The maximum number of event types of one vocabulary."""
CACHED_VIEWS = 1_024
"""The maximum number of cached views: the number of combinations of types that a stream may have at the same time."""


class EventSchemas:
    """Event types by name. Immutable except for a cache of views. False if no type is declared."""

    def __init__(self, documents: Mapping[str, Any] | None = None) -> None:
        """`documents`: event type → JSON Schema. Raises `InvalidDeclaration` with every problem of every document, and
        with every attribute that has different domains in two types. Linear in the documents."""
        documents = documents or {}
        if not isinstance(documents, Mapping):
            raise InvalidDeclaration("schemas must be an object from names of event types to JSON Schemas")
        problems: list[Problem] = []
        self.types: dict[str, EventType] = {}
        if len(documents) > MOST_TYPES:
            raise InvalidDeclaration(f"at most {MOST_TYPES} event types can be declared, not {len(documents)}")
        for name, document in documents.items():
            try:
                self.types[name] = read_event_type(name, document, documents)
            except InvalidDeclaration as error:
                problems += (_named(name, each) for each in error.problems)
        self.uses = {name: each.uses for name, each in self.types.items()}
        self.domains: dict[str, Domain] = {}
        self.owners: dict[str, str] = {}
        problems += self._conflicts(self.types.values())
        if problems:
            raise InvalidDeclaration(problems)
        self.states = any(each.stated for each in self.types.values())
        """Whether any type declares objects that state quantities or codes (rule 22)."""
        self.corrects = any(each.correctable is not None for each in self.types.values())
        """Whether any type declares that its events state corrections."""
        self.splits = tuple(each.split for _, each in sorted(self.types.items()) if each.split is not None)
        """The splits that types declare (where the events are in an envelope), ordered by the name of the type."""
        self._views: dict[frozenset[str], View] = {}
        self._having: dict[str, set[str]] | None = None

    def __bool__(self) -> bool:
        return bool(self.types)

    def owned_domains(self) -> dict[str, tuple[str, Domain]]:
        """Returns the attributes of all types: name → (the first type that has the attribute, its domain)."""
        return {name: (self.owners[name], domain) for name, domain in self.domains.items()}

    def view(self, types: frozenset[str]) -> View | None:
        """Returns the view of the declared types among `types`; None if none is declared. Cost: one look-up if this
        combination is cached."""
        found = self._views.get(types)
        if found is None:
            declared = [self.types[name] for name in types if name in self.types]
            if not declared:
                return None
            found = view_of(declared)
            if len(self._views) >= CACHED_VIEWS:
                self._views.clear()
            self._views[types] = found
        return found

    def having(self, attributes: "AttributeScheme") -> Mapping[str, AbstractSet[str]]:
        """Returns attribute → the types that have it or an attribute beneath it (rule 2). `attributes` is the scheme of
        the same vocabulary. Computed once."""
        if self._having is None:
            having: dict[str, set[str]] = {}
            for type, uses in self.uses.items():
                for name in uses:
                    for upper in attributes.broader(name):
                        having.setdefault(upper, set()).add(type)
            self._having = having
        return self._having

    def _conflicts(self, types: Iterable[EventType]) -> Iterable[Problem]:
        """Fills `domains` and `owners`. Yields a problem for each attribute that has different domains in two types."""
        for each in types:
            for name, use in self.uses[each.name].items():
                known = self.domains.setdefault(name, use.domain)
                owner = self.owners.setdefault(name, each.name)
                if known != use.domain:
                    yield Problem("domain-conflict", _difference(name, owner, known, each.name, use.domain))


def _named(name: str, problem: Problem) -> Problem:
    return Problem(problem.code, f"event type {name!r}: {problem.detail}", problem.at, problem.suggestions)


def _difference(attribute: str, owner: str, known: Domain, other: str, domain: Domain) -> str:
    left, right = known.facets(), domain.facets()
    facets = [name for name in sorted(left.keys() | right.keys()) if left.get(name) != right.get(name)]
    said = "; ".join(f"{name} is {_told(left.get(name))} there and {_told(right.get(name))} here" for name in facets)
    return (
        f"event type {other!r}: the attribute {attribute} has another domain in event type {owner!r} ({said}): "
        f"an attribute has one domain in all types, choose another name or refer to {owner}#/$defs"
    )


def _told(facet: Any) -> str:
    if facet is None:
        return "not given"
    if isinstance(facet, frozenset):
        return " or ".join(sorted(facet)) or "nothing"
    return str(facet)[:80]
