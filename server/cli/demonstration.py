"""The command `kindcast demo`: a guided tour on a temporary server."""

import signal
import sys
from typing import Annotated

import typer

from kindcast.server.cli import output
from kindcast.server.cli.problems import CommandFailed

__all__ = ["demo"]

DEFAULT_PACE = 0.5
"""Seconds between two steps: an offer can be read, and all is over in a few seconds."""


def demo(
    pace: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="The pause between two steps.")
    ] = DEFAULT_PACE,
) -> None:
    """Show it: a server, a vocabulary, subscriptions by kind, offers, deliveries, and why."""
    from kindcast.server.cli.demo_performance import DeliveryMissing, perform
    from kindcast.server.cli.demo_server import StageFailed

    signal.signal(signal.SIGTERM, _leave)
    screen = output.screen()
    if not screen.is_terminal:
        screen.width = 110  # rules and trees, not rows of data: a page is what reads best in a log
    try:
        perform(screen, pace=pace)
    except (StageFailed, DeliveryMissing) as error:
        raise CommandFailed(str(error)) from error


def _leave(number: int, _: object) -> None:
    """Ends like an exception, so that the server and its folder go as well."""
    sys.exit(128 + number)
