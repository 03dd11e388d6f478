"""A part of a sum is transposed, in place of what is summed; what others read transposed stays so."""

from __future__ import annotations

import pytest

from tests.support.split_programs import mark, right

GRADIENT = f"""
    x = f32[32,16] parameter(0){mark("[8,1]<=[8]")}
    g = f32[32,8] parameter(1){mark("[8,1]<=[8]")}
    d = f32[8,16] dot(g, x), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}"""
"""Of a weight, as JAX writes it: a product, transposed."""


@pytest.mark.parametrize(("tiling", "part"), [("[8,1]<=[8]", (2, 8)), ("[1,8]<=[8]", (16, 1))])
def test_the_part_is_transposed(tiling: str, part: tuple[int, int]) -> None:
    local = right(f"""{GRADIENT}
        ROOT t = f32[16,8] transpose(d), dimensions={{1,0}}{mark(tiling)}""")
    [scatter] = local.module.of_opcodes("reduce-scatter")
    assert scatter.operands[0].opcode == "dot"
    assert [user.shape.dims for user in scatter.users] == [part]
    assert [user.opcode for user in scatter.users] == ["transpose"]


def test_of_three_dims_the_scattered_one_is_found() -> None:
    local = right(f"""
        x = f32[32,4,3] parameter(0){mark("[8,1,1]<=[8]")}
        g = f32[32,16] parameter(1){mark("[8,1]<=[8]")}
        d = f32[4,3,16] dot(x, g), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
        ROOT t = f32[3,16,4] transpose(d), dimensions={{1,2,0}}{mark("[1,8,1]<=[8]")}""")
    [scatter] = local.module.of_opcodes("reduce-scatter")
    assert scatter.shape.dims == (4, 3, 2)
