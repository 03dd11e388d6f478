"""`hlosharding diff`: plans of one program, and programs."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from hlosharding.cli import main

MLP = str(Path(__file__).resolve().parents[3] / "docs" / "mlp.hlo")
AXES = 'machine = "h100:8"\n[mesh]\ndata = 2\nmodel = 4\n[annotations]\n'


@pytest.fixture
def plans(tmp_path: Path) -> tuple[str, str]:
    for name, said in (("rows.toml", "w2 = 'P(model)'"), ("columns.toml", "w2 = 'P(None, model)'")):
        (tmp_path / name).write_text(AXES + said)
    return str(tmp_path / "rows.toml"), str(tmp_path / "columns.toml")


def test_two_plans_of_one_program(capsys: pytest.CaptureFixture[str], plans: tuple[str, str]) -> None:
    assert main(["diff", *plans, "--of", MLP, "--emit", "json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["schema"] == "hlosharding.difference/1"
    assert record["differing"]["w2"]["before"].startswith("{devices=[4,1,2]")
    assert record["cost_before"]["machine"] == "h100(8)"


def test_the_exit_status_is_that_of_git(capsys: pytest.CaptureFixture[str], plans: tuple[str, str]) -> None:
    rows, columns = plans
    assert main(["diff", rows, columns, "--of", MLP, "--exit-code"]) == 1
    assert "rows.toml" in capsys.readouterr().out
    assert main(["diff", rows, rows, "--of", MLP, "--exit-code"]) == 0
    assert "No sharding differs." in capsys.readouterr().out


def test_a_program_against_its_partitioned_form(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    local = tmp_path / "local.hlo"
    assert main(["partition", MLP, "--machine", "h100", "--emit", "hlo", "--metadata", "-o", str(local)]) == 0
    assert main(["diff", MLP, str(local), "--machine", "h100", "--emit", "json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["collectives"] == []
    assert record["cost_before"]["comm_bytes"] == record["cost_after"]["comm_bytes"] > 0


def test_plans_are_said_once(capsys: pytest.CaptureFixture[str], plans: tuple[str, str]) -> None:
    assert main(["diff", *plans, "--of", MLP, "--plan", plans[0]]) == 1
    assert "A and B are the plans" in capsys.readouterr().err


def test_standard_input_is_read_once(
    capsys: pytest.CaptureFixture[str], plans: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(*words: str) -> str:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(Path(MLP).read_bytes())))
        assert main([*words]) == 0
        return capsys.readouterr().out

    assert told("diff", *plans, "--of", "-") == told("diff", *plans, "--of", MLP)
    assert "No sharding differs." in told("diff", "-", "-")
    same = json.loads(told("report", "-", "--machine", "h100:8", "--against", "-", "--emit", "json"))
    assert {row["ratio"] for row in same["comparison"]["comparison"]} == {1.0}
