"""Shardings in any spelling: print and read, equality, geometry, bad text."""

from __future__ import annotations

import math
import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hlosharding.errors import ShardingParseError
from hlosharding.sharding import HloSharding, MeshInfo, TileAssignment, find_named_form
from tests.support.sharding_strategies import meshes_and_specs, sizes_for, tiled, tilings


@given(tiled())
def test_what_is_printed_is_read(sharding: HloSharding) -> None:
    assert HloSharding.parse(str(sharding)) is sharding
    assert HloSharding.from_proto(sharding.to_proto()) is sharding
    assert pickle.loads(pickle.dumps(sharding)) is sharding


@given(tilings())
def test_a_list_equals_the_iota_that_makes_it(tiles: TileAssignment) -> None:
    listed = TileAssignment.from_flat(tiles.dims, tiles.flat)
    assert listed == tiles
    assert hash(listed) == hash(tiles)


@given(tilings(), st.data())
def test_iotas_transpose_as_arrays_do(tiles: TileAssignment, data: st.DataObject) -> None:
    perm = data.draw(st.permutations(range(len(tiles.dims))))
    assert np.array_equal(tiles.transpose(perm).array, tiles.array.transpose(perm))


@given(tiled(), st.data())
def test_the_tiles_of_all_devices_cover_the_array_evenly(sharding: HloSharding, data: st.DataObject) -> None:
    dims = data.draw(sizes_for(sharding))
    copies = sharding.total_num_tiles // sharding.num_tiles
    held = np.zeros(dims, int)
    for device in range(sharding.total_num_tiles):
        start, end = sharding.tile_offset(dims, device), sharding.tile_limit(dims, device)
        held[tuple(slice(a, b) for a, b in zip(start, end, strict=True))] += 1
        shape = sharding.tile_shape(dims, device)
        assert shape == tuple(b - a for a, b in zip(start, end, strict=True))
        assert all(mine <= largest for mine, largest in zip(shape, sharding.tile_shape(dims), strict=True))
    assert (held == copies).all()
    sharding.validate(dims, sharding.total_num_tiles)


@given(tiled())
def test_a_device_is_found_at_its_tile(sharding: HloSharding) -> None:
    holders = {sharding.device_for_tile(index) for index in np.ndindex(*sharding.data_dims)}
    assert len(holders) == sharding.num_tiles
    for device in holders:
        assert sharding.device_for_tile(sharding.tile_index(device)) == device


@given(meshes_and_specs())
def test_axis_names_are_found_again(mesh_and_spec: tuple[MeshInfo, tuple[tuple[str, ...], ...]]) -> None:
    mesh, spec = mesh_and_spec
    sharding = HloSharding.named(mesh, spec)
    form = find_named_form(sharding.without_names(), mesh)
    assert form is not None
    assert HloSharding.from_named_form(form) == sharding
    if sharding.kind == "tiled":
        sizes = dict(zip(mesh.names, mesh.sizes, strict=True))
        assert sharding.data_dims == tuple(math.prod(sizes[name] for name in names) for names in spec)


@given(st.text(alphabet="{}[]()<=,:?'\" \\/*01289abdemnprstuvTx_-", max_size=60))
def test_noise_is_refused_politely(text: str) -> None:
    position = 0
    try:
        HloSharding.parse("{" + text)
    except ShardingParseError as error:
        position = error.position
    assert 0 <= position <= len(text) + 1


@given(tiled(), st.data())
def test_damaged_text_is_refused_or_means_something(sharding: HloSharding, data: st.DataObject) -> None:
    text = str(sharding)
    at = data.draw(st.integers(0, len(text) - 1))
    cut = data.draw(st.integers(0, 3))
    put = data.draw(st.sampled_from(["", "{", "}", ",", "=", "0", "9", "-1", "<=", "T(1,0)", " manual", "'"]))
    try:
        damaged = HloSharding.parse(text[:at] + put + text[at + cut :])
    except ShardingParseError:
        return
    assert HloSharding.parse(str(damaged)) == damaged
