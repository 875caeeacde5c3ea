"""The console's files, and the routes that were made for it: everything that a browser is not needed for."""

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Connection

from kindcast.semantic.shipped_vocabularies import shipped
from kindcast.server import observation
from kindcast.server.api import concepts, deliveries
from kindcast.server.app import create_app
from kindcast.server.console import CONTENT_SECURITY_POLICY
from kindcast.server.metrics import ENCODED, History
from kindcast.server.settings import Settings
from kindcast.server.store import events, subscriptions
from tests.harness.application import problem_code, publish, running_application, subscribe
from tests.harness.server_thread import running_app

STATIC = Path(__file__).parents[2] / "server" / "console" / "static"
COMPUTER = "https://kindcast.dev/ontologies/shop#Computer"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """An application with the shop's vocabulary, a subscription and four events."""
    with running_application(tmp_path_factory.mktemp("console")) as client:
        put = client.put("/v1/ontologies/shop", content=client.get("/v1/shipped/shop").content)
        assert put.status_code in (201, 415), put.text
        if put.status_code == 415:
            client.put("/v1/ontologies/shop?format=ttl", content=shipped("shop").read_bytes()).raise_for_status()
        subscribe(client, "target isa Computer and price <= 400 USD")
        publish(client, target="台式机", price="310 USD")
        publish(client, target="Desktop PC", price="450 USD")
        publish(client, target="Klapperkiste", price="5 USD")
        publish(client, target="Klapperkiste", price="6 USD", text="two words")
        yield client


def test_root_browser_goes_to_console_and_programs_are_told(client: httpx.Client) -> None:
    """`/` leads people to the console; what it answers to programs stays."""
    sent = client.get("/", headers={"Accept": "text/html,application/xhtml+xml"})
    assert (sent.status_code, sent.headers["location"]) == (307, "console")
    assert problem_code(client.get("/", headers={"Accept": "*/*"})) == "not-found"


def test_console_every_file_is_served_with_a_strict_policy(client: httpx.Client) -> None:
    """Nothing inline, nothing from elsewhere, no frames; a file that did not change is not sent again."""
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    paths = ["/console", *(f"/console/{path.name}" for path in STATIC.iterdir())]
    assert len(paths) > 8
    for path in paths:
        answer = client.get(path)
        assert answer.status_code == 200, path
        assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert client.get(path, headers={"If-None-Match": answer.headers["etag"]}).status_code == 304
    assert problem_code(client.get("/console/..%2fpages.py")) == "not-found"
    assert problem_code(client.get("/console/__init__.py")) == "not-found"
    assert client.post("/console").status_code == 405


def test_console_files_name_no_other_origin() -> None:
    """No address in the files is fetched: the only ones are names of namespaces and an example in a placeholder."""
    for path in STATIC.iterdir():
        found = set(re.findall(r"https?://[^\s\"'`<>)]+", path.read_text("utf-8")))
        assert found <= {"http://www.w3.org/2000/svg", "https://example.org/hook"}, path.name
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|eval\(|new Function|style=", path.read_text("utf-8")
        )


def test_shipped_lists_and_answers_documents(client: httpx.Client) -> None:
    """What comes with kindcast can be read over HTTP."""
    listed = client.get("/v1/shipped").json()["vocabularies"]
    assert [each["name"] for each in listed] == ["building", "shop"]
    assert client.get("/v1/shipped/building").content == shipped("building").read_bytes()
    assert problem_code(client.get("/v1/shipped/nothing")) == "unknown-ontology"


def test_roots_parents_and_around_agree_with_the_hierarchy(client: httpx.Client) -> None:
    """Roots have no parents; each edge of the picture is a step of the hierarchy; a page of roots leads to the next."""
    roots = client.get("/v1/concepts/roots").json()
    assert roots["count"] == len(roots["concepts"]) == 3
    for each in roots["concepts"]:
        assert client.get("/v1/concepts/parents", params={"term": each["iri"]}).json()["count"] == 0
        children = client.get("/v1/concepts/children", params={"term": each["iri"]}).json()
        assert children["count"] == each["children_count"]
    page = client.get("/v1/concepts/roots?limit=2").json()
    rest = client.get("/v1/concepts/roots", params={"limit": 2, "cursor": page["cursor"]}).json()
    assert page["concepts"] + rest["concepts"] == roots["concepts"]
    assert rest["cursor"] is None

    around = client.get("/v1/concepts/around", params={"term": "Desktop PC"}).json()
    names = [each["iri"] for each in around["nodes"]]
    above = {each["iri"] for each in client.get("/v1/concepts/ancestors", params={"term": names[0]}).json()["concepts"]}
    below = {each["iri"] for each in client.get("/v1/concepts/children", params={"term": names[0]}).json()["concepts"]}
    assert set(names[1:]) == above | below
    expected = set()
    for place, name in enumerate(names):
        for each in client.get("/v1/concepts/parents", params={"term": name}).json()["concepts"]:
            if each["iri"] in names:
                expected.add((place, names.index(each["iri"])))
    assert {tuple(edge) for edge in around["edges"]} == expected


