"""The nearest known names to one that is unknown, and search by parts of names: for people who type.

    labels ──pairs of neighbouring letters──▶ postings: pair → labels
    query ──its pairs──▶ labels that share most of them ──compared in full──▶ the nearest

Flat arrays, built by numpy when first asked for: a million labels cost a few seconds once, and no query scans them.
"""

from collections.abc import Iterable
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from semantic.terms import folded

__all__ = ["FoundLabel", "LabelIndex"]

LONGEST = 128  # characters of a label or query that are looked at; names that differ later are near enough
COMPARED = 96  # labels compared in full per query: some 50 µs each
LIKENESS = 0.5  # below this ratio a name is not "near"


class FoundLabel(NamedTuple):
    """A label as written, its language tag, and the name that has it."""

    text: str
    language: str | None
    iri: str


class LabelIndex:
    """Labels by the pairs of letters in them. Immutable; a query costs one pass over the postings of its pairs (some
    milliseconds at a hundred thousand labels) and `COMPARED` comparisons.

        codes[k] sorted uint64: two code points; offsets[k] : offsets[k+1] the slice of `owners` (int32 labels) with it
        sizes[label] int32: distinct pairs in the label
    """

    def __init__(self, labels: Iterable[FoundLabel]) -> None:
        self._labels = list(labels)
        self._texts = [_trimmed(label.text) for label in self._labels]
        joined = "".join(f" {text} " for text in self._texts)
        points = np.frombuffer(joined.encode("utf-32-le", "replace"), dtype=np.uint32).astype(np.uint64)
        lengths = np.array([len(text) + 2 for text in self._texts], dtype=np.int64)
        owner = np.repeat(np.arange(len(self._texts), dtype=np.int64), lengths)
        inside = owner[:-1] == owner[1:]
        codes = (points[:-1][inside] << np.uint64(32)) | points[1:][inside]
        owners = owner[:-1][inside]
        order = np.argsort(codes, kind="stable")  # owners stay ascending within a code
        codes, owners = codes[order], owners[order]
        if codes.size:
            first = np.ones(codes.size, dtype=bool)
            first[1:] = (codes[1:] != codes[:-1]) | (owners[1:] != owners[:-1])
            codes, owners = codes[first], owners[first]
        self._codes, starts = np.unique(codes, return_index=True)
        self._offsets: npt.NDArray[np.int64] = np.append(starts, codes.size).astype(np.int64)
        self._owners = owners.astype(np.int32)
        self._sizes = np.bincount(owners, minlength=len(self._texts)).astype(np.int32)

    def nearest(self, text: str, limit: int) -> list[FoundLabel]:
        """The labels most like `text`, best first, at most `limit`; none that is too unlike."""
        wanted = _trimmed(text if text.count(":") != 1 or " " in text else text.partition(":")[2])
        likely = self._likely(wanted)
        matcher = SequenceMatcher(autojunk=False)
        matcher.set_seq2(wanted)
        scored = []
        for number in likely:
            matcher.set_seq1(self._texts[number])
            ratio = matcher.ratio() if matcher.quick_ratio() >= LIKENESS else 0.0
            if ratio >= LIKENESS:
                scored.append((-ratio, self._texts[number], number))
        return [self._labels[number] for _, _, number in sorted(scored)[:limit]]

    def containing(self, text: str) -> list[FoundLabel]:
        """The labels that have `text` in them: equal ones, then those that begin with it, then those where a word does,
        then the others, shorter ones first. One scan of all labels."""
        wanted = _trimmed(text)
        scored = []
        for number, label in enumerate(self._texts):
            at = label.find(wanted)
            if at >= 0:
                rank = 0 if label == wanted else 1 if at == 0 else 2 if f" {wanted}" in label else 3
                scored.append((rank, len(label), label, number))
        scored.sort()
        return [self._labels[number] for *_, number in scored]

    def _likely(self, wanted: str) -> list[int]:
        """The labels that share most pairs with `wanted`, by Dice's coefficient."""
        padded = f" {wanted} "
        points = np.frombuffer(padded.encode("utf-32-le", "replace"), dtype=np.uint32).astype(np.uint64)
        codes = np.unique((points[:-1] << np.uint64(32)) | points[1:])
        at = np.searchsorted(self._codes, codes)
        slices = [
            self._owners[self._offsets[k] : self._offsets[k + 1]]
            for k, code in zip(at.tolist(), codes, strict=True)
            if k < len(self._codes) and self._codes[k] == code
        ]
        if not slices:
            return []
        shared = np.bincount(np.concatenate(slices), minlength=len(self._sizes))
        likeness = 2.0 * shared / (self._sizes + len(codes))
        most = min(COMPARED, int(np.count_nonzero(shared)))
        best = np.argpartition(-likeness, most - 1)[:most]
        return [int(number) for number in best]


def _trimmed(text: str) -> str:
    """`text` as it is compared: folded, `_` as a blank, not too long."""
    return folded(text[: 2 * LONGEST].replace("_", " "))[:LONGEST]
