"""The command line as people and scripts use it: what it prints, where, and with which exit status."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from semantic.shipped_vocabularies import shipped
from server.cli import main
from server.demo.stage import running_server

WISH = "target isa Computer and price <= 400"


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Kindcast = Callable[..., Ran]


@pytest.fixture
def kindcast(capsys: pytest.CaptureFixture[str]) -> Kindcast:
    """Runs one command in this process."""

    def run(*arguments: str) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        captured = capsys.readouterr()
        return Ran(ended.value.code if isinstance(ended.value.code, int) else 0, captured.out, captured.err)

    return run


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server process with the shop's vocabulary loaded."""
    with running_server() as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KINDCAST_SERVER", address)
        with pytest.raises(SystemExit):
            main(["ontology", "load", "shop.ttl"])
        yield address


# ── without a server ────────────────────────────────────────────────────────────────────────────────────────────────

COMMANDS = (
    *(("serve",), ("subscribe",), ("publish",), ("listen",), ("match",), ("explain",), ("demo",)),
    *(("ontology", "check"), ("ontology", "load"), ("ontology", "list"), ("concept", "find"), ("concept", "show")),
    *(("subscriptions",), *(("subscriptions", name) for name in ("show", "renew", "pause", "resume", "delete"))),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_command_asked_for_help_gives_an_example(kindcast: Kindcast, command: tuple[str, ...]) -> None:
    """Whoever looks a command up sees one that works."""
    ran = kindcast(*command, "--help")
    assert ran.status == 0
    assert f"Example: kindcast {' '.join(command)}" in " ".join(ran.out.replace("│", " ").split())


def test_application_without_a_command_lists_them_and_fails_as_wrong_use(kindcast: Kindcast) -> None:
    """Every command is in the list; none that this version does not have."""
    ran = kindcast()
    assert ran.status == 2
    shown = ran.out + ran.err
    assert all(f" {command[0]} " in shown for command in COMMANDS)
    assert not any(f" {word} " in shown for word in ("archive", "spark", "key", "backtest", "bench"))


def test_version_names_the_distribution(kindcast: Kindcast) -> None:
    """The version is that of the installed distribution."""
    ran = kindcast("--version")
    assert ran.status == 0
    assert ran.out.startswith("kindcast 0.")


def test_ontology_check_shipped_vocabulary_reports_its_numbers(kindcast: Kindcast) -> None:
    """A bare name that is no file here means the shipped one, and the machine's form is the report itself."""
    ran = kindcast("ontology", "check", "shop.ttl", "--json")
    assert ran.status == 0
    assert ran.json["concepts"] > 60
    assert set(ran.json["languages"]) == {"en", "de", "zh"}


def test_ontology_check_broken_file_names_the_line_and_fails(kindcast: Kindcast, tmp_path: Path) -> None:
    """Malformed RDF is found where it is."""
    broken = tmp_path / "broken.ttl"
    broken.write_text("@prefix : <http://example.org/> .\n:A a :B .\n:C a ] .\n", encoding="utf-8")
    ran = kindcast("ontology", "check", str(broken))
    assert ran.status == 1
    assert "line 3" in ran.err
    assert ran.out == ""


def test_ontology_check_missing_file_says_what_is_shipped(kindcast: Kindcast) -> None:
    """A file that is not there fails with what could have been meant."""
    ran = kindcast("ontology", "check", "nowhere.ttl")
    assert ran.status == 1
    assert "no file nowhere.ttl" in ran.err
    assert "shop.ttl" in ran.err


def test_match_several_subscriptions_and_events_tells_each(kindcast: Kindcast, tmp_path: Path) -> None:
    """One line an event, with the subscriptions that it matches."""
    offers = tmp_path / "offers.ndjson"
    offers.write_text('{"target": "台式机", "price": 350}\n\n{"target": "Drucker", "price": 90}\n', encoding="utf-8")
    ran = kindcast(
        *("match", "--ontology", "shop.ttl", "--subscription", WISH, "--subscription", "target isa Printer"),
        *("--event", str(offers), "--json"),
    )
    assert ran.status == 0
    assert [json.loads(line) for line in ran.out.splitlines()] == [
        {"event": 1, "matches": [WISH]},
        {"event": 3, "matches": ["target isa Printer"]},
    ]


def test_match_several_ontologies_make_one_vocabulary(kindcast: Kindcast) -> None:
    """Words of both files are understood in one expression."""
    ran = kindcast(
        *("match", "--ontology", "shop.ttl", "--ontology", "building.ttl"),
        *("--subscription", "target isa Computer and room isa Room"),
        *("--event", '{"target": "Laptop", "room": "Büro"}', "--json"),
    )
    assert ran.json["matches"] == ["target isa Computer and room isa Room"]


def test_match_nothing_found_is_no_failure(kindcast: Kindcast) -> None:
    """That no subscription wants an event is an answer."""
    ran = kindcast("match", "--ontology", "shop", "--subscription", WISH, "--event", '{"target": "Maus", "price": 1}')
    assert ran.status == 0
    assert "no match" in ran.out


def test_match_bad_line_is_named_and_the_others_are_matched(kindcast: Kindcast, tmp_path: Path) -> None:
    """A line that is no event does not stop the rest, and is not forgotten."""
    offers = tmp_path / "offers.ndjson"
    lines = ('{"target": "Laptop", "price": 350}', "{oops", '{"target": "Laptop", "price": NaN}', "[1]")
    offers.write_text("\n".join(lines), encoding="utf-8")
    ran = kindcast("match", "--ontology", "shop", "--subscription", WISH, "--event", str(offers))
    assert ran.status == 1
    assert ran.out.count("matches") == 1
    assert all(f"event {number}: " in ran.err for number in (2, 3, 4))
    assert "3 of 4 events" in ran.err


def test_match_unknown_concept_puts_a_caret_under_it_and_suggests(kindcast: Kindcast) -> None:
    """An error in the expression is shown in the expression, with the nearest known word."""
    text = "price <= 400 and target isa Lapptop"
    ran = kindcast("match", "--ontology", "shop", "--subscription", text, "--event", "{}")
    assert ran.status == 1
    lines = ran.err.splitlines()
    place = lines.index(f"  {text}")
    assert lines[place + 1].index("^") == 2 + text.index("Lapptop")
    assert any("did you mean Laptop" in line for line in lines[place:])


def test_match_caret_behind_wide_characters_stands_under_its_word(kindcast: Kindcast) -> None:
    """Chinese characters take two columns of a terminal each."""
    text = "价格 <= 400 and 产品 isa Nonsense"
    ran = kindcast("match", "--ontology", "shop", "--subscription", text, "--event", "{}")
    lines = ran.err.splitlines()
    assert lines[lines.index(f"  {text}") + 1].index("^") == 2 + text.index("Nonsense") + 4


def test_match_syntax_error_as_json_is_a_problem_with_its_place(kindcast: Kindcast) -> None:
    """Scripts get line and column as numbers."""
    ran = kindcast("match", "--ontology", "shop", "--subscription", "price <= ", "--event", "{}", "--json")
    assert ran.status == 1
    assert ran.out == ""
    (error,) = json.loads(ran.err.splitlines()[-1])["errors"]
    assert (error["line"], error["column"] >= 8) == (1, True)


def test_match_missing_option_is_wrong_use(kindcast: Kindcast) -> None:
    """Wrong use ends with 2, so that scripts can tell it from failure."""
    ran = kindcast("match", "--ontology", "shop")
    assert ran.status == 2
    assert "--subscription" in ran.err


def test_match_unknown_engine_names_those_there_are(kindcast: Kindcast) -> None:
    """The error says what could have been chosen."""
    ran = kindcast("match", "--ontology", "shop", "--subscription", WISH, "--event", "{}", "--engine", "warp")
    assert ran.status == 1
    assert "ctps" in ran.err


@pytest.mark.parametrize(("price", "matches"), [(450, False), (350, True)])
def test_explain_johns_computer_depends_on_its_price_alone(kindcast: Kindcast, price: int, matches: bool) -> None:
    """The paper's example: the kind is right in both cases, and the explanation shows the way up the hierarchy."""
    event = {"target": "Desktop PC", "manufacturer": "HP", "price": price}
    ran = kindcast(
        *("explain", "--ontology", "shop", "--subscription", WISH, "--event", json.dumps(event), "--json"),
    )
    assert ran.status == 0
    (clause,) = ran.json["clauses"]
    kind, cost = clause["predicates"]
    assert (ran.json["matches"], kind["verdict"], cost["verdict"]) == (matches, True, matches)
    assert kind["values"][0]["path"] == ["Desktop PC", "Personal computer", "Computer"]


def test_explain_for_people_says_which_predicate_failed(kindcast: Kindcast) -> None:
    """The tree has a verdict a predicate, the last line the reason."""
    event = '{"target": "台式机", "price": 450}'
    ran = kindcast("explain", "--ontology", "shop", "--subscription", WISH, "--event", event)
    assert "yes  target isa Computer" in ran.out
    assert "no   price <= 400" in ran.out
    assert "No match because of price alone" in ran.out


def test_explain_more_than_one_event_is_refused(kindcast: Kindcast) -> None:
    """An explanation is of one event."""
    ran = kindcast("explain", "--ontology", "shop", "--subscription", WISH, "--event", "[{}, {}]")
    assert ran.status == 1
    assert "one event was expected" in ran.err


# ── with a server ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_client_command_without_a_server_says_how_to_start_one(
    kindcast: Kindcast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody answering is a failure with advice, not a traceback."""
    monkeypatch.setenv("KINDCAST_SERVER", "http://127.0.0.1:9")
    ran = kindcast("ontology", "list")
    assert ran.status == 1
    assert "kindcast serve" in ran.err
    assert "Traceback" not in ran.err


def test_client_command_with_an_address_that_is_none_says_what_one_looks_like(kindcast: Kindcast) -> None:
    """A forgotten http:// is a common slip."""
    ran = kindcast("ontology", "list", "--server", "localhost:8080")
    assert ran.status == 1
    assert "http://127.0.0.1:8080" in ran.err


def test_serve_on_a_port_in_use_says_so(kindcast: Kindcast, server: str, tmp_path: Path) -> None:
    """The second server on a port is told why it cannot start."""
    port = server.rpartition(":")[2]
    ran = kindcast("serve", "--port", port, "--data", str(tmp_path / "data"))
    assert ran.status == 1
    assert f"port {port}" in ran.err


def test_serve_beyond_loopback_is_wrong_use(kindcast: Kindcast, tmp_path: Path) -> None:
    """There are no keys yet, so nobody but this machine may come."""
    ran = kindcast("serve", "--host", "0.0.0.0", "--data", str(tmp_path / "data"))
    assert ran.status == 2
    assert "loopback" in ran.err


def test_ontology_load_twice_keeps_the_version(kindcast: Kindcast, server: str) -> None:
    """The same bytes are the same version, and the list shows it once."""
    first = kindcast("ontology", "load", str(shipped("shop")), "--server", server, "--json").json
    second = kindcast("ontology", "load", str(shipped("shop")), "--server", server, "--json").json
    assert first["version"] == second["version"]
    names = [each["name"] for each in kindcast("ontology", "list", "--server", server, "--json").json["ontologies"]]
    assert names == ["shop"]


def test_ontology_load_broken_file_names_the_line(kindcast: Kindcast, server: str, tmp_path: Path) -> None:
    """What the server says of the place is shown."""
    broken = tmp_path / "broken.ttl"
    broken.write_text("@prefix : <http://example.org/> .\n:A a :B .\n:C a ] .\n", encoding="utf-8")
    ran = kindcast("ontology", "load", str(broken), "--server", server)
    assert ran.status == 1
    assert "line 3" in ran.err


def test_concept_find_in_another_language_finds_the_same_concept(kindcast: Kindcast, server: str) -> None:
    """Any label leads to the concept."""
    ran = kindcast("concept", "find", "Festplatte", "--server", server, "--json")
    assert any(each["iri"].endswith("#HardDisk") for each in ran.json["concepts"])
    assert "#HardDisk" in kindcast("concept", "find", "Festplatte", "--server", server).out


def test_concept_show_tells_what_is_above_and_beneath(kindcast: Kindcast, server: str) -> None:
    """The labels of all languages, the way up, the kinds directly beneath."""
    ran = kindcast("concept", "show", "台式机", "--server", server)
    assert ran.status == 0
    assert all(word in ran.out for word in ("Desktop PC", "Tischrechner", "Computer", "Product", "Gaming desktop"))


def test_concept_show_unknown_term_suggests_and_fails(kindcast: Kindcast, server: str) -> None:
    """A term that nothing is called is an error with what is near."""
    ran = kindcast("concept", "show", "Lapptop", "--server", server)
    assert ran.status == 1
    assert "Laptop" in ran.err


def test_subscribe_publish_listen_goes_the_whole_road(kindcast: Kindcast, server: str) -> None:
    """What was subscribed to by kind and published in another language is delivered, once, and can be acknowledged."""
    at = ("--server", server)
    created = kindcast("subscribe", WISH, *at, "--ttl", "15min", "--json").json
    published = kindcast("publish", '[{"target": "笔记本电脑", "price": 350}, {"target": "Maus", "price": 9}]', *at)
    assert "accepted 2 events, 1 match" in published.out
    first = kindcast("listen", created["id"], *at, "--count", "1", "--json").json
    assert first["event"]["data"] == {"target": "笔记本电脑", "price": 350}
    again = ("listen", created["id"], *at, "--wait", "0", "--json")
    assert kindcast(*again, "--after", first["cursor"]).out == ""
    acknowledged = kindcast(*again, "--ack", "--ticket", created["ticket"])
    assert json.loads(acknowledged.out)["cursor"] == first["cursor"]
    assert kindcast(*again).out == ""


def test_subscribe_quiet_prints_the_id_alone(kindcast: Kindcast, server: str) -> None:
    """A shell keeps it: id=$(kindcast subscribe … --quiet)."""
    id = kindcast("subscribe", WISH, "--server", server, "--quiet").out.strip()
    listed = kindcast("subscriptions", "--server", server, "--json").json["subscriptions"]
    assert id in {each["id"] for each in listed}


def test_subscribe_by_tree_means_the_same_as_by_text(kindcast: Kindcast, server: str) -> None:
    """The JSON form is the other spelling of one language."""
    tree = '{"all": [{"isa": ["target", "Computer"]}, {"<=": ["price", 400]}]}'
    by_tree = kindcast("subscribe", "--where", tree, "--server", server, "--json").json
    by_text = kindcast("subscribe", WISH, "--server", server, "--json").json
    assert by_tree["canonical"] == by_text["canonical"]


@pytest.mark.parametrize("arguments", [(), (WISH, "--where", "{}"), (WISH, "--ttl", "soon"), ("--where", "{")])
def test_subscribe_used_wrongly_ends_with_two(kindcast: Kindcast, arguments: tuple[str, ...]) -> None:
    """Neither or both forms, a length of time that is none, a tree that is no JSON."""
    assert kindcast("subscribe", *arguments).status == 2


def test_subscribe_ambiguous_label_shows_the_candidates_under_the_place(kindcast: Kindcast, server: str) -> None:
    """The server's problem is drawn like one that was found offline."""
    text = "price < 100 and target isa memory"
    ran = kindcast("subscribe", text, "--server", server)
    assert ran.status == 1
    lines = ran.err.splitlines()
    assert lines[lines.index(f"  {text}") + 1].index("^") == 2 + text.index("memory")
    assert "#MainMemory" in ran.err
    assert "#MemoryCard" in ran.err


def test_subscriptions_pause_resume_renew_delete_need_the_ticket(kindcast: Kindcast, server: str) -> None:
    """Changes with the ticket work and show the new state; without it they fail."""
    at = ("--server", server)
    created = kindcast("subscribe", WISH, *at, "--json").json
    id, ticket = created["id"], ("--ticket", created["ticket"])
    assert kindcast("subscriptions", "pause", id, *at).status == 1
    assert kindcast("subscriptions", "pause", id, *at, "--ticket", "wrong").status == 1
    assert kindcast("subscriptions", "pause", id, *at, *ticket, "--json").json["status"] == "paused"
    assert kindcast("subscriptions", "resume", id, *at, *ticket, "--json").json["status"] == "active"
    assert kindcast("subscriptions", "renew", id, *at, *ticket, "--ttl", "7d", "--json").json["status"] == "active"
    assert kindcast("subscriptions", "show", id, *at).status == 0
    assert kindcast("subscriptions", "delete", id, *at, *ticket).status == 0
    assert kindcast("subscriptions", "show", id, *at).status == 1


def test_listen_to_an_expression_leaves_no_subscription_behind(kindcast: Kindcast, server: str) -> None:
    """It subscribes for as long as it listens."""
    before = kindcast("subscriptions", "--server", server, "--json").json["subscriptions"]
    ran = kindcast("listen", "--to", "target isa Scanner", "--wait", "0", "--server", server)
    assert ran.status == 0
    assert kindcast("subscriptions", "--server", server, "--json").json["subscriptions"] == before


def test_listen_to_unknown_subscription_fails(kindcast: Kindcast, server: str) -> None:
    """An id that nobody has is an error, not an endless wait."""
    assert kindcast("listen", "sub_nobody", "--server", server).status == 1


def test_publish_file_in_batches_tells_the_sum(kindcast: Kindcast, server: str, tmp_path: Path) -> None:
    """More events than one request takes arrive all, each once."""
    file = tmp_path / "offers.ndjson"
    file.write_text("".join(f'{{"target": "Router", "price": {price}}}\n' for price in range(1_203)), encoding="utf-8")
    ran = kindcast("publish", str(file), "--server", server)
    assert ran.status == 0
    assert ran.out.startswith("accepted 1,203 events")


def test_publish_bad_lines_are_named_and_the_rest_is_accepted(kindcast: Kindcast, server: str, tmp_path: Path) -> None:
    """Some lines are refused here, some by the server; each is told with its number, and the exit status is 1."""
    file = tmp_path / "offers.ndjson"
    lines = (
        '{"target": "Router", "price": 1}',
        "{oops",
        '{"ce": {"type": "mine"}}',
        '{"target": "Router", "price": 2}',
    )
    file.write_text("\n".join(lines), encoding="utf-8")
    ran = kindcast("publish", str(file), "--server", server)
    assert ran.status == 1
    assert "event 2: " in ran.err
    assert "event 3: " in ran.err
    assert "accepted 2 events" in ran.out


def test_publish_the_same_event_twice_is_accepted_once(kindcast: Kindcast, server: str) -> None:
    """Source and id make an event; the second time it is known."""
    event = {"specversion": "1.0", "type": "offer", "source": "/test", "id": "twice", "data": {"target": "Router"}}
    assert "accepted 1 event," in kindcast("publish", json.dumps(event), "--server", server).out
    assert "1 known already" in kindcast("publish", json.dumps(event), "--server", server).out


def test_publish_nothing_is_a_failure(kindcast: Kindcast, server: str, tmp_path: Path) -> None:
    """An empty file is more likely a mistake than a wish."""
    file = tmp_path / "empty.ndjson"
    file.touch()
    assert kindcast("publish", str(file), "--server", server).status == 1
