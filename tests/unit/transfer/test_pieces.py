"""Pieces against a count of single elements."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hlosharding.sharding import HloSharding
from hlosharding.transfer.pieces import Demand, TilePiece, demands_of
from hlosharding.transfer.placed_arrays import ArrayKind, PlacedSide

SHARDINGS = st.sampled_from(
    ["{devices=[6,1]<=[6]}", "{devices=[2,3]<=[6]}", "{devices=[3,2]<=[2,3]T(1,0)}", "{replicated}"]
    + ["{devices=[1,3,2]<=[6] last_tile_dim_replicate}", "{devices=[2,1,3]1,3,5,0,2,4 last_tile_dim_replicate}"]
)


def held(side: PlacedSide, dims: tuple[int, int]) -> dict[int, np.ndarray]:
    """By device: which elements it holds."""
    found: dict[int, np.ndarray] = {}
    for place, device in enumerate(side.devices):
        found[device] = np.zeros(dims, bool)
        if side.sharding.is_replicated():
            found[device][:] = True
        else:
            start, end = side.sharding.tile_offset(dims, place), side.sharding.tile_limit(dims, place)
            found[device][tuple(map(slice, start, end))] = True
    return found


@given(st.tuples(st.integers(0, 13), st.integers(0, 13)), SHARDINGS, SHARDINGS, st.integers(0, 6))
def test_each_element_goes_from_who_has_it_to_who_lacks_it(
    dims: tuple[int, int], source: str, target: str, shift: int
) -> None:
    before = PlacedSide(HloSharding.parse(source), tuple(range(6)))
    after = PlacedSide(HloSharding.parse(target), tuple(range(shift, shift + 6)))
    have, want = held(before, dims), held(after, dims)
    lacking = {d: want[d] & ~have.get(d, np.zeros(dims, bool)) for d in want}
    for demand in demands_of([ArrayKind(dims, np.dtype("u1"), before, after)], [1]):
        assert demand.wanters
        for piece in demand.pieces:
            box = tuple(slice(*side) for side in piece.box)
            assert all(have[d][box].all() for d in demand.holders)
            assert all(lacking[d][box].all() for d in demand.wanters)
            for device in demand.wanters:
                lacking[device][box] = False
    assert not any(left.any() for left in lacking.values())


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(1, 5)), min_size=1, max_size=3), st.data())
def test_units_are_boxes_that_meet(pieces: list[tuple[int, int, int]], data: st.DataObject) -> None:
    """Cut anywhere, a demand's parts have all its elements once."""
    made = [TilePiece(n, count, ((2, 2 + a), (0, b)), a * b) for n, (count, a, b) in enumerate(pieces)]
    demand = Demand((0,), (1,), made)
    cuts = data.draw(st.lists(st.floats(0, demand.nbytes), max_size=5))
    edges = sorted({0, demand.nbytes, *map(demand.row_edge, cuts)})
    seen = [np.zeros((piece.count, 20, 20), int) for piece in made]
    for start, end in pairwise(edges):
        boxes = list(demand.boxes(start, end))
        assert sum(int(np.prod([high - low for low, high in box])) for _, _, box in boxes) == end - start
        for kind, number, box in boxes:
            seen[kind][(number, *(slice(*side) for side in box))] += 1
    for piece, counts in zip(made, seen, strict=True):
        inside = counts[(slice(None), *(slice(*side) for side in piece.box))]
        assert (inside == 1).all()
        assert counts.sum() == inside.sum()
