"""Ontologies that all tenants share: one administrator changes them, every tenant uses them, and none sees another."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from kindcast.server.errors import BrokerBusy
from kindcast.server.store import ontologies
from kindcast.server.store.backup import backup, restore
from kindcast.server.tenants import SharedOntologies
from tests.harness.application import problem_code, running_application
from tests.harness.server_thread import running_app
from tests.integration.conftest import Kindcast
from tests.integration.test_server_keys import ROLES_LISTED, Keyed, until

HEAD = "@prefix : <http://x.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . "
CATS = HEAD + ":Cat rdfs:subClassOf :Pet ."
DOGS = HEAD + ":Cat rdfs:subClassOf :Pet . :Dog rdfs:subClassOf :Pet ."
BIRDS = HEAD + ":Bird rdfs:subClassOf :Pet ."
NOTHING: dict[str, int] = dict.fromkeys(("changed", "gain", "lose", "flagged", "unread", "behind"), 0)


class Shared:
    """A server with an administrator of all tenants, and two tenants of which `one` is open and `two` is closed."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self.keyed = Keyed(client)
        self.admin = self.keyed.admin
        self.one = self.keyed.key("admin", tenant="one")
        self.two = self.keyed.key("admin", tenant="two")

    def put(self, document: str, headers: dict[str, str], name: str = "pets", **params: Any) -> httpx.Response:
        more = {"Content-Type": "text/turtle"}
        return self.client.put(f"/v1/ontologies/{name}", content=document, headers=headers | more, params=params)

    def share(self, document: str, name: str = "pets", **params: Any) -> dict[str, Any]:
        answer = self.put(document, self.admin, name, shared=True, **params)
        assert answer.status_code in (200, 201), answer.text
        told: dict[str, Any] = answer.json()
        return told

    def delete(self, **params: Any) -> httpx.Response:
        return self.client.delete("/v1/ontologies/pets", headers=self.admin, params={"shared": True, **params})

    def concepts(self, text: str, headers: dict[str, str]) -> list[str]:
        found = self.client.get("/v1/concepts", params={"q": text}, headers=headers).json()["concepts"]
        return [each["iri"] for each in found]

    def subscribe(self, expression: str, headers: dict[str, str]) -> None:
        answer = self.client.post("/v1/subscriptions", json={"expression": expression}, headers=headers)
        assert answer.status_code == 201, answer.text

    def matched(self, kind: str, headers: dict[str, str]) -> int:
        answer = self.client.post("/v1/events", json={"a": kind}, headers=headers)
        assert answer.status_code == 202, answer.text
        found: int = answer.json()["matched"]
        return found

    def listed(self, headers: dict[str, str]) -> list[tuple[str, int, bool]]:
        found = self.client.get("/v1/ontologies", headers=headers).json()["ontologies"]
        return [(each["name"], each["version"], each["shared"]) for each in found]

    def open(self) -> dict[str, bool]:
        tenants = self.client.get("/v1/tenants", headers=self.admin).json()["tenants"]
        return {each["name"]: each["open"] for each in tenants}


@contextmanager
def sharing(data: Path, **settings: Any) -> Iterator[Shared]:
    with running_application(data, **settings) as client:
        yield Shared(client)


