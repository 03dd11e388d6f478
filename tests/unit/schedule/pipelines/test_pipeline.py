"""A pipeline's pieces in any order compute the same; priced without a schedule they cost what the schedule does."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from hlosharding.errors import ScheduleError
from hlosharding.ir import Shape
from hlosharding.schedule import ORDERS, Closing, Piece, Pipeline, PipelineRuns, UserOp, ValueType, device_orders
from tests.support.uniform_pipelines import machine, pipeline

WEIGHT, ROWS = Shape.array("f32", (3, 3)), Shape.array("f32", (8, 3))


def ops() -> dict[str, UserOp]:
    """A linear layer by hand, its two gradients, and an update."""
    return {
        "forward": UserOp("forward", lambda w, x: x, lambda w, x: x @ w, seconds=1.0),
        "backward": UserOp(
            "backward", lambda w, x, d: [x, w], lambda w, x, d: [d @ w.T, x.T @ d], seconds=2.0, sums=(1,)
        ),
        "inputs": UserOp("inputs", lambda w, d: d, lambda w, d: d @ w.T, seconds=1.0),
        "weights": UserOp("weights", lambda x, d, w: w, lambda x, d, w: x.T @ d, seconds=1.0, sums=(0,)),
        "update": UserOp("update", lambda w, d: w, lambda w, d: w - 0.1 * d, seconds=0.5, donates=(0,)),
    }


def training(p: int, chunks: int = 1, *, split_backward: bool = False) -> Pipeline:
    """Linear layers, one a stage; the loss is half the sum of squares."""
    op, pieces, closings = ops(), list[Piece](), list[Closing]()
    stages = p * chunks
    for s in range(stages):
        pieces.append(Piece("forward", s, op["forward"], (f"w{s}", f"x{s}"), (f"x{s + 1}",)))
        d = f"d{s + 1}" if s + 1 < stages else f"x{stages}"
        if split_backward:
            pieces.append(Piece("backward", s, op["inputs"], (f"w{s}", d), (f"d{s}",)))
            pieces.append(Piece("weights", s, op["weights"], (f"x{s}", d, f"w{s}"), (f"g{s}",)))
        else:
            pieces.append(Piece("backward", s, op["backward"], (f"w{s}", f"x{s}", d), (f"d{s}", f"g{s}")))
        closings.append(Closing(op["update"], (f"w{s}", f"g{s}"), (f"new{s}",), (s % p,)))
    inputs = {f"w{s}": ValueType(WEIGHT, (s % p,)) for s in range(stages)} | {"x0": ValueType(ROWS, (0,))}
    results = [(f"new{s}", 0) for s in range(stages)]
    devices = [(s % p,) for s in range(stages)]
    return Pipeline(devices, pieces, inputs, batch={"x0": 0}, closings=closings, results=results)


def arrays(stages: int) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return [random.normal(size=(3, 3)).astype(np.float32) * 0.5 for _ in range(stages)] + [
        random.normal(size=(8, 3)).astype(np.float32)
    ]


def by_hand(stages: int) -> list[np.ndarray]:
    *weights, x = arrays(stages)
    values = [x]
    for w in weights:
        values.append(values[-1] @ w)
    d, updated = values[-1], []
    for w, before in zip(reversed(weights), reversed(values[:-1]), strict=True):
        updated.append(w - 0.1 * before.T @ d)
        d = d @ w.T
    return updated[::-1]


CASES = [
    ("gpipe", 2, 1, 4),
    ("gpipe", 4, 1, 2),
    ("1f1b", 2, 1, 8),
    ("1f1b", 4, 1, 4),
    ("1f1b", 2, 2, 4),
    ("zb-h1", 4, 1, 4),
    ("breadth-first", 2, 2, 2),
]


@pytest.mark.parametrize(("name", "p", "chunks", "microbatches"), CASES)
def test_every_order_trains_like_one_device(name: str, p: int, chunks: int, microbatches: int) -> None:
    made = training(p, chunks, split_backward=name == "zb-h1").schedule(name, microbatches)
    for found, expected in zip(made.run_reference(*arrays(p * chunks)), by_hand(p * chunks), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "p", "chunks", "microbatches"), CASES)
def test_priced_without_a_schedule_it_costs_the_same(name: str, p: int, chunks: int, microbatches: int) -> None:
    cut, where = training(p, chunks, split_backward=name == "zb-h1"), machine(p, latency=0.25)
    recorded, written = (
        PipelineRuns(where).simulate(cut, name, microbatches),
        cut.schedule(name, microbatches).simulate(where),
    )
    assert recorded.time_s == written.time_s
    assert [use[1:] for use in recorded.usage] == [use[1:] for use in written.usage]


@pytest.mark.parametrize("name", ORDERS)
def test_every_pass_of_every_microbatch_runs_once(name: str) -> None:
    found = [action for device in device_orders(name, p=4, m=8) for action in device]
    assert len(found) == len(set(found))
    kinds = {"forward": 1, "gpipe": 2, "1f1b": 2, "breadth-first": 2, "zb-h1": 3}
    assert len(found) == 4 * 8 * kinds[name]


def test_a_device_goes_through_its_microbatches_in_order() -> None:
    for device in device_orders("1f1b", p=4, m=8):
        for kind in ("forward", "backward"):
            numbers = [action.microbatch for action in device if action.kind == kind]
            assert all(a < b for a, b in pairwise(numbers))


@pytest.mark.parametrize(
    ("name", "p", "m", "v", "message"),
    [
        ("2f2b", 2, 2, 1, "no schedule '2f2b'"),
        ("gpipe", 2, 2, 2, "has one stage a device"),
        ("1f1b", 4, 6, 2, "take a multiple of 4"),
        ("1f1b", 0, 1, 1, "a pipeline of 0 devices"),
    ],
)
def test_what_an_order_cannot_do_is_refused(name: str, p: int, m: int, v: int, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        device_orders(name, p, m, v)


def test_a_name_says_how_many_stages_a_device_has() -> None:
    cut = training(2, chunks=2)
    assert str(cut.schedule("1f1b-x2", 4)) == str(cut.schedule("1f1b", 4))
    with pytest.raises(ScheduleError, match="1f1b-x3 of a pipeline with 2 stages a device; take 1f1b"):
        cut.schedule("1f1b-x3", 4)
    with pytest.raises(ScheduleError, match="no schedule '1f1b-x0'"):
        cut.schedule("1f1b-x0", 4)


@pytest.mark.parametrize(
    ("name", "splits", "message"),
    [("forward", False, "forward has no backward passes.*take 1f1b"), ("gpipe", True, "no weights passes.*take zb-h1")],
)
def test_passes_that_an_order_has_not_are_named(name: str, splits: bool, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        training(2, split_backward=splits).schedule(name, 2)


def test_stages_that_wait_for_each_other_are_refused() -> None:
    step = UserOp("step", lambda x: x)
    pieces = [Piece("forward", 0, step, ("b",), ("a",)), Piece("forward", 1, step, ("a",), ("b",))]
    circle = Pipeline([(0,), (1,)], pieces, {}, results=[("a", 0)])
    with pytest.raises(ScheduleError, match="the devices wait for each other"):
        circle.schedule("forward", 1)


def test_two_pieces_that_make_one_value_are_refused() -> None:
    step = UserOp("step", lambda x: x)
    pieces = [Piece("forward", n, step, ("x0",), ("y",)) for n in range(2)]
    with pytest.raises(ScheduleError, match="two pieces make 'y'"):
        Pipeline([(0,), (1,)], pieces, {"x0": ValueType(ROWS, (0,))}, batch={"x0": 0}).schedule("forward", 2)


def test_unequal_stages_of_gpipe_take_the_published_time() -> None:
    """sum f + sum b + (m-1)(max f + max b)."""
    f, b, m = [1.0, 3.0, 2.0], [2.0, 5.0, 1.0], 6
    found = pipeline(3, m, f, b).schedule("gpipe", m).simulate(machine(3))
    assert found.time_s == pytest.approx(sum(f) + sum(b) + (m - 1) * (max(f) + max(b)), rel=1e-12)


def test_labels_do_not_wait_for_later_passes_of_the_first_stage() -> None:
    """Where the last stage reads examples, and what the first one makes, too, 1F1B of equal stages takes as long as
    without: m + p - 1 passes forward and back (Narayanan et al. 2021)."""
    p, m = 4, 8
    plain = training(p)
    first = UserOp("first", lambda w, x: [x, x], lambda w, x: [x @ w, x], seconds=1.0)
    last = UserOp("last", lambda w, x, y, mask: x, lambda w, x, y, mask: x @ w, seconds=1.0)
    changed = {
        plain.pieces[0]: Piece("forward", 0, first, ("w0", "x0"), ("x1", "mask")),
        plain.makers[f"x{p}"]: Piece("forward", p - 1, last, (f"w{p - 1}", f"x{p - 1}", "y", "mask"), (f"x{p}",)),
    }
    labelled = replace(
        plain,
        pieces=[changed.get(piece, piece) for piece in plain.pieces],
        inputs={**plain.inputs, "y": ValueType(ROWS, (0,))},
        batch={**plain.batch, "y": 0},
    )
    found = labelled.schedule("1f1b", m).simulate(machine(p)).time_s
    assert found == pytest.approx((m + p - 1) * (1 + 2) + 0.5, rel=1e-3)
