"""Collectives in all forms of groups: the program and the reference executor against live XLA on eight CPU devices."""

# ruff: noqa: E501  (HLO reads best with an instruction on one line)
from __future__ import annotations

import re

import numpy as np
import pytest

from hlosharding import xla_bridge
from hlosharding.errors import ExecutionError
from hlosharding.executor import ShardMapProgram, run_reference
from hlosharding.frontends.hlo import from_hlo_text
from hlosharding.ir import Module
from hlosharding.sharding import MeshInfo
from tests.unit.executor.op_cases import module_of, values

MESH = MeshInfo(("data", "model"), (2, 4))
GROUPS = {
    "all": "{{0,1,2,3,4,5,6,7}}",
    "model": "{{0,1,2,3},{4,5,6,7}}",
    "data": "{{0,4},{1,5},{2,6},{3,7}}",
    "half of model": "{{0,1},{2,3},{4,5},{6,7}}",
    "strided half": "{{0,2},{1,3},{4,6},{5,7}}",
    "data and half": "{{0,1,4,5},{2,3,6,7}}",
    "model before data": "{{0,4,1,5,2,6,3,7}}",
    "unsorted": "{{3,1,0,2},{4,7,5,6}}",
    "on no axis": "{{0,7},{1,6},{2,5},{3,4}}",
    "groups unsorted": "{{4,5,6,7},{0,1,2,3}}",
}
SHARDED = "sharding={devices=[8,1]<=[8]}"


def size(groups: str) -> int:
    return groups[2:].index("}") // 2 + 1


def bodies(groups: str) -> dict[str, str]:
    """One body per collective; every device holds f32[8,4] (s32, pred where it says so)."""
    g, ids = size(groups), f"replica_groups={groups}, channel_id=1, use_global_device_ids=true"
    return {
        "all-reduce": f"ROOT r = f32[8,4] all-reduce(x), {ids}, to_apply=add_f32, {SHARDED}",
        "all-reduce max": f"ROOT r = f32[8,4] all-reduce(x), {ids}, to_apply=max_f32, {SHARDED}",
        "all-reduce min": f"ROOT r = f32[8,4] all-reduce(x), {ids}, to_apply=min_f32, {SHARDED}",
        "all-gather": f"ROOT r = f32[{8 * g},4] all-gather(x), dimensions={{0}}, {ids}, {SHARDED}",
        "all-gather dim 1": f"ROOT r = f32[8,{4 * g}] all-gather(x), dimensions={{1}}, {ids}, {SHARDED}",
        "reduce-scatter": f"ROOT r = f32[{8 // g},4] reduce-scatter(x), dimensions={{0}}, {ids}, to_apply=add_f32, {SHARDED}",
        "all-to-all": f"ROOT r = f32[8,4] all-to-all(x), dimensions={{0}}, replica_groups={groups}, channel_id=1, {SHARDED}",
    }


def run_all_ways(
    module: Module, arguments: list[np.ndarray]
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray], str]:
    """Live XLA, the program, the reference executor; tiles of all devices stacked on dim 0."""
    tiles = [np.split(a, 8) for a in arguments]
    live = [np.concatenate(o) for o in xla_bridge.run_proto(module.to_hlo_proto(), tiles, 8)]
    program = ShardMapProgram(module)
    return live, program.run(*arguments), run_reference(module, arguments), program.source


def module_for(kind: str, body: str, mesh: MeshInfo | None) -> Module:
    module = module_of(f"x = {kind}[8,4] parameter(0), {SHARDED} {body}", 8)
    module.mesh = mesh
    return module


def stacked_values(module: Module) -> list[np.ndarray]:
    return [values(p.shape.with_dims((8 * p.shape.dims[0], *p.shape.dims[1:])), 7) for p in module.entry.parameters]


def assert_agree(module: Module) -> str:
    live, ours, reference, source = run_all_ways(module, stacked_values(module))
    for want, got, other in zip(live, ours, reference, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6, err_msg=source)
        np.testing.assert_allclose(other, want, rtol=1e-6, atol=1e-6)
    return source


def all_of(groups: str) -> Module:
    """All collectives over the same groups in one program."""
    parts = [
        body.replace("ROOT r", f"r{i}").replace(f", {SHARDED}", "") for i, body in enumerate(bodies(groups).values())
    ]
    shapes = [part.split()[2] for part in parts]
    results = ", ".join(f"r{i}" for i in range(len(parts)))
    tiles = ", ".join(["{devices=[8,1]<=[8]}"] * len(parts))
    root = f"ROOT t = ({', '.join(shapes)}) tuple({results}), sharding={{{tiles}}}"
    return module_for("f32", f"{' '.join(parts)} {root}", MESH)


