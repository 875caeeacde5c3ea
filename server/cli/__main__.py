"""`python -m server.cli`: the command line where the console script is not at hand."""

from server.cli import main

if __name__ == "__main__":
    main()
