"""Problem types and error responses: every exception becomes `application/problem+json` (RFC 9457) in this module.

    exception ──table──▶ Problem(code, detail, errors) ──▶ {"type": "https://kindcast.dev/problems/<code>", …}

`PROBLEM_TYPES` lists all codes with status, title and meaning. `type` is stable, `detail` says what to do, `errors`
lists each fault with its `pointer` (JSON) or `line` and `column` (text) and the nearest known names. No stack trace
ever leaves the process.
"""

import http
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
from fastapi import FastAPI, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection

from kindcast.semantic import InvalidEvent, InvalidSubscription, OntologyError, Position, SemanticError
from kindcast.semantic import Problem as Fault
from kindcast.semantic.errors import (
    InconsistentOntology,
    IndexFull,
    InvalidDeclaration,
    ReasonerUnavailable,
    TooCostly,
    UnknownContext,
    UnknownRelation,
    UnsupportedFormat,
)
from kindcast.semantic.events import MOST_PROBLEMS
from kindcast.server import errors
from kindcast.server.answers import ANSWERS
from kindcast.server.cloudevents import BadRequestMode, TooManyEvents, UnknownContent
from kindcast.server.delivery.message import CursorGone, InvalidCursor
from kindcast.server.delivery.receiving import BadFrame
from kindcast.server.security.egress import SinkRefused
from kindcast.server.security.identity_provider import ProviderUnavailable
from kindcast.server.security.limits import LimitReached
from kindcast.server.strict_json import MalformedJson, TooDeepJson

__all__ = [
    "MEDIA_TYPE",
    "PROBLEM_TYPES",
    "TYPES",
    "Described",
    "Problem",
    "ProblemType",
    "as_document",
    "faults",
    "has_head",
    "install",
    "problem_of",
    "respond",
    "title_of",
]

TYPES: Final = "https://kindcast.dev/problems/"


class ProblemType(NamedTuple):
    """A problem type: the status of its answers, and its meaning for a client. `others` are other statuses that some of
    its answers have."""

    status: int
    meaning: str
    others: tuple[int, ...] = ()


