"""Operators that installed packages bring, and packages that bring none."""

import importlib
import logging
import sys
from pathlib import Path

import pytest

from kindcast import Matcher, Vocabulary
from kindcast.semantic.operators import declaration
from kindcast.semantic.operators.declaration import GROUP, load_operators, load_plugins

GOOD = """
from kindcast import operator

@operator("plugged", cost=0.5)
def plugged(event, word: str):
    return word in event["text"]

@operator("also")
def also(event):
    return True

def all_of_them():
    return [plugged, also]
"""


def install(folder: Path, package: str, module: str, points: str) -> None:
    """A package as an installer leaves it: its module and its metadata."""
    (folder / f"{package}.py").write_text(module, encoding="utf-8")
    metadata = folder / f"{package}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\n{points}\n", encoding="utf-8")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages that Python finds."""
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    before = set(sys.modules)
    yield tmp_path  # type: ignore[misc]
    for name in set(sys.modules) - before:
        if name.startswith("plug_"):
            del sys.modules[name]


def test_load_operators_installed_package_brings_its_operators(installed: Path) -> None:
    """One operator, or a function that gives several; a matcher takes them."""
    install(installed, "plug_good", GOOD, "words = plug_good:all_of_them")
    found = load_operators()
    assert {"plugged", "also"} <= found.keys()
    assert found["plugged"].cost == 0.5
    matcher = Matcher(Vocabulary.from_ontologies([]), operators=found.values())
    matcher.add("s", 'plugged("boat")')
    assert [match.subscription for match in matcher.match({"text": ["a", "boat"]})] == ["s"]


@pytest.mark.parametrize(
    ("module", "points", "reason"),
    [
        ("import no_such_library", "x = plug_bad:x", "No module named 'no_such_library'"),
        ("x = 1 / 0", "x = plug_bad:x", "ZeroDivisionError"),
        ("y = 1", "x = plug_bad:x", "has no attribute 'x'"),
        ("def x(event): return True", "x = plug_bad:x", "TypeError"),
        ("x = [1]", "x = plug_bad:x", "1 is not an operator: decorate the function"),
        ("import sys; sys.exit(1)", "x = plug_bad:x", "SystemExit"),
        ("class Panic(BaseException): ...\nraise Panic('in Rust')", "x = plug_bad:x", "Panic: in Rust"),
        (
            GOOD,
            "a = plug_bad:plugged\nb = plug_bad:all_of_them",
            "the operator 'plugged' exists already, from 'plug-bad'",
        ),
        (GOOD + "\ntwice = (plugged, plugged)", "x = plug_bad:twice", "two operators with the name 'plugged'"),
        (
            "from kindcast import operator\nx = operator('p', cost=-1)(lambda event: True)",
            "x = plug_bad:x",
            "operator 'p': cost must be a number of seconds, not -1",
        ),
    ],
)
def test_load_plugins_broken_one_is_named_and_does_not_stop_the_rest(
    installed: Path, module: str, points: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever a package does at import, the others bring their operators."""
    install(installed, "plug_bad", module, points)
    install(
        installed, "plug_fine", GOOD.replace('"plugged"', '"fine"').replace('"also"', '"too"'), "z = plug_fine:plugged"
    )
    found = load_plugins()
    assert "fine" in found.operators
    (broken,) = [each for each in found.broken if each.package.replace("-", "_") == "plug_bad"]
    assert reason.replace("plug-bad", broken.package) in str(broken)
    assert "plug" in str(broken)
    with caplog.at_level(logging.WARNING):
        assert "fine" in load_operators()
    assert str(broken) in caplog.text


def test_load_plugins_slow_import_is_told_while_it_lasts(
    installed: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A server answers nothing until its plug-ins are imported. Otherwise nobody would know for which it waits."""
    monkeypatch.setattr(declaration, "SLOW_SECONDS", 0.0)
    module = f"import time\n{GOOD}\nwhile 'still' not in heard(): time.sleep(0.01)\n"
    monkeypatch.setattr("builtins.heard", lambda: caplog.text, raising=False)
    install(installed, "plug_slow", module, "slow = plug_slow:plugged")
    load_plugins()
    assert "the plug-in 'slow' of package 'plug" in caplog.text
    assert "is still being imported" in caplog.text
