"""Tiles, bounds and the least bytes, against counting element by element."""

from __future__ import annotations

import numpy as np
import pytest

from hlosharding.errors import PartitionError
from hlosharding.reshard.layout import Layout, layout_of, least_mean_elements, missing_elements
from hlosharding.sharding import HloSharding

SHARDINGS = [
    "{replicated}",
    "{maximal device=3}",
    "{devices=[4,2]<=[8]}",
    "{devices=[2,2,2]3,1,7,5,0,2,4,6 last_tile_dim_replicate}",
    "{devices=[8,1]<=[8]}",
]


def held(layout: Layout, device: int) -> np.ndarray:
    """Which elements a device holds, one by one."""
    out = np.zeros(layout.dims, np.bool_)
    for place in np.ndindex(*layout.dims):
        tile = tuple(i // size for i, size in zip(place, layout.tile, strict=True))
        out[place] = tile == tuple(layout.index[device]) and layout.holder in (None, device)
    return out


@pytest.mark.parametrize("dims", [(8, 8), (13, 10), (5, 3)])
@pytest.mark.parametrize("source", SHARDINGS)
@pytest.mark.parametrize("target", SHARDINGS)
def test_missing_elements(source: str, target: str, dims: tuple[int, int]) -> None:
    before, after = (layout_of(HloSharding.parse(s), dims, 8) for s in (source, target))
    wanted = [int((held(after, d) & ~held(before, d)).sum()) for d in range(8)]
    assert missing_elements(before, after).tolist() == wanted
    assert least_mean_elements(before, after) == np.mean(wanted)


@pytest.mark.parametrize(
    ("source", "target", "least"),
    [
        # An all-reduce over g: 2 (g-1)/g of the buffer; a reduce-scatter half of it.
        ("{unreduced}", "{replicated}", 2 * 7 / 8 * 64),
        ("{unreduced}", "{devices=[8,1]<=[8]}", 7 / 8 * 64),
        ("{devices=[2,1,4]<=[8] last_tile_dims={unreduced}}", "{devices=[2,4]<=[8]}", 3 / 4 * 32),
        # The target's devices hold no partial sum of what they want: one message more for each element.
        ("{devices=[2,1,4]<=[8] last_tile_dims={unreduced}}", "{devices=[2,4]4,5,6,7,0,1,2,3}", 32),
        ("{devices=[2,1,4]<=[8] last_tile_dims={unreduced}}", "{maximal device=0}", (3 * 64 + 32) / 8),
    ],
)
def test_partial_sums_must_meet(source: str, target: str, least: float) -> None:
    before, after = (layout_of(HloSharding.parse(s), (8, 8), 8) for s in (source, target))
    assert least_mean_elements(before, after) == least


def test_empty_tiles_have_no_data() -> None:
    layout = layout_of(HloSharding.parse("{devices=[8]<=[8]}"), (10,), 8)
    assert layout.tile == (2,)
    assert layout.has_data().tolist() == [True] * 5 + [False] * 3


def test_manual_groups_are_named_by_their_least_device() -> None:
    one = layout_of(HloSharding.parse("{devices=[1,2,4]<=[2,4]T(1,0) last_tile_dims={manual, replicated}}"), (4,), 8)
    assert one.num_manual_groups == 2
    assert set(one.manual_group.tolist()) <= set(range(8))


@pytest.mark.parametrize(
    ("sharding", "message"),
    [
        ("{manual}", "cannot be resharded"),
        ("{devices=[4]<=[4]}", "each of 8 devices"),
        ("{devices=[4,2]<=[8]}", "2 dims"),
    ],
)
def test_refusals(sharding: str, message: str) -> None:
    with pytest.raises(PartitionError, match=message):
        layout_of(HloSharding.parse(sharding), (8,), 8)
