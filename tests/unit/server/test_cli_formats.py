"""Messages as lines, JSON and CSV; events from files and standard input, packed or not; files that are written."""

import codecs
import csv
import gzip
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console

from kindcast.server.cli import documents, output
from kindcast.server.cli.listen import Format, cell, chosen, write_messages
from kindcast.server.cli.output import CommandFailed

DATA = {"target": 'Laptop, 13"', "note": "=cmd|' /C calc'!A0", "price": -5, "seller": {"email": "a@b.c"}, "tags": ["x"]}
MESSAGES: list[dict[str, Any]] = [
    {"cursor": "1", "event": {"source": "/shop", "id": "=1", "type": "offer", "data": DATA}, "bindings": []},
    {"cursor": "2", "event": {"source": "/shop", "id": "two\nlines", "type": "offer"}, "bindings": [{"x": "1"}]},
]


def rows(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline=""), strict=True))


def test_csv_is_read_back_by_another_reader(capsys: pytest.CaptureFixture[str]) -> None:
    """Commas, quotes and line feeds in values; CR LF after each record (RFC 4180)."""
    assert write_messages(MESSAGES, Format.CSV) == 2
    text = capsys.readouterr().out
    heads, first, second = rows(text)
    assert heads == ["cursor", "source", "id", "type", "subject", "time", "data", "bindings", "retracted"]
    assert json.loads(first[6]) == DATA
    assert first[7:] == ["", ""]
    assert second[2] == "two\nlines"
    assert text.endswith("\r\n")
    assert text.count("\r\n") == 3


def test_csv_has_a_column_for_each_attribute_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """By the way to it; what an event does not have is empty, what is a list is JSON."""
    write_messages(MESSAGES, Format.CSV, "target, price,seller.email,tags,absent")
    heads, first, second = rows(capsys.readouterr().out)
    assert heads[6:] == ["target", "price", "seller.email", "tags", "absent", "bindings", "retracted"]
    assert first[6:] == ['Laptop, 13"', "-5", "a@b.c", '["x"]', "", "", ""]
    assert second[6:] == ["", "", "", "", "", '[{"x": "1"}]', ""]


def test_csv_has_columns_of_context_attributes(capsys: pytest.CaptureFixture[str]) -> None:
    """With the names that they have in a subscription."""
    event = {**MESSAGES[0]["event"], "room": "bath"}
    write_messages([{**MESSAGES[0], "event": event}], Format.CSV, "ce.room,ce.type,ce.absent,price")
    assert rows(capsys.readouterr().out)[1][6:] == ["bath", "offer", "", "-5", "", ""]


def test_retractions_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    """The event of such a message does not match the subscription."""
    withdrawn = {"source": "/shop", "id": "one", "sequence": 7}
    message = {**MESSAGES[0], "retracted": withdrawn}
    write_messages([message], Format.CSV)
    assert json.loads(rows(capsys.readouterr().out)[1][8]) == withdrawn
    write_messages([message], Format.LINE)
    assert capsys.readouterr().out.endswith("  withdraws event 7 (/shop one)\n")


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-2+3", "@SUM(A1)", "\t=1", "\r=1"])
def test_csv_holds_no_formula(text: str) -> None:
    """A publisher writes what a spreadsheet would carry out on the machine of who opens it."""
    assert cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["-5", "+5.5", "-1e3", "blue", "a=b", ""])
def test_csv_leaves_numbers_and_other_text_as_they_are(text: str) -> None:
    """An apostrophe before a negative number would make text of it."""
    assert cell(text) == text


def test_json_is_one_array_and_ndjson_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Also without a message."""
    write_messages(MESSAGES, Format.JSON)
    assert json.loads(capsys.readouterr().out) == MESSAGES
    write_messages([], Format.JSON)
    assert json.loads(capsys.readouterr().out) == []
    write_messages(MESSAGES, Format.NDJSON)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == MESSAGES


def test_json_is_whole_where_the_messages_break_off(capsys: pytest.CaptureFixture[str]) -> None:
    """As after Ctrl-C."""

    def broken() -> Any:
        yield MESSAGES[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_messages(broken(), Format.JSON)
    assert json.loads(capsys.readouterr().out) == MESSAGES[:1]


def test_forms_that_contradict_each_other_are_wrong_use() -> None:
    """`--json` has its meaning everywhere."""
    assert (chosen(None, False), chosen(None, True), chosen(Format.CSV, False)) == (
        Format.LINE,
        Format.NDJSON,
        Format.CSV,
    )
    with pytest.raises(typer.BadParameter, match="give one of them"):
        chosen(Format.CSV, True)
    with pytest.raises(typer.BadParameter, match="--format csv"):
        write_messages([], Format.JSON, "price")


def test_narrow_table_breaks_no_id(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """So it can be copied: each cell has a line of its own."""
    monkeypatch.setattr(output, "screen", lambda: Console(file=sys.stdout, width=40))
    output.table(("id", "status", "expires"), [("sub_fcf1ee0768ec50b8", "active", "")])
    assert capsys.readouterr().out == "id: sub_fcf1ee0768ec50b8\n  status: active\n"


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
@pytest.mark.parametrize("packed", [False, True])
def test_standard_input_may_be_packed(packed: bool, mark: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gzip file is recognised by its first byte. A byte order mark is no part of the first event."""
    text = mark + b'{"price": 1}\n{"price": 2}\n'
    raw = io.BufferedReader(io.BytesIO(gzip.compress(text) if packed else text))  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(raw, encoding="utf-8"))
    assert [line.event for line in documents.event_lines("-")] == [{"price": 1}, {"price": 2}]
    assert not raw.closed


