"""Documents of event types, what they promise together, and how they may change; every mistake is told."""

from typing import Any

import pytest

from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.vocabulary.event_schemas import (
    DEEPEST,
    MOST_NODES,
    EventSchemas,
    extension_problems,
    read_event_type,
)
from kindcast.semantic.vocabulary.event_types import view_of


def problems_of(document: Any, others: dict[str, Any] | None = None) -> dict[str, str]:
    """Place → what is wrong there."""
    with pytest.raises(InvalidDeclaration) as caught:
        EventSchemas({**(others or {}), "t": document})
    return {str(problem.at): problem.detail for problem in caught.value.problems}


def nested(levels: int) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": nested(levels - 1)}} if levels else {"type": "string"}


# ── documents ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_document_gives_attributes_with_dotted_names_and_their_marks() -> None:
    """Objects nest, arrays are multiple; what stands in an optional object is optional."""
    document = {
        "required": ["price", "seller"],
        "properties": {
            "price": {"type": "number", "x-kindcast-unit": "USD"},
            "seller": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "age": {}}},
            "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}},
            "tags": {"type": ["array", "string"], "items": {"type": "string"}},
        },
    }
    uses = read_event_type("t", document).uses
    marks = {name: (use.mandatory, use.multiple) for name, use in uses.items()}
    assert marks == {
        "price": (True, False),
        "seller.name": (True, False),
        "seller.age": (False, True),
        "lines.sku": (False, True),
        "tags": (False, True),
    }
    assert uses["price"].domain.unit == "USD"
    assert uses["tags"].domain.types == {"string"}


@pytest.mark.parametrize(
    ("node", "place", "word"),
    [
        ({"oneOf": []}, "/properties/a/oneOf", "oneOf is not supported"),
        ({"type": "text"}, "/properties/a/type", "type is one of"),
        ({"type": 5}, "/properties/a/type", "name of a JSON type"),
        ({"minimum": "1"}, "/properties/a/minimum", "is a number"),
        ({"minLength": -1}, "/properties/a/minLength", "whole number"),
        ({"pattern": "(a)\\1"}, "/properties/a/pattern", "not supported"),
        ({"format": "email"}, "/properties/a/format", "date-time is"),
        ({"enum": []}, "/properties/a/enum", "1 to 1000"),
        ({"enum": [{}]}, "/properties/a/enum", "strings, numbers"),
        ({"enum": ["x"], "type": "array"}, "/properties/a/enum", "no member"),
        ({"enum": [1], "const": 1}, "/properties/a/const", "leave one out"),
        ({"x-kindcast-orders": []}, "/properties/a/x-kindcast-orders", "no annotation"),
        ({"enum": [1, 2], "x-kindcast-order": "listed"}, "/properties/a/x-kindcast-order", "strings"),
        ({"enum": ["x"], "x-kindcast-order": [["x", "y"]]}, "/properties/a/x-kindcast-order", "not a member"),
        (
            {"enum": ["x", "y"], "x-kindcast-order": [["x", "y"], ["y", "x"]]},
            "/properties/a/x-kindcast-order",
            "has a cycle",
        ),
        ({"x-kindcast-concept": 5}, "/properties/a/x-kindcast-concept", "IRI"),
        ({"x-kindcast-unit-from": "u"}, "/properties/a/x-kindcast-unit-from", "no attribute u"),
        ({"x-kindcast-derived": "b +"}, "/properties/a/x-kindcast-derived", "is wrong"),
        ({"$ref": "http://example.org/x"}, "/properties/a/$ref", "#/$defs/NAME"),
        ({"$ref": "#/$defs/none"}, "/properties/a/$ref", "#/$defs/NAME"),
        ({"$ref": "#/$defs/loop"}, "/properties/a/$ref/$ref", "back to itself"),
        ({"$ref": "#/$defs/good", "type": "string"}, "/properties/a", "beside $ref"),
        ({"additionalProperties": {}}, "/properties/a/additionalProperties", "true or false"),
        ({"required": ["b"]}, "/properties/a/required", "not listed under properties"),
        ({"required": "b"}, "/properties/a/required", "lists names"),
        ({"properties": []}, "/properties/a/properties", "an object"),
        (5, "/properties/a", "a schema must be an object"),
    ],
)
def test_document_with_a_mistake_tells_the_place_and_the_reason(node: Any, place: str, word: str) -> None:
    """A JSON pointer into the document; nothing that is wrong is passed over."""
    definitions = {"loop": {"$ref": "#/$defs/loop"}, "good": {"type": "string"}}
    found = problems_of({"$defs": definitions, "properties": {"a": node}})
    assert word in found[place]


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ([], "/"),
        ({"type": "array"}, "/"),
        ({"$ref": "#/$defs/x"}, "/"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "/$schema"),
        ({"$defs": []}, "/$defs"),
        ({"title": 5}, "/title"),
        ({"properties": {"a.b": {}}}, "/properties/a.b"),
        ({"properties": {"ce": {}}}, "/properties/ce"),
        ({"properties": {"": {}}}, "/properties/"),
        (
            {"properties": {"a": {}, "b": {"x-kindcast-derived": "a * 2"}}, "required": ["b"]},
            "/required",
        ),
    ],
)
def test_document_that_is_no_event_type_is_refused(document: Any, place: str) -> None:
    """The data of an event is an object with named attributes; what is derived cannot be mandatory."""
    assert place in problems_of(document)


def test_document_collects_all_its_mistakes() -> None:
    """One round is enough to mend it."""
    found = problems_of({"properties": {"a": {"type": "text"}, "b": {"allOf": []}, "c": {"minimum": "x"}}})
    assert found.keys() == {"/properties/a/type", "/properties/b/allOf", "/properties/c/minimum"}


