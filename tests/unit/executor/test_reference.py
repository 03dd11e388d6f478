# ruff: noqa: E501  (HLO reads best with an instruction on one line)
"""The reference executor: stages compiled once, control flow per device, and agreement with the program at random."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlosharding import xla_bridge
from hlosharding.errors import ExecutionError
from hlosharding.executor import BoundaryArray, ShardMapProgram, run_local, run_reference
from hlosharding.ir import Module, Shape
from hlosharding.sharding import HloSharding
from tests.unit.executor.op_cases import CASES, module_of, programs, values

SHARDED = "sharding={devices=[8,1]<=[8]}"


@pytest.mark.parametrize(
    "opcode", ["call", "conditional", "while", "tuple", "sort", "reduce", "constant", "custom-call", "parameter"]
)
def test_local_ops_equal_one_device_run(opcode: str) -> None:
    assert opcode in CASES
    for body in programs(opcode):
        module = module_of(body)
        leaves = [leaf for p in module.entry.parameters for leaf in p.shape.leaves]
        arguments = [values(leaf, seed) for seed, leaf in enumerate(leaves)]
        theirs = [o[0] for o in xla_bridge.run_proto(module.to_hlo_proto(), [[a] for a in arguments])]
        for got, want in zip(run_local(module, {0: arguments})[0], theirs, strict=True):
            np.testing.assert_array_equal(got, want)


def test_more_devices_than_there_are() -> None:
    """64 devices on a machine that has 8 at most: the sum of all tiles."""
    groups = "{{" + ",".join(map(str, range(64))) + "}}"
    body = (
        "x = f32[2] parameter(0), sharding={devices=[64]<=[64]} ROOT r = f32[2] all-reduce(x), channel_id=1,"
        f" use_global_device_ids=true, to_apply=add_f32, replica_groups={groups}"
    )
    x = np.arange(128, dtype=np.float32)
    (out,) = run_reference(module_of(body, 64), [x])
    np.testing.assert_array_equal(out, x.reshape(64, 2).sum(0))


def test_loops_run_as_long_as_each_device_wants() -> None:
    """No collective inside the groups that run on: device d makes d rounds."""
    more = """
cond { s = (u32[], u32[2]) parameter(0) i = u32[] get-tuple-element(s), index=0 p = u32[] partition-id() ROOT c = pred[] compare(i, p), direction=LT }
body { s = (u32[], u32[2]) parameter(0) i = u32[] get-tuple-element(s), index=0 x = u32[2] get-tuple-element(s), index=1
  one = u32[] constant(1) j = u32[] add(i, one) y = u32[2] add(x, x) ROOT t = (u32[], u32[2]) tuple(j, y) }
