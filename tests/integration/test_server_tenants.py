"""Tenants share a server and nothing else: what one has, the other cannot see, change, receive or guess."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.campaigns.tenants import mixed_requests
from tests.harness.application import problem_code, running_application
from tests.harness.receiver import running_receiver
from tests.integration.test_server_keys import SAMPLES, Keyed, operations

TURTLE = (
    b"@prefix : <http://x.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . :Cat rdfs:subClassOf :Pet ."
)
REQUESTS = 400


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    with running_application(
        tmp_path_factory.mktemp("tenants"), max_open_tenants=4, tenant_idle_seconds=3_600
    ) as client:
        yield Keyed(client)


def test_tenants_share_nothing(keyed: Keyed) -> None:
    """The same source and id, ontologies of one, tickets, numbers of events, keys, the audit log, metrics."""
    client = keyed.client
    one, two = keyed.key("admin", tenant="one"), keyed.key("admin", tenant="two")
    assert (
        client.put("/v1/ontologies/pets", content=TURTLE, headers=one | {"Content-Type": "text/turtle"}).status_code
        == 201
    )
    assert client.get("/v1/ontologies", headers=two).json()["ontologies"] == []
    made = client.post("/v1/subscriptions", json={"expression": "a isa Pet"}, headers=one).json()
    assert client.post("/v1/subscriptions", json={"expression": "a isa Pet"}, headers=two).status_code == 422
    ticket = {"Kindcast-Ticket": made["ticket"]}
    path = f"/v1/subscriptions/{made['id']}"
    for headers in (two | ticket, keyed.roles["admin"] | ticket):
        for method, url in (("GET", path), ("DELETE", path), ("POST", f"{path}/pause"), ("GET", f"{path}/events")):
            assert problem_code(client.request(method, url, headers=headers)) == "unknown-subscription"
    event = {"specversion": "1.0", "source": "s", "id": "1", "type": "t", "data": {"a": "Cat"}}
    for headers, matched in ((one, 1), (two, 0)):
        answer = client.post(
            "/v1/events", json=event, headers=headers | {"Content-Type": "application/cloudevents+json"}
        )
        assert (answer.json()["accepted"], answer.json()["matched"]) == (1, matched)
    assert "kindcast_matches_total 1.0" in client.get("/metrics", headers=one).text
    assert "kindcast_matches_total 0.0" in client.get("/metrics", headers=two).text
    assert {each["tenant"] for each in client.get("/v1/keys", headers=two).json()["keys"]} == {"two"}
    assert {each["tenant"] for each in client.get("/v1/audit", headers=two).json()["entries"]} == {"two"}
    refused = client.post("/v1/keys", json={"role": "publisher", "tenant": "one"}, headers=two)
    assert problem_code(refused) == "other-tenant"
    ids = {each["tenant"]: each["id"] for each in client.get("/v1/keys", headers=keyed.admin).json()["keys"]}
    assert problem_code(client.delete(f"/v1/keys/{ids['one']}", headers=two)) == "unknown-key"


def test_no_key_of_a_tenant_acts_in_another(keyed: Keyed) -> None:
    """Every route, with the name of another tenant: 403 for a tenant's administrator; one of all chooses."""
    one = keyed.key("admin", tenant="one")
    for method, path in operations(keyed.client):
        if method == "OPTIONS" or path in ("/healthz", "/readyz", "/asyncapi.json"):
            continue
        if path == "/v1/session" and method in ("POST", "DELETE"):
            continue  # they look at the key in the body, and at the cookie
        url = path
        for name, value in SAMPLES.items():
            url = url.replace(f"{{{name}}}", value)
        answer = keyed.client.request(method, url, headers=one | {"Kindcast-Tenant": "two"})
        assert (answer.status_code, problem_code(answer)) == (403, "other-tenant"), (method, path)
    everywhere = keyed.admin | {"Kindcast-Tenant": "one"}
    assert keyed.client.get("/v1/subscriptions", headers=everywhere).status_code == 200
    for name, status in (("nowhere", 404), ("../x", 422)):
        assert (
            keyed.client.get("/v1/subscriptions", headers=keyed.admin | {"Kindcast-Tenant": name}).status_code == status
        )


def test_tenants_close_and_open_again(tmp_path: Path) -> None:
    """No more than so many are open; whoever comes back finds everything, in this process and in the next."""
    tickets: dict[str, dict[str, Any]] = {}
    with running_application(tmp_path, max_open_tenants=3) as client:
        keyed = Keyed(client)
        keys = {name: keyed.key("admin", tenant=name) for name in ("a", "b", "c", "d")}
        for name, headers in keys.items():
            tickets[name] = client.post(
                "/v1/subscriptions", json={"expression": f"{name} exists"}, headers=headers
            ).json()
        for name, headers in keys.items():
            assert client.post("/v1/events", json={name: 1}, headers=headers).json()["matched"] == 1
    assert {each.name for each in (tmp_path / "tenants").iterdir()} == set(keys)
    with running_application(tmp_path, max_open_tenants=3) as client:
        for name, headers in keys.items():
            page = client.get(f"/v1/subscriptions/{tickets[name]['id']}/events", headers=headers).json()
            assert [each["event"]["data"] for each in page["events"]] == [{name: 1}]


def test_a_webhook_keeps_its_tenant_awake(tmp_path: Path) -> None:
    """Nobody asks, and it is still delivered: the tenant is not closed, and the next start opens it."""
    with running_receiver() as receiver:
        sink = receiver.script("/hook", *[503] * 3, 200)
        delays = {"allow_private_sinks": True, "webhook_delays_seconds": (0.3,) * 100, "tenant_idle_seconds": 0.05}
        with running_application(tmp_path, **delays) as client:
            headers = Keyed(client).key("admin", tenant="hooks")
            body = {"expression": "a exists", "sink": sink}
            assert client.post("/v1/subscriptions", json=body, headers=headers).status_code == 201
            assert client.post("/v1/events", json={"a": 1}, headers=headers).json()["matched"] == 1
        with running_application(tmp_path, **delays):
            receiver.wait_for("/hook", 4)


def test_generated_requests_of_two_tenants(keyed: Keyed) -> None:
    """A sample of the campaign: each word belongs to one tenant, and no answer to the other has it."""
    mixed_requests(
        keyed.client, {name: keyed.key("admin", tenant=name) for name in ("left", "right")}, REQUESTS, seed=7
    )
