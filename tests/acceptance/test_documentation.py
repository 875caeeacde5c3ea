"""The documentation tells the truth: its links lead somewhere, its commands and examples run and show what it says."""

import doctest
import os
import re
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from kindcast.server.settings import Settings
from tests.documentation import Command, commands, matches, pages, targets
from tests.harness.forked_command import write_command
from tests.harness.forked_process import template
from tests.harness.ports import free_port

SESSIONS = (
    "README.md",
    "docs/tutorial.md",
    "docs/publishing.md",
    "docs/connectors.md",
    "docs/operations.md",
    "docs/upgrading.md",
    "docs/security.md",
    "docs/data.md",
    "docs/event-schemas.md",
    "docs/ontologies.md",
    "docs/operators.md",
    "docs/receiving.md",
    "docs/ngsi-ld.md",
    "docs/one-record.md",
)
ADDRESS = "127.0.0.1:8080"
"""What the pages say; each test has a port of its own."""
COMMAND_SECONDS = 120
DONE = "==done=="
"""Printed behind each command, with its exit status."""


def headings(page: Path) -> set[str]:
    """The fragments of a page's headings, as they are made of them on the web."""
    found = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", each.strip().lower()).replace(" ", "-") for each in found}


def test_links_inside_the_project_lead_somewhere(repository: Path) -> None:
    """A page, a folder or a heading that a link names is there."""
    broken = []
    for page in pages(repository):
        for path, fragment in targets(page):
            target = (page.parent / path) if path else page
            if not target.exists() or (fragment and target.suffix == ".md" and fragment not in headings(target)):
                broken.append(f"{page.relative_to(repository)}: {path}#{fragment}")
    assert broken == []


def test_decisions_are_all_in_their_list(repository: Path) -> None:
    """A decision that nobody finds was not taken."""
    listed = {path for path, _ in targets(repository / "docs" / "decisions" / "README.md")}
    assert {path.name for path in (repository / "docs" / "decisions").glob("2*.md")} <= listed


def told_default(value: object) -> str:
    """A default as the table of settings writes it."""
    match value:
        case None | ():
            return "none"
        case bool():
            return str(value).lower()
        case tuple():
            return ", ".join(f"{each:.0f}" for each in value)
        case float() | int():
            return f"{value:,.0f}" if value > 9_999 else f"{value:g}"
        case _:
            return str(value)


def test_settings_are_all_told_with_their_defaults(repository: Path) -> None:
    """A setting that is added, renamed or changed is so in the page for those who run a server."""
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", (repository / "docs" / "operations.md").read_text("utf-8"), re.M)
    assert dict(rows) == {name: told_default(field.default) for name, field in Settings.model_fields.items()}


def test_expected_lines_are_looked_for_in_their_order() -> None:
    """An ellipsis stands for anything."""
    assert matches(("accepted …",), "accepted 3 events")
    assert not matches(("b", "a"), "a\nb")


@pytest.mark.parametrize("page", ["README.md", "docs/event-schemas.md", "docs/operations.md", "docs/operators.md"])
def test_python_examples_give_what_they_show(repository: Path, page: str) -> None:
    """Examples with `>>>` are doctests."""
    assert doctest.testfile(str(repository / page), module_relative=False, encoding="utf-8").failed == 0


class Session:
    """A bash in a folder of its own, with the command `kindcast` on its path: that of `programs`."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self.address = f"127.0.0.1:{free_port()}"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KINDCAST_")} | {
            "PATH": os.pathsep.join((str(programs), str(Path(sys.executable).parent), os.environ.get("PATH", ""))),
            "KINDCAST_PORT": self.address.rpartition(":")[2],
            "KINDCAST_SERVER": f"http://{self.address}",
            "KINDCAST_RETRY_SECONDS": str(COMMAND_SECONDS),  # a busy machine may take long to start a server
            "PYTHONUTF8": "1",
        }
        self._bash = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        )

    def run(self, command: Command) -> str:
        """What is seen after `command`, which must succeed unless the page shows an error."""
        text = command.text.replace(ADDRESS, self.address)
        status, seen = self._type(text)
        failed = any(line.startswith("error: ") for line in command.expected)
        assert (status != 0) == failed, f"line {command.line}: {command.text}\nexit status {status}\n{seen}"
        return seen.replace(self.address, ADDRESS)

    def close(self) -> None:
        """Stops what still runs in the background, then the shell."""
        for state in self.folder.glob("*/server.json"):
            self._type(f"kindcast stop --data {state.parent}")
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write("kill $(jobs -p) 2>/dev/null; wait\nexit\n")
        self._bash.stdin.close()
        self._bash.wait(COMMAND_SECONDS)
        self._bash.stdout.close()

    def _type(self, text: str) -> tuple[int, str]:
        """Exit status and output of `text`."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        # The braces keep what the command reads apart from what we type next.
        self._bash.stdin.write(f"{{ {text}\n}} </dev/null\nprintf '\\n%s %s\\n' {DONE} $?\n")
        self._bash.stdin.flush()
        seen: list[str] = []
        for line in self._bash.stdout:
            if line.startswith(DONE):
                return int(line.split()[1]), "".join(seen)
            seen.append(line)
        raise AssertionError(f"the shell ended after {text!r}:\n{''.join(seen)}")


@pytest.mark.slow
@pytest.mark.parametrize("name", SESSIONS)
def test_commands_of_a_page_show_what_it_says(
    repository: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    """Somebody who types the page from top to bottom sees what it shows. The commands of the README are the installed
    ones, the others forks of one process, which imported everything once."""
    typed = commands(repository / name)
    assert typed, f"{name} has no commands"
    if any("curl " in command.text for command in typed) and shutil.which("curl") is None:
        pytest.skip("this page uses curl, which is not installed here")
    programs = tmp_path_factory.mktemp("programs")
    if name != "README.md":
        write_command(programs, template())
    with closing(Session(tmp_path, programs)) as session:
        for command in typed:
            seen = session.run(command)
            assert matches(command.expected, seen), f"{name} line {command.line}: {command.text}\nshows\n{seen}"
