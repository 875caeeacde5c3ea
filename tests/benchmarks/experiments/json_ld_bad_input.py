"""How long linked data that is bad or too large takes to be refused, or to be read where it is within the limits."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from kindcast import Event, Matcher, Vocabulary
from kindcast.semantic.errors import InvalidEvent
from kindcast.semantic.events.linked_data import JSON_LD
from tests.benchmarks.harness.experiment import Axes, Scale, Task

NAME = "json_ld_bad_input"
TITLE = "Bad and large linked data: seconds until it is refused or read"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("document", "seconds", bars=True)
SEED = 1

SIZES: dict[Scale, int] = {"quick": 10_000, "default": 100_000, "full": 100_000}
"""Nodes or terms of the large ones."""
EX = "http://example.org/"


def _within(levels: int, container: Callable[[Any], Any]) -> Any:
    inner: Any = 1
    for _ in range(levels):
        inner = container(inner)
    return inner


def _node(inner: Any) -> Any:
    return {"p": inner}


def _list(inner: Any) -> Any:
    return {"@list": [inner, inner]}


def _scoped(inner: Any) -> Any:
    return {"p": {"@id": EX + "p", "@context": inner if isinstance(inner, dict) else {}}}


VOCAB = {"@context": {"@vocab": EX}}
CASES: dict[str, Callable[[int], Any]] = {
    "context names itself": lambda n: {"@context": {"a": "b:x", "b": "a:x"}, "a": 1},
    "context fetches": lambda n: {"@context": "http://unknown.example/", "a": 1},
    "context redefines @type": lambda n: {"@context": {"@type": EX + "t"}, "a": 1},
    "context of many terms": lambda n: {"@context": {f"t{each}": f"{EX}{each}" for each in range(n)}, "t1": 1},
    "context within context": lambda n: {"@context": _within(90, _scoped), "p": 1},
    "terms of scoped contexts": lambda n: {
        "@context": {f"t{each}": {"@id": f"{EX}{each}", "@context": VOCAB["@context"]} for each in range(n // 10)},
        "t1": 1,
    },
    "property is not an IRI": lambda n: {"@context": {"a": "http://example.org/<a>"}, "a": 1},
    "deep": lambda n: {**VOCAB, "p": _within(5_000, _node)},
    "lists of two lists, 20 deep": lambda n: {**VOCAB, "p": _within(20, _list)},
    "blank nodes in a circle": lambda n: {
        **VOCAB,
        "@id": "_:0",
        "p": [{"@id": f"_:{each}", "p": {"@id": f"_:{(each + 1) % 1_000}"}} for each in range(1, 1_000)],
    },
    "references that multiply": lambda n: {
        **VOCAB,
        "p": [{"@id": f"_:{each}", "p": {"@id": f"_:{each + 1}"}, "q": {"@id": f"_:{each + 1}"}} for each in range(40)],
    },
    "many nodes": lambda n: {**VOCAB, "p": [{"q": each} for each in range(n)]},
    "many events": lambda n: {**VOCAB, "@graph": [{"p": each} for each in range(n // 3)]},
    "events under a large context, taken apart": lambda n: {
        "@context": {f"t{each}": f"{EX}{each}" for each in range(n // 10)},
        "@graph": [{"@id": f"{EX}n{each}", "t1": each} for each in range(2_000)],
    },
    "events that PyLD reads, taken apart": lambda n: {
        "@context": {f"t{each}": f"{EX}{each}" for each in range(1_000)},
        "@graph": [
            {"@id": f"{EX}n{each}", "t1": each, "@reverse": {f"{EX}r": {"@id": f"{EX}m{each}"}}}
            for each in range(2_000)
        ],
    },
    "2,400 nodes, compiled": lambda n: {**VOCAB, "p": [{"q": each} for each in range(2_400)]},
    "2,400 nodes, PyLD": lambda n: {
        **VOCAB,
        "p": [{"@id": "x:a"}, *({"q": each} for each in range(2_400))],
        "@included": {"@id": "x:a", "q": 1},
    },
    "many nodes, PyLD": lambda n: {**VOCAB, "@included": [{"q": each} for each in range(n // 3)], "p": 1},
}


def tasks(scale: Scale) -> Sequence[Task]:
    """A bar for each document."""
    return [Task("kindcast", case, {"case": case, "n": SIZES[scale]}) for case in CASES]


def measure(*, case: str, n: int) -> dict[str, Any]:
    """The first reading of the document, and a second one, in a process of its own, whose memory is told."""
    matcher = Matcher(Vocabulary())
    matcher.add("a", "p = 1")
    matcher.match({**VOCAB, "p": 1})  # imports
    event = Event(CASES[case](n), {"datacontenttype": JSON_LD})
    seconds = []
    answer = "read"
    for _ in range(2):
        began = time.thread_time()
        try:
            if "taken apart" in case:
                matcher.events_of(event)
            else:
                matcher.match(event)
        except InvalidEvent as error:
            answer = error.problems[0].code
        seconds.append(time.thread_time() - began)
    return {
        "y": round(seconds[0], 4),
        "again": round(seconds[1], 4),
        "refused": int(answer != "read"),
        "answer": answer,
    }
