"""The command line without a server: help, checking an ontology, the offline match and explain, and wrong use."""

import asyncio
import errno
import io
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from kindcast.server.cli import output
from kindcast.server.cli import spark as spark_commands
from kindcast.server.cli.application import application
from kindcast.server.cli.bench_load import bodies, lines, load
from kindcast.server.cli.output import CommandFailed
from kindcast.server.cli.spark import run_job
from kindcast.server.cli.subscriptions import PASSWORD
from kindcast.server.client import Client
from kindcast.server.settings import unknown_variables
from tests.harness.receiver import Answer, running_receiver
from tests.harness.server_process import running_server
from tests.integration.conftest import Kindcast

WISH = "target isa Computer and price <= 400"

CONSOLE = Path(__file__).parents[2] / "server" / "console" / "static"
ROOT: Any = get_command(application)
EXAMPLE = re.compile(r"Examples?:((?:\s+kindcast .*)+)")


def paths(command: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command that does something: the words that call it."""
    beneath = getattr(command, "commands", {})
    if above and (not beneath or command.invoke_without_command):
        yield above
    for name, each in beneath.items():
        yield from paths(each, (*above, name))


COMMANDS = tuple(paths(ROOT))


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_command_with_a_closed_output_does_its_work(
    kindcast: Kindcast, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """`>&-`, as some jobs in the background are started: a result or a hint that nobody reads is no failure."""
    monkeypatch.setattr(sys, name, None)
    assert kindcast("ontology", "check", "building").status == 0
    getattr(sys, name).close()


@pytest.mark.parametrize("address", ["localhost:8080", ""])
def test_address_without_a_scheme_is_told_once(kindcast: Kindcast, address: str) -> None:
    """In one sentence that shows an address."""
    said = kindcast("status", "--server", address).err
    assert said == f"error: the address of a server looks like http://127.0.0.1:8080, not '{address}'\n"


def test_full_disk_is_told_in_words() -> None:
    """`> /dev/full`, which has no name: without the error number of the system."""
    error = OSError(errno.ENOSPC, "No space left on device")
    assert output.in_words(error) == output.as_json(error)["detail"] == "No space left on device"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_command_asked_for_help_says_what_it_does_and_gives_an_example(
    kindcast: Kindcast, command: tuple[str, ...]
) -> None:
    """A page as of a manual: a sentence, options that each say what they mean, and an example whose options exist."""
    ran = kindcast(*command, "--help")
    assert ran.status == 0
    usage, sentence = [line.strip() for line in ran.out.splitlines() if line.strip()][:2]
    assert usage.startswith(f"Usage: kindcast {' '.join(command)} [OPTIONS]")
    assert sentence[0].isupper()
    found = EXAMPLE.search(ran.out)
    assert found is not None, ran.out
    examples = [each.strip() for each in found[1].splitlines() if each.strip()]
    assert any(each.startswith(f"kindcast {' '.join(command)}") for each in examples)
    for option in re.findall(r"(?<=\s)--[a-z-]+", " ".join(examples)):
        assert re.search(rf"^  (-\w, )?{option}\b", ran.out, re.MULTILINE), option
    mute = [each.name for each in named(command).params if not getattr(each, "help", "")]
    assert mute == []


def named(words: tuple[str, ...]) -> Any:
    """The command that these words call."""
    found = ROOT
    for word in words:
        found = found.commands[word]
    return found


def test_commands_that_the_console_shows_exist() -> None:
    """Its pages show how to get the same on the command line."""
    pages = "\n".join(page.read_text("utf-8") for page in CONSOLE.glob("*.js") if page.name != "words.js")
    found = re.findall(r"(?<!t\()[`\"]kindcast ([a-z-]+)(?: ([a-z-]+))?", pages)
    shown = {tuple(word for word in words if word) for words in found}
    assert ("operators", "list") in shown
    assert len(shown) > 15
    assert not shown - set(COMMANDS)


def test_application_without_a_command_lists_them_and_fails_as_wrong_use(kindcast: Kindcast) -> None:
    """Every command is in the list."""
    ran = kindcast()
    assert ran.status == 2
    shown = ran.out + ran.err
    assert all(f" {command[0]} " in shown for command in COMMANDS)


def test_version_names_the_distribution(kindcast: Kindcast) -> None:
    """The version is that of the installed distribution."""
    ran = kindcast("--version")
    assert ran.status == 0
    assert ran.out.startswith("kindcast 0.")


def test_ontology_check_refuses_an_empty_file(kindcast: Kindcast, tmp_path: Path) -> None:
    """As a server does, although an empty file is Turtle."""
    file = tmp_path / "empty.ttl"
    file.touch()
    ran = kindcast("ontology", "check", str(file))
    assert ran.status == 1
    assert "the document is empty" in ran.err


def test_ontology_check_shipped_vocabulary_reports_its_numbers(kindcast: Kindcast) -> None:
    """A bare name that is no file here means the shipped one, and the machine's form is the report itself."""
    ran = kindcast("ontology", "check", "shop.ttl", "--json")
    assert ran.status == 0
    assert ran.json["concepts"] > 60
    assert set(ran.json["languages"]) == {"en", "de", "zh"}


def test_ontology_check_with_reasoning_tells_what_it_added(kindcast: Kindcast, tmp_path: Path) -> None:
    """The level is an option; people see the number, machines also which pairs."""
    file = tmp_path / "devices.ttl"
    schema = "@prefix : <http://e/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . "
    file.write_text(schema + ":measures rdfs:domain :Sensor . :x :measures 5 .", encoding="utf-8")
    assert "inferred" not in kindcast("ontology", "check", str(file)).out
    assert "inferred 1" in " ".join(kindcast("ontology", "check", str(file), "--reason", "rdfs").out.split())
    report = kindcast("ontology", "check", str(file), "--reason", "rdfs", "--json").json
    assert (report["reason"], report["inferred_examples"]) == ("rdfs", [["http://e/x", "http://e/Sensor"]])
    assert kindcast("ontology", "check", str(file), "--reason", "magic").status == 2


def test_commands_take_the_relations_that_are_asked_for(kindcast: Kindcast, tmp_path: Path) -> None:
    """The report tells their edges, subscriptions follow them, what is not there is refused with what is."""
    file = tmp_path / "body.ttl"
    file.write_text("@prefix : <http://e/> . @prefix owl: <http://www.w3.org/2002/07/owl#> .\n:Valve :part_of :Heart .")
    assert "part_of: 1 edge\n" in kindcast("ontology", "check", str(file), "--relations", "part_of").out
    asked = ("--ontology", str(file), "--subscription", "t part_of Heart", "--event", '{"t": "Valve"}')
    assert "matches" in kindcast("match", *asked, "--relations", "part_of").out
    assert "(part_of) Heart" in kindcast("explain", *asked, "--relations", "part_of").out
    refused = kindcast("match", *asked)
    assert refused.status == 1
    assert "no relation has the name 'part_of'" in refused.err
    missing = kindcast("ontology", "check", str(file), "--relations", "has_part")
    assert missing.status == 1
    assert "it has (with their statements) part_of (1)" in " ".join(missing.err.split())


def test_ontology_check_believes_the_extension(kindcast: Kindcast, tmp_path: Path) -> None:
    """Turtle that begins like N-Triples is read as Turtle."""
    beneath = "<http://www.w3.org/2000/01/rdf-schema#subClassOf>"
    file = tmp_path / "kinds.ttl"
    file.write_text(f"<http://e/a> {beneath} <http://e/b> .\n@prefix : <http://e/> .\n:c {beneath} :b .\n")
    ran = kindcast("ontology", "check", str(file), "--json")
    assert ran.status == 0, ran
    assert ran.json["edges"] == 2


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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("declare list attribute", "'attribute' is not one of 'attributes',"),
        ("declare list attribute", "Did you mean 'attributes'?"),
        ("declare attribute list", "this declares nothing about 'list'"),
        ("declare attribute x --kind nmber", "Did you mean 'number'?"),
        ("declare price attribute", "Did you mean 'kindcast declare attribute price'?"),
        ("declare show attributes", "Did you mean 'list'?"),
        ("subscriptions sub_1 show", "Did you mean 'kindcast subscriptions show sub_1'?"),
        ("list ontologies", "Did you mean 'kindcast ontology list'?"),
        ("add key", "Did you mean 'kindcast key create'?"),
        ("attribute declare x", "Did you mean 'kindcast declare attribute'?"),
        ("key new", "Did you mean 'create'?"),
        ("subscriptions list", "'kindcast subscriptions' lists them."),
        ("spark run", "The commands of 'kindcast spark' are normalise, match,"),
        ("nonsense", "'kindcast --help' lists all commands."),
    ],
)
def test_wrong_words_are_told_with_the_right_ones(kindcast: Kindcast, words: str, told: str) -> None:
    """Misspelt, of other programs, or in another order."""
    ran = kindcast(*words.split())
    assert ran.status == 2, ran
    assert told in ran.err
    assert "Value error" not in ran.err


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