PROBLEM_TYPES: Final[dict[str, ProblemType]] = {
    # the request itself
    "malformed-request": ProblemType(400, "The request is not HTTP, or does not have the form of this address."),
    "malformed-json": ProblemType(400, "The body is not JSON."),
    "too-deep": ProblemType(400, "The JSON is nested too deeply."),
    "client-left": ProblemType(400, "The client closed the connection before the request was complete."),
    "invalid-cursor": ProblemType(400, "The cursor was not made by this list."),
    "cursor-gone": ProblemType(
        410, "Events after this cursor were deleted because of their age. Continue after `oldest`."
    ),
    "invalid-request": ProblemType(422, "A parameter or a member of the body is missing, unknown or wrong.", (400,)),
    "not-in-this-version": ProblemType(
        501, "The request uses a feature that this version, or a server with shards, does not have.", (400,)
    ),
    "unsupported-media-type": ProblemType(415, "The address does not accept this content type."),
    "unsupported-encoding": ProblemType(415, "The body has a content encoding that the server does not accept."),
    "body-too-large": ProblemType(413, "The body has more bytes than the limit."),
    "head-too-large": ProblemType(431, "The request line or the headers are larger than the limit."),
    "too-slow": ProblemType(408, "The request did not arrive within the time limit."),
    "wrong-host": ProblemType(
        421, "The request has no Host header, or several, or its Host header does not name this server."
    ),
    "wrong-origin": ProblemType(403, "A page of another site may not make this request."),
    "precondition-failed": ProblemType(412, "The resource does not have the state that the request requires."),
    "not-found": ProblemType(404, "There is nothing at this address."),
    "method-not-allowed": ProblemType(405, "The address does not have this method."),
    # events
    "invalid-event": ProblemType(422, "An event breaks a rule of CloudEvents or of its event type."),
    "no-event-accepted": ProblemType(422, "No event of the request was accepted; `rejected` says why."),
    "too-many-events": ProblemType(413, "The request has more events than the limit."),
    "too-many-matches": ProblemType(422, "The event matches more subscriptions than the limit, so it was not stored."),
    "unknown-context": ProblemType(422, "A JSON-LD document needs unknown contexts; `contexts` lists them."),
    "unknown-event": ProblemType(404, "There is no such event, or it is older than the retention."),
    # subscriptions and deliveries
    "invalid-subscription": ProblemType(422, "The expression has mistakes; `errors` has their places.", (400,)),
    "too-costly": ProblemType(422, "The answer takes longer than the time limit."),
    "unknown-subscription": ProblemType(404, "There is no such subscription."),
    "subscription-expired": ProblemType(
        409, "The subscription has expired. Renew it. If it expired too long ago, make a new one."
    ),
    "ticket-missing": ProblemType(401, "The change needs the ticket of the subscription."),
    "ticket-wrong": ProblemType(403, "The ticket is not that of the subscription."),
    "sink-missing": ProblemType(422, "The request needs a sink, and there is none."),
    "sink-refused": ProblemType(422, "The address of the sink is not allowed.", (400,)),
    "backfill-too-large": ProblemType(
        422,
        "Too many events were accepted since `start_at`, "
        "or too many of them match.",
    ),
    "idempotency-key-reused": ProblemType(
        422,
        "Another request already used this Idempotency-Key or id, "
        "or the subscription or key that it made was changed since.",
    ),
    "too-many-subscriptions": ProblemType(507, "The limit of subscriptions is reached."),
    "too-many-lines": ProblemType(413, "The import has more lines than the limit."),
    "index-full": ProblemType(507, "The memory limit of the index is reached."),
    # ontologies, declarations, concepts
    "malformed-ontology": ProblemType(400, "The document cannot be read in its format."),
    "unsupported-format": ProblemType(415, "The format of the ontology is not known."),
    "inconsistent-ontology": ProblemType(422, "The ontology contradicts itself."),
    "ontology-too-costly": ProblemType(422, "Reading or classifying the ontology exceeds a limit."),
    "reasoner-unavailable": ProblemType(501, "The reasoner is not installed."),
    "unknown-relation": ProblemType(422, "The ontology does not have the requested relation."),
    "unknown-ontology": ProblemType(404, "There is no such ontology, or no such version."),
    "ontology-in-use": ProblemType(409, "Subscriptions depend on this ontology; `subscriptions` names some."),
    "ontology-shared": ProblemType(
        403, "All tenants share this ontology, so only an administrator of all tenants can change it."
    ),
    "sharing-refused": ProblemType(
        409, "Tenants have an ontology of this name, or declarations that do not fit it; `tenants` counts them."
    ),
    "nothing-before": ProblemType(409, "No other version was active before."),
    "invalid-declaration": ProblemType(422, "The declaration has mistakes; `errors` lists them."),
    "unknown-declaration": ProblemType(404, "There is no such declaration."),
    "unknown-concept": ProblemType(404, "No concept has this name; `suggestions` has similar ones."),
    "ambiguous-term": ProblemType(409, "Several concepts have this name; `candidates` lists them."),
    # operators
    "unknown-operator": ProblemType(404, "There is no such remote operator."),
    "unknown-operator-data": ProblemType(404, "There are no such uploaded regions, windows or tables."),
    "operator-in-use": ProblemType(409, "Subscriptions call this operator; `subscriptions` names some."),
    "operator-fixed": ProblemType(409, "The operator belongs to the server or a plug-in and cannot be changed."),
    "too-many-operators": ProblemType(507, "The limit of remote operators is reached."),
    # keys and limits
    "key-missing": ProblemType(401, "The request needs a key: `Authorization: Bearer …`."),
    "key-wrong": ProblemType(401, "The key is unknown, revoked or expired."),
    "keys-needed": ProblemType(
        403, "The server has no keys. A proxy forwarded the request, or it is about another tenant than `default`."
    ),
    "token-wrong": ProblemType(
        401, "The token is expired, or it is not for this server or this stream."
    ),
    "identity-provider-unavailable": ProblemType(
        503,
        "The server could not get the keys of the identity provider. "
        "Send the request again.",
    ),
    "not-permitted": ProblemType(403, "The role of the key does not allow this request."),
    "hidden-attribute": ProblemType(403, "The request uses values that are hidden from the role."),
    "other-tenant": ProblemType(403, "The key belongs to another tenant."),
    "unknown-tenant": ProblemType(404, "There is no such tenant."),
    "tenant-exists": ProblemType(409, "There is a tenant of this name already."),
    "tenant-in-use": ProblemType(409, "The tenant still has keys, or is `default`, which cannot be deleted."),
    "unknown-key": ProblemType(404, "There is no such key."),
    "key-made": ProblemType(409, "The same request made a key before; `id` names it. Rotate or revoke that key."),
    "last-key": ProblemType(409, "Without this key nobody could administer the server."),
    "limit-reached": ProblemType(429, "The key or its tenant has reached a limit. Wait for `Retry-After` seconds."),
    # jobs and the server
    "unknown-job": ProblemType(404, "There is no such job, or it ended long ago."),
    "spark-missing": ProblemType(501, "The backtest needs Spark, which is not installed."),
    "backtest-failed": ProblemType(500, "The Spark job of a backtest failed."),
    "busy": ProblemType(503, "Too much is waiting. Send the request again after `Retry-After`."),
    "store-unavailable": ProblemType(
        503,
        "The database could not store the change, so nothing was changed. "
        "Send the request again.",
    ),
    "store-damaged": ProblemType(503, "The database is damaged or cannot be opened. Repair it."),
    "record-damaged": ProblemType(
        503,
        "A stored event differs from the event that was accepted, "
        "so the server does not return it.",
    ),
    "not-ready": ProblemType(
        503,
        "The server is not ready to work, or does not know whether the database stored the change.",
    ),
    "internal-error": ProblemType(500, "Something went wrong in the server; its log has the details."),
}  # fmt: skip


