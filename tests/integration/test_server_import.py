"""Many subscriptions in one request: exported, imported, as far as there is room."""

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

import httpx
import pytest

from kindcast.semantic import Vocabulary
from kindcast.semantic.language import text as text_module
from kindcast.semantic.model import Expression
from kindcast.semantic.shipped_vocabularies import shipped
from kindcast.semantic.subscriptions import BulkCompiler
from kindcast.semantic.subscriptions import bulk_compilation as bulk_module
from kindcast.server.api import subscriptions
from kindcast.server.api.subscriptions import IMPORTED_TOGETHER
from kindcast.server.broker.subscription_commands import BulkCompilers
from kindcast.server.worker_threads import LONG
from tests.harness.application import problem_code, publish, running_application, show, subscribe
from tests.harness.server_thread import running_app


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with running_application(tmp_path) as client:
        yield client


def test_export_and_import_carry_the_meaning(tmp_path: Path) -> None:
    """Exported subscriptions mean the same elsewhere; a bad line is reported with its number and stops nothing."""
    with running_application(tmp_path / "one") as client:
        client.put("/v1/ontologies/shop", content=shipped("shop").read_bytes())
        old = subscribe(client, "target isa Notebook", metadata={"who": "me"})
        lines = [json.loads(line) for line in client.get("/v1/subscriptions/export").text.splitlines()]
        assert [(line["id"], line["expression"]) for line in lines] == [(old["id"], old["canonical"])]
    with running_application(tmp_path / "two") as client:
        client.put("/v1/ontologies/shop", content=shipped("shop").read_bytes())
        body = "\n".join([json.dumps(lines[0]), "", "nope", '{"expression": "n <"}', '{"expression": "n = 1"}'])
        answer = client.post("/v1/subscriptions/import", content=body).json()
        assert [(each["line"], each["was"]) for each in answer["created"]] == [(1, old["id"]), (5, None)]
        codes = [(each["line"], each["problem"]["type"].rpartition("/")[2]) for each in answer["rejected"]]
        assert codes == [(3, "malformed-json"), (4, "invalid-subscription")]
        assert publish(client, target="laptop") == 1
        assert show(client, answer["created"][0]).json()["metadata"] == {"who": "me"}


def test_text_stays_a_text_over_export_and_import_if_its_attribute_holds_concepts_later(tmp_path: Path) -> None:
    """Written as a text, it would name the concept with this label where it is read (rules 9 and 14)."""
    with running_application(tmp_path / "one") as client:
        client.put("/v1/ontologies/shop", content=shipped("shop").read_bytes())
        for expression in ('goods = "notebook"', 'some boxes (goods in ("notebook", "no such label"))'):
            subscribe(client, expression)
        client.put("/v1/attributes/goods", json={"kind": "concept"})
        exported = client.get("/v1/subscriptions/export").text
    with running_application(tmp_path / "two") as client:
        client.put("/v1/ontologies/shop", content=shipped("shop").read_bytes())
        client.put("/v1/attributes/goods", json={"kind": "concept"})
        answer = client.post("/v1/subscriptions/import", content=exported).json()
        assert (len(answer["created"]), answer["rejected"]) == (2, [])
        again = [json.loads(line)["where"] for line in client.get("/v1/subscriptions/export").text.splitlines()]
        assert again == [json.loads(line)["where"] for line in exported.splitlines()]
        subscribe(client, 'goods = "notebook"')
        assert [publish(client, goods=text) for text in ("laptop", "notebook")] == [1, 2]
        assert [publish(client, boxes=[{"goods": text}]) for text in ("laptop", "no such label")] == [0, 1]


VARIED = [
    *({"expression": f"price <= {n} and name = 'n{n}'"} for n in range(6)),
    *({"where": {"all": [{"isa": ["target", "laptop"]}, {"<=": ["price", n / 2]}]}} for n in range(6)),
    {"where": {"all": [{"isa": ["target", "no such thing"]}, {"<=": ["price", 1]}]}},
    {"expression": "price <= 5 and price > 7"},
    {"expression": "target isa Lapptop"},
    {"expression": "price <="},
    {"where": {"nope": 1}},
    {"expression": "price <= 3", "types": ["offer"], "source": "/shop", "metadata": {"a": [1]}},
    {"expression": "price <=", "types": ["offer"]},
    {"filters": [{"exact": {"type": "offer"}}]},
    {"expression": "weight <= 2 kg", "sink": "https://example.org/hook", "ttl_seconds": 90},
    {"expression": "price <= 3", "sink": "http://127.0.0.1/hook"},
    {"expression": "price <= 3", "ttl_seconds": -1},
    {"expression": "price <= 3", "unknown": 1},
    {},
]
"""Of one shape, of none, with something to tell, wrong in every way."""

