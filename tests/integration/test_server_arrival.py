"""`ce.received`: when the server accepted an event, on every way by which it matches one (rule 26)."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kindcast import Event, Matcher, Vocabulary
from tests.harness.application import running_application, subscribe, ticket

OLD = "1999-01-01T00:00:00Z"
EVENT = {"specversion": "1.0", "source": "/s", "type": "t", "received": OLD, "time": OLD, "data": {"a": 1}}


def test_time_of_arrival_is_matched_and_is_not_delivered(tmp_path: Path) -> None:
    """Published, tried, explained, told of afterwards and in a backtest; what was published is what is delivered."""
    began = datetime.fromtimestamp(time.time() - 600, UTC).isoformat()
    asked = f"ce.received >= {began} and ce.received < 2100-01-01"
    with running_application(tmp_path) as client:

        def matched(**context: str) -> int:
            headers = {"Content-Type": "application/cloudevents+json"}
            answer = client.post("/v1/events", json={**EVENT, **context}, headers=headers).raise_for_status()
            return int(answer.json()["events"][0]["matched"])

        assert matched(id="1") == 0
        created = subscribe(client, expression=asked)
        assert matched(id="2") == 1
        event: dict[str, Any] = {**EVENT, "id": "3"}
        assert len(client.post("/v1/match", json={"event": event}).json()["matches"]) == 1
        assert client.post("/v1/explain", json={"event": event, "subscription": asked}).json()["matches"] is True
        params = {"subscription": created["id"]}
        trace = client.get("/v1/events/2/trace", params=params).json()
        assert trace["explanation"]["matches"] is True
        pulled = client.get(f"/v1/subscriptions/{created['id']}/events", headers=ticket(created)).json()
        assert [each["event"]["received"] for each in pulled["events"]] == [OLD]
        job = client.post("/v1/backtests", json={"expression": asked}).headers["location"]
        ends = time.monotonic() + 60
        while (found := client.get(job).json())["status"] == "running" and time.monotonic() < ends:
            time.sleep(0.05)
        assert found["result"]["matched"] == 2  # the first one too: when it came is stored
        client.put("/v1/attributes/age", json={"derived": "ce.received - ce.time"}).raise_for_status()
        subscribe(client, expression="age > 9000 day")
        assert matched(id="4") == 2


def test_listed_with_its_time_of_arrival_an_event_matches_elsewhere_as_here(tmp_path: Path) -> None:
    """To the microsecond, and only if asked for. What the publisher called `received` is replaced, as here."""
    with running_application(tmp_path) as client:
        headers = {"Content-Type": "application/cloudevents+json"}
        for number in range(5):
            client.post("/v1/events", json={**EVENT, "id": str(number)}, headers=headers).raise_for_status()
        plain = client.get("/v1/events").json()["events"]
        assert {each["event"]["received"] for each in plain} == {OLD}
        listed = [each["event"] for each in client.get("/v1/events", params={"received": True}).json()["events"]]
        assert [{**each, "received": OLD} for each in listed] == [each["event"] for each in plain]
        middle = listed[2]["received"]
        expressions = {comparison: f"ce.received {comparison} {middle}" for comparison in ("<", "=", ">")}
        ids = {comparison: subscribe(client, expression=each)["id"] for comparison, each in expressions.items()}
        matcher = Matcher(Vocabulary())
        matcher.add_many(expressions.items())
        for sequence, each in enumerate(listed, 1):
            context = {name: value for name, value in each.items() if name != "data"}
            found = {match.subscription for match in matcher.match(Event(each["data"], context))}
            for comparison, id in ids.items():
                trace = client.get(f"/v1/events/{sequence}/trace", params={"subscription": id}).json()
                assert trace["explanation"]["matches"] == (comparison in found), (sequence, comparison)
        assert found == {">"}
