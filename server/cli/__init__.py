"""The command line, `kindcast`. Each module holds one group of commands; `application.py` combines them.

>>> main(["--version"])                                                                        # doctest: +SKIP
kindcast 0.1.0
"""

from kindcast.server.cli.application import main

__all__ = ["main"]