def test_every_tenant_uses_it(tmp_path: Path, where: dict[str, Any]) -> None:
    """Open ones at once, closed ones and new ones when they are opened; versions, search and concepts as of its own."""
    with sharing(tmp_path, **where) as server:
        assert server.listed(server.one) == []
        assert server.open() == {"default": True, "one": True, "two": False}
        assert server.share(CATS)["others"] == NOTHING | {"tenants": 2, "subscriptions": 0}
        three = server.keyed.key("admin", tenant="three")
        for headers in (server.admin, server.one, server.two, three):
            assert server.listed(headers) == [("pets", 1, True)]
            server.subscribe("a isa Pet", headers)
            assert server.matched("Cat", headers) == 1
            assert server.matched("Dog", headers) == 0
            assert server.concepts("cat", headers) == ["http://x.org/Cat"]
        assert server.put(BIRDS, server.two, "birds").json()["version"] == 1
        told = server.share(DOGS)
        assert told["others"] == NOTHING | {"tenants": 3, "subscriptions": 3, "changed": 3, "gain": 3}
        assert told["impact"]["subscriptions"]["changed"] == 1  # in the tenant of the caller, with all details
        for headers in (server.admin, server.one, server.two, three):
            assert server.matched("Dog", headers) == 1
            versions = server.client.get("/v1/ontologies/pets/versions", headers=headers).json()["versions"]
            assert [(each["version"], each["active"], each["shared"]) for each in versions] == [
                (2, True, True),
                (1, False, True),
            ]
            compared = server.client.get("/v1/ontologies/pets/diff?from=1&to=2", headers=headers).json()
            assert compared["added"]["count"] == 1
        assert server.listed(server.two) == [("birds", 1, False), ("pets", 2, True)]
        assert server.matched("Bird", server.two) == 1
        assert server.matched("Bird", server.one) == 0


def test_it_is_rolled_back_activated_and_deleted_everywhere(tmp_path: Path, where: dict[str, Any]) -> None:
    with sharing(tmp_path, **where) as server:
        server.share(CATS)
        assert server.share(DOGS, activate=False)["others"]["changed"] == 0
        server.subscribe("a isa Pet", server.one)
        base = "/v1/ontologies/pets"
        for method, path, seen in (
            ("POST", "/activate?version=2&shared=true&dry_run=true", 0),
            ("POST", "/activate?version=2&shared=true", 1),
            ("POST", "/rollback?shared=true&dry_run=true", 1),
            ("POST", "/rollback?shared=true", 0),
        ):
            answer = server.client.request(method, base + path, headers=server.admin)
            assert answer.json()["others"]["changed"] == 1, answer.text
            assert server.matched("Dog", server.one) == seen
        assert server.share(CATS)["version"] == 1  # the same bytes again
        for dry_run in (True, False):
            refused = server.delete(dry_run=dry_run)
            assert problem_code(refused) == "ontology-in-use"
            assert (refused.json()["count"], refused.json()["subscriptions"]) == (1, [])
        subscription = server.client.get("/v1/subscriptions", headers=server.one).json()["subscriptions"][0]["id"]
        assert server.client.delete(f"/v1/subscriptions/{subscription}", headers=server.one).status_code == 200
        assert server.delete().json()["others"]["tenants"] == 2
        assert [server.listed(each) for each in (server.admin, server.one, server.two)] == [[], [], []]
        assert server.put(CATS, server.one).status_code == 201  # the name is free again
        assert server.listed(server.one) == [("pets", 1, False)]


def test_only_an_administrator_of_all_tenants_changes_it(tmp_path: Path) -> None:
    """Every role of `default` and of another tenant, with the word `shared` and without: 403."""
    with sharing(tmp_path) as server:
        server.share(CATS)
        server.share(DOGS)
        changes = (
            ("PUT", "/v1/ontologies/pets"),
            ("PUT", "/v1/ontologies/more"),
            ("POST", "/v1/ontologies/pets/activate?version=1"),
            ("POST", "/v1/ontologies/pets/rollback"),
            ("DELETE", "/v1/ontologies/pets"),
        )
        for role in ROLES_LISTED:
            for tenant in ("default", "one"):
                headers = server.keyed.key(role, tenant=tenant)
                for method, path in changes:
                    url = f"{path}{'&' if '?' in path else '?'}"
                    answer = server.client.request(method, f"{url}shared=true", headers=headers)
                    assert (answer.status_code, problem_code(answer)) == (403, "not-permitted"), (role, path)
                    if role in ("ontologist", "admin") and "more" not in path:
                        for dry_run in ("true", "false"):
                            answer = server.client.request(method, f"{url}dry_run={dry_run}", headers=headers)
                            assert (answer.status_code, problem_code(answer)) == (403, "ontology-shared"), path
        named = server.put(CATS, server.admin | {"Kindcast-Tenant": "one"}, shared=True)
        assert (named.status_code, problem_code(named)) == (403, "not-permitted")
        assert problem_code(server.put(CATS, server.admin)) == "ontology-shared"  # nor by mistake
        assert [server.listed(each) for each in (server.admin, server.one)] == [[("pets", 2, True)]] * 2
        for path in ("/v1/ontologies/none", "/v1/ontologies/none/rollback"):
            method = "POST" if path.endswith("rollback") else "DELETE"
            answer = server.client.request(method, path, headers=server.admin, params={"shared": "true"})
            assert problem_code(answer) == "unknown-ontology"


