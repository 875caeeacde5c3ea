"""Ports for processes that are started again under the address that they had."""

import os
import socket

__all__ = ["free_port"]

LOWEST, COUNT = 10_000, 22_000
"""Below the ports that Linux gives to connections that go out: none of these takes the port while its server is
down."""

_next = os.getpid() * 1_009 % COUNT  # workers of a parallel run, whose numbers follow each other, stand apart


def free_port() -> int:
    """A port of this machine that nobody listens on, and that this process has not given to anybody else yet."""
    global _next
    while True:
        port, _next = LOWEST + _next, (_next + 1) % COUNT
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
