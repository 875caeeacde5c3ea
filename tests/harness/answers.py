"""Every answer of the application compared with its declared type (`kindcast.server.answers`), strictly: a member that
the type lacks is a fault too, though clients must bear it."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter

from kindcast.server.answers import ANSWERS, HEADERS, LIMITS, OF_ERRORS, ROUTE_HEADERS, ProblemDocument

__all__ = ["check_answer", "faults_of"]

OPEN = "ProblemDocument"
"""Some problems have more members than all have."""


def check_answer(method: str, path: str, status: int, headers: Mapping[str, str], body: bytes) -> None:
    """Fails for an answer that is not of its type, or has a header that is not described. `path`: as the OpenAPI
    document has it. `headers`: with any case of their names."""
    found = faults_of(method, path, status, headers.get("content-type", ""), body)
    described = OF_ERRORS if status >= 400 else (*LIMITS, *ROUTE_HEADERS.get(f"{method} {path}", ()))
    if status == 401 and "WWW-Authenticate" not in headers:
        found.append("a 401 says how to send a key, by WWW-Authenticate")
    found += [f"the header {name} is not described" for name in HEADERS if name in headers and name not in described]
    assert not found, f"{method} {path} {status}: {found[:5]}"


def faults_of(method: str, path: str, status: int, content_type: str, body: bytes) -> list[str]:
    """What is wrong with an answer."""
    if status >= 400:
        kind: Any = ProblemDocument
        if content_type != "application/problem+json":
            return [f"an error is a problem document, not {content_type}"]
    elif status not in ANSWERS[f"{method} {path}"]:
        return ["the status is not declared"]
    else:
        kind = ANSWERS[f"{method} {path}"][status]
    if kind is None:
        return ["no content is declared"] if body else []
    if isinstance(kind, str):
        return [] if content_type.partition(";")[0] == kind else [f"{content_type} is not {kind}"]
    told = msgspec.json.decode(body)
    return [f"{error.json_path}: {error.message[:300]}" for error in _validator(kind).iter_errors(told)]


@cache
def _validator(kind: Any) -> Draft202012Validator:
    return Draft202012Validator(_closed(TypeAdapter(kind).json_schema(mode="serialization")))


def _closed(schema: Any, name: str = "") -> Any:
    """The schema with objects that have only the members that it names."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _closed(value, key) for key, value in schema.items()}
    if "properties" in schema and schema.get("title") != OPEN:
        made["additionalProperties"] = False
    return made
