"""Statistics of each operator predicate: how often it holds, and what a call costs.

Counts decay, so that what happened lately counts most. Before a predicate was ever asked, its operator's record speaks
for it, and before that the operator's declaration. Records are plain JSON, so that they outlive a process and an
archive job can write them.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["Experience", "Record", "read_priors"]


# What an archive taught of operators, as the job `learn` writes it: where a process begins that has asked nobody yet.
#
# priors.json    {"operators": [a record of `Experience.as_records`, …], and what else was learned}

MOST_BYTES = 256 << 20
"""Of a file: some hundred bytes for each of 200,000 predicates, and room for the rest."""


def read_priors(path: Path) -> list[dict[str, Any]]:
    """The records of operators in a file; for `Experience.from_records` and `Experience.begin_with`. Raises ValueError
    with what is wrong with it, `OSError`."""
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path} has more than {MOST_BYTES:,} bytes")
    try:
        found = msgspec.json.decode(path.read_bytes())
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    records = found.get("operators") if isinstance(found, Mapping) else found
    if not isinstance(records, list) or not all(isinstance(each, dict) for each in records):
        raise ValueError(f"{path} has no list of records under 'operators'")
    return records


MEMORY = 1_000.0
"""Evaluations after which an old one counts for 1 / e."""
PRIOR = 4.0
"""Evaluations that a prior stands for: a few real ones outweigh it."""
MOST_RECORDS = 200_000
"""Predicates remembered: those that nobody asks about any more would pile up. What was asked longest ago goes first."""


@dataclass(slots=True)
class Record:
    """Decayed counts: evaluations, those that held, the seconds they took; and all evaluations ever."""

    asked: float = 0.0
    held: float = 0.0
    seconds: float = 0.0
    evaluations: int = 0
    failures: int = 0

    def note(self, held: bool, seconds: float) -> None:
        keep = 1.0 - 1.0 / MEMORY
        self.asked = self.asked * keep + 1.0
        self.held = self.held * keep + held
        self.seconds = self.seconds * keep + seconds
        self.evaluations += 1

    def selectivity(self, prior: float) -> float:
        """The probability that it holds."""
        return (self.held + PRIOR * prior) / (self.asked + PRIOR)

    def cost(self, prior: float) -> float:
        """Expected seconds of an evaluation."""
        return (self.seconds + PRIOR * prior) / (self.asked + PRIOR)


@dataclass(slots=True)
class Experience:
    """Records by predicate (the text of a call) and by operator. One owner."""

    predicates: dict[str, Record] = field(default_factory=dict)
    operators: dict[str, Record] = field(default_factory=dict)
    _operator_of: dict[str, str] = field(default_factory=dict)

    def note(self, operator: str, predicate: str, held: bool, seconds: float) -> None:
        self._of(operator, predicate).note(held, seconds)
        self.operators.setdefault(operator, Record()).note(held, seconds)

    def note_failure(self, operator: str, predicate: str) -> None:
        self._of(operator, predicate).failures += 1
        self.operators.setdefault(operator, Record()).failures += 1

    def expected(self, operator: str, predicate: str, selectivity: float, cost: float) -> tuple[float, float]:
        """(probability that `predicate` holds, seconds that asking costs); the arguments are what was declared."""
        of_operator = self.operators.get(operator)
        if of_operator is not None:
            selectivity, cost = of_operator.selectivity(selectivity), of_operator.cost(cost)
        own = self.predicates.get(predicate)
        return (selectivity, cost) if own is None else (own.selectivity(selectivity), own.cost(cost))

    def begin_with(self, records: Iterable[Mapping[str, Any]]) -> int:
        """Take over what an archive taught of operators and predicates that were never asked here; returns how many.
        Raises ValueError as `from_records` does; then nothing was taken over."""
        known = Experience.from_records(records)
        operators = {name: record for name, record in known.operators.items() if name not in self.operators}
        room = MOST_RECORDS - len(self.predicates)
        new = [text for text in known.predicates if text not in self.predicates][: max(0, room)]
        self.operators |= operators
        self.predicates = {text: known.predicates[text] for text in new} | self.predicates  # asked here is asked last
        self._operator_of |= {text: known._operator_of[text] for text in new}
        return len(operators) + len(new)

    def as_records(self) -> list[dict[str, Any]]:
        """One plain record an operator (`predicate` is None) and one a predicate, those asked longest ago first."""
        told = [(name, None, record) for name, record in self.operators.items()]
        own = [(self._operator_of[text], text, record) for text, record in self.predicates.items()]
        return [
            {
                "operator": operator,
                "predicate": predicate,
                "asked": record.asked,
                "held": record.held,
                "seconds": record.seconds,
                "evaluations": record.evaluations,
                "failures": record.failures,
            }
            for operator, predicate, record in (*told, *own)
        ]

    @classmethod
    def from_records(cls, records: Iterable[Mapping[str, Any]]) -> "Experience":
        """What `as_records` wrote; of two records of one predicate the later counts. Raises ValueError with the record
        that makes no sense: it may come from a file that somebody wrote.

        >>> known = Experience()
        >>> known.note("near", "near('Vienna')", held=True, seconds=0.2)
        >>> Experience.from_records(known.as_records()) == known
        True
        """
        found = cls()
        for each in records:
            try:
                operator, predicate = each["operator"], each["predicate"]
                asked, held, seconds = (float(each[name]) for name in ("asked", "held", "seconds"))
                record = Record(asked, held, seconds, int(each["evaluations"]), int(each["failures"]))
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                raise ValueError(f"{dict(each)!r} is not a record of an operator: {error!r}") from error
            sound = 0.0 <= held <= asked and seconds >= 0.0 and all(map(math.isfinite, (asked, seconds)))
            if not (sound and isinstance(operator, str) and isinstance(predicate, str | None)):
                raise ValueError(f"{dict(each)!r} is not a record of an operator: its counts contradict each other")
            if predicate is None:
                found.operators[operator] = record
            else:
                found.predicates[predicate] = record
                found._operator_of[predicate] = operator
        return found

    def _of(self, operator: str, predicate: str) -> Record:
        record = self.predicates.pop(predicate, None)
        if record is None:
            record = Record()
            self._operator_of[predicate] = operator
            if len(self.predicates) >= MOST_RECORDS:
                oldest = next(iter(self.predicates))
                del self.predicates[oldest], self._operator_of[oldest]
        self.predicates[predicate] = record  # last asked stands last
        return record
