"""A server begins with what an archive taught of operators."""

import json
from pathlib import Path

import pytest

from kindcast.semantic.planner.learning import Experience
from kindcast.server.errors import StoreUnreadable
from kindcast.server.operators.registry import first_expectations
from tests.harness.application import running_application


def test_server_with_priors_expects_what_the_archive_taught(tmp_path: Path) -> None:
    """Before anything was asked; and it is kept, as what was learned is."""
    archive = Experience()
    for _ in range(200):
        archive.note("similar", 'similar("pump", @title, ?score)', held=False, seconds=0.5)
    (tmp_path / "priors.json").write_text(json.dumps({"operators": archive.as_records()}), encoding="utf-8")
    expected = {}
    for priors in (None, tmp_path / "priors.json"):
        with running_application(tmp_path / str(priors is None), plugins=False, operator_priors=priors) as client:
            expected[priors is None] = client.get("/v1/operators/similar").json()["learned"]
    assert expected[True]["calls"] == 0
    assert expected[False]["calls"] == 200
    assert expected[False]["selectivity"] < 0.02
    assert expected[False]["cost"] == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize("text", [None, "{", '{"operators": [{"operator": "p"}]}'])
def test_server_whose_priors_cannot_be_read_says_which_file(tmp_path: Path, text: str | None) -> None:
    """It does not start with half of them."""
    path = tmp_path / "priors.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(StoreUnreadable, match="operator_priors"):
        first_expectations(path)
    assert first_expectations(None) == []
