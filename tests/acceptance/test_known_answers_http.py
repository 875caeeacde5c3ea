"""The known answers over HTTP: publish as NDJSON, then count what is delivered."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from kindcast import Client, Vocabulary
from tests.acceptance.known_answers import ANSWERS, FAHRENHEIT, readings, sample, table_answers
from tests.harness.server_process import running_server

LINES = 5_000
"""Events a request."""
PAGE = 1_000
"""Messages a pull; the server's default limit."""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with running_server(tmp_path / "data") as process, Client(process.url) as client:
        yield client


@pytest.mark.slow
def test_known_answers_over_http_are_those_of_the_table(shared_data: Path, client: Client) -> None:
    """Every reading is accepted once, and each subscription is delivered exactly its own."""
    path = shared_data / "ontologies" / "Brick-1.5.ttl"
    client.put_ontology("brick", path.read_bytes(), content_type="text/turtle")
    ids = {name: client.subscribe(text)["id"] for name, (text, _) in ANSWERS.items()}
    events = list(sample(shared_data))
    stream, accepted = iter(events), 0
    while lines := list(islice(stream, LINES)):
        accepted += client.publish(lines)["accepted"]
    assert accepted == len(events)
    found = {name: _delivered(client, id) for name, id in ids.items()}
    assert found == table_answers(Vocabulary.from_files(path), events)
    assert found["warm"] == ANSWERS["warm"][1]


@pytest.mark.slow
def test_known_answer_in_two_units_over_http_is_the_same(shared_data: Path, client: Client) -> None:
    """Above 86 °F and above 30 °C are the same 442 readings, once it is declared while the server runs that the unit
    stands beside the value; none before. Readings below 25 are left out: no unit makes them warm."""
    document = (shared_data / "ontologies" / "Brick-1.5.ttl").read_bytes()
    client.put_ontology("brick", document, content_type="text/turtle")
    kind, limit = FAHRENHEIT
    ids = [client.subscribe(text)["id"] for text in (kind, kind.replace("86 degF", "30 degC"))]
    stream = (reading for reading in readings(shared_data) if reading["value"] >= 25)
    client.publish(list(islice(stream, 100)))
    assert [_delivered(client, id) for id in ids] == [0, 0]
    declaration = {"kind": "number", "unit_from": "unit"}
    told = client.declare_attribute("value", declaration, dry_run=True)
    assert told["impact"]["attributes"]["listed"] == [
        {"subscriptions": 2, "attribute": "value", "declaration": {"from": None, "to": declaration}}
    ]
    client.declare_attribute("value", declaration)
    stream = (reading for reading in sample(shared_data) if reading["value"] >= 25)
    while lines := list(islice(stream, LINES)):
        client.publish(lines)
    assert [_delivered(client, id) for id in ids] == [limit, limit]


def _delivered(client: Client, id: str) -> int:
    """How many messages a subscriber pulls and acknowledges until there are no more, each once and in order."""
    count, last = 0, -1
    while True:
        page = client.pull(id, limit=PAGE)
        cursors = [int(message["cursor"]) for message in page["events"]]
        if not cursors:
            return count
        assert cursors == sorted(set(cursors))
        assert cursors[0] > last
        count, last = count + len(cursors), cursors[-1]
        client.ack(id, page["cursor"])
