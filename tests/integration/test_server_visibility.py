"""Hidden attributes over HTTP: what a role is told is the same whatever their values are."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kindcast.server import observation
from tests.harness.application import problem_code, running_application
from tests.harness.receiver import running_receiver
from tests.integration.test_server_operators import until

DECLARED = {
    "ssn": {"readable_by": []},
    "income": {"kind": "number", "readable_by": ["ontologist"]},
    "score": {"kind": "number", "derived": "income - debt"},
    "diagnosis": {"matchable_by": ["ontologist", "subscriber"], "readable_by": ["ontologist"]},
}
EVENT = {"price": 5, "debt": 3, "patient": {"name": "Ada"}}
SECRET = {
    "left": {
        "ssn": "secret-left",
        "income": 70,
        "diagnosis": "flu",
        "patient": {"name": "Ada", "ssn": ["secret-left"]},
    },
    "right": {"ssn": {"no": "secret-right"}, "income": "secret-right", "diagnosis": "flu"},
}


class Team:
    """A tenant with a key of each role, and the attributes above."""

    def __init__(self, client: httpx.Client, admin: dict[str, str], name: str) -> None:
        self.client, self.name = client, name
        roles = ("admin", "subscriber", "auditor", "ontologist", "publisher")
        self.keys = {role: self._key(admin, role) for role in roles}
        for attribute, declaration in DECLARED.items():
            self.put(attribute, declaration)
        self.ids: dict[str, str] = {}

    def _key(self, admin: dict[str, str], role: str) -> dict[str, str]:
        body = {"role": role, "tenant": self.name}
        return {"Authorization": f"Bearer {self.client.post('/v1/keys', json=body, headers=admin).json()['key']}"}

    def put(self, attribute: str, declaration: dict[str, Any], role: str = "admin") -> httpx.Response:
        return self.client.put(f"/v1/attributes/{attribute}", json=declaration, headers=self.keys[role])

    def subscribe(self, role: str, expression: str, **more: Any) -> httpx.Response:
        body = {"expression": expression, **more}
        made = self.client.post("/v1/subscriptions", json=body, headers=self.keys[role])
        if made.status_code == 201:
            self.ids[made.json()["id"]] = f"{role}: {expression}"
        return made

    def told(self, role: str, method: str, path: str, body: Any = None) -> tuple[int, str]:
        """What an answer says, with ids, addresses of pages and times that are alike in both teams."""
        answer = self.client.request(method, path, json=body, headers=self.keys[role])
        text = answer.text
        for id, name in self.ids.items():
            text = text.replace(id, name)
        text = re.sub(r"\d{4}-\d\d-\d\dT[^\"]*|\d{10}\.\d+|[0-9a-f]{8}-[0-9a-f-]{27}", "…", text)
        return answer.status_code, re.sub(r'"(took|seconds|cursor_of_page)":[^,}]*', "", text)


@pytest.fixture(scope="module")
def teams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Team]]:
    with running_application(tmp_path_factory.mktemp("visibility")) as client:
        admin = {"Authorization": f"Bearer {client.post('/v1/keys', json={'role': 'admin'}).json()['key']}"}
        made = {name: Team(client, admin, name) for name in SECRET}
        for team in made.values():
            assert team.subscribe("admin", "ssn exists").status_code == 201
            assert team.subscribe("admin", "score > 9 or ssn startswith 'secret-l'").status_code == 201
            assert team.subscribe("admin", "income missing").status_code == 201
            assert team.subscribe("subscriber", "price > 3").status_code == 201
            assert team.subscribe("subscriber", "diagnosis = 'flu'").status_code == 201
        yield made


def publish(team: Team, secret: dict[str, Any], id: str = "e1") -> None:
    """An event with these hidden values."""
    event = {"specversion": "1.0", "id": id, "source": "/s", "type": "t", "data": {**EVENT, **secret}}
    headers = team.keys["publisher"] | {"Content-Type": "application/cloudevents+json"}
    assert team.client.post("/v1/events", content=json.dumps(event), headers=headers).status_code == 202


def test_what_a_role_is_told_does_not_depend_on_hidden_values(teams: dict[str, Team]) -> None:
    """Two teams publish events that differ in hidden values only: pull, traces, matches, explanations, backtests and
    lists answer each role alike, and no secret stands in any of them."""
    for team in teams.values():
        publish(team, SECRET[team.name])
    left, right = teams["left"], teams["right"]
    event = {name: {**EVENT, **SECRET[name]} for name in SECRET}
    compared = 0
    for role in ("subscriber", "auditor"):
        requests: list[tuple[str, str, str]] = [
            ("GET", "/v1/subscriptions", ""),
            ("GET", "/v1/subscriptions/export", ""),
            ("GET", "/v1/cloudevents/subscriptions", ""),
            ("GET", "/v1/events", ""),
            ("GET", "/v1/events/recent", ""),
            ("GET", "/v1/events/1/trace", ""),
            ("GET", "/v1/dead-letters", ""),
            ("GET", "/v1/terms/unknown", ""),
            ("POST", "/v1/match", ""),
        ]
        requests += [("POST", "/v1/explain", each) for each in ("price > 9", "price < 9", "not price = 5")]
        for known in left.ids.values():
            for path in ("", "/events", "/attempts", "/plan"):
                requests.append(("GET", "/v1/subscriptions/{id}" + path, known))
            requests.append(("GET", "/v1/events/1/trace?subscription={id}", known))
        for method, path, about in requests:
            answers = []
            for team in (left, right):
                id = next((id for id, name in team.ids.items() if name == about), "")
                body = None if method == "GET" else {"event": event[team.name]}
                if body is not None and about:
                    body["subscription"] = about
                answers.append(team.told(role, method, path.format(id=id), body))
            assert answers[0] == answers[1], (role, method, path, about)
            assert "secret-" not in answers[0][1].replace("'secret-l'", "").replace('\\"secret-l\\"', "")
            compared += answers[0][0] == 200
    assert compared > 20
    pulled = [left.told("subscriber", "GET", f"/v1/subscriptions/{id}/events") for id in left.ids]
    assert [status for status, _ in pulled] == [403, 403, 403, 200, 200]
    assert '"data":{"price":5,"debt":3,"patient":{"name":"Ada"}}' in pulled[3][1]
    seen = left.told("admin", "GET", f"/v1/subscriptions/{next(iter(left.ids))}/events")
    assert "secret-left" in seen[1]


def test_backtests_tell_nothing_of_hidden_values(teams: dict[str, Team]) -> None:
    """An expression that names one is refused; samples of others are without them."""
    team = teams["left"]
    refused = team.client.post("/v1/backtests", json={"expression": "ssn exists"}, headers=team.keys["subscriber"])
    assert (refused.status_code, problem_code(refused)) == (403, "hidden-attribute")
    made = team.client.post("/v1/backtests", json={"expression": "price > 3"}, headers=team.keys["subscriber"]).json()
    for _ in range(200):
        done = team.client.get(f"/v1/backtests/{made['id']}", headers=team.keys["subscriber"])
        if done.json()["status"] != "running":
            break
    assert done.json()["result"]["matched"] == 1
    assert "secret" not in done.text


@pytest.mark.parametrize(
    "expression",
    [
        "ssn = '1'",
        "patient.ssn exists",
        "score > 1",
        "income missing",
        "count(ssn) > 1",
        "some ssn (a = 1)",
        "`ssn[]` exists",
    ],
)
def test_a_subscription_on_a_hidden_attribute_is_refused(teams: dict[str, Team], expression: str) -> None:
    """With its name, for whoever may not match on it; an administrator may."""
    team = teams["right"]
    refused = team.subscribe("subscriber", expression)
    assert (refused.status_code, problem_code(refused)) == (403, "hidden-attribute"), refused.text
    line = json.dumps({"expression": expression})
    imported = team.client.post("/v1/subscriptions/import", content=line, headers=team.keys["subscriber"]).json()
    assert imported["rejected"][0]["problem"]["type"].endswith("hidden-attribute")
    assert team.subscribe("admin", expression).status_code == 201
    asked = {"event": {"ssn": 1}, "subscription": expression}
    explained = team.client.post("/v1/explain", json=asked, headers=team.keys["subscriber"])
    assert problem_code(explained) == "hidden-attribute"


def test_only_administrators_say_who_may_see(teams: dict[str, Team]) -> None:
    """An ontologist declares the rest."""
    team = teams["right"]
    for body in ({"readable_by": ["ontologist"]}, {}):
        refused = team.put("ssn", body, "ontologist")
        assert (refused.status_code, problem_code(refused)) == (403, "not-permitted")
    gone = team.client.delete("/v1/attributes/ssn", headers=team.keys["ontologist"])
    assert (gone.status_code, problem_code(gone)) == (403, "not-permitted")
    assert team.put("ssn", {"readable_by": [], "kind": "text"}, "ontologist").status_code == 201
    assert team.put("ssn", {"readable_by": []}).status_code == 200
    for wrong in ({"readable_by": "admin"}, {"readable_by": ["anyone"]}):
        assert team.put("ssn", wrong).status_code == 422
    assert team.put("ce.id", {"readable_by": []}).status_code == 422


def test_a_declaration_pauses_what_may_not_match_any_more(tmp_path: Path) -> None:
    """It says why, and is resumed when the attribute may be matched on again; it is not deleted."""
    with running_application(tmp_path) as client:
        admin = {"Authorization": f"Bearer {client.post('/v1/keys', json={'role': 'admin'}).json()['key']}"}
        team = Team(client, admin, "default")
        subscriber = team.keys["subscriber"]
        made = {role: team.subscribe(role, "weight > 3 kg").json()["id"] for role in ("subscriber", "ontologist")}
        assert team.put("weight", {"readable_by": ["ontologist"]}).status_code == 201
        paths = {role: f"/v1/subscriptions/{id}" for role, id in made.items()}
        shown = {role: client.get(path, headers=subscriber).json() for role, path in paths.items()}
        assert shown["subscriber"]["status"] == "paused"
        assert "'weight'" in shown["subscriber"]["status_reason"]
        paused = client.post(f"{paths['subscriber']}/pause", headers=subscriber).json()
        assert paused["status_reason"] == shown["subscriber"]["status_reason"]  # why it cannot be resumed
        owned = client.get(f"/v1/subscriptions/{made['ontologist']}", headers=team.keys["ontologist"]).json()
        assert owned["status"] == "active"
        again = client.post(f"/v1/subscriptions/{made['subscriber']}/resume", headers=team.keys["subscriber"])
        assert (again.status_code, problem_code(again)) == (403, "hidden-attribute")
        pulled = client.get(f"/v1/subscriptions/{made['subscriber']}/events", headers=team.keys["subscriber"])
        assert problem_code(pulled) == "hidden-attribute"
        client.delete("/v1/attributes/weight", headers=team.keys["admin"])
        again = client.post(f"/v1/subscriptions/{made['subscriber']}/resume", headers=team.keys["subscriber"])
        assert again.json()["status"] == "active"


def test_an_expired_subscription_that_may_not_match_any_more_is_not_renewed(tmp_path: Path) -> None:
    """Like one that a declaration paused; it is renewed when the attribute may be matched on again."""
    with running_application(tmp_path) as client:
        admin = {"Authorization": f"Bearer {client.post('/v1/keys', json={'role': 'admin'}).json()['key']}"}
        team = Team(client, admin, "default")
        path = f"/v1/subscriptions/{team.subscribe('subscriber', 'weight > 3 kg', ttl_seconds=0.1).json()['id']}"
        while client.get(path, headers=admin).json()["status"] != "expired":
            time.sleep(0.02)
        assert team.put("weight", {"readable_by": ["ontologist"]}).status_code == 201
        for owner in (team.keys["subscriber"], admin):
            again = client.post(f"{path}/renew", headers=owner)
            assert (again.status_code, problem_code(again)) == (403, "hidden-attribute"), again.text
        assert client.get(path, headers=admin).json()["status"] == "expired"
        client.delete("/v1/attributes/weight", headers=admin)
        assert client.post(f"{path}/renew", headers=team.keys["subscriber"]).json()["status"] == "active"


def test_a_webhook_gets_what_whoever_made_it_may_read(tmp_path: Path) -> None:
    """The same message as a reader with that key would pull; of a revoked key nothing that is hidden from anybody."""
    with running_receiver() as receiver, running_application(tmp_path, allow_private_sinks=True) as client:
        admin = {"Authorization": f"Bearer {client.post('/v1/keys', json={'role': 'admin'}).json()['key']}"}
        team = Team(client, admin, "default")
        for role in ("subscriber", "ontologist", "admin"):
            assert team.subscribe(role, "price > 3", sink=receiver.script(f"/{role}", 204)).status_code == 201
        secret = {"ssn": "secret-1", "income": 7, "diagnosis": "flu"}
        publish(team, secret)
        keys = {"ontologist": {"income": 7, "diagnosis": "flu"}, "subscriber": {}, "admin": secret}
        for role, hidden in keys.items():
            [got] = receiver.wait_for(f"/{role}", 1)
            assert got.message["event"]["data"] == EVENT | hidden
        for key in client.get("/v1/keys", headers=admin).json()["keys"]:
            if key["role"] == "ontologist":
                client.delete(f"/v1/keys/{key['id']}", headers=admin)
        publish(team, secret, "e2")
        assert receiver.wait_for("/ontologist", 2)[1].message["event"]["data"] == EVENT


def test_a_webhook_says_why_it_stops_when_its_key_is_revoked(tmp_path: Path) -> None:
    """Without a role it may not match on what is hidden from anybody. The messages wait, and the administrator sees
    why; other webhooks of the key go on."""
    settings: dict[str, Any] = {"allow_private_sinks": True, "webhook_delays_seconds": (0.05,) * 2}
    with running_receiver() as receiver, running_application(tmp_path, **settings) as client:
        admin = {"Authorization": f"Bearer {client.post('/v1/keys', json={'role': 'admin'}).json()['key']}"}
        team = Team(client, admin, "default")
        made = client.post("/v1/keys", json={"role": "admin", "tenant": "default"}, headers=admin).json()
        team.keys["other"] = {"Authorization": f"Bearer {made['key']}"}
        stops = team.subscribe("other", "ssn exists", sink=receiver.script("/stops", 204)).json()["id"]
        team.subscribe("other", "price > 3", sink=receiver.script("/goes-on", 204))
        publish(team, {"ssn": "secret-1"})
        receiver.wait_for("/stops", 1)
        client.delete(f"/v1/keys/{made['id']}", headers=admin).raise_for_status()
        publish(team, {"ssn": "secret-2"}, id="e2")
        path = f"/v1/subscriptions/{stops}"
        until(lambda: client.get(path, headers=admin).json()["status"] == "disabled_by_failures")
        shown = client.get(path, headers=admin).json()
        assert "a revoked key has none" in shown["status_reason"]
        assert "'ssn'" in shown["last_error"]
        assert shown["pending"] == 1
        assert len(receiver.wait_for("/goes-on", 2)) == 2
        assert len(receiver.requests("/stops")) == 1
        refused = client.post(f"{path}/resume", headers=admin)
        assert problem_code(refused) == "hidden-attribute"
        assert "from the role of the key that made the subscription" in refused.json()["detail"]


def test_publisher_cannot_test_guesses_about_the_event_of_another_one(teams: dict[str, Team]) -> None:
    """Whether an event with the same id has the same body would show its hidden values, as do its matches."""
    team = teams["left"]
    publish(team, {"ssn": "guessed"}, "of another publisher")
    answers = []
    for guess in ("guessed", "wrong"):
        event = {"specversion": "1.0", "id": "of another publisher", "source": "/s", "type": "t"}
        body = json.dumps(event | {"data": {**EVENT, "ssn": guess}})
        headers = {"Content-Type": "application/cloudevents+json"}
        answers += [
            team.client.post("/v1/events", content=body, headers=headers | team.keys[role]).json()
            for role in ("publisher", "admin")
        ]
    [as_it_was, seen, as_it_was_not, differs] = answers
    assert as_it_was == as_it_was_not
    assert (as_it_was["duplicates"], as_it_was["events"][0]["matched"]) == (1, None)
    assert seen["events"][0]["matched"] == differs["events"][0]["matched"] > 0
    assert [each["code"] for each in differs["events"][0]["notes"]] == ["differs"]


def test_publisher_cannot_test_by_matches_of_its_own_what_an_event_matched(teams: dict[str, Team]) -> None:
    """Whether a match that it sends is known would show that the event of another publisher matched."""
    team = teams["left"]
    secret = [team.subscribe("admin", f"ssn = '{each}'").json()["id"] for each in ("matched", "other")]
    publish(team, {"ssn": "matched"}, "matched by others")
    event = {"specversion": "1.0", "id": "matched by others", "source": "/s", "type": "t"}
    told = {}
    for role in ("publisher", "admin"):
        sent = [{"event": event, "subscription": each} for each in secret]
        told[role] = [team.client.post("/v1/matches", json=each, headers=team.keys[role]).json() for each in sent]
    assert told["publisher"][0] == told["publisher"][1]
    assert (told["publisher"][0]["duplicates"], told["publisher"][0]["matched"]) == (1, 1)
    assert [(each["matched"], each["repeated"]) for each in told["admin"]] == [(0, 1), (0, 1)]


def test_cursors_of_dead_letters_lead_to_no_hidden_match(tmp_path: Path) -> None:
    """The page of a subscriber ends with the last dead letter that it may see, not with a later one of others."""
    with running_receiver() as receiver, running_application(tmp_path, allow_private_sinks=True) as client:
        admin = {"Authorization": f"Bearer {client.post('/v1/keys', json={'role': 'admin'}).json()['key']}"}
        team = Team(client, admin, "default")
        hidden = team.subscribe("admin", "ssn exists", sink=receiver.script("/hidden", 410)).json()["id"]
        seen = team.subscribe("subscriber", "price = 5", sink=receiver.script("/seen", 410)).json()["id"]
        later = team.subscribe("admin", "ssn exists", sink=receiver.script("/later", 410)).json()["id"]
        publish(team, {"ssn": "secret-1"})
        for id in (hidden, seen, later):
            path = f"/v1/dead-letters?subscription={id}"
            until(lambda path=path: client.get(path, headers=team.keys["admin"]).json()["dead_letters"])
        for id in (hidden, later):
            told = client.get(f"/v1/dead-letters?subscription={id}", headers=team.keys["subscriber"]).json()
            assert told == {"dead_letters": [], "cursor": None}
        page = client.get("/v1/dead-letters?limit=1", headers=team.keys["subscriber"]).json()
        assert [each["subscription"] for each in page["dead_letters"]] == [seen]
        again = client.get(f"/v1/dead-letters?cursor={page['cursor']}", headers=team.keys["subscriber"]).json()
        assert again == {"dead_letters": [], "cursor": None}
        assert len(client.get("/v1/dead-letters", headers=team.keys["admin"]).json()["dead_letters"]) == 3


def test_a_ticket_tells_no_role_how_many_hidden_matches_are_sent_again(tmp_path: Path) -> None:
    """Somebody with the ticket of another role's subscription is refused, as when it reads or acknowledges messages."""
    with running_receiver() as receiver, running_application(tmp_path, allow_private_sinks=True) as client:
        admin = {"Authorization": f"Bearer {client.post('/v1/keys', json={'role': 'admin'}).json()['key']}"}
        team = Team(client, admin, "default")
        made = team.subscribe("admin", "ssn exists", sink=receiver.script("/hidden", 410)).json()
        publish(team, {"ssn": "secret-1"})
        until(lambda: client.get("/v1/dead-letters", headers=admin).json()["dead_letters"])
        body = {"subscription": made["id"]}
        with_ticket = team.keys["subscriber"] | {"Kindcast-Ticket": made["ticket"]}
        refused = client.post("/v1/dead-letters/redrive", json=body, headers=with_ticket)
        assert (refused.status_code, problem_code(refused)) == (403, "hidden-attribute")
        assert client.post("/v1/dead-letters/redrive", json=body, headers=admin).json()["redriven"] == 1


