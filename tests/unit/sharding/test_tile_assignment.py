"""Tile assignments: two spellings of one array, and what reshape and transpose keep."""

from __future__ import annotations

import copy
import pickle
import time
import tracemalloc

import numpy as np
import pytest

import hlosharding as hs
from hlosharding.errors import ShardingError
from hlosharding.sharding import MOST_DEVICES, HloSharding, MeshInfo, TileAssignment
from hlosharding.wire import OpSharding

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


# ---- more devices than there can be: an error before anything is listed for each of them


TEXTS = (
    "{devices=[1000000000]<=[1000000000]}",
    "{devices=[2,1000000000]<=[1000000000,2]T(1,0) last_tile_dim_replicate}",
    f"{{devices=[{','.join(['999999999999999999'] * 400)}]<=[8]}}",
    f"{{devices=[8]<=[{','.join(['999999999999999999'] * 400)}]T({','.join(map(str, range(400)))})}}",
    "{maximal device=1000000000}",
    "{maximal_mesh[device_id=1000000000]}",
    "{mesh['a'=1000000000], [{'a'}]}",
    "{mesh['a'=2], device_ids=([1000000000]), [{'a'}]}",
    "{mesh['a'=32768,'b'=32768], [{'b'},{'a'}]}",
)


def refused(make: object) -> str:
    """The message, and little memory and time until it comes."""
    assert callable(make)
    tracemalloc.start()
    began = time.process_time()
    try:
        with pytest.raises(hs.HloShardingError, match="devices") as found:
            make()
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()
    assert time.process_time() - began < 0.5
    return str(found.value)


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_text_with_too_many_devices_is_refused_where_it_says_so(text: str) -> None:
    said = refused(lambda: HloSharding.parse(text))
    assert "devices are more than" in said
    assert "position" in said


def test_a_message_with_too_many_devices_is_refused() -> None:
    message = OpSharding(type=3, tile_assignment_dimensions=[10**9], iota_reshape_dims=[10**9])
    message.iota_transpose_perm.append(0)
    refused(lambda: HloSharding.from_proto(message))


def test_a_mesh_with_too_many_devices_is_refused() -> None:
    refused(lambda: MeshInfo(("a", "b"), (2**20, 2)))
    assert MeshInfo(("a",), (MOST_DEVICES,)).num_devices == MOST_DEVICES


def test_tiles_are_counted_at_any_number_and_listed_up_to_the_most() -> None:
    huge = TileAssignment.from_iota((2**30, 4)).reshape((2**32,))
    assert huge.num_elements == 2**32
    refused(lambda: huge.flat)
    refused(lambda: huge.array)


PROGRAM = "HloModule m{head}\nENTRY e {{\n  ROOT x = f32[8] parameter(0){tail}\n}}\n"


@pytest.mark.parametrize(
    ("head", "tail"),
    [
        (", num_partitions=1000000000", ""),
        (", replica_count=2000, num_partitions=2000", ""),
        ("", ", sharding={devices=[1000000000]<=[1000000000]}"),
    ],
)
def test_a_program_for_too_many_devices_is_refused(head: str, tail: str) -> None:
    with pytest.raises(hs.LoadError, match="devices"):
        hs.load(PROGRAM.format(head=head, tail=tail))


def test_a_shape_that_is_nested_too_deep_is_refused() -> None:
    deep = "(" * 3000 + "f32[]" + ")" * 3000
    with pytest.raises(hs.LoadError, match="too deep"):
        hs.load(f"HloModule m\nENTRY e {{\n  ROOT x = {deep} parameter(0)\n}}\n")


ONES, OPEN = "1," * 70, "{}, " * 70


@pytest.mark.parametrize(
    "text",
    [
        f"{{devices=[{ONES}2]<=[2]}}",
        f"{{devices=[{ONES}2]1,0}}",
        f"{{mesh['a'=2], device_ids=(1,0), [{OPEN}{{'a'}}]}}",
    ],
)
def test_no_array_has_so_many_dims(text: str) -> None:
    with pytest.raises(hs.HloShardingError, match=r"64 are the most.*position"):
        HloSharding.parse(text)


def test_an_array_has_no_millions_of_dims() -> None:
    for make in (
        lambda: hs.convert("(Shard(1048577), Replicate())", "hlo", mesh="x=2,y=4"),
        lambda: hs.convert("[[x]]", "hlo", mesh="x=2,y=4", ndim=10**9),
    ):
        with pytest.raises(hs.HloShardingError, match="dims"):
            make()
