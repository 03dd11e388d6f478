"""The RFC's text: its MLP at every stage as the RFC prints it, and the collectives between any two shardings."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hlosharding as hs
from hlosharding.errors import ShardingError
from hlosharding.mesh_propagation.mesh_text import moves
from hlosharding.notations import AxisSharding
from hlosharding.sharding import Axes, Cluster
from hlosharding.xla_bridge import run_stablehlo
from tests.support.mesh_programs import MLP, program

X = hs.AxisAnnotation("arg0", "[[], [], [0]]")
PARTIAL = hs.AxisAnnotation("out", "[[], [], [], [0]]")
RESULT = hs.AxisAnnotation("out", "[[], [], [0]]", annotate_for_users=True)


def mlp(cluster: str = "2") -> hs.AxisPropagation:
    return hs.propagate_axes(program(MLP), cluster, annotations=[X, PARTIAL, RESULT])


def plain(text: str) -> str:
    """Without the attributes of ops but their option, and without names of results."""
    text = re.sub(r'hlo = "[^"]*"(, )?', "", text).replace(" {}", "")
    return re.sub(r"%\d+", "%", text)


SHARDED = {size: f"tensor<{size}xf32, #mesh.shard<{said}>>" for size, said in {"2x4x8": "[[], [], [0]]"}.items()}
HIDDEN = "tensor<2x4x32xf32, #mesh.shard<[[], [], [0]]>>"


def test_the_rfcs_program_after_materialization() -> None:
    x, w1, w2 = SHARDED["2x4x8"], "tensor<8x32xf32, #mesh.shard<[[], [0]]>>", "tensor<32x8xf32, #mesh.shard<[[0]]>>"
    partial = "tensor<2x4x8xf32, #mesh.shard<[[], [], [], [0]]>>"
    split = '{mesh_axis = [0], reduction = "sum", tensor_axis = 2 : i64}'
    assert plain(mlp().to_mesh_text("materialized")).splitlines() == [
        "mesh.cluster @mesh0(rank = 1, dim_sizes = [2])",
        "",
        f"func.func @test(%arg0: {x}, %arg1: {w1}, %arg2: {w2}) -> {x} attributes {{mesh_cluster = @mesh0}} {{",
        f"  % = mesh.all_gather %arg0 {{mesh_axis = [[], [], [0]], tensor_axis = [2]}} : {x} -> tensor<2x4x8xf32>",
        f'  % = "hlo.dot"(%, %arg1) {{sharding = [[], [], [0]]}} : (tensor<2x4x8xf32>, {w1}) -> {HIDDEN}',
        '  % = "hlo.constant"() : () -> tensor<2x4x32xf32>',
        f"  % = mesh.local_split % {{sharding = [[], [], [0]]}} : tensor<2x4x32xf32> -> {HIDDEN}",
        f'  % = "hlo.maximum"(%, %) {{sharding = [[], [], [0]]}} : ({HIDDEN}, {HIDDEN}) -> {HIDDEN}',
        f'  % = "hlo.dot"(%, %arg2) {{sharding = [[], [], [], [0]]}} : ({HIDDEN}, {w2}) -> {partial}',
        f"  % = mesh.reduce_scatter % {split} : {partial} -> {x}",
        f"  return % : {x}",
        "}",
    ]


ANNOTATIONS = [  # as the RFC lists them, but for the order of those that no op separates
    ("%arg0", "required = true, sharding = [[], [], [0]]", "2x4x8"),
    ("%0", "as_result = false, required = false, sharding = []", "2x4x8"),
    ("%arg1", "as_result = false, required = false, sharding = [[], [0]]", "8x32"),
    ("%3", "required = false, sharding = [[], [], [0]]", "2x4x32"),
    ("%5", "required = false, sharding = []", "2x4x32"),
    ("%4", "as_result = false, required = false, sharding = [[], [], [0]]", "2x4x32"),
    ("%6", "as_result = false, required = false, sharding = [[], [], [0]]", "2x4x32"),
    ("%9", "required = false, sharding = [[], [], [0]]", "2x4x32"),
    ("%10", "as_result = false, required = false, sharding = [[], [], [0]]", "2x4x32"),
    ("%arg2", "as_result = false, required = false, sharding = [[0]]", "32x8"),
    ("%13", "required = true, sharding = [[], [], [], [0]]", "2x4x8"),
    ("%14", "as_result = false, required = true, sharding = [[], [], [0]]", "2x4x8"),
]


def test_the_rfcs_program_after_annotation_completion() -> None:
    lines = mlp().to_mesh_text("annotated").splitlines()
    found = [line.split(" = ", 1)[1] for line in lines if "mesh.annotate" in line]
    kinds = [(value, said, f"tensor<{size}xf32>") for value, said, size in ANNOTATIONS]
    assert found == [f"mesh.annotate {value} {{{said}}} : {kind} -> {kind}" for value, said, kind in kinds]
    assert [line for line in lines if "return" in line] == ["  return %15 : tensor<2x4x8xf32>"]


def test_an_option_gives_the_text_that_the_annotation_gives() -> None:
    same = hs.propagate_axes(program(MLP), "8", annotations=[X, RESULT], options={"out": "[[], [], [], [0]]"})
    assert same.to_mesh_text("materialized") == mlp("8").to_mesh_text("materialized")


def test_sizes_need_not_be_known() -> None:
    assert mlp("?").to_mesh_text("materialized").replace(
        "rank = 1", "rank = 1, dim_sizes = [2]", 1
    ) == mlp().to_mesh_text("materialized")


@pytest.mark.parametrize("size", [2, 8])
@pytest.mark.parametrize("whole", [False, True])
def test_both_flavours_of_what_a_device_runs(size: int, whole: bool) -> None:
    local = hs.partition(mlp(str(size)).to_module(whole_arguments=whole), machine=hs.machines.h100(size))
    text = local.to_stablehlo_text()
    pieces = ["2x4x8", "8x32", "32x8"] if whole else [f"2x4x{8 // size}", f"8x{32 // size}", f"{32 // size}x8"]
    assert ", ".join(f"%arg{n}: tensor<{p}xf32>" for n, p in enumerate(pieces)) in text
    assert f"-> tensor<2x4x{8 // size}xf32>" in text
    assert "stablehlo.dynamic_slice" in text or not whole
    rng = np.random.default_rng(0)
    x, w1, w2 = (rng.standard_normal(dims, np.float32) for dims in ((2, 4, 8), (8, 32), (32, 8)))
    cut = [[a] * size if whole else np.split(a, size, dim) for a, dim in ((x, 2), (w1, 1), (w2, 0))]
    (outputs,) = run_stablehlo(text, cut, size)
    assert np.allclose(np.concatenate(outputs, 2), np.maximum(x @ w1, 0) @ w2, rtol=1e-4, atol=1e-4)


def test_loops_have_no_text() -> None:
    loop = """HloModule m