def test_expanded_json_ld_is_left_out_as_a_whole(teams: dict[str, Team]) -> None:
    """Its keys are IRIs, and nothing but the content type says what they are."""
    team = teams["left"]
    made = team.subscribe("subscriber", "shown = 5").json()
    data = {"http://e.org/ns/ssn": [{"@value": "secret-1"}], "http://e.org/ns/shown": [{"@value": 5}]}
    for number, body in enumerate((data, [data])):
        event = {"specversion": "1.0", "id": f"x{number}", "source": "/s", "type": "t", "data": body}
        event["datacontenttype"] = "application/ld+json"
        headers = team.keys["publisher"] | {"Content-Type": "application/cloudevents+json"}
        answer = team.client.post("/v1/events", content=json.dumps(event), headers=headers)
        assert answer.status_code == 202, answer.text
    status, text = team.told("subscriber", "GET", f"/v1/subscriptions/{made['id']}/events")
    assert (status, text.count('"source":"/s"')) == (200, 2)
    assert "secret" not in text


@pytest.mark.parametrize("context", [{"@context": {"@vocab": "http://e.org/ns/"}}, {"@id": "http://e.org/1"}, {}])
def test_json_ld_is_matched_as_it_is_and_only_its_verdict_is_shown(
    teams: dict[str, Team], context: dict[str, Any]
) -> None:
    """In traces and backtests, as its subscriptions match it; with and without a content type that says what it is."""
    team, name = teams["right"], f"linked{len(context) and next(iter(context))[1:]}"
    data = {**context, name: 7, "ssn": "secret-1", "note": {"income": "secret-2"}}
    if not context:
        data = {f"http://e.org/ns/{name}": [{"@value": 7}], "http://e.org/ns/ssn": [{"@value": "secret-1"}]}
    made = team.subscribe("subscriber", f"{name} = 7").json()
    event = {"specversion": "1.0", "id": name, "source": "/s", "type": "t", "data": data}
    event |= {} if "@id" in context else {"datacontenttype": "application/ld+json"}
    headers = team.keys["publisher"] | {"Content-Type": "application/cloudevents+json"}
    published = team.client.post("/v1/events", content=json.dumps(event), headers=headers)
    assert published.status_code == 202, published.text
    sequence = published.json()["events"][0]["sequence"]
    for expression, verdict in ((f"{name} = 7", True), (f"{name} = 8", False)):
        id = made["id"] if verdict else team.subscribe("subscriber", expression).json()["id"]
        traced = team.client.get(f"/v1/events/{sequence}/trace?subscription={id}", headers=team.keys["subscriber"])
        assert traced.status_code == 200, traced.text
        told = traced.json()["explanation"]
        assert (told["matches"], told["recorded"], told["clauses"], told["notes"]) == (verdict, verdict, [], [])
        assert "secret" not in traced.text
    begun = team.client.post("/v1/backtests", json={"expression": f"{name} = 7"}, headers=team.keys["subscriber"])
    path = begun.headers["location"]
    until(lambda: team.client.get(path, headers=team.keys["subscriber"]).json()["status"] == "done")
    done = team.client.get(path, headers=team.keys["subscriber"])
    (sample,) = done.json()["result"]["samples"]
    assert (done.json()["result"]["unreadable"], done.json()["result"]["matched"]) == (0, 1)
    assert (sample["data"], sample["explanation"]["matches"], sample["explanation"]["clauses"]) == (None, True, [])
    assert "secret" not in done.text


