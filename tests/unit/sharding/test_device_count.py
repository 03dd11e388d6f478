"""More devices than there can be: an error before anything is listed for each of them."""

from __future__ import annotations

import time
import tracemalloc

import pytest

import hlosharding as hs
from hlosharding.sharding import MOST_DEVICES, HloSharding, MeshInfo, TileAssignment
from hlosharding.wire import OpSharding

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
