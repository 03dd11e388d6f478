"""What all devices hold under a sharding: tables of tiles, offsets, padding."""

from __future__ import annotations

import pytest

from hlosharding.sharding import REPLICATED, HloSharding, offsets, tile_table, uneven_dims

parse = HloSharding.parse


def test_the_tile_table_follows_the_device_order() -> None:
    assert tile_table(parse("{devices=[2,2]3,1,2,0}"), 2, 4) == ((1, 1), (0, 1), (1, 0), (0, 0))
    assert tile_table(REPLICATED, 2, 3) == ((0, 0),) * 3


def test_offsets_count_in_rounded_tiles() -> None:
    assert offsets(parse("{devices=[4]<=[4]}"), (10,), 0, 4) == (0, 3, 6, 9)
    assert offsets(parse("{devices=[2,2]<=[2,2]T(1,0)}"), (5, 4), 0, 4) == (0, 3, 0, 3)


@pytest.mark.parametrize(
    ("text", "dims", "local", "uneven"),
    [
        ("{devices=[2,4]<=[8]}", (6, 10), (3, 3), (1,)),
        ("{devices=[8,1]<=[8]}", (3, 5), (1, 5), (0,)),
        ("{replicated}", (3, 5), (3, 5), ()),
    ],
)
def test_tiles_round_up(text: str, dims: tuple[int, ...], local: tuple[int, ...], uneven: tuple[int, ...]) -> None:
    assert parse(text).tile_shape(dims) == local
    assert uneven_dims(parse(text), dims) == uneven
