"""How answers travel: the head of an answer goes out with the first part of its body, and never waits for it long."""

import asyncio
from typing import Any, cast

from kindcast.server.api.http_protocol import _Lingering


class Written:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.packets: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.packets.append(data)

    def close(self) -> None:
        self.packets.append(b"closed")


def test_what_is_held_is_one_packet_and_waits_for_one_turn_of_the_loop() -> None:
    """Each packet wakes the client. A stream whose first part comes later has its head at once."""

    async def work() -> None:
        inner = Written()
        transport = _Lingering(cast(Any, inner), lambda close, _: close())
        loop = asyncio.get_running_loop()
        transport.hold(loop)
        transport.write(b"head ")
        transport.write(b"body")
        transport.flush()
        transport.write(b"more")
        assert inner.packets == [b"head body", b"more"]
        await asyncio.sleep(0)
        transport.hold(loop)
        transport.write(b"head of a stream")
        await asyncio.sleep(0)
        assert inner.packets[2:] == [b"head of a stream"]
        transport.hold(loop)
        transport.write(b"last")
        transport.close()
        assert inner.packets[3:] == [b"last", b"closed"]

    asyncio.run(work())
