"""Plan files on command lines: `--plan` of commands that take annotations, `--save-plan` of those that find some."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import hlosharding as hs
from hlosharding.cli import main
from tests.support.onnx_models import mlp

ROOT = Path(__file__).resolve().parents[3]
MLP = str(ROOT / "docs" / "mlp.hlo")
PLAN = """machine = "h100:8"
objective = "bytes"
[mesh]
data = 2
model = 4
[annotations]
x = "P('data')"
w2 = "P('model', None)"
"""
W2 = "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}"


@pytest.fixture
def plan(tmp_path: Path) -> str:
    (tmp_path / "plan.toml").write_text(PLAN)
    return str(tmp_path / "plan.toml")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    status = main(words)
    out, err = capsys.readouterr()
    assert (status, err) == (0, "")
    return out


@pytest.mark.parametrize(
    "words",
    [("propagate",), ("partition",), ("simulate",), ("explain", "w2"), ("explain", "w2", "--splits")],
    ids=" ".join,
)
def test_a_plan_is_what_its_annotations_are(capsys: pytest.CaptureFixture[str], plan: str, words: list[str]) -> None:
    command, *rest = words
    said = ("--mesh", "data=2,model=4", "--annotate", "x=P(data)", "--annotate", "w2=P(model,None)")
    prices = () if command == "propagate" else ("--machine", "h100:8", "--objective", "bytes")
    by_hand = run(capsys, command, MLP, *rest, *said, *prices)
    assert run(capsys, command, MLP, *rest, "--plan", plan) == by_hand


def test_the_command_line_comes_on_top(capsys: pytest.CaptureFixture[str], plan: str) -> None:
    found = hs.load(run(capsys, "propagate", MLP, "--plan", plan, "--annotate", "w*={replicated}"))
    assert [str(found.sharding(found.by_name(name))) for name in ("w1", "w2")] == ["{replicated}"] * 2
    record = json.loads(run(capsys, "partition", MLP, "--plan", plan, "--machine", "a100:8", "--emit", "json"))
    assert "a100(8)" in json.dumps(record)


def test_suggestions_are_saved_on_top_of_the_plan(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, plan: str
) -> None:
    saved = tmp_path / "better.toml"
    Path(plan).write_text("[mesh]\ndata = 2\nmodel = 4\n[annotations]\nx = '{replicated}'\nw1 = '{replicated}'")
    run(capsys, "suggest", MLP, "hidden", "--plan", plan, "--machine", "h100", "--save-plan", str(saved))
    kept = hs.PlanFile.read(saved)
    assert dict(kept.annotations)["w1"] or dict(kept.annotations)["x"]
    assert kept.mesh == hs.PlanFile.read(plan).mesh
    found = hs.propagate(kept.apply(hs.load(MLP))).shardings["hidden"]
    assert found is not None
    assert found.num_tiles > 1


@pytest.mark.parametrize("plans", ["8/1/1/1 fsdp", "2/2/2/2 zero2", "4/2/1/1"])
def test_a_found_plan_is_saved_and_simulated(capsys: pytest.CaptureFixture[str], tmp_path: Path, plans: str) -> None:
    """At the price that the search found."""
    saved = str(tmp_path / "plan.toml")
    search = ("search", MLP, "--batch", "x", "--donate", "w1", "--machine", "h100:8", "--plans", plans)
    [found] = json.loads(run(capsys, *search, "--save-plan", saved, "--emit", "json"))["plans"]
    kept = hs.PlanFile.read(saved)
    assert (kept.machine, kept.batch, kept.donate) == ("h100:8", ("x",), ("w1",))
    again = json.loads(run(capsys, "simulate", MLP, "--plan", saved, "--emit", "json"))
    figures = "time_s", "peak_memory_bytes"
    assert [again[figure] for figure in figures] == [found[figure] for figure in figures]


STEP = """
import jax, jax.numpy as jnp

def step(weights, x):
    def loss(weights):
        return jnp.mean(jnp.tanh(x @ weights["up"]) @ weights["down"])

    value, gradients = jax.value_and_grad(loss)(weights)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients), value

