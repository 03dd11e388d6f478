"""Our counterparts of XLA's tests of the sharding value itself: kinds, texts, protos, tuples, metadata.

Texts are expected as live XLA was recorded to print them (`texts.py` has what it was given); the rest follows from what
a tile assignment means, by hand.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from hlosharding import wire
from hlosharding.errors import ShardingError
from hlosharding.sharding import HloSharding, OpMetadata, TileAssignment, required_leaves, sub_sharding
from tests.xla_mirror.cases import RECORDED
from tests.xla_mirror.mirroring import mirrors
from tests.xla_mirror.texts import TEXTS

PRINTED = {
    name: printed for name, (printed,) in json.loads((RECORDED / "sharding_texts.json").read_text())["answers"].items()
}
LOAD, DOT, SUM = (OpMetadata(op_name=name) for name in ("load", "dot", "sum"))
ORIGINS = {"": (), "_one_origin": (LOAD,), "_two_origins": (DOT, SUM)}
SCATTERED = [[[1, 9], [4, 6], [0, 7]]]
REPLICATED, TUPLE, OTHER, MANUAL = 0, 2, 3, 4
"""Of xla.OpSharding.Type."""


def check_text(name: str, sharding: HloSharding) -> None:
    """Prints as live XLA does, and live XLA's text reads back as the same, metadata included."""
    printed = PRINTED[name]
    assert sharding.to_string(metadata=True) == printed
    assert HloSharding.parse(TEXTS[name][0]).to_string(metadata=True) == printed
    assert HloSharding.parse(printed) == sharding


def refused(sharding: HloSharding, shape: object, num_devices: int) -> bool:
    try:
        sharding.validate(shape, num_devices)
    except ShardingError:
        return True
    return False


@mirrors("Replicate")
def test_a_whole_array_is_everywhere() -> None:
    whole = HloSharding.replicate()
    assert whole.is_replicated()
    assert whole.is_tile_maximal()
    assert whole.uses_device(0)
    assert whole.uses_device(100_000)
    assert whole == HloSharding.replicate()
    assert not refused(whole, (6,), 3)
    assert not whole.has_unique_device()


@mirrors("DevicePlacement")
def test_an_array_on_one_device() -> None:
    placed = HloSharding.maximal(3)
    assert not placed.is_replicated()
    assert placed.is_tile_maximal()
    assert (placed.uses_device(2), placed.uses_device(3)) == (False, True)
    assert placed.device == 3
    assert placed != HloSharding.replicate()
    assert not refused(placed, (6,), 4)
    assert refused(placed, (6,), 3)
    assert sub_sharding(placed, (6,), ()) == placed


def tuple_proto(tiled: dict[str, list[int]]) -> Any:
    named = [wire.OpMetadata(op_name=name) for name in ("p", "q", "r")]
    parts = [
        wire.OpSharding(type=OTHER, metadata=named[:2], **tiled),
        wire.OpSharding(type=MANUAL),
        wire.OpSharding(type=REPLICATED, metadata=named[2:]),
    ]
    return wire.OpSharding(type=TUPLE, tuple_shardings=parts)


@mirrors("ProtoRoundTrip")
def test_proto_of_a_tuple_with_listed_devices() -> None:
    proto = tuple_proto({"tile_assignment_dimensions": [3, 1], "tile_assignment_devices": [2, 0, 1]})
    assert wire.OpSharding.FromString(HloSharding.from_proto(proto).to_proto()) == proto


@mirrors("IotaProtoRoundTrip")
def test_proto_of_a_tuple_with_iota_devices() -> None:
    iota = {"tile_assignment_dimensions": [1, 6], "iota_reshape_dims": [2, 3], "iota_transpose_perm": [1, 0]}
    proto = tuple_proto(iota)
    assert wire.OpSharding.FromString(HloSharding.from_proto(proto).to_proto()) == proto


@mirrors("Tile")
def test_tiles_know_their_device_and_place() -> None:
    with pytest.raises(ShardingError):
        HloSharding.tile([[0, 1, 1], [3, 4, 5]])
    in_order = HloSharding.tile([[0, 1, 2], [3, 4, 5]])
    assert refused(in_order, (6, 9), 4)
    assert refused(in_order, (6, 9), 7)
    mixed = HloSharding.tile([[4, 0, 3], [1, 5, 2]])
    assert not refused(mixed, (5, 7), 6)
    assert [mixed.device_for_tile((row, column)) for row in (0, 1) for column in (0, 1, 2)] == [4, 0, 3, 1, 5, 2]
    # Tiles of [5, 7] are [3, 3].
    offsets = {device: mixed.tile_offset((5, 7), device) for device in range(6)}
    assert offsets == {4: (0, 0), 0: (0, 3), 3: (0, 6), 1: (3, 0), 5: (3, 3), 2: (3, 6)}
    assert not mixed.has_unique_device()