def test_search_and_explanations_are_in_the_language_of_the_interface(client: httpx.Client) -> None:
    """Also where the word that was found, or published, is of another language."""
    found = client.get("/v1/concepts", params={"q": "hard disk", "labels": "de"}).json()["concepts"][0]
    assert (found["label"], found["matched"], found["lang"]) == ("Festplatte", "Hard disk", "en")
    subscription = client.get("/v1/subscriptions").json()["subscriptions"][0]["id"]
    asked = {"subscription": subscription, "lang": "de"}
    told = client.get("/v1/events/1/trace", params=asked).json()["explanation"]
    path = told["clauses"][0]["predicates"][0]["values"][0]["path"]
    assert path[:2] == ["Desktop-PC", "Personalcomputer"]


def test_roots_with_something_beneath_them_come_first(tmp_path: Path) -> None:
    """The first page of roots is not full of those that are alone."""
    alone = "".join(f"<urn:r:{each}> a <http://www.w3.org/2002/07/owl#Class> .\n" for each in range(5))
    with running_application(tmp_path) as client:
        document = f"{alone}<urn:r:low> <http://www.w3.org/2000/01/rdf-schema#subClassOf> <urn:r:top> .\n"
        client.put("/v1/ontologies/roots?format=ttl", content=document).raise_for_status()
        told = client.get("/v1/concepts/roots?limit=2").json()
    assert (told["concepts"][0]["iri"], told["count"]) == ("urn:r:top", 6)


def test_usage_counts_what_is_beneath_and_nothing_else(client: httpx.Client) -> None:
    """Subscriptions and events of narrower kinds count for a concept; those of others do not."""
    device = client.get("/v1/concepts/usage?term=Device").json()
    assert device["subscriptions"]["count"] == 1
    assert [each["sequence"] for each in device["events"]["listed"]] == [2, 1]
    assert device["examined"] == {"events": 4, "subscriptions": 1}
    furniture = client.get("/v1/concepts/usage?term=Hard disk").json()
    assert (furniture["subscriptions"]["count"], furniture["events"]["count"]) == (0, 0)


def test_unknown_terms_are_counted_where_kinds_are_asked_for(client: httpx.Client) -> None:
    """A word at an attribute that holds concepts is listed with how often it came; text at other attributes is not."""
    told = client.get("/v1/terms/unknown").json()
    assert [(each["term"], each["attribute"], each["count"], each["last_sequence"]) for each in told["terms"]] == [
        ("Klapperkiste", "target", 2, 4)
    ]
    assert told["count"] == 1


def test_suggestions_for_unknown_terms_are_shown_in_the_language_asked_for(tmp_path: Path) -> None:
    """The near name may be of any language; what is shown is the label of its concept in the reader's."""
    with running_application(tmp_path) as client:
        client.put("/v1/ontologies/shop?format=ttl", content=shipped("shop").read_bytes()).raise_for_status()
        subscribe(client, "target isa Computer")
        publish(client, target="Desktop PCs")
        for lang, shown in (("en", "Desktop PC"), ("de", "Desktop-PC"), ("zh", "台式机")):
            (term,) = client.get("/v1/terms/unknown", params={"lang": lang}).json()["terms"]
            first = term["suggestions"][0]
            assert (first["label"], first["shown"]) == ("Desktop PC", shown)


