"""Events as people publish them against the same facts as flat dicts: `match_batch` and `match`, in one process."""

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kindcast import Event, Matcher, Vocabulary
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.workload_papers import Drawing, draw

NAME = "nested_events"
TITLE = "nested events against flat ones"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("work", "times the flat events, match_batch", bars=True)
SEED = 1

SIZES: dict[Scale, int] = {"quick": 3_000, "default": 20_000, "full": 100_000}
ASKED = 2.0
EVENTS, BATCHES, SINGLES = 1_000, 7, 200
"""Events of a batch; batches, the first to warm up; events of each that `match` is asked one by one."""
UNIT = "kg"
WORDS = ("left", "at", "the", "gate", "blue", "van", "called", "twice", "no", "answer", "ring", "below")

Data = dict[str, Any]


def _inside(facts: Data, number: int) -> Data:
    return {"offer": facts}


def _with_more(facts: Data, number: int) -> Data:
    """A list, a text that no other event has, and two attributes, of which nobody asks."""
    text = " ".join(WORDS[number * step % len(WORDS)] for step in range(1, 9))
    more = {"tags": ["new", "sale", "b2b"], "remark": f"{text} {number}", "clerk": "Ann"}
    return {"id": number, "offer": facts, **more}


def _in_lists(facts: Data, number: int) -> Data:
    return {"offer": {name: [value] for name, value in facts.items()}}


def _in_array(facts: Data, number: int) -> Data:
    return {"offer": [facts]}


def _enveloped(facts: Data, number: int) -> Event:
    context = {"specversion": "1.0", "id": str(number), "source": "/benchmark", "type": "offer"}
    return Event({"offer": facts}, context)


def _objects(facts: Data, number: int) -> Data:
    return {"offer": {name: {"value": value, "unit": UNIT} for name, value in facts.items()}}


def _objects_of_another_unit(facts: Data, number: int) -> Data:
    return {"offer": {name: {"value": value * 1_000, "unit": "g"} for name, value in facts.items()}}


def _siblings(facts: Data, number: int) -> Data:
    return {"offer": {**facts, "scale": UNIT}}


def _texts(facts: Data, number: int) -> Data:
    return {"offer": {name: f"{value:g} {UNIT}" for name, value in facts.items()}}


SHAPES: dict[str, Callable[[Data, int], Any]] = {
    "nested object": _inside,
    "and list, text, two more": _with_more,
    "values in lists": _in_lists,
    "array of one object": _in_array,
    "CloudEvent": _enveloped,
}
QUANTITIES: dict[str, Callable[[Data, int], Any]] = {
    "{value, unit}": _objects,
    "{value, unit}, converted": _objects_of_another_unit,
    "unit beside": _siblings,
    "texts of 10,000 quantities": _texts,
}
"""Only where all values are numbers; the flat ones are numbers of an attribute that has a unit."""


def tasks(scale: Scale) -> Sequence[Task]:
    """A bar a shape and work."""
    works = {**dict.fromkeys(SHAPES, ("W1", "W2", "W3")), **dict.fromkeys(QUANTITIES, ("W1",))}
    return [
        Task(case, work, {"work": work, "case": case, "n": SIZES[scale]})
        for case, asked in works.items()
        for work in asked
    ]


def measure(*, work: str, case: str, n: int) -> dict[str, Any]:
    """The same facts flat (`{"offer.a0": …}`) and in the shape of `case`, batch by batch in turn; thread CPU time, the
    median of the batches, results not read. `match` is asked some of the same events one by one, and makes its
    `Match` objects in both shapes."""
    drawing = draw(work, subscriptions=n, events=EVENTS * BATCHES, seed=SEED)
    matcher = Matcher(_vocabulary(drawing, with_unit=case in QUANTITIES, beside=case == "unit beside"))
    matcher.add_many((f"s{number}", asking(drawing.tree(number))) for number in range(n))
    shaped = {**SHAPES, **QUANTITIES}[case]
    gc.collect()
    gc.freeze()  # as the server does: else now and then a batch pays for a walk through the whole heap
    both: list[list[float]] = [[], []]
    single: list[list[float]] = [[], []]
    matches = 0
    for batch in range(BATCHES):
        facts = facts_of(drawing, batch * EVENTS, (batch + 1) * EVENTS)
        flat = [{f"offer.{name}": value for name, value in each.items()} for each in facts]
        events = [shaped(each, batch * EVENTS + number) for number, each in enumerate(facts)]
        found = []
        for which, some in enumerate((flat, events)):
            began = time.thread_time()
            found.append(matcher.match_batch(some))
            both[which].append((time.thread_time() - began) / EVENTS)
        slots = found[0].table.slots
        if case != "unit beside":  # there the flat numbers have no unit
            assert np.array_equal(slots, found[1].table.slots), (work, case, batch)
        matches += slots.size
        for which, some in enumerate((flat, events)):
            began = time.thread_time()
            for event in some[:SINGLES]:
                matcher.match(event)
            single[which].append((time.thread_time() - began) / SINGLES)
    flat_us, us, flat_match_us, match_us = (statistics.median(each[1:]) * 1e6 for each in (*both, *single))
    return {
        "y": round(us / flat_us, 2),
        "asked": ASKED,
        "flat_us": round(flat_us, 2),
        "us": round(us, 2),
        "match_flat_us": round(flat_match_us, 1),
        "match_us": round(match_us, 1),
        "match_times": round(match_us / flat_match_us, 2),
        "matches_an_event": round(matches / BATCHES / EVENTS, 1),
    }


def _vocabulary(drawing: Drawing, *, with_unit: bool, beside: bool) -> Vocabulary:
    if not with_unit:
        return drawing.vocabulary()
    declared = {"kind": "number", "unit": UNIT, **({"unit_from": "scale"} if beside else {})}
    return Vocabulary.from_ontologies([], attributes={f"a{number}": declared for number in range(len(drawing.kinds))})


def asking(tree: Any) -> Any:
    """A tree of the workload, whose attributes are those of `offer`."""
    if "all" in tree:
        return {"all": [asking(each) for each in tree["all"]]}
    ((test, (name, *rest)),) = tree.items()
    return {test: [f"offer.{name}", *rest]}


def facts_of(drawing: Drawing, start: int, stop: int) -> list[Data]:
    """Events of a workload as objects, without what is absent."""
    columns = {name: cells.tolist() for name, cells in drawing.table(start, stop).items()}
    return [
        {name: cells[row] for name, cells in columns.items() if cells[row] is not None and cells[row] == cells[row]}
        for row in range(stop - start)
    ]
