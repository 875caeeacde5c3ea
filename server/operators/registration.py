"""What an administrator registers as a remote operator, checked; and the declaration that the matcher knows of it."""

import inspect
from collections.abc import Mapping
from typing import Any

import msgspec

from semantic.errors import InvalidDeclaration
from semantic.operators.declaration import Operator
from server.operators.asking import Deferred
from server.security.egress import check_sink

__all__ = ["Registration", "as_operator", "read_registration"]

MAX_HEADERS = 16
MAX_HEADER_LENGTH = 4_096
MAX_ARGUMENTS = 32
MAX_SECONDS = 60.0
MAX_CONCURRENCY = 256


class Registration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What an administrator says of a remote operator. `arguments`: how many constants and `@attributes` a call has, or
    the least and the most; `attributes`: which attributes of the event it is sent (None: all); the numbers are priors
    and limits."""

    url: str
    version: str = "1"
    arguments: int | tuple[int, int] = (0, MAX_ARGUMENTS)
    attributes: tuple[str, ...] | None = None
    cost: float = 0.05
    selectivity: float = 0.5
    timeout_seconds: float = 5.0
    concurrency: int = 8
    speculate: bool = False
    retries: int = 1
    cache_seconds: float = 0.0
    headers: dict[str, str] = {}

    def shown(self) -> dict[str, Any]:
        """As anybody may see it: values of headers may be secrets."""
        told: dict[str, Any] = {name: getattr(self, name) for name in self.__struct_fields__}
        return told | {"headers": dict.fromkeys(self.headers, "(hidden)")}


def read_registration(body: Mapping[str, Any], *, allow_private: bool) -> Registration:
    """A checked registration. Raises `InvalidDeclaration`, `SinkRefused`."""
    try:
        read = msgspec.convert(body, Registration, strict=True)
    except msgspec.ValidationError as error:
        raise InvalidDeclaration(f"the operator cannot be registered: {error}") from None
    check_sink(read.url, allow_private=allow_private)
    least, most = _arity(read)
    bounds = {
        f"arguments are from 0 to {MAX_ARGUMENTS}": 0 <= least <= most <= MAX_ARGUMENTS,
        f"timeout_seconds are above 0, at most {MAX_SECONDS:g}": 0 < read.timeout_seconds <= MAX_SECONDS,
        f"concurrency is from 1 to {MAX_CONCURRENCY}": 1 <= read.concurrency <= MAX_CONCURRENCY,
        "retries are from 0 to 5": 0 <= read.retries <= 5,
        "cache_seconds are from 0 to 86,400": 0 <= read.cache_seconds <= 86_400,
        "a version has 1 to 100 characters": 1 <= len(read.version) <= 100,
        f"at most {MAX_HEADERS} headers of {MAX_HEADER_LENGTH} visible ASCII characters": (
            len(read.headers) <= MAX_HEADERS and all(map(_is_header, read.headers.items()))
        ),
    }
    for rule, kept in bounds.items():
        if not kept:
            raise InvalidDeclaration(f"the operator cannot be registered: {rule}")
    return read


def as_operator(name: str, registration: Registration) -> Operator:
    """The declaration that the matcher knows. Raises `InvalidDeclaration`."""
    least, most = _arity(registration)
    kind = inspect.Parameter.POSITIONAL_ONLY
    parameters = [inspect.Parameter("event", kind)]
    parameters += [
        inspect.Parameter(f"argument{n}", kind, default=inspect.Parameter.empty if n < least else None)
        for n in range(most)
    ]
    return Operator(
        name=name,
        function=Deferred(name, inspect.Signature(parameters)),
        cost=registration.cost,
        selectivity=registration.selectivity,
        version=registration.version,
        speculate=registration.speculate,
    )


def _arity(registration: Registration) -> tuple[int, int]:
    asked = registration.arguments
    return (asked, asked) if isinstance(asked, int) else asked


def _is_header(header: tuple[str, str]) -> bool:
    name, value = header
    named = bool(name) and all(each.isascii() and (each.isalnum() or each in "-_") for each in name)
    valued = len(value) <= MAX_HEADER_LENGTH and all(" " <= each <= "~" for each in value)
    return named and valued and name.lower() not in ("host", "content-length", "transfer-encoding", "connection")
