"""The formats of shardings: how each is told, read and written, and what it can say.

Floor: sharding.  A new format is a file beside this one, and a row here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hlosharding.sharding.formats import (
    dtensor,
    hlo_text,
    jax_objects,
    mesh_lists,
    onnx_spec,
    sdy,
    sdy_text,
    shard_dialect,
)
from hlosharding.sharding.formats.axis_sharding import PARTIAL_KINDS
from hlosharding.sharding.formats.frame import Frame
from hlosharding.sharding.formats.interchange import Interchange


@dataclass(frozen=True, slots=True)
class Format:
    """One way to say a sharding."""

    name: str
    looks_like: str
    is_one: Callable[[Any], bool]
    read: Callable[[Any, Frame], Interchange]
    write: Callable[[Interchange, Frame], Any]
    says: frozenset[str]
    """Which of the FEATURES."""
    names_axes: bool = False
    """Is it written over the axes of a mesh?"""
    reductions: tuple[str, ...] = ("sum",)
    """How pieces of a partial value may be combined, where it says that there are any."""


def _features(text: str) -> frozenset[str]:
    return frozenset(text.split(", "))


_ONNX = _features("one device, parts of axes, device order")
_TILES = _ONNX | _features("tuples, unknown, shard groups, manual, partial values")
_SDY = _ONNX | _features("partial values, free dims, open dims, replicated axes, priorities")
_V3 = (_SDY - {"priorities"}) | _features("tuples, manual")
_JAX = _features("partial values, free dims")


_ROWS = (
    Format("hlo", "an HloSharding", hlo_text.is_hlo, hlo_text.read, hlo_text.to_hlo, _TILES | _V3),
    Format("v1", "{devices=[2,2]0,1,2,3}", hlo_text.is_hlo, hlo_text.read, hlo_text.to_v1, _TILES),
    Format("v2", "{devices=[2,2]<=[4]}", hlo_text.is_hlo, hlo_text.read, hlo_text.to_v2, _TILES),
    Format("v3", "{mesh['x'=2], [{'x'}]}", hlo_text.is_hlo, hlo_text.read, hlo_text.to_v3, _V3, names_axes=True),
    Format(
        "sdy", '#sdy.sharding<@mesh, [{"x"}]>', sdy.is_sdy, sdy.read, sdy.write, _SDY,
        names_axes=True, reductions=sdy_text.REDUCTIONS,
    ),
    Format(
        "shard", "shard.sharding @grid0 split_axes = [[0]]", shard_dialect.is_shard, shard_dialect.read,
        shard_dialect.write, frozenset(), names_axes=True,
    ),
    Format(
        "mesh", "[[x]]", mesh_lists.is_lists, mesh_lists.read, mesh_lists.write, _features("partial values"),
        names_axes=True, reductions=PARTIAL_KINDS,
    ),
    Format(
        "dtensor", "(Shard(dim=0),)", dtensor.is_placements, dtensor.read, dtensor.write,
        _features("partial values, parts of axes, device order"), names_axes=True, reductions=dtensor.REDUCTIONS,
    ),
    Format("onnx", "a ShardingSpecProto", onnx_spec.is_spec, onnx_spec.read, onnx_spec.write, _ONNX),
    Format(
        "jax", "a NamedSharding", jax_objects.is_jax, jax_objects.read_sharding, jax_objects.to_sharding, _JAX,
        names_axes=True,
    ),
    Format(
        "spec", "P('x')", jax_objects.is_spec, jax_objects.read_spec, jax_objects.to_spec, _JAX | {"device order"},
        names_axes=True,
    ),
)  # fmt: skip

FORMATS: dict[str, Format] = {row.name: row for row in _ROWS}
"""By name, in the order in which they are tried."""
