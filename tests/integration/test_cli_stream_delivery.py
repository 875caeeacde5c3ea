"""What a stream leaves in its outbox, delivered to a server that takes it slowly, or does not know all of it."""

import json
from pathlib import Path

import pytest

from kindcast import Client
from kindcast.server.cli.spark import EVENTS_SENT, Outbox
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
    (refused,) = (outbox.parent / "_refused" / "part-1.ndjson").read_text(encoding="utf-8").splitlines()
    assert "CloudEvent" in json.loads(refused)["reason"]
