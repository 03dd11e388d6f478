"""`hlosharding search`: what it may be asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hlosharding.cli import main

MLP = str(Path(__file__).resolve().parents[3] / "docs" / "mlp.hlo")


def found(capsys: pytest.CaptureFixture[str], *options: str, machine: str = "h100:16") -> Any:
    """The record of a search on two nodes."""
    command = ["search", MLP, "--machine", machine, "--batch", "x", "--microbatches", "2", "--emit", "json"]
    assert main([*command, *options]) == 0
    return json.loads(capsys.readouterr().out)


def test_orders(capsys: pytest.CaptureFixture[str]) -> None:
    usual, some, every = (found(capsys, "--all", *more) for more in ((), ("--orders", "PDT,DTP"), ("--orders", "all")))
    orders = [{plan["order"] for plan in each["plans"]} for each in (usual, some, every)]
    assert orders[0] == {""}
    assert orders[1] == {"", "DTP", "DP", "TP"}
    assert orders[1] < orders[2]


def test_strategies(capsys: pytest.CaptureFixture[str]) -> None:
    plans = found(capsys, "--strategy", "megatron,fsdp", machine="h100:4")["plans"]
    assert {plan["strategy"] for plan in plans} == {"megatron", "fsdp"}
    command = ["search", MLP, "--machine", "h100:4", "--batch", "x", "--strategy", "zero"]
    assert main(command) == 1
    assert "no strategy 'zero'; there are megatron, fsdp" in capsys.readouterr().err


def test_plans_are_named_as_tables_write_them(capsys: pytest.CaptureFixture[str]) -> None:
    named = "4/1/1/1 fsdp replicas=2,2/2/1/1,1/2/2/4 gpipe"
    command = ["search", MLP, "--machine", "h100:4", "--batch", "x"]
    assert main([*command, "--plans", named, "--emit", "json"]) == 0
    assert {plan["plan"] for plan in json.loads(capsys.readouterr().out)["plans"]} == set(named.split(","))
    assert main([*command, "--plans", "4/1/1/1", "--strategy", "fsdp"]) == 1
    assert "strategies are said, and plans, which say all" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*command, "--plans", "4/1/1/1,4/1/1/1 fsdp fsdp"])
    assert "argument --plans: a second strategy; at position 13: 4/1/1/1 fsdp >>>fsdp" in capsys.readouterr().err


def test_data_ways_in_parts(capsys: pytest.CaptureFixture[str]) -> None:
    plans = found(capsys, "--strategy", "fsdp", "--replicas", "1,2", "--context", "1,2", machine="h100:4")["plans"]
    parts = {(plan["replicas"], plan["context"]) for plan in plans if plan["data"] == 4}
    assert parts == {(1, 1), (1, 2), (2, 1), (2, 2)}


def test_an_argument_to_donate_must_be_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", MLP, "--machine", "h100:4", "--batch", "x", "--donate", "moments"]) == 1
    assert "no argument 'moments'; there are" in capsys.readouterr().err


def test_where_no_plan_suits_one_line_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["search", MLP, "--machine", "h100:8", "--batch", "x", "--plans", "3/1/1/1,6/1/1/1", "--emit", "json"])
        == 1
    )
    out, err = capsys.readouterr()
    assert len(json.loads(out)["refused"]) == 2
    assert "no plan could be priced on h100(8); 1 of 2 refused: the batch of %x f32[64,128] is not cut into" in err
    assert err.count("\n") == 1


def test_where_no_plan_suits_there_is_no_schedule_to_be_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said = ["--machine", "h100:8", "--batch", "x", "--plans", "3/1/1/1", "-o", str(tmp_path / "schedule.txt")]
    assert main(["search", MLP, *said]) == 1
    assert "no plan could be priced on h100(8); 1 of 1 refused" in capsys.readouterr().err


def test_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    assert found(capsys, "--all", "--jobs", "2", machine="h100:4") == found(capsys, "--all", machine="h100:4")


def test_resume(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "prices.jsonl"
    first = found(capsys, "--resume", str(path), machine="h100:4")
    kept = path.read_text()
    assert found(capsys, "--resume", str(path), machine="h100:4") == first
    assert path.read_text() == kept
    assert main(["search", MLP, "--machine", "h100:2", "--batch", "x", "--resume", str(path)]) == 1
    assert "has prices of another machine, plan space" in capsys.readouterr().err
