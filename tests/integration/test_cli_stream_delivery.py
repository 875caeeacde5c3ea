"""What a stream leaves in its outbox, delivered to a server that takes it slowly, or does not know all of it."""

import json
import os
from pathlib import Path

import pytest

from kindcast import Client
from kindcast.server.cli import spark
from kindcast.server.cli.output import CommandFailed
from kindcast.server.cli.spark import EVENTS_SENT, Outbox
from kindcast.spark_jobs.snapshot import Inputs
from tests.harness.receiver import running_receiver
from tests.harness.server_thread import running_app
from tests.integration.conftest import Kindcast

EVENTS = 8 * EVENTS_SENT


def test_outbox_goes_on_where_a_limit_stopped_it(
    tmp_path: Path, kindcast: Kindcast, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused for a while (429) in the middle of a file: no match is sent again, since that would count, too."""
    data = tmp_path / "data"
    key = kindcast("key", "create", "--role", "admin", "--data", str(data), "--json").json["key"]
    monkeypatch.setenv("KINDCAST_KEY", key)
    outbox = tmp_path / "out" / "batch=000000000" / "_outbox"
    outbox.mkdir(parents=True)
    synced: dict[str, bool] = {}
    """Whether the outbox was still there when a file was flushed."""

    def fsync(handle: int) -> None:
        synced[os.readlink(f"/proc/self/fd/{handle}")] = outbox.exists()

    monkeypatch.setattr(os, "fsync", fsync)
    with running_app(data, key_limits={"events_per_second": EVENTS_SENT / 2}) as url, Client(url) as client:
        made = client.subscribe("n >= 0")["id"]
        lines = [
            {
                "event": {"specversion": "1.0", "id": str(number), "source": "/s", "type": "t", "data": {"n": number}},
                "subscription": made if number else "nobody",
            }
            for number in range(EVENTS)
        ]
        text = "".join(json.dumps(each) + "\n" for each in [*lines, {"event": {}, "subscription": made}])
        (outbox / "part-1.ndjson").write_text(text, encoding="utf-8")
        with Outbox(tmp_path / "out", url) as delivering:
            told = delivering.rest()
        assert "429" in capsys.readouterr().err
        assert told == {"events": EVENTS, "matches": EVENTS - 1, "repeated": 0, "unmatched": 1, "refused": 1}
        assert client.subscription(made)["pending"] == EVENTS - 1
    assert not outbox.exists()
    kept = outbox.parent / "_refused" / "part-1.ndjson"
    assert synced[str(kept)]
    (refused,) = kept.read_text(encoding="utf-8").splitlines()
    assert "CloudEvent" in json.loads(refused)["reason"]


@pytest.mark.parametrize("answers", [True, False])
def test_outbox_waits_where_no_server_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, answers: bool
) -> None:
    """Where nothing answers, or a server that knows nothing of kindcast and accepts every request: no match counts as
    delivered, and the command fails."""
    monkeypatch.setattr(spark, "GIVEN_UP_AFTER", 0.1)
    monkeypatch.setenv("KINDCAST_RETRY_SECONDS", "0.1")
    outbox = tmp_path / "batch=000000000" / "_outbox" / "part-1.ndjson"
    outbox.parent.mkdir(parents=True)
    outbox.write_text('{"event": {}, "subscription": "s"}\n', encoding="utf-8")
    with running_receiver() as receiver:
        url, reason = (
            (receiver.url, "is there a kindcast server") if answers else ("http://127.0.0.1:9", "no server answers")
        )
        with Outbox(tmp_path, url) as delivering, pytest.raises(CommandFailed, match=f"delivered to {url}: .*{reason}"):
            delivering.rest()
    assert outbox.exists()


def test_inputs_follow_a_server_whose_ontologies_go(tmp_path: Path) -> None:
    """What a stream reads again and again: a deleted ontology is gone, and what did not change is not touched."""
    data, folder = tmp_path / "data", tmp_path / "inputs"
    with running_app(data) as url, Client(url) as client:
        for name in ("a", "b"):
            client.put_ontology(name, f"<urn:{name}> a <http://www.w3.org/2002/07/owl#Class> .".encode())
        client.subscribe("n = 1")
        for server, place in ((None, str(data)), (url, None)):
            spark._read(server, place, folder)
        before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
        assert {"000.records", "001.records"} < before.keys()
        client.delete_ontology("a")
        spark._read(url, None, folder)
        after = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
        assert before.keys() - after.keys() == {"001.records"}
        assert after["subscriptions.ndjson"] == before["subscriptions.ndjson"]


def test_paused_subscriptions_are_not_matched_wherever_they_come_from(tmp_path: Path) -> None:
    """An export has them, so that they can be imported; a server does not match them."""
    data, exported = tmp_path / "data", tmp_path / "exported.ndjson"
    with running_app(data) as url, Client(url) as client:
        client.pause(client.subscribe("n = 1")["id"])
        active = client.subscribe("n = 2")["id"]
        for server, place, folder in ((None, str(data), tmp_path / "read"), (url, None, tmp_path / "fetched")):
            spark._read(server, place, folder)
            snapshot = Inputs(folder=folder).snapshot(folder.with_suffix(".own"))
            assert set(snapshot.matcher(0, snapshot.vocabulary())) == {active}, folder
        exported.write_bytes(b"".join(client.download("/v1/subscriptions/export")))
    assert [each.subscriptions for each in Inputs(subscriptions=exported).snapshot(tmp_path / "own").shards] == [1]
