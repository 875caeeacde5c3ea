"""Explanation of the index's work on one event, in terms of subscriptions: clusters, columns in order, counts.

engine.explain ─▶ numbers of attributes and columns ─▶ their names, clusters with most rows first ─▶ JSON
"""

from typing import Any

from kindcast.index.clause import LoweredEvent
from kindcast.index.engine import TellingEngine
from kindcast.semantic.conditions.lowering import Lowering

__all__ = ["index_steps"]

SHOWN = 20
"""Clusters and steps listed one by one at most; the totals count all."""


def index_steps(engine: object, lowering: Lowering, event: LoweredEvent) -> dict[str, Any]:
    """What `engine` does with `event`; `{}` for an engine that does not tell.

    `{"clauses": {"visited", "looked_at", "checked", "found"}, "clusters": [{"requires", "forbids", "clauses",
    "columns", "steps": [{"by", "column", "clauses", "left": [{"column", "clauses"}], "checked", "found"}],
    "programs"}], "newest": {"clauses", "asked", "found"}, "not_shown"}`.

    `visited` clauses stand in clusters whose attributes fit, `looked_at` are those that a list, a range or a block
    offers for the event's values, `left` is what remains after each column's mask, in the order of their joining,
    `checked` were compared one by one. A column is an attribute and how it is read. `programs` had to be asked what no
    column can say. Clauses with alternatives count once for each.
    """
    if not isinstance(engine, TellingEngine):
        return {}
    told = engine.explain(event)
    attributes, columns = lowering.numbered
    clusters = []
    totals = {"visited": 0, "looked_at": 0, "checked": 0, "found": told["found"]}
    omitted = 0
    for segment in told["segments"]:
        for visited in segment["visited"]:
            totals["visited"] += visited["rows"]
            totals["looked_at"] += sum(step["rows"] for step in visited["steps"])
            totals["checked"] += sum(step["checked"] for step in visited["steps"])
            omitted += max(0, len(visited["steps"]) - SHOWN)
            clusters.append(_cluster(visited, attributes, columns))
    clusters.sort(key=lambda each: -int(each["clauses"]))
    newest = {
        "clauses": told["memtable"]["rows"],
        "asked": told["memtable"]["asked"],
        "found": told["memtable"]["found"],
    }
    return {
        "clauses": totals,
        "clusters": clusters[:SHOWN],
        "newest": newest,
        "not_shown": {"clusters": max(0, len(clusters) - SHOWN), "steps": omitted},
    }


def _cluster(visited: dict[str, Any], attributes: list[str], columns: list[tuple[str, str]]) -> dict[str, Any]:
    def named(column: int | None) -> str | None:
        return None if column is None else " as ".join(columns[column])

    steps = sorted(visited["steps"], key=lambda step: -int(step["rows"]))[:SHOWN]
    return {
        "requires": [attributes[number] for number in visited["required"]],
        "forbids": [attributes[number] for number in visited["forbidden"]],
        "clauses": visited["rows"],
        "columns": [{"column": named(each["column"]), "reads": each["reads"]} for each in visited["columns"]],
        "steps": [
            {
                "by": step["by"],
                "column": named(step["column"]),
                "clauses": step["rows"],
                "left": [{"column": named(each["column"]), "clauses": each["rows"]} for each in step["left"]],
                "checked": step["checked"],
                "found": step["found"],
            }
            for step in steps
        ],
        "programs": visited["programs"],
    }
