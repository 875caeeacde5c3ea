"""What a shell is offered after the words that were typed so far."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.conftest import Kindcast

Complete = Callable[..., list[str]]


@pytest.fixture
def complete(kindcast: Kindcast, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """What bash is answered for these words, the last one unfinished, as typed."""

    def answered(*words: str) -> list[str]:
        monkeypatch.setenv("_KINDCAST_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", "\n".join(("kindcast", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        ran = kindcast()
        assert (ran.status, ran.err) == (0, "")
        return ran.out.split("\n")[:-1] if ran.out.strip() else []

    return answered


@pytest.mark.usefixtures("shop_server")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("Tintens", "Tintenstrahldrucker"),
        ("台式", "台式机"),
        ("3D", r"3D\ printer"),
        ("'3D", "3D printer"),
        ("druc", "drucker"),
    ],
)
def test_concepts_are_completed_in_any_language(typed: str, offered: str, complete: Complete) -> None:
    """As bash must write them; what was typed stays in its case, which does not matter to the server."""
    for command in (("concept", "show"), ("concept", "find"), ("ontology", "tree")):
        assert offered in complete(*command, typed)


@pytest.mark.usefixtures("shop_server")
def test_expressions_are_completed_at_their_end(complete: Complete) -> None:
    """Concepts, with and without quotes, in a word that the shell has quotes around."""
    assert "target isa Notebook" in complete("subscribe", "'target isa Note")
    assert 'target isa "Notebook"' in complete("listen", "--to", "'target isa \"Noteb")
    assert "target isa (Printer" in complete("backtest", "'target isa (Prin")


def test_ids_and_names_are_completed(kindcast: Kindcast, shop_server: str, complete: Complete) -> None:
    """Of the server that the command names, or the variable."""
    id = kindcast("subscribe", "price > 0", "--quiet").out.strip()
    for command in (("subscriptions", "show"), ("listen",), ("matches",), ("why", "1"), ("dead-letters",)):
        assert complete(*command, id[:6]) == [id]
    assert complete("ontology", "show", "") == ["shop"]
    assert complete("ontology", "show", "--server", shop_server, "s") == ["shop"]
    assert complete("operators", "show", "inR") == ["inRegion"]


def test_vocabularies_that_are_shipped_are_completed_beside_files(
    complete: Complete, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of ontologies only; in other folders as well."""
    monkeypatch.chdir(tmp_path)
    for name in ("sheep.ttl.gz", "notes.txt", "sub/shapes.owl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert complete("ontology", "load", "sh") == ["shop.ttl", "sheep.ttl.gz"]
    assert complete("match", "--ontology", "sub/") == ["sub/shapes.owl"]
    assert complete("spark", "match", "--ontology", "sho") == ["shop.ttl"]


@pytest.mark.parametrize("server", ["http://127.0.0.1:9", "localhost:8080", "http://[", "ftp://127.0.0.1"])
def test_nothing_is_offered_and_nothing_said_without_a_server(server: str, complete: Complete) -> None:
    """Somebody is typing: no message, no waiting for a server that starts, no traceback."""
    began = time.monotonic()
    assert complete("listen", "--server", server, "sub") == []
    assert complete("concept", "show", "--server", server, "Druc") == []
    assert time.monotonic() - began < 10.0


def test_completion_imports_no_client() -> None:
    """It runs at each key."""
    program = "import sys\nfrom kindcast.server.cli import main\ntry: main([])\nexcept SystemExit: print(*sys.modules)"
    words = {"_KINDCAST_COMPLETE": "complete_bash", "COMP_WORDS": "kindcast\nlisten\nsub", "COMP_CWORD": "2"}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **words, "KINDCAST_SERVER": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not {"httpx", "numpy", "sqlalchemy"} & set(ran.stdout.split())


def test_commands_import_no_other_command_line() -> None:
    """httpx has a command line of its own. Its libraries slow down the start."""
    program = "import sys\nfrom kindcast.server.cli.application import main\nimport httpx\nprint(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pygments.lexers" not in ran.stdout.split()
