"""How publishers extend the shared schema without conflict: the four rules of Le Subscribe, section 2.2.

    1  domain creation            a new domain (`$defs`), with its order
    2  attribute creation         a new attribute, with its domain
    3  event schema extension     a type gets another attribute, optional, which it did not have
    4  event schema creation      a new event type with its attributes

Whatever else changes a type that is in use is refused, and the problem names the rule in whose way it is: another
publisher's events or somebody's subscription may rest on it. An administrator may still replace a type as a whole.
"""

from collections.abc import Iterator
from typing import Any

from semantic.errors import Problem
from semantic.flatten import problem_at
from semantic.schemas.records import EventType, Shape

__all__ = ["extension_problems"]

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
