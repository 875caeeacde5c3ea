"""Archives in an object store: read from an S3 server (moto), whose requests travel over HTTP as those to any other."""

import gzip
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer
from pyspark.sql import SparkSession

from kindcast.semantic.ontology import read
from kindcast.spark_jobs import __main__ as commands
from kindcast.spark_jobs.match import match, match_archive
from kindcast.spark_jobs.reading import ReadOptions
from kindcast.spark_jobs.report import NoArchive
from kindcast.spark_jobs.snapshot import Snapshot, write_snapshot
from kindcast.spark_jobs.stream import read_events, readable

SHOP = """@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix : <http://example.org/> .
:Laptop rdfs:subClassOf :Computer . :Sofa a rdfs:Class .
"""
OFFERS = [{"target": "Laptop" if n % 4 else "Sofa", "price": n} for n in range(40)]
CHEAP_COMPUTERS = 15
"""Of the first twenty, every fourth is a sofa."""
CONNECTOR = Path(os.environ.get("KINDCAST_TEST_HADOOP_AWS") or Path(sys.prefix) / "hadoop-aws")
"""A folder with Hadoop's connector for S3, `hadoop-aws-*.jar`, and the jar of Amazon's library that it needs. `make
hadoop-aws` fetches a version. With the variable a folder of another version can be tested."""
WRITE_TWICE = """
import sys
from pathlib import Path
from kindcast.spark_jobs.match import match
from kindcast.spark_jobs.session import spark_session
from kindcast.spark_jobs.snapshot import Snapshot
from kindcast.spark_jobs.stream import read_events, readable
jars, address, archive, snapshot = sys.argv[1:]
s3a = {
    "endpoint": "http://" + address,
    "path.style.access": "true",
    "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "access.key": "someone",
    "secret.key": "secret",
    # Connectors before 3.4 take numbers only, and the defaults of Hadoop 3.5 have units.
    "threads.keepalivetime": "60",
    "connection.establish.timeout": "5000",
    "connection.timeout": "200000",
    "multipart.purge.age": "86400",
}
options = {"spark.jars": jars, **{"spark.hadoop.fs.s3a." + name: value for name, value in s3a.items()}}
session = spark_session("kindcast-tests", master="local[2]", options=options)
matches = match(readable(read_events(session, archive)), Snapshot.read(Path(snapshot)), explode=True)
for _ in range(2):
    matches.write.mode("overwrite").partitionBy("day").parquet("s3a://shop/matches")
    print(session.read.parquet("s3a://shop/matches").count())
session.stop()
"""
LINES = "".join(json.dumps(offer) + "\n" for offer in OFFERS).encode()


class Bucket:
    """A bucket of the server."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._query = f"?scheme=http&endpoint_override={address}&region=eu-central-1"
        self._files = pa.fs.S3FileSystem(
            access_key="someone",
            secret_key="secret",
            scheme="http",
            endpoint_override=address,
            region="eu-central-1",
            allow_bucket_creation=True,
        )
        self._files.create_dir("shop")

    def put(self, name: str, content: bytes) -> None:
        with self._files.open_output_stream(f"shop/{name}", compression=None) as stream:
            stream.write(content)

    def uri(self, folder: str, scheme: str = "s3a") -> str:
        return f"{scheme}://someone:secret@shop/{folder}{self._query}"


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        yield Bucket("{}:{}".format(*server.get_host_and_port()))
    finally:
        server.stop()


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    asked = [("cheap computers", "target isa Computer and price < 20")]
    return write_snapshot(tmp_path / "snapshot", [read(SHOP.encode(), format="turtle")], asked)


def test_files_of_every_format_in_an_object_store_are_matched_in_one_job(
    tmp_path: Path, bucket: Bucket, snapshot: Snapshot, spark: SparkSession
) -> None:
    table, csv, parquet = pa.Table.from_pylist(OFFERS), io.BytesIO(), io.BytesIO()
    pc.write_csv(table, csv)
    pq.write_table(table, parquet)
    contents = {
        "a.ndjson": LINES,
        "b.ndjson.gz": gzip.compress(LINES),
        "c.csv": csv.getvalue(),
        "d.parquet": parquet.getvalue(),
    }
    for name, content in contents.items():
        bucket.put(f"every format/day=2026-01-31/{name}", content)
    numbers = ReadOptions(numbers=("price",))
    found = match_archive(spark, bucket.uri("every%20format"), tmp_path / "out", snapshot, read=numbers)
    assert (found["events"], found["quarantined"]) == (4 * len(OFFERS), 0)
    rows = pq.read_table(tmp_path / "out").to_pylist()
    matched = [row["id"].partition(":")[0] for row in rows if row["subscriptions"]]
    assert {name: matched.count(f"day=2026-01-31/{name}") for name in contents} == dict.fromkeys(
        contents, CHEAP_COMPUTERS
    )


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_functions_of_data_frames_read_an_object_store_and_spark_writes_the_result(
    tmp_path: Path, bucket: Bucket, snapshot: Snapshot, spark: SparkSession, scheme: str
) -> None:
    """Into a folder: `test_spark_writes_into_the_object_store` needs Hadoop's connector."""
    bucket.put("lines/a.ndjson", LINES)
    events = readable(read_events(spark, bucket.uri("lines", scheme)))
    matches = match(events, snapshot, explode=True)
    matches.write.mode("overwrite").partitionBy("day").parquet(str(tmp_path / "matches"))
    assert pq.read_table(tmp_path / "matches").num_rows == CHEAP_COMPUTERS


@pytest.mark.skipif(not CONNECTOR.is_dir(), reason="`make hadoop-aws` fetches Hadoop's connector for S3")
def test_spark_writes_into_the_object_store(bucket: Bucket, snapshot: Snapshot) -> None:
    """Spark's own writer, by Hadoop's connector; the second result replaces the first."""
    bucket.put("lines/a.ndjson", LINES)
    jars = ",".join(map(str, CONNECTOR.glob("*.jar")))
    places = (jars, bucket.address, bucket.uri("lines"), snapshot.folder)
    done = subprocess.run(
        [sys.executable, "-c", WRITE_TWICE, *places], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    assert done.stdout.split()[-2:] == 2 * [str(CHEAP_COMPUTERS)]


def test_archive_that_is_not_there_is_told_without_the_credentials_of_its_address(
    tmp_path: Path, bucket: Bucket, snapshot: Snapshot, spark: SparkSession
) -> None:
    with pytest.raises(NoArchive, match=r"^s3a://shop/nothing\?.* does not exist$") as caught:
        match_archive(spark, bucket.uri("nothing"), tmp_path / "out", snapshot)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("place", ["s3://someone:secret@shop/a b", "tape://shop/a"])
def test_archive_at_an_address_that_is_none_is_refused(place: str, snapshot: Snapshot, spark: SparkSession) -> None:
    with pytest.raises(NoArchive, match="is no address of files") as caught:
        match_archive(spark, place, Path(snapshot.folder) / "out", snapshot)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("place", ["s3a://shop/matches", "file:///tmp/matches", "hdfs://head/matches"])
def test_output_of_a_command_is_a_folder_and_not_an_address(
    tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder named `s3a:` would surprise who looks into the bucket."""
    monkeypatch.chdir(tmp_path)
    assert commands.main(["match", "--archive", "in", "--output", place]) == 1
    assert "jobs write into folders" in json.loads(capsys.readouterr().out)["problem"]
    assert not list(tmp_path.iterdir())