def title_of(code: str) -> str:
    """Returns the short title of a problem type.

    >>> title_of("unknown-concept")
    'Unknown concept'
    """
    return code.replace("-", " ").capitalize().replace(" json", " JSON")


MEDIA_TYPE = "application/problem+json"
LONGEST_TEXT = 2_000
ENDS = LONGEST_TEXT // 2 - 2
MOST_LISTED = 1_000
"""The maximum lengths of a text and of a list in a problem document. A request may have named something in a text of
many MB. Of a longer text, both ends are shown."""
RETRY_SECONDS = "1"
"""The Retry-After of answers while the store or the broker cannot accept requests."""

_log = logging.getLogger("kindcast.http")


class Problem(HTTPException):
    """An error answer. `errors` are its single faults. Other keywords become members of the document.

    `code` is one of `PROBLEM_TYPES`, which also has the status. `status` is given if the code has several.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        status: int | None = None,
        errors: Sequence[Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
        **extensions: Any,
    ) -> None:
        super().__init__(status or PROBLEM_TYPES[code].status, detail, dict(headers) if headers else None)
        self.code = code
        self.errors = list(errors)
        self.extensions = extensions


_SIMPLE: tuple[tuple[type[Exception], str], ...] = (
    (errors.StoreDamaged, "store-damaged"),
    (errors.StoreUnreadable, "store-damaged"),
    (errors.RecordDamaged, "record-damaged"),
    (errors.StoreInDoubt, "not-ready"),
    (errors.StoreUnavailable, "store-unavailable"),
    (errors.BrokerBusy, "busy"),
    (errors.UnknownSubscription, "unknown-subscription"),
    (errors.UnknownOntology, "unknown-ontology"),
    (errors.OntologyShared, "ontology-shared"),
    (errors.UnknownOperator, "unknown-operator"),
    (errors.OperatorFixed, "operator-fixed"),
    (errors.TooManyOperators, "too-many-operators"),
    (errors.VersionChanged, "precondition-failed"),
    (errors.SubscriptionChanged, "precondition-failed"),
    (errors.NothingBefore, "nothing-before"),
    (errors.UnknownDeclaration, "unknown-declaration"),
    (errors.UnknownEvent, "unknown-event"),
    (errors.UnknownJob, "unknown-job"),
    (errors.SparkMissing, "spark-missing"),
    (errors.BacktestFailed, "backtest-failed"),
    (errors.HiddenAttribute, "hidden-attribute"),
    (errors.TicketMissing, "ticket-missing"),
    (errors.TicketWrong, "ticket-wrong"),
    (errors.SubscriptionGone, "subscription-expired"),
    (errors.SinkMissing, "sink-missing"),
    (errors.BackfillTooLarge, "backfill-too-large"),
    (errors.TooManyMatches, "too-many-matches"),
    (errors.NotWithShards, "not-in-this-version"),
    (errors.IdempotencyKeyReused, "idempotency-key-reused"),
    (errors.TooManySubscriptions, "too-many-subscriptions"),
    (IndexFull, "index-full"),
    (InvalidCursor, "invalid-cursor"),
    (TooDeepJson, "too-deep"),
    (MalformedJson, "malformed-json"),
    (BadRequestMode, "malformed-request"),
    (UnknownContent, "unsupported-media-type"),
    (TooManyEvents, "too-many-events"),
    (SinkRefused, "sink-refused"),
    (BadFrame, "invalid-request"),
    (errors.UnknownKey, "unknown-key"),
    (errors.LastKey, "last-key"),
    (ProviderUnavailable, "identity-provider-unavailable"),
    (errors.UnknownTenant, "unknown-tenant"),
    (errors.TenantExists, "tenant-exists"),
    (errors.TenantInUse, "tenant-in-use"),
)
"""Errors whose detail is their own message."""


_NO_RETRY = (errors.StoreDamaged, errors.StoreUnreadable, errors.RecordDamaged, errors.StoreInDoubt)
"""Errors that are not temporary, or after which a part of the request may have been carried out."""

_MALFORMED = frozenset({"bad-constant", "empty-name"})
"""Problems of a subscription that are independent of vocabulary and operators."""

_A_TIME = "give a time such as 2026-01-31T08:00:00Z"
_OWN_WORDS = {
    "extra_forbidden": "unknown member",
    "missing": "this is missing",
    "datetime_parsing": _A_TIME,
    "datetime_from_date_parsing": _A_TIME,
}
"""Our words for errors of the framework's validation."""
_OF_PATTERNS = {
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$": "a name has at most 100 letters of English, digits, dots, underscores and "
    "hyphens, and begins with a letter or a digit",
    r"^[A-Za-z_][A-Za-z0-9_]*$": "a name has letters of English, digits and underscores, and begins with no digit",
    r"^[^/\x00-\x1f]+$": "a name has no slash and no control characters",
    r"^[^\x00-\x1f\x7f-\x9f]*$": "the text has control characters: leave them out",
    r"^whsec_[A-Za-z0-9+/]{32,88}={0,2}$": "a secret is whsec_ and 24 to 64 bytes in base64",
    r"^[0-9a-f]{64}$": "a hash has 64 hexadecimal digits in lower case",
}
"""What a text must be, by the pattern that it must match."""


