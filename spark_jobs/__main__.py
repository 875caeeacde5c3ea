"""The entry point of `python -m kindcast.spark_jobs`, and the file for spark-submit."""

import sys

from kindcast.spark_jobs.commands import main

if __name__ == "__main__":
    sys.exit(main())
