"""`make demo` without a terminal: it tells its story, shows what it promises, and leaves nothing behind."""

import io
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from rich.console import Console

from kindcast import Matcher, Vocabulary
from kindcast.semantic.shipped_vocabularies import shipped
from kindcast.server.cli import demo as demo_command
from kindcast.server.cli.demo import CHEAPER, JOHNS_OFFER, OFFERS, PAPER_WISH, VOCABULARY, WISHES, running_server


@pytest.fixture(scope="module")
def shown() -> Iterator[str]:
    """What the demonstration prints into a pipe; its temporary files go to a folder that is looked at afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            [sys.executable, "-m", "kindcast.server.cli", "demo", "--pace", "0"],
            env={**os.environ, "TMPDIR": folder, "PYTHONUTF8": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        assert list(Path(folder).iterdir()) == []
        yield ran.stdout


def matching(offer: dict[str, object]) -> list[str]:
    matcher = Matcher(Vocabulary.from_files(shipped(VOCABULARY)), engine="naive")
    matcher.add_many([(wish.who, wish.text) for wish in WISHES])
    return sorted(match.subscription for match in matcher.match(offer))


@pytest.mark.slow
def test_demo_shows_every_offer_with_those_who_got_it(shown: str) -> None:
    """Below each offer stand the people whose subscriptions it matches, no others."""
    told = shown.split("  offer  ")[1:]
    assert len(told) == len(OFFERS)
    for text, offer in zip(told, OFFERS, strict=True):
        arrows = [line.split()[1] for line in text.splitlines() if line.strip().startswith("→")]
        assert sorted(arrows) == matching(offer)


@pytest.mark.slow
def test_demo_compares_with_plain_strings_and_finds_more(shown: str) -> None:
    """The figure for plain comparison is computed, and smaller; a comparison that finds nothing would prove little."""
    total = sum(len(matching(offer)) for offer in OFFERS)
    plain = Matcher(Vocabulary.from_ontologies([]), engine="naive")
    plain.add_many([(wish.who, wish.plain) for wish in WISHES])
    found = sum(len(plain.match(offer)) for offer in OFFERS)
    words = " ".join(shown.split())
    assert 0 < found < total
    assert f"{len(OFFERS)} offers gave {total} matches" in words
    assert f"the same offers give {found}." in words


@pytest.mark.slow
def test_demo_explains_johns_price(shown: str) -> None:
    """At 450 the price alone is in the way, at 350 it matches; the way from desktop to computer is shown."""
    assert (matching(JOHNS_OFFER), PAPER_WISH.who in matching(CHEAPER)) == ([], True)
    assert "No match because of price alone" in shown
    assert "published 台式机  means  Desktop PC  a kind of  Personal computer → Computer" in shown
    assert shown.index("No match because of price alone") < shown.rindex("yes  match")


@pytest.mark.slow
def test_demo_server_is_gone_afterwards(shown: str) -> None:
    """Nobody answers any more where it listened."""
    address = next(word.rstrip(",.") for word in shown.split() if word.startswith("http://127.0.0.1:"))
    with pytest.raises(httpx.ConnectError):
        httpx.get(address)


@pytest.mark.slow
def test_demo_ends_with_commands_to_try(shown: str) -> None:
    """Somebody who liked it knows how to go on."""
    end = shown[shown.rindex("What to try next") :]
    assert " serve " in end
    assert "kindcast publish" in end
    assert "/docs" in end


@pytest.mark.parametrize("is_installed", [True, False])
def test_demo_names_commands_that_there_are(monkeypatch: pytest.MonkeyPatch, is_installed: bool) -> None:
    """Who installed the wheel has no Makefile; who ran `make demo` has the command in .venv only."""
    monkeypatch.setattr(demo_command, "which", lambda name: "/usr/bin/kindcast" if is_installed else None)
    demo_command._what_next(Console(file=(shown := io.StringIO())))
    told = shown.getvalue()
    assert ("kindcast serve" in told, "make serve" in told, "activate" in told) == (
        is_installed,
        not is_installed,
        not is_installed,
    )


def test_demo_server_is_gone_after_a_second_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who is impatient while it stops leaves neither a process nor a folder."""
    terminate = subprocess.Popen.terminate

    def interrupted(process: "subprocess.Popen[str]") -> None:
        terminate(process)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess.Popen, "terminate", interrupted)
    with running_server() as address:
        assert httpx.get(f"{address}/healthz").status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address}/healthz")
