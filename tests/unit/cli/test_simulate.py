"""`hlosharding simulate` on the text of a schedule: what it prints and writes, and what it refuses."""

from __future__ import annotations

import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import hlosharding as hs
from hlosharding.cli import main
from hlosharding.cost import machine_named
from hlosharding.schedule import Schedule, parse_schedule
from tests.support import mlp_ops

MLP = Path(__file__).resolve().parents[3] / "docs" / "mlp.hlo"
PIPELINE = (mlp_ops.FIGURES / "pipeline.txt").read_text()


def pipeline() -> Schedule:
    return parse_schedule(PIPELINE, mlp_ops.ops(4))


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.txt"
    path.write_text(pipeline().to_text())
    return path


def test_a_text_is_the_schedule_that_was_written(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(plan), "--machine", "v100:2", "--emit", "json"]) == 0
    found, expected = json.loads(capsys.readouterr().out), pipeline().simulate(machine_named("v100", 2))
    assert found["time_s"] == expected.time_s
    assert [step["step"] for step in found["critical_path"]] == [event.text for event in expected.critical_path]
    lines = {line.partition(":")[0] for step in found["critical_path"] for line in step["source_lines"]}
    assert lines == {"mlp_ops.py"}


def test_from_standard_input_with_pictures(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"// a plan\n" + plan.read_bytes())))
    trace, picture = tmp_path / "trace.json", tmp_path / "timeline.svg"
    assert main(["simulate", "-", "--trace", str(trace), "--plot", str(picture)]) == 0
    assert "Critical path" in capsys.readouterr().out
    assert json.loads(trace.read_text())["traceEvents"]
    assert ET.parse(picture).getroot().tag.endswith("svg")


@pytest.mark.parametrize("runtime", ["compiled", "eager"])
def test_what_search_writes_is_what_it_priced(runtime: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "plan.txt")
    words = ["--machine", "h100:4", "--runtime", runtime, "--emit", "json"]
    assert main(["search", str(MLP), "--batch", "x", "--microbatches", "2", "-o", path, *words]) == 0
    best = json.loads(capsys.readouterr().out)["plans"][0]
    assert main(["simulate", path, *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["time_s"], found["peak_memory_bytes"]) == (best["time_s"], best["peak_memory_bytes"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--plot", "timeline.svg"], "--plot draws schedules"),
        (["--semantics", "contention"], "--semantics is of sched"),
    ],
)
def test_what_is_of_schedules_alone(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(MLP), *words]) == 1
    assert says in capsys.readouterr().err


def test_semantics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two messages of 4 MB leave device 0 at once: each takes its bytes' time twice."""
    path = tmp_path / "fan.txt"
    path.write_text(
        "func @main(%x: f32[1000000] on {0}) {\n%y = send(%x) to={1}\n%z = send(%x) to={2}\nreturn %y, %z\n}"
    )
    found = dict[str, float]()
    for semantics in ("overlap", "contention"):
        assert main(["simulate", str(path), "--machine", "h100:3", "--semantics", semantics, "--emit", "json"]) == 0
        record = json.loads(capsys.readouterr().out)
        assert record["semantics"] == semantics
        found[semantics] = record["time_s"]
    alone = 4e6 / machine_named("h100", 3).inside.bandwidth
    assert found["contention"] - found["overlap"] == pytest.approx(alone)
    assert main(["simulate", str(path), "--machine", "h100:3", "--semantics", "contention"]) == 0
    assert "on h100(3) (contention)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--mesh", "data=2"], "--mesh is of programs, FILE holds a schedule; leave it out"),
        (["--no-combine"], "--no-combine is of programs"),
        (["--machine", "h100:1"], "h100:1 has 1 devices, 2 are needed"),
    ],
)
def test_options_that_do_not_fit(words: list[str], says: str, plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(plan), *words]) == 1
    assert says in capsys.readouterr().err


def test_programs_that_the_text_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.txt"
    path.write_text(str(pipeline()))
    assert main(["simulate", str(path)]) == 1
    said = capsys.readouterr().err
    assert "no program @loss_grad; at line 9: " in said
    assert "write it above, as Schedule.to_text does" in said


def test_a_device_that_holds_too_much(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.txt"
    path.write_text("func @main(%x: f32[40000000000] on {0}) {\n%y = send(%x) to={1}\nreturn %y\n}")
    assert main(["simulate", str(path), "--machine", "h100:2"]) == 1
    seen = capsys.readouterr()
    assert "160 GB" in seen.out
    assert "device 0 of h100(2) holds 160.00 GB" in seen.err


def test_a_program_is_still_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(MLP), "--machine", "h100", "--emit", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = hs.simulate(hs.partition(hs.propagate(hs.load(MLP)), machine=machine_named("h100", 8)))
    assert found["time_s"] == expected.time_s
