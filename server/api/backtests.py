"""Routes of backtests: evaluate an expression over the stored events. Each backtest is a job."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response

from kindcast.semantic.ontology import Progress
from kindcast.semantic.units import parse_instant
from kindcast.server.api.access import services_of
from kindcast.server.api.jobs import AppJobs
from kindcast.server.api.problem_types import Problem
from kindcast.server.api.requests import AppCaller, AppSettings, Language, answer, body_schema, json_object
from kindcast.server.backtests import Asked, Backtests

__all__ = ["router"]

router = APIRouter(prefix="/v1/backtests", tags=["backtests"])

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
            "additionalProperties": {"type": "integer"},
            "description": "Versions of ontologies to use instead of the active versions, by name.",
        },
    },
    "additionalProperties": False,
    "example": {"expression": "target isa Computer and price <= 400", "ontologies": {"shop": 1}},
}


async def _backtests(request: Request) -> Backtests:
    backtests: Backtests = services_of(request).backtests
    return backtests


@router.post("", summary="Count the stored events that match", status_code=202, openapi_extra=body_schema(BACKTEST))
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
    await backtests.check(asked)

    async def work(progress: Progress) -> dict[str, Any]:
        return await backtests.run(asked, progress)

    job = await jobs.start(work)
    return answer(job.as_json(), 202, {"Location": f"/v1/backtests/{job.id}"})


@router.get("/{id}", summary="Progress of a backtest")
async def get_backtest(id: str, jobs: AppJobs) -> Response:
    """Returns the backtest: `running` with its progress, `done` with the `result`, or `failed` with the `problem`."""
    return answer(await jobs.find(id))


def _asked(body: dict[str, Any], language: str) -> Asked:
    unknown = [name for name in body if name not in BACKTEST["properties"]]  # type: ignore[operator]
    if unknown:
        errors = [{"pointer": f"/{name}", "detail": "unknown member"} for name in unknown[:20]]
        raise Problem("invalid-request", f"unknown member {unknown[0][:100]!r}", errors=errors)
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
    if isinstance(said, dict) and all(type(version) is int for version in said.values()):
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
        raise Problem("invalid-request", f"`{name}` must be a date-time of RFC 3339", errors=errors)
    return instant / 1_000_000