@pytest.mark.parametrize("groups", GROUPS)
def test_groups(groups: str) -> None:
    assert_agree(all_of(GROUPS[groups]))


@pytest.mark.parametrize("groups", ["model before data", "strided half", "on no axis"])
def test_groups_without_a_mesh(groups: str) -> None:
    module = all_of(GROUPS[groups])
    module.mesh = None
    assert_agree(module)


AXES_TEXT = {
    "all": 'lax.psum(x_1, AXES)', "model": 'lax.psum(x_1, "model")', "data": 'lax.psum(x_1, "data")',
    "half of model": 'lax.psum(x_1, "model_1")', "strided half": 'lax.psum(x_1, "model_0")',
    "data and half": 'lax.psum(x_1, ("data", "model_1"))', "groups unsorted": 'lax.psum(x_1, "model")',
    "on no axis": "axis_index_groups=((0, 7), (1, 6), (2, 5), (3, 4))",
}  # fmt: skip


@pytest.mark.parametrize("groups", AXES_TEXT)
def test_axes_are_named_where_groups_run_along_them(groups: str) -> None:
    source = ShardMapProgram(module_for("f32", bodies(GROUPS[groups])["all-reduce"], MESH)).source
    assert AXES_TEXT[groups] in re.sub(r"x_\d+", "x_1", source), source


IDS = "channel_id=1, use_global_device_ids=true"
OTHER = {
    "multiply": ("f32", f"ROOT r = f32[8,4] all-reduce(x), replica_groups={GROUPS['model']}, {IDS}, to_apply=mul_f32, {SHARDED}"),
    "or pred": ("pred", f"ROOT r = pred[8,4] all-reduce(x), replica_groups={GROUPS['data']}, {IDS}, to_apply=or_pred, {SHARDED}"),
    "and pred": ("pred", f"ROOT r = pred[8,4] all-reduce(x), replica_groups={GROUPS['data']}, {IDS}, to_apply=and_pred, {SHARDED}"),
    "sum s32": ("s32", f"ROOT r = s32[8,4] all-reduce(x), replica_groups={GROUPS['data']}, {IDS}, to_apply=add_s32, {SHARDED}"),
    "sum c64": ("c64", f"ROOT r = c64[8,4] all-reduce(x), replica_groups={GROUPS['data']}, {IDS}, to_apply=add_c64, {SHARDED}"),
    "gather pred": ("pred", f"ROOT r = pred[8,8] all-gather(x), dimensions={{1}}, replica_groups={GROUPS['data']}, {IDS}, {SHARDED}"),
    "scatter max": ("f32", f"ROOT r = f32[2,4] reduce-scatter(x), dimensions={{0}}, replica_groups={GROUPS['model']}, {IDS},"
                    f" to_apply=max_f32, {SHARDED}"),
    "all partitions": ("f32", f"ROOT r = f32[8,4] all-reduce(x), replica_groups={{{{0}}}}, channel_id=1, to_apply=add_f32, {SHARDED}"),
    "no channel": ("f32", f"ROOT r = f32[8,4] all-reduce(x), replica_groups={{}}, to_apply=add_f32, {SHARDED}"),
    "tuple all-to-all": ("f32", "y = f32[8,4] negate(x) ROOT r = (f32[8,4], f32[8,4]) all-to-all(x, y),"
                         f" replica_groups={GROUPS['data']}, channel_id=1, sharding={{{{devices=[8,1]<=[8]}},"
                         " {devices=[8,1]<=[8]}}"),
    "permute ring": ("f32", "ROOT r = f32[8,4] collective-permute(x), channel_id=1, source_target_pairs={{0,1},{1,2},{2,3},"
                     f"{{3,0}},{{4,5}},{{5,6}},{{6,7}},{{7,4}}}}, {SHARDED}"),
    "permute some": ("f32", f"ROOT r = f32[8,4] collective-permute(x), channel_id=1, source_target_pairs={{{{0,7}},{{3,1}}}}, {SHARDED}"),
    "permute data": ("f32", "ROOT r = f32[8,4] collective-permute(x), channel_id=1, source_target_pairs={{0,4},{1,5},{2,6},{3,7}},"
                     f" {SHARDED}"),
    "partition id": ("f32", f"p = u32[] partition-id() b = u32[8,4] broadcast(p), dimensions={{}} c = f32[8,4] convert(b)"
                     f" ROOT r = f32[8,4] add(x, c), {SHARDED}"),
    "bf16 sum": ("bf16", "f = f32[8,4] convert(x) ROOT r = f32[8,4] all-reduce(f), replica_groups={{0,1,2,3},{4,5,6,7}},"
                 f" {IDS}, to_apply=add_f32, {SHARDED}"),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHER)