def test_match_several_options_with_events_match_all_of_them(kindcast: Kindcast, tmp_path: Path) -> None:
    """Their numbers go on. Only the last option counted."""
    offers = tmp_path / "offers.ndjson"
    offers.write_text('{"price": 350}\n\n{"price": 900}\n', encoding="utf-8")
    events = ("--event", str(offers), "--event", '{"price": 90}')
    ran = kindcast("match", "--subscription", "price <= 400", *events, "--json")
    assert [json.loads(line) for line in ran.out.splitlines()] == [
        {"event": 1, "matches": ["price <= 400"]},
        {"event": 3, "matches": []},
        {"event": 4, "matches": ["price <= 400"]},
    ]
    ran = kindcast("explain", "--subscription", "price <= 400", *events)
    assert (ran.status, "one event was expected, but 3 were given" in ran.err) == (1, True)


def test_match_several_ontologies_make_one_vocabulary(kindcast: Kindcast) -> None:
    """Words of both files are understood in one expression."""
    ran = kindcast(
        *("match", "--ontology", "shop.ttl", "--ontology", "building.ttl"),
        *("--subscription", "target isa Computer and room isa Room"),
        *("--event", '{"target": "Laptop", "room": "Büro"}', "--json"),
    )
    assert ran.json["matches"] == ["target isa Computer and room isa Room"]


