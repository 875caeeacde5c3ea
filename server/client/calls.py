"""The calls of the HTTP API. Each call is described once, and both clients get their methods from these
descriptions."""

import functools
import inspect
import math
import re
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast, get_args, overload
from urllib.parse import quote
from uuid import uuid4

import httpx
import msgspec

from kindcast.server import answers
from kindcast.server.client.problem_error import Json, ProblemError, UnexpectedAnswer, UnusableArgument

__all__ = [
    "RETRY_SECONDS",
    "Attempts",
    "Call",
    "Calls",
    "Json",
    "NoAnswerInTime",
    "ProblemError",
    "ServerUnreachable",
    "UnexpectedAnswer",
    "UnusableArgument",
    "check_download",
    "check_stream",
    "described",
    "path_of",
    "problem",
    "reaching",
    "read_answer",
    "sendable",
]


# A request is described once and sent in two ways.
#
# A method of `Calls` returns a `Call`: the HTTP method, the path, the content, and how to read the answer. The
# decorator `described` turns it into a method that `Client` executes at once and `AsyncClient` as a coroutine, both
# fully typed. So no call of the API is written twice. `read_answer` converts an answer to a value or a `ProblemError`.

if TYPE_CHECKING:
    from kindcast.server.client.clients import AsyncClient, Client


TIMEOUT_SECONDS = 60.0
"""How long a client waits for an answer. Loading a large ontology takes longest."""

P = ParamSpec("P")
T = TypeVar("T")


class ServerUnreachable(httpx.TransportError, ConnectionError):
    """No server answers at the address, or the connection broke. It is unknown whether a change was made: send the
    request again with the same ids."""


class NoAnswerInTime(httpx.TimeoutException, TimeoutError):
    """The server did not answer in time. It is unknown whether a change was made: send the request again with the same
    ids."""


@contextmanager
def reaching(server: str) -> Iterator[None]:
    """A context manager that converts httpx errors about missing answers, and about texts in a query, to ours."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise _unsendable(error) from error
    except httpx.UnsupportedProtocol:
        raise  # the address is wrong, not the server
    except httpx.TimeoutException as error:
        raise NoAnswerInTime(f"{server} did not answer in time") from error
    except httpx.TransportError as error:
        raise ServerUnreachable(f"no server answers at {server}: {error}") from error


RETRY_SECONDS = 5.0
"""How long a call is repeated by default. A server that is being restarted is back by then."""
FIRST_PAUSE_SECONDS = 0.1
_PASSING = frozenset({429, 502, 503, 504})


class Attempts:
    """Decides when a call is sent again: if it was never sent, because no server listens; if it was refused
    temporarily; and, if it is repeatable, if there was no answer. The pauses grow, until `seconds` have passed."""

    def __init__(self, call: "Call[Any]", seconds: float) -> None:
        self._call = call
        self._until = time.monotonic() + seconds
        self._pause = FIRST_PAUSE_SECONDS

    def again_after(self, got: httpx.Response | httpx.TransportError) -> float | None:
        """Returns the seconds to wait before the call is sent again; None if this is the final result."""
        wish = 0.0
        if isinstance(got, httpx.Response):
            # With 429, and with 503 and `Retry-After`, the server did nothing (docs/problems.md).
            undone = got.status_code == 429 or (got.status_code == 503 and "retry-after" in got.headers)
            if got.status_code not in _PASSING or not (undone or self._call.repeatable):
                return None
            wish = _retry_after(got)
        elif isinstance(got, httpx.UnsupportedProtocol) or not (
            self._call.repeatable or isinstance(got, httpx.ConnectError | httpx.ConnectTimeout)
        ):
            return None
        pause = max(wish, self._pause)
        self._pause = min(2 * self._pause, 1.0)
        return pause if time.monotonic() + pause < self._until else None


def _retry_after(answer: httpx.Response) -> float:
    """Returns the seconds of `Retry-After`; 0 if it is absent or a date, which no kindcast server sends."""
    after = answer.headers.get("retry-after", "")
    return float(after) if after.isascii() and after.isdigit() and len(after) < 9 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One request. `read` converts the parsed answer (None if it has no body) to the result of the method."""

    method: str
    path: str
    read: Callable[[Any], T]
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    timeout: float = TIMEOUT_SECONDS
    repeatable: bool = False
    """Whether the call may be sent twice without doing anything twice: it only reads, or it has its own ids."""
    members: frozenset[str] = frozenset()
    """Members of the answer. An answer that has none of them is not from a kindcast server."""

    def arguments(self, headers: Mapping[str, str]) -> dict[str, Any]:
        """Returns the keyword arguments of httpx's `request` except the URL, with the `headers` of every call."""
        return {
            "params": dict(self.params),
            "headers": sendable({**headers, **self.headers}),
            "content": self.content,
            "timeout": self.timeout,
        }


