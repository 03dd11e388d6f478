"""Found plans come back from their files: the same plan, the same program, the same price.  What people write, too."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.cost import machines
from hlosharding.errors import PlanError, ScheduleError
from hlosharding.plans import PlanFile
from hlosharding.schedule import StageProgram
from hlosharding.schedule.steps import Apply
from hlosharding.search import Plan, Planner, apply_plan, megatron, schedule_of
from hlosharding.search.plan_files import plan_of

Arrays = list[Any]


def step(weights: Arrays, moments: Arrays, x: Any) -> tuple[Arrays, Arrays, Any]:
    """Two layers with momentum; the batch's second dim are sequences."""

    def loss(weights: Arrays) -> Any:
        up, down = weights
        return jnp.mean((jnp.tanh(x @ up) @ down) ** 2)

    value, gradients = jax.value_and_grad(loss)(weights)
    moments = [0.9 * m + g for m, g in zip(moments, gradients, strict=True)]
    return [w - 0.1 * m for w, m in zip(weights, moments, strict=True)], moments, value


def arguments(*rows: int) -> tuple[Arrays, Arrays, Any]:
    weights = [jax.ShapeDtypeStruct(dims, jnp.float32) for dims in ((16, 64), (64, 16))]
    return weights, weights, jax.ShapeDtypeStruct((*(rows or (16, 8)), 16), jnp.float32)


def random_arguments() -> tuple[Arrays, Arrays, Any]:
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), arguments())


def check(found: Any) -> None:
    """Is it what one device gives?"""
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(jax.jit(step)(*random_arguments())), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def first_by_rows(module: hs.Module, ways: Any, batch: frozenset[int]) -> dict[Any, Any]:
    return {**megatron(module, ways, batch), "weights[0]": P("tensor")}


PLANS = [
    "2/1/2/4",
    "2/2/1/1",
    "2/2/1/1 TD",
    "2/2/2/2 TDP",
    "1/1/2/4 gpipe",
    "1/1/2/4 zb-h1",
    "1/1/2/4 breadth-first-x2",
    "4/1/1/4 fsdp",
    "4/1/1/1 fsdp replicas=2",
    "4/2/2/2 TPD fsdp replicas=2",
    "4/1/1/1 fsdp context=2",
    "4/1/1/1 zero2",
    "4/1/1/4 zero1",
    "2/2/2/2 fsdp sequence",
    "4/2/1/1 rows",
]


@pytest.mark.parametrize("donate", [(), ("weights", "moments"), ("weights[1]",)], ids=str)
@pytest.mark.parametrize("text", PLANS)
def test_a_found_plan_comes_back(text: str, donate: tuple[str | int, ...], tmp_path: Path) -> None:
    plan = Plan.parse(text)
    own = {"rows": first_by_rows}
    machine = machines.h100(16 if plan.order else plan.num_devices)
    module = hs.trace(step)(*arguments())
    found = hs.search(module, batch=["x"], machine=machine, plans=[plan], strategies=own, donate=donate)
    found.plan_file().write(tmp_path / "plan.toml")
    kept = PlanFile.read(tmp_path / "plan.toml")
    assert kept.machine_for(machine.num_devices) == machine
    again = schedule_of(kept, module, machine)
    assert again.to_text() == found.schedule.to_text()
    run, [priced] = again.simulate(machine), found.table
    assert (run.time_s, run.peak_memory_bytes) == (priced.time_s, priced.peak_memory_bytes)


@pytest.mark.parametrize("text", [text for text in PLANS if "rows" not in text])
def test_the_words_come_back(text: str) -> None:
    plan = Plan.parse(text)
    found = hs.search(
        step, *arguments(), batch=["x"], machine=machines.h100(16), plans=[plan], donate=[0, "moments[1]"]
    )
    file = found.plan_file()
    assert (file.batch, file.donate) == (("x",), ("weights", "moments[1]"))
    said = plan_of(PlanFile.parse(file.to_text()))
    assert said is not None
    assert said == (plan if plan.strategy else replace(plan, strategy="megatron"))


@pytest.mark.parametrize("text", ["4/1/1/1 fsdp", "2/2/2/2 zero2", "2/2/2/4 zero1 sequence"])
def test_a_strategy_needs_no_annotations(text: str) -> None:
    """What the words alone mean is what the same plan means."""
    plan, module = Plan.parse(text), hs.trace(step)(*arguments())
    ways = "\n".join(f"{axis} = {size}" for axis, size in plan.ways.items())
    steps = f"stages = {plan.stages}\nmicrobatches = {plan.microbatches}"
    words = f"strategy = '{plan.strategy}'\nsequence = {str(plan.sequence).lower()}\nbatch = ['x']"
    said = f"{words}\n[mesh]\n{ways}\n[pipeline]\n{steps}"
    machine = machines.h100(plan.num_devices)
    expected = Planner(module, ["x"]).schedule(plan, machine)
    assert schedule_of(PlanFile.parse(said), module, machine).to_text() == expected.to_text()


