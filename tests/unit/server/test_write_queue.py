"""The queue in front of the broker: what becomes of records that cannot be written."""

import asyncio
import logging

from kindcast.server.broker.write_queue import WriteQueue


def test_write_queue_lets_nobody_wait_for_what_it_gave_up() -> None:
    """At a stop with a full disk, tasks that wait for a record end, also if it was added during the last attempt."""

    async def stop_without_writing() -> list[bool]:
        async def refuse(_: list[str]) -> None:
            queue.close()
            later.append(queue.add("while it is tried"))
            raise OSError("no space left")

        later: list[asyncio.Future[None]] = []
        queue = WriteQueue(refuse, logging.getLogger("test"), "%d records: %s")
        first = queue.add("before")
        await asyncio.wait_for(queue.run(), 5)
        return [each.cancelled() for each in (first, *later)]

    assert asyncio.run(stop_without_writing()) == [True, True]
