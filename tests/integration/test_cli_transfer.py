"""Exports and imports as lines of JSON: events of a server as an archive, subscriptions from one server to another."""

import gzip
import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from select import select
from typing import Any

import pytest

from kindcast import Client
from kindcast.server.cli import events as event_commands
from kindcast.server.cli import subscriptions
from kindcast.server.client import ProblemError
from tests.integration.conftest import Kindcast

pytestmark = pytest.mark.usefixtures("shop_server")


def lines(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    return [json.loads(line) for line in (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()]


def test_archive_holds_each_event_and_can_be_published_again(
    kindcast: Kindcast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As CloudEvents, over any number of pages; elsewhere, or here, where each is known already."""
    monkeypatch.setattr(event_commands, "PAGE", 2)
    events = json.dumps([{"target": "Laptop", "number": number} for number in range(5)])
    assert kindcast("publish", events, "--type", "archived").status == 0
    file = tmp_path / "events.ndjson.gz"
    told = kindcast("archive", "export", "--type", "archived", "--output", str(file), "--json").json
    assert told == {"written": 5, "file": str(file)}
    assert [each["data"]["number"] for each in lines(file)] == list(range(5))
    assert {each["type"] for each in lines(file)} == {"archived"}
    assert "5 already known" in kindcast("publish", str(file)).out
    printed = kindcast("archive", "export", "--type", "archived")
    assert [json.loads(line) for line in printed.out.splitlines()] == lines(file)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    accepted = [each["accepted_at"] for each in kindcast("events", "--type", "archived", "--json").json["events"]]
    arrived = kindcast("archive", "export", "--type", "archived", "--received")
    exported = [json.loads(line) for line in arrived.out.splitlines()]
    assert [each.pop("received")[:23] for each in exported] == [each.removesuffix("Z")[:23] for each in accepted]
    assert exported == lines(file)


def test_export_that_fails_leaves_the_file_as_it_was(kindcast: Kindcast, tmp_path: Path) -> None:
    """Whoever writes an archive each night keeps yesterday's."""
    file = tmp_path / "events.ndjson"
    file.write_text("yesterday", "utf-8")
    ran = kindcast("archive", "export", "--output", str(file), "--server", "http://127.0.0.1:9")
    assert ran.status == 1
    assert file.read_text("utf-8") == "yesterday"
    ran = kindcast("archive", "export", "--output", str(tmp_path / "absent" / "events.ndjson"))
    assert ran.status == 1
    assert "No such file or directory" in ran.err
    assert "Errno" not in ran.err


def test_subscriptions_are_imported_with_their_tickets(
    kindcast: Kindcast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In several requests, whose lines are counted through; what is refused is told with its line, the rest is made."""
    monkeypatch.setattr(subscriptions, "LINES", 2)
    first = kindcast("subscribe", "target isa Printer and price < 77", "--json").json
    exported = tmp_path / "wishes.ndjson"
    assert kindcast("subscriptions", "export", "--output", str(exported)).status == 0
    mine = next(each for each in lines(exported) if each["id"] == first["id"])
    assert mine["expression"] == first["canonical"]
    wishes = [mine, {"expression": "price > 3"}, {"expression": "target isa"}, mine]
    given, tickets = tmp_path / "given.ndjson.gz", tmp_path / "tickets.ndjson"
    given.write_bytes(gzip.compress("\n".join(map(json.dumps, wishes)).encode()))
    ran = kindcast("subscriptions", "import", str(given), "--tickets", str(tickets))
    assert ran.status == 1
    assert "line 3: " in ran.err
    assert "imported 3 subscriptions" in ran.err
    assert [(each["line"], each.get("was")) for each in lines(tickets)] == [
        (1, first["id"]),
        (2, None),
        (4, first["id"]),
    ]
    assert tickets.stat().st_mode & 0o077 == 0
    for each in lines(tickets):
        assert kindcast("subscriptions", "delete", each["id"], "--ticket", each["ticket"]).status == 0
    ran = kindcast("subscriptions", "import", str(exported))
    assert ran.status == 0
    assert first["id"] in ran.out


def test_tickets_of_requests_on_their_way_are_kept_when_one_fails(
    kindcast: Kindcast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second request is too large for the server. What the requests beside it made has tickets."""
    monkeypatch.setattr(subscriptions, "LINES", 1)
    wishes = [{"expression": "beside = 1"}, {"expression": "x" * (17 << 20)}, {"expression": "beside = 3"}]
    given, tickets = tmp_path / "given.ndjson", tmp_path / "tickets.ndjson"
    given.write_text("\n".join(map(json.dumps, [*wishes, *[{"expression": "beside = 4"}] * 5])), "utf-8")
    ran = kindcast("subscriptions", "import", str(given), "--tickets", str(tickets))
    assert (ran.status, "Body too large" in ran.err) == (1, True), ran.err
    exported = kindcast("subscriptions", "export").out.splitlines()
    made = {each["id"] for each in map(json.loads, exported) if "beside" in each["expression"]}
    assert {each["id"] for each in lines(tickets)} == made
    assert [each["line"] for each in lines(tickets)] == [1, 3]  # no request is sent after the failed one is known
    for each in lines(tickets):
        assert kindcast("subscriptions", "delete", each["id"], "--ticket", each["ticket"]).status == 0


@contextmanager
def losing_answers(server: str, many: int) -> Iterator[str]:
    """A context manager with the address of a relay to `server` that passes each request on, and breaks the connection
    in place of the first `many` answers to imports."""
    host, port = server.removeprefix("http://").split(":")
    lost: list[bytes] = []

    class Relay(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((host, int(port))) as behind:
                asked = b""
                while True:
                    ready, _, _ = select([self.request, behind], [], [])
                    for end, other in ((self.request, behind), (behind, self.request)):
                        if end not in ready:
                            continue
                        data = end.recv(1 << 16)
                        if end is self.request:
                            asked += data
                        elif b"/subscriptions/import" in asked and len(lost) < many:
                            lost.append(data)
                            return
                        if not data:
                            return
                        other.sendall(data)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Relay) as relay:
        relay.daemon_threads = True
        thread = threading.Thread(target=relay.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{relay.server_address[1]}"
        finally:
            relay.shutdown()
            thread.join()
    assert len(lost) == many


def test_import_whose_answer_is_lost_is_sent_again(
    kindcast: Kindcast, shop_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a server is killed after the commit: each line becomes one subscription, whose ticket is told."""
    monkeypatch.setattr(subscriptions, "LINES", 2)
    given, tickets = tmp_path / "given.ndjson", tmp_path / "tickets.ndjson"
    given.write_text("".join(f'{{"expression": "again = {n}"}}\n' for n in range(5)), "utf-8")
    with losing_answers(shop_server, 2) as address:
        command = ("subscriptions", "import", str(given), "--tickets", str(tickets))
        ran = kindcast(*command, "--server", address, "--retry", "30")
    assert ran.status == 0, ran.err
    check_made_once(kindcast, "again", tickets)


def check_made_once(kindcast: Kindcast, attribute: str, tickets: Path) -> None:
    """Asserts that there are five subscriptions with the attribute, each with a ticket; deletes them."""
    exported = kindcast("subscriptions", "export").out.splitlines()
    made = [each["id"] for each in map(json.loads, exported) if attribute in each["expression"]]
    assert len(made) == 5
    told = {each["id"]: each["ticket"] for each in lines(tickets)}
    assert sorted(told) == sorted(made)
    for id, ticket in told.items():
        assert kindcast("subscriptions", "delete", id, "--ticket", ticket).status == 0


def test_import_that_broke_off_goes_on(kindcast: Kindcast, shop_server: str, tmp_path: Path) -> None:
    """Some lines may be subscriptions although no answer says so. The message says how to go on, and blames the server,
    not the file of tickets. The key works for the same lines only."""
    given, tickets = tmp_path / "given.ndjson", tmp_path / "tickets.ndjson"
    given.write_text("".join(f'{{"expression": "beside = {n}"}}\n' for n in range(5)), "utf-8")
    command = ("subscriptions", "import", str(given), "--tickets", str(tickets))
    with losing_answers(shop_server, 1) as address:
        ran = kindcast(*command, "--server", address, "--retry", "0")
    assert (ran.status, "cannot be written" in ran.err, lines(tickets)) == (1, False, []), ran.err
    assert "error: no server answers at " in ran.err
    assert "unknown whether other lines became subscriptions" in ran.err
    again = ran.err[ran.err.index("--idempotency-key") :].split()[:2]
    assert kindcast(*command, *again).status == 0
    check_made_once(kindcast, "beside", tickets)


def test_import_that_the_server_refused_to_go_on_with_goes_on(
    kindcast: Kindcast, shop_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the server is stopped: the lines before are subscriptions, and the others may be."""
    send, sent = subscriptions._send, list[str]()

    def stopping(client: Client, lines: list[str], key: str) -> dict[str, Any]:
        sent.append(key)
        if len(sent) > 1:
            raise ProblemError.of({"status": 503, "title": "Not ready", "detail": "the server stops"})
        return send(client, lines, key)

    given, tickets = tmp_path / "given.ndjson", tmp_path / "tickets.ndjson"
    given.write_text("".join(f'{{"expression": "behind = {n}"}}\n' for n in range(5)), "utf-8")
    command = ("subscriptions", "import", str(given), "--tickets", str(tickets))
    monkeypatch.setattr(subscriptions, "LINES", 2)
    with monkeypatch.context() as patched:
        patched.setattr(subscriptions, "_send", stopping)
        ran = kindcast(*command)
    assert (ran.status, "the server stops" in ran.err, len(lines(tickets))) == (1, True, 2), ran.err
    again = ran.err[ran.err.index("--idempotency-key") :].split()[:2]
    assert kindcast(*command, *again).status == 0
    check_made_once(kindcast, "behind", tickets)


def test_import_of_nothing_is_a_failure(kindcast: Kindcast, tmp_path: Path) -> None:
    """An empty file, and one that is not there."""
    empty = tmp_path / "empty.ndjson"
    empty.write_text("", "utf-8")
    assert "there is no subscription in" in kindcast("subscriptions", "import", str(empty)).err
    ran = kindcast("subscriptions", "import", str(tmp_path / "absent"))
    assert (ran.status, "there is no file" in ran.err) == (1, True)


def test_export_with_secrets_keeps_ids_and_tickets(kindcast: Kindcast, tmp_path: Path) -> None:
    """As when a server moves: who has a ticket keeps it. Only the owner may read the file."""
    first = kindcast("subscribe", "number > 700", "--json").json
    exported = tmp_path / "wishes.ndjson"
    assert kindcast("subscriptions", "export", "--secrets", "--output", str(exported)).status == 0
    assert exported.stat().st_mode & 0o077 == 0
    mine = [each for each in lines(exported) if each["id"] == first["id"]]
    assert kindcast("subscriptions", "delete", first["id"], "--ticket", first["ticket"]).status == 0
    given = tmp_path / "mine.ndjson"
    given.write_text("\n".join(map(json.dumps, mine)), "utf-8")
    ran = kindcast("subscriptions", "import", str(given))
    assert ran.status == 0, ran.err
    assert first["id"] in ran.out
    again = kindcast("subscriptions", "import", str(given))
    assert (again.status, "imported 1 subscription" in again.err, "made" in again.err) == (0, True, False)
    assert kindcast("subscriptions", "delete", first["id"], "--ticket", first["ticket"]).status == 0