SHOWN = (
    "expression",
    "where",
    "filters",
    "canonical",
    "clauses",
    "cost",
    "notes",
    "flagged",
    "types",
    "source",
    "sink",
)


def test_import_makes_of_each_line_what_subscribing_makes_of_it(client: httpx.Client) -> None:
    """The same rows, the same errors with the same places, and the same matches."""
    client.put("/v1/ontologies/shop", content=shipped("shop").read_bytes())
    body = "\n".join(json.dumps(each) for each in VARIED)
    told = client.post("/v1/subscriptions/import", content=body).json()
    made = {each["line"]: each for each in told["created"]}
    refused = {each["line"]: each["problem"] for each in told["rejected"]}
    assert sorted([*made, *refused]) == list(range(1, len(VARIED) + 1))
    for line, each in enumerate(VARIED, 1):
        alone = client.post("/v1/subscriptions", json=each)
        if alone.status_code != 201:
            expected = {name: value for name, value in alone.json().items() if name != "instance"}
            assert refused[line] == expected
            continue
        one, other = show(client, alone.json()).json(), show(client, made[line]).json()
        assert {name: one.get(name) for name in SHOWN} == {name: other.get(name) for name in SHOWN}
        assert ("secret" in made[line]) == ("sink" in each)
    event = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "offer", "data": {"price": 2, "name": "n2"}}
    found = client.post("/v1/match", json={"event": event}).json()["matches"]
    assert len(found) == 2 * len(made.keys() & {3, 18, 20}) == 6


def counted_parses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are parsed from now on, but for those whose shape is known."""
    parsed: list[str] = []
    parse = text_module.parse_text

    def counted(text: str) -> Expression:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr(text_module, "parse_text", counted)
    return parsed


def test_second_import_parses_no_text_of_a_known_shape_again(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in the lines after the first thousand, nor in the next request; a declaration makes it begin anew."""
    parsed = counted_parses(monkeypatch)

    def import_lines(start: int, count: int) -> None:
        lines = [{"expression": f"name = 'n{n}' and price <= {n}"} for n in range(start, start + count)]
        answer = client.post("/v1/subscriptions/import", content="\n".join(map(json.dumps, lines))).json()
        assert (len(answer["created"]), answer["rejected"]) == (count, [])

    import_lines(0, 3 * IMPORTED_TOGETHER)
    assert 0 < len(parsed) < 10
    parsed.clear()
    import_lines(10_000, 100)
    assert parsed == []
    assert client.put("/v1/attributes/price", json={"kind": "number"}).is_success
    import_lines(20_000, 100)
    assert 0 < len(parsed) < 10
    assert publish(client, name="n10005", price=10_001) == 1
    assert publish(client, name="n20005", price=20_001) == 1


def test_compiler_is_lent_to_one_import_at_a_time_and_is_not_kept_after_a_failure() -> None:
    """Another import at the same time, and one after a failure, whose thread may go on, gets a compiler of its own."""

    async def lend() -> None:
        compilers = BulkCompilers()
        with compilers.lent() as first, compilers.lent() as second:
            assert first is not second
        with compilers.lent() as third:
            assert third is first
        with contextlib.suppress(RuntimeError), compilers.lent() as fourth:
            assert fourth is first
            raise RuntimeError
        with compilers.lent() as fifth:
            assert fifth is not first
        compilers.forget()
        with compilers.lent() as sixth:
            assert sixth is not fifth
        compilers.forget()

    asyncio.run(lend())


@pytest.mark.parametrize(
    "texts", [[f"name = 'n{n}'" for n in range(600)], [f"a{n} = 1" for n in range(40)]], ids=["constants", "shapes"]
)
def test_compiler_that_remembers_too_much_begins_anew(monkeypatch: pytest.MonkeyPatch, texts: list[str]) -> None:
    """A cache that is kept between requests has a bound, of shapes and of constants."""
    vocabulary, compiler, parsed = Vocabulary.from_ontologies([]), BulkCompiler(), counted_parses(monkeypatch)

    def parsed_again() -> bool:
        parsed.clear()
        compiler.compile(texts, vocabulary, {})
        return bool(parsed)

    assert parsed_again()
    assert parsed_again() is (texts[0] == "a0 = 1"), "a shape is learned from its second text"
    compiler.trim()
    assert not parsed_again()
    monkeypatch.setattr(bulk_module, "MOST_REMEMBERED", 500)
    compiler.trim()
    assert parsed_again()


