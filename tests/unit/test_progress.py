"""Bars: where a person watches, and nowhere else; all is done at the end."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import hlosharding as hs
from hlosharding.cost import machines
from hlosharding.progress import Progress, counting


class Terminal(io.StringIO):
    """A standard error that somebody looks at."""

    def isatty(self) -> bool:
        return True


def work(progress: Progress | bool = True) -> None:
    with counting("trying", progress) as told:
        told(0, 3)
        told(1, 3)


def test_a_terminal_shows_a_bar_and_is_clean_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    work()
    assert "trying" in terminal.getvalue()
    assert "100%" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K")  # erases its line
    monkeypatch.setattr("sys.stderr", silent := Terminal())
    work(progress=False)
    assert silent.getvalue() == ""


def test_files_and_pipes_and_nothing_at_all_get_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    work()
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("sys.stderr", None)
    work()


def test_a_notebook_shows_one_below_the_cell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(hs.__file__).parents[1]))
    line = "with counting('trying', {}) as told: told(1, 3)"
    cells = ["from hlosharding.progress import counting", line.format(True), line.format(False)]
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)))
    nbclient.NotebookClient(notebook, timeout=60).execute()
    _, bar, none = (cell.outputs for cell in notebook.cells)
    [shown] = bar
    assert shown.data["text/html"] == 'trying <progress value="3" max="3"></progress> 3 of 3'
    assert none == []


# ---- what is told


def mlp(w: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.sum(jnp.tanh(jnp.tanh(x @ w[0]) @ w[1]))


def searched(**options: Any) -> hs.SearchResult:
    arrays = jax.ShapeDtypeStruct((2, 64, 64), jnp.float32), jax.ShapeDtypeStruct((32, 64), jnp.float32)
    return hs.search(mlp, *arrays, batch=["x"], machine=machines.h100(4), microbatches=(2, 64), **options)


def ranked(progress: Progress) -> None:
    machine, plans = machines.cpu(1), [hs.Plan(), hs.Plan(microbatches=3)]
    hs.rank(mlp, jnp.ones((2, 8, 8)), jnp.ones((8, 8)), batch=["x"], plans=plans, machine=machine, progress=progress)


def suggested(progress: Progress) -> None:
    text = """HloModule m
    ENTRY e {
      a = f32[8,4] parameter(0), sharding={devices=[2,1]<=[2]}
      b = f32[4,8] parameter(1)
      c = f32[4,8] negate(b)
      ROOT d = f32[8,8] dot(a, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    }"""
    assert hs.suggest(hs.load(text), "c", progress=progress)


def improved(progress: Progress) -> None:
    searched(progress=False).improved(4, progress=progress)


@pytest.mark.parametrize(
    "run",
    [lambda told: searched(progress=told), lambda told: searched(progress=told, jobs=2), ranked, suggested, improved],
)
def test_all_is_done_at_the_end(run: Callable[[Progress], object]) -> None:
    told: list[tuple[int, int]] = []
    run(lambda done, most: told.append((done, most)))
    assert told[0][0] == 0
    assert told[-1][0] == told[-1][1] > 0
    assert told == sorted(told, key=lambda each: each[0])


def test_each_plan_counts_once() -> None:
    told: list[int] = []
    found = searched(keep=3, progress=lambda done, most: told.append(done))
    assert found.refused
    assert told == list(range(len(found.table) + len(found.refused) + len(found.pruned) + 1))
