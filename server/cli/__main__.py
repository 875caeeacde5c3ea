"""`python -m kindcast.server.cli`: the command line where the console script is not at hand."""

from kindcast.server.cli import main

if __name__ == "__main__":
    main()
