"""Routes that match and explain without publishing: one event, or the stored events in a backtest. No match is stored.

A backtest evaluates an expression over the stored events. Each backtest is a job.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response
from sqlalchemy import Row

from kindcast.semantic import InvalidEvent, InvalidSubscription, Note
from kindcast.semantic.events import MOST_OF_ONE
from kindcast.semantic.explanations import as_json, explain
from kindcast.semantic.ontology import Progress
from kindcast.semantic.subscriptions import compile_expression, restore_expression
from kindcast.semantic.units import parse_instant
from kindcast.semantic.vocabulary import View
from kindcast.server.api.access import services_of
from kindcast.server.api.jobs import AppJobs
from kindcast.server.api.ontologies import MOST
from kindcast.server.api.operators import AppLateMatching
from kindcast.server.api.problem_types import Described, Problem, as_document, problem_of
from kindcast.server.api.requests import (
    SUBSCRIPTION_ID,
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
    unless_left,
)
from kindcast.server.backtests import Asked, Backtests
from kindcast.server.broker import Broker
from kindcast.server.broker.publishing import EventMatches
from kindcast.server.clock import CLOCK
from kindcast.server.cloudevents import (
    DecodedEvent,
    EventReader,
    ReadingBudget,
    arrived,
    event_at,
    says_several,
)
from kindcast.server.errors import UnknownSubscription
from kindcast.server.late_matching import LateMatchingService, decide_now, explained
from kindcast.server.security.permissions import Reader, check_visible
from kindcast.server.settings import Settings
from kindcast.server.store.subscriptions import find_subscription
from kindcast.server.strict_json import decode
from kindcast.server.worker_threads import run_to_the_end

__all__ = ["backtest_router", "router"]

T = TypeVar("T")

EVENTS_AT_A_TIME = 200
"""The number of results that are written before the event loop turns to other requests."""

router = APIRouter(prefix="/v1", tags=["matching"])

OPERATORS_SHARE = 0.9
"""The part of `max_match_seconds` in which operators may answer. The rest is for telling which ones have not."""

MOST_EXPLAINED = 100
"""The maximum number of events of one document that are explained."""

MATCH = {
    "type": "object",
    "properties": {
        "event": {"type": "object", "description": "A CloudEvent (it has specversion), or the data of one."},
        "events": {"type": "array", "items": {"type": "object"}},
    },
    "additionalProperties": False,
    "example": {"event": {"target": "laptop", "price": 350}},
}
EXPLAIN = {
    "type": "object",
    "required": ["event", "subscription"],
    "properties": {
        "event": {"type": "object", "description": "A CloudEvent (it has specversion), or the data of one."},
        "subscription": {"description": "The id of a subscription, or an expression as text or tree."},
    },
    "additionalProperties": False,
    "example": {"event": {"target": "laptop", "price": 450}, "subscription": "target isa Computer and price <= 400"},
}


@router.post("/match", summary="Who would match?", openapi_extra=body_schema(MATCH))
async def match(
    request: Request,
    broker: AppBroker,
    caller: AppCaller,
    reader: AppEventReader,
    settings: AppSettings,
    late_matching: AppLateMatching,
) -> Response:
    """Returns the subscriptions that an event, or each of several events, would match if it were published now, with
    bindings. For a document with several events, `events` has each event with its id, and `matches` has all matches,
    with the id as `event`. If operators are called, `operators` lists the calls in their order, with the reason of
    each, and how many calls were saved. If matching is sharded, the matches are those of the shards at this server,
    each at its present place in the log: `shards` has their numbers, and `of` is the total."""
    body = await json_object(request, settings)
    only_members(body, ("event", "events"))
    if ("event" in body) == ("events" in body):
        raise Problem("invalid-request", "send one event as `event`, or a list of them as `events`")
    return await while_wanted(
        request, settings, _matched(body, broker, reader, settings, late_matching, reader_of(caller, broker))
    )


async def _matched(
    body: dict[str, Any],
    broker: Broker,
    reader: EventReader,
    settings: Settings,
    late_matching: LateMatchingService,
    sight: Reader,
) -> Response:
    """`sight` is the reader who sent the request. Subscriptions with attributes that are hidden from it are left
    out."""
    until = _operators_until(settings)
    if "event" in body:
        with event_at("/event"):
            document = reader.from_object(_without(body["event"], sight.view, explained=False))
            (found,) = await broker.match([document.event])
            told = await _of_document(
                document, found, broker, reader, late_matching, broker.reading_budget(), sight, until
            )
            if found.problem is not None and "problem" in told:
                raise document.as_sent(found.problem)
        return answer(told | {"vocabulary_version": broker.vocabulary.version})
    items = body["events"]
    if not isinstance(items, list):
        raise Problem(
            "invalid-request", "`events` must be a list", errors=[{"pointer": "/events", "detail": "no list"}]
        )
    if len(items) > settings.max_events_per_request:
        raise Problem("too-many-events", f"send at most {settings.max_events_per_request:,} events at a time")
    decoded = await run_to_the_end(lambda: [_decoded(reader, item, sight.view) for item in items])
    results = iter(await broker.match([each.event for each in decoded if isinstance(each, DecodedEvent)]))
    budget, described = broker.reading_budget(), Described()
    listed: list[dict[str, Any]] = []
    for each in decoded:
        found = next(results) if isinstance(each, DecodedEvent) else EventMatches([], problem=each)
        if isinstance(each, DecodedEvent) and (found.problem is None or says_several(found.problem)):
            listed.append(await _of_document(each, found, broker, reader, late_matching, budget, sight, until))
        elif found.problem is not None:
            problem = each.as_sent(found.problem) if isinstance(each, DecodedEvent) else found.problem
            listed.append({"matches": [], "problem": described.document(problem)})
        if not len(listed) % EVENTS_AT_A_TIME:
            await asyncio.sleep(0)
    return answer({"results": listed, "vocabulary_version": broker.vocabulary.version})


@router.post("/explain", summary="Explain why an event matches or does not match", openapi_extra=body_schema(EXPLAIN))
async def explain_verdict(
    request: Request,
    broker: AppBroker,
    caller: AppCaller,
    reader: AppEventReader,
    settings: AppSettings,
    late_matching: AppLateMatching,
    lang: Language = "en",
    index: Annotated[bool, Query(description="Whether to tell what the index did with the event.")] = True,
) -> Response:
    """Explains the result of one subscription (an id or an expression) for one event. For each predicate: the published
    value, how it was read, the path in the hierarchy, and whether the predicate holds. It also explains the search of
    the event in the index of all subscriptions, unless matching is sharded. For a document with several events,
    `events` has the result for each, with its id."""
    body = await json_object(request, settings)
    asked = _asked_subscription(body)
    view = reader_of(caller, broker).view
    with event_at("/event"):
        document = reader.from_object(_without(body["event"], view, explained=True))
    row = await _row_of(asked, broker)
    vocabulary, operators = broker.vocabulary, broker.state.operators.known
    with event_at("/event"):
        parts = await reader.take_apart(document, vocabulary, broker.reading_budget())
    if len(parts) > MOST_EXPLAINED:
        detail = f"the document holds {len(parts):,} events: at most {MOST_EXPLAINED} can be explained at a time"
        raise Problem("too-many-events", detail)
    now = CLOCK.now()
    published = [arrived(each.event, now) for each in parts]

    def tell() -> list[dict[str, Any]]:
        expression = asked if row is None else restore_expression(row.tree, vocabulary, operators)
        if view is not None:
            tree = compile_expression(asked, vocabulary, operators).tree if row is None else row.tree
            check_visible(view, tree, explained=True)
        return [
            explain(vocabulary, expression, each, language=lang, operators=operators.values()) for each in published
        ]

    size, until = len(await request.body()), _operators_until(settings)
    telling = explained(late_matching.late_matchers, tell, size, caller.owner, until)
    try:
        told = await while_wanted(request, settings, telling)
    except InvalidSubscription as error:
        raise error.below("/subscription") from None
    except InvalidEvent as error:
        raise (parts[0].as_sent(error) if len(parts) == 1 else error).below("/event") from None
    for said, each in zip(told, published, strict=True):
        if index and view is None and settings.shards is None:  # it reveals other subscriptions
            said["index"] = await broker.explain_index(each)
    said = told[0] if len(parts) == 1 else _of_all(parts, told)
    if row is not None:
        said |= {"subscription": row.id, "status": row.status}
    return answer(said | {"vocabulary_version": vocabulary.version})


def _asked_subscription(body: dict[str, Any]) -> str | dict[str, Any]:
    """Returns the subscription that is to be explained. Raises `Problem` if the body is no question."""
    only_members(body, ("event", "subscription"))
    for name in ("event", "subscription"):
        if name not in body:
            raise Problem(
                "invalid-request", f"`{name}` is missing", errors=[{"pointer": f"/{name}", "detail": "this is missing"}]
            )
    asked = body["subscription"]
    if not isinstance(asked, str | dict):
        detail = "`subscription` must be the id of a subscription, or an expression as text or tree"
        raise Problem("invalid-request", detail, errors=[{"pointer": "/subscription", "detail": "neither"}])
    return asked


async def _row_of(asked: str | dict[str, Any], broker: Broker) -> Row[Any] | None:
    """Returns the row of a subscription; None if `asked` is an expression. Raises `UnknownSubscription`."""
    if not isinstance(asked, str) or not SUBSCRIPTION_ID.fullmatch(asked):
        return None
    row = await broker.read(lambda connection: find_subscription(connection, asked))
    if row is None:
        raise UnknownSubscription(asked)
    return row


def _of_all(parts: Sequence[DecodedEvent], told: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the explanation of a document with several events: the one of each, under a common result."""
    matching, undecided = (sum(each["matches"] is verdict for each in told) for verdict in (True, None))
    of_them = f"{matching} match, and {undecided} are undecided" if undecided else f"{matching} match"
    return {
        "matches": True if matching else None if undecided else False,
        "summary": f"The document holds {len(parts)} events, of which {of_them}.",
        "canonical": told[0]["canonical"],
        "clauses": [],
        "notes": [],
        "events": [{"id": each.id} | one for each, one in zip(parts, told, strict=True)],
    }


