"""The notebook in docs runs as it stands, from the archive to the plot."""

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

CELL_SECONDS = 300


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")  # of the kernel's own libraries
def test_notebook_runs_from_a_raw_archive_to_a_plot(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over the real readings where they are, else over drawn ones; its cells check what they show."""
    data = Path(os.environ.get("KINDCAST_TEST_DATA") or repository.parent / "shared" / "data")
    monkeypatch.setenv("KINDCAST_TEST_DATA", str(data))
    monkeypatch.setenv("PYTHONPATH", str(repository))
    notebook = nbformat.read(repository / "docs" / "from-archive-to-plot.ipynb", as_version=4)
    NotebookClient(notebook, timeout=CELL_SECONDS, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)
