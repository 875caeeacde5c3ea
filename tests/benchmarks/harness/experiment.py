"""What an experiment is: points to be measured, each by itself, and how they are drawn.

An experiment is a module in `tests/benchmarks/experiments/` with the names of `Experiment`. `tasks` lists the points of
a scale in the order in which a curve grows; `measure` measures one of them, in a process of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

__all__ = ["Axes", "Experiment", "Scale", "Task"]

Scale = Literal["quick", "default", "full"]
"""quick: does it work, in seconds; default: the figures of docs/benchmarks.md; full: the sizes of the papers."""


@dataclass(frozen=True, slots=True)
class Axes:
    """How points are drawn. `y` names what `measure` returns under the key `"y"`, with its unit."""

    x: str
    y: str
    log_x: bool = False
    log_y: bool = False
    bars: bool = False
    """x are names, not numbers."""


@dataclass(frozen=True, slots=True)
class Task:
    """One point: of `series` at `x`, in the plot `panel` where a figure has several. `arguments` go to `measure`, and
    are what JSON can hold."""

    series: str
    x: float | str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    panel: str = ""

    @property
    def key(self) -> tuple[str, str, float | str]:
        """What tells it from the other points of its experiment."""
        return self.panel, self.series, self.x


class Experiment(Protocol):
    """What a module in `experiments/` has."""

    NAME: str
    """That of the module; the results are in `results/NAME.json`."""
    TITLE: str
    PAPER: str
    """Which figure of which paper, or what claim."""
    PAPER_SHAPE: str
    """What the paper's plot shows, in our words; empty where there is no paper."""
    AXES: Axes
    SEED: int

    def tasks(self, scale: Scale) -> Sequence[Task]:
        """The points, smaller ones of a series first: after one that goes over a limit the rest is left out."""
        ...

    def measure(self, **arguments: Any) -> Mapping[str, Any]:
        """One point: `"y"` and whatever else is to be kept; `"seconds_an_event"` where the limit of a second applies.
        Two series at the same x that matched the same events give the same `"matches"`, or the run fails."""
        ...
