"""Routes of jobs: the progress and result of requests sent with `Prefer: respond-async`."""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends, Request, Response

from kindcast.semantic.ontology import Progress
from kindcast.server.api.access import services_of
from kindcast.server.api.problem_types import as_document, problem_of
from kindcast.server.api.requests import AppCaller, answer
from kindcast.server.broker import Broker
from kindcast.server.errors import ServerError, UnknownJob
from kindcast.server.security.callers import Caller
from kindcast.server.security.permissions import Roles
from kindcast.server.store.servers import find_job, store_job

__all__ = ["PREFER", "AppJobs", "Jobs", "accepted", "wants_a_job"]


# Jobs: work that takes longer than a request should. One request begins it, others read its progress, and its result is
# kept for a while.
#
# PUT …, Prefer: respond-async ──▶ Jobs.start ──▶ 202, Location: /v1/jobs/{id}
# GET /v1/jobs/{id} ──▶ progress and result
#
# If several servers share a database, each stores the progress of its jobs there, so that every server can report it.

_log = logging.getLogger("kindcast.jobs")

TELL_SECONDS = 1.0
"""The interval at which the progress of a job is stored for the other servers."""


@dataclass(slots=True)
class Job:
    """A job. `result` is the answer that the request would have had, and `problem` its error."""

    id: str
    status: Literal["running", "done", "failed"] = "running"
    progress: tuple[str, int, int | None] = ("wait", 0, None)
    result: dict[str, Any] | None = None
    problem: dict[str, Any] | None = None
    finished: float | None = None  # seconds of a monotonic clock
    task: "asyncio.Task[None] | None" = field(default=None, repr=False)
    roles: Roles = None
    """The roles for which the result was made; None if it is the same for all."""
    hidden: list[str] = field(default_factory=list)
    """The attributes that were hidden from these roles when it began."""

    def advance(self, stage: str, done: int, total: int | None) -> None:
        """Sets the progress. May be called in any thread, because it replaces one reference."""
        self.progress = (stage, done, total)

    def as_json(self) -> dict[str, Any]:
        """The job as JSON."""
        stage, done, total = self.progress
        told: dict[str, Any] = {
            "id": self.id,
            "status": self.status,
            "progress": {"stage": stage, "done": done, "total": total},
        }
        if self.result is not None:
            told["result"] = self.result
        if self.problem is not None:
            told["problem"] = self.problem
        return told