class described(Generic[P, T]):  # noqa: N801 - it is used as a decorator
    """Makes a method of `Calls` send the request that it describes: at once on a `Client`, as a coroutine on an
    `AsyncClient`."""

    def __init__(self, describe: Callable[Concatenate[Any, P], Call[T]]) -> None:
        self._describe = describe
        functools.update_wrapper(cast("Any", self), describe)

    @overload
    def __get__(self, client: None, owner: type) -> Callable[Concatenate[Any, P], Any]: ...
    @overload
    def __get__(self, client: "Client", owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: "AsyncClient", owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: "Client | AsyncClient | None", owner: type) -> Any:
        if client is None:
            return self._of_class

        @functools.wraps(self._describe)
        def send(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.send(replace(self._describe(client, *args, **kwargs), members=self._members))

        del send.__wrapped__  # its signature has `self` and returns a `Call`
        send.__signature__ = self._signature  # type: ignore[attr-defined]
        return send

    @functools.cached_property
    def _members(self) -> frozenset[str]:
        """The members that every answer has; none if the answer is not an object of known members."""
        return getattr(self._whole_signature.return_annotation, "__required_keys__", frozenset())

    @functools.cached_property
    def _of_class(self) -> Callable[..., Any]:
        """The method as an attribute of the class: a function with the client as argument."""

        @functools.wraps(self._describe)
        def send(client: Any, /, *args: Any, **kwargs: Any) -> Any:
            bound: Callable[..., Any] = self.__get__(client, type(client))
            return bound(*args, **kwargs)

        del send.__wrapped__
        send.__signature__ = self._whole_signature  # type: ignore[attr-defined]
        return send

    @functools.cached_property
    def _whole_signature(self) -> inspect.Signature:
        """The signature with the client as first parameter and with the result, as `help` and `inspect` show it for a
        class."""
        stated = inspect.signature(self._describe, eval_str=True)
        answer = (get_args(stated.return_annotation) or (Any,))[0]
        return stated.replace(return_annotation=None if answer is type(None) else answer)

    @functools.cached_property
    def _signature(self) -> inspect.Signature:
        """The signature on an instance of a client."""
        whole = self._whole_signature
        return whole.replace(parameters=[*whole.parameters.values()][1:])


def get(path: str, **params: Any) -> Call[Any]:
    """Returns a GET whose answer is an object. Parameters that are None are left out."""
    return Call(method="GET", path=path, read=_same, params=present(**params), repeatable=True)


def post(path: str, body: Any, *, headers: Mapping[str, str] | None = None) -> Call[Any]:
    """Returns a POST of JSON (of no body if `body` is None) whose answer is an object."""
    content = None if body is None else as_json(body)
    kind = {} if body is None else {"Content-Type": "application/json"}
    return Call(method="POST", path=path, read=_same, headers={**kind, **(headers or {})}, content=content)


def _attribute(name: str, value: object) -> str:
    """Returns a context attribute as text, a date-time with its offset. Raises `TypeError`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return (value.astimezone() if value.tzinfo is None else value).isoformat()
    if not isinstance(value, str | int):
        raise TypeError(f"{name} must be a text, an integer, a boolean or a date-time, not {type(value).__name__}")
    return str(value)


def path_of(*segments: str) -> str:
    """Returns a path below /v1, with each segment quoted.

    Raises `UnusableArgument` for a name that would lead to another path, or that is no text.

    >>> path_of("ontologies", "a/b")
    '/v1/ontologies/a%2Fb'
    """
    names = [str(segment) for segment in segments]
    for name in names:
        if name in ("", ".", ".."):
            raise UnusableArgument(f"{name!r} is neither an id nor a name" if name else "the id or name is empty")
    return "/v1/" + "/".join(_quoted(name) for name in names)


def _quoted(text: str, safe: str = "") -> str:
    try:
        return quote(text, safe=safe)
    except UnicodeEncodeError as error:
        raise _unsendable(error) from error


def _unsendable(error: UnicodeEncodeError) -> UnusableArgument:
    half = error.object[error.start : error.start + 1]
    return UnusableArgument(f"{half!a} is half of a surrogate pair, which is no character: leave it out")


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def sendable(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the headers of a request. Raises `UnusableArgument` for one that HTTP does not allow."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise UnusableArgument(f"{name!r} is not the name of a header: write letters, digits and hyphens")
        if not (value.isascii() and value.isprintable() and value.strip() == value):
            raise UnusableArgument(
                f"the value of the header {name} is not sendable: it begins or ends with a space, or has a character "
                "that is not visible ASCII"
            )
    return headers


def present(**fields: Any) -> Json:
    """Returns the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def read_answer(call: Call[T], answer: httpx.Response) -> T:
    """Converts an answer to the result of the method. Raises `ProblemError` for every status of 400 and above, and
    `UnexpectedAnswer` for a redirect and for an answer that no kindcast server gives."""
    if answer.status_code >= 400:
        raise problem(answer)
    try:
        told = msgspec.json.decode(answer.content) if answer.content else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _unexpected(answer) from None
    if answer.is_redirect or (call.members and not (isinstance(told, dict) and call.members & told.keys())):
        raise _unexpected(answer)
    return call.read(told)


def check_download(answer: httpx.Response) -> None:
    """Checks the head of an answer that is read in pieces. Raises `UnexpectedAnswer` for a redirect and for a web page,
    which servers of kindcast never send."""
    if answer.is_redirect or answer.headers.get("content-type", "").startswith("text/html"):
        raise _unexpected(answer)


def check_stream(answer: httpx.Response) -> None:
    """Checks the head of an answer that should be a stream. Raises `UnexpectedAnswer` for anything else."""
    if answer.is_redirect or not answer.headers.get("content-type", "").startswith("text/event-stream"):
        raise _unexpected(answer, "a stream of events")


def _unexpected(answer: httpx.Response, wanted: str = "an answer of kindcast") -> UnexpectedAnswer:
    kind = answer.headers.get("content-type", "no media type")
    return UnexpectedAnswer(
        f"{answer.request.method} {answer.url} answered {answer.status_code} with {kind} instead of {wanted}: is there "
        "a kindcast server at this address?"
    )


def as_json(value: Any) -> bytes:
    """Returns `value` as JSON, as the matcher reads it: a `Decimal` is a number, and so are those of numpy. Raises
    `UnusableArgument` for half of a surrogate pair, and for NaN and infinity, which JSON does not have and which would
    become null, and `TypeError` for what has no form in JSON."""
    try:
        text = _JSON.encode(value)
    except UnicodeEncodeError as error:
        raise _unsendable(error) from error
    if any(each in text for each in _SUSPECT) and (place := _not_finite(value, "")) is not None:
        raise UnusableArgument(f"{place or 'the value'} is NaN or infinite, which JSON does not allow: leave it out")
    return text


def _plain(value: Any) -> Any:
    """Returns a value of numpy or pandas, or a text of a class of its own, as one of Python. Raises `TypeError`."""
    from kindcast.semantic.flatten import as_json as converted  # it needs numpy, which most clients do not

    plain = str(value) if isinstance(value, str) else converted(value)
    if plain is value:
        raise TypeError(f"a {type(value).__name__} is not a JSON value")
    return plain


_JSON = msgspec.json.Encoder(enc_hook=_plain, decimal_format="number")
_SUSPECT = (b"null", b"NaN", b"Infinity")


def _not_finite(value: Any, place: str) -> str | None:
    """Returns the place of such a number in `value`."""
    if type(value).__module__ == "numpy":
        value = value.tolist()
    if isinstance(value, float | Decimal):
        is_finite = value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)
        return None if is_finite else place
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    found = (_not_finite(each, f"{place}.{name}" if place else str(name)) for name, each in items)
    return next((each for each in found if each is not None), None)


