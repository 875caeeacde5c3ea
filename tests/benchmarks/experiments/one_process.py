"""What one process holds: subscriptions filled, saved and opened again in a new process; its memory and its rate."""

import gc
import multiprocessing
import secrets
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kindcast import Matcher
from kindcast.index.compilation import warm_up
from tests.benchmarks.harness.contestants import resident
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.workload_papers import draw

NAME = "one_process"
TITLE = "What one process holds"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("subscriptions", "bytes a subscription, opened", log_x=True)
SEED = 1

WORK = "W3"
SIZES: dict[Scale, tuple[int, ...]] = {
    "quick": (3_000,),
    "default": (100_000, 1_000_000),
    "full": (100_000, 1_000_000, 3_000_000),
}
EVENTS = 5_000


def tasks(scale: Scale) -> Sequence[Task]:
    """One curve, small sizes first."""
    return [Task(WORK, n, {"n": n}) for n in SIZES[scale]]


def measure(*, n: int) -> dict[str, Any]:
    """Seconds to fill a matcher (trees are drawn within them) and to open it from its folder up to the first match;
    bytes by what the process has more after that; events a second of tables in one thread, by processor time."""
    warm_up()
    folder = Path(tempfile.mkdtemp(prefix="kindcast-one-process-"))
    try:
        filled = multiprocessing.get_context("spawn").Process(target=_fill, args=(n, folder))
        filled.start()
        filled.join()
        assert filled.exitcode == 0, f"the process that fills the matcher ended with {filled.exitcode}"
        drawing = draw(WORK, subscriptions=1, events=2 * EVENTS, seed=SEED)
        vocabulary = drawing.vocabulary()
        first, second = drawing.table(0, EVENTS), drawing.table(EVENTS, 2 * EVENTS)
        gc.collect()
        before, began = resident(), time.perf_counter()
        matcher = Matcher.open(folder, vocabulary)
        matcher.match_table({name: cells[:1] for name, cells in first.items()})
        opened = time.perf_counter() - began
        held = resident() - before
        matcher.match_table(first)
        began = time.process_time()
        matches = len(matcher.match_table(second).slots)
        seconds = time.process_time() - began
        assert len(matcher) == n
        return {
            "y": round(held / n),
            "fill_seconds": float((folder / "fill_seconds").read_text()),
            "open_seconds": round(opened, 2),
            "us_an_event": round(seconds / EVENTS * 1e6, 1),
            "matches_an_event": round(matches / EVENTS, 1),
        }
    finally:
        shutil.rmtree(folder)


def _fill(n: int, folder: Path) -> None:
    drawing = draw(WORK, subscriptions=n, events=1, seed=SEED)
    warm_up()
    matcher = Matcher(drawing.vocabulary())
    began = time.perf_counter()
    matcher.add_many((f"sub_{secrets.token_hex(16)}", drawing.tree(number)) for number in range(n))
    seconds = time.perf_counter() - began
    matcher.save(folder)
    (folder / "fill_seconds").write_text(f"{seconds:.1f}")