shapes = {"up": (16, 64), "down": (64, 16)}
arguments = {name: jnp.ones(dims) for name, dims in shapes.items()}, jnp.ones((32, 16))
print(jax.jit(step).lower(*arguments).as_text(debug_info=True))
"""


def test_a_piped_program_is_searched_and_runs_by_the_plan_that_was_found(tmp_path: Path) -> None:
    """As in a shell: processes of their own, which have JAX's devices to choose."""
    (tmp_path / "step.py").write_text(STEP)
    python, hlosharding = sys.executable, f"{sys.executable} -m hlosharding"
    words = "--batch x --donate weights --machine h100:4 --plans '4/1/1/1 fsdp,2/2/1/1 zero2' --save-plan plan.toml"
    script = f"""set -e -o pipefail
        {python} step.py > step.mlir
        cat step.mlir | {hlosharding} search - {words} --emit json > found.json
        {hlosharding} simulate step.mlir --plan plan.toml --emit json > simulated.json
        {hlosharding} run step.mlir --plan plan.toml --check"""
    environment = {**os.environ, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("agrees") == 3
    best = json.loads((tmp_path / "found.json").read_text())["plans"][0]
    simulated = json.loads((tmp_path / "simulated.json").read_text())
    assert all(simulated[figure] == best[figure] for figure in ("time_s", "peak_memory_bytes"))
    kept = hs.PlanFile.read(tmp_path / "plan.toml")
    assert (kept.strategy, kept.batch, kept.donate) == (best["strategy"], ("x",), ("weights",))


def test_a_strategy_is_what_it_splits(capsys: pytest.CaptureFixture[str], plan: str) -> None:
    Path(plan).write_text("strategy = 'megatron'\nbatch = ['x']\n[mesh]\ndata = 2\ntensor = 4\n")
    said = ("--annotate", "x=P(data)", "--annotate", "w1=P(None,tensor)", "--annotate", "w2=P(tensor)")
    by_hand = run(capsys, "partition", MLP, "--mesh", "data=2,tensor=4", *said)
    assert run(capsys, "partition", MLP, "--plan", plan) == by_hand


def test_a_plan_of_stages_is_simulated_and_nothing_else(capsys: pytest.CaptureFixture[str], plan: str) -> None:
    Path(plan).write_text("machine = 'h100:2'\nbatch = ['x']\n[pipeline]\nstages = 2\nmicrobatches = 2\n")
    assert main(["partition", MLP, "--plan", plan]) == 1
    assert "2 stages and 2 microbatches" in capsys.readouterr().err


def test_a_model_brings_its_own_stages(capsys: pytest.CaptureFixture[str], plan: str, tmp_path: Path) -> None:
    Path(plan).write_text("batch = ['x']\n[pipeline]\nmicrobatches = 2\n")
    staged, stages = tmp_path / "staged.onnx", {"/fc1/MatMul": 0, "/fc1/Add": 1, "Relu(y)": 2}
    staged.write_bytes(hs.write_onnx_shardings(mlp(), {}, configuration="pp", stages=stages).SerializeToString())
    options = ("--plan", plan, "--configuration", "pp", "--emit", "json")
    found = json.loads(run(capsys, "simulate", str(staged), *options))
    assert "{2}" in json.dumps(found)
    assert "{3}" not in json.dumps(found)
    Path(plan).write_text("batch = ['x']\n[pipeline]\nstages = 2\nmicrobatches = 2\n")
    assert "{2}" not in run(capsys, "simulate", str(staged), *options)
    assert main(["partition", str(staged), *options[:4]]) == 1
    assert "2 stages and 2 microbatches" in capsys.readouterr().err


def test_a_machine_file_is_found_from_the_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "ours.toml").write_text('like = "h100"\nnum_devices = 8\n')
    (tmp_path / "plan.toml").write_text("machine = 'ours.toml'")
    assert "on ours" in run(capsys, "partition", MLP, "--plan", str(tmp_path / "plan.toml"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[annotations]\nw3 = '{replicated}'", "no instruction, parameter path or glob match for 'w3'"),
        ("[annotations]\nw1 = 'P(q)'\n[mesh]\nr = 8", "the mesh has no axis 'q'"),
        ("[mesh]\nr = 5", "the mesh has 5 devices, the program is for 8"),
        ("nonsense", "is no TOML"),
    ],
)
def test_bad_plans_are_one_line_and_status_1(
    capsys: pytest.CaptureFixture[str], plan: str, text: str, says: str
) -> None:
    Path(plan).write_text(text)
    assert main(["partition", MLP, "--plan", plan]) == 1
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1