def _operators_until(settings: Settings) -> float:
    return asyncio.get_running_loop().time() + OPERATORS_SHARE * settings.max_match_seconds


async def while_wanted(request: Request, settings: Settings, work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of `work`. It is cancelled if its client leaves or it takes too long. Raises
    `ClientDisconnect`, `Problem` (422)."""
    try:
        async with asyncio.timeout(settings.max_match_seconds) as deadline:
            return await unless_left(request, work)
    except TimeoutError:
        if not deadline.expired():
            raise
        detail = f"matching takes more than {settings.max_match_seconds:g} s: send fewer events"
        raise Problem("too-costly", detail) from None


async def _of_document(
    document: DecodedEvent,
    found: EventMatches,
    broker: Broker,
    reader: EventReader,
    late_matching: LateMatchingService,
    budget: ReadingBudget,
    sight: Reader,
    until: float,
) -> dict[str, Any]:
    """Returns the result of an event. For a document with several events, returns the result of each, and all matches
    together."""
    if not says_several(found.problem):
        if found.problem is not None:
            found = replace(found, problem=document.as_sent(found.problem))
        return await _with_operators(await _seen(found, broker, sight), broker, late_matching, until)
    parts = await reader.take_apart(document, broker.vocabulary, budget)
    of_parts = await broker.match([each.event for each in parts])
    told = [
        {"id": each.id} | await _with_operators(await _seen(result, broker, sight), broker, late_matching, until)
        for each, result in zip(parts, of_parts, strict=True)
    ]
    matches = [{"event": each["id"], **one} for each in told for one in each["matches"]]
    return {"matches": matches, "notes": [], "events": told}


async def _seen(found: EventMatches, broker: Broker, sight: Reader) -> EventMatches:
    """Removes what would reveal hidden values: subscriptions that use them, and all candidates that operators must
    decide."""
    if sight.view is None:
        return found
    numbers = await broker.numbers_of([each.subscription for each in found.matches])
    visible = await broker.read(lambda connection: sight.visible(connection, numbers))
    shown = {numbers[each] for each in visible}
    return EventMatches(
        [each for each in found.matches if each.subscription in shown],
        found.notes,
        problem=found.problem,
        shards=found.shards,
    )


async def _with_operators(
    found: EventMatches, broker: Broker, late_matching: LateMatchingService, until: float
) -> dict[str, Any]:
    """Returns the result, with the answers of operators for the candidates that come before the time `until` of the
    event loop."""
    if not found.undecided or found.canonical is None:
        return _result(found, broker)
    verdicts, plan = await decide_now(
        late_matching.late_matchers, broker.vocabulary, found.canonical, found.undecided, until
    )
    open = [
        {"subscription": id, "kind": failure.kind, "reason": failure.reason}
        for id, failure in verdicts.undecided.items()
    ]
    whole = EventMatches([*found.matches, *verdicts.matched.values()], found.notes, shards=found.shards)
    return _result(whole, broker) | {"undecided": open, "operators": plan}


def _without(event: Any, view: View | None, *, explained: bool) -> Any:
    """Returns an event, or the data of one, without hidden attributes."""
    if view is None or not isinstance(event, dict):
        return event
    whole = "specversion" in event
    body = msgspec.json.encode(event if whole else {"data": event}).decode()
    told = decode((view.explainable(body) if explained else view.matchable(body)).encode())
    return told if whole else told.get("data", {})


def _decoded(reader: EventReader, item: Any, view: View | None) -> DecodedEvent | InvalidEvent:
    try:
        return reader.from_object(_without(item, view, explained=False), most=MOST_OF_ONE)
    except InvalidEvent as error:
        return error.with_traceback(None)  # its frames would keep the event in memory


def _result(found: EventMatches, broker: Broker) -> dict[str, Any]:
    if found.problem is not None:
        return {"matches": [], "problem": as_document(problem_of(found.problem))}
    listed = []
    for each in found.matches:
        one: dict[str, Any] = {
            "subscription": each.subscription,
            "bindings": [{name: as_json(value) for name, value in binding} for binding in each.bindings],
        }
        if each.bindings_truncated:
            one["bindings_truncated"] = True
        listed.append(one)
    covers = {} if found.shards is None else {"shards": {"asked": found.shards, "of": broker.settings.shards}}
    return {"matches": listed, "notes": [_note(note) for note in found.notes], **covers}


def _note(note: Note) -> dict[str, str]:
    return {"code": note.code, "attribute": note.attribute, "detail": note.detail}


# ── backtests ────────────────────────────────────────────────────────────────────────────────────────────────────────

backtest_router = APIRouter(prefix="/v1/backtests", tags=["backtests"])

BACKTEST = {
    "type": "object",
    "properties": {
        "expression": {"type": "string", "description": "A subscription as text."},
        "where": {"type": "object", "description": "The subscription as a tree."},
        "since": {
            "type": "string",
            "format": "date-time",
            "description": "Only events accepted at or after this time.",
        },
        "until": {"type": "string", "format": "date-time", "description": "Only events accepted before this time."},
        "ontologies": {
            "type": "object",
            "additionalProperties": {"type": "integer", "minimum": 1, "maximum": MOST},
            "description": "Versions of ontologies to use instead of the active versions, by name.",
        },
    },
    "additionalProperties": False,
    "example": {"expression": "target isa Computer and price <= 400", "ontologies": {"shop": 1}},
}


async def _backtests(request: Request) -> Backtests:
    backtests: Backtests = services_of(request).backtests
    return backtests


@backtest_router.post(
    "", summary="Count the stored events that match", status_code=202, openapi_extra=body_schema(BACKTEST)
)
async def start(
    request: Request,
    backtests: Annotated[Backtests, Depends(_backtests)],
    jobs: AppJobs,
    settings: AppSettings,
    caller: AppCaller,
    lang: Language = "en",
) -> Response:
    """Begins to match an expression against the stored events. The result has the number of matches, their days, ten
    samples with explanations, and how many events each part of the expression excludes. Mistakes in the expression are
    reported at once."""
    body = await json_object(request, settings)
    asked = replace(_asked(body, lang), roles=caller.roles)
    try:
        await backtests.check(asked, caller.owner)
    except InvalidSubscription as error:
        raise error.below("/where") from None

    room = ExitStack()
    room.enter_context(backtests.room())

    async def work(progress: Progress) -> dict[str, Any]:
        with room:
            return await backtests.run(asked, progress)

    job = await jobs.start(work, asked.roles)
    return answer(job.as_json(), 202, {"Location": f"/v1/backtests/{job.id}"})


@backtest_router.get("/{id}", summary="Progress of a backtest")
async def get_backtest(id: str, jobs: AppJobs, caller: AppCaller) -> Response:
    """Returns the backtest: `running` with its progress, `done` with the `result`, or `failed` with the `problem`."""
    return answer(await jobs.find(id, caller))


def _asked(body: dict[str, Any], language: str) -> Asked:
    only_members(body, BACKTEST["properties"])  # type: ignore[arg-type]
    expression = body.get("expression", body.get("where"))
    if ("expression" in body) == ("where" in body) or not isinstance(expression, str | dict):
        raise Problem("invalid-request", "send `expression`, a text, or `where`, a tree")
    return Asked(
        expression=expression,
        versions=_versions(body.get("ontologies") or {}),
        since=_moment(body, "since"),
        until=_moment(body, "until"),
        language=language,
    )


def _versions(said: Any) -> Mapping[str, int]:
    if isinstance(said, dict) and all(type(version) is int and 1 <= version <= MOST for version in said.values()):
        return said
    errors = [{"pointer": "/ontologies", "detail": "an object of versions by name is expected"}]
    raise Problem("invalid-request", "`ontologies` must be an object from names to versions", errors=errors)


def _moment(body: dict[str, Any], name: str) -> float | None:
    said = body.get(name)
    if said is None:
        return None
    instant = parse_instant(said) if isinstance(said, str) else None
    if instant is None:
        errors = [{"pointer": f"/{name}", "detail": "no date-time"}]
        detail = f"`{name}` must be a date-time of RFC 3339, such as 2026-01-31T00:00:00Z"
        raise Problem("invalid-request", detail, errors=errors)
    return instant / 1_000_000
