"""Jobs on a real standalone cluster: two workers, relative paths, and a snapshot that the workers cannot see."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

from kindcast import Matcher, Vocabulary
from kindcast.spark_jobs.session import find_java
from tests.harness.spark_cluster import environment_of_a_cluster, spark_cluster

SHOP = """@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix : <http://example.org/> .
:Laptop rdfs:subClassOf :Computer . :Tablet rdfs:subClassOf :Computer . :Sofa a rdfs:Class .
"""
ASKED = {"computers": "target isa Computer", "cheap": "price < 100", "sofas": "target isa Sofa and price >= 1000"}
FILES, EVENTS = 4, 300
LONGEST = 300


def test_jobs_on_a_cluster_give_the_known_answers_without_a_shared_snapshot(tmp_path: Path) -> None:
    find_java()
    (tmp_path / "shop.ttl").write_text(SHOP, encoding="utf-8")
    lines = [json.dumps({"id": id, "expression": text}) for id, text in ASKED.items()]
    (tmp_path / "asked.ndjson").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "in").mkdir()
    matcher = Matcher(Vocabulary.from_files(tmp_path / "shop.ttl"))
    matcher.add_many(list(ASKED.items()))
    wanted: list[list[str]] = []
    for file in range(FILES):
        events = [{"target": ("Laptop", "Sofa", "Tablet")[n % 3], "price": 7 * n + file} for n in range(EVENTS)]
        (tmp_path / "in" / f"{file}.ndjson").write_text("\n".join(map(json.dumps, events)), encoding="utf-8")
        for line, found in enumerate(matcher.match_batch(events), 1):
            wanted += [[f"{file}.ndjson:{line}", each.subscription] for each in found]

    with spark_cluster(tmp_path) as master:
        environment = environment_of_a_cluster()
        command = [sys.executable, "-m", "tests.harness.cluster_job", master]
        job = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LONGEST)
        assert job.returncode == 0, job.stdout + job.stderr[-3000:]

    assert json.loads((tmp_path / "rows.json").read_text()) == sorted(wanted)
    written = pq.read_table(tmp_path / "match").to_pylist()
    assert sorted([row["id"], each] for row in written for each in row["subscriptions"]) == sorted(wanted)
    assert pq.read_table(tmp_path / "normalise").num_rows == len(written) == FILES * EVENTS
    results = [json.loads(line)["result"] for line in job.stdout.splitlines() if '"result"' in line]
    assert [each["events"] for each in results] == [FILES * EVENTS] * 3
    ran = {path.parent.parent.parent.name for path in tmp_path.glob("worker-*/app-*/*/stderr")}
    assert ran == {"worker-0", "worker-1"}