def test_match_and_explain_read_a_cloudevent_as_the_server_does(kindcast: Kindcast) -> None:
    """Its context counts, its data are the attributes, and its content type says how they are read."""
    offer = {"@context": {"@vocab": "http://p/"}, "@type": "http://p/Offer", "price": {"@value": "350"}}
    head = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "offer"}
    event = json.dumps({**head, "datacontenttype": "application/ld+json", "data": offer})
    wanted = 'ce.type = "offer" and <http://p/price> = "350"'
    options = ("--ontology", "shop.ttl", "--subscription", wanted, "--event")
    assert kindcast("match", *options, event, "--json").json == {"event": 1, "matches": [wanted]}
    assert kindcast("explain", *options, event, "--json").json["matches"] is True
    bad = kindcast("explain", *options, json.dumps({"specversion": "1.0"}))
    assert bad.status == 1
    assert "a CloudEvent has the attribute id" in " ".join(bad.err.split())
    plain = kindcast("match", *options, json.dumps(offer | {"type": "offer"}), "--json")
    assert plain.json["matches"] == []


def test_match_and_explain_take_a_file_of_declarations(kindcast: Kindcast, tmp_path: Path) -> None:
    """The one that `kindcast spark match` takes: units of attributes, synonyms and rates count."""
    file = tmp_path / "declarations.json"
    attributes = {"weight": {"kind": "number", "unit": "kg"}}
    file.write_text(json.dumps({"attributes": attributes, "rates": {"EUR": {"USD": 2}}, "synonyms": {"Box": "laptop"}}))
    wanted = "target isa Laptop and weight > 900 g and price > 150 USD"
    asked = ("--ontology", "shop.ttl", "--subscription", wanted)
    event = ("--event", '{"target": "Box", "weight": 1, "price": "90 EUR"}', "--json")
    assert kindcast("match", *asked, *event).json["matches"] == []
    assert kindcast("match", *asked, *event, "--declarations", str(file)).json["matches"] == [wanted]
    assert kindcast("explain", *asked, *event, "--declarations", str(file)).json["matches"] is True
    for wrong, told in (
        ('{"attribute": {}}', "declarations must be an object of aliases, attributes,"),
        ('{"attributes": [1]}', "`attributes` must be an object with a declaration for each name"),
        ('{"attributes": {"weight": {"kind": "numbr"}}}', "kind is one of concept, text, number"),
    ):
        ran = kindcast("match", *asked, *event, "--declarations", wrong)
        assert (ran.status, told in " ".join(ran.err.split())) == (1, True), ran.err


