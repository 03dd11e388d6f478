"""Stages: values flow down the pipeline forward and up again backward."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import jax
import jax.numpy as jnp
import pytest

import hlosharding as hs
from hlosharding.cost import machines
from hlosharding.errors import ScheduleError
from hlosharding.ir import Instruction
from hlosharding.schedule.cutting.microbatched import Microbatched, reads_of
from hlosharding.schedule.cutting.microbatches import cut_microbatches
from hlosharding.schedule.cutting.pipelining import argument_numbers
from hlosharding.schedule.cutting.stages import Placement, place_stages, seconds_of
from hlosharding.search import Plan, Planner
from tests.support.training_steps import STEPS, most_stages, normal, traced

ORDER = ("forward", "backward", "after")


@cache
def cut(name: str, stages: int, count: int = 2) -> tuple[Microbatched, Placement]:
    step, module = traced(name)
    program = cut_microbatches(module, dict.fromkeys(argument_numbers(module, step.batch), 0), count)
    return program, place_stages(program, stages, seconds_of(program.module, machines.h100(stages)))


def flows(placement: Placement) -> Iterator[tuple[Instruction, Instruction]]:
    for inst in placement.phase:
        yield from ((operand, inst) for operand in reads_of(inst) if operand in placement.phase)


@pytest.mark.parametrize("name", STEPS)
def test_values_flow_down_forward_and_up_backward(name: str) -> None:
    program, placement = cut(name, min(3, most_stages(name)))
    for operand, inst in flows(placement):
        before, after = (ORDER.index(placement.phase[each]) for each in (operand, inst))
        assert before <= after, (operand, inst)
        if inst not in program.sums and before == after < ORDER.index("after"):
            down = placement.stage[inst] - placement.stage[operand]
            assert down >= 0 if placement.phase[inst] == "forward" else down <= 0, (operand, inst)


@pytest.mark.parametrize("name", STEPS)
def test_what_differs_and_is_not_cheap_has_one_place(name: str) -> None:
    program, placement = cut(name, min(3, most_stages(name)))
    assert set(placement.stage) == set(placement.phase)
    heavy = [i for i in program.module.entry.instructions if i.opcode in ("dot", "convolution", "while")]
    assert all(inst in placement.phase for inst in heavy if inst in program.varying)
    if not list(program.module.of_opcodes("while")):
        forward = {stage for inst, stage in placement.stage.items() if placement.phase[inst] == "forward"}
        assert forward == {0, 1, 2}


def test_layers_of_equal_work_are_spread_evenly() -> None:
    program, placement = cut("mlp", 4)
    dots = [i for i in program.module.entry.instructions if i.opcode == "dot"]
    for phase in ("forward", "backward"):
        stages = [placement.stage[inst] for inst in dots if placement.phase[inst] == phase]
        assert set(stages) == {0, 1, 2, 3}
    assert sorted(placement.stage[inst] for inst in dots if placement.phase[inst] == "forward") == [0, 1, 2, 3]


def test_loops_weigh_what_their_bodies_take() -> None:
    program, placement = cut("recurrent", 2)
    loops = [i for i in program.module.entry.instructions if i.opcode == "while"]
    assert [placement.stage[loop] for loop in loops if placement.phase[loop] == "forward"] == [0, 1]


def test_a_mask_scaled_first_of_all_does_not_begin_the_backward_pass() -> None:
    """The labels' part of the gradient needs no forward pass, and stands before it."""
    program, placement = cut("labelled", 4)
    dots = [i for i in program.module.entry.instructions if i.opcode == "dot"]
    assert {placement.phase[dot] for dot in dots[:4]} == {"forward"}
    assert len({placement.stage[dot] for dot in dots[:4]}) > 2


def test_parameters_lie_where_they_are_read() -> None:
    program, placement = cut("mlp", 4)
    weights = [p for p in program.module.entry.parameters if p not in program.varying]
    assert [placement.home[weight] for weight in weights] == [0, 1, 2, 3]


def test_a_layer_that_is_computed_again_is_in_one_stage() -> None:
    """Three layers for two stages: the middle one, whose backward pass reads all of it, goes to one of them whole."""

    def loss(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        layer = jax.checkpoint(lambda pair, x: jnp.tanh(jnp.tanh(x @ pair[0]) @ pair[1]))
        for pair in weights:
            x = layer(pair, x)
        return (x**2).sum()

    weights = [tuple(normal(2 * n + k, 64, 64) for k in range(2)) for n in range(3)]
    module = hs.trace(jax.grad(loss))(weights, normal(9, 32, 64))
    program = cut_microbatches(module, {len(module.entry.parameters) - 1: 0}, 2)
    home = place_stages(program, 2, seconds_of(program.module, machines.h100(2))).home
    stages = [home[parameter] for parameter in program.module.entry.parameters[:6]]
    assert stages[0::2] == stages[1::2]
    assert set(stages) == {0, 1}


def test_layers_lie_where_they_are_wanted_whatever_the_loss_takes() -> None:
    """What a layer keeps for its backward pass stands behind all else of it, and stays with it."""

    def loss(stack: jax.Array, output: jax.Array, x: jax.Array) -> jax.Array:
        keep = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
        layer = jax.checkpoint(lambda w, x: x + jnp.tanh(jnp.tanh(x @ w[0]) @ w[1]), policy=keep, prevent_cse=False)
        x, _ = jax.lax.scan(lambda x, w: (layer(w, x), None), x, stack)
        return ((x @ output) ** 2).sum()

    shapes = (8, 2, 1024, 1024), (1024, 8192), (8192, 1024)
    given = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in shapes]
    planner = Planner(hs.trace(jax.grad(loss, argnums=(0, 1)))(*given), ["x"], ["stack", "output"])
    pipeline = planner.pipeline(Plan(1, 1, 8, 8, even=True), machines.h100(8))
    makers = pipeline.makers
    sent = [[n for n in piece.reads if n in makers and makers[n].stage != piece.stage] for piece in pipeline.pieces]
    assert max(map(len, sent)) == 1


def test_a_stage_without_work_is_refused_with_the_op_that_leaves_it_empty() -> None:
    with pytest.raises(
        ScheduleError, match=r"fills 2 of 4 stages: %while[.\d]* \(while, 4 trips\) is in one; at training_steps.py"
    ):
        cut("scanned_layers", 4)


@pytest.mark.parametrize("name", [name for name in STEPS if name != "inference"])
def test_passes_of_weights_are_what_no_other_stage_waits_for(name: str) -> None:
    program, whole = cut(name, 2)
    placement = place_stages(program, 2, seconds_of(program.module, machines.h100(2)), splits_backward=True)
    assert placement.stage == whole.stage
    assert {i for i in whole.phase if placement.phase[i] != whole.phase[i]} == {
        i for i, phase in placement.phase.items() if phase == "weights"
    }
    for operand, inst in flows(placement):
        if placement.phase[operand] == "weights":
            assert placement.phase[inst] == "weights" or inst in program.after
            assert placement.stage[operand] == placement.stage[inst] or inst in program.after


def test_a_step_without_a_backward_pass_is_not_split() -> None:
    program, _ = cut("inference", 2)
    with pytest.raises(ScheduleError, match="no backward pass"):
        place_stages(program, 2, seconds_of(program.module, machines.h100(2)), splits_backward=True)


def test_more_stages_than_ops_are_refused() -> None:
    x = jnp.ones((4, 4))
    program = cut_microbatches(hs.trace(lambda x: x @ x.T)(x), {}, 1)
    with pytest.raises(ScheduleError, match="take fewer stages"):
        place_stages(program, 9, seconds_of(program.module, machines.h100(9)))
