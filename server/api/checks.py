"""Routes that help to write an expression: its mistakes, its meaning, and completions."""

import re
from collections.abc import Iterator
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from kindcast.semantic import InvalidSubscription, Vocabulary
from kindcast.semantic.language import attribute_text, is_keyword, plain_words, quoted_string, to_tree
from kindcast.semantic.subscriptions import SeenAttributes, advise, compile_expression
from kindcast.server.api.problem_types import Problem, as_document, problem_of
from kindcast.server.api.requests import (
    AppBroker,
    AppCaller,
    AppEventReader,
    AppSettings,
    Language,
    answer,
    body_schema,
    json_object,
    only_members,
    reader_of,
)
from kindcast.server.observation import attributes_seen, recent_attributes, unknown_terms
from kindcast.server.worker_threads import run_in_turn

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["subscriptions"])

CHECK = {
    "type": "object",
    "required": ["expression"],
    "properties": {
        "expression": {"type": "string", "description": "The text before and after the cursor."},
        "position": {
            "type": ["integer", "null"],
            "minimum": 0,
            "description": "Characters before the cursor, for completions.",
        },
    },
    "additionalProperties": False,
    "example": {"expression": "target isa Comp", "position": 15},
}

MAX_TEXT = 65_536
COMPLETIONS = 12

COMPARISONS: Final = ("isa", "is", "below", "=", "!=", "<", "<=", ">", ">=", "in", "between", "exists", "missing")
TEXT_TESTS: Final = ("startswith", "endswith", "contains", "matches")
JOINTS: Final = ("and", "or")
UNITS: Final = ("USD", "EUR", "degC", "degF", "kg", "g", "m", "km", "s", "h", "kW", "Pa", "percent")

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"?|<[^>\s]*>?|[<>!]?=|[<>(),\[\]]|[^\s()<>=!,\[\]"]+')
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")


@router.post("/check", summary="Check an expression", openapi_extra=body_schema(CHECK))
async def check(
    request: Request,
    broker: AppBroker,
    caller: AppCaller,
    reader: AppEventReader,
    settings: AppSettings,
    lang: Language = "en",
) -> Response:
    """Returns the meaning of an expression, or its mistakes with their places. With `position`, returns completions for
    that place. Nothing is stored, and a mistake is no error of this request: see `valid`."""
    body = await json_object(request, settings)
    text, position = body.get("expression"), body.get("position")
    only_members(body, ("expression", "position"))
    if not isinstance(text, str) or len(text) > MAX_TEXT:
        raise Problem("invalid-request", f"send `expression`, a text of at most {MAX_TEXT:,} characters")
    if position is not None and (type(position) is not int or not 0 <= position <= len(text)):
        raise Problem("invalid-request", "`position` must be a number of characters within the text")
    vocabulary, operators = broker.vocabulary, broker.state.operators.available
    seen = await recent_attributes(broker, reader, caller.roles)
    told = await run_in_turn(lambda: _checked(text, vocabulary, operators, lang, seen), len(text), caller.owner)
    if position is not None:
        names = list(broker.state.operators.known)

        def completed() -> list[dict[str, Any]]:
            return completions(text[:position], vocabulary, attributes_seen(seen, vocabulary), names, lang)

        told["completions"] = await run_in_turn(completed, len(text), caller.owner)
    return answer(told | {"vocabulary_version": vocabulary.version})


@router.get("/terms/unknown", summary="What nobody understood", tags=["concepts"])
async def unknown(broker: AppBroker, caller: AppCaller, reader: AppEventReader, lang: Language = "en") -> Response:
    """Lists terms of at most the newest 500 events, in attributes that hold concepts, that are the name of no
    concept, most frequent first. Each has the most similar names, and as `shown` the labels of their concepts.
    Declare the terms as synonyms, or upload an ontology with them. `properties` lists the properties of graphs in
    these events that no ontology, declaration or live subscription knows."""
    return answer(await unknown_terms(broker, reader, caller.owner, reader_of(caller, broker).view, lang))


def _checked(text: str, vocabulary: Vocabulary, operators: Any, lang: str, seen: SeenAttributes) -> dict[str, Any]:
    try:
        compiled = compile_expression(text, vocabulary, operators)
    except InvalidSubscription as error:
        document = as_document(problem_of(error))
        return {"valid": False, "errors": document.get("errors", []), "detail": document["detail"]}

    def label(iri: str) -> str:
        concept = vocabulary.concept(iri)
        return iri if concept is None else vocabulary.label(concept, lang)

    tree = to_tree(compiled.expression)
    return {
        "valid": True,
        "errors": [],
        "canonical": compiled.canonical,
        "where": tree,
        "words": plain_words(tree, label, lang),
        "clauses": compiled.clause_count,
        "cost": compiled.cost,
        "notes": [
            {"code": n.code, "attribute": n.attribute, "detail": n.detail}
            for n in dict.fromkeys((*compiled.notes, *advise(compiled, vocabulary, seen)))
        ],
    }


