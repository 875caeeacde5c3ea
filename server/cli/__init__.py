"""The command line, `kindcast`. Each module holds one group of commands; `application.py` combines them.

>>> main(["--version"])                                                                        # doctest: +SKIP
kindcast 0.1.0
"""

import sys
from collections.abc import Sequence

__all__ = ["main"]

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one command: from `arguments`, or from those of the process. Ends with SystemExit."""
    try:
        from kindcast.server.cli.application import main as run  # takes long enough to be interrupted
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    run(arguments)