@pytest.mark.parametrize(
    "document",
    [
        nested(DEEPEST + 1),
        {"properties": {f"a{number}": {} for number in range(MOST_NODES + 1)}},
        {"properties": {"a": {"enum": [str(number) for number in range(1_001)]}}},
        {"properties": {"a": {"enum": [str(number) for number in range(257)], "x-kindcast-order": "listed"}}},
    ],
)
def test_document_too_large_is_refused(document: dict[str, Any]) -> None:
    """Each place costs a look at each event."""
    assert problems_of(document)


def test_document_that_doubles_by_references_is_refused() -> None:
    """A small document must not describe millions of places."""
    step = {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}, "b": {"$ref": "#/$defs/d0"}}}
    definitions = {"d0": {"type": "string"}}
    for level in range(1, 16):
        under = {"$ref": f"#/$defs/d{level - 1}"}
        definitions[f"d{level}"] = {"type": "object", "properties": {"a": under, "b": under}}  # type: ignore[dict-item]
    found = problems_of({"$defs": definitions, "properties": {"x": {"$ref": "#/$defs/d15"}, "y": step}})
    assert any("divide it" in detail for detail in found.values())


def test_reference_to_the_domain_of_another_type_is_followed() -> None:
    """Rule 1: a domain that one publisher made serves all."""
    schemas = EventSchemas(
        {
            "furniture": {"$defs": {"Material": {"enum": ["oak"]}}, "properties": {}},
            "antiques": {"properties": {"material": {"$ref": "furniture#/$defs/Material"}}},
        }
    )
    assert schemas.domains["material"].members == ("oak",)


# ── types together ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_types_that_disagree_about_an_attribute_are_refused_by_name() -> None:
    """An attribute has one domain; the error names both types and what differs."""
    (detail,) = problems_of(
        {"properties": {"price": {"type": "number", "x-kindcast-unit": "EUR"}}},
        {"offer": {"properties": {"price": {"type": "number", "x-kindcast-unit": "USD"}}}},
    ).values()
    assert "event type 't'" in detail
    assert "event type 'offer'" in detail
    assert "unit is USD there and EUR here" in detail


def test_types_may_differ_about_mandatory_and_multiple() -> None:
    """Those marks are each type's own; together mandatory and multiple go first."""
    schemas = EventSchemas(
        {
            "one": {"properties": {"a": {"type": "string"}}, "required": ["a"]},
            "two": {"properties": {"a": {"type": "array", "items": {"type": "string"}}}},
        }
    )
    (use,) = view_of(schemas.types.values()).uses.values()
    assert (use.mandatory, use.multiple) == (True, True)


def test_view_of_types_nobody_declared_is_none() -> None:
    """Unknown types pass (open mode); a known one among them is checked."""
    schemas = EventSchemas({"t": {}})
    assert schemas.view(frozenset({"x"})) is None
    view = schemas.view(frozenset({"x", "t"}))
    assert view is not None
    assert view.types == ("t",)


# ── extension ───────────────────────────────────────────────────────────────────────────────────────────────────────

BEFORE: dict[str, Any] = {
    "properties": {"a": {"type": "string"}, "b": {"enum": ["x", "y"], "x-kindcast-order": "listed"}},
    "required": ["a"],
    "additionalProperties": False,
}


def changed(**properties: Any) -> dict[str, Any]:
    return {**BEFORE, "properties": {**BEFORE["properties"], **properties}}


@pytest.mark.parametrize(
    "after",
    [
        BEFORE,
        changed(c={"type": "number"}),
        changed(c={"type": "array", "items": {"type": "number"}}),
        {**BEFORE, "title": "A title", "$defs": {"New": {"type": "string"}}},
        changed(a={"type": "string", "description": "in other words"}),
    ],
)
def test_extension_by_the_four_rules_is_allowed(after: dict[str, Any]) -> None:
    """New optional attributes, new domains, other words for people."""
    assert extension_problems(read_event_type("t", BEFORE), read_event_type("t", after)) == []


@pytest.mark.parametrize(
    ("after", "place", "rule"),
    [
        ({"properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}, "b", "rule 3"),
        (changed(a={"type": "number"}), "a", "rule 1"),
        (changed(b={"enum": ["x", "y", "z"], "x-kindcast-order": "listed"}), "b", "rule 1"),
        (changed(b={"enum": ["x", "y"], "x-kindcast-order": [["y", "x"]]}), "b", "rule 1"),
        (changed(a={"type": "array", "items": {"type": "string"}}), "a", "rule 3"),
        ({**BEFORE, "required": []}, "a", "rule 3"),
        ({**changed(c={}), "required": ["a", "c"]}, "c", "rule 3"),
        (changed(b={"$ref": "#/$defs/B"}) | {"$defs": {"B": {"enum": ["x"]}}}, "b", "rule 1"),
    ],
)
def test_extension_that_changes_what_is_there_is_refused_by_its_rule(
    after: dict[str, Any], place: str, rule: str
) -> None:
    """Another publisher's events or a subscription may rest on it."""
    (problem,) = extension_problems(read_event_type("t", BEFORE), read_event_type("t", after))
    assert str(problem.at) == f"/properties/{place}"
    assert rule in problem.detail


def test_extension_that_opens_a_closed_type_is_refused() -> None:
    """Whoever relies on R3 keeps it."""
    after = {**BEFORE, "additionalProperties": True}
    (problem,) = extension_problems(read_event_type("t", BEFORE), read_event_type("t", after))
    assert str(problem.at) == "/additionalProperties"
