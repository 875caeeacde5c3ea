"""What was measured, as a JSON file an experiment: a run that was broken off goes on from it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks.harness.experiment import Task

__all__ = ["Results"]


@dataclass(slots=True)
class Results:
    """The points of one experiment, in the order in which they were measured, and where curves stopped."""

    about: dict[str, Any]
    """Experiment, paper, scale, seed, command, date and machine."""
    points: list[dict[str, Any]] = field(default_factory=list)
    stopped: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> "Results":
        """Raises `FileNotFoundError`, `ValueError` for what is no file of results."""
        document = json.loads(path.read_text(encoding="utf-8"))
        return cls(document["about"], document["points"], document["stopped"])

    def write(self, path: Path) -> None:
        """Replaces the file in one step."""
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = {name: [json.dumps(each) for each in getattr(self, name)] for name in ("points", "stopped")}
        rows = {name: "[" + ",".join(f"\n  {each}" for each in found) + "]" for name, found in lines.items()}
        about = json.dumps(self.about, indent=1)
        text = f'{{"about": {about},\n "points": {rows["points"]},\n "stopped": {rows["stopped"]}}}\n'
        beside = path.with_suffix(".new")
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)

    def keep(self, task: Task, found: Mapping[str, Any]) -> None:
        """One more point; `found["also"]` (panel → y) are points of the same series at the same x in other panels."""
        also = found.get("also", {})
        own = {name: value for name, value in found.items() if name != "also"}
        self.points.append({"panel": task.panel, "series": task.series, "x": task.x, **own})
        self.points.extend({"panel": panel, "series": task.series, "x": task.x, "y": y} for panel, y in also.items())

    def stop(self, task: Task, why: str) -> None:
        """The curve of the task ends before it."""
        self.stopped.append({"panel": task.panel, "series": task.series, "x": task.x, "why": why})

    def has(self, task: Task) -> bool:
        """Whether the point is there, or known to be beyond a limit."""
        return any((each["panel"], each["series"], each["x"]) == task.key for each in (*self.points, *self.stopped))

    def ended(self, task: Task) -> bool:
        """Whether the curve of the task stopped at an earlier point."""
        return any((each["panel"], each["series"]) == (task.panel, task.series) for each in self.stopped)

    def disagreements(self) -> list[str]:
        """Series that found other numbers of matches at the same x of the same panel."""
        found: dict[tuple[str, Any], dict[str, int]] = {}
        for each in self.points:
            if "matches" in each:
                found.setdefault((each["panel"], each["x"]), {})[each["series"]] = each["matches"]
        return [f"{panel} {x}: {told}".strip() for (panel, x), told in found.items() if len(set(told.values())) > 1]

    def series(self, panel: str) -> dict[str, list[dict[str, Any]]]:
        """The points of a panel, by series, in order."""
        found: dict[str, list[dict[str, Any]]] = {}
        for each in self.points:
            if each["panel"] == panel:
                found.setdefault(each["series"], []).append(each)
        return found

    def panels(self) -> list[str]:
        """Their names, in order."""
        return list(dict.fromkeys(_panels(self.points)))


def _panels(points: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    return (each["panel"] for each in points)
