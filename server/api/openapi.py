"""The OpenAPI document: the framework's, with the types of all answers in it.

routes ──FastAPI──▶ paths, parameters, bodies ─┐
answers.ANSWERS ──pydantic──▶ JSON Schemas ────┴─▶ /openapi.json
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from fastapi import FastAPI
from pydantic import TypeAdapter

from kindcast.server.answers import ANSWERS, Bytes, Lines, ProblemDocument, Text

__all__ = ["describe_answers"]

JSON = "application/json"
REFERENCES = "#/components/schemas/{model}"
PLAIN = (Text, Lines, Bytes)
SSE_TYPE = "text/event-stream"
SSE = {
    "type": "object",
    "description": "One event of the stream. `data` of an event `match` is a message as JSON text.",
    "properties": {
        "id": {"type": "string"},
        "event": {"enum": ["match", "end"]},
        "data": {"type": "string"},
        "retry": {"type": ["integer", "string"]},
    },
}
REQUEST_FAULTS = "422"
"""The framework's own description of refused requests; all our errors are problem documents, which `default` has."""


def describe_answers(app: FastAPI) -> Callable[[], dict[str, Any]]:
    """What takes the place of `app.openapi`."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _with_answers(made())
        return app.openapi_schema

    return openapi


def _with_answers(document: dict[str, Any]) -> dict[str, Any]:
    schemas, definitions = _schemas()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            responses = operation["responses"]
            responses.pop(REQUEST_FAULTS, None)
            for status, kind in ANSWERS.get(f"{method.upper()} {path}", {}).items():
                response = responses.setdefault(str(status), {"description": "Successful Response"})
                if isinstance(kind, PLAIN):
                    response["content"] = {str(kind): {"schema": SSE if kind == SSE_TYPE else {"type": "string"}}}
                elif kind is not None:
                    response["content"] = {JSON: {"schema": schemas[kind]}}
    components = document.setdefault("components", {}).setdefault("schemas", {})
    components.update(definitions)
    for unused in ("HTTPValidationError", "ValidationError"):
        components.pop(unused, None)
    return document


@cache
def _schemas() -> tuple[dict[Any, dict[str, Any]], dict[str, Any]]:
    """The schema of each type, and what they refer to."""
    kinds = {
        kind
        for statuses in ANSWERS.values()
        for kind in statuses.values()
        if kind is not None and not isinstance(kind, PLAIN)
    } | {ProblemDocument}
    made, definitions = TypeAdapter.json_schemas(
        [(kind, "serialization", TypeAdapter(kind)) for kind in sorted(kinds, key=str)],
        ref_template=REFERENCES,
    )
    return {kind: schema for (kind, _), schema in made.items()}, definitions.get("$defs", {})
