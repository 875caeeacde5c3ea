"""The clients of all operators of a registry: called directly, in child processes, or over HTTP."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.operators.calls import run, stop
from kindcast.semantic.operators.declaration import Operator
from kindcast.semantic.operators.failures import OperatorFailed
from kindcast.semantic.operators.isolation import START_SECONDS, Cancellation
from kindcast.server.operators.answers import Caller, Event
from kindcast.server.operators.operator_client import AtOnce, Limits, OnLoop
from kindcast.server.operators.registry import Entry, Registry
from kindcast.server.operators.remote import RemoteOperator
from kindcast.server.security.connections import Connections
from kindcast.server.settings import Settings

__all__ = ["Callers"]


class Callers:
    """One per server; on its event loop. What an operator's circuit has learned stays as long as its entry does."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._connections = Connections(allow_private=settings.allow_private_sinks)
        self._loop = asyncio.get_running_loop()
        self._made: dict[str, tuple[Entry, Caller]] = {}

    @property
    def by_name(self) -> Mapping[str, Caller]:
        """The way to each operator that is there. A snapshot: any thread may keep it."""
        return {name: caller for name, (_, caller) in self._made.items()}

    def follow(self, registry: Registry) -> None:
        """Have a way to all that is in `registry`, and to nothing else."""
        made: dict[str, tuple[Entry, Caller]] = {}
        for name, entry in registry.entries.items():
            before = self._made.pop(name, None)
            if before is not None and before[0] is entry:
                made[name] = before
                continue
            if before is not None:
                before[1].close()
            if entry.kind != "missing":
                made[name] = (entry, self._way(entry))
        for _, caller in self._made.values():
            caller.close()
        self._made = made

    async def close(self) -> None:
        """End all processes and connections; nothing may be asked any more."""
        for _, caller in self._made.values():
            caller.close()
        self._made = {}
        await self._connections.close()

    def _way(self, entry: Entry) -> Caller:
        operator = entry.operator
        if entry.registration is not None:
            asked = entry.registration
            remote = RemoteOperator(
                operator.name, asked, self._connections, allow_private=self._settings.allow_private_sinks
            )
            limits = Limits(
                seconds=asked.timeout_seconds,
                concurrency=asked.concurrency,
                keep_seconds=asked.cache_seconds,
                attributes=asked.attributes,
            )
            return OnLoop(remote, limits, self._loop)
        if entry.kind == "builtin":
            return AtOnce(operator.function)
        plugin = _Plugin(operator, operator.timeout or self._settings.operator_timeout_seconds)
        limits = Limits(seconds=plugin.longest_seconds, concurrency=operator.concurrency)
        return OnLoop(plugin, limits, self._loop, closed=plugin.close)


class _Plugin:
    """A plug-in's function: in its own processes where possible, so that a call that hangs can be killed."""

    def __init__(self, operator: Operator, seconds: float) -> None:
        self._operator = _isolated(replace(operator, timeout=seconds, batch=None))
        # A process is killed at the operator's timeout, which does not count its start; one that cannot be isolated can
        # only be left behind.
        self.longest_seconds = seconds + 1.0 + (START_SECONDS if self._operator.isolated else 0.0)
        self._threads = ThreadPoolExecutor(operator.concurrency, f"kindcast-operator-{operator.name}")

    async def __call__(self, event: Event, arguments: tuple[Any, ...]) -> object:
        cancellation = Cancellation()
        loop = asyncio.get_running_loop()

        def ask() -> Any:
            return run(self._operator, [(event, *arguments)], cancellation=cancellation)[0]

        try:
            found = await loop.run_in_executor(self._threads, ask)
        except asyncio.CancelledError:
            cancellation.cancel()
            raise
        if isinstance(found, OperatorFailed):
            raise found
        return found

    def close(self) -> None:
        stop(self._operator)
        self._threads.shutdown(wait=False, cancel_futures=True)


def _isolated(operator: Operator) -> Operator:
    try:
        return replace(operator, isolated=True)
    except InvalidDeclaration:  # a function inside a function: no other process could find it
        return operator