def test_lists_by_status_go_by_the_status_that_is_shown(teams: dict[str, Team]) -> None:
    """A webhook that fails shows that something matched."""
    team = teams["left"]
    made = team.subscribe("admin", "ssn = 'no webhook'", sink="https://sink.invalid/")
    assert made.status_code == 201, made.text
    id = made.json()["id"]
    publish(team, {"ssn": "no webhook"}, id="failing")
    listed = {"admin": "failing", "subscriber": "active", "auditor": "active"}
    deadline = time.monotonic() + 30
    path = "/v1/subscriptions?limit=1000&status="
    while id not in team.client.get(f"{path}failing", headers=team.keys["admin"]).text:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for role, shown in listed.items():
        for status in ("active", "failing", "paused"):
            found = team.client.get(f"{path}{status}", headers=team.keys[role]).json()["subscriptions"]
            assert (id in [each["id"] for each in found]) is (status == shown), (role, status)
    pages, cursor = [], ""
    while cursor is not None:
        answer = team.client.get(f"/v1/subscriptions?limit=1&status=active{cursor}", headers=team.keys["subscriber"])
        pages += [each["id"] for each in answer.json()["subscriptions"]]
        cursor = answer.json()["cursor"] and f"&cursor={answer.json()['cursor']}"
    whole = team.client.get(f"{path}active", headers=team.keys["subscriber"]).json()["subscriptions"]
    assert pages == [each["id"] for each in whole]
    assert len(pages) > 2