def install(app: FastAPI) -> None:
    """Makes the application answer every error with a problem document."""
    broad: tuple[type[Exception], ...] = (HTTPException, RequestValidationError, Exception)
    for kind in broad:
        app.add_exception_handler(kind, respond)
    for kind in (errors.ServerError, SemanticError, LimitReached, ClientDisconnect, *(kind for kind, _ in _SIMPLE)):
        app.add_exception_handler(kind, respond)


CHALLENGE = 'Bearer realm="kindcast"'
"""What a 401 asks for, if it says nothing else. HTTP requires it of every 401."""


async def respond(request: HTTPConnection, error: Exception) -> Response:
    """Returns the answer to an error, also for the handshake of a WebSocket."""
    problem = problem_of(error)
    if problem.status_code == 405 and (allowed := _allowed(request.url.path)):
        problem.headers = {**(problem.headers or {}), "Allow": ", ".join(allowed)}
    if problem.status_code == 401:
        problem.headers = {"WWW-Authenticate": CHALLENGE, **(problem.headers or {})}
    if problem.status_code == 500:
        method = request.scope.get("method", "WebSocket")
        _log.error("%s %s failed", method, request.url.path, exc_info=error)
    else:
        # A frame of the traceback may refer to the error again, in the list of results that it was raised from. Then
        # the frames, with the body of the request, would stay in memory until the next run of the garbage collector.
        error.__traceback__ = None
    document = as_document(problem) | {"instance": request.url.path}
    return Response(msgspec.json.encode(document), problem.status_code, problem.headers, MEDIA_TYPE)


def _allowed(path: str) -> list[str]:
    """Returns the methods of all routes for a path. A literal route hides routes with parameters."""
    answering = [each for each in _routes() if each[2].fullmatch(path)]
    exact = [each for each in answering if each[1] == path]
    methods = {method for method, _, _ in exact or answering}
    return sorted(methods | ({"HEAD"} if "GET" in methods and has_head(path) else set()))


