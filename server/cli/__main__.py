"""The entry point of `python -m kindcast.server.cli`, for when the console script is not on the PATH."""

from kindcast.server.cli import main

if __name__ == "__main__":
    main()