def test_backtests_are_found_by_those_who_may_see_as_much(teams: dict[str, Team]) -> None:
    team = teams["left"]

    def begun(role: str) -> str:
        answer = team.client.post("/v1/backtests", json={"expression": "price = 5"}, headers=team.keys[role])
        assert answer.status_code == 202, answer.text
        id: str = answer.json()["id"]
        return id

    for role, seeing in (("admin", {"admin"}), ("subscriber", {"admin", "subscriber"})):
        id = begun(role)
        for path in (f"/v1/backtests/{id}", f"/v1/jobs/{id}"):
            found = {each for each in team.keys if team.client.get(path, headers=team.keys[each]).status_code == 200}
            assert found & {"admin", "subscriber", "ontologist", "auditor"} == seeing & found
            assert found >= {"admin"}


def test_a_backtest_is_not_found_after_an_attribute_was_hidden(teams: dict[str, Team]) -> None:
    """Its samples have the values."""
    for team in teams.values():  # others compare both
        publish(team, {"pin": "secret-pin"}, id="pinned")
    team, paths = teams["left"], []
    for role in ("subscriber", "ontologist"):
        begun = team.client.post("/v1/backtests", json={"expression": "pin exists"}, headers=team.keys[role])
        paths.append((role, begun.headers["location"]))
    for role, path in paths:
        until(lambda role=role, path=path: "secret-pin" in team.client.get(path, headers=team.keys[role]).text)
    assert team.put("pin", {"readable_by": ["ontologist"]}).status_code == 201
    try:
        found = [team.client.get(path, headers=team.keys[role]).status_code for role, path in paths]
        assert found == [404, 200]
        assert team.client.get(paths[0][1], headers=team.keys["admin"]).status_code == 200
    finally:
        assert team.client.delete("/v1/attributes/pin", headers=team.keys["admin"]).status_code == 200


