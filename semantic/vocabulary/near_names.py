"""The known name that an unknown one may be a slip for: `prize` for `price`, `seler.email` for `seller.email`.

Only for messages: no name is ever read as another one because it is near.
"""

from collections.abc import Iterable

__all__ = ["NearNames", "word_key"]

MOST_COMPARED = 5_000
"""Known segments that one unknown segment is compared with."""
SHORTEST = 4
"""Letters of a segment of which one may be wrong; in shorter ones only case, hyphens and plurals are forgiven."""
LONG = 9
"""Letters from which on two may be wrong."""


class NearNames:
    """Known dotted names and their segments. Immutable. A look-up that fails costs some 2 µs for each known segment of
    about the same length, `MOST_COMPARED` at most."""

    def __init__(self, names: Iterable[str]) -> None:
        self._segments: dict[str, None] = {}
        self._by_key: dict[str, str] = {}
        for name in names:
            for segment in name.split("."):
                if segment and segment not in self._segments and "<" not in name:
                    self._segments[segment] = None
                    self._by_key.setdefault(word_key(segment), segment)

    def __contains__(self, name: str) -> bool:
        """Whether every segment of a dotted name is known."""
        return all(segment in self._segments for segment in name.split("."))

    def nearest(self, name: str) -> str | None:
        """`name` with each unknown segment replaced by the known one that it is near to; None where it has no unknown
        segment, or one that is near to none.

        >>> known = NearNames(["price", "seller.email", "listPrice"])
        >>> known.nearest("prize"), known.nearest("seler.email"), known.nearest("list_price"), known.nearest("colour")
        ('price', 'seller.email', 'listPrice', None)
        """
        if "<" in name or name in self:
            return None
        found = [each if each in self._segments else self._near(each) for each in name.split(".")]
        return ".".join(each for each in found if each) if all(found) else None

    def _near(self, segment: str) -> str | None:
        same = self._by_key.get(word_key(segment))
        if same is not None:
            return same
        wrong = 0 if len(segment) < SHORTEST else 1 if len(segment) < LONG else 2
        best: tuple[int, str] | None = None
        compared = 0
        for known in self._segments:
            if not wrong or abs(len(known) - len(segment)) > wrong or not _may_be_near(known, segment):
                continue
            compared += 1
            if compared > MOST_COMPARED:
                break
            distance = _distance(known, segment, wrong)
            if distance <= wrong and (best is None or (distance, known) < best):
                best = distance, known
        return None if best is None else best[1]


def word_key(text: str) -> str:
    """The same for spellings of one word: without case, hyphens, underscores, and the plural's end.

    >>> word_key("list_price") == word_key("listPrices"), word_key("Galaxies") == word_key("galaxy")
    (True, True)
    """
    key = text.casefold().replace("_", "").replace("-", "").replace(" ", "")
    if len(key) > 4 and key.endswith("ies"):
        return key[:-3] + "y"
    return key[:-1] if len(key) > 3 and key.endswith("s") and not key.endswith("ss") else key


def _may_be_near(known: str, other: str) -> bool:
    """A slip is seldom in the first letter alone (`height` is no slip for `weight`), and never in a digit alone."""
    if known[0].casefold() != other[0].casefold() and known[:1] != other[1:2] and known[1:2] != other[:1]:
        return False
    return [c for c in known if not c.isdigit()] != [c for c in other if not c.isdigit()]


def _distance(one: str, other: str, most: int) -> int:
    """Letters to insert, remove, replace or exchange with their neighbour; `most + 1` for more than `most`."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        last, before, row = before, row, [i]
        for j, its in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != its))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == its:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return most + 1
    return row[-1]
