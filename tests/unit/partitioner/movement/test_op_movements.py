"""What ops that only move elements do, as regions: held against the op itself, in numpy."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from hlosharding.partitioner.movement.op_movements import DataMovement, chained_movement
from tests.support.program_check import one_device
from tests.support.split_programs import module_of, values

X, Y = "x = f32[12,5] parameter(0)", "y = f32[4,5] parameter(1)"
ZERO, ONE = "v = f32[] constant(0)", "w = f32[] constant(1)"


def chain(*lines: str) -> DataMovement:
    found = chained_movement(module_of("\n".join(lines)).entry.root)
    assert found is not None
    return found


def carried_out(movement: DataMovement, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """The result that the regions say."""
    out = np.full(movement.dims, np.nan, np.float32)
    if movement.base is not None:
        out[...] = arrays[movement.base.name]
    if movement.fill is not None:
        out[...] = movement.fill.literal
    for region in movement.regions:
        source = arrays[movement.operands[region.operand].name]
        for j in product(*map(range, region.sizes)):
            place = tuple(t + i * s for t, i, s in zip(region.target, j, region.target_steps, strict=True))
            taken = tuple(t + i * s for t, i, s in zip(region.source, j, region.source_steps, strict=True))
            out[place] = source[taken]
    return out


@pytest.mark.parametrize(
    "lines",
    [
        (X, "ROOT r = f32[4,3] slice(x), slice={[2:12:3], [1:4]}"),
        (X, ZERO, "ROOT r = f32[22,4] pad(x, v), padding=-3_2_1x1_-2"),
        (X, "ROOT r = f32[12,5] reverse(x), dimensions={0,1}"),
        (X, Y, "ROOT r = f32[20,5] concatenate(y, x, y), dimensions={0}"),
        (X, Y, "a = s32[] constant(20)", "b = s32[] constant(0)",
         "ROOT r = f32[12,5] dynamic-update-slice(x, y, a, b)"),
        (X, ZERO, "p = f32[14,5] pad(x, v), padding=1_1x0_0", "c = f32[14,5] copy(p)",
         "ROOT r = f32[7,5] slice(c), slice={[0:14:2], [0:5]}"),
        (X, "a = f32[4,5] slice(x), slice={[8:12], [0:5]}", "b = f32[8,5] slice(x), slice={[0:8], [0:5]}",
         "ROOT r = f32[12,5] concatenate(a, b), dimensions={0}"),
        (X, "a = f32[6,5] slice(x), slice={[0:12:2], [0:5]}", "b = f32[6,5] reverse(a), dimensions={0}",
         "ROOT r = f32[2,5] slice(b), slice={[1:6:3], [0:5]}"),
        (X, ZERO, "p = f32[25,5] pad(x, v), padding=1_1_1x0_0", "b = f32[25,5] reverse(p), dimensions={0}",
         "ROOT r = f32[20,5] slice(b), slice={[2:22], [0:5]}"),
        (X, Y, ZERO, "z = f32[3,5] broadcast(v), dimensions={}",
         "ROOT r = f32[19,5] concatenate(z, x, y), dimensions={0}"),
    ],
)  # fmt: skip
def test_a_movement_says_what_the_ops_do(lines: tuple[str, ...]) -> None:
    module = module_of("\n".join(lines))
    arguments = [values(p.shape, seed) for seed, p in enumerate(module.entry.parameters)]
    arrays = {p.name: a for p, a in zip(module.entry.parameters, arguments, strict=True)}
    found = chained_movement(module.entry.root)
    assert found is not None
    np.testing.assert_array_equal(carried_out(found, arrays), one_device(module, arguments)[0])


def test_a_row_of_ops_that_cut_and_join_ends_soon() -> None:
    """By way of all eight rounds, each of eight parts, there would be 8 ** 8 regions."""
    lines, order, arrays = ["x0 = f32[64] parameter(0)"], (3, 0, 6, 1, 7, 4, 2, 5), {"x0": np.arange(64.0)}
    for n in range(8):
        lines += [f"c{n}_{k} = f32[8] slice(x{n}), slice={{[{8 * k}:{8 * k + 8}]}}" for k in range(8)]
        joined = ", ".join(f"c{n}_{k}" for k in order)
        lines.append(f"{'ROOT ' * (n == 7)}x{n + 1} = f32[64] concatenate({joined}), dimensions={{0}}")
        parts = arrays[f"x{n}"].reshape(8, 8)
        arrays |= {f"c{n}_{k}": parts[k] for k in range(8)} | {f"x{n + 1}": parts[list(order)].reshape(64)}
    movement = chain(*lines)
    assert movement.skipped
    np.testing.assert_array_equal(carried_out(movement, arrays), arrays["x8"])


def test_a_chain_leaves_out_what_nobody_else_needs() -> None:
    movement = chain(
        X, ZERO, "p = f32[13,5] pad(x, v), padding=1_0x0_0", "ROOT r = f32[12,5] slice(p), slice={[0:12], [0:5]}"
    )
    assert ([o.name for o in movement.operands], [i.name for i in movement.skipped]) == (["x"], ["p"])


def test_what_somebody_else_needs_is_not_passed_over() -> None:
    movement = chain(
        X,
        ZERO,
        "p = f32[13,5] pad(x, v), padding=1_0x0_0",
        "n = f32[13,5] negate(p)",
        "ROOT r = f32[26,5] concatenate(p, n), dimensions={0}",
    )
    assert {o.name for o in movement.operands} == {"p", "n"}


def test_two_fills_are_two_movements() -> None:
    movement = chain(
        X, ZERO, ONE, "p = f32[13,5] pad(x, v), padding=1_0x0_0", "ROOT r = f32[14,5] pad(p, w), padding=1_0x0_0"
    )
    assert [o.name for o in movement.operands] == ["p"]


def test_a_place_known_only_later_is_no_movement() -> None:
    module = module_of(
        f"{X}\n a = s32[] parameter(1)\n ROOT r = f32[4,5] dynamic-slice(x, a, a), dynamic_slice_sizes={{4,5}}"
    )
    assert chained_movement(module.entry.root) is None
