"""What `kindcast publish` sums up."""

import pytest

from kindcast.server.cli.events import Tally


def test_tally_counts_undecided_candidates_and_says_so_only_where_there_are_some(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A match that an operator has still to decide is neither counted as one nor kept quiet."""
    tally = Tally()
    tally.take({"accepted": 2, "events": [{"id": "a", "matched": 1}, {"id": "b", "matched": 0, "undecided": 1}]})
    tally.show()
    shown = capsys.readouterr()
    assert "accepted 2 events, 1 match, 1 undecided" in shown.out
    assert "operators" in shown.err
    decided = Tally()
    decided.take({"accepted": 1, "events": [{"id": "a", "matched": 1}]})
    decided.show()
    assert "undecided" not in capsys.readouterr().out
