"""The examples in `docs/examples` run, and show what their page says; over the standards' own files as well."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.documentation import Command, commands, matches

PAGE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "README.md"
LIMIT_SECONDS = 300
TYPED = commands(PAGE)
HELPERS = {"serving.py", "pictures.py"}
DRAWN = [each for each in TYPED if "picture: " in "".join(each.expected)]


def shown(repository: Path, *arguments: str) -> str:
    """What an example prints."""
    run = subprocess.run(
        [sys.executable, *arguments], cwd=repository, capture_output=True, encoding="utf-8", timeout=LIMIT_SECONDS
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_every_example_is_on_the_page() -> None:
    """A program that the page does not run is no example."""
    assert {each.text.split()[1] for each in TYPED} == {
        f"docs/examples/{file.name}" for file in PAGE.parent.glob("*.py") if file.name not in HELPERS
    }


@pytest.mark.slow
@pytest.mark.parametrize("command", TYPED, ids=[each.text.split("/")[-1] for each in TYPED])
def test_example_shows_what_the_page_says(command: Command, repository: Path, tmp_path: Path) -> None:
    """Line for line, and its picture is the one of the page."""
    pictures = [str(tmp_path)] if command in DRAWN else []
    seen = shown(repository, *command.text.split()[1:], *pictures)
    assert matches(command.expected, seen), seen
    for made in tmp_path.glob("*.svg"):
        assert made.read_text("utf-8") == (PAGE.parent / "pictures" / made.name).read_text("utf-8")
    assert len(list(tmp_path.glob("*.svg"))) == len(pictures)


@pytest.mark.slow
def test_carrier_over_one_record_itself(repository: Path, shared_data: Path) -> None:
    """The newer version of the model adds a kind of event, so only the subscription to events means something else."""
    seen = shown(repository, "docs/examples/carrier.py", "--data", str(shared_data / "jsonld" / "onerecord"))
    assert seen.count("  SpecificShipment             carrier desk, customs, forwarder\n") == 2
    assert seen.count("  Shipment_with_Piece          customs, forwarder\n") == 2
    assert seen.count("1 of 5 subscriptions mean something else\n  tracking: isa LogisticsEvent: gains 1\n") == 2


@pytest.mark.slow
def test_city_over_smart_data_models(repository: Path, shared_data: Path) -> None:
    """Kinds of the Smart Data Models reach subscribers to those of the city."""
    seen = shown(repository, "docs/examples/city.py", "--data", str(shared_data / "jsonld" / "ngsi-ld"))
    (madrid,) = (line for line in seen.splitlines() if "Madrid-AmbientObserved" in line)
    assert madrid.endswith(" Umweltamt, environment office, people with asthma")
    assert "14 of 23 entities have no match" in seen