%body { %p = (s32[], f32[8]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %v = f32[8] get-tuple-element(%p), index=1
  %w = f32[8] negate(%v)
  ROOT %t = (s32[], f32[8]) tuple(%i, %w) }
%condition { %p = (s32[], f32[8]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  ROOT %c = pred[] compare(%i, %i), direction=LT }
ENTRY %main { %i = s32[] parameter(0)
  %x = f32[8] parameter(1)
  %t = (s32[], f32[8]) tuple(%i, %x)
  ROOT %w = (s32[], f32[8]) while(%t), condition=%condition, body=%body }"""
    found = hs.propagate_axes(hs.load(loop, format="hlo"), "2", annotations={"x": "[[0]]"})
    with pytest.raises(ShardingError, match="straight line"):
        found.to_mesh_text()


AXES = (0, 1, 2, 3)


@st.composite
def shardings(draw: st.DrawFn, partial: Axes = AXES) -> AxisSharding:
    """Of rank 2, axes in any order; partial along some of those that may be."""
    order = draw(st.permutations(AXES))
    places = draw(st.lists(st.integers(0, 3), min_size=4, max_size=4))
    of = [tuple(a for a, place in zip(order, places, strict=True) if place == n) for n in range(3)]
    return AxisSharding((of[0], of[1]), tuple(a for a in of[2] if a in partial))


@given(st.data())
def test_moves_lead_from_one_sharding_to_the_other(data: st.DataObject) -> None:
    made = data.draw(shardings())
    wanted = data.draw(shardings(made.partial))
    at = made
    for op, _, reached in moves(made, wanted, 2, Cluster.of("2x2x2x2")):
        LAWS[op](at, reached)
        at = reached
    assert (at.dims, sorted(map(str, at.partial))) == (wanted.dims, sorted(map(str, wanted.partial)))


def _gathered(before: AxisSharding, after: AxisSharding) -> None:
    """The minor-most axes go; all else stays."""
    assert set(before.partial) == set(after.partial)
    assert all(before.along(d)[: len(after.along(d))] == after.along(d) for d in range(2))


def _scattered(before: AxisSharding, after: AxisSharding) -> None:
    """What was partial is appended to a dim."""
    gone = set(before.partial) - set(after.partial)
    assert gone
    assert gone == set(after.axes) - set(after.partial) - {a for d in before.dims for a in d}
    _gathered(AxisSharding(after.dims), AxisSharding(before.dims))


def _reduced(before: AxisSharding, after: AxisSharding) -> None:
    assert before.dims == after.dims
    assert set(after.partial) < set(before.partial)


LAWS = {
    "all_gather": _gathered,
    "local_split": lambda before, after: _gathered(after, before),
    "reduce_scatter": _scattered,
    "all_reduce": _reduced,
}
