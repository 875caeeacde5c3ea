"""Those who wish, listening: one stream of server-sent events each, in a thread of its own."""

import queue
import threading
import time
from dataclasses import dataclass
from typing import Any

from server.client import Client, ProblemError
from server.demo.story import Wish

__all__ = ["Audience", "Delivered"]


@dataclass(frozen=True, slots=True)
class Delivered:
    """A message that came: to whom, for which event, and when by `time.monotonic`."""

    wish: Wish
    sequence: str
    data: dict[str, Any]
    at: float


class Audience:
    """Subscribes for every wish and listens until the server is gone. `ids` maps who → subscription."""

    def __init__(self, server: str, wishes: tuple[Wish, ...]) -> None:
        self.ids: dict[str, str] = {}
        self.canonical: dict[str, str] = {}
        self._server = server
        self._came: queue.Queue[Delivered] = queue.Queue()
        with Client(server) as client:
            for wish in wishes:
                created = client.subscribe(wish.text)
                self.ids[wish.who], self.canonical[wish.who] = created["id"], created["canonical"]
        for wish in wishes:
            # Daemons: they wait in a read that only the end of the server would end.
            threading.Thread(target=self._listen, args=(wish,), daemon=True).start()

    def wait_for(self, count: int, seconds: float) -> list[Delivered]:
        """The next `count` messages; fewer when they do not come in time."""
        deadline = time.monotonic() + seconds
        came: list[Delivered] = []
        while len(came) < count:
            try:
                came.append(self._came.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                break
        return came

    def _listen(self, wish: Wish) -> None:
        try:
            with Client(self._server) as client:
                for message in client.listen(self.ids[wish.who], after="0"):
                    event = message["event"]
                    self._came.put(Delivered(wish, message["cursor"], event.get("data", {}), time.monotonic()))
        except ProblemError:
            return  # the demonstration is over
