"""The mesh's axes: cut where needs ask for it; not every way to factor the number of devices is tried."""

from __future__ import annotations

import numpy as np
import pytest

from hlosharding.executor import axis_choice
from hlosharding.executor.axes import Axes
from hlosharding.executor.axis_choice import Needs, choose_axes
from hlosharding.sharding import HloSharding, MeshInfo
from hlosharding.spmd import Groups


def _groups(*sizes: int, along: int) -> Groups:
    """Groups along one dim of a grid of devices."""
    grid = np.moveaxis(np.arange(np.prod(sizes)).reshape(sizes), along, -1)
    return tuple(map(tuple, grid.reshape(-1, sizes[along]).tolist()))


@pytest.mark.parametrize("count", [4096, 5040, 16384])
def test_no_axes_are_tried_that_no_need_asks_for(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, ...]] = []
    cut = axis_choice._cut
    monkeypatch.setattr(axis_choice, "_cut", lambda *given: made.append(given[1]) or cut(*given))
    groups = _groups(count // 16, 8, 2, along=1)
    tiles = HloSharding.parse(f"{{devices=[{count // 2},2]<=[{count}]}}")
    axes = choose_axes(None, count, Needs(unordered=frozenset({groups}), shardings=frozenset({(tiles, 2)})))
    assert axes.sizes == (count // 16, 8, 2)
    assert len(made) == 1


def test_where_cuts_do_not_go_together_most_is_said() -> None:
    wide, high = HloSharding.parse("{devices=[2,3]<=[6]}"), HloSharding.parse("{devices=[3,2]<=[6]}")
    rows = _groups(3, 2, along=1)
    needs = Needs(ordered=frozenset({rows}), shardings=frozenset({(wide, 2), (high, 2)}))
    axes = choose_axes(None, 6, needs)
    assert axes.sizes == (3, 2)
    assert axes.spec_of(high, 2) == ((0,), (1,))
    assert axes.spec_of(wide, 2) is None


def test_what_a_permute_leaves_as_it_is_is_an_axis() -> None:
    places = np.arange(24).reshape(2, 3, 4)
    pairs = tuple(zip(places.ravel().tolist(), np.roll(places, 1, axis=1).ravel().tolist(), strict=True))
    axes = choose_axes(None, 24, Needs(permutes=frozenset({pairs})))
    assert axes.sizes == (2, 3, 4)
    assert axes.permute_parts(pairs) == ((1,), ((0, 2), (1, 0), (2, 1)))


def test_axes_of_a_mesh_keep_their_names_and_devices() -> None:
    mesh = MeshInfo(("data", "one", "model"), (2, 1, 4), (7, 6, 5, 4, 3, 2, 1, 0))
    grid = np.array(mesh.device_ids).reshape(2, 2, 2)
    groups = tuple(map(tuple, np.moveaxis(grid, 1, -1).reshape(-1, 2).tolist()))
    axes = choose_axes(mesh, 8, Needs(ordered=frozenset({groups})))
    assert (axes.names, axes.sizes) == (("data", "one", "model_0", "model_1"), (2, 1, 2, 2))
    assert axes.parts_of(groups, ordered=True) == (2,)


def test_copies_that_stand_in_another_order_on_the_mesh_have_axes() -> None:
    axes = Axes((2, 2), (1, 2, 0, 3), ("a", "b"))
    rows = HloSharding.parse("{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}")
    # The mesh's columns are (1, 0) and (2, 3): `b` says which, `a` goes along the copies.
    assert axes.spec_of(rows, 2) == ((1,), ())


def test_a_group_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    axes, groups = Axes((2, 4), tuple(range(8)), ("a", "b")), _groups(2, 4, along=1)
    assert axes.parts_of(groups, ordered=True) == (1,)
    monkeypatch.setattr(Axes, "digits_along", None)
    assert axes.parts_of(groups, ordered=True) == (1,)