_STREAM = re.compile(r"/v1/(events|subscriptions/[^/]+)/stream")


def has_head(path: str) -> bool:
    """Whether HEAD is answered as GET at a path that supports GET. A stream does not end, and uses up its token."""
    return _STREAM.fullmatch(path) is None


_PAGES = ("GET /", "GET /console", "GET /console/{name}", "GET /docs", "GET /openapi.json")
"""Routes for browsers, which the documents of the interface leave out."""


@cache
def _routes() -> list[tuple[str, str, re.Pattern[str]]]:
    """Returns (method, path, regular expression) of all routes. Names of event types may contain slashes."""
    split = (route.split(" ", 1) for route in (*ANSWERS, *_PAGES))
    return [
        (method, path, re.compile(re.sub(r"\{\w+\}", "[^/]+", path.replace("{type}", ".+")))) for method, path in split
    ]


def problem_of(error: Exception) -> Problem:
    """Returns the problem for an exception."""
    match error:
        case Problem():
            return error
        case UnsupportedFormat():
            return Problem("unsupported-format", error.detail, errors=_place_of(error))
        case InconsistentOntology():
            return Problem("inconsistent-ontology", error.detail)
        case ReasonerUnavailable():
            return Problem("reasoner-unavailable", error.detail)
        case TooCostly():
            return Problem("ontology-too-costly", error.detail, limit=error.limit)
        case UnknownRelation():
            return Problem("unknown-relation", error.detail)
        case OntologyError():
            return Problem("malformed-ontology", str(error), errors=_place_of(error))
        case InvalidSubscription():
            malformed = all(each.code in _MALFORMED for each in error.problems)
            summary, status = _summary(error.problems), 400 if malformed else 422
            return Problem("invalid-subscription", summary, status=status, errors=faults(error.problems))
        case InvalidDeclaration():
            return Problem("invalid-declaration", _summary(error.problems), errors=faults(error.problems))
        case UnknownContext():
            return Problem("unknown-context", str(error), contexts=list(error.urls))
        case InvalidEvent() if unknown := [each for each in error.problems if each.code == "unknown-context"]:
            urls = dict.fromkeys(known["url"] for each in unknown for known in each.suggestions)
            return Problem("unknown-context", str(unknown[0]), contexts=list(urls))
        case InvalidEvent():
            codes = {each.code for each in error.problems}
            code = next((each for each in ("malformed-json", "too-deep") if each in codes), "invalid-event")
            return Problem(code, _summary(error.problems, is_cut=error.is_cut), errors=faults(error.problems))
        case MalformedJson() if error.pointer:
            place = {"code": error.code, "detail": error.detail, "pointer": error.pointer}
            return Problem(error.code, str(error), errors=[place])
        case errors.OntologyInUse():
            return Problem("ontology-in-use", str(error), count=error.count, subscriptions=error.subscriptions)
        case errors.KeyMade():
            return Problem("key-made", str(error), id=error.id)
        case errors.SharingRefused():
            return Problem("sharing-refused", str(error), tenants=error.tenants)
        case errors.OperatorInUse():
            return Problem("operator-in-use", str(error), count=error.count, subscriptions=error.subscriptions)
        case RequestValidationError():
            return _validation_problem(error)
        case HTTPException() if isinstance(error.__cause__, RecursionError):  # of a body that the framework reads
            return Problem("too-deep", "the JSON is nested too deeply")
        case HTTPException():
            return _http_problem(error)
        case CursorGone():
            return Problem("cursor-gone", str(error), oldest=str(error.oldest))
        case LimitReached():
            return Problem("limit-reached", str(error), headers=error.headers)
        case ClientDisconnect():
            return Problem("client-left", "the client left before its request was complete")  # not sent to anybody
    for kind, code in _SIMPLE:
        if isinstance(error, kind):
            passes = PROBLEM_TYPES[code].status == 503 and not isinstance(error, _NO_RETRY)
            headers = {"Retry-After": RETRY_SECONDS} if passes else None
            return Problem(code, str(error), headers=headers)
    return Problem("internal-error", "an error happened in the server; its log has the details")