def test_a_name_that_a_tenant_has_already_is_refused(tmp_path: Path, where: dict[str, Any]) -> None:
    """Also where the tenant is closed; the answer counts, and names nobody."""
    with sharing(tmp_path, max_open_tenants=2) as server:
        for headers in (server.one, server.two):  # the second closes the first
            assert server.put(CATS, headers).status_code == 201
        assert server.open() == {"default": True, "one": False, "two": True}
        for dry_run in (True, False):
            refused = server.put(DOGS, server.admin, shared=True, dry_run=dry_run)
            assert (refused.status_code, problem_code(refused), refused.json()["tenants"]) == (
                409,
                "sharing-refused",
                2,
            )
            assert '"one"' not in refused.text
        assert server.put(CATS, server.admin, "mine").status_code == 201
        assert server.put(CATS, server.admin, "mine", shared=True).json()["tenants"] == 1
        assert server.listed(server.admin) == [("mine", 1, False)]


def test_nothing_of_another_tenant_is_shown(tmp_path: Path) -> None:
    """Neither in the impact, nor in a refusal, nor to the other tenants: no name, no text, no id."""
    with sharing(tmp_path) as server:
        server.share(DOGS)
        for headers, word in ((server.one, "hamster"), (server.two, "parrot")):
            server.subscribe(f"a isa Dog and {word} = 7", headers)
            server.subscribe("a isa Cat", headers)
        told = server.share(CATS, dry_run=True)
        expected = {"tenants": 2, "subscriptions": 4, "changed": 2, "lose": 2, "flagged": 2}
        assert told["others"] == NOTHING | expected
        answers = [json.dumps(told), json.dumps(server.share(CATS)), server.delete().text]
        ids = [
            each["id"]
            for headers in (server.one, server.two)
            for each in server.client.get("/v1/subscriptions", headers=headers).json()["subscriptions"]
        ]
        assert len(ids) == 4
        for hidden in ("hamster", "parrot", '"one"', '"two"', *ids):
            assert not any(hidden in each for each in answers), hidden
        flagged = server.client.get("/v1/subscriptions", headers=server.one).json()["subscriptions"]
        assert sorted(bool(each["notes"]) for each in flagged) == [False, True]
        for headers, word in ((server.one, "parrot"), (server.two, "hamster")):
            for path in ("/v1/ontologies", "/v1/ontologies/pets/versions", "/v1/audit", "/v1/subscriptions"):
                assert word not in server.client.get(path, headers=headers).text


