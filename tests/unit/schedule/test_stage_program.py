"""Stage programs: which devices they tie together, and where they can stand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import hlosharding as hs
from hlosharding.errors import ScheduleError
from hlosharding.executor import ShardMapProgram
from hlosharding.schedule import ScheduleBuilder, StageProgram

PERMUTES = """HloModule m, num_partitions=6
ENTRY main {
  x = f32[2] parameter(0)
  y = f32[2] collective-permute(x), source_target_pairs={{0,1},{3,4}}, channel_id=1
  ROOT z = f32[2] collective-permute(y), source_target_pairs={{1,2},{4,4}}, channel_id=2
}"""


def test_what_permutes_tie_together_be_it_by_way_of_others() -> None:
    program = StageProgram("m", ShardMapProgram(hs.load(PERMUTES)))
    assert program.tied == ((0, 1, 2), (3, 4), (5,))


def test_a_program_without_operands_runs_nowhere() -> None:
    constant = StageProgram.of("constant", lambda: jnp.ones(4))
    with pytest.raises(ScheduleError, match="@constant takes no operand, which would say where it runs"):
        ScheduleBuilder().run(constant)


def test_a_program_without_collectives_ties_nobody() -> None:
    x = jax.ShapeDtypeStruct((4,), jnp.float32)
    program = StageProgram.of("double", lambda x: 2 * x, x, in_shardings="{devices=[2]<=[2]}")
    assert program.tied == ((0,), (1,))


@pytest.mark.parametrize("is_read", [True, False])
def test_a_parameter_that_is_a_result_leaves_room_for_what_is_made_beside(is_read: bool) -> None:
    """XLA copies the parameter, and sorts in memory of its own."""

    def step(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        return x, jnp.sum(jnp.sort(x if is_read else y))

    arguments = [jax.ShapeDtypeStruct((4096,), jnp.float32)] * 2
    op = StageProgram.of("step", step, *arguments)
    builder = ScheduleBuilder()
    schedule = builder.finish(*builder.run(op, *(builder.parameter(n, op.inputs[0].shape, (0,)) for n in "xy")))
    # On a mesh, for `jax.jit` alone gives back the argument itself.
    mesh = jax.make_mesh((1,), ("x",))
    mapped = jax.shard_map(step, mesh=mesh, in_specs=jax.P(), out_specs=jax.P(), check_vma=False)
    memory = jax.jit(mapped, keep_unused=True).lower(*arguments).compile().memory_analysis()
    assert memory is not None
    theirs = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    assert schedule.simulate(hs.machines.h100(1)).peak_memory_bytes == pytest.approx(theirs, rel=0.02)
