"""ONNX's ShardingSpecProto: what each device holds by the standard's own loop, and what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from onnx import ShardingSpecProto

import hlosharding as hs
from hlosharding.sharding import tile_table

Dim = tuple[int, int]
"""Axis and number of shards."""


def spec_of(device: Sequence[int], dims: Sequence[Dim], groups: dict[int, Sequence[int]] | None = None) -> Any:
    spec = ShardingSpecProto(tensor_name="x", device=device)
    for key, members in (groups or {}).items():
        spec.index_to_device_group_map.add(key=key, value=members)
    for axis, shards in dims:
        spec.sharded_dim.add(axis=axis).simple_sharding.add(num_shards=shards)
    return spec


def tiles_by_loop(spec: Any, rank: int) -> dict[int, tuple[int, ...]]:
    """Device to tile index: shards are counted in row-major order of the dims as they are listed."""
    groups = {entry.key: list(entry.value) for entry in spec.index_to_device_group_map}
    dims = [(d.axis % rank, d.simple_sharding[0].num_shards) for d in spec.sharded_dim]
    found: dict[int, tuple[int, ...]] = {}
    for number, index in enumerate(itertools.product(*(range(shards) for _, shards in dims))):
        tile = [0] * rank
        for (axis, _), at in zip(dims, index, strict=True):
            tile[axis] = at
        for device in groups.get(spec.device[number], [spec.device[number]]):
            found[device] = tuple(tile)
    return found


CASES: list[tuple[Any, str]] = [
    (spec_of([0, 1, 2, 3], [(0, 2), (1, 2)]), "{devices=[2,2]<=[4]}"),
    (spec_of([0, 1, 2, 3], [(1, 2), (0, 2)]), "{devices=[2,2]0,2,1,3}"),
    (spec_of(range(8), [(-1, 2), (0, 4)]), "{devices=[4,2]0,4,1,5,2,6,3,7}"),
    (spec_of([-1, -2], [(1, 2)], {-1: [0, 2], -2: [1, 3]}), "{devices=[1,2,2]0,2,1,3 last_tile_dim_replicate}"),
    (spec_of([-1, -2], [(0, 2)], {-1: [0, 1], -2: [2, 3]}), "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"),
    (spec_of([-1], [], {-1: [0, 1, 2, 3]}), "{replicated}"),
    (spec_of([-1], [(0, 1)], {-1: [3, 1, 2, 0]}), "{replicated}"),
    (spec_of([3, 2, 1, 0], [(0, 4)]), "{devices=[4,1]3,2,1,0}"),
    (spec_of([3], []), "{maximal device=3}"),
    (spec_of([0, 1, 2, 3, 4, 5], [(1, 3), (0, 1), (-2, 2)][:1] + [(0, 2)]), "{devices=[2,3]0,2,4,1,3,5}"),
]


@pytest.mark.parametrize(("spec", "expected"), CASES)
def test_each_device_holds_what_the_standards_loop_gives_it(spec: Any, expected: str) -> None:
    sharding = hs.convert(spec, to="hlo", ndim=2)
    assert sharding == hs.HloSharding.parse(expected)
    if not sharding.is_maximal():
        found = tiles_by_loop(spec, 2)
        assert tile_table(sharding, 2, len(found)) == tuple(found[device] for device in range(len(found)))


@pytest.mark.parametrize(("spec", "expected"), CASES)
def test_there_and_back(spec: Any, expected: str) -> None:
    again = hs.convert(spec, to="onnx", ndim=2)
    assert hs.same_sharding(again, spec, ndim=2)
    assert tiles_by_loop(again, 2) == tiles_by_loop(spec, 2)


def test_a_fused_axis_may_be_split_at_its_front() -> None:
    spec = spec_of([0, 1, 2, 3], [])
    parts = spec.sharded_dim.add(axis=0).simple_sharding
    parts.add(dim_value=2, num_shards=2)
    parts.add(dim_value=8, num_shards=2)
    parts.add(dim_value=3, num_shards=1)
    assert str(hs.convert(spec, to="hlo")) == "{devices=[4]0,1,2,3}"
    parts[0].dim_value = 6
    with pytest.raises(hs.ShardingError, match="split into 2 of 6, and again behind that: its pieces are strided"):
        hs.convert(spec, to="hlo")
    parts[0].dim_param = "batch"
    with pytest.raises(hs.ShardingError, match="2 of unknown"):
        hs.convert(spec, to="hlo")


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (spec_of([], []), "lists no device"),
        (spec_of([0, 1, 2], [(0, 2)]), "3 devices or groups for 2 shards"),
        (spec_of([0, 0], [(0, 2)]), "0 is listed 2 times, 1 is left out"),
        (spec_of([2, 3], [(0, 2)]), "0 is left out, 1 is left out, 2 is too high"),
        (spec_of([-1, -2], [(0, 2)], {-1: [0], -2: [1, 2]}), r"unequal numbers of devices: \[1, 2\]"),
        (spec_of([-1, -2], [(0, 2)], {-1: [0, 1]}), "unequal"),
        (spec_of([-1, -2], [(0, 2)], {-1: [0], -3: [1]}), "device -2 is no device, nor a key"),
        (spec_of([-1], [], {-1: []}), "device group -1 is empty"),
        (spec_of([0, 1], [(0, 2), (-2, 1)]), "lists axis 0 twice"),
        (spec_of([0, 1], [(7, 2)]), "names dim 7 of an array of 2 dims"),
        (spec_of([0, 1], [(-3, 2)]), "names dim -3 of an array"),
        (spec_of([0, 1], [(0, 0)]), "no num_shards"),
        (spec_of([0, 1], [(0, -2)]), "no num_shards"),
        (spec_of([0, 1], [(0, 2**40)]), "devices are more than"),
    ],
)
def test_what_no_hlo_sharding_says_is_refused(spec: Any, says: str) -> None:
    with pytest.raises(hs.ShardingError, match=says):
        hs.convert(spec, to="hlo", ndim=2)


def test_an_axis_from_behind_needs_the_rank() -> None:
    with pytest.raises(hs.ShardingError, match="pass ndim="):
        hs.convert(spec_of([0, 1], [(-1, 2)]), to="hlo")


def test_a_dim_is_one_that_an_array_can_have() -> None:
    with pytest.raises(hs.ShardingError, match="is of 101 dims, 63 are the most"):
        hs.convert(spec_of([0, 1], [(100, 2)]), to="hlo")


def test_a_mesh_must_be_covered() -> None:
    with pytest.raises(hs.ShardingError, match="2 is left out, 3 is left out"):
        hs.convert(spec_of([0, 1], [(0, 2)]), to="mesh", mesh="4")


def test_a_replicated_sharding_needs_the_number_of_devices() -> None:
    with pytest.raises(hs.ShardingError, match="over how many devices"):
        hs.convert("{replicated}", to="onnx")
    spec = hs.convert("{replicated}", to="onnx", mesh="4")
    assert list(spec.device) == [-1]
    assert list(spec.index_to_device_group_map[0].value) == [0, 1, 2, 3]


@pytest.mark.parametrize("text", ["device: x", "device: 0 nothing: 1", "sharded_dim {", "device: 99999999999999999999"])
def test_bad_text_is_refused(text: str) -> None:
    with pytest.raises(hs.ShardingError, match="no ShardingSpecProto"):
        hs.convert(text, to="hlo")
