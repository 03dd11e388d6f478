"""`calibrate` writes a machine that other commands take; `rank` shows plans that ran."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hlosharding.cli import main
from hlosharding.cost import machine_text, machines, read_machine
from hlosharding.cost.calibration import DeviceTimer

MLP = str(Path(__file__).resolve().parents[3] / "docs" / "mlp.hlo")

pytestmark = pytest.mark.usefixtures("cpu_devices")  # the commands would force as many as they want
REAL = replace(machines.a100(2), nccl=None, program_launch=1e-4)  # what is here runs no NCCL


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements of devices that are not there."""
    monkeypatch.setattr(DeviceTimer, "__init__", lambda self, devices: None)
    monkeypatch.setattr(DeviceTimer, "__call__", lambda self, probe: probe.predict_seconds(REAL))


@pytest.mark.usefixtures("pretended")
def test_a_calibrated_machine_goes_where_machines_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "here.toml")
    assert main(["calibrate", "-n", "2", "-o", path]) == 0
    out = capsys.readouterr().out
    assert "how far the fitted figures are off" in out
    assert "all-to-all" in out
    assert read_machine(path).inside.bandwidth == pytest.approx(machines.a100(2).inside.bandwidth, rel=0.1)
    assert main(["simulate", MLP, "--machine", path]) == 0
    assert main(["search", MLP, "--machine", path, "--batch", "x", "--microbatches", "2"]) == 0


@pytest.mark.usefixtures("pretended")
def test_the_record_of_a_calibration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", MLP, "-n", "2", "-o", str(tmp_path / "here.toml"), "--emit", "json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["measured_on"]["devices"] == 2
    products = [row["probe"] for row in record["measurements"] if row["probe"].startswith("product")]
    assert products == ["product f32[64,128] f32[128,512]", "product f32[64,512] f32[512,128]"]


def test_plans_are_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "here.toml"
    path.write_text(machine_text(machines.cpu(4)))
    words = ["rank", MLP, "--batch", "x", "--plans", "4/1/1/1,1/2/2/2,1/1/2/128", "--machine", str(path)]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "2 plans run: rank correlation" in out
    assert "one process, one program at a time" in out
    assert "is not cut into 128 microbatches" in out
    assert main([*words, "--emit", "json"]) == 0
    assert {row["plan"] for row in json.loads(capsys.readouterr().out)["plans"]} == {"4/1/1/1", "1/2/2/2"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("calibrate", "-n", "1000", "-o", "x.toml"), "-n 1000: JAX has 8 devices; take 8 at most"),
        (("rank", MLP, "--batch", "nothing", "--plans", "2/1/1/1", "--machine", "cpu"), "no argument 'nothing'"),
        (("rank", MLP, "--batch", "x", "--plans", "4/1/1/1", "--machine", "cpu:2"), "has 2 devices, 4 are needed"),
    ],
)
def test_wrong_input_is_one_line(words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert says in line


@pytest.mark.parametrize("plans", ["8", "8/1/1", "a/b/c/d", "0/1/1/1"])
def test_wrong_plans_are_wrong_usage(plans: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["rank", MLP, "--batch", "x", "--plans", plans])
    assert caught.value.code == 2
