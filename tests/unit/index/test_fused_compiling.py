"""The first use after installation says what it does; later ones are silent."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from kindcast.index.clause import Clause, LoweredEvent
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.fused.engine import FusedEngine
engine = FusedEngine(ConceptGraph(0))
engine.add(Clause())
print(engine.match(LoweredEvent()).tolist())
"""


@pytest.mark.slow
def test_fused_first_use_warns_once_and_later_ones_use_the_cache(tmp_path: Path, repository: Path) -> None:
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
