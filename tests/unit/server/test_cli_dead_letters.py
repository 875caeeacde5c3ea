"""What `kindcast dead-letters` shows."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from kindcast.server.cli import events

LETTER = {"subscription": "sub_1", "cursor": "1", "reason": "the sink answered 500", "event": {"data": {}}}


class Pages:
    """A client of a server with so many pages of one dead letter."""

    def __init__(self, pages: int) -> None:
        self._pages = pages

    def dead_letters(self, *, subscription: str | None = None, cursor: str | None = None) -> Mapping[str, Any]:
        """Returns the page after a cursor."""
        page = int(cursor or 0)
        return {"dead_letters": [LETTER], "cursor": str(page + 1)} if page < self._pages else {"dead_letters": []}

    def redrive(self, subscription: str, *, ticket: str | None = None) -> Mapping[str, Any]:
        """Sends all of them again."""
        return {"redriven": self._pages}


@pytest.mark.parametrize(("pages", "are_more"), [(1, False), (2, True)])
def test_dead_letters_of_several_pages_are_not_shown_as_if_they_were_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pages: int, are_more: bool
) -> None:
    """The table ended after the first page without a word."""

    @contextmanager
    def connected(server: str) -> Iterator[Pages]:
        yield Pages(pages)

    monkeypatch.setattr(events, "connected", connected)
    events.dead_letters("sub_1")
    shown = capsys.readouterr()
    assert "the sink answered 500" in shown.out
    assert ("There are more." in shown.err) is are_more
    events.dead_letters("sub_1", redrive=True)
    assert f"{pages} message{'s are' if are_more else ' is'} sent again" in capsys.readouterr().out