"""
    body = (
        "x = u32[2] parameter(0), sharding={devices=[8]<=[8]} z = u32[] constant(0) t = (u32[], u32[2]) tuple(z, x)"
        " w = (u32[], u32[2]) while(t), condition=cond, body=body ROOT r = u32[2] get-tuple-element(w), index=1, sharding={devices=[8]<=[8]}"
    )
    module = module_of(body, 8, more=more)
    x = np.ones(16, np.uint32)
    want = np.repeat(2 ** np.arange(8), 2)
    np.testing.assert_array_equal(run_reference(module, [x])[0], want)
    np.testing.assert_array_equal(ShardMapProgram(module).run(x)[0], want)


def test_wrong_arguments() -> None:
    module = module_of(f"x = f32[8,4] parameter(0), {SHARDED} ROOT r = f32[8,4] negate(x), {SHARDED}", 8)
    with pytest.raises(ExecutionError, match="2 arrays for the 1 inputs of case"):
        run_reference(module, [np.ones((64, 4)), np.ones(3)])
    with pytest.raises(ExecutionError, match=r"input 0 has shape \[8, 4\], the program takes f32\[64,4\]"):
        run_reference(module, [np.ones((8, 4), np.float32)])


@pytest.mark.parametrize("said", ["{replicated}", "{{replicated}}"])
def test_a_program_of_no_results_says_how_they_lie(said: str) -> None:
    """XLA has one leaf in the sharding of an empty tuple."""
    body = f"x = f32[2] parameter(0), sharding={{devices=[8]<=[8]}} ROOT r = () tuple(), sharding={said}"
    assert run_reference(module_of(body, 8), [np.ones(16, np.float32)]) == []


def test_ragged_all_to_all_moves_the_named_rows() -> None:
    """As in HLO's definition; JAX's CPU backend has no such op, so the rows are put down by hand."""
    body = (
        "x = f32[4] parameter(0), sharding={devices=[2]<=[2]} o = f32[4] parameter(1), sharding={devices=[2]<=[2]}"
        " a = s32[2] parameter(2), sharding={devices=[2]<=[2]} b = s32[2] parameter(3), sharding={devices=[2]<=[2]}"
        " c = s32[2] parameter(4), sharding={devices=[2]<=[2]} d = s32[2] parameter(5), sharding={devices=[2]<=[2]}"
        " ROOT r = f32[4] ragged-all-to-all(x, o, a, b, c, d), channel_id=1, replica_groups={{0,1}}, sharding={devices=[2]<=[2]}"
    )
    x = np.array([1, 2, 3, 4, 5, 6, 7, 8], np.float32)
    starts, sizes = np.array([0, 1, 0, 3], np.int32), np.array([1, 2, 3, 1], np.int32)
    targets, received = np.array([0, 0, 1, 2], np.int32), np.array([1, 3, 2, 1], np.int32)
    (out,) = run_reference(module_of(body, 2), [x, np.zeros(8, np.float32), starts, sizes, targets, received])
    np.testing.assert_array_equal(out, [1, 5, 6, 7, 2, 3, 8, 0])
    assert re.search(r'lax\.ragged_all_to_all\(.*, axis_name="devices"\)', ShardMapProgram(module_of(body, 2)).source)


def device_groups(draw: st.DrawFn) -> str:
    order, size = draw(st.permutations(range(8))), draw(st.sampled_from((2, 4, 8)))
    rows = [order[i : i + size] for i in range(0, 8, size)]
    return "{" + ",".join("{" + ",".join(map(str, row)) + "}" for row in rows) + "}"


@st.composite
def local_programs(draw: st.DrawFn) -> Module:
    """A few steps over s32[8,4] per device; every step keeps the shape, integers make every comparison exact."""
    lines, value = [f"x = s32[8,4] parameter(0), {SHARDED}"], "x"
    for step in range(draw(st.integers(1, 5))):
        kind, new = (
            draw(st.sampled_from(("sum", "gather", "scatter", "exchange", "permute", "id", "local"))),
            f"v{step}",
        )
        ids = f"channel_id={step + 1}, use_global_device_ids=true"
        groups = device_groups(draw)
        size = groups.index("}") // 2
        if kind == "sum":
            lines.append(f"{new} = s32[8,4] all-reduce({value}), {ids}, replica_groups={groups}, to_apply=add_s32")
        elif kind == "gather":
            lines += [f"g{step} = s32[8,{4 * size}] all-gather({value}), dimensions={{1}}, {ids}, replica_groups={groups}",
                      f"{new} = s32[8,4] slice(g{step}), slice={{[0:8], [{size}:{size + 4}]}}"]  # fmt: skip
        elif kind == "scatter":
            lines += [f"g{step} = s32[{8 // size},4] reduce-scatter({value}), dimensions={{0}}, {ids}, replica_groups={groups}, to_apply=max_s32",
                      f"z{step} = s32[] constant(3)",
                      f"{new} = s32[8,4] pad(g{step}, z{step}), padding={8 - 8 // size}_0x0_0"]  # fmt: skip
        elif kind == "exchange":
            lines.append(
                f"{new} = s32[8,4] all-to-all({value}), dimensions={{0}}, channel_id={step + 1}, replica_groups={groups}"
            )
        elif kind == "permute":
            targets, count = draw(st.permutations(range(8))), draw(st.integers(1, 8))
            pairs = ",".join(f"{{{s},{t}}}" for s, t in list(enumerate(targets))[:count])
            lines.append(
                f"{new} = s32[8,4] collective-permute({value}), channel_id={step + 1}, source_target_pairs={{{pairs}}}"
            )
        elif kind == "id":
            lines += [f"p{step} = u32[] partition-id()", f"at{step} = s32[] convert(p{step})", f"n{step} = s32[] constant(0)",
                      f"d{step} = s32[1,4] dynamic-slice({value}, at{step}, n{step}), dynamic_slice_sizes={{1,4}}",
                      f"e{step} = s32[4] reshape(d{step})", f"b{step} = s32[8,4] broadcast(e{step}), dimensions={{1}}",
                      f"{new} = s32[8,4] subtract({value}, b{step})"]  # fmt: skip
        else:
            lines.append(f"{new} = s32[8,4] reverse({value}), dimensions={{0}}")
        value = new
    lines.append(f"ROOT r = s32[8,4] negate({value}), {SHARDED}")
    return module_of(" ".join(lines), 8)


@settings(max_examples=15)
@given(local_programs(), st.integers(0, 99))
def test_reference_equals_the_program(module: Module, seed: int) -> None:
    x = values(Shape.array("s32", (64, 4)), seed)
    layout = [BoundaryArray(Shape.array("s32", (64, 4)), HloSharding.parse("{devices=[8,1]<=[8]}"))]
    program = ShardMapProgram(module, inputs=layout, outputs=layout)
    np.testing.assert_array_equal(program.run(x)[0], program.run_reference(x)[0], err_msg=program.source)


def test_some_devices_of_a_program_run_without_those_that_no_collective_ties_to_them() -> None:
    halves = "replica_groups={{0,1},{2,3}}, channel_id=1, use_global_device_ids=true"
    module = module_of(
        "x = s32[] parameter(0)  n = u32[] partition-id()  m = s32[] convert(n)  y = s32[] add(x, m)"
        f"  r = s32[1] reshape(y)  ROOT s = s32[2] all-gather(r), dimensions={{0}}, {halves}",
        4,
    )
    found = run_local(module, {2: [np.int32(10)], 3: [np.int32(20)]}, 4)
    assert {device: values[0].tolist() for device, values in found.items()} == {2: [12, 23], 3: [12, 23]}