def test_one_client_looks_into_the_vocabulary_once_at_a_time(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many pages of thousands of concepts at one time would leave no time for publishers."""
    the_one, lock, running, most = concepts._the_one, threading.Lock(), [0], [0]

    def counted(*arguments: Any) -> Any:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.02)
        with lock:
            running[0] -= 1
        return the_one(*arguments)

    monkeypatch.setattr(concepts, "_the_one", counted)
    paths = [f"/v1/concepts/{name}?term=Device" for name in ("around", "usage", "descendants")] * 3
    with ThreadPoolExecutor(len(paths)) as pool:
        assert {each.status_code for each in pool.map(client.get, paths)} == {200}
    assert most == [1]


def test_newest_events_are_read_once_for_all_who_write_expressions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each key that is pressed in an editor asks for completions, and events may be large."""
    read: list[int] = []

    def counted(connection: Connection, limit: int, *, after: int = 0) -> Any:
        read.append(limit)
        time.sleep(0.05)  # so that all requests wait for the first
        return events.newest_page(connection, limit, after=after)

    monkeypatch.setattr(observation, "newest_page", counted)
    monkeypatch.setattr(observation, "RECENT_SECONDS", 3_600.0)
    with running_application(tmp_path) as client, ThreadPoolExecutor(4) as pool:
        publish(client, weight="3 kg")
        asked = {"expression": "wei", "position": 3}
        answers = list(pool.map(lambda _: client.post("/v1/check", json=asked).json(), range(4)))
        assert [[each["insert"] for each in told["completions"]] for told in answers] == [["weight"]] * 4
        subscribe(client, "weight > 2 kg")
    assert len(read) == 1


@pytest.mark.parametrize("limit", ["time", "bytes"])
@pytest.mark.parametrize("path", ["terms/unknown", "concepts/usage?term=Device"])
def test_reports_read_large_events_for_a_limited_time_and_no_more_than_a_page_of_them(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, path: str, limit: str
) -> None:
    """`examined` says how many were read."""
    if limit == "time":
        monkeypatch.setattr(observation, "LEAST", 2)
        monkeypatch.setattr(observation, "REPORT_BUDGET", 0.0)
    else:
        monkeypatch.setattr(events, "PAGE_BYTES", 300)
    assert client.get(f"/v1/{path}").json()["examined"]["events"] == 2


def test_reports_read_a_bounded_number_of_bytes(tmp_path: Path) -> None:
    """Of subscriptions: at least one, then until their expressions have a few MB. They took hundreds of MB."""
    with running_application(tmp_path) as client:
        client.put("/v1/ontologies/shop", content=shipped("shop").read_bytes()).raise_for_status()
        for number in range(3):
            long = {"isa": ["target", "Computer"]}, {"=": ["note", f"{number}" * 200_000]}
            client.post("/v1/subscriptions", json={"where": {"all": [*long]}}).raise_for_status()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(subscriptions, "NEWEST_BYTES", 300_000, raising=False)
            told = client.get("/v1/concepts/usage?term=Computer").json()
        assert told["subscriptions"]["count"] == told["examined"]["subscriptions"] == 2
        assert client.get("/v1/concepts/usage?term=Computer").json()["examined"]["subscriptions"] == 3


def test_unknown_properties_are_counted_until_something_knows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By event, with the newest as an example; a subscription, a declaration or an ontology ends it. Completion and
    explanation then say the property's label and IRI."""
    ex = "http://example.org/"
    with running_application(tmp_path) as client:

        def unknown() -> list[tuple[Any, ...]]:
            told = client.get("/v1/terms/unknown").json()
            assert told["terms"] == []
            assert told["properties_count"] == len(told["properties"])
            return [tuple(each.values()) for each in told["properties"]]

        for number, source in ((1, "/a"), (2, "/b")):
            inner = {"ex:code": ["VIE", "MUC"], **({"ex:grossWeight": 5} if number == 2 else {})}
            data = {"@context": {"ex": ex}, "@id": f"ex:{number}", "ex:from": [{"ex:old": 1, **inner}, inner]}
            body = {"specversion": "1.0", "id": str(number), "source": source, "type": "t", "data": data}
            sent = client.post("/v1/events", json=body, headers={"Content-Type": "application/cloudevents+json"})
            assert sent.status_code == 202, sent.text
        weight = (f"{ex}grossWeight", "from.grossWeight", 1, 2, "/b")
        old, code = (f"{ex}old", "from.old", 2, 2, "/b"), (f"{ex}code", "from.code", 2, 2, "/b")
        assert sorted(unknown()) == sorted([(f"{ex}from", "from", 2, 2, "/b"), code, weight, old])
        subscribe(client, 'some from (code = "VIE") and from.grossWeight exists')
        assert unknown() == [old]
        client.put("/v1/attributes/old", json={"kind": "number"}).raise_for_status()
        assert unknown() == []

        turtle = f"""@prefix ex: <{ex}> . @prefix owl: <http://www.w3.org/2002/07/owl#> .
            ex:grossWeight a owl:DatatypeProperty ; <http://www.w3.org/2000/01/rdf-schema#label> "Bruttogewicht"@de ."""
        client.put("/v1/ontologies/cargo?format=ttl", content=turtle.encode()).raise_for_status()
        known = {"label": "Bruttogewicht", "iris": [f"{ex}grossWeight"]}
        for text in ("gross", "brutto"):
            told = client.post("/v1/check", json={"expression": text, "position": len(text)}).json()["completions"]
            assert [each["property"] for each in told if each["insert"] == "grossWeight"] == [known], text
        asked = {"subscription": "from.grossWeight > 9", "event": {"from": {"grossWeight": 5}}}
        (predicate,) = client.post("/v1/explain", json=asked).json()["clauses"][0]["predicates"]
        assert predicate["property"] == {**known, "path": ["from", "Bruttogewicht"]}
        assert predicate["reason"].endswith(f' [from.grossWeight ("from → Bruttogewicht", <{ex}grossWeight>)]')

        monkeypatch.setattr(observation, "MOST_COUNTED", 3)
        data = {"@context": {"ex": ex}} | {f"ex:n{number}": 1 for number in range(9)}
        client.post("/v1/events", json=data).raise_for_status()
        assert len(unknown()) == 3


@pytest.mark.parametrize(
    ("lang", "words"),
    [
        ("en", "target is a kind of Computer and price is at most 400 USD"),
        ("de", "target ist eine Art von Computer und price ist höchstens 400 USD"),
        ("zh", "target 是一种 计算机,并且price 不超过 400 USD"),
    ],
)
def test_check_says_in_plain_words_what_an_expression_means(client: httpx.Client, lang: str, words: str) -> None:
    """In the languages of the interface, with the labels of the concepts."""
    answer = client.post(f"/v1/check?lang={lang}", json={"expression": "target isa Rechner and price <= 400 USD"})
    assert answer.json()["words"] == words
    assert answer.json()["canonical"] == f"target isa <{COMPUTER}> and price <= 400 USD"


def test_check_mistakes_have_places_and_are_no_error(client: httpx.Client) -> None:
    """A mistake is told with line, column and the nearest names; the request itself is fine."""
    answer = client.post("/v1/check", json={"expression": "target isa\nCompter and"})
    assert (answer.status_code, answer.json()["valid"]) == (200, False)
    told = client.post("/v1/check", json={"expression": "price <= 4 and\ntarget isa Compter"}).json()["errors"]
    assert [(each["line"], each["column"], each["suggestions"][0]["iri"]) for each in told] == [(2, 12, COMPUTER)]
    for body in ({"expression": 5}, {"expression": "a", "position": 9}, {"expression": "a", "else": 1}):
        assert problem_code(client.post("/v1/check", json=body)) == "invalid-request"


@pytest.mark.parametrize(
    ("before", "kind", "insert"),
    [
        ("", "attribute", "target"),
        ("ta", "attribute", "target"),
        ("target ", "comparison", "isa"),
        ("target isa Festpl", "concept", "Festplatte"),
        ("target isa (Laptop, Festpl", "concept", "Festplatte"),
        ('target isa "Personal co', "concept", '"Personal computer"'),
        ("target isa Laptop ", "keyword", "and"),
        ("price <= 400 U", "unit", "USD"),
        ("price <= 400 USD o", "keyword", "or"),
        ("price exists and ta", "attribute", "target"),
    ],
)
def test_check_completions_fit_the_place(client: httpx.Client, before: str, kind: str, insert: str) -> None:
    """What is offered may stand there: with it the expression goes on, and it replaces what was begun."""
    told = client.post("/v1/check", json={"expression": before, "position": len(before)}).json()["completions"]
    offered = {(each["kind"], each["insert"]): each["replace"] for each in told}
    assert (kind, insert) in offered, told
    whole = before[: len(before) - offered[kind, insert]] + insert
    if kind == "concept":
        checked = client.post("/v1/check", json={"expression": whole + (")" if "(" in whole else "")}).json()
        assert checked["valid"], checked


def test_completions_have_the_attributes_of_the_first_event_at_once(tmp_path: Path) -> None:
    """Also if a look at the events found none a moment ago."""
    with running_application(tmp_path) as client:
        asked = {"expression": "ta", "position": 2}
        assert client.post("/v1/check", json=asked).json()["completions"] == []
        publish(client, target="x")
        assert [each["insert"] for each in client.post("/v1/check", json=asked).json()["completions"]] == ["target"]


def test_completion_of_a_deprecated_concept_inserts_its_replacement(tmp_path: Path) -> None:
    """What is offered is the replacement, so nobody is told afterwards that the name is deprecated."""
    turtle = """
        @prefix : <http://example.org/> . @prefix owl: <http://www.w3.org/2002/07/owl#> .
        @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix dct: <http://purl.org/dc/terms/> .
        :Phone a owl:Class ; rdfs:label "mobile phone"@en ; owl:deprecated true ; dct:isReplacedBy :Smartphone .
        :Smartphone a owl:Class ; rdfs:label "smart phone"@en ."""
    with running_application(tmp_path) as client:
        client.put("/v1/ontologies/phones?format=ttl", content=turtle.encode()).raise_for_status()
        told = client.post("/v1/check", json={"expression": "a isa mobi", "position": 10}).json()["completions"]
        assert [(each["insert"], each["matched"]) for each in told] == [('"smart phone"', "mobile phone")]


@pytest.mark.parametrize("name", ["my price", "not", "größe €", "a.b c", "EVERY", "a`b", "schema:price", "plain"])
def test_completion_of_an_attribute_is_a_name(tmp_path: Path, name: str) -> None:
    """In backquotes if it needs them: names of events may be any texts."""
    with running_application(tmp_path) as client:
        client.post("/v1/events", json={name: 5}).raise_for_status()
        told = client.post("/v1/check", json={"expression": name[0], "position": 1}).json()["completions"]
        offered = next(each for each in told if each["label"] == name)
        checked = client.post("/v1/check", json={"expression": f"{offered['insert']} = 5"}).json()
        assert checked["valid"], (offered, checked)


@pytest.mark.parametrize("label", ["contains", "AND", 'a "b" \\ c', "two\nlines", "Plain"])
def test_completion_of_a_concept_is_a_name(tmp_path: Path, label: str) -> None:
    """In quotes if it needs them: labels of concepts may be any texts, also words of the language."""
    turtle = f"""<http://example.org/a> a <http://www.w3.org/2002/07/owl#Class> ;
        <http://www.w3.org/2000/01/rdf-schema#label> {json.dumps(label)} ."""
    with running_application(tmp_path) as client:
        client.put("/v1/ontologies/odd?format=ttl", content=turtle.encode()).raise_for_status()
        before = f"a isa {label[0]}"
        told = client.post("/v1/check", json={"expression": before, "position": len(before)}).json()["completions"]
        checked = client.post("/v1/check", json={"expression": f"a isa {told[0]['insert']}"}).json()
        assert checked["valid"], (told, checked)


def test_recent_events_name_their_subscriptions(client: httpx.Client) -> None:
    """Newest first, and who got them."""
    told = client.get("/v1/events/recent?limit=3").json()["events"]
    assert [each["sequence"] for each in told] == [4, 3, 2]
    first = client.get("/v1/events/recent?limit=100").json()["events"][-1]
    assert (first["sequence"], first["matched"], len(first["subscriptions"])) == (1, 1, 1)
    assert first["event"]["data"] == {"target": "台式机", "price": "310 USD"}


def test_newest_events_of_a_quiet_source_are_found_behind_those_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live shows them for its filter. They are among the newest events, so that a reader costs no scan of all."""
    with running_application(tmp_path) as client:
        client.post("/v1/events", json={"quiet": 1}, headers={"ce-source": "urn:quiet"}).raise_for_status()
        for number in range(4):
            client.post("/v1/events", json={"loud": number}).raise_for_status()
        told = client.get("/v1/events/recent?source=urn:quiet&limit=3").json()["events"]
        assert [each["event"]["data"] for each in told] == [{"quiet": 1}]
        monkeypatch.setattr(deliveries, "LOOKED_AT", 4)
        assert client.get("/v1/events/recent?source=urn:quiet&limit=3").json()["events"] == []


def test_series_measures_rates_between_two_samples(tmp_path: Path) -> None:
    """The first sample has sizes; rates need two. A request for few points has the newest one."""

    async def scenario() -> tuple[Any, Any]:
        app = create_app(Settings(data=tmp_path))
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
        ):
            await client.post("/v1/subscriptions", json={"expression": "price <= 400"})
            for price in (5, 500):
                await app.state.tenants.default.history.sample()
                await client.post("/v1/events", json={"price": price})
            await app.state.tenants.default.history.sample()
            return (await client.get("/v1/series")).json(), (await client.get("/v1/series?points=2")).json()

    told, few = asyncio.run(scenario())
    values = {name: each["values"] for name, each in told["series"].items()}
    assert len(told["times"]) == len(values["subscriptions"]) >= 3
    assert values["events_per_second"][0] is None
    assert values["events_per_second"][-1] > 0
    assert values["matches_per_second"][-1] == 0
    assert values["match_seconds"][-1] > 0
    slowest = values["match_p99_seconds"][-1]  # None if it is above all bounds: on a very slow machine
    assert slowest is None or slowest >= values["match_seconds"][-1]
    assert values["matches_pending"][-1] == 1
    assert values["database_bytes"][-1] > 0
    assert few["times"][-1] == told["times"][-1]
    assert len(few["times"]) == 2


def test_series_shows_lag_the_index_and_what_was_learned(tmp_path: Path) -> None:
    """The age of what waits for a webhook; clauses are in the memtable or in segments; an operator that is called for
    the first time has no past, and one that is gone is left out."""

    async def scenario() -> tuple[dict[str, Any], dict[str, Any]]:
        settings = Settings(data=tmp_path, allow_private_sinks=True, webhook_delays_seconds=(3_600.0,))
        app = create_app(settings)
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
        ):
            services = app.state.tenants.default
            await services.history.sample()
            body = {"expression": "price <= 400", "sink": "http://127.0.0.1:9/"}
            made = (await client.post("/v1/subscriptions", json=body)).json()
            await client.post("/v1/subscriptions", json={"expression": "price > 9 or price < 3"})
            await client.post("/v1/events", json={"price": 5})
            learned = services.late_matching.late_matchers.experience
            learned.note("similar", "similar(a)", True, 0.25)
            learned.note("gone", "gone(a)", True, 0.25)
            await services.history.sample()
            one = (await client.get(f"/v1/subscriptions/{made['id']}")).json()
            return one, (await client.get("/v1/series")).json()

    one, told = asyncio.run(scenario())
    assert one["pending"] == 1
    assert one["created_at"] <= one["pending_since"]
    last = {name: each["values"][-1] for name, each in told["series"].items()}
    assert 0 < last["webhook_lag_seconds"] < 600
    assert told["series"]["webhook_lag_seconds"]["values"][-2] == 0
    assert last["index_memtable_rows"] + last["index_segment_rows"] == 3
    assert (last["index_segments"] > 0) == (last["index_segment_rows"] > 0)
    assert list(told["operators"]) == ["similar"]
    cost, selectivity = told["operators"]["similar"]["cost"], told["operators"]["similar"]["selectivity"]
    assert len(cost) == len(selectivity) == len(told["times"])
    assert cost[-2] is None
    assert 0 < cost[-1] <= 0.25
    assert 0 < selectivity[-1] <= 1


def test_series_shows_no_operators_to_callers_from_whom_values_are_hidden(tmp_path: Path) -> None:
    """What was learned depends on all values. The first sample of the server is taken before there are keys."""

    async def scenario() -> dict[str, list[str]]:
        app = create_app(Settings(data=tmp_path))
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client,
        ):
            services = app.state.tenants.default
            services.late_matching.late_matchers.experience.note("similar", "similar(a)", True, 0.25)
            await services.history.sample()
            keys: dict[str, dict[str, str]] = {}
            for role in ("admin", "auditor"):
                made = await client.post("/v1/keys", json={"role": role}, headers=keys.get("admin"))
                keys[role] = {"Authorization": f"Bearer {made.json()['key']}"}
            body = {"readable_by": ["subscriber"]}
            declared = await client.put("/v1/attributes/ssn", json=body, headers=keys["admin"])
            assert declared.status_code == 201, declared.text
            told = {role: (await client.get("/v1/series", headers=key)).json() for role, key in keys.items()}
            return {role: list(each["operators"]) for role, each in told.items()}

    assert asyncio.run(scenario()) == {"admin": ["similar"], "auditor": []}


def test_series_is_encoded_once_for_all_who_ask_for_the_same(tmp_path: Path) -> None:
    """Until the next sample; what only administrators of all tenants see is by itself, and few answers are kept."""

    async def scenario() -> None:
        app = create_app(Settings(data=tmp_path))
        async with app.router.lifespan_context(app):
            services = app.state.tenants.default
            history = History(services.broker, services.late_matching)  # one that takes no samples by itself
            await history.sample()
            first = history.encoded(480, whole_process=True, operators=True)
            assert history.encoded(480, whole_process=True, operators=True) is first
            assert json.loads(first) == history.as_json(480, whole_process=True, operators=True)
            limited = json.loads(history.encoded(480, whole_process=False, operators=True))
            assert set(limited["series"]["memory_bytes"]["values"]) == {None}
            assert None not in json.loads(first)["series"]["memory_bytes"]["values"]
            for points in range(2, 40):
                history.encoded(points, whole_process=True, operators=True)
            assert len(history._encoded) <= ENCODED
            await history.sample()
            assert (
                len(json.loads(history.encoded(480, whole_process=True, operators=True))["times"])
                == len(json.loads(first)["times"]) + 1
            )

    asyncio.run(scenario())


def test_explain_without_the_index_is_the_same_verdict(client: httpx.Client) -> None:
    """The editor asks so: it shows nothing of the index, and looking there holds up publishers."""
    body = {"event": {"target": "Notebook", "price": "5 USD"}, "subscription": "target isa Computer"}
    told = client.post("/v1/explain", json=body).json()
    assert told.pop("index")
    assert client.post("/v1/explain?index=false", json=body).json() == told


def test_tail_sends_events_of_the_source_that_is_watched(tmp_path: Path) -> None:
    """A watcher of one source gets its events with their matches, and no others; it starts with what comes next."""
    with running_app(tmp_path) as address, httpx.Client(base_url=address, timeout=60.0) as client:
        made = subscribe(client, "price <= 400")
        client.post("/v1/events", json={"price": 1}).raise_for_status()
        with httpx.stream("GET", f"{address}/v1/events/stream?source=urn:a", timeout=60.0) as stream:
            lines = stream.iter_lines()
            assert next(line for line in lines if line).startswith("retry")

            for source, price in (("urn:b", 2), ("urn:a", 3), ("urn:a", 500)):
                event = {
                    "specversion": "1.0",
                    "id": str(price),
                    "source": source,
                    "type": "t",
                    "data": {"price": price},
                }
                headers = {"Content-Type": "application/cloudevents+json"}
                client.post("/v1/events", json=event, headers=headers).raise_for_status()
            seen: list[tuple[int, list[str]]] = []
            while len(seen) < 2:
                line = next(line for line in lines if line.startswith("data:"))
                told = httpx.Response(200, text=line.removeprefix("data:")).json()
                seen += [(each["event"]["data"]["price"], each["subscriptions"]) for each in told["events"]]
                assert told["skipped"] == 0
        assert seen == [(3, [made["id"]]), (500, [])]


def test_every_text_of_the_interface_is_translated() -> None:
    """Whatever a page says with `t("…")` has a line in German and in Chinese, with the same places to fill in."""
    said = set()
    for path in STATIC.glob("*.js"):
        said |= set(re.findall(r'\bt\("((?:[^"\\]|\\.)*)"', path.read_text("utf-8")))
    words = (STATIC / "words.js").read_text("utf-8")
    lines = re.findall(r'\["((?:[^"\\]|\\.)*)", "((?:[^"\\]|\\.)*)", "((?:[^"\\]|\\.)*)"\]', words)
    known = {english: (german, chinese) for english, german, chinese in lines}
    assert len(known) == len(lines), "a text stands twice"
    assert said - known.keys() == set()
    assert known.keys() - said <= {"attribute", "comparison", "concept", "keyword", "operator", "unit"}
    for english, others in known.items():
        for other in others:
            assert set(re.findall(r"\{\d\}", english)) == set(re.findall(r"\{\d\}", other)), english
