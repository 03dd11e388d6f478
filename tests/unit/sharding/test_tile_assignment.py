"""Tile assignments: two spellings of one array, and what reshape and transpose keep."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from hlosharding.errors import ShardingError
from hlosharding.sharding import TileAssignment

iota = TileAssignment.from_iota


@pytest.mark.parametrize(
    ("dims", "reshape", "perm", "canonical"),
    [
        ((60,), (3, 4, 5), (0, 1, 2), "[60]<=[60]"),
        ((60,), (3, 4, 5), (2, 1, 0), "[60]<=[3,4,5]T(2,1,0)"),
        ((60,), (3, 4, 5), (1, 2, 0), "[60]<=[3,20]T(1,0)"),
        ((60,), (3, 4, 5), (2, 0, 1), "[60]<=[12,5]T(1,0)"),
        ((60,), (1, 3, 1, 4, 1, 5), (4, 3, 2, 5, 1, 0), "[60]<=[3,20]T(1,0)"),
        ((1, 1), (1, 1), (1, 0), "[1,1]<=[1]"),
        ((8,), (2, 2, 2), (2, 0, 1), "[8]<=[4,2]T(1,0)"),
    ],
)
def test_iotas_are_kept_in_canonical_form(dims, reshape, perm, canonical):
    assert str(iota(dims, reshape, perm)) == canonical


def test_an_iota_means_what_numpy_says():
    tiles = iota((4, 6), (2, 3, 4), (2, 0, 1))
    expected = np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1).reshape(4, 6)
    assert np.array_equal(tiles.array, expected)
    assert tiles.flat == tuple(expected.ravel().tolist())
    assert tiles.first == 0
    assert tiles.num_elements == 24


def test_spellings_of_one_array_are_equal_and_intern_apart():
    listed, short = TileAssignment.from_array([[0, 2], [1, 3]]), iota((2, 2), (2, 2), (1, 0))
    assert listed == short
    assert hash(listed) == hash(short)
    assert listed is not short
    assert listed.meaning is short
    assert TileAssignment.from_flat((2, 2), (0, 2, 1, 3)) is listed
    assert listed != short.reshape((4, 1))
    assert listed != "[2,2]0,2,1,3"


def test_a_list_that_no_iota_makes_means_itself():
    odd = TileAssignment.from_flat((4,), (0, 1, 3, 2))
    assert odd.meaning is odd
    assert odd != iota((4,))
    assert TileAssignment.from_flat((2,), (1, 0)).meaning.iota is None
    assert TileAssignment.from_flat((6,), (0, 3, 1, 4, 2, 5)).meaning is iota((6,), (2, 3), (1, 0))
    assert TileAssignment.from_flat((1,), (5,)).meaning.iota is None
    assert TileAssignment.from_flat((1,), (0,)) == iota((1,))


@pytest.mark.parametrize(
    ("start", "perm", "result"),
    [
        (iota((2, 4)), (1, 0), "[4,2]<=[2,4]T(1,0)"),
        (iota((2, 4)), (0, 1), "[2,4]<=[8]"),
        (iota((1, 8)), (1, 0), "[8,1]<=[8]"),
        (iota((4, 2), (2, 4), (1, 0)), (1, 0), "[2,4]<=[8]"),
        (iota((2, 2, 2)), (2, 0, 1), "[2,2,2]<=[4,2]T(1,0)"),
        # The edge between the dims lies within an iota dim, which is cut there.
        (iota((6, 2), (6, 2), (1, 0)), (1, 0), "[2,6]<=[3,4]T(1,0)"),
        # No iota can say it: the digits of size 3 and 2 straddle the edge of the tile dims.
        (iota((2, 3), (2, 3), (1, 0)), (1, 0), "[3,2]0,4,3,2,1,5"),
        (TileAssignment.from_flat((2, 2), (3, 1, 2, 0)), (1, 0), "[2,2]3,2,1,0"),
    ],
)
def test_transpose_keeps_an_iota_where_there_is_one(start, perm, result):
    moved = start.transpose(perm)
    assert np.array_equal(moved.array, start.array.transpose(perm))
    assert str(moved) == result


def test_reshape_keeps_devices_in_order():
    tiles = iota((4, 2), (2, 4), (1, 0))
    assert str(tiles.reshape((2, 2, 2))) == "[2,2,2]<=[2,4]T(1,0)"
    assert tiles.reshape((4, 2)) is tiles
    assert TileAssignment.from_flat((2, 2), (3, 1, 2, 0)).reshape((4,)).flat == (3, 1, 2, 0)
    with pytest.raises(ShardingError, match="cannot be reshaped"):
        tiles.reshape((3, 2))


def test_what_contradicts_itself_is_refused():
    for make in (
        lambda: iota((2, 2), (8,)),
        lambda: iota((4,), (2, 2), (0, 0)),
        lambda: iota((0,)),
        lambda: iota((-2, -2)),
        lambda: iota(()),
        lambda: TileAssignment.from_flat((2, 2), (0, 1, 2)),
        lambda: TileAssignment.from_flat((), ()),
        lambda: TileAssignment.from_array([[0.5, 1.0]]),
        lambda: iota((2, 2)).transpose((0,)),
    ):
        with pytest.raises(ShardingError):
            make()


def test_values_are_immutable_and_survive_pickle_and_copy():
    for tiles in (iota((4, 2), (2, 4), (1, 0)), TileAssignment.from_flat((2, 2), (0, 3, 1, 2))):
        assert pickle.loads(pickle.dumps(tiles)) is tiles
        assert copy.deepcopy(tiles) is tiles
        with pytest.raises(AttributeError):
            tiles.dims = (1,)
        with pytest.raises(ValueError, match="read-only"):
            tiles.array[0] = 1


def test_a_huge_iota_costs_nothing():
    huge = iota((1 << 30, 1 << 20))
    assert huge == iota((1 << 30, 1 << 20))
    assert str(huge.transpose((1, 0))) == f"[{1 << 20},{1 << 30}]<=[{1 << 30},{1 << 20}]T(1,0)"
