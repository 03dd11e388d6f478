"""The formats of shardings: how each is told, read and written, and what it can say.

Floor: sharding.  A new format is a file beside this one, and a row here; a foreign one, a plug-in that adds its row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hlosharding.registry import Registry
from hlosharding.sharding.formats import hlo_text, jax_objects, sdy, sdy_text
from hlosharding.sharding.formats.context import FormatContext
from hlosharding.sharding.formats.interchange import Interchange


@dataclass(frozen=True, slots=True)
class Format:
    """One way to say a sharding."""

    name: str
    looks_like: str
    is_one: Callable[[Any], bool]
    read: Callable[[Any, FormatContext], Interchange]
    write: Callable[[Interchange, FormatContext], Any]
    says: frozenset[str]
    """Which of the FEATURES."""
    names_axes: bool = False
    """Is it written over the axes of a mesh?"""
    reductions: tuple[str, ...] = ("sum",)
    """How pieces of a partial value may be combined, where it says that there are any."""


def _features(text: str) -> frozenset[str]:
    return frozenset(text.split(", "))


_DEVICES = _features("one device, parts of axes, device order")
_TILES = _DEVICES | _features("tuples, unknown, shard groups, manual, partial values")
_SDY = _DEVICES | _features("partial values, free dims, open dims, replicated axes, priorities")
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
        "jax", "a NamedSharding", jax_objects.is_jax, jax_objects.read_sharding, jax_objects.to_sharding, _JAX,
        names_axes=True,
    ),
    Format(
        "spec", "P('x')", jax_objects.is_spec, jax_objects.read_spec, jax_objects.to_spec, _JAX | {"device order"},
        names_axes=True,
    ),
)  # fmt: skip

FORMATS: Registry[str, Format] = Registry(
    "formats of shardings", plugins=("hlosharding.notations:FORMATS", "hlosharding.onnx:FORMATS")
)
"""By name."""


for _row in _ROWS:
    FORMATS.add(_row.name, _row)