FOREIGN = "this is not an answer of kindcast: is there a proxy in front of the server?"


def problem(answer: httpx.Response) -> ProblemError:
    """Returns the problem in an answer that was read. If it is not JSON, for example from a proxy, the problem has the
    status and its reason, and says so."""
    try:
        body = msgspec.json.decode(answer.content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        body = None
    told = body if isinstance(body, dict) else {"detail": FOREIGN}
    error = ProblemError.of({**told, "status": answer.status_code}, reason=answer.reason_phrase)
    error.retry_after = _retry_after(answer)
    return error


def _same(answer: Any) -> Any:
    return answer


# ── ontologies and declarations ───────────────────────────────────────────────────────────────────────────────────────
# The calls that change the vocabulary: versions of ontologies, and declarations.


class VocabularyCalls:
    """Each change returns its effect on the subscriptions. With `dry_run` nothing changes."""

    # ── versions ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @described
    def ontology_versions(self, name: str) -> Call[answers.OntologyVersions]:
        """Every version of an ontology, newest first."""
        return get(path_of("ontologies", name, "versions"))

    @described
    def ontology_diff(
        self, name: str, *, before: int | None = None, to: int | None = None, limit: int | None = None
    ) -> Call[answers.OntologyDifference]:
        """The differences between two versions, by default between the active and the newest one."""
        return get(path_of("ontologies", name, "diff"), **{"from": before}, to=to, limit=limit)

    @described
    def activate_ontology(
        self, name: str, version: int, *, dry_run: bool = False, shared: bool = False
    ) -> Call[answers.ActivatedOntology]:
        """Activates a version, which may be an earlier one. Set `shared` if all tenants share the ontology."""
        return _changing("POST", path_of("ontologies", name, "activate"), dry_run, version=version, **_shared(shared))

    @described
    def rollback_ontology(
        self, name: str, *, dry_run: bool = False, shared: bool = False
    ) -> Call[answers.ActivatedOntology]:
        """Activates the version that was active before the current one. Set `shared` if all tenants share the
        ontology."""
        return _changing("POST", path_of("ontologies", name, "rollback"), dry_run, **_shared(shared))

    @described
    def rules(self) -> Call[answers.Rules]:
        """The number of the matching rules, and their effect here when they were first used."""
        return get(path_of("rules"))

    # ── declarations ─────────────────────────────────────────────────────────────────────────────────────────────────

    @described
    def declare_attribute(
        self, name: str, declaration: Mapping[str, Any], *, dry_run: bool = False
    ) -> Call[answers.DeclarationChange]:
        """Declares what an attribute holds: `kind`, `range`, `unit`, `unit_from`, `quantity` and others."""
        return _changing("PUT", path_of("attributes", name), dry_run, declaration)

    @described
    def declare_synonyms(
        self, name: str, table: Mapping[str, str] | bytes, *, dry_run: bool = False
    ) -> Call[answers.DeclarationChange]:
        """Uploads a table of word → root word, or the bytes of a CSV file of two columns."""
        return _changing("PUT", path_of("synonyms", name), dry_run, table)

    @described
    def declare_rates(
        self, rates: Mapping[str, Mapping[str, Any]] | bytes, *, dry_run: bool = False
    ) -> Call[answers.DeclarationChange]:
        """Replaces the exchange rates: a mapping, or the bytes of a CSV file."""
        return _changing("PUT", path_of("rates"), dry_run, rates)

    @described
    def declare_schema(
        self, type: str, schema: Mapping[str, Any], *, dry_run: bool = False, replace: bool = False
    ) -> Call[answers.DeclarationChange]:
        """Declares an event type with a JSON Schema, or extends it. `replace` allows any change."""
        return _changing("PUT", path_of("schemas", type), dry_run, schema, **({"replace": "true"} if replace else {}))

    @described
    def put_context(
        self, url: str, document: Mapping[str, Any], *, dry_run: bool = False
    ) -> Call[answers.DeclarationChange]:
        """Uploads a JSON-LD context under the URL by which documents refer to it."""
        return _changing("PUT", path_of("contexts"), dry_run, document, url=url)

    @described
    def contexts(self) -> Call[answers.Contexts]:
        """The uploaded contexts, and the URLs of the shipped ones."""
        return get(path_of("contexts"))

    @described
    def context(self, url: str) -> Call[answers.Contexts]:
        """One context, uploaded or shipped, as `declaration`, and its versions."""
        return get(path_of("contexts"), url=url)

    @described
    def delete_context(self, url: str, *, dry_run: bool = False) -> Call[answers.DeclarationChange]:
        """Deletes a context to which no other context refers."""
        return _changing("DELETE", path_of("contexts"), dry_run, url=url)

    @described
    def declare_code_system(
        self, name: str, system: Mapping[str, Any], *, dry_run: bool = False
    ) -> Call[answers.DeclarationChange]:
        """Declares a system of codes: `identifiers`, `iri`, `notation`."""
        return _changing("PUT", path_of("code-systems", name), dry_run, system)

    @described
    def declare_aliases(
        self, name: str, table: Mapping[str, Any], *, dry_run: bool = False
    ) -> Call[answers.DeclarationChange]:
        """Declares which forms of IRIs are aliases: `iris`, `prefixes`, `patterns`."""
        return _changing("PUT", path_of("aliases", name), dry_run, table)

    @described
    def declare_split(
        self, name: str, split: Mapping[str, Any], *, dry_run: bool = False
    ) -> Call[answers.DeclarationChange]:
        """Declares an envelope of several events: `split`, `inherit`, `where`, `id`, `revision`."""
        return _changing("PUT", path_of("splits", name), dry_run, split)

    @described
    def declare_relation(
        self, name: str, relation: Mapping[str, Any], *, dry_run: bool = False
    ) -> Call[answers.DeclarationChange]:
        """Declares a union of relations: `{"union": [names]}`."""
        return _changing("PUT", path_of("relations", name), dry_run, relation)

    @described
    def declarations(self, kind: str) -> Call[Json]:
        """All declarations of a kind: `attributes`, `synonyms`, `schemas`, `code-systems`, `aliases`, `splits` or
        `relations`."""
        return get(path_of(kind))

    @described
    def declaration(self, kind: str, name: str = "") -> Call[answers.Declaration]:
        """One declaration, with its versions. The kind `rates` has no names."""
        return get(path_of(kind, name) if name else path_of(kind))

    @described
    def delete_declaration(
        self, kind: str, name: str = "", *, dry_run: bool = False
    ) -> Call[answers.DeclarationChange]:
        """Deletes a declaration."""
        return _changing("DELETE", path_of(kind, name) if name else path_of(kind), dry_run)


def _shared(shared: bool) -> Json:
    return {"shared": "true"} if shared else {}


def _changing(method: str, path: str, dry_run: bool, body: Any = None, **params: Any) -> Call[Any]:
    """Returns a call that changes the vocabulary, or only reports the effect."""
    kind, content = None, None
    if isinstance(body, bytes):
        kind, content = "text/csv", body
    elif body is not None:
        kind, content = "application/json", as_json(body)
    return Call(
        method=method,
        path=path,
        read=_same,
        params=params | ({"dry_run": "true"} if dry_run else {}),
        headers=present(**{"Content-Type": kind}),
        content=content,
    )


# ── operators ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# The calls about operators: list them, and register remote ones.


class OperatorCalls:
    """The calls about operators, keys and the server. Changes need no key on this machine's loopback, where everybody
    is an administrator."""

    @described
    def operators(self) -> Call[answers.OperatorList]:
        """All operators, with their declarations and statistics."""
        return get(path_of("operators"))

    @described
    def operator(self, name: str) -> Call[answers.OperatorDetail]:
        """One operator, with the calls that were made most."""
        return get(path_of("operators", name))

    @described
    def register_operator(self, name: str, registration: Mapping[str, Any]) -> Call[answers.OperatorState]:
        """Registers or changes a remote operator (`url` and the other members of a registration)."""
        return Call(
            method="PUT",
            path=path_of("operators", name),
            read=_same,
            content=as_json(dict(registration)),
            headers={"Content-Type": "application/json"},
        )

    @described
    def delete_operator(self, name: str) -> Call[answers.DeletedOperator]:
        """Deletes a remote operator that no subscription calls."""
        return Call(method="DELETE", path=path_of("operators", name), read=_same)

    # ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    @described
    def create_key(
        self,
        role: str,
        *,
        tenant: str | None = None,
        name: str | None = None,
        expires_at: str | None = None,
        limits: Mapping[str, float] | None = None,
    ) -> Call[answers.NewApiKey]:
        """Creates a key. The answer has it as `key`, only this once. If the answer is lost, the request is sent again:
        the problem `key-made` then has the `id` of the key, so that it can be rotated or revoked."""
        body = present(role=role, tenant=tenant, name=name, expires_at=expires_at, limits=limits)
        call = post(path_of("keys"), body, headers={"Idempotency-Key": str(uuid4())})
        return replace(call, repeatable=True)

    @described
    def keys(self) -> Call[answers.ApiKeys]:
        """Every key, without its secret."""
        return get(path_of("keys"))

    @described
    def rotate_key(self, id: str, *, overlap_seconds: float | None = None) -> Call[answers.RotatedApiKey]:
        """Creates a key that replaces another. The old key stays valid for a day, or for `overlap_seconds`."""
        return post(path_of("keys", id, "rotate"), present(overlap_seconds=overlap_seconds))

    @described
    def revoke_key(self, id: str) -> Call[answers.ApiKey]:
        """Ends a key at once."""
        return Call(method="DELETE", path=path_of("keys", id), read=_same)

    @described
    def who_am_i(self) -> Call[answers.BrowserSession]:
        """Role, tenant and permissions of the client's key."""
        return get(path_of("session"))

    @described
    def tenants(self) -> Call[answers.Tenants]:
        """The tenants. An administrator of one tenant sees only that tenant."""
        return get(path_of("tenants"))

    @described
    def create_tenant(self, name: str, *, limits: Mapping[str, float] | None = None) -> Call[answers.Tenant]:
        """Creates a tenant."""
        return post(path_of("tenants"), present(name=name, limits=limits))

    @described
    def limit_tenant(self, name: str, limits: Mapping[str, float]) -> Call[answers.Tenant]:
        """Replaces the limits of a tenant."""
        return Call(
            method="PATCH",
            path=path_of("tenants", name),
            read=_same,
            content=as_json({"limits": dict(limits)}),
            headers={"Content-Type": "application/json"},
        )

    @described
    def delete_tenant(self, name: str) -> Call[answers.Tenant]:
        """Deletes a tenant without keys, with all its data."""
        return Call(method="DELETE", path=path_of("tenants", name), read=_same)

    @described
    def audit(
        self,
        *,
        after: int | None = None,
        limit: int | None = None,
        who: str | None = None,
        since: str | None = None,
        newest_first: bool | None = None,
    ) -> Call[answers.AuditPage]:
        """Entries of the audit log, oldest first, or `newest_first`."""
        return get(path_of("audit"), after=after, limit=limit, who=who, since=since, newest_first=newest_first)

    @described
    def usage(self, *, days: int | None = None) -> Call[answers.Usage]:
        """Requests, events and bytes by day and key."""
        return get(path_of("usage"), days=days)

    @described
    def status(self) -> Call[answers.ServerStatus]:
        """The server, its queue and lag, the ledger, and the servers that share its database."""
        return get(path_of("status"))

    @described
    def confirm_clock(self) -> Call[answers.ClockConfirmed]:
        """Confirms that the time of the server's machine is right, after its clock jumped ahead."""
        return post(path_of("clock", "confirm"), {})

    @described
    def retry_operators(self) -> Call[answers.Retried]:
        """Tries again all candidates that operators could not decide in all their tries."""
        return post(path_of("operators", "retry"), {})

    @described
    def subscription_plan(self, id: str) -> Call[answers.SubscriptionPlan]:
        """The expected cost of each operator call of a subscription."""
        return get(path_of("subscriptions", id, "plan"))


# ── calls ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Calls(VocabularyCalls, OperatorCalls):
    """All calls of the API. Answers are the server's JSON as dicts, typed by `kindcast.server.answers`. Failures raise
    `ProblemError`."""

    tickets: dict[str, str]

    # ── ontologies and concepts ──────────────────────────────────────────────────────────────────────────────────────

    @described
    def put_ontology(
        self,
        name: str,
        document: bytes,
        *,
        content_type: str | None = None,
        format: str | None = None,
        reason: str | None = None,
        relations: Iterable[str] = (),
        activate: bool = True,
        dry_run: bool = False,
        shared: bool = False,
    ) -> Call[answers.LoadedOntology]:
        """Uploads an ontology and returns its load report. Give its syntax as media type or as format. `reason` is
        `none`, `rdfs` or `owl`. `relations` are requested in addition to is-a. Without `activate` it is only stored.
        With `dry_run` nothing is stored, and the answer reports the effect. With `shared` all tenants get it."""
        return _upload(name, document, content_type, format, reason, relations, activate, dry_run, shared)

    @described
    def start_ontology(
        self,
        name: str,
        document: bytes,
        *,
        content_type: str | None = None,
        format: str | None = None,
        reason: str | None = None,
        relations: Iterable[str] = (),
        activate: bool = True,
        dry_run: bool = False,
        shared: bool = False,
    ) -> Call[answers.Job]:
        """Uploads an ontology without waiting until it is read. Returns the job; `job` returns its progress."""
        call = _upload(name, document, content_type, format, reason, relations, activate, dry_run, shared)
        return replace(call, headers={**call.headers, "Prefer": "respond-async"})

    @described
    def job(self, id: str) -> Call[answers.Job]:
        """Progress of a job: its `status` (`running`, `done`, `failed`), `progress`, then `result` or `problem`."""
        return get(path_of("jobs", id))

    @described
    def ontologies(self) -> Call[answers.OntologyList]:
        """All loaded ontologies."""
        return get(path_of("ontologies"))

    @described
    def ontology(self, name: str) -> Call[answers.Ontology]:
        """One ontology."""
        return get(path_of("ontologies", name))

    @described
    def delete_ontology(
        self, name: str, *, dry_run: bool = False, shared: bool = False
    ) -> Call[answers.DeletedOntology]:
        """Deletes an ontology. Refused while subscriptions depend on it. With `dry_run` nothing changes. Set `shared`
        if all tenants share the ontology."""
        return _changing("DELETE", path_of("ontologies", name), dry_run, **_shared(shared))

    @described
    def concepts(self, q: str, *, lang: str | None = None, limit: int | None = None) -> Call[answers.FoundConcepts]:
        """Concepts whose labels or names contain `q`."""
        return get(path_of("concepts"), q=q, lang=lang, limit=limit)

    @described
    def resolve(self, term: str) -> Call[answers.ResolvedTerm]:
        """The meaning of a label, short form, CURIE or IRI."""
        return get(path_of("concepts", "resolve"), term=term)

    @described
    def ancestors(self, term: str) -> Call[answers.ConceptPage]:
        """All concepts broader than the concept."""
        return get(path_of("concepts", "ancestors"), term=term)

    @described
    def descendants(self, term: str) -> Call[answers.ConceptPage]:
        """All concepts narrower than the concept."""
        return get(path_of("concepts", "descendants"), term=term)

    @described
    def children(self, term: str) -> Call[answers.ConceptPage]:
        """The concepts directly narrower than the concept."""
        return get(path_of("concepts", "children"), term=term)

    # ── subscriptions ────────────────────────────────────────────────────────────────────────────────────────────────

    @described
    def subscribe(
        self,
        /,
        expression: str | None = None,
        *,
        where: Mapping[str, Any] | None = None,
        sink: str | None = None,
        ttl_seconds: float | None = None,
        **more: Any,
    ) -> Call[answers.CreatedSubscription]:
        """Creates a subscription from a text or a tree (`where`), with further members of the API as keywords. The
        answer has the ticket and, for a webhook, the secret. Neither is ever shown again. If there is no answer, the
        request is sent again, and still creates only one subscription."""
        body = present(expression=expression, where=where, sink=sink, ttl_seconds=ttl_seconds) | more
        call = post(path_of("subscriptions"), body, headers={"Idempotency-Key": str(uuid4())})
        return replace(call, read=functools.partial(_remember, self.tickets), repeatable=True)

    @described
    def subscriptions(self) -> Call[answers.SubscriptionList]:
        """All subscriptions."""
        return get(path_of("subscriptions"))

    @described
    def import_subscriptions(self, lines: bytes) -> Call[answers.Imported]:
        """Creates subscriptions from the lines of an export (NDJSON). Returns those that were `created`, with new
        tickets, and those that were `rejected`. If there is no answer, the request is sent again, and still creates
        each only once."""
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": str(uuid4())}
        path = path_of("subscriptions", "import")
        return Call(
            method="POST", path=path, read=_same, headers=headers, content=lines, timeout=600.0, repeatable=True
        )

    @described
    def stream_token(self, id: str) -> Call[answers.StreamToken]:
        """A `token` that opens the stream of a subscription once, within a minute, as `?token=`. It is for pages in
        browsers."""
        return post(path_of("subscriptions", id, "stream-tokens"), {})

    @described
    def subscription(self, id: str) -> Call[answers.SubscriptionState]:
        """One subscription, with its status, counters and last failure."""
        return get(path_of("subscriptions", id))

    @described
    def renew(
        self, id: str, *, ttl_seconds: float | None = None, ticket: str | None = None
    ) -> Call[answers.Subscription]:
        """Renews a subscription, also one that expired up to a week ago."""
        body = present(ttl_seconds=ttl_seconds)
        return post(path_of("subscriptions", id, "renew"), body, headers=self.ticket_header(id, ticket))

    @described
    def change(self, id: str, /, *, ticket: str | None = None, **fields: Any) -> Call[answers.ChangedSubscription]:
        """Changes sink, delivery options, metadata or end time of a subscription. None removes a value."""
        call = post(path_of("subscriptions", id), fields, headers=self.ticket_header(id, ticket))
        return replace(call, method="PATCH")

    @described
    def pause(self, id: str, *, ticket: str | None = None) -> Call[answers.Subscription]:
        """Stops matching until `resume`."""
        return post(path_of("subscriptions", id, "pause"), None, headers=self.ticket_header(id, ticket))

    @described
    def resume(self, id: str, *, ticket: str | None = None) -> Call[answers.Subscription]:
        """Resumes after `pause`, or after the sink was disabled by failures."""
        return post(path_of("subscriptions", id, "resume"), None, headers=self.ticket_header(id, ticket))

    @described
    def rotate_secret(
        self, id: str, *, overlap_seconds: float | None = None, ticket: str | None = None
    ) -> Call[answers.ChangedSubscription]:
        """Creates a new webhook `secret`. The present secret also signs for `overlap_seconds`, by default a day."""
        body = present(overlap_seconds=overlap_seconds)
        return post(path_of("subscriptions", id, "rotate-secret"), body, headers=self.ticket_header(id, ticket))

    @described
    def test_sink(self, id: str, *, ticket: str | None = None) -> Call[answers.TestDelivery]:
        """Sends one test message to the sink of a subscription, and returns the result."""
        return post(path_of("subscriptions", id, "test"), None, headers=self.ticket_header(id, ticket))

    @described
    def replay(
        self, id: str, *, after: str | int | None = None, since: str | None = None, ticket: str | None = None
    ) -> Call[answers.Subscription]:
        """Delivers again the messages after a cursor, or since a time (RFC 3339); without either, all that are
        stored."""
        body = present(after=None if after is None else str(after), since=since)
        return post(path_of("subscriptions", id, "replay"), body, headers=self.ticket_header(id, ticket))

    @described
    def dead_letters(self, *, subscription: str | None = None, cursor: str | None = None) -> Call[answers.DeadLetters]:
        """The messages that wait for sinks that were disabled by failures."""
        return get(path_of("dead-letters"), subscription=subscription, cursor=cursor)

    @described
    def redrive(self, subscription: str, *, ticket: str | None = None) -> Call[answers.Redriven]:
        """Sends the dead letters of a subscription again."""
        headers = self.ticket_header(subscription, ticket)
        return post(path_of("dead-letters", "redrive"), {"subscription": subscription}, headers=headers)

    @described
    def unsubscribe(self, id: str, *, ticket: str | None = None) -> Call[None]:
        """Deletes a subscription with its waiting messages."""
        headers = self.ticket_header(id, ticket)
        return Call(method="DELETE", path=path_of("subscriptions", id), read=_nothing, headers=headers)

    # ── events ───────────────────────────────────────────────────────────────────────────────────────────────────────

    @described
    def publish(
        self, /, events: Mapping[str, Any] | Iterable[Mapping[str, Any]], **context: str | int | bool | datetime
    ) -> Call[answers.Published]:
        """Publishes one event, or several as NDJSON. They are on disk when this returns.

        An object with `specversion` is a CloudEvent. Any other object is the data of an event, whose `type`, `source`,
        `id` … may be given as keywords. The keywords are for all events, so no `id` is allowed with several. A
        `datetime` without a time zone as a keyword is local time, as everywhere in Python. Raises `TypeError` for
        keywords beside a CloudEvent, and for values that are no text, integer, boolean or date-time.

        If there is no answer, the events are sent again, and each is accepted only once: a single event without an id
        gets one here, and several get ids that the server derives from an `Idempotency-Key`.
        """
        if isinstance(events, Mapping):
            kind = "application/cloudevents+json" if "specversion" in events else "application/json"
            content = as_json(events)
            if "specversion" not in events:
                context = {"id": str(uuid4()), **context}
            elif context:
                raise TypeError(f"a CloudEvent has its own attributes: put {', '.join(context)} into it")
            headers = {}
        else:
            events = _several(events)
            kind = "application/x-ndjson"
            content = b"".join(as_json(event) + b"\n" for event in events)
            headers = {"Idempotency-Key": str(uuid4())}
        headers |= {"Content-Type": kind}
        headers |= {f"ce-{name}": _quoted(_attribute(name, value), _PLAIN) for name, value in context.items()}
        return Call(
            method="POST", path=path_of("events"), read=_same, headers=headers, content=content, repeatable=True
        )

    @described
    def deliver_matches(self, matches: Iterable[Mapping[str, Any]] | bytes) -> Call[answers.DeliveredMatches]:
        """Delivers matches that were found elsewhere: `{"event": a CloudEvent, "subscription": an id}`, or with several
        `subscriptions`, also as NDJSON. At most 10,000 events and 50,000 matches at a time. They may be sent again."""
        content = matches if isinstance(matches, bytes) else b"".join(as_json(each) + b"\n" for each in matches)
        headers = {"Content-Type": "application/x-ndjson"}
        return Call(
            method="POST", path=path_of("matches"), read=_same, headers=headers, content=content, repeatable=True
        )

    @described
    def events(
        self,
        *,
        after: str | int | None = None,
        type: str | None = None,
        limit: int | None = None,
        received: bool = False,
    ) -> Call[answers.EventPage]:
        """The accepted events. With `received`, the context attribute `received` of each is the time at which it was
        accepted."""
        return get(path_of("events"), after=after, type=type, limit=limit, received=received or None)

    @described
    def trace(self, sequence: str | int, *, subscription: str | None = None) -> Call[answers.Trace]:
        """The trace of an event: its matches and every delivery attempt. With a subscription, also why the event did or
        did not match it."""
        return get(path_of("events", str(sequence), "trace"), subscription=subscription)

    @described
    def match(self, events: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> Call[answers.Matched]:
        """The subscriptions that would match, with their bindings. Nothing is stored."""
        one = isinstance(events, Mapping)
        call = post(path_of("match"), {"event": events} if one else {"events": _several(events)})
        return replace(call, repeatable=True)

    @described
    def explain(self, event: Mapping[str, Any], subscription: str) -> Call[answers.Explanation]:
        """Why the event does, or does not, match a subscription (its id, or an expression)."""
        return replace(post(path_of("explain"), {"event": event, "subscription": subscription}), repeatable=True)

    # ── backtests ────────────────────────────────────────────────────────────────────────────────────────────────────

    @described
    def start_backtest(self, asked: Mapping[str, Any], *, lang: str | None = None) -> Call[answers.BacktestJob]:
        """Begins to match an expression against the stored events: `expression` or `where`, `since`, `until`,
        `ontologies` (versions by name). A job: see `backtest`."""
        return replace(post(path_of("backtests"), dict(asked)), params=present(lang=lang))

    @described
    def backtest(self, id: str) -> Call[answers.BacktestJob]:
        """Progress of a backtest, and its `result` when it is done."""
        return get(path_of("backtests", id))

    # ── delivery ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @described
    def pull(
        self, id: str, *, after: str | int | None = None, limit: int | None = None, wait: float | None = None
    ) -> Call[answers.MessagePage]:
        """Messages after a cursor, by default the acknowledged one. `wait` is the number of seconds (at most 30) to
        wait for the first."""
        return Call(
            method="GET",
            path=path_of("subscriptions", id, "events"),
            read=_same,
            params=present(after=after, limit=limit, wait=wait),
            timeout=TIMEOUT_SECONDS + (wait or 0.0),
            repeatable=True,
        )

    @described
    def ack(self, id: str, cursor: str | int, *, ticket: str | None = None) -> Call[answers.Cursor]:
        """Acknowledges everything up to the cursor."""
        headers = self.ticket_header(id, ticket)
        return post(path_of("subscriptions", id, "ack"), {"cursor": str(cursor)}, headers=headers)

    @described
    def ready(self) -> Call[None]:
        """Returns if the server accepts requests; raises `ProblemError` (503) if not."""
        return Call(method="GET", path="/readyz", read=_nothing)

    def ticket_header(self, id: str, ticket: str | None) -> dict[str, str]:
        """The header that a change of this subscription needs, if the ticket is known."""
        known = ticket or self.tickets.get(id)
        return {} if known is None else {"Kindcast-Ticket": known}


def _several(events: Any) -> list[Any]:
    """Returns several events. Raises `TypeError` for what cannot be events, such as their text."""
    if isinstance(events, str | bytes) or not isinstance(events, Iterable):
        raise TypeError(f"an event is a mapping, and several are an iterable of mappings, not {type(events).__name__}")
    return list(events)


_PLAIN = "!#$&'()*+,/:;=?@[]~"
"""Characters that are not encoded in a header of CloudEvents' binary mode, besides letters, digits and `_.-~`."""


def _upload(
    name: str,
    document: bytes,
    content_type: str | None,
    format: str | None,
    reason: str | None,
    relations: Iterable[str],
    activate: bool,
    dry_run: bool,
    shared: bool,
) -> Call[Any]:
    if isinstance(relations, str):
        raise TypeError(f"relations are several names: write [{relations!r}]")
    asked = present(
        format=format,
        reason=reason,
        relations=",".join(relations) or None,
        activate=None if activate else "false",
        dry_run="true" if dry_run else None,
        shared="true" if shared else None,
    )
    return Call(
        method="PUT",
        path=path_of("ontologies", name),
        read=_same,
        params=asked,
        headers={"Content-Type": content_type or "application/octet-stream"},
        content=document,
    )


def _remember(tickets: dict[str, str], created: answers.CreatedSubscription) -> answers.CreatedSubscription:
    tickets[created["id"]] = created["ticket"]
    return created


def _nothing(_: Any) -> None:
    return None