def test_other_forms(case: str) -> None:
    kind, body = OTHER[case]
    assert_agree(module_for(kind, body, MESH))


SUMS = f"replica_groups={GROUPS['model']}, {IDS}"
# XLA's own run has no form of these on CPU, so they are judged by hand.
BY_HAND = {
    "and": ("s32", f"ROOT r = s32[8,4] all-reduce(x), {SUMS}, to_apply=and_s32, {SHARDED}", np.bitwise_and),
    "xor": ("s32", f"ROOT r = s32[8,4] all-reduce(x), {SUMS}, to_apply=xor_s32, {SHARDED}", np.bitwise_xor),
    "xor of a size that does not split": (
        "s32", f"y = s32[3] iota(), iota_dimension=0 z = s32[3] reshape(y) ROOT r = s32[3] all-reduce(z), {SUMS},"
        " to_apply=xor_s32", None,
    ),
    "xor scattered": (
        "s32", f"ROOT r = s32[2,4] reduce-scatter(x), dimensions={{0}}, {SUMS}, to_apply=xor_s32, {SHARDED}", "scatter",
    ),
    "largest complex": ("c64", f"ROOT r = c64[8,4] all-reduce(x), {SUMS}, to_apply=max_c64, {SHARDED}", np.maximum),
    "several operands": (
        "s32", f"y = s32[8,4] negate(x) ROOT r = (s32[8,4], s32[8,4]) all-reduce(x, y), {SUMS}, to_apply=add_s32,"
        " sharding={{devices=[8,1]<=[8]}, {devices=[8,1]<=[8]}}", np.add,
    ),
    "no groups are one group": (
        "s32", f"ROOT r = s32[8,4] all-reduce(x), replica_groups={{}}, {IDS}, to_apply=add_s32, {SHARDED}", "all",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BY_HAND)
def test_forms_that_xla_lacks_on_cpu(case: str) -> None:
    kind, body, meaning = BY_HAND[case]
    module = module_for(kind, body, MESH)
    (x,) = stacked_values(module)
    tiles = np.stack(np.split(x, 8)).reshape(2, 4, 8, 4)
    if meaning == "all":
        want = np.broadcast_to(tiles.sum((0, 1)), (8, 8, 4))
    elif meaning is None:
        want = np.zeros(3, np.int32)  # four times the same
    elif meaning == "scatter":
        want = np.bitwise_xor.reduce(tiles, axis=1)
    else:
        want = np.broadcast_to(meaning.reduce(tiles, axis=1)[:, None], tiles.shape)  # type: ignore[union-attr]
    for outputs in (ShardMapProgram(module).run(x), run_reference(module, [x])):
        np.testing.assert_array_equal(outputs[0].reshape(np.shape(want)), want)
        if len(outputs) > 1:
            np.testing.assert_array_equal(outputs[1], -outputs[0])


def test_broadcast_takes_the_first_of_each_group() -> None:
    """XLA's CPU backend has no collective-broadcast, so the values are put down by hand."""
    body = f"ROOT r = f32[8,4] collective-broadcast(x), replica_groups={GROUPS['unsorted']}, channel_id=1, {SHARDED}"
    module = module_for("f32", body, MESH)
    (x,) = stacked_values(module)
    tiles = np.split(x, 8)
    want = np.concatenate([tiles[3] if d < 4 else tiles[4] for d in range(8)])
    np.testing.assert_array_equal(ShardMapProgram(module).run(x)[0], want)
    np.testing.assert_array_equal(run_reference(module, [x])[0], want)


def test_mesh_with_its_own_device_order() -> None:
    """Partition ids stay positions in the device assignment, whatever order the mesh lists them in."""
    mesh = MeshInfo(("a", "b"), (2, 4), (7, 6, 5, 4, 3, 2, 1, 0))
    for module in (
        all_of(GROUPS["model"]),
        *(module_for("f32", OTHER[k][1], mesh) for k in ("partition id", "permute some")),
    ):
        module.mesh = mesh
        assert_agree(module)


LOOP = """
cond { s = (s32[], f32[2]) parameter(0) i = s32[] get-tuple-element(s), index=0 n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT }
body { s = (s32[], f32[2]) parameter(0) i = s32[] get-tuple-element(s), index=0 x = f32[2] get-tuple-element(s), index=1
  one = s32[] constant(1) j = s32[] add(i, one)
  y = f32[2] all-reduce(x), replica_groups={{0,1,2,3},{4,5,6,7}}, channel_id=1, use_global_device_ids=true, to_apply=add_f32
  ROOT t = (s32[], f32[2]) tuple(j, y) }
same { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }
summed { x = f32[2] parameter(0)
  ROOT y = f32[2] all-reduce(x), replica_groups={{0,1},{2,3},{4,5},{6,7}}, channel_id=2, use_global_device_ids=true, to_apply=add_f32 }
"""


def with_computations(body: str) -> Module:
    module = module_of(f"{body}", 8, more=LOOP)
    module.mesh = MESH
    return module


def test_collectives_in_loops_and_branches() -> None:
    """Devices 0 to 3 take one branch, 4 to 7 the other; the groups of a branch lie inside its devices."""
    assert_agree(with_computations(
        "x = f32[2] parameter(0), sharding={devices=[8]<=[8]} z = s32[] constant(0) t = (s32[], f32[2]) tuple(z, x)"
        " w = (s32[], f32[2]) while(t), condition=cond, body=body l = f32[2] get-tuple-element(w), index=1"
        " p = u32[] partition-id() four = u32[] constant(4) low = pred[] compare(p, four), direction=LT"
        " ROOT r = f32[2] conditional(low, l, l), true_computation=summed, false_computation=same, sharding={devices=[8]<=[8]}"
    ))  # fmt: skip


def test_reference_names_a_group_that_would_wait_for_ever() -> None:
    module = with_computations(
        "x = f32[2] parameter(0), sharding={devices=[8]<=[8]} p = u32[] partition-id() three = u32[] constant(3)"
        " low = pred[] compare(p, three), direction=LT"
        " ROOT r = f32[2] conditional(low, x, x), true_computation=summed, false_computation=same, sharding={devices=[8]<=[8]}"
    )
    with pytest.raises(ExecutionError, match=r"devices \[2\] wait for devices \[3\], which never come; at %"):
        run_reference(module, [np.ones(16, np.float32)])


@pytest.mark.parametrize("groups", ["model", "on no axis"])
@pytest.mark.parametrize("reducer", ["add_f32", "max_f32", "mul_f32"])
def test_collectives_of_constants(reducer: str, groups: str) -> None:
    """Inline constants are values that every device holds."""
    ids = f"replica_groups={GROUPS[groups]}, {IDS}, to_apply={reducer}"
    assert_agree(module_for(
        "f32",
        f"c = f32[] constant(1.5) d = f32[] all-reduce(c), {ids} e = f32[8,4] broadcast(c), dimensions={{}}"
        f" f = f32[8,4] all-reduce(e), {ids} h = f32[8,4] broadcast(d), dimensions={{}} k = f32[8,4] add(f, h)"
        " l = f32[8,4] collective-permute(e), channel_id=9, source_target_pairs={{0,1}} m = f32[8,4] add(k, l)"
        f" ROOT r = f32[8,4] add(m, x), {SHARDED}",
        MESH,
    ))  # fmt: skip


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "f8e4m3fn", "f8e5m2fnuz"])
@pytest.mark.parametrize("kind", ["maximum", "minimum"])
def test_nan_wins_as_on_one_device(dtype: str, kind: str) -> None:
    """Live XLA's collectives lose it on CPU devices."""
    ids = f"replica_groups={GROUPS['all']}, channel_id=1, use_global_device_ids=true, to_apply=c, {SHARDED}"
    module = from_hlo_text(f"""HloModule m, num_partitions=8
        c {{ a = {dtype}[] parameter(0) b = {dtype}[] parameter(1) ROOT t = {dtype}[] {kind}(a, b) }}
        ENTRY e {{
          x = {dtype}[8,6] parameter(0), {SHARDED}
          reduced = {dtype}[8,6] all-reduce(x), {ids}
          scattered = {dtype}[1,6] reduce-scatter(x), dimensions={{0}}, {ids}
          ROOT t = ({dtype}[8,6], {dtype}[1,6]) tuple(reduced, scattered), sharding={{{{devices=[8,1]<=[8]}}, {{devices=[8,1]<=[8]}}}}
        }}""")
    x = np.tile(np.array([-0.0, 0.0, 1.5, -2.0, 4.0, -3.0], np.float32), (64, 1))
    x[25] = [0.0, -0.0, np.nan, np.nan, 8.0, -1.0]
    x = x.astype(module.entry.parameters[0].shape.dtype)
    tiles = x.astype(np.float64).reshape(8, 8, 6)
    want = {"maximum": np.maximum, "minimum": np.minimum}[kind].reduce(tiles, axis=0)
    for reduced, scattered in (ShardMapProgram(module).run(x), run_reference(module, [x])):
        np.testing.assert_array_equal(reduced.astype(np.float64).reshape(8, 8, 6), np.tile(want, (8, 1, 1)))
        np.testing.assert_array_equal(scattered.astype(np.float64), want)
