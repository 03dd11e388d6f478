"""The command on two small runs, and the page that it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import clusters
from benchmarks.published.clusters_page import MARK, page
from benchmarks.published.planning import planner_of
from benchmarks.published.pricing import Prediction, machine_of_run
from benchmarks.published.runs import Run, runs
from benchmarks.published.transformer import LLAMA_8B
from hlosharding.search import Plan

HEADS = "model,hidden,heads,layers,sequence,vocabulary,tensor,pipeline,data,global_batch,micro_batch"
SC21 = f"{HEADS},recompute,precision,tflops_per_s_per_gpu\nA,64,4,4,32,512,1,1,2,8,4,full,fp16,0.1\n"
KORTHIKANTI = f"{HEADS},recompute,step_s\nB,64,4,4,32,512,2,2,1,8,4,full,2.0\nC,64,4,1,32,512,2,2,1,8,4,full,2.0\n"
FEWER = "1 layers"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "megatron_a100_sc21.csv").write_text(SC21)
    (tmp_path / "megatron_a100_korthikanti.csv").write_text(KORTHIKANTI)
    return tmp_path


def test_rows_come_in_the_order_of_their_tables_each_with_its_price_or_reason(folder: Path) -> None:
    rows = clusters.told(folder, ["megatron"], workers=2)["megatron"]
    asked = [row for name in ("megatron_a100_sc21", "megatron_a100_korthikanti") for row in runs(folder, name)]
    assert [run.model for run, _ in rows if isinstance(run, Run)] == ["A", "B", "C"]
    for run, found in rows[:2]:
        assert run in asked
        assert isinstance(run, Run)
        assert isinstance(found, Prediction)
        machine = machine_of_run(run)
        alone = planner_of(run.config, run.batch).schedule(run.plan, machine).simulate(machine)
        assert (found.seconds, found.gibibytes * 2**30) == (alone.time_s, alone.peak_memory_bytes)
        parts = found.computing_s + found.communicating_s + found.launching_s + found.idle_s
        assert parts == pytest.approx(found.seconds)
    assert FEWER in str(rows[2][1])


def test_the_command_writes_its_page_and_its_figures(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where, figures = folder / "clusters.md", folder / "figures.json"
    said = ["megatron", "--folder", str(folder), "--workers", "1", "--markdown", str(where), "--json", str(figures)]
    monkeypatch.setattr("sys.argv", ["clusters", *said])
    clusters.main()
    assert "Megatron, A100" in capsys.readouterr().out
    assert "| A | 2/1/1/1 | 8 | 32 | a100 |" in where.read_text()
    assert FEWER in where.read_text()
    found = json.loads(figures.read_text())["sets"]["megatron"]
    assert (found["line"]["told"], found["line"]["rows"]) == (2, 3)
    assert found["rows"][1]["measured"]["seconds"] == 2.0


def test_what_is_not_there_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = {(): "has no table of", ("torchtitan",): "has no torchtitan_h100.csv", ("titan",): "no set 'titan': there"}
    for said, reason in faults.items():
        monkeypatch.setattr("sys.argv", ["clusters", *said, "--folder", str(tmp_path)])
        with pytest.raises(SystemExit):
            clusters.main()
        assert reason in capsys.readouterr().err


def test_a_set_takes_the_place_of_what_stood_there_of_it() -> None:
    run = Run(model="Llama", config=LLAMA_8B, plan=Plan(8), batch=16, machine="h100", seconds=2.0, gibibytes=50.0)
    told = [(run, Prediction(1.0, 40.0, 0.5, 0.25, 0.0, 0.25))]
    first = page({"megatron": told, "torchtitan": told}, "a day", "# What\n\nPeople wrote this.\n\n")
    assert first.startswith(f"# What\n\nPeople wrote this.\n\n{MARK}| set |")
    line = "| torchtitan, H100 (`torchtitan`) | 1 of 1 | 50.0% | 50.0% | 50.0% | 20.0% |"
    assert first.count(line) == 2  # among the sets, and in its section
    row = "| Llama | 8/1/1/1 | 16 | 2,048 | h100 | 2 | 1 | 0.50 | 50.0 | 40.0 |"
    assert first.count(row) == 2
    assert "| 50% | 25% | 0% | 25% |" in first
    later = page({"torchtitan": [*told, *told]}, "another day", first)
    assert later.count("a day") == later.count("another day") == 1
    assert "| torchtitan, H100 (`torchtitan`) | 2 of 2 |" in later
    assert later.index("Megatron, A100") < later.index("torchtitan, H100")
    assert page({}, "", later) == later
