"""Routes that search, resolve and browse concepts. They read the active vocabulary, in worker threads: one request of
each client at a time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response

from kindcast.semantic import Vocabulary
from kindcast.semantic.vocabulary import ConceptId
from kindcast.server.api.problem_types import Problem
from kindcast.server.api.requests import (
    AppBroker,
    AppCaller,
    AppEventReader,
    Cursor,
    Language,
    answer,
    page_cursor,
    parse_page_cursor,
    reader_of,
)
from kindcast.server.observation import uses_of
from kindcast.server.worker_threads import run_in_turn

__all__ = ["router"]

router = APIRouter(prefix="/v1/concepts", tags=["concepts"])

MAX_PAGE = 1_000
MAX_ABOVE = 200
MAX_BENEATH = 24
MAX_TERM = 8_192  # characters: the length of the longest IRI that is read

Term = Annotated[str, Query(min_length=1, max_length=MAX_TERM, description="An IRI, CURIE, short form or label.")]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="Concepts at most.")]


@dataclass(frozen=True, slots=True)
class _Browsing:
    """A request for a page of concepts around the only concept that a term means."""

    broker: AppBroker
    caller: AppCaller
    term: Term
    lang: Language = "en"
    limit: Limit = MAX_PAGE
    cursor: Cursor = None

    async def page(self, walk: Callable[[ConceptId], tuple[ConceptId, ...]]) -> Response:
        vocabulary, start = self.broker.vocabulary, parse_page_cursor(self.cursor)

        def look() -> dict[str, Any]:
            concept = _the_one(vocabulary, self.term, self.lang)
            return {"concept": vocabulary.summary(concept, self.lang)} | _page(
                vocabulary, walk(concept), start, self.limit, self.lang
            )

        return answer(await run_in_turn(look, len(self.term), self.caller.owner))


@router.get("", summary="Search concepts")
async def search(
    broker: AppBroker,
    caller: AppCaller,
    q: Annotated[str, Query(min_length=1, max_length=MAX_TERM, description="Part of a label, in any language.")],
    lang: Annotated[str | None, Query(max_length=35, description="Only labels of this language.")] = None,
    labels: Annotated[
        str | None, Query(max_length=35, description="The language of `label`; otherwise that of `lang`, or English.")
    ] = None,
    limit: Limit = 20,
) -> Response:
    """Searches concepts with `q` in a label, best match first. If there is none, returns the most similar ones.
    `matched` is the label that was found."""
    vocabulary = broker.vocabulary

    def look() -> list[dict[str, Any]]:
        found = []
        for hit in vocabulary.search(q, lang=lang, limit=limit):
            concept = vocabulary.concept(hit["iri"])
            label = hit["label"] if concept is None else vocabulary.label(concept, labels or lang or "en")
            found.append({"iri": hit["iri"], "label": label, "matched": hit["label"], "lang": hit["lang"]})
        return found

    return answer({"concepts": await run_in_turn(look, len(q), caller.owner), "vocabulary_version": vocabulary.version})


@router.get("/resolve", summary="What a term means")
async def resolve(broker: AppBroker, caller: AppCaller, term: Term, lang: Language = "en") -> Response:
    """Returns every concept that the term may mean, from the first level with a hit: `iri`, `short`, `label`, `folded`,
    `synonym`. If there are several, the term is ambiguous and a subscription must not use it. Individuals with the same
    name as a single class are listed as `set_aside`. 404 with the most similar names if there is none."""
    vocabulary = broker.vocabulary

    def look() -> dict[str, Any]:
        found = vocabulary.resolve(_bare(term), asked=True)
        if not found.candidates:
            raise _unknown(vocabulary, term)
        return {
            "term": term,
            "level": found.level,
            "ambiguous": len(found.candidates) > 1,
            "candidates": [vocabulary.summary(concept, lang) for concept in found.candidates[:MAX_PAGE]],
            "replaced": [{"iri": old, "by": new} for old, new in found.replaced],
            "set_aside": [vocabulary.iri(concept) for concept in found.set_aside[:MAX_PAGE]],
            "vocabulary_version": vocabulary.version,
        }

    return answer(await run_in_turn(look, len(term), caller.owner))


@router.get("/ancestors", summary="All concepts above a concept")
async def ancestors(asked: Annotated[_Browsing, Depends()]) -> Response:
    """Lists all broader concepts, without the concept itself."""
    return await asked.page(asked.broker.vocabulary.ancestors)


@router.get("/descendants", summary="All concepts beneath a concept")
async def descendants(asked: Annotated[_Browsing, Depends()]) -> Response:
    """Lists all narrower concepts, without the concept itself."""
    return await asked.page(asked.broker.vocabulary.descendants)


@router.get("/parents", summary="The concepts directly above a concept")
async def parents(asked: Annotated[_Browsing, Depends()]) -> Response:
    """Lists the directly broader concepts."""
    return await asked.page(asked.broker.vocabulary.parents)


@router.get("/roots", summary="The roots of the hierarchy")
async def roots(
    broker: AppBroker, caller: AppCaller, lang: Language = "en", limit: Limit = MAX_PAGE, cursor: Cursor = None
) -> Response:
    """Lists the concepts without a broader concept. Those with narrower concepts come first."""
    vocabulary, start = broker.vocabulary, parse_page_cursor(cursor)

    def look() -> dict[str, Any]:
        return _page(vocabulary, vocabulary.roots, start, limit, lang)

    return answer(await run_in_turn(look, 0, caller.owner))


@router.get("/around", summary="The neighbours of a concept")
async def around(broker: AppBroker, caller: AppCaller, term: Term, lang: Language = "en") -> Response:
    """Returns a concept, up to 200 broader concepts and the first 24 narrower concepts as `nodes`, and the steps
    between them as `edges`: pairs of indices, the narrower concept first."""
    vocabulary = broker.vocabulary

    def look() -> dict[str, Any]:
        concept = _the_one(vocabulary, term, lang)
        children = vocabulary.children(concept)
        shown = [concept, *vocabulary.ancestors(concept)[:MAX_ABOVE], *children[:MAX_BENEATH]]
        place = {each: number for number, each in reversed(list(enumerate(shown)))}
        edges = [(place[low], place[high]) for low in place for high in vocabulary.parents(low) if high in place]
        return {
            "concept": vocabulary.summary(concept, lang),
            "nodes": [_placed(vocabulary, each, lang) for each in shown],
            "edges": sorted(edges),
            "children_count": len(children),
            "vocabulary_version": vocabulary.version,
        }

    return answer(await run_in_turn(look, len(term), caller.owner))


@router.get("/usage", summary="Subscriptions to a concept, and recent events about it")
async def usage(
    broker: AppBroker, caller: AppCaller, reader: AppEventReader, term: Term, lang: Language = "en"
) -> Response:
    """Lists live subscriptions and the newest events that name the concept or a narrower concept. It reads at
    most the newest 5,000 subscriptions (4 MB of expressions) and 500 events; `examined` has the actual numbers."""
    vocabulary = broker.vocabulary
    concept = await run_in_turn(lambda: _the_one(vocabulary, term, lang), len(term), caller.owner)
    told = await uses_of(broker, reader, caller.owner, vocabulary, concept, reader_of(caller, broker).view)
    return answer({"concept": vocabulary.summary(concept, lang), **told, "vocabulary_version": vocabulary.version})


@router.get("/children", summary="The concepts directly beneath a concept")
async def children(asked: Annotated[_Browsing, Depends()]) -> Response:
    """Lists the directly narrower concepts."""
    return await asked.page(asked.broker.vocabulary.children)


def _page(vocabulary: Vocabulary, found: Sequence[ConceptId], start: int, limit: int, lang: str) -> dict[str, Any]:
    page = found[start : start + limit]
    end = start + len(page)
    return {
        "concepts": [_placed(vocabulary, each, lang) for each in page],
        "count": len(found),
        "cursor": page_cursor(end) if end < len(found) else None,
        "vocabulary_version": vocabulary.version,
    }


def _the_one(vocabulary: Vocabulary, term: str, lang: str) -> ConceptId:
    """Returns the only concept that the term means. Raises `Problem`: 404 with the most similar names, 409 with the
    candidates of an ambiguous term."""
    candidates = vocabulary.resolve(_bare(term), asked=True).candidates
    if not candidates:
        raise _unknown(vocabulary, term)
    if len(candidates) > 1:
        listed = [{**_short(vocabulary, each, lang), "curie": vocabulary.curie(each)} for each in candidates[:20]]
        detail = f"{term!r} may mean {len(candidates)} concepts: write the CURIE or IRI of one"
        raise Problem("ambiguous-term", detail, candidates=listed)
    return candidates[0]


def _unknown(vocabulary: Vocabulary, term: str) -> Problem:
    nearest = list(vocabulary.suggest(term))
    near = f"; the nearest is {nearest[0]['label']!r}" if nearest else ""
    return Problem("unknown-concept", f"no concept has the name {term[:200]!r}{near}", suggestions=nearest)


def _short(vocabulary: Vocabulary, concept: ConceptId, lang: str) -> dict[str, str]:
    return {"iri": vocabulary.iri(concept), "label": vocabulary.label(concept, lang)}


def _placed(vocabulary: Vocabulary, concept: ConceptId, lang: str) -> dict[str, Any]:
    """Returns a concept as a node of a tree."""
    return {**_short(vocabulary, concept, lang), "children_count": len(vocabulary.children(concept))}


def _bare(term: str) -> str:
    """Removes angle brackets around an IRI, which are allowed as in the language."""
    return term[1:-1] if term.startswith("<") and term.endswith(">") else term
