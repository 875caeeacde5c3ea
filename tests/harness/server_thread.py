"""The application behind a real HTTP server on a real socket, in a thread of the test's own process."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from kindcast.server.api.http_protocol import uvicorn_config
from kindcast.server.app import create_app
from kindcast.server.settings import Settings

__all__ = ["running_app"]

PATIENCE_SECONDS = 30.0
"""For start and stop; only a failing test ever waits this long."""


@contextmanager
def running_app(data: Path, *, everywhere: bool = False, **settings: Any) -> Iterator[str]:
    """Yields the URL of a server over this data folder; stops it in order at the end of the block. `everywhere`: it
    listens on `::`, where clients over IPv4 come, too."""
    started = threading.Event()
    with socket.socket(socket.AF_INET6 if everywhere else socket.AF_INET) as listener:
        if everywhere:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("::" if everywhere else "127.0.0.1", 0))
        listener.listen(128)
        chosen = Settings(data=data, **settings)
        config = uvicorn_config(create_app(chosen), chosen, timeout_graceful_shutdown=5)
        server = _Server(config, started)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            assert started.wait(PATIENCE_SECONDS), "the server did not start"
            assert server.started, "the server refused to start"
            scheme = "http" if chosen.tls_certificate is None else "https"
            yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive(), "the server did not stop"


class _Server(uvicorn.Server):
    """Tells when it takes requests, or has given up."""

    def __init__(self, config: uvicorn.Config, told: threading.Event) -> None:
        super().__init__(config)
        self._told = told

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self._told.set()
