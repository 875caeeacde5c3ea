"""Names and ready matches by slot: also beyond those that are kept, and as they were when a result was made."""

import numpy as np
import pytest

from kindcast.semantic.model import Match
from kindcast.semantic.subscriptions import subscription_table as slot_names
from kindcast.semantic.subscriptions.subscription_table import SlotNames


def of(names: SlotNames, *slots: int) -> list[str]:
    found = names.matches(np.array(slots, dtype=np.int32))
    assert all(each == Match(each.subscription) for each in found)
    return [each.subscription for each in found]


@pytest.mark.parametrize("kept", [0, 3, 100])
def test_matches_are_the_same_whether_kept_or_made(monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    """However slots got their names: one by one, many at once, or restored with gaps."""
    monkeypatch.setattr(slot_names, "KEPT", kept)
    names = SlotNames()
    for slot in range(2):
        names.assign(slot, f"s{slot}")
    names.assign_many([2, 3, 4], ["s2", "s3", "s4"])
    names.assign_many([1, 5], ["new", "s5"])
    assert of(names, 0, 1, 2, 3, 4, 5) == ["s0", "new", "s2", "s3", "s4", "s5"]
    assert of(names, 4, 5) == ["s4", "s5"]
    assert of(names) == []
    restored = SlotNames()
    restored.restore(6, [1, 4], ["a", "b"])
    restored.assign(2, "c")
    assert of(restored, 1, 2, 4) == ["a", "c", "b"]


def test_matches_of_a_view_keep_the_names_that_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot that is used again belongs to another subscription from then on, but not in earlier results."""
    monkeypatch.setattr(slot_names, "KEPT", 1)
    names = SlotNames()
    names.assign_many([0, 1], ["a", "b"])
    view = names.view()
    slots = np.array([0, 1], dtype=np.int32)
    assert [each.subscription for each in view.matches(slots)] == ["a", "b"]
    names.assign(0, "c")
    assert [each.subscription for each in view.matches(slots)] == ["a", "b"]
    assert of(names, 0, 1) == ["c", "b"]