def test_annotations_lie_on_top_of_the_strategy() -> None:
    module = hs.trace(step)(*arguments())
    hidden = next(inst.name for inst in module.instructions if inst.opcode == "tanh")
    said = "strategy = 'megatron'\nbatch = ['x']\n[mesh]\ndata = 2\ntensor = 2\n[annotations]\n"
    file = PlanFile.parse(f"{said}'weights[0]' = \"P('tensor')\"\n'{hidden}' = \"P('data')\"\n")
    made = schedule_of(file, module)
    types = {parameter.name: str(parameter.type) for parameter in made.functions["main"].parameters}
    for parameter in module.entry.parameters[:2]:  # the second one as the strategy says, by rows too
        assert "{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}" in types[parameter.name]
    check(made.run_reference(*jax.tree.leaves(random_arguments())))


@pytest.mark.parametrize("text", ["4/1/1/1 fsdp", "4/2/1/1 zero2", "4/1/1/1 fsdp replicas=2", "2/2/1/1 TD megatron"])
def test_as_one_program_a_found_plan_moves_no_more(text: str) -> None:
    """Than the schedule's stage programs: no activations, which are a hundred times as large as the weights."""
    plan, module = Plan.parse(text), hs.trace(step)(*arguments(512, 8))
    machine = machines.h100(16 if plan.order else plan.num_devices)
    found = hs.search(module, batch=["x"], machine=machine, plans=[plan])
    whole = hs.partition(apply_plan(found.plan_file(), module), machine=machine.with_devices(plan.num_devices))
    ops = {each.op for each in found.schedule.steps() if isinstance(each, Apply)}
    parts = [hs.cost(op.program.module) for op in ops if isinstance(op, StageProgram)]
    assert 0 < whole.comm_bytes_per_device <= sum(part.comm_bytes for part in parts)


def test_one_program_computes_what_one_device_does(cpu_devices: list[Any]) -> None:
    said = "strategy = 'fsdp'\nbatch = ['x']\n[mesh]\ndata = 4\ntensor = 2\n[annotations]\n'weights[0]' = 'P()'"
    module = hs.trace(step)(*arguments())
    made = apply_plan(PlanFile.parse(said), module)
    lies = {p.op_name: str(made.sharding(p)) for p in made.entry.parameters}
    assert lies["weights[0]"] == "{replicated}"
    assert lies["weights[1]"] == "{devices=[2,4]<=[4,2]T(1,0)}"
    check(hs.partition(made).run(*random_arguments()))


def test_bad_words() -> None:
    module = hs.trace(step)(*arguments())
    for text, error, says in [
        (
            "strategy = 'fdsp'\n[mesh]\ndata = 2",
            ScheduleError,
            "no strategy 'fdsp'; there are megatron, fsdp",
        ),
        (
            "strategy = 'fsdp'\n[mesh]\nx = 2",
            PlanError,
            "call them replicas, data, context, experts, tensor",
        ),
        ("strategy = 'fsdp'\n[mesh]\ntensor = 2\ndata = 2", PlanError, "splits over no axes of the mesh"),
        ("strategy = 'fsdp'", PlanError, "splits over no axes of the mesh None"),
        (
            "device_ids = [3, 2, 1, 0]\nstrategy = 'fsdp'\n[mesh]\ndata = 2\ntensor = 2",
            PlanError,
            "no order of ways has the devices of a stage as .*; leave device_ids out",
        ),
        (
            "device_ids = [0, 2, 1, 3]\nstrategy = 'fsdp'\n[mesh]\ndata = 2\ntensor = 2\n[pipeline]\nstages = 2",
            PlanError,
            "no order of ways has the devices of a stage as .*; leave device_ids out",
        ),
        ("batch = ['y']\n[mesh]\ndata = 2", ScheduleError, "no argument 'y'; there are weights"),
        ("batch = ['x']\ndonate = ['w']\n[mesh]\ndata = 2", ScheduleError, "no argument 'w'; there are weights"),
        ("batch = ['x']\n[mesh]\ndata = 2\n[pipeline]\nschedule = '1f1c'", ScheduleError, "no schedule '1f1c'"),
        ("[pipeline]\nmicrobatches = 2", ScheduleError, r'no batch; write batch = \["x"\]'),
    ]:
        with pytest.raises(error, match=says):
            schedule_of(PlanFile.parse(text), module)


def test_a_batch_is_not_cut_into_a_million_pieces() -> None:
    text = "HloModule m\nENTRY e {\n  x = f32[1048576] parameter(0)\n  ROOT y = f32[1048576] negate(x)\n}\n"
    plan = PlanFile.parse("batch = ['x']\n[mesh]\nd = 1\n[pipeline]\nmicrobatches = 1048576\n")
    began = time.process_time()
    with pytest.raises(ScheduleError, match="1048576 pieces are more than the 4096"):
        schedule_of(plan, hs.load(text))
    assert time.process_time() - began < 1
