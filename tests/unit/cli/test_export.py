"""`hlosharding export`: the Python, the record, and XLA's program beside ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import pytest
from jax.sharding import PartitionSpec as P

from hlosharding.cli import main

MLP = str(Path(__file__).resolve().parents[3] / "docs" / "mlp.hlo")
MESH = ("--mesh", "data=2,model=4", "--machine", "h100")


def test_what_is_written_runs(tmp_path: Path) -> None:
    written = tmp_path / "plan.py"
    assert main(["export", MLP, *MESH, "--annotate", "w2=P(model)", "-o", str(written)]) == 0
    found: dict[str, Any] = {}
    exec(written.read_text(), found)
    assert [s.spec for s in found["in_shardings"]] == [P("data"), P(None, "model"), P("model")]
    assert found["mesh"].devices.shape == (2, 4)
    assert len(jax.tree.leaves(found["out_shardings"])) == 2


def test_the_record(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", MLP, *MESH, "--emit", "json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["schema"] == "hlosharding.export/1"
    assert record["mesh"] == {"data": 2, "model": 4}
    assert record["arguments"][0] == {"name": "x", "spec": "P('data',)"}


def test_xla_beside_ours(capsys: pytest.CaptureFixture[str]) -> None:
    """Both reduce 32 x 128 floats among four, and one among two, and gather 64 x 128 among two."""
    assert main(["export", MLP, *MESH, "--annotate", "w2=P(model)", "--compare"]) == 0
    [received] = [line for line in capsys.readouterr().out.splitlines() if "bytes received" in line]
    expected = 2 * 3 / 4 * 32 * 128 * 4 + 4 + 64 * 128 * 4 / 2
    assert received.count(f"{expected:,.0f}") == 2


def test_a_program_that_xla_compiled_has_no_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    dump = tmp_path / "dump.hlo"
    dump.write_text("HloModule m, is_scheduled=true, num_partitions=2\nENTRY e {\n  ROOT x = f32[8] parameter(0)\n}")
    assert main(["export", str(dump)]) == 1
    assert "was split already" in capsys.readouterr().err