def test_a_synonym_of_a_whole_path_hides_no_less(teams: dict[str, Team]) -> None:
    """Its root word has the hidden values, so nobody may match on it who may not match on them."""
    team = teams["left"]
    made = team.client.put("/v1/synonyms/paths", json={"patient.ssn": "shown"}, headers=team.keys["ontologist"])
    assert made.status_code == 201, made.text
    try:
        assert problem_code(team.subscribe("subscriber", "shown = 'secret-left'")) == "hidden-attribute"
        assert problem_code(team.subscribe("subscriber", "count(ward.shown) > 1")) == "hidden-attribute"
        assert team.subscribe("subscriber", "unseen = 1").status_code == 201
    finally:
        assert team.client.delete("/v1/synonyms/paths", headers=team.keys["ontologist"]).status_code == 200


def test_a_synonym_of_a_segment_hides_no_less(teams: dict[str, Team]) -> None:
    """A declared name stays as it is, but within longer names its segments are replaced."""
    team = teams["left"]
    assert team.put("owner.pin", {"readable_by": []}).status_code == 201
    made = team.client.put("/v1/synonyms/segments", json={"owner": "holder"}, headers=team.keys["ontologist"])
    assert made.status_code == 201, made.text
    try:
        assert team.subscribe("subscriber", "owner.age > 1").status_code == 201
        for expression in ("owner.pin = 1", "shop.owner.pin = 1", "shop.holder.pin = 1"):
            assert problem_code(team.subscribe("subscriber", expression)) == "hidden-attribute"
    finally:
        assert team.client.delete("/v1/synonyms/segments", headers=team.keys["admin"]).status_code == 200
        assert team.client.delete("/v1/attributes/owner.pin", headers=team.keys["admin"]).status_code == 200