def test_standard_input_that_is_no_text_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is UTF-8, whatever encoding the terminal has."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"\xff\n")), "latin-1"))  # type: ignore[arg-type]
    with pytest.raises(CommandFailed, match="standard input is not UTF-8 text"):
        list(documents.event_lines("-"))


def test_standard_input_that_is_closed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """By `<&-` in a shell, for example."""
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(CommandFailed, match="there is no standard input"):
        list(documents.event_lines("-"))


def test_files_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    """As editors on Windows write them: events, lines, JSON and tables."""
    file = tmp_path / "marked"
    file.write_bytes(codecs.BOM_UTF8 + b'{"price": 1}\n')
    assert [line.event for line in documents.event_lines(str(file))] == [{"price": 1}]
    assert list(documents.text_lines(str(file))) == ['{"price": 1}\n']
    assert documents.json_file(str(file)) == {"price": 1}
    assert documents.csv_file(str(file)) == b'{"price": 1}\n'


@pytest.mark.parametrize(
    "reader", [documents.event_lines, documents.text_lines, documents.json_file, documents.read_ontology]
)
def test_name_that_is_no_file_says_why(reader: Callable[[str], object], tmp_path: Path) -> None:
    """A folder is there, but is no file; a variable of the shell may be empty."""
    for name, why in (
        (str(tmp_path), f"{tmp_path} is a folder and not a file"),
        (str(tmp_path / "absent"), "there is no file"),
        ("", "the name of the file is empty"),
    ):
        with pytest.raises(CommandFailed, match=why):
            reader(name)


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Path]:
    """A path to write to. No other file is left in its folder."""
    yield tmp_path / "file"
    assert [each.name for each in tmp_path.iterdir() if each.name.endswith(".part")] == []


def test_link_stays_and_its_file_keeps_its_mode_and_owner(written: Path, tmp_path: Path) -> None:
    """Those who may read yesterday's export may read that of today."""
    other = tmp_path / "other"
    other.write_text("yesterday")
    other.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(other, 1_234, 1_234)
    before = other.stat()
    written.symlink_to("other")
    documents.write_lines(written, iter(["today"]))
    assert (written.readlink(), other.read_text()) == (Path("other"), "today\n")
    after = other.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


def test_secrets_are_for_the_owner_only(written: Path) -> None:
    """Also if others may read what was there before, or what an interrupted export left."""
    for left in ("file", "file.part"):
        written.with_name(left).touch(mode=0o644)
        documents.write_lines(written, iter(["secret"]), private=True)
        assert written.stat().st_mode & 0o777 == 0o600
        written.unlink()


TO_STANDARD_OUTPUT = """
from pathlib import Path
from kindcast.server.cli.documents import write_lines
write_lines(Path("/dev/stdout"), iter("b"))
"""


def test_pipes_and_devices_are_written_to(written: Path) -> None:
    """Their readers would see nothing of a file in their place. A log that is standard output keeps its beginning."""
    os.mkfifo(written)
    reading = os.open(written, os.O_RDONLY | os.O_NONBLOCK)
    documents.write_lines(written, iter(["a"]))
    assert (os.read(reading, 9), written.is_fifo()) == (b"a\n", True)
    os.close(reading)
    with written.with_name("log").open("w") as log:
        print("before", file=log, flush=True)
        subprocess.run([sys.executable, "-c", TO_STANDARD_OUTPUT], stdout=log, check=True)
    assert written.with_name("log").read_text() == "before\nb\n"


def test_file_that_cannot_be_written_is_named(written: Path) -> None:
    """By the name that was given: a full disk names none, and that of the unfinished file is nobody's."""
    written.symlink_to("/dev/full")
    for path, why in (
        (written, "No space left on device"),
        (written.parent, "Is a directory"),
        (written / "absent" / "file", "Not a directory"),
        (written.with_name("absent") / "file", "No such file or directory"),
    ):
        with pytest.raises(CommandFailed, match=f"^{path} cannot be written: {why}$"):
            documents.write_lines(path, iter(["a"]))
    assert written.is_char_device()


def test_damaged_standard_input_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one sentence, as of a file."""
    raw = io.BufferedReader(io.BytesIO(gzip.compress(b'{"price": 1}\n')[:-12]))  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(raw, encoding="utf-8"))
    with pytest.raises(CommandFailed, match="standard input is a damaged gzip file"):
        list(documents.event_lines("-"))


def test_file_without_any_event_is_told_once(tmp_path: Path) -> None:
    """A table, for one. If some lines are events, each bad line is told."""
    file = tmp_path / "table.csv"
    file.write_text("target,price\nlaptop,1\nlaptop,2\n", encoding="utf-8")
    with pytest.raises(CommandFailed, match="None of the lines is an event") as caught:
        list(documents.event_lines(str(file)))
    assert "kindcast spark match --archive" in caught.value.advice
    file.write_text('oops\n{"price": 1}\n', encoding="utf-8")
    assert [line.event for line in documents.event_lines(str(file))] == [None, {"price": 1}]


@pytest.mark.parametrize("content", [b" " * 2_000, b"[" + b"1," * 900 + b"\n1]", b"{\n" + b"\n" * 50 + b" " * 2_000])
def test_small_file_that_unpacks_to_much_is_refused(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a line, as a document of events, and as JSON of a declaration: no more than the bound is held in memory."""
    monkeypatch.setattr(documents, "MAX_CHARACTERS", 1_000)
    file = tmp_path / "bomb.json.gz"
    file.write_bytes(gzip.compress(content))
    with pytest.raises(CommandFailed, match="more than 1,000 characters"):
        list(documents.event_lines(str(file)))
    with pytest.raises(CommandFailed, match="more than 1,000 characters"):
        documents.json_file(str(file))
