"""The command line, `kindcast`. Each module holds the commands of one noun; `application.py` puts them together.

>>> main(["--version"])                                                                        # doctest: +SKIP
kindcast 0.1.0
"""

from kindcast.server.cli.application import main

__all__ = ["main"]
