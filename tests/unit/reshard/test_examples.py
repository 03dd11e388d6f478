"""The mesh RFC's resharding examples (R1 to R10, D1, D2), with its mistakes corrected.

A sharding is written as there: for each dim the mesh axes that split it, major first.  Expected bytes are counted by
hand: elements of the target tile that the source tile lacks.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from hlosharding.cost import machines
from hlosharding.errors import ShardingError
from hlosharding.reshard import AllGather, AllToAll, Permute, Pieces, ReshardPlan, plan_reshard
from hlosharding.reshard.layout import layout_of
from hlosharding.reshard.piecewise import moves_between
from hlosharding.sharding import HloSharding

Axes = list[list[int]]


def on_mesh(mesh: tuple[int, ...], dims: Axes) -> HloSharding:
    """Dims split by mesh axes, devices row-major."""
    used = [axis for axes in dims for axis in axes]
    rest = [axis for axis in range(len(mesh)) if axis not in used]
    devices = np.arange(math.prod(mesh)).reshape(mesh).transpose(used + rest)
    return HloSharding.partial_tile(devices.reshape(*(math.prod(mesh[a] for a in axes) for axes in dims), -1))


def reshard(shape: tuple[int, ...], mesh: tuple[int, ...], source: Axes, target: Axes, objective: str) -> ReshardPlan:
    """The plan, its data checked: one byte an element."""
    first, last = on_mesh(mesh, source), on_mesh(mesh, target)
    plan = plan_reshard(shape, "u8", first, last, objective=objective)  # pyright: ignore[reportArgumentType]
    whole = np.arange(math.prod(shape), dtype=np.uint8).reshape(shape)
    for device, tile in enumerate(plan.run(whole)):
        mine = zip(last.tile_offset(shape, device), last.tile_limit(shape, device), strict=True)
        wanted = whole[tuple(slice(a, b) for a, b in mine)]
        np.testing.assert_array_equal(tile[tuple(slice(0, size) for size in wanted.shape)], wanted)
    return plan


@pytest.mark.parametrize("objective", ["bytes", "time"])
def test_r1_swapped_axes_of_one_dim_are_a_permute(objective: str) -> None:
    plan = reshard((6,), (2, 3), [[0, 1]], [[1, 0]], objective)
    assert [type(step) for step in plan.steps] == [Permute]
    assert plan.received_bytes.tolist() == [0, 1, 1, 1, 1, 0]


def test_r2_gathering_the_major_axis_takes_a_permute_first() -> None:
    plan = reshard((6,), (2, 3), [[0, 1]], [[1]], "bytes")
    assert [type(step) for step in plan.steps] == [Permute, AllGather]
    assert max(plan.received_bytes) == 2


def test_r2_gathering_the_major_axis_alone_is_wrong() -> None:
    # The document's answer: devices 0 and 3 of a 2x3 mesh then hold elements 0 and 3, not 0 and 1.
    got = AllGather(((0, 3), (1, 4), (2, 5)), 0).apply([np.array([i]) for i in range(6)])
    assert got[0].tolist() == [0, 3]
    assert reshard((6,), (2, 3), [[0, 1]], [[1]], "bytes").run(np.arange(6))[0].tolist() == [0, 1]


@pytest.mark.parametrize("objective", ["bytes", "time"])
def test_r3_gathering_the_minor_axis(objective: str) -> None:
    plan = reshard((4, 6), (2, 3), [[], [0, 1]], [[], [0]], objective)
    assert [type(step) for step in plan.steps] == [AllGather]
    assert set(plan.received_bytes) == {8}


def test_r4_permute_then_gather() -> None:
    plan = reshard((4, 8), (2, 2, 2), [[0], [1, 2]], [[0], [2]], "bytes")
    assert [type(step) for step in plan.steps] == [Permute, AllGather]
    assert max(plan.received_bytes) == 8


def test_r5_transposed_axes_of_unlike_size_on_six_devices() -> None:
    # The document leaves it open; Shardy receives 13 elements at most, its basis (D1) 21.
    plan = reshard((6, 6), (2, 3), [[0], [1]], [[1], [0]], "bytes")
    assert [type(step) for step in plan.steps] == [Pieces]
    assert max(plan.received_bytes) == 6
    assert plan.mean_received_bytes == plan.lower_bound


def test_r6_transposed_axes_of_unlike_size_on_twelve_devices() -> None:
    plan = reshard((6, 6), (2, 6), [[0], [1]], [[1], [0]], "bytes")
    assert max(plan.received_bytes) == 3
    assert plan.mean_received_bytes == plan.lower_bound


def test_r7_where_an_element_lives() -> None:
    # Check 1 of the document: t[13, 17] of 16 x 23 on 3 x 4 devices is element [1, 5] of device (2, 2).
    sharding = on_mesh((3, 4), [[0], [1]])
    device = 2 * 4 + 2
    layout = layout_of(sharding, (16, 23), 12)
    assert (layout.starts[device] + [1, 5]).tolist() == [13, 17]
    assert sharding.device_for_tile((13 // layout.tile[0], 17 // layout.tile[1])) == device


def test_r7_an_element_outside_of_the_tensor_has_no_device() -> None:
    # Check 2 of the document: t[9, 19] of 27 x 14 asks for device row 6 of 5.
    sharding = on_mesh((5, 2), [[1], [0]])
    rows, columns = layout_of(sharding, (27, 14), 10).tile
    with pytest.raises(ShardingError, match="outside"):
        sharding.device_for_tile((9 // rows, 19 // columns))


@pytest.mark.parametrize(("rows", "columns"), [(16, 23), (27, 14), (6, 6), (5, 2), (1, 7)])
@pytest.mark.parametrize("mesh", [(3, 4), (5, 2), (2, 3)])
def test_r7_transposed_axes_of_any_size(mesh: tuple[int, int], rows: int, columns: int) -> None:
    plan = reshard((rows, columns), mesh, [[0], [1]], [[1], [0]], "bytes")
    assert plan.lower_bound <= plan.mean_received_bytes <= 1.1 * plan.lower_bound


def test_r8_overlay_of_two_by_three_tiles_and_three_by_two() -> None:
    # (source, target) of the 4 x 4 pieces between cuts at 1/3, 1/2 and 2/3, as drawn; ids are mesh row and column.
    drawn = """
        11>11 12>11 12>21 13>21
        11>12 12>12 12>22 13>22
        21>12 22>12 22>22 23>22
        21>13 22>13 22>23 23>23"""
    wanted = {(_device(a), _device(b)) for a, b in (cell.split(">") for cell in drawn.split())}
    before, after = (layout_of(on_mesh((2, 3), dims), (6, 6), 6) for dims in ([[0], [1]], [[1], [0]]))
    pieces = moves_between(before, after, machines.h100(6))
    assert pieces is not None
    assert set(zip(pieces.senders.tolist(), pieces.receivers.tolist(), strict=True)) == wanted
    assert sorted(map(tuple, pieces.sizes.tolist())) == sorted((a, b) for a in (2, 1, 1, 2) for b in (2, 1, 1, 2))


def _device(name: str) -> int:
    return (int(name[0]) - 1) * 3 + int(name[1]) - 1


@pytest.mark.parametrize(("objective", "size"), [("bytes", 6), ("time", 3000)])
def test_r9_an_axis_moves_to_another_dim(objective: str, size: int) -> None:
    # So few bytes as there are in the drawing are gathered as fast.
    plan = reshard((size, size), (3,), [[0], []], [[], [0]], objective)
    assert [str(step) for step in plan.steps] == ["all-to-all, split dim 1, join dim 0, over {0, 1, 2}"]
    assert set(plan.received_bytes) == {2 * (size // 3) ** 2}


def test_r10_is_at_the_bound() -> None:
    least = reshard((4, 4), (2, 2, 2), [[0], [1, 2]], [[0, 1], [2]], "bytes")
    assert max(least.received_bytes) == 2
    assert least.mean_received_bytes == least.lower_bound == 1.5


def test_d1_needs_six_elements_not_twenty_one() -> None:
    # Gather 1, all-to-all 0, slice 1: right, and 21 elements received.
    tiles = [np.zeros((3, 2), np.uint8)] * 6
    gather = AllGather(((0, 1, 2), (3, 4, 5)), 1)
    exchange = AllToAll(((0, 3), (1, 4), (2, 5)), (2,), ((), (0,)), ((0,), ()))
    received, local = np.zeros(6), plan_reshard((3, 2), "u8", "{replicated}", "{replicated}", num_devices=6).shape
    for step in (gather, exchange):
        received += step.received_bytes(local, 6)
        local, tiles = step.result(local), step.apply(tiles)
    assert tiles[0].shape == (6, 3)
    assert set(received) == {21}
    assert max(reshard((6, 6), (2, 3), [[0], [1]], [[1], [0]], "bytes").received_bytes) == 6


def test_d2_needs_512_elements() -> None:
    # The document's basis and Shardy receive 768.
    axes = [[3, 2], [], [0, 1]], [[0], [1, 2], []]
    least = reshard((16, 16, 16), (2, 2, 2, 2), *axes, "bytes")
    assert max(least.received_bytes) == 512
    assert least.mean_received_bytes == least.lower_bound
    quick = reshard((16, 16, 16), (2, 2, 2, 2), *axes, "time")
    assert quick.predicted_s < least.predicted_s
