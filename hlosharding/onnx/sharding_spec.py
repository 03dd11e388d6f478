"""ONNX's `ShardingSpecProto`, as a message or its text: devices in the order of the dims that are split.

Floor: onnx.  Knows one spec; which node it belongs to is the model's affair.  onnx is imported where a spec is met.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any

import numpy as np

from hlosharding.errors import ShardingError
from hlosharding.sharding import FormatContext, HloSharding, Interchange, count_devices

_TEXT = re.compile(r"\s*(tensor_name|device|index_to_device_group_map|sharded_dim)\s*[:{]")


def is_spec(source: Any) -> bool:
    """A ShardingSpecProto, or its text?"""
    if isinstance(source, str):
        return _TEXT.match(source) is not None
    return type(source).__name__ == "ShardingSpecProto"


def read(source: Any, context: FormatContext) -> Interchange:
    """From a spec.  Raises ShardingError for what HLO cannot say: unequal groups, strided pieces, missing devices."""
    spec = _parsed(source) if isinstance(source, str) else source
    groups, is_grouped = _device_groups(spec)
    ways = _ways(spec, context)
    copies = len(groups[0])
    if math.prod(ways.values()) != len(groups):
        raise ShardingError(f"the spec lists {len(groups)} devices or groups for {math.prod(ways.values())} shards")
    # One device has the value alone; one group, be it of one device, has copies.
    if len(groups) == 1 and not is_grouped:
        return Interchange(HloSharding.maximal(groups[0][0]))
    devices = [device for group in groups for device in group]
    _check_covered(devices, context)
    if len(groups) == 1:
        return Interchange(HloSharding.replicate(), devices=len(devices))
    grid = np.array(devices).reshape([*ways.values(), copies])
    axes = list(ways)
    # A spec counts devices by the dims as it lists them, tiles by the dims of the array.
    grid = grid.transpose([*sorted(range(len(axes)), key=axes.__getitem__), len(axes)])
    rank = context.rank(max(axes) + 1, "the spec")
    return Interchange(HloSharding.partial_tile(grid.reshape([*(ways.get(d, 1) for d in range(rank)), copies])))


def _parsed(text: str) -> Any:
    from google.protobuf import text_format
    from onnx import ShardingSpecProto

    try:
        return text_format.Parse(text, ShardingSpecProto())
    except (text_format.ParseError, RecursionError, ValueError) as error:
        raise ShardingError(f"no ShardingSpecProto: {str(error)[:200]}") from None


def _device_groups(spec: Any) -> tuple[list[tuple[int, ...]], bool]:
    """The devices that hold each shard, all of one number; and whether the spec names them as groups."""
    named: dict[int, tuple[int, ...]] = {}
    for entry in spec.index_to_device_group_map:
        if entry.key in named or not entry.value:
            raise ShardingError(f"device group {entry.key} is {'empty' if not entry.value else 'listed twice'}")
        named[entry.key] = tuple(entry.value)
    if not spec.device:
        raise ShardingError("the spec lists no device", remedy="list one device or group per shard")
    found = [named.get(device, (device,)) for device in spec.device]
    if len({len(group) for group in found}) > 1:
        sizes = sorted({len(group) for group in found})
        raise ShardingError(f"the spec's shards lie on unequal numbers of devices: {sizes}")
    if any(device < 0 for group in found for device in group):
        raise ShardingError(f"device {min(min(g) for g in found)} is no device, nor a key of the spec's device groups")
    return found, any(device in named for device in spec.device)


def _ways(spec: Any, context: FormatContext) -> dict[int, int]:
    """How often each dim that is listed is split, in the order in which the spec lists them."""
    ways: dict[int, int] = {}
    for entry in spec.sharded_dim:
        axis = context.dim(entry.axis, "the spec")
        if axis in ways:
            raise ShardingError(f"the spec lists axis {axis} twice")
        ways[axis] = _shards(entry.simple_sharding, axis)
    return {axis: count for axis, count in ways.items() if count > 1}


def _shards(parts: Any, axis: int) -> int:
    """Of an axis, which may be several fused: its pieces must be contiguous."""
    counts = [part.num_shards for part in parts]
    if not counts or min(counts) < 1:
        raise ShardingError(f"axis {axis} of the spec has no num_shards", remedy="give at least 1")
    ways = count_devices(counts)
    split = [n for n, count in enumerate(counts) if count > 1]
    # In front of the last split part each shard must be one element, or what lies behind comes in several runs.
    for part in parts[: split[-1]] if split else ():
        if part.dim_value != part.num_shards:
            raise ShardingError(
                f"axis {axis} of the spec is split into {part.num_shards} of {part.dim_value or 'unknown'}, and again"
                " behind that: its pieces are strided",
                remedy="shard the array before its axes are fused",
            )
    return ways


def _check_covered(devices: list[int], context: FormatContext) -> None:
    wanted = context.mesh.num_devices if context.mesh is not None else len(devices)
    seen = Counter(devices)
    odd = [f"{device} is listed {n} times" for device, n in seen.items() if n > 1]
    odd += [
        f"{device} is {'left out' if device < wanted else 'too high'}" for device in sorted(seen.keys() ^ range(wanted))
    ]
    if odd:
        raise ShardingError(
            f"the spec's devices are not 0 to {wanted - 1}: {', '.join(odd[:5])}",
            remedy="an HloSharding lays an array on all devices",
        )


def write(found: Interchange, context: FormatContext) -> Any:
    """A ShardingSpecProto without a tensor's name; copies lie on groups -1, -2 ..."""
    from onnx import ShardingSpecProto

    sharding, spec = found.sharding, ShardingSpecProto()
    if sharding.is_maximal():
        spec.device.append(sharding.tiles.first)
        return spec
    _list_devices(spec, _rows(found, context), is_grouped=not sharding.is_tiled())
    for dim, count in enumerate(sharding.data_dims):
        if count > 1:
            spec.sharded_dim.add(axis=dim).simple_sharding.add(num_shards=count)
    return spec


def _rows(found: Interchange, context: FormatContext) -> list[list[int]]:
    """The devices of each shard."""
    sharding = found.sharding
    if sharding.is_tiled():
        return sharding.tiles.array.reshape(sharding.num_tiles, -1).tolist()
    count = found.num_devices or (context.mesh and context.mesh.num_devices)
    if not count:
        raise ShardingError(f"{sharding} does not say over how many devices", remedy='pass mesh=, as mesh="x=2,y=4"')
    return [list(range(count))]


def _list_devices(spec: Any, rows: list[list[int]], *, is_grouped: bool) -> None:
    if not is_grouped and len(rows[0]) == 1:
        spec.device.extend(row[0] for row in rows)
        return
    for number, row in enumerate(rows, 1):
        spec.device.append(-number)
        spec.index_to_device_group_map.add(key=-number, value=row)