def test_the_inverse_of_a_hidden_property_is_as_hidden(teams: dict[str, Team]) -> None:
    """`@reverse` of `ssn` is stated under the names of its inverse."""
    team = teams["left"]
    properties = """
        @prefix : <urn:people#> . @prefix owl: <http://www.w3.org/2002/07/owl#> .
        @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
        :numberOf owl:inverseOf :ssn ; rdfs:label "number of" ; rdfs:subPropertyOf :aboutPerson .
        :friendOf owl:inverseOf :friend .
    """
    headers = team.keys["ontologist"] | {"Content-Type": "text/turtle"}
    assert team.client.put("/v1/ontologies/people", content=properties, headers=headers).status_code == 201
    try:
        for name in ("numberOf", "`number of`", "x.numberOf", "`<urn:people#numberOf>`", "aboutPerson"):
            assert team.subscribe("subscriber", f"{name} exists").status_code == 403, name
        assert team.subscribe("subscriber", "friendOf exists").status_code == 201
    finally:
        assert team.client.delete("/v1/ontologies/people", headers=team.keys["admin"]).status_code == 200


def test_aliases_are_declared_by_administrators_where_something_is_hidden(teams: dict[str, Team]) -> None:
    """An alias gives the values of a hidden property another name."""
    team, path = teams["left"], "/v1/aliases/names"
    body = {"iris": {"http://x.example/ns#ssn": "http://x.example/ns#shown"}}
    for role, status in (("ontologist", 403), ("admin", 201)):
        assert team.client.put(path, json=body, headers=team.keys[role]).status_code == status
    for role, status in (("ontologist", 403), ("admin", 200)):
        assert team.client.delete(path, headers=team.keys[role]).status_code == status


