"""One request, described once and sent two ways.

A method of `Calls` returns a `Call`: method, path, what to send, how to read the answer. The decorator `described`
turns it into a method that `Client` sends at once and `AsyncClient` as a coroutine, both fully typed, so that no call
of the API is written twice. `read_answer` makes a value, or a `ProblemError`, of what comes back.
"""

import functools
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, overload
from urllib.parse import quote

import httpx
import msgspec

if TYPE_CHECKING:
    from server.client.clients import AsyncClient, Client

__all__ = ["Call", "Json", "ProblemError", "described", "get", "path_of", "post", "present", "problem", "read_answer"]

TIMEOUT_SECONDS = 60.0
"""For an answer. Loading a large ontology takes longest."""

Json = dict[str, Any]
P = ParamSpec("P")
T = TypeVar("T")


class ProblemError(Exception):
    """The server refused: an RFC 9457 problem. `type` is stable; `errors` places each single fault."""

    def __init__(self, status: int, type: str, title: str, detail: str, errors: list[Json]) -> None:
        lines = [f"{status} {title}: {detail}" if detail else f"{status} {title}"]
        lines += [f"  {_place(error)}{error.get('detail', '')}" for error in errors]
        super().__init__("\n".join(lines))
        self.status = status
        self.type = type
        self.title = title
        self.detail = detail
        self.errors = errors

    @classmethod
    def of(cls, told: Mapping[str, Any], status: int = 500, reason: str = "") -> "ProblemError":
        """The error of a problem document: of an answer, or of a job that failed."""
        return cls(
            int(told.get("status") or status),
            str(told.get("type", "about:blank")),
            str(told.get("title") or reason),
            str(told.get("detail") or ""),
            [error for error in told.get("errors") or [] if isinstance(error, dict)],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One request. `read` turns the parsed answer (None when it has no body) into what the method returns."""

    method: str
    path: str
    read: Callable[[Any], T]
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    timeout: float = TIMEOUT_SECONDS

    def arguments(self) -> dict[str, Any]:
        """As keywords of httpx's `request`, save the URL."""
        return {
            "params": dict(self.params),
            "headers": dict(self.headers),
            "content": self.content,
            "timeout": self.timeout,
        }


class described(Generic[P, T]):  # noqa: N801 - it is used as a decorator
    """Makes a method of `Calls` send what it describes: at once on a `Client`, as a coroutine on an `AsyncClient`."""

    def __init__(self, describe: Callable[Concatenate[Any, P], Call[T]]) -> None:
        self._describe = describe
        functools.update_wrapper(cast("Any", self), describe)

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: "Client", owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: "AsyncClient", owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: "Client | AsyncClient | None", owner: type) -> Any:
        if client is None:
            return self

        @functools.wraps(self._describe)
        def send(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.send(self._describe(client, *args, **kwargs))

        return send


def get(path: str, **params: Any) -> Call[Json]:
    """A GET that answers with an object; parameters that are None are left out."""
    return Call(method="GET", path=path, read=_same, params=present(**params))


def post(path: str, body: Any, *, headers: Mapping[str, str] | None = None) -> Call[Json]:
    """A POST of JSON (of nothing, when `body` is None) that answers with an object."""
    content = None if body is None else msgspec.json.encode(body)
    kind = {} if body is None else {"Content-Type": "application/json"}
    return Call(method="POST", path=path, read=_same, headers={**kind, **(headers or {})}, content=content)


def path_of(*segments: str) -> str:
    """A path beneath /v1, each segment quoted.

    >>> path_of("ontologies", "a/b")
    '/v1/ontologies/a%2Fb'
    """
    return "/v1/" + "/".join(quote(segment, safe="") for segment in segments)


def present(**fields: Any) -> Json:
    """The fields that were given."""
    return {name: value for name, value in fields.items() if value is not None}


def read_answer(call: Call[T], answer: httpx.Response) -> T:
    """What the method returns. Raises `ProblemError` for every status of 400 and above."""
    if answer.status_code >= 400:
        raise problem(answer)
    return call.read(msgspec.json.decode(answer.content) if answer.content else None)


def problem(answer: httpx.Response) -> ProblemError:
    """The problem in an answer that was read; answers of proxies, which are none, keep status and reason."""
    try:
        body = msgspec.json.decode(answer.content)
    except msgspec.DecodeError:
        body = None
    told = body if isinstance(body, dict) else {}
    return ProblemError.of({**told, "status": answer.status_code}, reason=answer.reason_phrase)


def _same(answer: Any) -> Json:
    return cast("Json", answer)


def _place(error: Json) -> str:
    if "line" in error:
        return f"line {error['line']}, column {error.get('column', 1)}: "
    return f"{error['pointer']}: " if error.get("pointer") else ""
