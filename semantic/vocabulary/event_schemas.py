"""The integrated event schema of Le Subscribe, section 2.1: all declared event types together.

Attributes are global there: an attribute has one domain, whichever types use it. Two types that disagree about it are
refused, and the error names both. Whether an attribute is mandatory or multiple is each type's own.
"""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from kindcast.semantic.errors import InvalidDeclaration, Problem
from kindcast.semantic.flatten import problem_at
from kindcast.semantic.vocabulary.event_types import Domain, EventType, Shape, View, view_of
from kindcast.semantic.vocabulary.schema_documents import read_event_type

__all__ = ["EventSchemas", "extension_problems"]


# How publishers extend the shared schema without conflict: the four rules of Le Subscribe, section 2.2.
#
#     1  domain creation            a new domain (`$defs`), with its order
#     2  attribute creation         a new attribute, with its domain
#     3  event schema extension     a type gets another attribute, optional, which it did not have
#     4  event schema creation      a new event type with its attributes
#
# Whatever else changes a type that is in use is refused, and the problem names the rule in whose way it is: another
# publisher's events or somebody's subscription may rest on it. An administrator may still replace a type as a whole.

RULE_1 = "rule 1 creates domains and never changes them"
RULE_3 = "rule 3 only adds optional attributes to a type"


def extension_problems(before: EventType | None, after: EventType) -> list[Problem]:
    """What in `after` is more than an extension of `before` (None: a new type, rule 4): one problem an attribute, with
    a JSON pointer into the new document. Linear in the shapes."""
    if before is None:
        return []
    return list(_changes(before.shape, after.shape, (), after.name))


def _changes(before: Shape, after: Shape, path: tuple[Any, ...], name: str) -> Iterator[Problem]:
    if before.closed != after.closed:
        was, now = ("closed", "open") if before.closed else ("open", "closed")
        yield _refused((*path, "additionalProperties"), f"{name} is {was} and becomes {now}: {RULE_3}")
    for member, shape in before.members.items():
        place = (*path, "properties", member)
        if member not in after.members:
            yield _refused(place, f"the attribute {member} of {name} is gone: {RULE_3}, and removes none")
            continue
        if (member in before.required) != (member in after.required):
            was, now = ("mandatory", "optional") if member in before.required else ("optional", "mandatory")
            yield _refused(place, f"the attribute {member} of {name} was {was} and becomes {now}: {RULE_3}")
        yield from _member_changes(shape, after.members[member], place, f"the attribute {member} of {name}")
    for member in after.members.keys() - before.members.keys():
        if member in after.required:
            detail = f"the new attribute {member} of {name} is mandatory, which events until now do not have: {RULE_3}"
            yield _refused((*path, "properties", member), detail)


def _member_changes(before: Shape, after: Shape, place: tuple[Any, ...], what: str) -> Iterator[Problem]:
    if before.allows("array") != after.allows("array"):
        was, now = ("multiple", "unique") if before.allows("array") else ("unique", "multiple")
        yield _refused(place, f"{what} was {was} and becomes {now}: {RULE_3}")
    elif before.domain != after.domain or before.types != after.types:
        yield _refused(place, f"{what} has another domain: {RULE_1}")
    elif (before.fewest, before.most, before.distinct) != (after.fewest, after.most, after.distinct):
        yield _refused(place, f"{what} has other bounds on its number of values: {RULE_1}")
    elif before.items is not None and after.items is not None:
        yield from _member_changes(before.items, after.items, (*place, "items"), what)
    elif before.items != after.items:
        yield _refused((*place, "items"), f"{what} has another domain: {RULE_1}")
    yield from _changes(before, after, place, what)


def _refused(path: tuple[Any, ...], detail: str) -> Problem:
    return problem_at(path, "not-an-extension", detail)


# ── event schemas ─────────────────────────────────────────────────────────────────────────────────────────────────────

if TYPE_CHECKING:  # attributes are built of event types
    from kindcast.semantic.vocabulary.attributes import AttributeScheme


MOST_TYPES = 1_000
"""Event types of one vocabulary."""
CACHED_VIEWS = 1_024
"""Views kept: as many combinations of types as a stream may have at once."""


class EventSchemas:
    """Event types by name. Immutable but for a cache of views; false where nothing is declared."""

    def __init__(self, documents: Mapping[str, Any] | None = None) -> None:
        """`documents`: event type → JSON Schema. Raises `InvalidDeclaration` with every problem of every document, and
        for every attribute about which two types disagree. Linear in the documents."""
        documents = documents or {}
        if not isinstance(documents, Mapping):
            raise InvalidDeclaration("schemas are an object: name of an event type to JSON Schema")
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
        self._views: dict[frozenset[str], View] = {}
        self._having: dict[str, set[str]] | None = None

    def __bool__(self) -> bool:
        return bool(self.types)

    def owned_domains(self) -> dict[str, tuple[str, Domain]]:
        """Every attribute of some type: name → (the first type that has it, its domain)."""
        return {name: (self.owners[name], domain) for name, domain in self.domains.items()}

    def view(self, types: frozenset[str]) -> View | None:
        """The view of those of `types` that are declared; None if none is. One look-up for combinations seen lately."""
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
        """Attribute, or one above it (rule 2) → the types that have it. `attributes` is the scheme of the same
        vocabulary. Worked out once."""
        if self._having is None:
            having: dict[str, set[str]] = {}
            for type, uses in self.uses.items():
                for name in uses:
                    for upper in attributes.broader(name):
                        having.setdefault(upper, set()).add(type)
            self._having = having
        return self._having

    def _conflicts(self, types: Iterable[EventType]) -> Iterable[Problem]:
        """Fills `domains`; yields what two types say differently."""
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