def test_contexts_are_uploaded_by_administrators_where_something_is_hidden(teams: dict[str, Team]) -> None:
    """A context could give the values of a hidden attribute another name, which anybody may match on."""
    team, path = teams["left"], "/v1/contexts?url=https://left.example/context"
    body = {"@context": {"ssn": "http://x.example/ns#shown"}}
    for role, status in (("ontologist", 403), ("admin", 201)):
        assert team.client.put(path, json=body, headers=team.keys[role]).status_code == status
    for role, status in (("ontologist", 403), ("admin", 200)):
        assert team.client.delete(path, headers=team.keys[role]).status_code == status


def test_envelopes_are_declared_by_administrators_where_something_is_hidden(teams: dict[str, Team]) -> None:
    """An envelope could put hidden values into ids, or give hidden attributes other names."""
    team = teams["left"]
    for path, body in (
        ("/v1/splits/lines", {"split": "order.lines", "id": "ssn"}),
        ("/v1/schemas/lines", {"x-kindcast-split": {"split": "patient"}, "properties": {"a": {"type": "number"}}}),
    ):
        answer = team.client.put(path, json=body, headers=team.keys["ontologist"], params={"dry_run": True})
        assert (answer.status_code, problem_code(answer)) == (403, "not-permitted")
        answer = team.client.put(path, json=body, headers=team.keys["admin"], params={"dry_run": True})
        assert answer.status_code == 200, answer.text
    plain = {"properties": {"a": {"type": "number"}}}
    answer = team.client.put("/v1/schemas/plain", json=plain, headers=team.keys["ontologist"], params={"dry_run": True})
    assert answer.status_code == 200, answer.text