def as_document(problem: Problem) -> dict[str, Any]:
    """Returns the members of the problem document, without `instance`."""
    document: dict[str, Any] = {
        "type": TYPES + problem.code,
        "title": title_of(problem.code),
        "status": problem.status_code,
        "detail": problem.detail,
    }
    if problem.errors:
        document["errors"] = problem.errors
    bounded: dict[str, Any] = _bounded(document | problem.extensions)
    return bounded


def _bounded(told: Any) -> Any:
    """Returns a part of a problem document with texts and lists of bounded length."""
    if isinstance(told, str):  # advice stands at the end
        return (
            told if len(told) <= LONGEST_TEXT else f"{told[: LONGEST_TEXT // 2 - 1]} … {told[2 - LONGEST_TEXT // 2 :]}"
        )
    if isinstance(told, Mapping):
        return {_bounded(name): _bounded(each) for name, each in told.items()}
    if isinstance(told, Sequence):
        return [_bounded(each) for each in told[:MOST_LISTED]]
    return told


class Described:
    """The problem documents of one answer about several events. Together they have at most `MOST_PROBLEMS` single
    errors. After these, the problem of an event only has its first error, as `detail`."""

    def __init__(self) -> None:
        self._left = MOST_PROBLEMS

    def document(self, error: Exception) -> dict[str, Any]:
        """Returns the members of the problem document of one event."""
        if not isinstance(error, InvalidEvent):
            return as_document(problem_of(error))
        if len(error.problems) > self._left:
            document = as_document(problem_of(error.first(1)))
            document.pop("errors", None)
            return document
        self._left -= len(error.problems)
        return as_document(problem_of(error))


def faults(problems: Iterable[Fault]) -> list[dict[str, Any]]:
    """Returns the members of `errors` for problems found by the semantic layer."""
    listed = []
    for each in problems:
        fault: dict[str, Any] = {"code": each.code, "detail": each.detail, **_place(each.at)}
        if each.suggestions:
            fault["suggestions"] = list(each.suggestions)
        listed.append(fault)
    return listed


def _place(at: Position | None) -> dict[str, Any]:
    if at is None:
        return {}
    return {"pointer": at.pointer or ""} if at.line is None else {"line": at.line, "column": at.column}


def _place_of(error: OntologyError) -> list[dict[str, Any]]:
    if error.line is None:
        return []
    place = {"line": error.line} if error.column is None else {"line": error.line, "column": error.column}
    return [{"detail": error.detail, **place}]


def _summary(problems: Sequence[Fault], *, is_cut: bool = False) -> str:
    """Returns the first fault in full, and the number of others. `is_cut`: there are more than these."""
    more = len(problems) - 1
    if not more and not is_cut:
        return str(problems[0])
    see = ", see errors" if more else ""
    return f"{problems[0]} (and {f'at least {more + 1}' if is_cut else more} more{see})"


def _validation_problem(error: RequestValidationError) -> Problem:
    """FastAPI's own checks of path, query, headers and bodies."""
    listed = []
    for each in error.errors():
        where, *path = [str(part) for part in each["loc"]]
        if each["type"] == "json_invalid":
            return Problem("malformed-json", "the body is not JSON", errors=[{"detail": each["msg"]}])
        context = each.get("ctx") or {}
        words = _OF_PATTERNS.get(context.get("pattern", "")) or _OWN_WORDS.get(each["type"])
        fault: dict[str, Any] = {"detail": words or each["msg"].removeprefix("Value error, ")}
        if (near := context.get("near")) is not None:
            fault["detail"] += f"; did you mean {near}?"
        if where == "body":
            fault["pointer"] = "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)
        else:
            fault["parameter"] = f"{where}: {'.'.join(path)}"
        listed.append(fault)
    first = listed[0]
    at = first.get("pointer") or first.get("parameter") or "body"
    return Problem("invalid-request", f"{at}: {first['detail']}", errors=listed)


def _http_problem(error: HTTPException) -> Problem:
    """Errors of the framework: no such route, wrong method, too large a body."""
    code = http.HTTPStatus(error.status_code).phrase.lower().replace(" ", "-").replace("'", "")
    detail = {
        404: "there is nothing at this address: /openapi.json lists all addresses",
        405: "this address does not support this method: the header Allow lists the supported methods",
    }.get(error.status_code, str(error.detail))
    return Problem(code, detail, status=error.status_code, headers=error.headers)
