"""The programs of all ranks, run together: as one device computes, in whichever order they take turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain, repeat
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlosharding as hs
from hlosharding.errors import ScheduleError
from hlosharding.schedule import (
    Op,
    RankProgram,
    Ref,
    Schedule,
    ScheduleBuilder,
    StageProgram,
    UserOp,
    ValueType,
    parse_schedule,
    pipelined,
    run_ranks,
)
from hlosharding.schedule.value_type import parse_type
from hlosharding.sharding import HloSharding
from tests.support import mlp_ops

ROWS = {"pipeline": 4, "checkpointing": 8, "zero": 4}
W = jax.ShapeDtypeStruct((16, 16), jnp.float32)


@cache
def figure(name: str) -> Schedule:
    return parse_schedule((mlp_ops.FIGURES / f"{name}.txt").read_text(), mlp_ops.ops(ROWS[name]))


def rows(count: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((count, 16), jnp.float32)


def close(found: Sequence[np.ndarray], expected: Sequence[Any]) -> None:
    assert len(found) == len(expected)
    for array, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(array, right, rtol=1e-5, atol=1e-5)


def same(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    for array, right in zip(found, expected, strict=True):
        np.testing.assert_array_equal(array, right)


# Whole figures


@pytest.mark.parametrize("name", ROWS)
def test_all_ranks_of_a_figure_do_what_one_device_does(name: str) -> None:
    schedule = figure(name)
    found = run_ranks(schedule.ranks(), *mlp_ops.arrays())
    close(found, mlp_ops.one_device())
    same(found, schedule.run_reference(*mlp_ops.arrays()))


@settings(max_examples=15)
@given(name=st.sampled_from(["pipeline", "zero"]), seed=st.integers(0, 1 << 32), some=st.integers(0, 60))
def test_the_order_of_turns_changes_no_result(name: str, seed: int, some: int) -> None:
    random = Random(seed)
    turns = chain(repeat(1, some), iter(lambda: random.choice([0, 1, 1, 1]), None))
    found = run_ranks(figure(name).ranks(), *mlp_ops.arrays(), turns=turns)
    same(found, run_ranks(figure(name).ranks(), *mlp_ops.arrays()))


def step(w: Any, x: Any, y: Any) -> Any:
    """A training step of four layers."""

    def loss(w: Any) -> Any:
        return mlp_ops.loss(mlp_ops.dense(w[3], mlp_ops.dense(w[2], mlp_ops.dense(w[1], mlp_ops.dense(w[0], x)))), y)

    return [mlp_ops.update(w, g) for w, g in zip(w, jax.grad(loss)(w), strict=True)]


ON_TWO = {
    "one device a stage": (None, None),
    "tensor parallel stages": (["{devices=[1,2]<=[2]}", "{devices=[2,1]<=[2]}"] * 2, "{replicated}"),
    "data parallel stages": (["{replicated}"] * 4, "{devices=[2,1]<=[2]}"),
}


@pytest.mark.parametrize("order", ["gpipe", "1f1b"])
@pytest.mark.parametrize("name", ON_TWO)
def test_a_training_step_cut_into_stages(name: str, order: str) -> None:
    weights, batch = ON_TWO[name]
    random = np.random.default_rng(0)
    w = [random.normal(size=(16, 16)).astype(np.float32) for _ in range(4)]
    x, y = (random.normal(size=(8, 16)).astype(np.float32) for _ in range(2))
    shardings = None if weights is None else (weights, batch, batch)
    module = hs.trace(step, in_shardings=shardings)(w, x, y)
    schedule = pipelined(module, batch=["x", "y"], stages=2, microbatches=4, schedule=order)
    found = run_ranks(schedule.ranks(), *w, x, y)
    close(found, step(w, x, y))
    # Terms of a sum that lie on two devices are added in another order than their wholes.
    close(found, schedule.run_reference(*w, x, y))
    last = max(schedule.devices)
    alone = schedule.rank(last)
    assert [r.shape for r in alone.run_alone().results] == [tile.shape.dims for tile in alone.results]


# Submeshes


def tensor_parallel(word: str, function: Callable[..., Any], *arrays: Any, shardings: Sequence[str]) -> StageProgram:
    return StageProgram.of(word, function, *arrays, in_shardings=tuple(shardings))


COLUMNS, HALVES = "{devices=[1,2]<=[2]}", "{devices=[2,1]<=[2]}"


def moved(b: ScheduleBuilder, value: Ref, op: StageProgram, number: int, devices: tuple[int, ...]) -> Ref:
    return b.send(value, devices, op.inputs[number].sharding)


def test_stages_that_are_tensor_parallel_each_on_its_submesh() -> None:
    first = tensor_parallel("first", mlp_ops.dense, W, rows(4), shardings=(COLUMNS, "{replicated}"))
    second = tensor_parallel("second", mlp_ops.dense, W, rows(4), shardings=(HALVES, COLUMNS))
    assert second.tied == ((0, 1),)
    b = ScheduleBuilder()
    x = b.parameter("x", first.inputs[1].shape.with_dims((8, 16)), (0, 1))
    weights = [b.parameter(f"w{n}", op.inputs[0].shape, (2 * n, 2 * n + 1), op.inputs[0].sharding)
               for n, op in enumerate((first, second))]  # fmt: skip
    results: list[Ref] = []
    for piece in b.split(x, 2):
        [made] = b.run(first, weights[0], piece)
        results += b.run(second, weights[1], moved(b, made, second, 1, (2, 3)))
    schedule = b.finish(b.concat(*results))
    w1, w2, array, _ = mlp_ops.arrays()
    expected = mlp_ops.dense(w2, mlp_ops.dense(w1, array))
    found = run_ranks(schedule.ranks(), array, w1, w2)
    close(found, [expected])
    same(found, schedule.run_reference(array, w1, w2))
    close(run_ranks(schedule.ranks(), array, w1, w2, turns=[3, 3, 2, 0, 1, 1, 0, 3]), [expected])


LAYOUTS = [
    "f32[7,6] on {0}",
    "f32[7,6] on {0-2}",
    "f32[7,6] on {0-3} as {devices=[4,1]<=[4]}",
    "f32[7,6] on {0-3} as {devices=[2,2]<=[2,2]T(1,0)}",
    "f32[7,6] on {0-5} as {devices=[2,3]<=[6]}",
    "f32[7,6] on {0-8} as {devices=[9,1]<=[9]}",
    "f32[7,6] on {0-5} as {devices=[1,3,2]<=[6] last_tile_dim_replicate}",
]


@pytest.mark.parametrize("source", LAYOUTS)
@pytest.mark.parametrize("target", LAYOUTS)
def test_a_send_to_a_submesh_of_another_size_in_another_sharding(source: str, target: str) -> None:
    departed, arrived = parse_type(source), parse_type(target)
    b = ScheduleBuilder()
    x = b.parameter("x", departed.shape, departed.devices, departed.sharding)
    devices = tuple(range(20, 20 + len(arrived.devices)))
    schedule = b.finish(b.send(x, devices, arrived.sharding))
    array = np.arange(42, dtype=np.float32).reshape(7, 6)
    same(run_ranks(schedule.ranks(), array), [array])


DOUBLE = UserOp("double", lambda x: x, lambda x: 2 * x)


@settings(max_examples=40)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_values_that_wander_and_meet(data: st.DataObject, seed: int) -> None:
    """Values of which each is a multiple of x, wherever and however they lie."""
    shape = parse_type(LAYOUTS[0]).shape
    b = ScheduleBuilder()
    values: list[tuple[Ref, int]] = [(b.parameter("x", shape, (0,)), 1)]
    for _ in range(data.draw(st.integers(1, 8))):
        value, factor = data.draw(st.sampled_from(values))
        others = [(other, f) for other, f in values if (other.type == value.type and other is not value)]
        match data.draw(st.sampled_from(["send", "double", "add" if others else "send"])):
            case "send":
                layout = parse_type(data.draw(st.sampled_from(LAYOUTS)))
                devices = range(30)
                free = [d for d in devices if d not in value.type.devices]
                first = data.draw(st.integers(0, len(free) - len(layout.devices)))
                values.append((b.send(value, free[first : first + len(layout.devices)], layout.sharding), factor))
            case "double":
                values.append((b.run(DOUBLE, value)[0], 2 * factor))
            case _:
                other, more = data.draw(st.sampled_from(others))
                values = [each for each in values if each[0] is not value]
                values.append((b.add(value, other), factor + more))
    schedule = b.finish(*(value for value, _ in values))
    random, ranks = Random(seed), schedule.ranks()
    turns = (random.choice(list(ranks)) for _ in range(random.randrange(2000)))
    array = np.arange(42, dtype=np.float32).reshape(7, 6)
    same(run_ranks(ranks, array, turns=turns), [factor * array for _, factor in values])


COLLECTIVES = """
func @main(%w: f32[16,16] on {0-1} as {devices=[1,2]<=[2]}, %v: f32[16,16] on {2-3} as {devices=[1,2]<=[2]},
           %x: f32[8,16] on {0-1}) {
  %x_1, %x_f = split(%x) dim=0 parts=2 axis=data
  %x_2 = send(%x_f) to={2-3}
  %dw_1 = @grad(%w, %x_1)
  %dw_2 = @grad(%v, %x_2)
  %all_1, %all_2 = all-reduce(%dw_1, %dw_2)
  %own_1, %own_2 = reduce-scatter(%dw_1, %dw_2) dim=0 axis=owner
  %w_1, %w_2 = all-gather(%own_1, %own_2) dim=0
  %one = reduce(%dw_1, %dw_2) to={2-3}
  return %all_1, %all_2, %w_1, %w_2, %one
}
"""


def test_collectives_between_tensor_parallel_replicas() -> None:
    def grad(w: Any, x: Any) -> Any:
        return jax.grad(lambda w: jnp.sum(mlp_ops.dense(w, x) ** 2))(w)

    op = StageProgram.of("grad", grad, W, rows(4), in_shardings=(COLUMNS, "{replicated}"), out_shardings=COLUMNS,
                         sums=(0,))  # fmt: skip
    schedule = parse_schedule(COLLECTIVES, {"grad": op})
    w, _, x, _ = mlp_ops.arrays()
    found = run_ranks(schedule.ranks(), w, w, x)
    close(found, [grad(w, x)] * 5)
    same(found, schedule.run_reference(w, w, x))


def test_members_that_no_collective_ties_do_not_wait_for_each_other() -> None:
    mesh = "{devices=[2,2]<=[4]}"
    op = StageProgram.of(
        "m",
        lambda x, w: x @ w,
        rows(4),
        W,
        in_shardings=(mesh, "{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}"),
    )
    assert op.tied == ((0, 1), (2, 3))
    b = ScheduleBuilder()
    operands = [
        b.parameter(n, array.shape, (4, 5, 6, 7), array.sharding) for n, array in zip("xw", op.inputs, strict=True)
    ]
    schedule = b.finish(*b.run(op, *operands))
    w, _, x, _ = mlp_ops.arrays()
    close(run_ranks(schedule.ranks(), x[:4], w), [x[:4] @ w])


def test_an_op_of_a_users_on_tiles_is_done_on_the_whole() -> None:
    def types(x: ValueType) -> ValueType:
        return x

    softmax = UserOp("softmax", types, lambda x: np.exp(x) / np.exp(x).sum())
    kind = HloSharding.parse("{devices=[2]<=[2]}")
    b = ScheduleBuilder()
    x = b.parameter("x", parse_type("f32[6] on {0}").shape, (0, 1), kind)
    schedule = b.finish(*b.run(softmax, x))
    array = np.arange(6, dtype=np.float32)
    close(run_ranks(schedule.ranks(), array), [jax.nn.softmax(array)])


# Programs that do not fit together


def edited(program: RankProgram, edit: Callable[[list[Any]], None]) -> RankProgram:
    steps: list[Any] = list(program.steps)
    edit(steps)
    return replace(program, steps=tuple(steps))


def place(steps: Sequence[Any], text: str) -> int:
    [found] = [n for n, step in enumerate(steps) if str(step).startswith(text)]
    return found


def refused(schedule: Schedule, edits: dict[int, Callable[[list[Any]], None]], *arrays: Any) -> str:
    programs = schedule.ranks()
    for device, edit in edits.items():
        programs[device] = edited(programs[device], edit)
    with pytest.raises(ScheduleError) as caught:
        run_ranks(programs, *arrays)
    return str(caught.value)


def swap(one: str, other: str) -> Callable[[list[Any]], None]:
    def edit(steps: list[Any]) -> None:
        a, b = place(steps, one), place(steps, other)
        steps[a], steps[b] = steps[b], steps[a]

    return edit


def drop(text: str) -> Callable[[list[Any]], None]:
    def edit(steps: list[Any]) -> None:
        del steps[place(steps, text)]

    return edit


def clear(steps: list[Any]) -> None:
    steps.clear()


def test_a_send_without_its_receive() -> None:
    message = refused(figure("pipeline"), {1: clear}, *mlp_ops.arrays())
    assert "a rank waits for one that has come to its end" in message
    assert "at `send(%as_1) to=1 as=%ar_1` of rank 0 (line 6), the end of rank 1" in message
    assert "give each send its receive" in message


def test_transfers_of_a_pair_in_different_orders() -> None:
    message = refused(figure("pipeline"), {0: swap("send(%as_1)", "send(%as_2)")}, *mlp_ops.arrays())
    assert "%ar_2 is sent where %ar_1 is received" in message
    two = """
    func @main(%x: f32[2] on {0}, %y: f32[2] on {0}) {
      %a = send(%x) to={1}
      %b = send(%y) to={1}
      return %a, %b
    }"""
    message = refused(parse_schedule(two), {1: swap("%a", "%b")}, [1, 2], [3, 4])
    assert "%a is sent where %b is received" in message
    assert "at `send(%x) to=1 as=%a` of rank 0 (line 3), `%b = receive() from=0 : f32[2]` of rank 1 (line 4)" in message
    assert "in one order" in message


def test_two_ranks_that_wait_for_each_other() -> None:
    both = """
    func @main(%x: f32[2] on {0}, %y: f32[2] on {1}) {
      %a = send(%x) to={1}
      %b = send(%y) to={0}
      return %a, %b
    }"""
    message = refused(parse_schedule(both), {1: swap("%a", "send(%y)")}, [1, 2], [3, 4])
    assert message == (
        "ranks wait for each other; at `send(%x) to=1 as=%a` of rank 0 (line 3), "
        "`send(%y) to=0 as=%b` of rank 1 (line 4); put what they exchange into one order"
    )


MEETINGS = """
func @main(%x: f32[4] on {0}, %y: f32[4] on {1}) {
  %dx = @grad(%x)
  %dy = @grad(%y)
  %a, %b = all-gather(%dx, %dy) dim=0
  %c, %d = all-gather(%x, %y) dim=0
  return %a, %b, %c, %d
}
"""


def test_different_ops_where_ranks_meet() -> None:
    grad = UserOp("grad", lambda x: x, lambda x: 2 * x)
    ops: dict[str, Op] = {"grad": grad}
    schedule = parse_schedule(MEETINGS, ops)
    x, y = np.arange(4), np.arange(4, 8)
    both = np.concatenate([x, y])
    close(run_ranks(schedule.ranks(), x, y), [2 * both, 2 * both, both, both])
    message = refused(schedule, {1: swap("%b =", "%d =")}, x, y)
    assert "they meet for different ops" in message
    assert "`%a = all-gather(%dx) dim=0 member=0 of={0,1} : f32[8]` of rank 0 (line 5)" in message
    assert "`%d = all-gather(%y) dim=0 member=1 of={0,1} as=%c : f32[8]` of rank 1 (line 6)" in message


def test_one_of_a_group_that_does_not_come() -> None:
    ops: dict[str, Op] = {"grad": UserOp("grad", lambda x: x, lambda x: 2 * x)}
    message = refused(parse_schedule(MEETINGS, ops), {1: drop("%d =")}, np.arange(4), np.arange(4))
    assert "a rank waits for one that has come to its end" in message
    assert "the end of rank 1" in message


def test_a_tile_of_another_shape() -> None:
    def smaller(steps: list[Any]) -> None:
        n = place(steps, "%ar_1 = receive")
        steps[n] = replace(steps[n], shape=steps[n].shape.with_dims((2, 16)))

    message = refused(figure("pipeline"), {1: smaller}, *mlp_ops.arrays())
    assert "float32[4, 16] is sent where f32[2,16] is received" in message


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (drop("%as_1 ="), "%as_1 is not there; at `send(%as_1) to=1 as=%ar_1` of rank 0"),
        (lambda steps: steps.insert(1, steps[0]), "%x_1 is defined twice"),
    ],
)
def test_a_rank_that_contradicts_itself(edit: Callable[[list[Any]], None], message: str) -> None:
    assert message in refused(figure("pipeline"), {0: edit}, *mlp_ops.arrays())


def test_overwritten_and_freed_tiles_are_gone() -> None:
    def again(steps: list[Any]) -> None:
        steps.append(replace(steps[-1], makes=("more",)))

    assert "%w1 is not there" in refused(figure("pipeline"), {0: again}, *mlp_ops.arrays())


def test_programs_of_all_ranks_are_needed_and_all_arrays() -> None:
    programs = figure("pipeline").ranks()
    with pytest.raises(ScheduleError, match="rank 1 has no program; at rank 0, which meets it"):
        run_ranks({0: programs[0]}, *mlp_ops.arrays()[:3])
    with pytest.raises(ScheduleError, match="the program of rank 1 is given as that of rank 0"):
        run_ranks({0: programs[1], 1: programs[0]}, *mlp_ops.arrays())
    with pytest.raises(ScheduleError, match="3 arrays for 4 parameters"):
        run_ranks(programs, *mlp_ops.arrays()[:3])
    with pytest.raises(ScheduleError, match=r"an array of shape \[2\] for f32\[16,16\]"):
        run_ranks(programs, [1, 2], *mlp_ops.arrays()[1:])