LISTS_AND_IOTAS = [
    ([[0, 1, 2], [3, 4, 5]], TileAssignment.from_iota((2, 3))),
    ([[0, 2, 4], [1, 3, 5]], TileAssignment.from_iota((2, 3), (3, 2), (1, 0))),
    (
        [[[0, 3], [6, 9]], [[1, 4], [7, 10]], [[2, 5], [8, 11]]],
        TileAssignment.from_iota((3, 2, 2), (2, 2, 3), (2, 0, 1)),
    ),
]


@mirrors("V1V2TileEquivalence")
@pytest.mark.parametrize(("devices", "iota"), LISTS_AND_IOTAS)
def test_listed_tiles_equal_iota_tiles(devices: list[list[int]], iota: TileAssignment) -> None:
    listed, by_iota = HloSharding.tile(devices), HloSharding.tile(iota)
    assert listed == by_iota
    assert hash(listed) == hash(by_iota)


@mirrors("V1V2PartialTileEquivalence")
@pytest.mark.parametrize(("devices", "iota"), LISTS_AND_IOTAS)
def test_listed_copies_equal_iota_copies(devices: list[list[int]], iota: TileAssignment) -> None:
    listed, by_iota = HloSharding.partial_tile(devices), HloSharding.partial_tile(iota)
    assert listed == by_iota
    assert hash(listed) == hash(by_iota)


@mirrors("V1V2SubgroupEquivalence")
@pytest.mark.parametrize(("devices", "iota"), LISTS_AND_IOTAS)
def test_listed_subgroups_equal_iota_subgroups(devices: list[list[int]], iota: TileAssignment) -> None:
    listed = HloSharding.subgroup(devices, ["manual", "replicated"])
    by_iota = HloSharding.subgroup(iota, ["manual", "replicated"])
    assert listed == by_iota
    assert hash(listed) == hash(by_iota)


def sharding_of_an_empty_tuple() -> HloSharding:
    return HloSharding.single_tuple(HloSharding.maximal(0), required_leaves([]))


@mirrors("EmptySingleTuple")
def test_an_empty_tuple_has_one_sharding() -> None:
    assert sharding_of_an_empty_tuple().extract_single() == HloSharding.maximal(0)


@mirrors("EmptySingleTupleIsNotShardGroup")
def test_an_empty_tuple_is_in_no_group() -> None:
    assert sharding_of_an_empty_tuple().shard_group is None
    assert all(leaf.shard_group is None for leaf in sharding_of_an_empty_tuple().leaves)


@mirrors("NestedTuple")
def test_leaves_of_a_nested_tuple() -> None:
    shape = (((5,), (6, 4)), (), ((2,),))
    leaves = [HloSharding.maximal(1), HloSharding.tile([[0], [1]]), HloSharding.replicate(), HloSharding.tile([1, 0])]
    protos = [wire.OpSharding.FromString(leaf.to_proto()) for leaf in leaves]
    sharding = HloSharding.from_proto(wire.OpSharding(type=TUPLE, tuple_shardings=protos))
    places = [(0, 0), (0, 1), (1,), (2, 0)]
    assert [sub_sharding(sharding, shape, place) for place in places] == leaves
    assert not refused(sharding, shape, 2)
    assert refused(sharding, [], 2)
    assert refused(sharding, (), 2)


@mirrors("NormalizeTrivialSubgroupToManual")
def test_a_subgroup_of_all_devices_is_manual() -> None:
    trivial = HloSharding.subgroup([[[0], [1], [2]]], ["manual", "replicated"])
    assert trivial.is_manual()
    check_text("trivial_subgroup", trivial)


@mirrors("Hash")
def test_equal_means_equal_hash() -> None:
    whole, three = HloSharding.replicate(), HloSharding.maximal(3)
    same = [
        (whole, HloSharding.replicate()),
        (HloSharding.tile([[5, 0], [2, 1]]), HloSharding.tile([[5, 0], [2, 1]])),
        (HloSharding.iota_tile((2, 3)), HloSharding.tile([[0, 1, 2], [3, 4, 5]])),
        (HloSharding.tuple([]), HloSharding.tuple([])),
        (HloSharding.tuple([three]), HloSharding.tuple([HloSharding.maximal(3)])),
    ]
    for left, right in same:
        assert (left, hash(left)) == (right, hash(right))
    different = [
        (whole, three),
        (three, HloSharding.maximal(4)),
        (whole, HloSharding.tuple([])),
        (HloSharding.tuple([whole]), HloSharding.tuple([three])),
    ]
    assert all(left != right for left, right in different)


@mirrors("ToStringReplicatedTest")
def test_text_of_a_whole_array() -> None:
    assert str(HloSharding.replicate()) == PRINTED["whole"]


@mirrors("HloReplicateShardingWithMetadataTest.ToStringTest")
@pytest.mark.parametrize("origins", ORIGINS)
def test_text_of_a_whole_array_with_origins(origins: str) -> None:
    sharding = HloSharding.replicate(ORIGINS[origins])
    assert str(sharding) == PRINTED["whole"]
    check_text(f"whole{origins}", sharding)


@mirrors("ToStringAssignDeviceTest")
def test_text_of_one_device() -> None:
    assert str(HloSharding.maximal(4)) == PRINTED["one_device"]


