"""Commands wait for a server that is just starting."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Never

import pytest

from kindcast.server.cli import connection


@contextmanager
def _listening_after(seconds: float) -> Iterator[int]:
    """A port on which something listens after so many seconds."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    timer = threading.Timer(seconds, listener.listen)
    timer.start()
    try:
        yield listener.getsockname()[1]
    finally:
        timer.join()
        listener.close()


def test_client_waits_until_something_listens() -> None:
    """A server that was started in the background is found, as soon as it listens."""
    with _listening_after(0.5) as port:
        connection.wait_for(f"http://127.0.0.1:{port}", 60.0)
        socket.create_connection(("127.0.0.1", port), 30.0).close()


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "localhost:8080", "http://[", "http://no-such-host.invalid"])
def test_client_does_not_wait_longer_than_it_is_told(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without patience, and where the address is wrong, the request itself says what is wrong."""

    def waits(*given: object) -> Never:
        pytest.fail("it waited")

    monkeypatch.setattr(time, "sleep", waits)
    monkeypatch.setattr(socket, "create_connection", waits)
    connection.wait_for(address, 0.0)
