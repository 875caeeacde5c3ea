"""Jobs: how far is what a request began with `Prefer: respond-async`?"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response

from semantic.ontology.progress import Progress
from server.api.requests import answer
from server.jobs import Jobs

__all__ = ["AppJobs", "accepted", "router", "wants_a_job"]

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


async def _jobs(request: Request) -> Jobs:
    jobs: Jobs = request.app.state.jobs
    return jobs


AppJobs = Annotated[Jobs, Depends(_jobs)]


@router.get("/{id}", summary="How far a job is")
async def get_job(id: str, jobs: AppJobs) -> Response:
    """`running` with its stage, `done` with the `result` that the request would have been answered, or `failed` with
    the `problem`. What has ended is forgotten after a while."""
    return answer(jobs.find(id).as_json())


def wants_a_job(request: Request) -> bool:
    """Whether the client asked to be answered before the work is done (RFC 7240)."""
    preferences = ",".join(request.headers.getlist("prefer")).split(",")
    return any(each.partition(";")[0].strip().lower() == "respond-async" for each in preferences)


def accepted(jobs: Jobs, work: Callable[[Progress], Awaitable[tuple[dict[str, Any], bool]]]) -> Response:
    """202, with the address at which the work can be watched. The work returns what it would be answered, and whether
    that is new."""

    async def result(progress: Progress) -> dict[str, Any]:
        return (await work(progress))[0]

    job = jobs.start(result)
    headers = {"Location": f"/v1/jobs/{job.id}", "Preference-Applied": "respond-async"}
    return answer(job.as_json(), 202, headers)
