"""ONNX models on command lines: from a file or a pipe, with sizes, values or arrays."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import hlosharding as hs
from hlosharding.cli import main

DOCS = Path(__file__).resolve().parents[3] / "docs"
MODEL, PLAN = DOCS / "mlp.onnx", str(DOCS / "mlp_onnx.toml")


def outputs(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, object]]:
    status = main(("run", *words, "-n", "8", "--plan", PLAN, "--check", "--emit", "json"))
    out, err = capsys.readouterr()
    assert (status, err) == (0, "")
    return json.loads(out)["outputs"]


def test_a_model_from_a_pipe_runs_as_from_its_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = ("--input", "x=f32[8,16]")
    from_file = outputs(capsys, str(MODEL), *size)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(MODEL.read_bytes())))
    assert outputs(capsys, "-", *size) == from_file
    assert from_file[0]["agrees"]


def test_arrays_say_the_sizes_whatever_the_file_is_called(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(MODEL.read_bytes())
    np.savez(tmp_path / "x.npz", x=np.ones((24, 16), np.float32))
    found = outputs(capsys, str(tmp_path / "model.bin"), "--inputs", str(tmp_path / "x.npz"))
    assert found[0]["shape"] == "f32[24,16]"


def test_sizes_for_a_program_that_has_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("propagate", str(DOCS / "mlp.hlo"), "--input", "x=f32[8,16]")) == 1
    assert "inputs (x) for what is no ONNX model" in capsys.readouterr().err


def test_a_model_for_each_rank_is_a_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ("partition", str(MODEL), "--plan", PLAN, "--input", "x=f32[8,16]", "--emit", "onnx")
    assert main((*words, "-o", str(tmp_path / "out"))) == 0
    models = [onnx.load(path) for path in sorted((tmp_path / "out").glob("*.onnx"))]
    assert len(models) == 8
    ranks = hs.write_onnx_ranks(MODEL, hs.PlanFile.read(PLAN), inputs={"x": np.ones((8, 16), np.float32)})
    assert [model.graph.node for model in models] == [model.graph.node for model in ranks.models]
    assert main(words) != 0
    assert "a model for each rank is a folder of files" in capsys.readouterr().err
