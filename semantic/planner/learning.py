"""What was learned of each operator predicate: how often it holds, and what asking it costs.

Counts decay, so that what happened lately counts most. Before a predicate was ever asked, its operator's record speaks
for it, and before that the operator's declaration.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

__all__ = ["Experience", "Record"]

MEMORY = 1_000.0
"""Evaluations after which an old one counts for 1 / e."""
PRIOR = 4.0
"""Evaluations that a prior stands for: a few real ones outweigh it."""


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
    """Records by predicate and by operator. One owner."""

    predicates: dict[Hashable, Record] = field(default_factory=dict)
    operators: dict[str, Record] = field(default_factory=dict)

    def note(self, operator: str, predicate: Hashable, held: bool, seconds: float) -> None:
        self.predicates.setdefault(predicate, Record()).note(held, seconds)
        self.operators.setdefault(operator, Record()).note(held, seconds)

    def note_failure(self, operator: str, predicate: Hashable) -> None:
        self.predicates.setdefault(predicate, Record()).failures += 1
        self.operators.setdefault(operator, Record()).failures += 1

    def expected(self, operator: str, predicate: Hashable, selectivity: float, cost: float) -> tuple[float, float]:
        """(probability that `predicate` holds, seconds that asking costs); the arguments are what was declared."""
        of_operator = self.operators.get(operator)
        if of_operator is not None:
            selectivity, cost = of_operator.selectivity(selectivity), of_operator.cost(cost)
        own = self.predicates.get(predicate)
        return (selectivity, cost) if own is None else (own.selectivity(selectivity), own.cost(cost))
