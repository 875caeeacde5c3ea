"""Messages as lines, JSON and CSV; events from files and standard input, packed or not."""

import csv
import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from kindcast.server.cli import documents
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


@pytest.mark.parametrize("packed", [False, True])
def test_standard_input_may_be_packed(packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gzip file is recognised by its first bytes."""
    text = b'{"price": 1}\n{"price": 2}\n'
    raw = io.BufferedReader(io.BytesIO(gzip.compress(text) if packed else text))  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(raw, encoding="utf-8"))
    assert [line.event for line in documents.event_lines("-")] == [{"price": 1}, {"price": 2}]


def test_damaged_standard_input_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one sentence, as of a file."""
    raw = io.BufferedReader(io.BytesIO(gzip.compress(b'{"price": 1}\n')[:-12]))  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(raw, encoding="utf-8"))
    with pytest.raises(CommandFailed, match="standard input is a damaged gzip file"):
        list(documents.event_lines("-"))


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
