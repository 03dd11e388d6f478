"""The notebook runs from top to bottom, and is kept without what it printed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
TOUR = ROOT / "examples" / "tour.ipynb"


def _code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_it_is_kept_without_outputs() -> None:
    notebook = nbformat.read(TOUR, as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.outputs and cell.execution_count is None for cell in _code_cells(notebook))


def test_it_runs_from_top_to_bottom(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment = {
        "XLA_FLAGS": "",
        "JAX_PLATFORMS": "cpu",
        "IPYTHONDIR": str(tmp_path),
        "JUPYTER_RUNTIME_DIR": str(tmp_path),
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
    notebook = nbformat.read(TOUR, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(TOUR.parent)}}).execute()
    cells = _code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert all(output.output_type in ("execute_result", "stream") for cell in cells for output in cell.outputs)

    def shown(start: str) -> Any:
        [cell] = [cell for cell in cells if cell.source.startswith(start)]
        return cell.outputs[-1]

    assert "psum" in shown("partitioned =").text
    assert "all-reduce" in shown("hs.report").data["text/html"]
    assert float(shown("result =").data["text/plain"]) < 1e-4
