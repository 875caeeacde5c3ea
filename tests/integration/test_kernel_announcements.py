"""The first use after installation says what it does; later ones are silent."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kindcast.index.clause import Clause, LoweredEvent
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.fused import engine as fused

PROGRAM = """
from kindcast.index.clause import Clause, LoweredEvent
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.published.le_subscribe import CountingEngine
engine = CountingEngine(ConceptGraph(0))  # its kernels are the smallest
engine.add(Clause())
print(engine.match(LoweredEvent()).tolist())
"""


@pytest.mark.slow
def test_engine_first_use_warns_once_and_later_ones_use_the_cache(tmp_path: Path, repository: Path) -> None:
    """One line on standard error with an empty cache, none with a filled one, and the same matches."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    runs = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM], cwd=repository, env=environment, capture_output=True, text=True, check=True
        )
        for _ in range(2)
    ]
    assert [run.stdout for run in runs] == ["[0]\n", "[0]\n"]
    assert [run.stderr.count("compiling the kernels") for run in runs] == [1, 0]


def test_fused_announces_each_kernel_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one event and of a batch, over newly added rows and over those of a segment."""
    announced: list[str] = []
    monkeypatch.setattr(fused, "announce_compilation", lambda kernel: announced.append(kernel.__name__))
    for memtable_rows in (1, 0):
        engine = fused.FusedEngine(ConceptGraph(0), memtable_rows=memtable_rows)
        engine.add_many([Clause()])
        engine.match(LoweredEvent())
        engine.match_batch([LoweredEvent()])
    assert set(announced) == {"match_single", "match_memtable", "match_segment"}