def test_envelopes_are_removed_by_administrators_where_something_is_hidden(teams: dict[str, Team]) -> None:
    """Without its envelope a document is one event, in which the hidden attribute has a longer name."""
    team, plain = teams["left"], {"properties": {"a": {"type": "number"}}}
    declared = {
        "/v1/splits/lines": {"split": "order.lines"},
        "/v1/schemas/lines": plain | {"x-kindcast-split": {"split": "order.lines"}},
    }
    for path, body in declared.items():
        assert team.client.put(path, json=body, headers=team.keys["admin"]).status_code == 201
    replaced = team.client.put("/v1/schemas/lines?replace=true", json=plain, headers=team.keys["ontologist"])
    assert (replaced.status_code, problem_code(replaced)) == (403, "not-permitted")
    for role, status in (("ontologist", 403), ("admin", 200)):
        for path in declared:
            assert team.client.delete(path, headers=team.keys[role]).status_code == status


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"ssn": {"enum": ["secret-left"]}}},
        {"properties": {"patient": {"properties": {"ssn": {"type": "number"}}}}},
        {"properties": {"price": {}}, "additionalProperties": False},
        {"properties": {"lines": {"type": "array", "items": {"additionalProperties": False}}}},
        {"properties": {"lines": {"type": "array", "uniqueItems": True}}},
        {"properties": {"price": {}}, "x-kindcast-subject": "ssn"},
        {"properties": {"price": {}}, "x-kindcast-retracts": ["price", "ssn"]},
    ],
)
def test_event_types_do_not_test_hidden_values(teams: dict[str, Team], schema: dict[str, Any]) -> None:
    """An event that breaks its schema is refused: by what arrives, whoever declared it could find out the values."""
    team, path = teams["left"], "/v1/schemas/tests?dry_run=true"
    refused = team.client.put(path, json=schema, headers=team.keys["ontologist"])
    assert problem_code(refused) in ("hidden-attribute", "not-permitted"), refused.text
    assert team.client.put(path, json=schema, headers=team.keys["admin"]).status_code == 200


def test_quantities_of_the_known_shapes_are_as_hidden_as_their_numbers(teams: dict[str, Team]) -> None:
    """Also where the declaration does not name the members."""
    team = teams["left"]
    assert team.put("numericalValue", {"readable_by": []}).status_code == 201
    assert team.put("load", {"quantity": True}).status_code == 201
    try:
        assert problem_code(team.subscribe("subscriber", "load > 4 kg")) == "hidden-attribute"
        assert team.subscribe("admin", "load > 4 kg").status_code == 201
    finally:
        for name in ("load", "numericalValue"):
            assert team.client.delete(f"/v1/attributes/{name}", headers=team.keys["admin"]).status_code == 200


def test_statistics_of_operators_tell_nothing_of_hidden_values(teams: dict[str, Team]) -> None:
    """In one team the operator is called, because a hidden value has it so."""
    expression = "ssn startswith 'secret-l' and similar('Ada', @patient.name, ?score) and ?score > 0.5"
    for team in teams.values():
        assert team.subscribe("admin", expression).status_code == 201
        publish(team, SECRET[team.name], "for the operator")

    def calls(team: Team) -> int:
        told = team.client.get("/v1/operators/similar", headers=team.keys["admin"]).json()
        number: int = told["learned"]["calls"]
        return number

    left, right = teams["left"], teams["right"]
    until(lambda: calls(left) > 0)
    assert calls(right) == 0
    for path in ("/v1/operators", "/v1/operators/similar"):
        for role in ("subscriber", "auditor"):
            assert left.told(role, "GET", path) == right.told(role, "GET", path), (path, role)


def test_advice_tells_nothing_of_hidden_values(teams: dict[str, Team], monkeypatch: pytest.MonkeyPatch) -> None:
    """Completions and notes come from the newest events: from their names, and from the kinds of their values."""
    monkeypatch.setattr(observation, "RECENT_SECONDS", 0.0)
    values: dict[str, Any] = {"left": {"ssn": 7}, "right": {"ssn": {"number": "x"}}}
    for team in teams.values():
        publish(team, values[team.name], "for advice")
    left, right = teams["left"], teams["right"]
    bodies: list[dict[str, Any]] = [{"expression": each, "position": len(each)} for each in ("", "ss", "ssn.")]
    bodies += [{"expression": each} for each in ("ssn > 5 kg", "ssn.numbr = 1")]
    for body in bodies:
        told = left.told("subscriber", "POST", "/v1/check", body)
        assert told[0] == 200
        assert told == right.told("subscriber", "POST", "/v1/check", body), body
    near = right.told("admin", "POST", "/v1/check", {"expression": "ssn.numbr = 1"})
    assert "did you mean ssn.number?" in near[1]
    made = right.subscribe("subscriber", "sn.number = 1").json()
    assert "ssn.number" not in str(made["notes"])
