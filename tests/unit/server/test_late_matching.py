"""The decision of candidates that wait for operators."""

import asyncio
from typing import Any, cast
from unittest.mock import Mock

from kindcast.server.cloudevents import EventReader
from kindcast.server.errors import RecordDamaged
from kindcast.server.late_matching import LateMatchers, Parked, Schedule, decide_event


def test_candidates_of_a_damaged_event_are_decided_only_when_that_is_on_disk() -> None:
    """Otherwise they would be read and decided again meanwhile."""

    async def damaged(_: Any) -> None:
        raise RecordDamaged(1)

    async def drive() -> None:
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue, late_matchers = Mock(), Mock()
        queue.add.return_value, late_matchers.broker.read = written, damaged
        parked = Parked(event=1, version="v", last=False, candidates=[(1, "sub_1", 0)])
        deciding = asyncio.create_task(
            decide_event(parked, cast(LateMatchers, late_matchers), queue, Schedule((1.0,)), EventReader(max_events=1))
        )
        while not queue.add.called:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not deciding.done()
        written.set_result(None)
        await deciding

    asyncio.run(drive())
