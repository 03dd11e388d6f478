"""Rows of public tables as plans."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.published.runs import Run, UnsaidError, runs
from hlosharding.search import Plan
from hlosharding.search.rank_figures import spearman

HEADER = "hidden,heads,layers,sequence,vocabulary,tensor,pipeline,data,global_batch,micro_batch,interleaved_chunks,"


def table(folder: Path, ways: str) -> list[Run | UnsaidError]:
    """A GPT of four layers, so split and recomputed."""
    name = "megatron_a100_korthikanti"
    (folder / f"{name}.csv").write_text(f"{HEADER}recompute,step_s\n64,4,4,32,512,{ways},1.5\n")
    return list(runs(folder, name))


def test_a_row_is_a_plan(tmp_path: Path) -> None:
    (run,) = table(tmp_path, "2,2,4,32,2,1,full")
    assert isinstance(run, Run)
    assert (run.plan, run.batch, run.seconds) == (Plan(4, 2, 2, 4), 32, 1.5)
    assert (run.config.width, run.config.hidden, run.config.length) == (64, 256, 32)


def test_interleaved_chunks_are_said_by_the_schedule(tmp_path: Path) -> None:
    (run,) = table(tmp_path, "2,2,4,32,2,2,full")
    assert isinstance(run, Run)
    assert run.plan == Plan(4, 2, 2, 4, "1f1b-x2")


@pytest.mark.parametrize(
    ("ways", "reason"),
    [
        ("2,2,4,32,2,3,full", "4 layers are not cut into 6"),
        ("2,3,4,32,2,1,full", "4 layers are not cut into 3"),
        ("2,2,4,32,2,1,selective", "sequence"),
    ],
)
def test_a_row_that_cannot_be_said_has_a_reason(ways: str, reason: str, tmp_path: Path) -> None:
    (row,) = table(tmp_path, ways)
    assert isinstance(row, UnsaidError)
    assert reason in str(row)


def test_rank_correlation_is_of_orders() -> None:
    assert spearman([(1.0, 3.0), (2.0, 4.0), (9.0, 5.0)]) == pytest.approx(1)
    assert spearman([(1.0, 5.0), (2.0, 4.0), (9.0, 3.0)]) == pytest.approx(-1)
