"""What time does to subscriptions and events: expiry, renewal, purge, retention; and that a restart changes nothing."""

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kindcast.semantic.shipped_vocabularies import shipped
from tests.harness.application import problem_code, publish, running_application, show, subscribe, ticket, waiting
from tests.harness.waiting import until


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with running_application(tmp_path) as client:
        yield client


def test_expiry_stops_matching_and_renewal_starts_it_again(client: httpx.Client) -> None:
    """After its end it gets nothing, though it is still there; renewed, it matches from then on."""
    created = subscribe(client, "n exists", ttl_seconds=0.3)
    publish(client, n=1)
    until(lambda: show(client, created).json()["status"] == "expired")
    assert publish(client, n=2) == 0
    for action in ("pause", "resume"):
        refused = client.post(f"/v1/subscriptions/{created['id']}/{action}", headers=ticket(created))
        assert (refused.status_code, problem_code(refused)) == (409, "subscription-expired")
    assert [each["id"] for each in client.get("/v1/subscriptions?status=expired").json()["subscriptions"]] == [
        created["id"]
    ]
    assert client.get("/v1/subscriptions?status=active").json()["subscriptions"] == []
    renewed = client.post(f"/v1/subscriptions/{created['id']}/renew", json={"ttl_seconds": 60}, headers=ticket(created))
    assert renewed.json()["status"] == "active"
    assert publish(client, n=3) == 1
    assert waiting(client, created)[-1] == {"n": 3}
    assert {"n": 2} not in waiting(client, created)


@pytest.mark.parametrize("sweep_seconds", [0.05, 3_600.0])
def test_renewal_does_not_end_a_pause(tmp_path: Path, sweep_seconds: float) -> None:
    """Whoever paused it did not say that it may match again. The reason stays too."""
    with running_application(tmp_path, sweep_seconds=sweep_seconds) as client:
        created = subscribe(client, "n exists")
        url = f"/v1/subscriptions/{created['id']}"
        paused = client.post(f"{url}/pause", headers=ticket(created)).json()
        client.patch(url, json={"ttl_seconds": 0.05}, headers=ticket(created))
        until(lambda: show(client, created).json()["status"] == "expired")
        publish(client, n=1)  # after it the writer has looked for ended subscriptions
        assert show(client, created).json()["status_reason"] == "not renewed in time"
    with running_application(tmp_path) as client:
        renewed = client.post(f"{url}/renew", headers=ticket(created)).json()
        assert [renewed[name] for name in ("status", "status_reason")] == ["paused", paused["status_reason"]]
        assert publish(client, n=2) == 0
        assert client.post(f"{url}/resume", headers=ticket(created)).json()["status"] == "active"
        assert publish(client, n=3) == 1
        assert waiting(client, created) == [{"n": 3}]


def test_renew_before_the_end_moves_it(client: httpx.Client) -> None:
    """A renewed subscription outlives its first end; without a body it gets the default time."""
    created = subscribe(client, "n exists", ttl_seconds=0.3)
    renewed = client.post(f"/v1/subscriptions/{created['id']}/renew", headers=ticket(created))
    assert renewed.json()["expires_at"] > created["expires_at"]
    time.sleep(0.5)
    assert publish(client, n=1) == 1


def test_end_that_was_moved_twice_still_comes(client: httpx.Client) -> None:
    """Moved later and then earlier, the last word counts: it expires at that moment and not before."""
    created = subscribe(client, "n exists", ttl_seconds=0.2)
    url = f"/v1/subscriptions/{created['id']}"
    client.post(f"{url}/renew", json={"ttl_seconds": 600}, headers=ticket(created))
    time.sleep(0.4)
    assert publish(client, n=1) == 1
    client.patch(url, json={"ttl_seconds": 0.2}, headers=ticket(created))
    until(lambda: show(client, created).json()["status"] == "expired")
    assert publish(client, n=2) == 0
    until(lambda: 'kindcast_subscriptions{status="expired"} 1.0' in client.get("/metrics").text)


def test_expired_subscription_is_purged_after_the_grace_period(tmp_path: Path) -> None:
    """When nobody renews it in time it is deleted with what waits for it, and the ledger still adds up."""
    with running_application(tmp_path, grace_seconds=0.2, sweep_seconds=0.05) as client:
        created = subscribe(client, "n exists")
        assert publish(client, n=1) == 1
        client.patch(f"/v1/subscriptions/{created['id']}", json={"ttl_seconds": 0.1}, headers=ticket(created))
        until(lambda: show(client, created).status_code == 404)
        metrics = client.get("/metrics").text
        assert "kindcast_matches_discarded_total 1.0" in metrics
        assert "kindcast_matches_pending 0.0" in metrics


def test_retention_deletes_old_events_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Events older than the retention are gone, delivered or not; sequences go on, also after a restart. The owner of a
    subscription sees how many of its messages were lost, and the log has those of webhooks."""
    with running_application(tmp_path, retention_seconds=0.2, sweep_seconds=0.05) as client:
        created = subscribe(client, "n exists")
        webhook = subscribe(client, "n exists", sink="https://sink.example/hook")
        publish(client, n=1)
        until(lambda: client.get("/v1/events").json()["events"] == [])
        assert "kindcast_matches_discarded_total 2.0" in client.get("/metrics").text
        assert client.get(f"/v1/subscriptions/{created['id']}/events?after=0").status_code == 410
        assert (show(client, webhook).json()["discarded"], show(client, webhook).json()["pending"]) == (1, 0)
        assert "1 messages of 1 subscriptions with a sink were deleted" in caplog.text
    with running_application(tmp_path) as client:
        assert [show(client, each).json()["discarded"] for each in (created, webhook)] == [1, 1]
        publish(client, n=2)
        assert [each["sequence"] for each in client.get("/v1/events").json()["events"]] == [2]


def test_restart_restores_subscriptions_as_they_were(tmp_path: Path) -> None:
    """Status, tickets, what waits, what matches: all from the store."""
    with running_application(tmp_path) as client:
        client.put("/v1/ontologies/shop", content=shipped("shop").read_bytes())
        active = subscribe(client, "target isa Computer", metadata={"who": "me"})
        paused = subscribe(client, "target exists")
        short = subscribe(client, "target exists", ttl_seconds=0.2)
        client.post(f"/v1/subscriptions/{paused['id']}/pause", headers=ticket(paused))
        publish(client, target="laptop")
        before = [show(client, each).json() for each in (active, paused)]
        until(lambda: show(client, short).json()["status"] == "expired")
    with running_application(tmp_path) as client:
        assert [show(client, each).json() for each in (active, paused)] == before
        assert show(client, short).json()["status"] == "expired"
        assert publish(client, target="Notebook") == 1
        assert [data["target"] for data in waiting(client, active)] == ["laptop", "Notebook"]
        assert client.post(f"/v1/subscriptions/{paused['id']}/resume", headers=ticket(paused)).status_code == 200
        assert publish(client, target="Notebook") == 2