@mirrors("HloAssignDeviceShardingWithMetadataTest.ToStringTest")
@pytest.mark.parametrize("origins", ORIGINS)
def test_text_of_one_device_with_origins(origins: str) -> None:
    sharding = HloSharding.maximal(4, ORIGINS[origins])
    assert str(sharding) == PRINTED["one_device"]
    check_text(f"one_device{origins}", sharding)


@mirrors("ToStringTiledTest")
def test_text_of_listed_tiles() -> None:
    assert str(HloSharding.tile(SCATTERED)) == PRINTED["tiled"]


@mirrors("ToStringIotaTiledTest")
def test_text_of_iota_tiles() -> None:
    check_text("tiled_by_iota", HloSharding.iota_tile((5, 6), (3, 5, 2), (1, 2, 0)))


@mirrors("HloTiledShardingWithMetadataTest.ToStringTest")
@pytest.mark.parametrize("origins", ORIGINS)
def test_text_of_listed_tiles_with_origins(origins: str) -> None:
    sharding = HloSharding.tile(SCATTERED, ORIGINS[origins])
    assert str(sharding) == PRINTED["tiled"]
    check_text(f"tiled{origins}", sharding)


@mirrors("ToStringTupleTest")
def test_text_of_a_tuple() -> None:
    check_text(
        "tuple", HloSharding.tuple([HloSharding.replicate(), HloSharding.tile([[4], [2]]), HloSharding.maximal(1)])
    )


@mirrors("ToStringTupleWithMetadataTest")
def test_text_of_a_tuple_with_origins() -> None:
    p, q = (OpMetadata(op_name=name) for name in "pq")
    leaves = [HloSharding.replicate([p]), HloSharding.tile([[4], [2]]), HloSharding.maximal(1, [q])]
    assert str(HloSharding.tuple(leaves)) == PRINTED["tuple"]
    check_text("tuple_with_origins", HloSharding.tuple(leaves))


@mirrors("OstreamTest")
def test_formatting_prints_the_text() -> None:
    assert f"{HloSharding.tile([[[0, 1, 2], [3, 4, 5]]])}" == PRINTED["listed_in_order"]


@mirrors("ParseHloString")
@pytest.mark.parametrize("origins", ORIGINS)
def test_what_is_printed_reads_back(origins: str) -> None:
    found = ORIGINS[origins]
    tiled = HloSharding.tile([[[1, 0]]], found)
    shardings = [
        HloSharding.replicate(found),
        HloSharding.maximal(2, found),
        tiled,
        HloSharding.tuple([HloSharding.replicate(found)]),
        HloSharding.tuple([tiled.without_metadata(), HloSharding.replicate(found), HloSharding.maximal(1)]),
        HloSharding.tuple([tiled, HloSharding.replicate(), HloSharding.maximal(1, found)]),
    ]
    for sharding in shardings:
        again = HloSharding.parse(sharding.to_string(metadata=True))
        assert again == sharding
        assert [leaf.metadata for leaf in again.leaves] == [leaf.metadata for leaf in sharding.leaves]
    nested = [HloSharding.tile([[[1, 0]]]), HloSharding.replicate([LOAD]), HloSharding.maximal(1, [DOT, SUM])]
    check_text("nested_tuple", HloSharding.tuple(nested))


def partly_known() -> HloSharding:
    return HloSharding.tuple(
        [HloSharding.replicate([LOAD]), HloSharding.tile([[4], [2]]), HloSharding.maximal(1, [LOAD])]
    )


def origins_of(sharding: HloSharding) -> list[tuple[OpMetadata, ...]]:
    return [leaf.metadata for leaf in sharding.leaves]


@mirrors("WithMetadataNoOverwrite")
def test_origins_fill_gaps() -> None:
    assert origins_of(HloSharding.replicate().with_metadata([LOAD], overwrite=False)) == [(LOAD,)]
    assert origins_of(HloSharding.maximal(4, [LOAD]).with_metadata([DOT, SUM], overwrite=False)) == [(LOAD,)]
    filled = partly_known().with_metadata([DOT, SUM], overwrite=False)
    assert origins_of(filled) == [(LOAD,), (DOT, SUM), (LOAD,)]
    assert filled.metadata == ()


@mirrors("WithMetadataOverwrite")
def test_origins_replace_others() -> None:
    assert origins_of(HloSharding.replicate().with_metadata([LOAD], overwrite=True)) == [(LOAD,)]
    assert origins_of(HloSharding.maximal(4, [LOAD]).with_metadata([DOT, SUM], overwrite=True)) == [(DOT, SUM)]
    replaced = partly_known().with_metadata([DOT, SUM], overwrite=True)
    assert origins_of(replaced) == [(DOT, SUM)] * 3
    assert replaced.metadata == ()


@mirrors("WithoutMetadata")
def test_origins_are_taken_away() -> None:
    assert origins_of(HloSharding.replicate().without_metadata()) == [()]
    assert origins_of(HloSharding.maximal(4, [LOAD]).without_metadata()) == [()]
    bare = partly_known().without_metadata()
    assert bare.is_tuple()
    assert origins_of(bare) == [()] * 3
