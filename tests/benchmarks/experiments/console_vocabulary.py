"""How long the server takes for what the console asks while somebody types or opens a node, at the size of the Gene
Ontology.
"""

import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.harness.server_process import running_server

NAME = "console_vocabulary"
TITLE = "Search and nodes of the console, 43,000 concepts"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("request", "ms, 99 of 100", bars=True)
SEED = 1

SIZES: dict[Scale, int] = {"quick": 2_000, "default": 43_000, "full": 43_000}
REQUESTS: dict[Scale, int] = {"quick": 20, "default": 200, "full": 1_000}
IRI = "http://purl.obolibrary.org/obo/GO_{:07}"
STEMS = (
    *("regulat", "activ", "transport", "membran", "kinas", "bind", "synthes", "mitochondri", "nucle", "recept"),
    *(
        "signal",
        "phosphoryl",
        "transcript",
        "develop",
        "morphogen",
        "differenti",
        "secret",
        "catabol",
        "metabol",
        "oxid",
    ),
)
ENDINGS = ("ion", "ive", "ase", "or", "al", "ing", "ic", "ism", "ous", "ide")
CLICKS = ("typing a word", "opening a node", "the picture around a concept", "who asks for a concept")


def tasks(scale: Scale) -> Sequence[Task]:
    """One for each thing that people do."""
    return [
        Task("kindcast", click, {"click": click, "n": SIZES[scale], "requests": REQUESTS[scale]}) for click in CLICKS
    ]


def measure(*, click: str, n: int, requests: int) -> dict[str, Any]:
    """Milliseconds from request to answer, over one kept connection on the same machine, one after the other; each
    request is another one."""
    draw = random.Random(SEED)
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server(Path(folder) / "server") as server,
        httpx.Client(base_url=server.url, timeout=600.0, trust_env=False) as client,
    ):
        headers = {"Content-Type": "text/obo"}
        client.put("/v1/ontologies/go", content=_ontology(n), headers=headers).raise_for_status()
        taken = []
        for path, parameters in _asked(click, n, requests, draw):
            began = time.perf_counter()
            answer = client.get(path, params=parameters)
            taken.append((time.perf_counter() - began) * 1e3)
            answer.raise_for_status()
    taken.sort()
    return {
        "y": round(taken[int(len(taken) * 0.99)], 2),
        "median_ms": round(statistics.median(taken), 2),
        "most_ms": round(taken[-1], 2),
        "requests": len(taken),
    }


def _asked(click: str, n: int, requests: int, draw: random.Random) -> Iterator[tuple[str, dict[str, Any]]]:
    for _ in range(requests):
        term = IRI.format(
            int(n * draw.random() ** 3)
        )  # nodes near the top are opened more often, and have more beneath
        if click == "typing a word":
            word = " ".join(_word(draw) for _ in range(draw.randint(1, 2)))
            yield "/v1/concepts", {"q": word[: draw.randint(2, len(word))], "limit": 20}
        elif click == "opening a node":
            yield "/v1/concepts/children", {"term": term, "limit": 500, "lang": "en"}
        elif click == "the picture around a concept":
            yield "/v1/concepts/around", {"term": term, "lang": "en"}
        else:
            yield "/v1/concepts/usage", {"term": term, "lang": "en"}


def _ontology(n: int) -> bytes:
    """In OBO, with the shape of the Gene Ontology: half of the concepts have a second parent, each has two synonyms,
    most a definition."""
    draw = random.Random(SEED)
    lines = ["format-version: 1.2", "ontology: go", ""]
    for number in range(n):
        name = f"{_word(draw)} {_word(draw)} {_word(draw)} {number}"
        lines += ["[Term]", f"id: GO:{number:07}", f"name: {name}", f'def: "The {name} of a cell." []']
        lines += [f'synonym: "{_word(draw)} {_word(draw)} {number}" EXACT []' for _ in range(2)]
        parents = {int(number * draw.random() ** 2) for _ in range(1 + number % 2)} if number else set()
        lines += [f"is_a: GO:{parent:07}" for parent in sorted(parents)]
        lines.append("")
    return "\n".join(lines).encode()


def _word(draw: random.Random) -> str:
    return draw.choice(STEMS) + draw.choice(ENDINGS)
