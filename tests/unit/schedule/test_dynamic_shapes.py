"""Figure 4 of the DistIR paper: a shape that the program computes, known where the rest is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from hlosharding.cost import machines
from hlosharding.errors import ScheduleError
from hlosharding.ir import Shape
from hlosharding.schedule import (
    Known,
    Op,
    Schedule,
    ScheduleBuilder,
    UserOp,
    ValueType,
    parse_schedule,
    run_ranks,
)
from hlosharding.schedule.interpreter import Names, Observer, interpret
from hlosharding.schedule.op import Value
from hlosharding.schedule.steps import Apply, Function, Parameter
from tests.support.mlp_ops import FIGURES


def shape(x: ValueType) -> Known:
    return Known(np.array(x.shape.dims), ValueType(Shape.array("s32", (x.shape.rank,)), x.devices))


def reshape(x: ValueType, to: Known) -> ValueType:
    """As ONNX's Reshape: -1 stands for the size that is left."""
    dims = to.array.tolist()
    left = x.shape.size // -int(np.prod(dims)) if -1 in dims else 0
    return replace(x, shape=x.shape.with_dims(tuple(left if size == -1 else size for size in dims)))


def gemm(x: ValueType, w: ValueType) -> ValueType:
    return replace(x, shape=x.shape.with_dims((x.shape.dims[0], w.shape.dims[1])))


def scalar(x: ValueType, _: ValueType) -> ValueType:
    return replace(x, shape=x.shape.with_dims(()))


OPS: dict[str, Op] = {
    op.word: op
    for op in (
        UserOp("shape", shape, lambda x: np.array(x.shape)),
        UserOp("gather", scalar, lambda x, n: x[n]),
        UserOp("unsqueeze", lambda x: replace(x, shape=x.shape.with_dims((1,))), lambda x: x[None]),
        UserOp("reshape", reshape, lambda x, to: x.reshape(to), static=(1,)),
        UserOp("gemm", gemm, np.matmul, seconds=lambda x, w: x.shape.dims[0] * 1e-6),
    )
}
TEXT = (FIGURES / "dynamic_shapes.txt").read_text()


def arrays() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.normal(size=size).astype(np.float32) for size in ((256, 8, 768), (256, 8, 768), (768, 16))]


def one_device() -> np.ndarray:
    x, y, w = arrays()
    return np.asarray(jax.jit(lambda x, y, w: (x + y).reshape(-1, x.shape[2]) @ w)(x, y, w))


class Seen(Observer):
    """What the figure shows beside each line."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_apply(self, step: Apply, function: str, operands: Names, results: Names, made: Sequence[Value]) -> None:
        self.lines += [f"%{name}: {value}" for name, value in zip(step.results, made, strict=True)]


def test_what_is_known_is_what_the_figure_says() -> None:
    """Its right column."""
    seen = Seen()
    interpret(parse_schedule(TEXT, OPS).functions, observer=seen)
    assert seen.lines == [
        "%3114: s32[1] on {0} = [-1]",
        "%211: f32[256,8,768] on {0}",
        "%218: s32[3] on {0} = [256   8 768]",
        "%219: s32[] on {0} = 2",
        "%220: s32[] on {0} = 768",
        "%223: s32[1] on {0} = [768]",
        "%224: s32[2] on {0} = [ -1 768]",
        "%225: f32[2048,768] on {0}",
        "%226: f32[2048,16] on {0}",
    ]


def test_it_computes_what_one_device_does() -> None:
    schedule = parse_schedule(TEXT, OPS)
    runs: Sequence[Any] = (
        *schedule.run_reference(*arrays()),
        *schedule.compile()(*arrays()),
        *run_ranks(schedule.ranks(), *arrays()),
        *schedule.interpret(*arrays()),
    )
    for found in runs:
        np.testing.assert_allclose(np.asarray(found), one_device(), rtol=1e-4, atol=1e-4)


def test_its_cost_is_that_of_the_shape() -> None:
    assert parse_schedule(TEXT, OPS).simulate(machines.h100(1)).time_s == pytest.approx(2048e-6, rel=0.05)


def test_printed_and_read_again_it_is_the_same() -> None:
    schedule = parse_schedule(TEXT, OPS)
    assert str(parse_schedule(str(schedule), OPS)) == str(schedule)


def test_a_rank_alone_makes_its_constants() -> None:
    [found] = parse_schedule(TEXT, OPS).rank(0).run_alone(arrays()).results
    np.testing.assert_allclose(found, one_device(), rtol=1e-4, atol=1e-4)


def test_a_shape_that_only_some_runs_have() -> None:
    text = "func @main(%x: f32[4,6] on {0}, %to: s32[2] on {0}) {\n  %y = @reshape(%x, %to)\n  return %y\n}"
    with pytest.raises(ScheduleError, match=r"elements of operand 1 of @reshape are not known.* at line 2"):
        parse_schedule(text, OPS)


def test_a_shape_that_the_caller_gives() -> None:
    """The paper's mixture: of the first argument the shape, of the second the elements."""
    kinds = ValueType(Shape.array("f32", (4, 6)), (0,)), ValueType(Shape.array("s32", (2,)), (0,))
    parameters = tuple(map(Parameter, ("x", "to"), kinds))
    main = Function("main", parameters, (Apply(OPS["reshape"], ("x", "to"), ("y",)),), ("y",))
    [found] = Schedule({"main": main}, OPS).interpret(jax.ShapeDtypeStruct((4, 6), np.float32), [-1, 8])
    assert found == jax.ShapeDtypeStruct((3, 8), np.float32)


def test_built_in_python() -> None:
    """A reference of the builder knows its elements, too."""
    b = ScheduleBuilder()
    x = b.parameter("x", Shape.array("f32", (4, 6)), (0,))
    [sizes] = b.run(OPS["shape"], x)
    [last] = b.run(OPS["gather"], sizes, b.constant(1, (0,)))
    [row] = b.run(OPS["unsqueeze"], last)
    [y] = b.run(OPS["reshape"], x, b.concat(b.constant([-1], (0,)), row))
    [z] = b.run(OPS["reshape"], y, b.constant([3, 8], (0,)))
    assert str(row) == "%v3: s32[1] on {0} = [6]"
    schedule = b.finish(y, z)
    given = np.arange(24, dtype=np.float32).reshape(4, 6)
    for found, expected in zip(schedule.run_reference(given), (given, given.reshape(3, 8)), strict=True):
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(ScheduleError, match="operand 1 of @reshape are not known"):
        b.run(OPS["reshape"], x, b.parameter("to", Shape.array("s32", (2,)), (0,)))
