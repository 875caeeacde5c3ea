"""The application without a socket: requests go straight to it, its lifespan runs around the block.

One client, used by one thread; the application's event loop has a thread of its own. What a handler raises unexpectedly
becomes the 500 that a user would see.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from kindcast.server.answers import ANSWERS
from kindcast.server.app import create_app
from kindcast.server.settings import Settings
from tests.harness.answers import check_answer

__all__ = ["problem_code", "publish", "running_application", "show", "subscribe", "ticket", "waiting"]


@contextmanager
def running_application(data: Path, **settings: Any) -> Iterator[httpx.Client]:
    """A client of an application over this data folder; the application stops in order at the end of the block."""
    app = create_app(Settings(data=data, **settings))
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(app.router.lifespan_context(app)),
        httpx.Client(transport=_Transport(app, portal), base_url="http://127.0.0.1") as client,
    ):
        yield client


def problem_code(response: httpx.Response) -> str:
    """The stable last part of a problem's type; fails where the answer is no problem document."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    document = response.json()
    assert document["status"] == response.status_code
    assert document["title"]
    assert document["detail"]
    assert "instance" in document
    code: str = document["type"].removeprefix("https://kindcast.dev/problems/")
    return code


def subscribe(client: httpx.Client, expression: str = "", **more: Any) -> dict[str, Any]:
    """What creating a subscription answers, ticket included."""
    answer = client.post("/v1/subscriptions", json={"expression": expression, **more})
    assert answer.status_code == 201, answer.text
    created: dict[str, Any] = answer.json()
    return created


def ticket(created: dict[str, Any]) -> dict[str, str]:
    """The header that changes need."""
    return {"Kindcast-Ticket": created["ticket"]}


def publish(client: httpx.Client, **data: Any) -> int:
    """How many subscriptions got an event with these data."""
    answer = client.post("/v1/events", json=data)
    assert answer.status_code == 202, answer.text
    matched: int = answer.json()["matched"]
    return matched


def waiting(client: httpx.Client, created: dict[str, Any]) -> list[Any]:
    """The data of the messages that wait for a subscription."""
    answer = client.get(f"/v1/subscriptions/{created['id']}/events")
    assert answer.status_code == 200, answer.text
    return [message["event"]["data"] for message in answer.json()["events"]]


def show(client: httpx.Client, created: dict[str, Any]) -> httpx.Response:
    """The subscription as it is now."""
    return client.get(f"/v1/subscriptions/{created['id']}")


class _Transport(httpx.BaseTransport):
    """Carries requests of a synchronous client to the application's loop and waits for the whole answer, which it
    compares with its declared type."""

    def __init__(self, app: FastAPI, portal: BlockingPortal) -> None:
        self._app = app
        self._route: str | None = None
        self._inner = httpx.ASGITransport(self._observed, raise_app_exceptions=False)
        self._portal = portal

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._portal.call(self._handle, request)

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, Iterable)
        sent = httpx.Request(request.method, request.url, headers=request.headers, stream=_Pieces(request.stream))
        answer = await self._inner.handle_async_request(sent)
        content = await answer.aread()
        if (route := self._route) is not None and f"{request.method} {route}" in ANSWERS:
            check_answer(request.method, route, answer.status_code, answer.headers, content)
        return httpx.Response(answer.status_code, headers=answer.headers, content=content)

    async def _observed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Tells which route answered; `POST /v1/events` is answered before any, and has a test of its own."""
        await self._app(scope, receive, send)
        route = scope.get("route")
        self._route = None if route is None else route.path_format.replace(":path", "")


class _Pieces(httpx.AsyncByteStream):
    """The pieces of a request's body, as they were given."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece
