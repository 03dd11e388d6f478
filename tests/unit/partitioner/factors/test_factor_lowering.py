"""The generic lowering's last resort and its memory: unknown ops are replicated aloud, equal ops decided once."""

from __future__ import annotations

import numpy as np
import pytest

import hlosharding as hs
from hlosharding.ir import Module, Shape
from tests.support.program_check import run_local
from tests.support.split_programs import kinds, mark, module_of, opcodes, right, split


def test_an_unknown_op_is_replicated_with_a_warning() -> None:
    local = split(f"""
        x = f32[16,8] parameter(0){mark("[8,1]<=[8]")}
        ROOT c = f32[16,8] custom-call(x), custom_call_target="mystery",
          metadata={{op_name="f" source_file="m.py" source_line=7}}""")
    (warning,) = local.warnings
    assert "custom-call mystery" in warning
    assert f"{16 * 8 * 4} bytes" in warning
    assert kinds(local) == ["all-gather"]


def test_an_unknown_op_on_whole_values_is_no_cost_and_no_warning() -> None:
    local = split(f"""
        x = f32[16,8] parameter(0){mark("")}
        ROOT c = f32[16,8] custom-call(x), custom_call_target="mystery"{mark("")}""")
    assert not local.warnings
    assert not local.collectives


def test_an_unknown_op_without_a_place_is_called_by_name() -> None:
    (warning,) = split(f"""
        x = f32[16,8] parameter(0){mark("[8,1]<=[8]")}
        ROOT odd = f32[16,8] custom-call(x), custom_call_target="mystery" """).warnings
    assert "%odd" in warning


def test_layers_that_repeat_are_decided_once() -> None:
    layer = """
        d{n} = f32[1600,32] dot(a{p}, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
        a{n} = f32[1600,32] tanh(d{n})"""
    body = f"""
        a0 = f32[1600,32] parameter(0){mark("[8,1]<=[8]")}
        w = f32[32,32] parameter(1){mark("[8,1]<=[8]")}"""
    body += "".join(layer.format(n=n, p=n - 1) for n in range(1, 5))
    local = right(f"{body}\n ROOT r = f32[1600,32] negate(a4){mark('[8,1]<=[8]')}")
    assert kinds(local) == ["all-gather"]  # one reshard of w serves all four
    assert opcodes(local).count("dot") == 4


def test_equal_ops_on_unequal_constants_stay_apart() -> None:
    right(f"""
        x = f32[16] parameter(0){mark("[8]<=[8]")}
        one = f32[] constant(1)
        two = f32[] constant(2)
        a = f32[16] broadcast(one), dimensions={{}}
        b = f32[16] broadcast(two), dimensions={{}}
        c = f32[16] add(x, a)
        d = f32[16] multiply(c, b)
        ROOT r = f32[16] subtract(d, a){mark("[8]<=[8]")}""")


def test_registered_rules_lift_the_replication() -> None:
    module: Module = module_of(f"""
        x = f32[16,8] parameter(0){mark("[8,1]<=[8]")}
        ROOT c = f32[16,8] custom-call(x), custom_call_target="known_to_the_user_only"{mark("[8,1]<=[8]")}""")
    hs.register_rule("known_to_the_user_only", "m k -> m k")
    local = hs.partition(module)
    assert not local.warnings
    assert not local.collectives


@pytest.mark.parametrize(
    "ids",
    ["use_global_device_ids=true, replica_groups={{0,1,2,3,4,5,6,7}}", "replica_groups={{0}}"],  # all of replica 0
)
def test_an_all_reduce_of_a_global_program_adds_up_what_all_its_devices_have(ids: str) -> None:
    # As XLA's HandleAllReduce: the array is whole on each of the devices that the channel joins.
    local = split(f"""
        x = f32[8,4] parameter(0){mark("[8,1]<=[8]")}
        ROOT y = f32[8,4] all-reduce(x), channel_id=1, {ids}, to_apply=add_f32{mark("")}""")
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    [y] = run_local(local, [x])
    np.testing.assert_array_equal(y, 8 * x)
    assert any("all-reduce" in warning for warning in local.warnings)


# What is gathered: the smaller of what there is.


@pytest.mark.parametrize(("narrow", "wide"), [("bf16", "f32"), ("s8", "bf16"), ("pred", "f32"), ("f32", "bf16")])
def test_a_weight_is_gathered_in_the_narrower_of_its_types(narrow: str, wide: str) -> None:
    local = right(f"""
        x = {narrow}[64,32] parameter(0){mark("[8,1]<=[8]")}
        b = {wide}[128,64] parameter(1){mark("[8,1]<=[8]")}
        c = {wide}[64,32] convert(x)
        d = {wide}[128,32] dot(b, c), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{mark("[8,1]<=[8]")}
        ROOT r = {wide}[128,32] negate(d){mark("[8,1]<=[8]")}""")
    (gather,) = local.collectives
    assert (gather.kind, gather.dtype) == ("all-gather", min(narrow, wide, key=lambda t: Shape.array(t).byte_size))


def test_a_widened_weight_that_is_read_in_parts_and_whole_is_gathered_narrow() -> None:
    local = right(f"""
        x = bf16[64,32] parameter(0){mark("[8,1]<=[8]")}
        b = f32[128,64] parameter(1){mark("[8,1]<=[8]")}
        c = f32[64,32] convert(x)
        d = f32[128,32] dot(b, c), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{mark("[8,1]<=[8]")}
        e = f32[64,32] tanh(c){mark("[8,1]<=[8]")}
        f = f32[128,32] dot(b, c), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{mark("[8,1]<=[8]")}
        g = f32[128,32] add(d, f)
        ROOT r = (f32[128,32], f32[64,32]) tuple(g, e), sharding={{{{devices=[8,1]<=[8]}}, {{devices=[8,1]<=[8]}}}}""")
    assert [(c.kind, c.dtype) for c in local.collectives] == [("all-gather", "bf16")]


@pytest.mark.parametrize(
    "after",
    [
        "z = f32[] constant(0)  c = f32[64] reduce(x, z), dimensions={1}, to_apply=add_f32",
        "c = f32[64,4] slice(x), slice={[0:64], [3:7]}",
        "y = f32[64,32] negate(x)  c = pred[64,32] compare(x, y), direction=LT",
    ],
)
def test_what_an_op_makes_smaller_is_gathered_behind_it(after: str) -> None:
    *head, made = after.split("  ")
    local = right(f"""
        x = f32[64,32] parameter(0){mark("[8,1]<=[8]")}
        {"  ".join(head)}
        ROOT {made}{mark("")}""")
    (gather,) = local.collectives
    assert gather.kind == "all-gather"
    assert gather.nbytes == local.module.entry.root.shape.byte_size
