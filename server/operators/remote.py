"""Remote operators: HTTP services that answer questions about events.

    POST url   {"operator": "crowd", "version": "1", "arguments": [["https://…"]], "event": {"image": ["https://…"]}}
    200        {"holds": true}   or, for a call with variables,   {"bindings": [[3], [{"value": 86, "unit": "degF"}]]}

The service is a stranger: the address is checked as a webhook's is (`kindcast.server.security.egress`), redirects are
not followed, the answer is read up to a bound and must have exactly this form. Whatever else comes is a failure, and
decides nothing.
"""

from typing import Any

import httpcore
import msgspec

from kindcast.semantic.model import Instant, Quantity
from kindcast.semantic.operators import FailureKind, OperatorFailed
from kindcast.server.operators.answers import Event
from kindcast.server.operators.registry import Registration
from kindcast.server.security.egress import Connections, Sink, SinkRefused, check_sink

__all__ = ["RemoteOperator"]

MAX_ANSWER_BYTES = 65_536
"""Of an answer's body: a thousand bindings fit, and a service gone mad cannot fill our memory."""


class _Holds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    holds: bool


class _Bindings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    bindings: list[list[bool | int | float | str | dict[str, Any]]]


class RemoteOperator:
    """Asks one service. On one event loop; limits are `QueuedClient`'s."""

    def __init__(self, name: str, registration: Registration, connections: Connections, *, allow_private: bool) -> None:
        self._name = name
        self._registration = registration
        self._connections = connections
        self._allow_private = allow_private

    async def __call__(self, event: Event, arguments: tuple[Any, ...]) -> object:
        """A bool, or a list of bindings. A connection that breaks is tried again. Raises `OperatorFailed`."""
        body = self._question(event, arguments)
        tries = 1 + self._registration.retries
        while True:
            tries -= 1
            try:
                return _read(await self._post(body))
            except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.RemoteProtocolError) as error:
                if not tries:
                    kind: FailureKind = "timed_out" if isinstance(error, httpcore.TimeoutException) else "failed"
                    raise OperatorFailed(f"cannot be reached: {type(error).__name__}", kind=kind) from None
            except SinkRefused as error:
                raise OperatorFailed(f"is not asked: {error}") from None
            except (httpcore.ProtocolError, httpcore.UnsupportedProtocol):
                raise OperatorFailed("did not answer in HTTP") from None

    async def _post(self, body: bytes) -> bytes:
        service = check_sink(self._registration.url, allow_private=self._allow_private)
        async with (
            self._connections.to(service.endpoint) as pool,
            pool.stream(
                "POST",
                httpcore.URL(scheme=service.scheme, host=service.host, port=service.port, target=service.target),
                headers=self._headers(service),
                content=body,
            ) as answer,
        ):
            if answer.status != 200:
                raise OperatorFailed(f"answered with status {answer.status}; 200 is expected")
            found = bytearray()
            async for piece in answer.aiter_stream():
                found += piece
                if len(found) > MAX_ANSWER_BYTES:
                    raise OperatorFailed(f"answered more than {MAX_ANSWER_BYTES:,} bytes")
            return bytes(found)

    def _headers(self, service: Sink) -> list[tuple[bytes, bytes]]:
        own = {"content-type": "application/json", "accept": "application/json", "user-agent": "kindcast"}
        given = {name.lower(): value for name, value in self._registration.headers.items()}
        headers = [(name.encode(), value.encode()) for name, value in (given | own).items()]
        return [(b"Host", service.netloc), *headers]

    def _question(self, event: Event, arguments: tuple[Any, ...]) -> bytes:
        question = {
            "operator": self._name,
            "version": self._registration.version,
            "arguments": arguments,
            "event": event,
        }
        return _encoder.encode(question)


def _read(body: bytes) -> object:
    """The answer as an operator's function returns it. Raises `OperatorFailed` for what is no answer."""
    try:
        return _holds.decode(body).holds
    except msgspec.ValidationError:
        pass
    except msgspec.DecodeError:
        raise OperatorFailed("its answer is not JSON") from None
    try:
        return [tuple(map(_value, binding)) for binding in _bindings.decode(body).bindings]
    except (msgspec.ValidationError, ValueError) as error:
        detail = 'expected is {"holds": …} or {"bindings": [[…], …]}'
        raise OperatorFailed(f"its answer has the wrong form: {error}; {detail}") from None


def _value(value: object) -> object:
    if isinstance(value, dict):
        number, unit = value.get("value"), value.get("unit")
        if len(value) != 2 or isinstance(number, bool) or not isinstance(number, int | float):
            raise ValueError("an object in a binding is a quantity, with value and unit")
        if not isinstance(unit, str):
            raise ValueError("the unit of a quantity is a text")
        return Quantity(number, unit)
    return value


def _plain(value: object) -> object:
    if isinstance(value, Quantity):
        return {"value": value.value, "unit": value.unit}
    if isinstance(value, Instant):
        return value.text
    return str(value)


_encoder = msgspec.json.Encoder(enc_hook=_plain)
_holds = msgspec.json.Decoder(_Holds)
_bindings = msgspec.json.Decoder(_Bindings)
