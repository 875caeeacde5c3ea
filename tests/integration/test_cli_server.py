"""The command line with a server: what it prints, where, and with which exit status."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx
import pytest

from kindcast.semantic.shipped_vocabularies import shipped
from kindcast.server.cli import events as event_commands
from kindcast.server.cli import output
from kindcast.server.client import Client, ServerUnreachable
from tests.harness.operator_service import running_service
from tests.harness.ports import free_port
from tests.harness.server_process import running_server as running_process
from tests.integration.conftest import Kindcast

WISH = "target isa Computer and price <= 400"

LISTENS_TO_CTRL_C = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from kindcast.server.cli import main
main()
"""
"""A shell starts what runs in its background, perhaps these tests, deaf to interrupts; the command is not to be."""
WAIT_SECONDS = 60


def test_client_command_without_a_server_says_how_to_start_one(
    kindcast: Kindcast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody answering is a failure with advice, not a traceback. `listen` waits for a server only if it was there."""
    monkeypatch.setenv("KINDCAST_SERVER", "http://127.0.0.1:9")
    for command in (("ontology", "list"), ("listen", "sub_1")):
        ran = kindcast(*command)
        assert ran.status == 1
        assert "kindcast serve" in ran.err
        assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("status", "--tenant", "größe"), "the header Kindcast-Tenant is not sendable"),
        (("status", "--key", "gréen"), "the key has a character that keys never have"),
        (("subscriptions", "pause", "sub_1", "--ticket", "a b "), "the header Kindcast-Ticket is not sendable"),
        (("subscriptions", "show", ""), "the id or name is empty"),
        (("subscriptions", "export", "--tenant", "ü"), "the header Kindcast-Tenant is not sendable"),
        (("matches", ".."), "'..' is neither an id nor a name"),
    ],
)
def test_client_command_says_what_cannot_be_sent(
    kindcast: Kindcast, shop_server: str, arguments: tuple[str, ...], said: str
) -> None:
    """Not that no server answers, and no traceback."""
    ran = kindcast(*arguments)
    assert ran.status == 1
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_command_shows_no_control_characters_of_publishers(kindcast: Kindcast, shop_server: str) -> None:
    """A terminal would obey them."""
    id = kindcast("subscribe", "coloured exists", "--quiet").out.strip()
    event = kindcast("publish", r'{"coloured": "a\u001b[31mb\u009b2Jc"}', "--json").json["events"][0]
    shown = kindcast("why", str(event["sequence"]), id).out + kindcast("matches", id).out + kindcast("events").out
    assert "published a\ufffd[31mb\ufffd2Jc" in shown
    assert not {"\x1b", "\x9b"} & set(shown)


def test_change_without_its_ticket_says_how_to_give_it(kindcast: Kindcast, shop_server: str) -> None:
    """The option of the command, and not only the header of HTTP."""
    id = kindcast("subscribe", "n exists", "--quiet").out.strip()
    ran = kindcast("subscriptions", "pause", id)
    assert ran.status == 1
    assert "--ticket TICKET" in ran.err


class _Interrupted:
    """Finds a module only until Ctrl-C."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "kindcast.server.cli.application":
            raise KeyboardInterrupt


def test_interruption_before_the_command_is_imported_is_one_too(
    kindcast: Kindcast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a traceback."""
    monkeypatch.delitem(sys.modules, "kindcast.server.cli.application", raising=False)
    monkeypatch.setattr(sys, "meta_path", [_Interrupted(), *sys.meta_path])
    ran = kindcast("--version")
    assert (ran.status, ran.err) == (130, "")


def test_limit_of_matches_may_be_any_number(kindcast: Kindcast, shop_server: str) -> None:
    id = kindcast("subscribe", "limited exists", "--quiet").out.strip()
    kindcast("publish", '{"limited": 1}')
    ran = kindcast("matches", id, "--limit", str(10**30))
    assert (ran.status, ran.out.count("limited")) == (0, 1)


def test_export_without_a_name_of_the_file_says_so(kindcast: Kindcast, shop_server: str) -> None:
    """A variable of the shell that is not set."""
    for command in ("subscriptions", "archive"):
        ran = kindcast(command, "export", "--output", "")
        assert ran.status == 1
        assert "--output is not a file" in ran.err


def test_client_command_with_an_address_that_is_none_says_what_one_looks_like(kindcast: Kindcast) -> None:
    """A forgotten http:// is a common slip."""
    ran = kindcast("ontology", "list", "--server", "localhost:8080")
    assert ran.status == 1
    assert "http://127.0.0.1:8080" in ran.err


def test_serve_on_a_port_in_use_says_so(kindcast: Kindcast, shop_server: str, tmp_path: Path) -> None:
    """The second server on a port is told why it cannot start."""
    port = shop_server.rpartition(":")[2]
    ran = kindcast("serve", "--port", port, "--data", str(tmp_path / "data"))
    assert ran.status == 1
    assert f"port {port}" in ran.err
    assert "Is a server already running there?" in ran.err


def test_serve_on_an_address_of_another_machine_says_so(kindcast: Kindcast, tmp_path: Path) -> None:
    """Another port would not help."""
    for host in ("192.0.2.7", "nowhere.invalid"):
        ran = kindcast("serve", "--host", host, "--data", str(tmp_path / "data"))
        assert (ran.status, "port 0" in ran.err) == (1, False)
        assert "Name an address of this machine: kindcast serve --host 127.0.0.1" in ran.err


def test_unknown_setting_in_the_file_is_told_in_words(kindcast: Kindcast, tmp_path: Path) -> None:
    """With the nearest one, as for a variable."""
    config = tmp_path / "kindcast.toml"
    config.write_text("retention_second = 5\n", "utf-8")
    ran = kindcast("serve", "--config", str(config), "--data", str(tmp_path / "data"))
    assert ran.status == 2
    assert "retention_second: there is no such setting; did you mean retention_seconds?" in ran.err


def test_serve_beyond_loopback_needs_a_key_first(kindcast: Kindcast, tmp_path: Path) -> None:
    """Without keys nobody but this machine may come; the message names the command that makes the first one."""
    ran = kindcast("serve", "--host", "0.0.0.0", "--data", str(tmp_path / "data"))
    assert ran.status == 1
    assert "kindcast key create --role admin" in ran.err


def test_ontology_load_twice_keeps_the_version(kindcast: Kindcast, shop_server: str) -> None:
    """The same bytes are the same version, and the list shows it once."""
    first = kindcast("ontology", "load", str(shipped("shop")), "--server", shop_server, "--json").json
    second = kindcast("ontology", "load", str(shipped("shop")), "--server", shop_server, "--json").json
    assert first["version"] == second["version"]
    names = [
        each["name"] for each in kindcast("ontology", "list", "--server", shop_server, "--json").json["ontologies"]
    ]
    assert names == ["shop"]


def test_ontology_load_with_reasoning_is_a_version_of_its_own(
    kindcast: Kindcast, shop_server: str, tmp_path: Path
) -> None:
    """The same file, thought through further, is not the same."""
    file = tmp_path / "devices.ttl"
    schema = "@prefix : <http://e/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . "
    file.write_text(schema + ":measures rdfs:domain :Sensor . :x :measures 5 .", encoding="utf-8")
    plain = kindcast("ontology", "load", str(file), "--server", shop_server, "--json").json
    reasoned = kindcast("ontology", "load", str(file), "--reason", "rdfs", "--server", shop_server, "--json").json
    kindcast("ontology", "load", str(file), "--server", shop_server)
    assert (plain["version"], reasoned["version"]) == (1, 2)
    assert (plain["inferred"], reasoned["inferred"]) == (0, 1)


def test_ontology_load_from_a_file_whose_name_does_not_fit_asks_for_another(
    kindcast: Kindcast, shop_server: str, tmp_path: Path
) -> None:
    """The name of the file is that of the ontology, but a file may have a blank in it."""
    file = tmp_path / "my things.ttl"
    file.write_text("<urn:a> <http://www.w3.org/2000/01/rdf-schema#subClassOf> <urn:b> .", encoding="utf-8")
    ran = kindcast("ontology", "load", str(file), "--server", shop_server, "--dry-run")
    assert ran.status == 2
    assert "--name: 'my things' cannot be the name of an ontology" in ran.err
    ran = kindcast("ontology", "load", str(file), "--server", shop_server, "--dry-run", "--name", "things")
    assert ran.status == 0


def test_ontology_load_broken_file_names_the_line(kindcast: Kindcast, shop_server: str, tmp_path: Path) -> None:
    """What the server says of the place is shown."""
    broken = tmp_path / "broken.ttl"
    broken.write_text("@prefix : <http://example.org/> .\n:A a :B .\n:C a ] .\n", encoding="utf-8")
    ran = kindcast("ontology", "load", str(broken), "--server", shop_server)
    assert ran.status == 1
    assert "line 3" in ran.err


def test_concept_find_in_another_language_finds_the_same_concept(kindcast: Kindcast, shop_server: str) -> None:
    """Any label leads to the concept."""
    ran = kindcast("concept", "find", "Festplatte", "--server", shop_server, "--json")
    assert any(each["iri"].endswith("#HardDisk") for each in ran.json["concepts"])
    assert "#HardDisk" in kindcast("concept", "find", "Festplatte", "--server", shop_server).out


def test_concept_show_tells_what_is_above_and_beneath(kindcast: Kindcast, shop_server: str) -> None:
    """The labels of all languages, the way up, the kinds directly beneath."""
    ran = kindcast("concept", "show", "台式机", "--server", shop_server)
    assert ran.status == 0
    assert all(word in ran.out for word in ("Desktop PC", "Tischrechner", "Computer", "Product", "Gaming desktop"))


def test_concept_show_unknown_term_suggests_and_fails(kindcast: Kindcast, shop_server: str) -> None:
    """A term that nothing is called is an error with what is near."""
    ran = kindcast("concept", "show", "Lapptop", "--server", shop_server)
    assert ran.status == 1
    assert "Laptop" in ran.err


def test_subscribe_publish_listen_goes_the_whole_road(kindcast: Kindcast, shop_server: str) -> None:
    """What was subscribed to by kind and published in another language is delivered, once, and can be acknowledged."""
    at = ("--server", shop_server)
    created = kindcast("subscribe", WISH, *at, "--ttl", "15min", "--name", "cheap", "--json").json
    assert created["metadata"] == {"name": "cheap"}
    published = kindcast("publish", '[{"target": "笔记本电脑", "price": 350}, {"target": "Maus", "price": 9}]', *at)
    assert "accepted 2 events, 1 match" in published.out
    first = kindcast("listen", created["id"], *at, "--count", "1", "--json").json
    assert first["event"]["data"] == {"target": "笔记本电脑", "price": 350}
    again = ("listen", created["id"], *at, "--wait", "0", "--json")
    assert kindcast(*again, "--after", first["cursor"]).out == ""
    acknowledged = kindcast(*again, "--ack", "--ticket", created["ticket"])
    assert json.loads(acknowledged.out)["cursor"] == first["cursor"]
    assert kindcast(*again).out == ""


def test_subscribe_quiet_prints_the_id_alone(kindcast: Kindcast, shop_server: str) -> None:
    """A shell keeps it: id=$(kindcast subscribe … --quiet)."""
    id = kindcast("subscribe", WISH, "--server", shop_server, "--quiet").out.strip()
    listed = kindcast("subscriptions", "--server", shop_server, "--json").json["subscriptions"]
    assert id in {each["id"] for each in listed}


def test_empty_expression_is_shown_as_every_event(kindcast: Kindcast, shop_server: str) -> None:
    """An unset variable of a shell subscribes to everything. An empty cell would hide that."""
    created = kindcast("subscribe", "", "--json").json
    listed = kindcast("subscriptions").out.splitlines()
    assert "every event" in next(line for line in listed if line.startswith(created["id"]))
    assert "every event" in kindcast("subscriptions", "show", created["id"]).out
    assert kindcast("match", "--subscription", "", "--event", "{}").out == "event 1  matches  every event\n"
    assert kindcast("subscriptions", "delete", created["id"], "--ticket", created["ticket"]).status == 0


def test_events_that_a_filter_leaves_out_are_not_said_to_be_absent(kindcast: Kindcast, shop_server: str) -> None:
    """There are events, but none of this type."""
    kindcast("publish", '{"n": 1}', "--type", "some kind")
    more = kindcast("events", "--type", "some kind", "--limit", "1").err
    assert re.fullmatch(r"There may be more: kindcast events --after \d+ --type 'some kind'\n", more)
    assert kindcast("events", "--type", "nobody.sends.this").err.strip() == "There are no such events."


def test_events_of_an_empty_server_say_how_to_publish_one(kindcast: Kindcast, tmp_path: Path) -> None:
    """It only said that there are no such events."""
    with running_process(tmp_path) as server:
        assert "There are no events yet: kindcast publish" in kindcast("events", "--server", server.url).err
        assert kindcast("events", "--after", "5", "--server", server.url).err.strip() == "There are no such events."


def test_audit_log_of_a_server_without_keys_says_why_it_is_empty(kindcast: Kindcast, shop_server: str) -> None:
    """A heading without rows would not."""
    assert "Only a server with keys writes some" in kindcast("audit", "list").err
    chosen = kindcast("audit", "list", "--who", "key 0123456789abcdef", "--server", shop_server)
    assert (chosen.status, chosen.err) == (0, "There are no such entries.\n")


def test_subscribe_by_tree_means_the_same_as_by_text(kindcast: Kindcast, shop_server: str) -> None:
    """The JSON form is the other spelling of one language."""
    tree = '{"all": [{"isa": ["target", "Computer"]}, {"<=": ["price", 400]}]}'
    by_tree = kindcast("subscribe", "--where", tree, "--server", shop_server, "--json").json
    by_text = kindcast("subscribe", WISH, "--server", shop_server, "--json").json
    assert by_tree["canonical"] == by_text["canonical"]


@pytest.mark.parametrize("arguments", [(), (WISH, "--where", "{}"), (WISH, "--ttl", "soon"), ("--where", "{")])
def test_subscribe_used_wrongly_ends_with_two(kindcast: Kindcast, arguments: tuple[str, ...]) -> None:
    """Neither or both forms, a length of time that is none, a tree that is not JSON."""
    assert kindcast("subscribe", *arguments).status == 2


def test_subscribe_ambiguous_label_shows_the_candidates_under_the_place(kindcast: Kindcast, shop_server: str) -> None:
    """The server's problem is drawn like one that was found offline."""
    text = "price < 100 and target isa memory"
    ran = kindcast("subscribe", text, "--server", shop_server)
    assert ran.status == 1
    lines = ran.err.splitlines()
    assert lines[lines.index(f"  {text}") + 1].index("^") == 2 + text.index("memory")
    assert "#MainMemory" in ran.err
    assert "#MemoryCard" in ran.err


def test_subscriptions_pause_resume_renew_delete_need_the_ticket(kindcast: Kindcast, shop_server: str) -> None:
    """Changes with the ticket work and show the new state; without it they fail."""
    at = ("--server", shop_server)
    created = kindcast("subscribe", WISH, *at, "--json").json
    id, ticket = created["id"], ("--ticket", created["ticket"])
    assert kindcast("subscriptions", "pause", id, *at).status == 1
    assert kindcast("subscriptions", "pause", id, *at, "--ticket", "wrong").status == 1
    assert kindcast("subscriptions", "replay", id, *at, "--after", "x").status == 1
    assert kindcast("subscriptions", "rotate-secret", id, *at, *ticket, "--overlap", "2h").status == 1  # no sink
    assert kindcast("subscriptions", "test", id, *at, *ticket).status == 1  # no sink
    assert kindcast("subscriptions", "pause", id, *at, *ticket, "--json").json["status"] == "paused"
    assert kindcast("subscriptions", "resume", id, *at, *ticket, "--json").json["status"] == "active"
    assert kindcast("subscriptions", "renew", id, *at, *ticket, "--ttl", "7d", "--json").json["status"] == "active"
    assert kindcast("subscriptions", "show", id, *at).status == 0
    assert kindcast("subscriptions", "delete", id, *at, *ticket).status == 0
    assert kindcast("subscriptions", "show", id, *at).status == 1


def test_listen_to_an_expression_leaves_no_subscription_behind(kindcast: Kindcast, shop_server: str) -> None:
    """It subscribes for as long as it listens."""
    before = kindcast("subscriptions", "--server", shop_server, "--json").json["subscriptions"]
    ran = kindcast("listen", "--to", "target isa Scanner", "--wait", "0", "--server", shop_server)
    assert ran.status == 0
    assert kindcast("subscriptions", "--server", shop_server, "--json").json["subscriptions"] == before


def test_listen_to_unknown_subscription_fails(kindcast: Kindcast, shop_server: str) -> None:
    """An id that nobody has is an error, not an endless wait."""
    assert kindcast("listen", "sub_nobody", "--server", shop_server).status == 1


def test_matches_and_listen_from_0_begin_at_the_oldest_that_is_kept(kindcast: Kindcast, tmp_path: Path) -> None:
    """Also after older messages were deleted."""
    short = {"KINDCAST_RETENTION_SECONDS": "1", "KINDCAST_SWEEP_SECONDS": "0.1"}
    with running_process(tmp_path, short) as server:
        id = kindcast("subscribe", "n exists", "--server", server.url, "--json").json["id"]
        kindcast("publish", '{"n": 1}', "--server", server.url)
        while httpx.get(f"{server.url}/v1/events").json()["events"]:
            time.sleep(0.05)
        server.stop()
        server.start(KINDCAST_RETENTION_SECONDS="3600")
        kindcast("publish", '{"n": 2}', "--server", server.url)
        for command in (("matches", id), ("listen", id, "--after", "0", "--wait", "0")):
            (line,) = kindcast(*command, "--server", server.url, "--json").out.splitlines()
            assert json.loads(line)["event"]["data"] == {"n": 2}
        assert kindcast("matches", id, "--after", "1", "--server", server.url).status == 0


def test_publish_file_in_batches_tells_the_sum(kindcast: Kindcast, shop_server: str, tmp_path: Path) -> None:
    """More events than one request takes arrive all, each once."""
    file = tmp_path / "offers.ndjson"
    file.write_text("".join(f'{{"target": "Router", "price": {price}}}\n' for price in range(1_203)), encoding="utf-8")
    ran = kindcast("publish", str(file), "--server", shop_server)
    assert ran.status == 0
    assert ran.out.startswith("accepted 1,203 events")


def test_publish_that_fails_halfway_says_how_far_it_came(
    kindcast: Kindcast, shop_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that ends too early has whole batches; without ids they would be accepted again."""
    monkeypatch.setattr(event_commands, "BATCH", 100)
    file = tmp_path / "offers.ndjson.gz"
    lines = "".join(f'{{"target": "Router", "price": {price}, "n": "{hash(price**9)}"}}\n' for price in range(9_000))
    file.write_bytes(gzip.compress(lines.encode())[:-2_000])
    ran = kindcast("publish", str(file), "--server", shop_server, "--type", "halfway")
    assert ran.status == 1
    assert "damaged gzip file" in ran.err
    accepted = kindcast("archive", "export", "--type", "halfway", "--server", shop_server).out.count("\n")
    assert accepted > 0
    assert f"the server has answered events 1 to {accepted:,}." in ran.err
    file.write_bytes(b"\x1f\x8bnothing")
    assert "has answered" not in kindcast("publish", str(file), "--server", shop_server).err


def test_publish_and_subscribe_are_sent_again_if_the_answer_is_lost(
    kindcast: Kindcast, shop_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same ids, so nothing is done twice. Without a repetition, what is not known is said."""
    lost: list[httpx.Request] = []
    answered = httpx.HTTPTransport.handle_request

    def lose(transport: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
        answer = answered(transport, request)
        if request.method == "POST" and not lost:
            answer.close()
            lost.append(request)
            raise httpx.ReadError("the connection broke")
        return answer

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", lose)
    ran = kindcast("publish", '[{"n": 1}, {"n": 2}]', "--type", "lost", "--retry", "10", "--server", shop_server)
    assert (ran.status, "2 already known" in ran.out) == (0, True)
    lost.clear()
    ran = kindcast("subscribe", "lost = 1", "--retry", "10", "--server", shop_server)
    assert (ran.status, len(lost)) == (0, 1)
    listed = kindcast("subscriptions", "--json", "--server", shop_server).json["subscriptions"]
    assert [each["canonical"] for each in listed].count("lost = 1") == 1
    lost.clear()
    ran = kindcast("listen", "--to", "lost = 2", "--wait", "0", "--retry", "10", "--server", shop_server)
    assert (ran.status, len(lost)) == (0, 1)
    listed = httpx.get(f"{shop_server}/v1/subscriptions").json()["subscriptions"]
    assert "lost = 2" not in [each["canonical"] for each in listed]  # it was made once, and removed
    lost.clear()
    ran = kindcast("publish", '[{"n": 1}, {"n": 2}]', "--type", "lost", "--server", shop_server)
    assert (ran.status, "events 1 to 2 is not known" in ran.err) == (1, True)
    nobody = kindcast("publish", '{"n": 1}', "--server", f"http://127.0.0.1:{free_port()}")
    assert (nobody.status, "not known" in nobody.err) == (1, False)


def test_publish_bad_lines_are_named_and_the_rest_is_accepted(
    kindcast: Kindcast, shop_server: str, tmp_path: Path
) -> None:
    """Some lines are refused here, some by the server; each is told with its number, and the exit status is 1."""
    file = tmp_path / "offers.ndjson"
    lines = (
        '{"target": "Router", "price": 1}',
        "{oops",
        '{"ce": {"type": "mine"}}',
        '{"target": "Router", "price": 2}',
    )
    file.write_text("\n".join(lines), encoding="utf-8")
    ran = kindcast("publish", str(file), "--server", shop_server)
    assert ran.status == 1
    assert "event 2: " in ran.err
    assert "event 3: " in ran.err
    assert "accepted 2 events" in ran.out
    ran = kindcast("publish", str(file), "--server", shop_server, "--json")
    assert ran.json["accepted"] == 2
    first, second, whole = (json.loads(line) for line in ran.err.splitlines())
    assert (first["event"], first["title"][:8], whole["title"][:8]) == (2, "not JSON", "2 events")
    assert (second["event"], second["type"].rpartition("/")[2]) == (3, "invalid-event")


def test_publish_sends_together_what_standard_input_has(shop_server: str) -> None:
    """What somebody types is sent at once, and a large input in few requests."""
    with process("publish", "-", "--json", "--server", shop_server) as publishing:
        assert publishing.stdin is not None
        publishing.stdin.write('{"n": 0}\n')
        publishing.stdin.flush()
        assert json.loads(line_of(publishing.stdout))["accepted"] == 1
        os.write(publishing.stdin.fileno(), b'{"n": 1}\n' * 1_000)
        publishing.stdin.close()
        assert publishing.stdout is not None
        accepted = [json.loads(line)["accepted"] for line in publishing.stdout]
        assert (sum(accepted), len(accepted) < 500) == (1_000, True)


def test_publish_goes_on_after_a_request_of_which_nothing_is_accepted(
    kindcast: Kindcast, shop_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad event alone in its request, as from standard input, does not end it. All that is wrong with it is told."""
    monkeypatch.setattr(event_commands, "BATCH", 1)
    file = tmp_path / "offers.ndjson"
    file.write_text('{"n": 1}\n{"specversion": "1.0", "id": 5}\n{"n": 2}\n', encoding="utf-8")
    ran = kindcast("publish", str(file), "--server", shop_server)
    assert ran.status == 1
    assert "error: event 2: /id: id must be a non-empty text\n  /source: " in ran.err
    assert "error: 1 event was not accepted; the others were." in ran.err
    assert ran.out.startswith("accepted 2 events")


def test_each_bad_line_of_a_table_is_told(kindcast: Kindcast, shop_server: str, tmp_path: Path) -> None:
    """Also if the lines have the same fault. Nothing refers to the members of an answer, which nobody sees."""
    file = tmp_path / "words.csv"
    file.write_text("a;b\nc;d\n", encoding="utf-8")
    ran = kindcast("declare", "synonyms", "house", str(file), "--server", shop_server)
    assert ran.status == 1
    assert "\n  line 2, column 1: a line has two cells" in ran.err
    assert "see errors" not in ran.err


def test_publish_sends_smaller_requests_if_one_is_too_large(kindcast: Kindcast, tmp_path: Path) -> None:
    """A server or a proxy may take less at once than a batch has. An event that is too large alone is named."""
    file = tmp_path / "offers.ndjson"
    sizes = [200] * 30 + [5_000] + [200] * 20
    file.write_text("".join(json.dumps({"n": n, "text": "x" * size}) + "\n" for n, size in enumerate(sizes)))
    with running_process(tmp_path / "data", {"KINDCAST_MAX_BODY_BYTES": "3000"}) as server:
        ran = kindcast("publish", str(file), "--server", server.url)
        exported = kindcast("archive", "export", "--server", server.url).out
    assert ran.out.startswith("accepted 50 events")
    assert "event 31: the body has more than 3,000 bytes" in ran.err
    assert "1 event was not accepted; the others were" in ran.err
    assert [json.loads(line)["data"]["n"] for line in exported.splitlines()] == [n for n in range(51) if n != 30]


def test_publish_tells_what_is_undecided(kindcast: Kindcast, tmp_path: Path) -> None:
    """An operator that does not answer decides nothing yet: the publisher is told how many wait for it."""
    here = {"KINDCAST_ALLOW_PRIVATE_SINKS": "true"}  # the operator's service is on this machine
    with running_service() as service, running_process(tmp_path, here) as server:
        asked = {"url": f"{service.url}/hang", "timeout_seconds": 5}
        httpx.put(f"{server.url}/v1/operators/hang", json=asked, trust_env=False).raise_for_status()
        assert kindcast("subscribe", "pending exists and hang(@pending)", "--server", server.url).status == 0
        told = kindcast("publish", '{"pending": 1}', "--server", server.url)
    assert told.out.startswith("accepted 1 event, 0 matches, 1 undecided")
    assert "their matches follow" in told.out + told.err


def test_publish_the_same_event_twice_is_accepted_once(kindcast: Kindcast, shop_server: str) -> None:
    """Source and id make an event; the second time it is known, and no subscription gets it again."""
    assert kindcast("subscribe", "twice = 1", "--server", shop_server).status == 0
    event = {"specversion": "1.0", "type": "offer", "source": "/test", "id": "twice", "data": {"twice": 1}}
    assert "accepted 1 event, 1 match\n" in kindcast("publish", json.dumps(event), "--server", shop_server).out
    told = kindcast("publish", json.dumps(event), "--server", shop_server).out
    assert "accepted 0 events, 1 already known, 0 matches\n" in told


def test_publish_nothing_is_a_failure(kindcast: Kindcast, shop_server: str, tmp_path: Path) -> None:
    """An empty file is more likely a mistake than a wish."""
    file = tmp_path / "empty.ndjson"
    file.touch()
    assert kindcast("publish", str(file), "--server", shop_server).status == 1


def test_serve_on_a_folder_in_use_says_so(tmp_path: Path) -> None:
    """Two servers never share a data folder: the second is told why it cannot start."""
    serve = ("serve", "--port", "0", "--data", str(tmp_path), "--json")
    with process(*serve) as first:
        assert "listening" in json.loads(line_of(first.stdout))
        with process(*serve) as second:
            assert second.wait(WAIT_SECONDS) == 1
            problem = json.loads(line_of(second.stderr))
    assert problem["title"].startswith("the server could not start: another server uses")


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=lambda each: str(each),
)
def test_listen_to_an_expression_interrupted_leaves_no_subscription_behind(
    kindcast: Kindcast, shop_server: str, number: signal.Signals, status: int
) -> None:
    """Ctrl-C is how one stops listening; `timeout` and a closed terminal end it, too."""
    listed = ("subscriptions", "--server", shop_server, "--json")
    before = kindcast(*listed).json["subscriptions"]
    with process("listen", "--to", "target isa Scanner", "--server", shop_server) as listening:
        assert "listening for" in line_of(listening.stderr)
        assert len(kindcast(*listed).json["subscriptions"]) == len(before) + 1
        listening.send_signal(number)
        assert listening.wait(WAIT_SECONDS) == status
    assert kindcast(*listed).json["subscriptions"] == before


def test_listen_to_an_expression_interrupted_before_it_listens_leaves_no_subscription_behind(
    kindcast: Kindcast, shop_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The subscription is there before the first line is written."""

    def interrupted(text: str) -> None:
        raise KeyboardInterrupt

    listed = ("subscriptions", "--server", shop_server, "--json")
    before = kindcast(*listed).json["subscriptions"]
    with monkeypatch.context() as patch:
        patch.setattr(output, "hint", interrupted)
        assert kindcast("listen", "--to", "target isa Scanner", "--server", shop_server).status == 130
    assert kindcast(*listed).json["subscriptions"] == before


def test_listen_to_an_expression_says_how_to_delete_what_it_could_not(
    kindcast: Kindcast, shop_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server was stopped meanwhile, say. Only the ticket deletes the subscription."""

    def unanswered(self: Client, id: str) -> None:
        raise ServerUnreachable("no server answers")

    listed = ("subscriptions", "--server", shop_server, "--json")
    before = kindcast(*listed).json["subscriptions"]
    with monkeypatch.context() as patch:
        patch.setattr(Client, "unsubscribe", unanswered)
        ran = kindcast("listen", "--to", "target isa Scanner", "--wait", "0", "--server", shop_server)
    assert ran.status == 1
    told = re.search(r"kindcast (subscriptions delete \S+ --ticket \S+)", ran.err)
    assert told is not None
    assert kindcast(*told[1].split(), "--server", shop_server).status == 0
    assert kindcast(*listed).json["subscriptions"] == before


def test_listening_ends_when_the_reader_of_its_output_leaves(kindcast: Kindcast, shop_server: str) -> None:
    """`kindcast listen … --json | head -1` does not wait for a second message, and leaves no subscription behind."""
    listed = ("subscriptions", "--server", shop_server, "--json")
    before = kindcast(*listed).json["subscriptions"]
    with process("listen", "--to", "target isa Scanner", "--json", "--server", shop_server) as listening:
        assert "listening for" in line_of(listening.stderr)
        kindcast("publish", '{"target": "scanner"}', "--server", shop_server)
        assert '"target": "scanner"' in line_of(listening.stdout)
        assert listening.stdout is not None
        listening.stdout.close()
        listening.wait(60.0)
    assert kindcast(*listed).json["subscriptions"] == before


@contextmanager
def process(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A command in a process of its own, which is stopped in the end."""
    with subprocess.Popen(
        [sys.executable, "-c", LISTENS_TO_CTRL_C, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as started:
        try:
            yield started
        finally:
            started.terminate()


def line_of(stream: IO[str] | None) -> str:
    """The next line of `stream`."""
    assert stream is not None
    return stream.readline()


def test_events_trace_and_why_follow_an_event(kindcast: Kindcast, shop_server: str) -> None:
    """From the list of events to the reason for which one of them did not match."""
    id = kindcast("subscribe", "target isa Computer and price <= 401 USD", "--quiet").out.strip()
    offers = '[{"target": "Desktop PC", "price": "451 USD"}, {"target": "Desktop PC", "price": "399 USD"}]'
    first = int(kindcast("publish", offers, "--json").json["events"][0]["sequence"])
    before, dear, cheap = str(first - 1), str(first), str(first + 1)
    listed = kindcast("events", "--after", before).out
    assert '"price": "451 USD"' in listed
    assert dear in listed
    assert len(kindcast("events", "--after", before, "--limit", "1", "--json").json["events"]) == 1
    assert f"{id}" in kindcast("trace", cheap).out
    ran = kindcast("why", dear, id)
    assert "451 USD is more than 401 USD" in ran.out
    assert kindcast("why", cheap, id, "--json").json["matches"] is True
    assert kindcast("trace", "first").status == 2
    assert "no dead letter" in kindcast("dead-letters", id).err
    assert "there is no subscription" in kindcast("dead-letters", "sub_x").err
    assert kindcast("dead-letters", "--redrive").status == 2


def test_ontology_show_tree_and_delete(kindcast: Kindcast, shop_server: str, tmp_path: Path) -> None:
    """What is in force, what is beneath a concept, and how it goes; another version under another name is told."""
    assert "shop, version 1" in kindcast("ontology", "show", "shop").out
    drawn = kindcast("ontology", "tree", "Computer", "--depth", "2").out
    assert "Laptop" in drawn
    assert "Convertible" in drawn
    assert "Convertible" not in kindcast("ontology", "tree", "Computer", "--depth", "1").out
    assert kindcast("ontology", "tree", "Lapptop").status == 1
    for name in ("fleet-1.5.ttl", "fleet-1.6.ttl"):
        (tmp_path / name).write_text(
            "<http://e/Van> <http://www.w3.org/2000/01/rdf-schema#subClassOf> <http://e/Car> . "
            "<http://e/Van> a <http://www.w3.org/2000/01/rdf-schema#Class> .",
            encoding="utf-8",
        )
    assert "stays in force" not in kindcast("ontology", "load", str(tmp_path / "fleet-1.5.ttl")).err
    told = " ".join(kindcast("ontology", "load", str(tmp_path / "fleet-1.6.ttl")).err.split())
    assert "fleet-1.5 declares 1 of the same concepts, and stays in force beside fleet-1.6" in told
    assert "--name fleet-1.5" in told
    for name in ("fleet-1.5", "fleet-1.6"):
        assert "would be deleted" in kindcast("ontology", "delete", name, "--dry-run").out
        assert "is deleted" in kindcast("ontology", "delete", name).out
    assert kindcast("ontology", "show", "fleet-1.5").status == 1


def test_concept_show_in_a_language_has_its_labels(kindcast: Kindcast, shop_server: str) -> None:
    """The heading is in the language that was asked for."""
    assert kindcast("concept", "show", "Hard disk", "--lang", "de").out.splitlines()[0] == "Festplatte"


def test_files_may_be_gzip(kindcast: Kindcast, shop_server: str, tmp_path: Path) -> None:
    """Events, tables of synonyms and JSON declarations are read packed as well; a cut file is told by its name."""
    events = tmp_path / "offers.ndjson.gz"
    events.write_bytes(gzip.compress(b'{"target": "laptop", "price": 1}\n{"target": "laptop", "price": 2}\n'))
    table = tmp_path / "words.csv.gz"
    table.write_bytes(gzip.compress(b"Klapprechner,laptop\n"))
    declared = tmp_path / "price.json.gz"
    declared.write_bytes(gzip.compress(b'{"unit": "USD"}'))
    assert kindcast("declare", "synonyms", "packed", str(table), "--dry-run", "--server", shop_server).status == 0
    assert kindcast("declare", "attribute", "price", str(declared), "--dry-run", "--server", shop_server).status == 0
    rates = tmp_path / "rates.csv"
    rates.write_text("EUR,USD,1.08\n", encoding="utf-8")
    assert kindcast("declare", "rates", str(rates), "--dry-run", "--server", shop_server).status == 0
    assert kindcast("publish", str(events), "--server", shop_server, "--json").json["accepted"] == 2
    events.write_bytes(events.read_bytes()[:-12])
    ran = kindcast("publish", str(events), "--server", shop_server)
    assert ran.status == 1
    assert f"{events} is a damaged gzip file" in ran.err


def test_packed_ontology_has_the_name_of_the_file_within(kindcast: Kindcast, shop_server: str, tmp_path: Path) -> None:
    """`shop.ttl.gz` is the next version of shop, not an ontology beside it."""
    packed = tmp_path / "shop.ttl.gz"
    packed.write_bytes(gzip.compress(shipped("shop").read_bytes()))
    report = kindcast("ontology", "load", str(packed), "--dry-run", "--server", shop_server, "--json").json
    assert report["name"] == "shop"
    assert kindcast("ontology", "check", str(packed)).status == 0


@pytest.mark.parametrize("command", ["subscribe", "backtest"])
def test_mistake_in_an_expression_is_told_once_under_its_place(
    kindcast: Kindcast, shop_server: str, command: str
) -> None:
    """With a caret; the headline does not say it as well."""
    ran = kindcast(command, "price < 3 and target isa Nonsense", "--server", shop_server)
    assert ran.status == 1
    text = "  price < 3 and target isa Nonsense"
    assert ran.err.splitlines()[1:3] == [text, " " * text.index("Nonsense") + "^"]
    assert ran.err.count("no concept has the name 'Nonsense'") == 1


def test_mistake_elsewhere_is_told_once(kindcast: Kindcast, shop_server: str) -> None:
    """As an answer's detail, which is that of its only fault."""
    ran = kindcast("declare", "attribute", "x", '{"kind": "nonsense"}', "--server", shop_server)
    assert ran.status == 1
    assert ran.err.count("kind is one of") == 1
    ran = kindcast("events", "--after", "abc", "--server", shop_server)
    assert ran.err.count("valid integer") == 1