def test_a_server_that_ends_in_between_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The change is stored, and no tenant has it yet; or the documents are copied, and not in force."""
    with sharing(tmp_path) as server:
        server.share(CATS)
        server.subscribe("a isa Pet", server.one)
        server.subscribe("a isa Pet", server.two)

        async def killed(_: SharedOntologies) -> int:
            return 0

        with monkeypatch.context() as patch:
            patch.setattr(SharedOntologies, "follow", killed)
            server.share(DOGS)
        assert server.matched("Dog", server.one) == 0
        one, two = server.one, server.two
    with sqlite3.connect(tmp_path / "tenants" / "two" / "kindcast.db") as two_on_disk:
        source = sqlite3.connect(tmp_path / "kindcast.db")
        row = source.execute("SELECT * FROM ontologies WHERE version = 2").fetchone()
        two_on_disk.execute(f"INSERT INTO ontologies VALUES ({','.join('?' * len(row))})", row)
        two_on_disk.execute("UPDATE ontologies SET active = 0 WHERE version = 2")
        source.close()
    with running_application(tmp_path) as client:
        for headers in (one, two):
            assert client.post("/v1/events", json={"a": "Dog"}, headers=headers).json()["matched"] == 1
            versions = client.get("/v1/ontologies/pets/versions", headers=headers).json()["versions"]
            assert [(each["version"], each["active"]) for each in versions] == [(2, True), (1, False)]


def test_a_name_that_was_deleted_and_comes_again_is_another_one(tmp_path: Path, where: dict[str, Any]) -> None:
    """A tenant that slept meanwhile has the version 1 of the former."""
    with sharing(tmp_path, max_open_tenants=2) as server:
        server.share(CATS)
        assert server.listed(server.one) == [("pets", 1, True)]
        assert server.listed(server.two) == [("pets", 1, True)]  # closes `one`
        assert server.delete().status_code == 200
        server.share(BIRDS)
        for headers in (server.one, server.two):
            server.subscribe("a isa Pet", headers)
            assert [server.matched(kind, headers) for kind in ("Bird", "Cat")] == [1, 0]
            assert server.listed(headers) == [("pets", 1, True)]


def test_an_open_tenant_that_cannot_follow_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with sharing(tmp_path, tenant_idle_seconds=0.1) as server, monkeypatch.context() as patch:
        patch.setattr("kindcast.server.tenants.Tenants._close_if_quiet", _stay)
        server.subscribe("a exists", server.one)

        def busy(*_: Any) -> None:
            raise BrokerBusy

        with monkeypatch.context() as failing:
            failing.setattr(ontologies, "match_shared", busy)
            assert server.share(CATS)["others"]["behind"] == 1
            assert problem_code(server.client.get("/v1/ontologies", headers=server.two)) == "store-unavailable"
        until(lambda: server.concepts("cat", server.one))
        server.subscribe("a isa Pet", server.one)
        assert server.matched("Cat", server.one) == 2


async def _stay(*_: Any) -> bool:
    return False


def test_a_backup_has_it(tmp_path: Path) -> None:
    with sharing(tmp_path / "data") as server:
        server.share(CATS)
        one, two = server.one, server.two
        assert server.listed(one) == [("pets", 1, True)]
    backup(f"sqlite:///{tmp_path}/data/kindcast.db", tmp_path / "data", tmp_path / "backup")
    restore(tmp_path / "backup", None, tmp_path / "again")
    with running_application(tmp_path / "again") as client:
        for headers in (one, two):
            found = client.get("/v1/ontologies", headers=headers).json()["ontologies"]
            assert [(each["name"], each["shared"]) for each in found] == [("pets", True)]


def test_commands_of_shared_ontologies(tmp_path: Path, kindcast: Kindcast, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "pets.ttl"
    file.write_text(CATS)
    with running_app(tmp_path / "data") as url:
        monkeypatch.setenv("KINDCAST_SERVER", url)
        monkeypatch.setenv("KINDCAST_KEY", kindcast("key", "create", "--role", "admin", "--json").json["key"])
        assert kindcast("tenant", "create", "bakery").status == 0
        assert "other tenants (1): 0 of 0 subscriptions" in kindcast("ontology", "load", str(file), "--shared").out
        assert "shared" in kindcast("ontology", "list", "--tenant", "bakery").out
        refused = kindcast("ontology", "load", str(file), "--tenant", "bakery")
        assert (refused.status, "all tenants share" in refused.err) == (1, True)
        file.write_text(DOGS)
        assert kindcast("ontology", "load", str(file), "--shared", "--no-activate").status == 0
        activated = kindcast("ontology", "activate", "pets", "2", "--shared", "--json").json
        assert activated["others"]["tenants"] == 1
        assert kindcast("ontology", "rollback", "pets", "--shared").status == 0
        assert kindcast("ontology", "delete", "pets", "--shared").status == 0
        assert kindcast("ontology", "list", "--json").json["ontologies"] == []
