"""Statistics of operator predicates: how often each predicate is true, and what a call costs.

Counts decay exponentially, so recent calls count most. Until a predicate was evaluated, the statistics of its operator
are used, and until the operator was called, its declaration. Records are plain JSON: they outlive a process, and an
archive job can write them.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["Experience", "Record", "read_priors"]


# Priors: the statistics of operators that the job `learn` computed from an archive, for a process without calls yet.
#
# priors.json    {"operators": [a record of `Experience.as_records`, …], and other results of the job}

MOST_BYTES = 256 << 20
"""Maximum bytes of such a file: some hundred bytes for each of 200,000 predicates, and room for the other results."""


def read_priors(path: Path) -> list[dict[str, Any]]:
    """Reads the records of operators from a file, for `Experience.from_records` and `Experience.begin_with`. Raises
    ValueError, whose message says what is wrong with the file, or OSError."""
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
"""Number of later evaluations after which an evaluation counts for 1 / e."""
PRIOR = 4.0
"""Weight of a prior, as a number of evaluations: a few real evaluations outweigh it."""
MOST_RECORDS = 200_000
"""Maximum number of predicates with a record. The predicate that was evaluated least recently is dropped first."""


@dataclass(slots=True)
class Record:
    """Statistics of a predicate or an operator. Decayed sums: evaluations (`asked`), true ones (`held`), `seconds`.
    Total counts: `evaluations`, `failures`."""

    asked: float = 0.0
    held: float = 0.0
    seconds: float = 0.0
    evaluations: int = 0
    failures: int = 0

    def note(self, held: bool, seconds: float) -> None:
        """Counts one evaluation: its result and the seconds that it took."""
        keep = 1.0 - 1.0 / MEMORY
        self.asked = self.asked * keep + 1.0
        self.held = self.held * keep + held
        self.seconds = self.seconds * keep + seconds
        self.evaluations += 1

    def selectivity(self, prior: float) -> float:
        """Returns the probability that the predicate is true. `prior` is the estimate without evaluations."""
        return (self.held + PRIOR * prior) / (self.asked + PRIOR)

    def cost(self, prior: float) -> float:
        """Returns the expected seconds of an evaluation. `prior` is the estimate without evaluations."""
        return (self.seconds + PRIOR * prior) / (self.asked + PRIOR)


@dataclass(slots=True)
class Experience:
    """Records by predicate (the text of a call) and by operator. Not thread-safe."""

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
        """Returns (probability that `predicate` is true, expected seconds of a call). `selectivity` and `cost` are the
        values that the operator declares."""
        of_operator = self.operators.get(operator)
        if of_operator is not None:
            selectivity, cost = of_operator.selectivity(selectivity), of_operator.cost(cost)
        own = self.predicates.get(predicate)
        return (selectivity, cost) if own is None else (own.selectivity(selectivity), own.cost(cost))

    def begin_with(self, records: Iterable[Mapping[str, Any]]) -> int:
        """Adds the records of an archive for operators and predicates that have no record here, and returns their
        number. Raises ValueError like `from_records`; then no record is added."""
        known = Experience.from_records(records)
        operators = {name: record for name, record in known.operators.items() if name not in self.operators}
        room = MOST_RECORDS - len(self.predicates)
        new = [text for text in known.predicates if text not in self.predicates][: max(0, room)]
        self.operators |= operators
        self.predicates = {text: known.predicates[text] for text in new} | self.predicates  # own ones last
        self._operator_of |= {text: known._operator_of[text] for text in new}
        return len(operators) + len(new)

    def as_records(self) -> list[dict[str, Any]]:
        """Returns one plain record per operator (`predicate` is None), then one per predicate, least recently evaluated
        first."""
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
        """Reads what `as_records` wrote. Of two records of one predicate, the later one is used. Raises ValueError with
        the invalid record: the records may come from a file that a person wrote.

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

    def replace(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Replaces all records by those that `as_records` wrote. Raises ValueError like `from_records`; then nothing
        changes."""
        known = Experience.from_records(records)
        self.predicates, self.operators, self._operator_of = known.predicates, known.operators, known._operator_of

    def _of(self, operator: str, predicate: str) -> Record:
        """Returns the record of a predicate, creating it if necessary, and moves it to the end (LRU order)."""
        record = self.predicates.pop(predicate, None)
        if record is None:
            record = Record()
            self._operator_of[predicate] = operator
            if len(self.predicates) >= MOST_RECORDS:
                oldest = next(iter(self.predicates))
                del self.predicates[oldest], self._operator_of[oldest]
        self.predicates[predicate] = record  # the most recent one is last
        return record
