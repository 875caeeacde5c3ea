"""What an archive taught, as a file."""

import json
from pathlib import Path

import pytest

from kindcast.semantic.planner.learning import Experience, read_priors


@pytest.mark.parametrize("bare", [False, True])
def test_priors_are_read_with_or_without_what_stands_beside_them(tmp_path: Path, bare: bool) -> None:
    """The file of the job, or the records alone."""
    known = Experience()
    known.note("near", "near(1)", held=True, seconds=1.0)
    records = known.as_records()
    document = records if bare else {"events": 3, "operators": records}
    (tmp_path / "priors.json").write_text(json.dumps(document), encoding="utf-8")
    assert Experience.from_records(read_priors(tmp_path / "priors.json")) == known


@pytest.mark.parametrize("text", ["{", "3", "{}", '{"operators": [3]}', "[" * 5_000])
def test_priors_that_are_none_are_refused_with_the_file(tmp_path: Path, text: str) -> None:
    """A server tells which file it cannot begin with."""
    (tmp_path / "priors.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"priors\.json"):
        read_priors(tmp_path / "priors.json")
