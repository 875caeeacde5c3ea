"""The log of a server, and the colours of its commands."""

import json
import logging
import re
import sys

import pytest

from kindcast.server.cli import output
from kindcast.server.cli.logs import logged

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (\w+) ([\w.]+): (.*)")


def test_record_is_a_line_with_time_level_and_origin(capsys: pytest.CaptureFixture[str]) -> None:
    """What somebody else put into a message begins no other record."""
    with logged("text", "info"):
        logging.getLogger("kindcast.store").warning("took %s", "a\nb\r2026 INFO forged")
        logging.getLogger("kindcast.store").debug("unseen")
        logging.getLogger("httpx").info("unseen: one for each webhook")
    (line,) = capsys.readouterr().err.splitlines()
    found = LINE.fullmatch(line)
    assert found is not None
    assert found.groups() == ("WARNING", "kindcast.store", r"took a\nb\r2026 INFO forged")


def test_record_is_an_object_where_json_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """With the traceback of a fault as a member, on one line."""
    with logged("json", "error"):
        try:
            raise ZeroDivisionError("fault")
        except ZeroDivisionError:
            logging.getLogger("kindcast.broker").exception("it failed")
        logging.getLogger("kindcast.broker").warning("unseen")
    (line,) = capsys.readouterr().err.splitlines()
    told = json.loads(line)
    assert {name: told[name] for name in ("level", "logger", "message")} == {
        "level": "error",
        "logger": "kindcast.broker",
        "message": "it failed",
    }
    assert told["exception"].endswith("ZeroDivisionError: fault")
    assert told["time"].endswith("Z")


@pytest.mark.parametrize("format", ["text", "json"])
def test_error_that_is_repeated_is_written_once_in_a_while_with_their_number(
    format: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that is away for hours does not fill the disk; another error is another record."""
    now = 1_000.0
    monkeypatch.setattr("kindcast.server.cli.serve.time.monotonic", lambda: now)
    log = logging.getLogger("kindcast.store")
    with logged(format, "info"):
        for _ in range(50):
            log.error("the database is %s", "away")
            now += 1.0
        log.error("the database is %s", "read-only")
        log.info("once")
        log.info("once")
    lines = capsys.readouterr().err.splitlines()
    if format == "json":
        assert [json.loads(line).get("left_out", 0) for line in lines] == [0, 29, 0, 0, 0]
    else:
        assert [line.partition("store: ")[2] for line in lines] == [
            "the database is away",
            "the database is away (29 more times since it was last written)",
            "the database is read-only",
            "once",
            "once",
        ]


def test_log_of_the_process_is_as_before_afterwards() -> None:
    """Who runs a command inside another program keeps its log."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    with logged("json", "debug"):
        assert root.handlers[:] != before[0]
    assert (root.handlers[:], root.level) == before


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)],
)
def test_colour_is_for_terminals_and_for_those_who_ask(
    variables: dict[str, str],
    coloured: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pipe gets plain text; NO_COLOR wins over FORCE_COLOR."""
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    output.paragraph("subscribed", "green")
    output.warn("look")
    with output.progress() as bar:
        bar.add_task("silent", total=2)
    seen = capsys.readouterr()
    assert ("\x1b[32m" in seen.out, "\x1b[33m" in seen.err) == (coloured, coloured)
    assert "silent" not in seen.err
    assert not sys.stderr.isatty()
