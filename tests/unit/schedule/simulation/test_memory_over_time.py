"""What a stage holds between its passes is what its backward passes read: less where they compute it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlosharding as hs
from hlosharding.cost import machines
from hlosharding.schedule import ScheduleBuilder, ScheduleSimulation, StageProgram

ROWS, WIDTH, HIDDEN, LAYERS, STAGES = 4096, 16, 64, 4, 2


def layer(x: Any, up: Any, down: Any) -> Any:
    return x + jnp.tanh(jnp.tanh(x @ up) @ down)


def simulated(layer: Callable[..., Any], microbatches: int) -> ScheduleSimulation:
    """A step of which a GPipe schedule holds all microbatches before the first backward pass."""

    def loss(weights: Any, x: Any) -> Any:
        for up, down in weights:
            x = layer(x, up, down)
        return jnp.sum(x**2)

    up, down, x = (jax.ShapeDtypeStruct(s, jnp.float32) for s in ((WIDTH, HIDDEN), (HIDDEN, WIDTH), (ROWS, WIDTH)))
    module = hs.trace(jax.value_and_grad(loss))([(up, down)] * LAYERS, x)
    schedule = hs.pipelined(module, batch=["x"], stages=STAGES, microbatches=microbatches, schedule="gpipe")
    return schedule.simulate(machines.h100(STAGES))


def held_before_the_first_backward_pass(run: ScheduleSimulation) -> float:
    """By device 0, which then waits for the others."""
    start = next(event.start for event in run.timeline if "@backward_0" in event.text)
    memory = run.memory[0]
    return float(memory.nbytes[np.searchsorted(memory.times, start) - 1])


@pytest.mark.parametrize("microbatches", [2, 8])
def test_checkpointed_layers_keep_what_comes_in(microbatches: int) -> None:
    """Of two layers a forward pass keeps what each tanh gave, which its gradient reads; what comes into the second is
    added up from these where it is read.  Checkpointed, it keeps what comes into the second alone.
    """
    kept, again = simulated(layer, microbatches), simulated(jax.checkpoint(layer), microbatches)
    saved = held_before_the_first_backward_pass(kept) - held_before_the_first_backward_pass(again)
    rows = ROWS // microbatches
    assert saved == microbatches * rows * 4 * (2 * (HIDDEN + WIDTH) - WIDTH)
    assert all(more.peak_bytes > less.peak_bytes for more, less in zip(kept.usage, again.usage, strict=True))
    assert kept.time_s < again.time_s


@pytest.mark.parametrize("order", [1, -1])
def test_a_result_on_the_host_is_none_on_the_device(order: int) -> None:
    """Three arrays at most lie there: what comes in, what stays, and what is on its way to the host."""

    def both(x: Any) -> Any:
        return (jnp.sin(x), jax.device_put(jnp.cos(x), jax.memory.Space.Host))[::order]

    op = StageProgram.of("both", both, jax.ShapeDtypeStruct((1024, 1024), jnp.float32))
    builder = ScheduleBuilder()
    results = builder.run(op, builder.parameter("x", op.inputs[0].shape, (0,)))
    assert [result.type.is_on_host for result in results] == [False, True][::order]
    run = builder.finish(*results).simulate(machines.h100(1))
    assert run.peak_memory_bytes == 3 * 4 * 1024**2