def completions(
    before: str, vocabulary: Vocabulary, attributes: list[str], operators: list[str], lang: str
) -> list[dict[str, Any]]:
    """Returns the completions of `before`. `insert` replaces the last `replace` characters."""
    found = list(_TOKEN.finditer(before))
    open_token = found[-1] if found and found[-1].end() == len(before) and not before.endswith(("(", ",")) else None
    word = open_token.group() if open_token is not None else ""
    tokens = [each.group() for each in (found[:-1] if open_token is not None else found)]
    last = tokens[-1].lower() if tokens else ""
    size, bare = len(word), word.strip('"')

    def offer(names: Iterator[str] | list[str] | tuple[str, ...], kind: str) -> list[dict[str, Any]]:
        lowered = bare.lower()
        fitting = [name for name in names if name.lower().startswith(lowered) and name != word]
        return [{"insert": name, "label": name, "kind": kind, "replace": size} for name in fitting]

    if last in ("isa", "is", "below") or (last in ("(", ",", "or") and _asks_for_kinds(tokens)):
        return _concepts(bare, size, vocabulary, lang)
    if not tokens or last in (*JOINTS, "not", "("):
        calls = [f"{name}(" for name in operators]
        return [
            *_attributes(bare, word, vocabulary, attributes, lang),
            *offer(("not", "some", "every"), "keyword"),
            *offer(calls, "operator"),
        ][:COMPLETIONS]
    if _NUMBER.fullmatch(last) and len(tokens) > 1:
        return [*offer(JOINTS, "keyword"), *offer(UNITS, "unit")][:COMPLETIONS]
    if last in ("=", "!=", "<", "<=", ">", ">=", "in", "between", *TEXT_TESTS):
        return []
    if (len(tokens) > 1 and tokens[-2].lower() in (*COMPARISONS, *TEXT_TESTS)) or last in ("exists", "missing", ")"):
        return offer(JOINTS, "keyword")
    if len(tokens) > 2 and _NUMBER.fullmatch(tokens[-2]):
        return offer(JOINTS, "keyword")
    return offer((*COMPARISONS, *TEXT_TESTS), "comparison")


def _attributes(part: str, word: str, vocabulary: Vocabulary, attributes: list[str], lang: str) -> list[dict[str, Any]]:
    """Returns attributes that begin with the part, or whose property has such a label, with a description of the
    property."""
    part = part.lower()
    offered = []
    for name in attributes:
        told = vocabulary.attributes.described(name, lang)
        label = (told or {}).get("label")
        if name != word and (name.lower().startswith(part) or (label is not None and label.lower().startswith(part))):
            about = {} if told is None else {"matched": label, "lang": None, "property": told}
            insert = attribute_text(name)
            offered.append({"insert": insert, "label": name, "kind": "attribute", "replace": len(word)} | about)
    return sorted(offered, key=lambda each: not each["label"].lower().startswith(part))


def _asks_for_kinds(tokens: list[str]) -> bool:
    """Whether the innermost open bracket belongs to `in`, `isa` or a similar word."""
    depth = 0
    for place in range(len(tokens) - 1, 0, -1):
        depth += {")": 1, "(": -1}.get(tokens[place], 0)
        if depth < 0:
            return tokens[place - 1].lower() in ("isa", "is", "below")
    return False


def _concepts(part: str, size: int, vocabulary: Vocabulary, lang: str) -> list[dict[str, Any]]:
    """Returns concepts with the part in a label of any language. If nothing is written yet, returns the roots of the
    hierarchy. For the label of a deprecated concept, the label of its replacement is inserted."""
    listed: list[tuple[str, str | None, str | None]]
    if not part:
        listed = [(vocabulary.iri(each), None, None) for each in vocabulary.roots[:COMPLETIONS]]
    else:
        hits = vocabulary.search(part, limit=COMPLETIONS)
        listed = [(hit["iri"], hit["label"], hit["lang"]) for hit in hits]
    offered = []
    for iri, matched, language in listed:
        concept = vocabulary.concept(iri)
        if concept is not None:
            name = vocabulary.label(concept, lang)
            chosen = matched if matched and not vocabulary.resolve(matched).replaced else name
            insert = _written(chosen, vocabulary, concept)
            offered.append({"insert": insert, "label": name, "matched": matched, "lang": language, "iri": iri})
    return [{**each, "kind": "concept", "replace": size} for each in offered]


def _written(name: str, vocabulary: Vocabulary, concept: Any) -> str:
    """Returns the text for a concept in an expression: the name if it means only this concept, else the IRI."""
    if vocabulary.resolve(name).candidates != (concept,):
        return f"<{vocabulary.iri(concept)}>"
    return name if re.fullmatch(r"[^\W\d]\w*", name) and not is_keyword(name) else quoted_string(name)
