"""The mesh dialect's proposal, its partitioning half: materialised reshards, the local MLP, merging collectives."""

from __future__ import annotations

import pytest

from hlosharding.ir import Instruction
from tests.support.split_programs import counts, mark, right


def mlp(devices: int) -> str:
    """x w1 -> max with zero -> w2, weights stationary: x, the hidden dim and the result are split on their last dim."""
    return f"""
        x = f32[2,4,8] parameter(0){mark(f"[1,1,{devices}]<=[{devices}]")}
        w1 = f32[8,32] parameter(1){mark(f"[1,{devices}]<=[{devices}]")}
        w2 = f32[32,8] parameter(2){mark(f"[{devices},1]<=[{devices}]")}
        h = f32[2,4,32] dot(x, w1), lhs_contracting_dims={{2}}, rhs_contracting_dims={{0}}
        c = f32[] constant(0)
        zero = f32[2,4,32] broadcast(c), dimensions={{}}
        m = f32[2,4,32] maximum(h, zero)
        y = f32[2,4,8] dot(m, w2), lhs_contracting_dims={{2}}, rhs_contracting_dims={{0}}
        ROOT r = f32[2,4,8] copy(y){mark(f"[1,1,{devices}]<=[{devices}]")}"""


# T6, T7, T8


@pytest.mark.parametrize(
    ("devices", "local_parameters", "hidden"),
    [(2, [(2, 4, 4), (8, 16), (16, 8)], (2, 4, 16)), (8, [(2, 4, 1), (8, 4), (4, 8)], (2, 4, 4))],
)
def test_the_mlp_is_a_gather_two_local_dots_and_a_reduce_scatter(
    devices: int, local_parameters: list[tuple[int, ...]], hidden: tuple[int, ...]
) -> None:
    local = right(mlp(devices), devices=devices)
    assert counts(local) == {"all-gather": 1, "reduce-scatter": 1}
    gather, scatter = local.collectives
    assert (gather.kind, gather.shape.dims, gather.groups) == ("all-gather", (2, 4, 8), (tuple(range(devices)),))
    assert (scatter.kind, scatter.shape.dims) == ("reduce-scatter", (2, 4, 8 // devices))
    entry = local.module.entry
    assert [p.shape.dims for p in entry.parameters] == local_parameters
    assert entry.root.shape.dims == (2, 4, 8 // devices)
    assert [i.shape.dims for i in _all(entry.instructions, "dot")] == [hidden, (2, 4, 8)]
    # The zeros are made at the local shape, not cut from whole ones.
    assert [i.shape.dims for i in _all(entry.instructions, "broadcast")] == [hidden]


def _all(instructions: list[Instruction], opcode: str) -> list[Instruction]:
    return [i for i in instructions if i.opcode == opcode]


@pytest.mark.parametrize(
    ("wanted", "kinds"), [("", {"all-reduce"}), ("[4,1,2]<=[8] copies", {"all-reduce", "reduce-scatter"})]
)
def test_a_dropped_partial_axis_is_an_all_reduce_and_one_that_becomes_a_split_a_scatter(
    wanted: str, kinds: set[str]
) -> None:
    local = right(
        f"""
        x = f32[64,4096] parameter(0){mark("[1,8]<=[8]")}
        w = f32[4096,64] parameter(1){mark("[8,1]<=[8]")}
        d = f32[64,64] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
        ROOT r = f32[64,64] copy(d){mark(wanted)}""",
        objective="bytes",
    )
    assert set(counts(local)) == kinds


# T10: folding, and when not


def test_reductions_over_two_axes_are_one_over_their_product() -> None:
    local = right(f"""
        x = f32[16,24,40] parameter(0){mark("[1,2,4]<=[8]")}
        z = f32[] constant(0)
        a = f32[16,24] reduce(x, z), dimensions={{2}}, to_apply=add_f32
        ROOT b = f32[16] reduce(a, z), dimensions={{1}}, to_apply=add_f32{mark("")}""")
    assert local.comm_bytes_per_device <= 2 * 7 / 8 * 16 * 4 + 2 * 3 / 4 * 16 * 12 * 4


PARTIALS = f"""
    x = f32[16,64] parameter(0){mark("[1,8]<=[8]")}
    w = f32[64,24] parameter(1){mark("[8,1]<=[8]")}
    d = f32[16,24] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
    y = f32[16,64] parameter(2){mark("[1,8]<=[8]")}
    e = f32[16,24] dot(y, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"""


@pytest.mark.parametrize(("wanted", "kind"), [("", "all-reduce"), ("[8,1]<=[8]", "reduce-scatter")])
def test_a_sum_of_reductions_is_a_reduction_of_the_sum(wanted: str, kind: str) -> None:
    assert counts(right(f"{PARTIALS}\n ROOT s = f32[16,24] add(d, e){mark(wanted)}")) == {kind: 1}


@pytest.mark.parametrize(
    "steps",
    [
        "t = f32[16,24] tanh(d)  s = f32[16,24] add(d, e)",
        "s = f32[16,24] add(d, e)  t = f32[16,24] tanh(d)",
    ],
)
def test_a_reduction_with_a_second_use_is_not_folded(steps: str) -> None:
    local = right(f"{PARTIALS}\n {steps}\n ROOT r = f32[16,24] multiply(s, t){mark('')}")
    assert counts(local) == {"all-reduce": 2}
    assert [c.cause.split("for ")[1] for c in local.collectives] == ["%d (dot)", "%e (dot)"]


def test_a_reduction_of_another_kind_is_not_folded() -> None:
    local = right(f"{PARTIALS}\n ROOT s = f32[16,24] maximum(d, e){mark('')}")
    assert counts(local) == {"all-reduce": 2}


def test_a_reduction_in_another_type_is_not_folded() -> None:
    local = right(f"""{PARTIALS}
        n = bf16[16,24] convert(d)
        f = f32[16,24] convert(n)
        ROOT s = f32[16,24] add(f, e){mark("")}""")
    assert counts(local) == {"all-reduce": 2}


def test_a_reduction_over_other_axes_is_not_folded() -> None:
    local = right(f"""
        x = f32[16,64] parameter(0){mark("[1,4,2]<=[8] copies")}
        y = f32[16,64] parameter(1){mark("[1,2,4]<=[4,2]T(1,0) copies")}
        z = f32[] constant(0)
        a = f32[16] reduce(x, z), dimensions={{1}}, to_apply=add_f32
        b = f32[16] reduce(y, z), dimensions={{1}}, to_apply=add_f32
        ROOT s = f32[16] add(a, b){mark("")}""")
    assert {len(c.groups[0]) for c in local.collectives} == {2, 4}


@pytest.mark.parametrize("op", ["add", "multiply", "maximum"])
def test_a_gather_moves_below_an_op_that_is_parallel_in_the_gathered_dim(op: str) -> None:
    local = right(f"""
        x = f32[64,24] parameter(0){mark("[8,1]<=[8]")}
        y = f32[64,24] parameter(1){mark("[8,1]<=[8]")}
        s = f32[64,24] {op}(x, y)
        ROOT t = f32[64,24] tanh(s){mark("")}""")
    assert counts(local) == {"all-gather": 1}
    assert local.comm_bytes_per_device == 7 / 8 * 64 * 24 * 4


def test_a_gather_does_not_move_below_an_op_that_mixes_the_gathered_dim() -> None:
    local = right(f"""
        x = f32[64,24] parameter(0){mark("[8,1]<=[8]")}
        y = f32[64,24] parameter(1){mark("[8,1]<=[8]")}
        s = f32[64,64] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
        ROOT t = f32[64,64] tanh(s){mark("")}""")
    assert sum(c.kind == "all-gather" for c in local.collectives) == 2
