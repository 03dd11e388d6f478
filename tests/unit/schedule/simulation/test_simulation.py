"""What users hold of a simulated schedule: the source lines in which its steps spend their time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import hlosharding as hs
from hlosharding.cost import machines
from hlosharding.schedule import Schedule, ScheduleBuilder, StageProgram
from tests.support.uniform_pipelines import machine, pipeline

LARGE = 4096


def product_and_sum(w: Any, x: Any) -> Any:
    product = x @ w  # 4096^3 multiplications
    total = x + 1
    return product, total


FIRST = product_and_sum.__code__.co_firstlineno + 1


def schedule() -> Schedule:
    """Two stage programs and a send, one after the other."""
    array = jax.ShapeDtypeStruct((LARGE, LARGE), jnp.float32)
    op = StageProgram.of("product_and_sum", product_and_sum, array, array)
    b = ScheduleBuilder()
    w, x = (b.parameter(name, op.inputs[0].shape, (0,)) for name in "wx")
    [y, _] = b.run(op, w, x)
    return b.finish(*b.run(op, *(b.send(value, (1,)) for value in (w, y))))


def test_a_step_says_its_source_lines_the_costliest_first() -> None:
    run = schedule().simulate(machines.h100(2))
    steps = [(event, run.source_lines(event)) for event in run.critical_path]
    assert ["product_and_sum" in event.text for event, _ in steps] == [True, False, True]
    for event, lines in steps:
        if "product_and_sum" in event.text:
            assert list(lines) == [f"{Path(__file__).name}:{FIRST + n}" for n in range(2)]
            assert sum(lines.values()) == pytest.approx(event.end - event.start)  # one op after the other
            assert list(run.source_lines(event, 1)) == list(lines)[:1]
        else:
            assert lines == {}


def test_what_devices_do_adds_up_to_the_run_and_gives_their_use() -> None:
    """Each of two devices makes one product, and waits while the other does."""
    device = machines.h100(2)
    run = schedule().simulate(device)
    for use in run.usage:
        assert use.breakdown.total_s == pytest.approx(run.time_s)
        assert use.breakdown.flops_s > use.breakdown.memory_s > 0
        assert use.breakdown.bound == "idle stages"
    assert run.figures.kind == "HFU"
    assert run.figures.utilization == pytest.approx(2 * LARGE**3 / device.flops("f32") / run.time_s)


def test_a_program_that_was_cut_is_known_as_a_whole_and_its_text_is_not() -> None:
    """The second pass of a checkpoint is none of the model's; tokens are the batch's integers."""

    def step(table: Any, weights: Any, tokens: jax.Array) -> Any:
        def loss(table: Any, weights: Any) -> jax.Array:
            x = table[tokens]
            for w in weights:
                x = jax.checkpoint(lambda x, w: jnp.tanh(jnp.tanh(x @ w) @ w))(x, w)
            return jnp.sum(x**2)

        return jax.value_and_grad(loss, argnums=(0, 1))(table, weights)

    table, weight = jnp.ones((64, 128)), jnp.ones((128, 128))
    cut = hs.pipelined(
        hs.trace(step)(table, [weight] * 4, jnp.zeros((16, 32), int)), batch=["tokens"], stages=2, microbatches=4
    )
    device = machines.h100(2)
    run, read = cut.simulate(device), hs.parse_schedule(cut.to_text()).simulate(device)
    product = 2 * 16 * 32 * 128 * 128
    assert run.figures.kind == "MFU"
    assert run.figures.utilization == pytest.approx(4 * 2 * 3 * product / device.flops("f32") / 2 / run.time_s)
    assert run.figures.tokens_per_s == pytest.approx(16 * 32 / 2 / run.time_s)
    assert (read.figures.kind, read.figures.tokens_per_s) == ("HFU", None)
    assert read.figures.utilization > run.figures.utilization


def test_the_trace_has_them(tmp_path: Path) -> None:
    run = schedule().simulate(machines.h100(2))
    run.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    said = [event["args"]["seconds by source line"] for event in events if event["name"] == "@product_and_sum"]
    assert said == [run.source_lines(event) for event in run.timeline if "product_and_sum" in event.text]


@pytest.mark.parametrize("microbatches", [1, 10, 100])
def test_a_step_is_one_task_however_many_there_are(microbatches: int) -> None:
    """Figure 7 of the DistIR paper: time in proportion to the steps."""
    stages = 4
    schedule = pipeline(stages, microbatches, [1.0] * stages, [2.0] * stages).schedule("1f1b", microbatches)
    run = schedule.simulate(machine(stages))
    passes_and_sends = microbatches * (2 * stages + 2 * (stages - 1))
    assert len(run.times.start) == len(schedule.main.steps)
    assert 0 <= len(run.times.start) - passes_and_sends <= 2  # the batch is cut, the results are joined


def test_nobody_prices_lines_who_does_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(StageProgram, "report")
    monkeypatch.delattr("hlosharding.schedule.op.Op.report")
    run = schedule().simulate(machines.h100(2))
    assert run.critical_path
    assert run.usage
    assert run.worst_memory
