"""Digits of places, against numpy's transposed grids."""

from __future__ import annotations

from itertools import chain, permutations

import numpy as np
import pytest

from hlosharding.sharding import DeviceGrid

ORDERS = [tuple(range(24)), tuple(reversed(range(24))), tuple(np.random.default_rng(3).permutation(24).tolist())]


@pytest.mark.parametrize("devices", ORDERS)
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_transposed_grid_is_written_in_the_axes_of_the_grid(devices: tuple[int, ...], order: tuple[int, ...]) -> None:
    tiles = np.array(devices).reshape(2, 3, 4).transpose(order)
    whole = DeviceGrid((24,), devices)
    digits = whole.digits_of(tiles)
    assert digits is not None
    grid = whole.cut_at({12, 4, *(digit.stride for digit in chain(*digits))})
    assert grid is not None
    assert grid.sizes == (2, 3, 4)
    assert tuple(map(grid.axes_within, digits)) == tuple((axis,) for axis in order)


@pytest.mark.parametrize("devices", ORDERS)
def test_coordinates_lead_back_to_the_device(devices: tuple[int, ...]) -> None:
    grid = DeviceGrid((2, 1, 3, 4), devices)
    assert np.array(devices).reshape(grid.sizes)[tuple(grid.coordinates.T)].tolist() == list(range(24))
    assert [grid.axis_at(digit.stride) for digit in grid.digits if digit.size > 1] == [0, 2, 3]


@pytest.mark.parametrize("devices", ORDERS)
@pytest.mark.parametrize("axes", [(0,), (1,), (2, 0), (1, 2), (2, 1, 0), ()])
def test_groups_along_axes_are_found_again(devices: tuple[int, ...], axes: tuple[int, ...]) -> None:
    grid = DeviceGrid((2, 3, 4), devices)
    rest = [axis for axis in range(3) if axis not in axes]
    rows = np.array(devices).reshape(grid.sizes).transpose([*rest, *axes]).reshape(-1, grid.product(axes))
    assert grid.groups(axes) == tuple(map(tuple, rows.tolist()))
    shuffled = grid.groups(axes)[::-1]
    ordered = grid.digits_along(shuffled, ordered=True)
    assert ordered is not None
    assert grid.axes_within(ordered) == axes
    unordered = grid.digits_along([group[::-1] for group in shuffled], ordered=False)
    assert unordered is not None
    assert set(grid.axes_within(unordered)) == set(axes)


def test_copies_may_stand_in_any_order() -> None:
    whole = DeviceGrid((6,), tuple(range(6)))
    tiles = np.array([[4, 0, 2], [1, 5, 3]])
    assert whole.digits_of(tiles) is None
    assert whole.digits_of(tiles, unordered=True) == (((1, 2),), ((2, 3),))


@pytest.mark.parametrize("tiles", [[[0, 1], [3, 2]], [[0, 1, 2, 3, 4]], [[0, 1], [2, 4]], [[0, 1], [1, 3]]])
def test_what_is_no_transposed_grid_of_all_devices_has_no_digits(tiles: list[list[int]]) -> None:
    whole = DeviceGrid((4,), (0, 1, 2, 3))
    assert whole.digits_of(np.array(tiles)) is None
    assert whole.digits_along(tuple(map(tuple, tiles)), ordered=True) is None


def test_groups_of_two_sizes_have_no_digits() -> None:
    assert DeviceGrid((3,), (0, 1, 2)).digits_along(((0, 1), (2,)), ordered=True) is None


def test_cuts_that_do_not_divide_each_other_make_no_axes() -> None:
    whole = DeviceGrid((12,), tuple(range(12)))
    assert whole.cut_at({4, 6}) is None
    assert whole.cut_at({24}) is None