def test_match_and_explain_need_no_ontology_for_expressions_without_concepts(kindcast: Kindcast) -> None:
    """An expression with a concept says that there is none of this name."""
    asked = ("--subscription", "price < 4", "--event", '{"price": 3}', "--json")
    assert kindcast("match", *asked).json["matches"] == ["price < 4"]
    assert kindcast("explain", *asked).json["matches"] is True
    ran = kindcast("match", "--subscription", "target isa Computer", "--event", "{}")
    assert (ran.status, "no concept has the name 'Computer'" in ran.err) == (1, True)


def test_match_nothing_found_is_no_failure(kindcast: Kindcast) -> None:
    """That no subscription wants an event is an answer."""
    ran = kindcast("match", "--ontology", "shop", "--subscription", WISH, "--event", '{"target": "Maus", "price": 1}')
    assert ran.status == 0
    assert "no match" in ran.out


def test_match_without_an_event_is_a_failure(kindcast: Kindcast, tmp_path: Path) -> None:
    """As for publish: an empty file is a mistake, and no match would look like an answer."""
    empty = tmp_path / "empty.json"
    empty.touch()
    for event in (str(empty), "[]"):
        ran = kindcast("match", "--subscription", "x exists", "--event", event)
        assert (ran.status, ran.out, ran.err) == (1, "", f"error: there is no event in {event}.\n")


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


def test_match_half_of_a_surrogate_pair_is_a_bad_line(kindcast: Kindcast, tmp_path: Path) -> None:
    """As for the server: it stands for no character, and could not be written anywhere."""
    events = tmp_path / "events.ndjson"
    events.write_text('{"a": 1}\n{"a": "\\ud83d"}\n{"a": "\\ud83d\\ude00", "b": "\\\\ud83d"}\n', encoding="utf-8")
    ran = kindcast("match", "--subscription", "a exists", "--event", str(events))
    assert ran.status == 1
    assert "event 2: not JSON: half of a surrogate pair" in ran.err
    assert ran.out.count("matches") == 2


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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--archive", "events", "--since", "2026-11-01T00:00:00Z"), "--since cannot be used with --archive"),
        (("--archive", "events", "--until", "2026-11-01T00:00:00Z"), "--until cannot be used with --archive"),
        (("--archive", "events", "--version", "shop=1"), "--version cannot be used with --archive"),
        (("--ontology", "shop.ttl"), "--ontology needs --archive"),
        (("--time", "at"), "--time needs --archive"),
        (("--numbers", "price"), "--numbers needs --archive"),
    ],
)
def test_backtest_refuses_options_that_would_have_no_effect(
    kindcast: Kindcast, arguments: tuple[str, ...], said: str
) -> None:
    """The report would be about other events than those that were asked for."""
    ran = kindcast("backtest", "price < 5", *arguments, "--server", "http://127.0.0.1:9")
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err


@pytest.mark.parametrize("content", [b"no database" * 1_000, b""])
def test_spark_says_why_a_data_folder_cannot_be_read(kindcast: Kindcast, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "kindcast.db").write_bytes(content)
    places = ("--archive", str(tmp_path), "--output", str(tmp_path / "out"))
    told = kindcast("spark", "match", "--data", str(tmp_path), *places)
    assert told.status == 1
    assert "kindcast.db cannot be read: " in told.err