def test_import_of_more_than_the_server_takes_makes_those_for_which_there_is_room(tmp_path: Path) -> None:
    """In their order, by number and by bytes; the rest is told line by line."""
    lines = "\n".join(json.dumps({"expression": f"n = {n}"}) for n in range(5))
    with running_application(tmp_path / "number", max_subscriptions=3) as client:
        told = client.post("/v1/subscriptions/import", content=lines).json()
        assert [each["line"] for each in told["created"]] == [1, 2, 3]
        assert [each["problem"]["status"] for each in told["rejected"]] == [507, 507]
    parts = [" or ".join(f"price = {100 * n + k}" for k in range(50)) for n in range(300)]
    lines = "\n".join(json.dumps({"expression": part}) for part in parts)
    with running_application(tmp_path / "bytes", index_bytes=400_000) as client:
        told = client.post("/v1/subscriptions/import", content=lines).json()
        assert 0 < len(told["created"]) < 300
        assert {each["problem"]["type"].rpartition("/")[2] for each in told["rejected"]} == {"index-full"}
        for each in told["created"]:
            assert publish(client, price=100 * (each["line"] - 1)) == 1
        assert publish(client, price=100 * (told["rejected"][0]["line"] - 1)) == 0


def test_index_that_may_have_so_many_bytes_refuses_more_and_goes_on(tmp_path: Path) -> None:
    """Above the limit: 507, nothing is stored, those before match; when some are deleted, there is room again."""
    allowed = 400_000
    with running_application(tmp_path, index_bytes=allowed) as client:
        made = []
        for number in range(300):
            parts = " or ".join(f"price = {100 * number + k}" for k in range(50))
            answer = client.post("/v1/subscriptions", json={"expression": f"{parts} or name = 'all'"})
            if answer.status_code != 201:
                break
            made.append(answer.json())
        assert (answer.status_code, problem_code(answer)) == (507, "index-full")
        assert len(made) > 40  # new rows take several times the memory of frozen ones, and are frozen first
        assert "400,000 bytes" in answer.json()["detail"]
        told = dict(line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines() if line[0] != "#")
        assert allowed / 2 < float(told["kindcast_index_bytes"]) <= allowed
        assert float(told["kindcast_index_allowed_bytes"]) == allowed
        assert float(told['kindcast_subscriptions{status="active"}']) == len(made)
        assert publish(client, name="all") == len(made)
        for each in made[: len(made) // 2]:
            client.delete(f"/v1/subscriptions/{each['id']}", headers={"Kindcast-Ticket": each["ticket"]})
        assert publish(client, name="all", price=1) == len(made) - len(made) // 2
        assert client.post("/v1/subscriptions", json={"expression": "name = 'more'"}).status_code == 201
        assert publish(client, name="more") == 1


def test_lines_of_imports_are_read_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty imports of one tenant kept as many threads busy."""
    reading, most, lock = [0], [0], Lock()
    read_line = subscriptions._read_line

    def slowly(*given: Any) -> Any:
        with lock:
            reading[0] += 1
            most[0] = max(most[0], reading[0])
        time.sleep(0.05)
        with lock:
            reading[0] -= 1
        return read_line(*given)

    monkeypatch.setattr(subscriptions, "_read_line", slowly)
    body = b'{"expression": "a = 1", "metadata": {"text": "%b"}}\n' % (b"x" * LONG)
    with running_app(tmp_path) as address, ThreadPoolExecutor(6) as threads:
        sent = [
            threads.submit(httpx.post, f"{address}/v1/subscriptions/import", content=body, timeout=60.0)
            for _ in range(6)
        ]
        assert all(len(each.result().json()["created"]) == 1 for each in sent)
    assert most == [1]


def test_lines_that_are_all_refused_commit_nothing(client: httpx.Client) -> None:
    """Each group of such lines waited for the disk."""
    before = client.get("/v1/status").json()["commits"]
    answer = client.post("/v1/subscriptions/import", content=b'{"expresion": "a = 1"}\n' * 3)
    assert len(answer.json()["rejected"]) == 3
    assert client.get("/v1/status").json()["commits"] == before
