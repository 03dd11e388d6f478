"""The generic lowering's last resort and its memory: unknown ops are replicated aloud, equal ops decided once."""

from __future__ import annotations

import hlosharding as hs
from hlosharding.ir import Module
from tests.unit.partitioner.programs import kinds, mark, module_of, opcodes, right, split


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