def test_stream_reads_numbers_of_csv(kindcast: Kindcast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As archives are read: otherwise no comparison with a number holds."""
    jobs: list[Sequence[str]] = []
    monkeypatch.setattr(spark_commands, "run_job", lambda job: jobs.append(job) or {})
    places = ("--archive", str(tmp_path), "--output", str(tmp_path / "out"), "--ontology", "shop.ttl")
    assert kindcast("spark", "stream", *places, "--numbers", "price").status == 0
    (job,) = jobs
    assert job[job.index("--numbers") + 1] == "price"


@pytest.mark.parametrize(
    ("days", "said"),
    [
        (["2026-11-01", "2026-11-02", "unknown"], "2026-11-01 to 2026-11-02 (2), unknown"),
        (["2026-11-01", "unknown"], "2026-11-01, unknown"),
        (["unknown"], "unknown"),
        (["2026-11-01", "2026-11-03"], "2026-11-01 to 2026-11-03 (2)"),
    ],
)
def test_days_of_a_job_do_not_reach_to_unknown(capsys: pytest.CaptureFixture[str], days: list[str], said: str) -> None:
    """Some events have no time; the days of the others are still a span."""
    spark_commands._show({"events": 1, "days": days}, json=False)
    assert capsys.readouterr().out.splitlines()[1].split(maxsplit=1) == ["days", said]


@pytest.mark.parametrize(("time", "said"), [("at", False), ("properties.at", True)])
def test_job_without_times_says_that_time_is_no_member_of_an_object(
    capsys: pytest.CaptureFixture[str], time: str, said: bool
) -> None:
    """The events may well have such a time, inside an object."""
    spark_commands._show({"events": 1, "days": ["unknown"]}, False, time)
    words = " ".join(capsys.readouterr().err.split())
    assert f"no event has a time in {time}: the day of all events is unknown." in words
    assert ("--time names a member of the event itself, not one inside an object." in words) is said


def test_explain_more_than_one_event_is_refused(kindcast: Kindcast) -> None:
    """An explanation is of one event."""
    ran = kindcast("explain", "--ontology", "shop", "--subscription", WISH, "--event", "[{}, {}]")
    assert ran.status == 1
    assert "one event was expected" in ran.err


def test_variable_of_an_option_is_never_called_unknown() -> None:
    """A shell that is set up for the commands also starts servers."""
    variables = {each.envvar for words in COMMANDS for each in named(words).params if each.envvar}
    assert {"KINDCAST_SERVER", "KINDCAST_BROKER", "KINDCAST_TICKET"} <= variables
    assert unknown_variables(dict.fromkeys([*variables, PASSWORD], "x")) == []


def test_plain_events_have_the_source_and_type_that_a_server_gives_them(kindcast: Kindcast, tmp_path: Path) -> None:
    """So an offline match is the server's; and a pipe is as good as a file."""
    asked = 'ce.type = "kindcast.event" and ce.source = "urn:kindcast:anonymous"'
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writing = threading.Thread(target=pipe.write_text, args=('{"a": 1}\n',), daemon=True)
    writing.start()
    for event in ('{"a": 1}', str(pipe)):
        ran = kindcast("match", "--ontology", "shop.ttl", "--subscription", asked, "--event", event, "--json")
        assert ran.status == 0, ran.out
        assert json.loads(ran.out)["matches"] == [asked]
    ran = kindcast("explain", "--ontology", "shop.ttl", "--subscription", asked, "--event", '{"a": 1}')
    assert "Match:" in ran.out, ran.out
    writing.join()


@pytest.mark.parametrize("given", [("--data", ""), ("--data=",)])
@pytest.mark.parametrize("command", [("serve",), ("repair",), ("key", "create", "--role", "admin")])
def test_empty_data_folder_is_refused(kindcast: Kindcast, command: tuple[str, ...], given: tuple[str, ...]) -> None:
    """It is a variable of a shell that is not set, and would mean the current folder."""
    ran = kindcast(*command, *given)
    assert (ran.status, "--data is empty" in ran.err) == (1, True)


def test_keys_of_a_folder_that_is_not_there_are_not_none(kindcast: Kindcast, tmp_path: Path) -> None:
    """A mistyped folder is not a server without keys, and is not made."""
    for command in (["list"], ["revoke", "0123456789abcdef"]):
        ran = kindcast("key", *command, "--data", str(tmp_path / "typo"))
        assert (ran.status, ran.out) == (1, "")
        assert "there is no folder" in ran.err
    assert not (tmp_path / "typo").exists()


def test_another_program_at_the_address_of_the_server_is_told(kindcast: Kindcast, tmp_path: Path) -> None:
    """Whether it answers with a page or sends the client elsewhere; nothing of the page is taken for an answer."""
    page, elsewhere = (("Content-Type", "text/html"),), (("Location", "https://elsewhere.test/"),)
    commands = (
        ["publish", '{"a": 1}'],
        ["subscriptions"],
        ["subscriptions", "export", "--output", str(tmp_path / "x")],
    )
    with running_receiver() as receiver:
        for path in ("/v1/events", "/v1/subscriptions", "/v1/subscriptions/export"):
            receiver.script(path, Answer(200, page, b"<html>"), Answer(302, elsewhere))
        for command in commands * 2:
            ran = kindcast(*command, "--server", receiver.url)
            assert (ran.status, ran.out) == (1, "")
            assert "is there a kindcast server at this address?" in ran.err
    assert not (tmp_path / "x").exists()


def test_output_that_is_not_unicode_gets_escapes(kindcast: Kindcast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of JSON, so that JSON stays JSON."""
    asked = ("--ontology", "shop.ttl", "--subscription", WISH)
    for options in ([], ["--json"]):
        written = io.BytesIO()
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="latin-1"))
        event = json.dumps({"target": "é 台式机 \U0001f600"})
        assert kindcast("explain", *asked, "--event", event, *options).status == 0
        sys.stdout.flush()
        assert "é \\u53f0\\u5f0f\\u673a \\ud83d\\ude00" in written.getvalue().decode("latin-1")


def test_argument_that_is_no_text_is_told(kindcast: Kindcast) -> None:
    """Bytes of another encoding, say."""
    with running_receiver() as receiver:
        for command in ("publish", "subscribe"):
            ran = kindcast(command, '{"a": "\udcff"}', "--server", receiver.url)
            assert (ran.status, ran.out) == (1, "")
            assert "is not text in utf-8" in ran.err
        ran = kindcast("subscribe", "--where", r'{"=": ["a", "\ud83d"]}', "--server", receiver.url)
        assert ran.status == 1
        assert "is half of a surrogate pair" in ran.err
    for command in ("match", "explain"):
        for expression, event in (("a = \udcff", "{}"), ("a = 1", '{"a": "\udcff"}')):
            ran = kindcast(command, "--subscription", expression, "--event", event)
            assert (ran.status, ran.out) == (1, "")
            assert "is not text in utf-8" in ran.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_job_that_is_stopped_does_not_go_on_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """The signal is passed to it, and it is waited for. Here it stops the command itself, in place of a person."""
    job = tmp_path / "job"
    trap = f"trap 'touch {tmp_path}/told; exit 1' {number:d}"
    job.write_text(f"#!/bin/sh\n{trap}\nkill -{number:d} $PPID\nfor n in $(seq 300); do sleep 0.1; done\n")
    job.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(job))
    usual = signal.signal(number, signal.SIG_DFL)  # in the background of a script it may be ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            run_job(["match"])
    finally:
        signal.signal(number, usual)
    assert (tmp_path / "told").exists()


def test_bench_measures_a_temporary_server(kindcast: Kindcast) -> None:
    """Both loads are measured: one event a request, and a hundred."""
    ran = kindcast("bench", "--subscriptions", "50", "--seconds", "0.2", "--json")
    assert ran.status == 0, ran.err
    told = json.loads(ran.out)
    assert told["subscriptions"] == 50
    assert [(each["events_a_request"], each["connections"]) for each in told["runs"]] == [(1, 16), (100, 4)]
    for each in told["runs"]:
        assert each["events_a_second"] > 0
        assert 0 < each["median_ms"] <= each["p99_ms"]


def test_bench_publishes_what_matches_and_stops_at_a_refusal(kindcast: Kindcast, tmp_path: Path) -> None:
    """The events of the load match its subscriptions. A refusal, or the end of the server, is an error."""
    with running_server(tmp_path) as server, Client(server.url) as client:
        client.import_subscriptions(lines(0, 50))
        found = asyncio.run(load(server.port, bodies(50, 10), 10, 1, 0.1))
        ledger = client.status()["ledger"]
        assert ledger["accepted"] == 10 * len(found.waits) > 0
        assert ledger["matches"] > 2 * ledger["accepted"]
        with pytest.raises(CommandFailed, match="refused"):
            asyncio.run(load(server.port, repeat(b"no JSON"), 1, 2, 0.1))
        server.kill()
        with pytest.raises(CommandFailed, match="does not answer"):
            asyncio.run(load(server.port, bodies(50, 1), 1, 1, 0.1))
