"""What to tell of an impact, as JSON: the terms, attributes, units and words that change, and the subscriptions.

    {"subscriptions": {"live", "changed", "listed": [{"id", "changes": ["target: gains 3"]}]},
     "terms":      {"count", "listed": [{"iri", "label", "test", "subscriptions", "gains", "loses", …}]},
     "attributes": {…}, "units": {…}, "words": {…}, "texts": {…}, "pairs": {…}}

Every list is bounded, and says how many there are.
"""

import json
from collections.abc import Callable
from itertools import islice
from typing import Any

from semantic.footprint import AttributePart, PairPart, Part, TermPart, TextPart, UnitPart, WordPart
from semantic.impact import LISTED, Change, Impact
from semantic.language import parse_tree, to_text
from semantic.vocabulary import Vocabulary

__all__ = ["impact_report"]


def impact_report(impact: Impact, *, limit: int = LISTED) -> dict[str, Any]:
    """`impact` as JSON, with at most `limit` entries a list; those with most subscriptions come first."""
    return {
        "vocabulary_version": {"from": impact.before.version, "to": impact.after.version},
        "subscriptions": {
            "live": impact.live,
            "changed": len(impact.changed),
            "listed": [_subscription(impact, id) for id in impact.changed[:limit]],
        },
        "terms": _listed(impact, TermPart, _term, limit),
        "attributes": _listed(impact, AttributePart, _attribute, limit),
        "units": _listed(
            impact, UnitPart, lambda impact, part, change, _: {"unit": part.unit, **change.details}, limit
        ),
        "words": _listed(
            impact, WordPart, lambda impact, part, change, limit: {"word": part.word} | _words(change, limit), limit
        ),
        "texts": _listed(impact, TextPart, _predicate, limit),
        "pairs": _listed(impact, PairPart, _predicate, limit),
    }


def _listed(
    impact: Impact, kind: type[Any], tell: Callable[[Impact, Any, Change, int], dict[str, Any]], limit: int
) -> dict[str, Any]:
    found = sorted(
        ((part, change) for part, change in impact.changes.items() if isinstance(part, kind)),
        key=lambda pair: (-impact.holders(pair[0]), pair[0]),
    )
    listed = [
        {"subscriptions": impact.holders(part), **tell(impact, part, change, limit)}
        for part, change in islice(found, limit)
    ]
    return {"count": len(found), "listed": listed}


def _term(impact: Impact, part: TermPart, change: Change, limit: int) -> dict[str, Any]:
    said: dict[str, Any] = {
        "iri": part.iri,
        "label": _label(impact.after, part.iri) or _label(impact.before, part.iri),
        "test": part.test,
    }
    if part.relation:
        said["relation"] = {"iri": part.relation, "label": _relation(impact, part.relation)}
    return {
        **said,
        "gains": _concepts(change, "gains", impact.after, limit),
        "loses": _concepts(change, "loses", impact.before, limit),
        **_words(change, limit),
        **change.details,
    }


def _attribute(impact: Impact, part: AttributePart, change: Change, limit: int) -> dict[str, Any]:
    return {"attribute": part.attribute, **_words(change, limit), **change.details}


def _predicate(impact: Impact, part: TextPart | PairPart, change: Change, limit: int) -> dict[str, Any]:
    array = {"array": part.array} if part.array else {}
    return {"predicate": _shown(part), **array, **_words(change, limit), **change.details}


def _shown(part: TextPart | PairPart) -> str:
    return to_text(parse_tree(json.loads(part.predicate)))


def _concepts(change: Change, what: Any, vocabulary: Vocabulary, limit: int) -> dict[str, Any]:
    listed = [{"iri": iri, "label": _label(vocabulary, iri)} for iri in change.listed.get(what, ())[:limit]]
    return {"count": change.counts[what], "concepts": listed}


def _words(change: Change, limit: int) -> dict[str, Any]:
    """Words that newly lead to it, or no longer do; members only where there are any."""
    said: dict[str, Any] = {}
    if change.counts["gains_words"]:
        said["words"] = {
            "count": change.counts["gains_words"],
            "listed": change.listed["gains_words"][:limit],
        }
    if change.counts["loses_words"]:
        said["words_gone"] = {
            "count": change.counts["loses_words"],
            "listed": change.listed["loses_words"][:limit],
        }
    return said


def _subscription(impact: Impact, id: str) -> dict[str, Any]:
    return {"id": id, "changes": [_sentence(impact, part) for part in impact.parts_of(id)]}


def _sentence(impact: Impact, part: Part) -> str:
    """One change in a few words."""
    change = impact.changes[part]
    match part:
        case TermPart(test, iri, relation):
            label = _label(impact.after, iri) or _label(impact.before, iri) or iri
            subject = f"{_relation(impact, relation) if relation else test} {label}"
        case AttributePart(name):
            subject = f"attribute {name}"
        case UnitPart(unit):
            subject = f"unit {unit}"
        case WordPart(word):
            subject = f"the word {word}"
        case TextPart() | PairPart():
            subject = _shown(part)
    said = []
    if "gone" in change.details:
        said.append("gone")
    if "back" in change.details:
        said.append("back")
    if "replaced" in change.details:
        said.append(f"read as {change.details['replaced']['to']}")
    if "declaration" in change.details:
        said.append("declared otherwise")
    if "measure" in change.details:
        said.append("measured otherwise")
    if "compared" in change.details:
        said.append(f"compares {change.details['compared']}")
    for what, words in (
        ("gains", "gains {}"),
        ("loses", "loses {}"),
        ("gains_words", "gains {} words"),
        ("loses_words", "loses {} words"),
    ):
        if change.counts[what]:  # type: ignore[index]
            said.append(words.format(change.counts[what]))  # type: ignore[index]
    return f"{subject}: {', '.join(said)}"


def _relation(impact: Impact, iri: str) -> str:
    """The label of a relation, where either vocabulary has it."""
    known = impact.after if iri in impact.after.relations else impact.before
    return known.relations.label(iri)


def _label(vocabulary: Vocabulary, iri: str) -> str | None:
    concept = vocabulary.concept(iri)
    return None if concept is None else vocabulary.label(concept)
