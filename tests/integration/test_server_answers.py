"""The types of all answers: in the OpenAPI document, and of what is really answered."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from kindcast.server.answers import ANSWERS
from kindcast.server.app import create_app
from kindcast.server.settings import Settings
from tests.harness.answers import check_answer, faults_of
from tests.harness.application import running_application, subscribe


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    return create_app(Settings(data=tmp_path_factory.mktemp("data")))


def test_every_route_has_its_types_and_every_type_its_route(app: FastAPI) -> None:
    paths = app.openapi()["paths"]
    documented = {f"{method.upper()} {path}" for path, operations in paths.items() for method in operations}
    assert documented == set(ANSWERS)


def test_what_a_route_reads_and_sends_stands_in_the_document(app: FastAPI) -> None:
    """So a generated client can send and read it. The harness compares the headers of all answers with the table."""
    paths = app.openapi()["paths"]

    def sent(method: str, path: str) -> set[str]:
        given = paths[path][method].get("parameters", [])
        return {each["name"].lower() for each in given if each.get("in") == "header"}

    ontology, subscription = "/v1/ontologies/{name}", "/v1/subscriptions/{id}"
    assert sent("put", ontology) == {"if-match", "if-none-match", "prefer"}
    assert sent("delete", ontology) == {"if-match"}
    assert sent("patch", subscription) == {"if-match", "kindcast-ticket"}
    assert {"ce-id", "ce-source", "ce-specversion", "idempotency-key"} < sent("post", "/v1/events")
    assert sent("post", "/v1/ngsi-ld/notifications") == {"link"}
    tenant = {"$ref": "#/components/parameters/tenant"}
    assert tenant in paths[ontology]["put"]["parameters"]
    assert "parameters" not in paths["/healthz"]["get"]
    assert {"ETag", "RateLimit"} <= set(paths[subscription]["get"]["responses"]["200"]["headers"])
    assert {"Retry-After", "WWW-Authenticate"} <= set(paths["/healthz"]["get"]["responses"]["default"]["headers"])
    assert "requestBody" in paths["/v1/subscriptions/import"]["post"]
    event = app.openapi()["components"]["schemas"]["CloudEvent"]
    assert event["required"] == ["specversion", "id", "source", "type"]
    stream = paths[f"{subscription}/stream"]["get"]["responses"]["200"]["content"]["text/event-stream"]["schema"]
    assert stream["properties"]["event"]["enum"] == ["match", "expiring", "end"]


def test_every_answer_of_the_document_has_a_schema(app: FastAPI) -> None:
    for path, operations in app.openapi()["paths"].items():
        for method, operation in operations.items():
            for status, answer in operation["responses"].items():
                if status != "204":
                    schemas = [each["schema"] for each in answer["content"].values()]
                    assert schemas, f"{method} {path} {status}"
                    assert all(schemas), f"{method} {path} {status}"


def test_generators_of_clients_understand_every_body(app: FastAPI) -> None:
    """They know JSON, forms and bytes, and `oneOf` in place of a list of types with an object or an array in it. If a
    route takes several, the code for Python asks of which class a body is, which no array has."""
    for path, operations in app.openapi()["paths"].items():
        for method, operation in operations.items():
            if content := operation.get("requestBody", {}).get("content"):
                assert any("json" in each or each == "application/octet-stream" for each in content), (method, path)
                assert list(_mixed(content)) == [], (method, path)
                json = [kind for kind in content if kind.endswith(("/json", "+json"))]
                read = [content[kind]["schema"] for kind in json if "schema" in content[kind]]
                if len(read) > 1:
                    assert all("$ref" in each or each.get("type") in ("object", "string") for each in read), path


def _mixed(value: object) -> Iterator[object]:
    """Schemas that list types of which one has parts."""
    if isinstance(value, dict):
        if isinstance(value.get("type"), list) and {"object", "array"} & set(value["type"]):
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _mixed(each)


def test_every_reference_of_the_document_leads_somewhere(app: FastAPI) -> None:
    document = app.openapi()
    known = {
        f"#/components/{kind}/{name}"
        for kind in ("schemas", "headers", "parameters")
        for name in document["components"][kind]
    }
    assert set(_references(document)) <= known


def test_an_answer_that_is_not_of_its_type_is_found() -> None:
    """A member too many, one too few, and one of another kind."""
    ask = ("POST", "/v1/subscriptions/{id}/ack", 200, "application/json")
    assert faults_of(*ask, b'{"cursor": "1"}') == []
    for body in (b"{}", b'{"cursor": 1}', b'{"cursor": "1", "more": 1}'):
        assert faults_of(*ask, body), body
    assert faults_of("POST", "/v1/subscriptions/{id}/ack", 404, "application/json", b"{}")


def test_answers_of_publishing(tmp_path: Path) -> None:
    """The route that is answered before all others."""
    with running_application(tmp_path) as client:
        subscribe(client, "n exists")
        lines = b'{"n": 1}\n{"n": 1e999}\nno json\n'
        sent: list[httpx.Response] = [
            client.post("/v1/events", json={"n": 1}),
            client.post("/v1/events?verbose=false", json={"n": 1}),
            client.post("/v1/events", content=lines, headers={"Content-Type": "application/x-ndjson"}),
            client.post("/v1/events", content=b"no json", headers={"Content-Type": "application/json"}),
        ]
        assert [each.status_code for each in sent] == [202, 202, 202, 400]
        for each in sent:
            check_answer("POST", "/v1/events", each.status_code, each.headers, each.content)


def test_head_is_answered_as_get_without_the_content(tmp_path: Path) -> None:
    """With the same status and headers, as monitors ask. Not for streams, which do not end."""
    with running_application(tmp_path) as client:
        made = subscribe(client, "n exists")
        subscribe(client, "m exists")
        for path in ("/healthz", "/metrics", "/", "/openapi.json", "/v1/subscriptions?limit=1", "/v1/schemas/stream"):
            head, get = client.head(path), client.get(path)
            assert head.content == b"", path
            assert (head.status_code, head.headers.get("link")) == (get.status_code, get.headers.get("link")), path
            assert head.headers["content-type"] == get.headers["content-type"], path
        shown = f"/v1/subscriptions/{made['id']}"
        assert client.head(shown).headers["etag"] == client.get(shown).headers["etag"]
        for path in (f"{shown}/stream", "/v1/events/stream"):
            refused = client.head(path)
            assert (refused.status_code, refused.headers["allow"]) == (405, "GET")
        assert client.head("/v1/check").headers["allow"] == "POST"


def test_a_wrong_method_is_told_all_that_there_are(tmp_path: Path) -> None:
    """Also those of other routes at the same address."""
    with running_application(tmp_path) as client:
        answer = client.post("/v1/attributes/price")
        assert answer.status_code == 405
        assert answer.headers["allow"] == "DELETE, GET, HEAD, PUT"
        assert client.patch("/v1/operators/retry").headers["allow"] == "POST"


def _references(value: object) -> list[str]:
    if isinstance(value, list):
        return [found for each in value for found in _references(each)]
    if not isinstance(value, dict):
        return []
    own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
    return own + [found for each in value.values() for found in _references(each)]
