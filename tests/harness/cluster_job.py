"""Jobs on a cluster, in a process of their own: run in the folder of the archive, with the address of the master."""

import json
import sys
from pathlib import Path

from kindcast.spark_jobs.__main__ import main
from kindcast.spark_jobs.match import match
from kindcast.spark_jobs.session import spark_session
from kindcast.spark_jobs.snapshot import Inputs
from kindcast.spark_jobs.stream import read_events, readable

if __name__ == "__main__":
    master = sys.argv[1]
    inputs = ["--ontology", "shop.ttl", "--subscriptions", "asked.ndjson", "--master", master]
    for job in ("match", "normalise", "learn"):
        status = main([job, "--archive", "in", "--output", job, *inputs])
        if status:
            sys.exit(status)
    snapshot = Inputs(ontologies=(Path("shop.ttl"),), subscriptions=Path("asked.ndjson")).snapshot(Path("own"))
    matches = match(readable(read_events(spark_session(), "in")), snapshot, explode=True)
    Path("own").rename("moved away")  # what the workers cannot see
    rows = sorted((row["id"], row["subscription"]) for row in matches.collect())
    Path("rows.json").write_text(json.dumps(rows), encoding="utf-8")
