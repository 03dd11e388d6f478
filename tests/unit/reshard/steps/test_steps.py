"""Each step against its definition, one device at a time."""

from __future__ import annotations

import numpy as np
import pytest

from hlosharding.cost import machines
from hlosharding.ir import Shape
from hlosharding.reshard import (
    AllGather,
    AllReduce,
    AllToAll,
    DynamicSlice,
    Keep,
    Pad,
    Permute,
    Pieces,
    ReduceScatter,
    Round,
    Slice,
    Step,
)

TILES = [np.arange(12).reshape(2, 6) + 100 * device for device in range(4)]
PAIRS = ((0, 2), (1, 3))
LOCAL = Shape.parse("s32[2,6]")


def test_dynamic_slice_takes_each_device_s_own_part_and_clamps() -> None:
    out = DynamicSlice(((0, 1, 0, 1), (0, 3, 5, 4)), (1, 3)).apply(TILES)
    assert [tile.tolist() for tile in out] == [[[0, 1, 2]], [[109, 110, 111]], [[203, 204, 205]], [[309, 310, 311]]]


def test_gather_joins_in_group_order() -> None:
    out = AllGather(((2, 0), (3, 1)), 0).apply(TILES)
    np.testing.assert_array_equal(out[0], np.concatenate([TILES[2], TILES[0]]))
    np.testing.assert_array_equal(out[1], np.concatenate([TILES[3], TILES[1]]))


@pytest.mark.parametrize(("kind", "function"), [("add", np.add), ("maximum", np.maximum), ("or", np.bitwise_or)])
def test_reductions(kind: str, function: np.ufunc) -> None:
    whole = function(TILES[0], TILES[2])
    assert (AllReduce(PAIRS, kind).apply(TILES)[2] == whole).all()
    scattered = ReduceScatter(((2, 0), (1, 3)), 1, kind).apply(TILES)
    np.testing.assert_array_equal(scattered[2], whole[:, :3])
    np.testing.assert_array_equal(scattered[0], whole[:, 3:])


def test_all_to_all_sends_part_j_to_member_j() -> None:
    out = AllToAll(PAIRS, (2,), ((), (0,)), ((0,), ())).apply(TILES)
    np.testing.assert_array_equal(out[0], np.concatenate([TILES[0][:, :3], TILES[2][:, :3]]))
    np.testing.assert_array_equal(out[2], np.concatenate([TILES[0][:, 3:], TILES[2][:, 3:]]))


def test_all_to_all_over_two_axes_between_two_pairs_of_dims() -> None:
    # Axis 0 leaves dim 0 for dim 1, axis 1 leaves dim 2 for dim 3: two exchanges in one.
    whole = np.arange(2 * 2 * 2 * 2).reshape(2, 2, 2, 2)
    tiles = [whole[a : a + 1, :, b : b + 1, :] for a in range(2) for b in range(2)]
    step = AllToAll(((0, 1, 2, 3),), (2, 2), ((), (0,), (), (1,)), ((0,), (), (1,), ()))
    for device, tile in enumerate(step.apply(tiles)):
        a, b = divmod(device, 2)
        np.testing.assert_array_equal(tile, whole[:, a : a + 1, :, b : b + 1])


def test_permute_leaves_zeros_where_nothing_arrives() -> None:
    out = Permute(((0, 1), (1, 0), (2, 2))).apply(TILES)
    np.testing.assert_array_equal(out[1], TILES[0])
    np.testing.assert_array_equal(out[2], TILES[2])
    assert not out[3].any()


def test_pad_and_slice_work_at_the_end() -> None:
    grown = Pad((3, 6)).apply(TILES)
    assert grown[1].shape == (3, 6)
    np.testing.assert_array_equal(Slice((2, 6)).apply(grown)[1], TILES[1])


def test_pieces_write_what_counts_only() -> None:
    turn = Round((2,), read=((0, 1),), write=((0, 0),), pairs=((0, 1), (1, 0)), real=((2, 1),))
    out = Pieces((2,), (turn,)).apply([np.array([1, 2, 3]), np.array([4, 5, 6])])
    assert [tile.tolist() for tile in out] == [[5, 6], [1, 0]]


STEPS: list[tuple[Step, float]] = [
    (DynamicSlice(((0,) * 4, (0,) * 4), (1, 3)), 0),
    (AllGather(PAIRS, 0), 48),
    (AllReduce(PAIRS, "add"), 48),
    (ReduceScatter(PAIRS, 1, "add"), 24),
    (AllToAll(PAIRS, (2,), ((), (0,)), ((0,), ())), 24),
    (Permute(((0, 1), (1, 0), (2, 2), (3, 3))), 24),
]


@pytest.mark.parametrize(("step", "mean"), STEPS, ids=lambda value: type(value).__name__)
def test_bytes_time_and_shape(step: Step, mean: float) -> None:
    # 48 bytes a tile, groups of two.
    assert step.received_bytes(LOCAL, 4).mean() == mean
    assert (step.seconds(LOCAL, machines.h100(4)) > 0) == (mean > 0)
    assert step.result(LOCAL).dims == step.apply(TILES)[0].shape


def test_a_permute_is_charged_to_those_that_receive() -> None:
    assert Permute(((0, 1), (1, 0), (2, 2), (3, 3))).received_bytes(LOCAL, 4).tolist() == [48, 48, 0, 0]


@pytest.mark.parametrize("kind", ["add", "multiply", "maximum", "minimum", "and", "or", "xor"])
@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint16, np.float32])
def test_a_value_that_one_device_keeps_is_reduced_to_itself(kind: str, dtype: type) -> None:
    if dtype is np.float32 and kind in ("and", "or", "xor"):
        return
    tiles = [np.array([0, 1, 77, 100]).astype(dtype)] * 2
    kept = Keep((True, False), kind).apply(tiles)
    np.testing.assert_array_equal(AllReduce(((0, 1),), kind).apply(kept)[1], tiles[0])