class Jobs:
    """The jobs of one tenant, on the event loop. At most `kept` ended jobs are kept, for at most `seconds`."""

    def __init__(self, broker: Broker, *, kept: int, seconds: float) -> None:
        self._broker = broker
        self._kept = kept
        self._seconds = seconds
        self._jobs: dict[str, Job] = {}  # in the order of their beginning

    @property
    def running(self) -> bool:
        """Whether there is work that has not ended."""
        return any(each.status == "running" for each in self._jobs.values())

    async def start(self, work: Callable[[Progress], Awaitable[dict[str, Any]]], roles: Roles = None) -> Job:
        """Begins `work`, which gets a function for reporting its progress and returns the result. Every server that
        shares the database knows the job when this returns. If `roles` are given, the result shows what they may see,
        and only callers who have all of them find the job, unless more is hidden from them meanwhile.

        The work itself limits how many jobs run at the same time: it fails at once if there are too many.
        """
        self._forget()
        job = Job(f"job_{secrets.token_hex(8)}", roles=roles, hidden=self._hidden_from(roles))
        self._jobs[job.id] = job
        job.task = asyncio.create_task(self._run(job, work))
        await self._tell(job)
        return job

    async def find(self, id: str, caller: Caller) -> dict[str, Any]:
        """Returns a job of any server as JSON. Raises `UnknownJob` if there is none for this caller, also if it was
        deleted or its server ended before it."""
        self._forget()
        if id in self._jobs:
            job = self._jobs[id]
            if not self._may_see(caller, job.roles, job.hidden):
                raise UnknownJob(id)
            return job.as_json()
        told = None
        if self._broker.leases.membership is not None:
            told = await self._broker.read(partial(find_job, id=id))
        if told is None:
            raise UnknownJob(id)
        found: dict[str, Any] = msgspec.json.decode(told)
        if not self._may_see(caller, found.pop("roles", None), found.pop("hidden", ())):
            raise UnknownJob(id)
        return found

    def _may_see(self, caller: Caller, roles: Collection[str] | None, hidden: Collection[str]) -> bool:
        """Whether a result that was made for `roles`, without what was `hidden` from them, shows this caller nothing
        that is hidden from it now."""
        if roles is None or caller.roles is None or "admin" in caller.roles:
            return True
        return set(roles) <= caller.roles and set(self._hidden_from(caller.roles)) <= set(hidden)

    def _hidden_from(self, roles: Roles) -> list[str]:
        view = self._broker.vocabulary.view_of_roles(roles)
        return [] if view is None else [".".join(each) for each in view.unreadable | view.unmatchable]

    async def stop(self) -> None:
        """Waits until running jobs have ended, after their owner told them to stop."""
        running = [job.task for job in self._jobs.values() if job.task is not None and not job.task.done()]
        await asyncio.gather(*running, return_exceptions=True)

    async def _tell(self, job: Job) -> None:
        """Stores the job for the other servers, if there can be any."""
        if (member := self._broker.leases.membership) is None:
            return
        roles = {} if job.roles is None else {"roles": sorted(job.roles), "hidden": job.hidden}
        told, ended = msgspec.json.encode(job.as_json() | roles).decode(), job.status != "running"
        try:
            await self._broker.execute(
                lambda connection: store_job(
                    connection, member.id, job.id, told, ended=ended, kept=self._kept, seconds=self._seconds
                )
            )
        except ServerError as error:
            _log.error("the other servers cannot be told about job %s: %s", job.id, error)

    async def _tell_on(self, job: Job) -> None:
        """Stores the progress of a job at intervals."""
        told = job.progress
        while True:
            await asyncio.sleep(TELL_SECONDS)
            if job.progress != told:
                told = job.progress
                await self._tell(job)

    async def _run(self, job: Job, work: Callable[[Progress], Awaitable[dict[str, Any]]]) -> None:
        telling = None if self._broker.leases.membership is None else asyncio.create_task(self._tell_on(job))
        try:
            job.result = await work(job.advance)
            job.status = "done"
            job.progress = ("done", 0, None)
        except Exception as error:
            problem = problem_of(error)
            if problem.status_code == 500:
                _log.error("job %s failed", job.id, exc_info=error)
            job.problem = as_document(problem)
            job.status = "failed"
        finally:
            job.finished = time.monotonic()
            if telling is not None:
                telling.cancel()
                await self._tell(job)
            job.task = None

    def _forget(self) -> None:
        oldest = time.monotonic() - self._seconds
        ended = [job for job in self._jobs.values() if job.finished is not None]
        surplus = len(ended) - self._kept
        for number, job in enumerate(sorted(ended, key=lambda each: each.finished or 0.0)):
            if number < surplus or (job.finished or 0.0) < oldest:
                del self._jobs[job.id]


# ── routes ────────────────────────────────────────────────────────────────────────────────────────────────────────────

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


async def _jobs(request: Request) -> Jobs:
    jobs: Jobs = services_of(request).jobs
    return jobs


AppJobs = Annotated[Jobs, Depends(_jobs)]


@router.get("/{id}", summary="Progress of a job")
async def get_job(id: str, jobs: AppJobs, caller: AppCaller) -> Response:
    """Returns the job: `running` with its stage, `done` with the `result` that the request would have had, or `failed`
    with the `problem`. Ended jobs are deleted after a while."""
    return answer(await jobs.find(id, caller))


PREFER = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "`respond-async`: answer 202 at once, with the job at `Location`.",
}
"""The header that `wants_a_job` reads, which may occur several times, as OpenAPI describes a parameter."""


def wants_a_job(request: Request) -> bool:
    """Whether the client wants an answer before the work is done (RFC 7240)."""
    preferences = ",".join(request.headers.getlist("prefer")).split(",")
    return any(each.partition(";")[0].strip().lower() == "respond-async" for each in preferences)


async def accepted(jobs: Jobs, work: Callable[[Progress], Awaitable[tuple[dict[str, Any], bool]]]) -> Response:
    """Begins a job and returns 202 with its URL. The work returns its answer, and whether that is new."""

    async def result(progress: Progress) -> dict[str, Any]:
        return (await work(progress))[0]

    job = await jobs.start(result)
    headers = {"Location": f"/v1/jobs/{job.id}", "Preference-Applied": "respond-async"}
    return answer(job.as_json(), 202, headers)
