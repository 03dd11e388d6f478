"""The formats of shardings: how each is told, read and written, and what it can say.

Floor: sharding.  A new format is a file beside this one, and a row here; a foreign one, a plug-in that adds its row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hlosharding.registry import Registry
from hlosharding.sharding.formats import hlo_text, jax_objects, sdy, sdy_text
from hlosharding.sharding.formats.interchange import FormatContext, Interchange
from hlosharding.sharding.named import AxisRef

# ---- what some formats can say and others cannot: each has a name, and finds itself in a sharding
#
# A conversion asks here what would be lost, before anything is written.


Finder = Callable[[Interchange], str | None]
"""What of it there is in a sharding, in words; None where there is nothing."""


def _of_kind(kind: str, said: str) -> Finder:
    return lambda found: said if found.sharding.kind == kind else None


def _group(found: Interchange) -> str | None:
    group = found.sharding.shard_group
    return f"its shard group ({group})" if group is not None else None


def _one_device(found: Interchange) -> str | None:
    return f"that all of it is on device {found.sharding.device}" if found.sharding.is_maximal() else None


def _subgroup(kind: str) -> Finder:
    def find(found: Interchange) -> str | None:
        form = found.sharding.named_form
        axes: tuple[AxisRef, ...] = getattr(form, kind) if form is not None else ()
        if axes:
            return f"that axes {_listed(axes)} are {kind}"
        is_so = found.sharding.kind == kind or kind in found.sharding.subgroup_types
        return f"that devices are {kind}, as in {found.sharding}" if is_so else None

    return find


def _open_dims(said: str, *, behind_axes: bool) -> Finder:
    def find(found: Interchange) -> str | None:
        dims = found.sharding.named_form.dims if found.sharding.named_form is not None else ()
        open_dims = [n for n, dim in enumerate(dims) if dim.is_open and bool(dim.axes) == behind_axes]
        return f"that dims {_listed(open_dims)} are {said}" if open_dims else None

    return find


def _priorities(found: Interchange) -> str | None:
    given = [f"p{p} of dim {n}" for n, p in enumerate(found.priorities) if p is not None]
    return f"priorities: {', '.join(given)}" if given else None


def _replicated(found: Interchange) -> str | None:
    form = found.sharding.named_form
    if form is None or not form.replicated or not any(dim.is_open for dim in form.dims):
        return None  # where every dim is closed, an axis that is not named is replicated, too
    return f"that axes {_listed(form.replicated)} must stay replicated"


def _parts(found: Interchange) -> str | None:
    form = found.sharding.named_form
    parts = [axis for axis in form.axes if axis.size is not None] if form is not None else []
    return f"parts of axes: {_listed(parts)}" if parts else None


def _device_order(found: Interchange) -> str | None:
    form = found.sharding.named_form
    if form is None or form.whole == "maximal" or form.mesh.is_plain:
        return None
    return f"the order of devices: {_listed(form.mesh.device_ids[:20])}"


def _listed(items: Sequence[object]) -> str:
    return ", ".join(map(str, items))


FEATURES: dict[str, tuple[Finder, str]] = {
    "tuples": (_of_kind("tuple", "a tuple"), "convert each of its .leaves"),
    "unknown": (_of_kind("unknown", "an unknown sharding"), "propagate first"),
    "shard groups": (_group, "use with_shard_group(None)"),
    "one device": (_one_device, "replicate it, or split it"),
    "manual": (_subgroup("manual"), "manual axes belong to the region around the value"),
    "partial values": (_subgroup("unreduced"), "reduce the value first"),
    "free dims": (_open_dims("open", behind_axes=False), "close them, or give their axes"),
    "open dims": (_open_dims("open behind their axes", behind_axes=True), "close them"),
    "priorities": (_priorities, "leave them out"),
    "replicated axes": (_replicated, "close the open dims"),
    "parts of axes": (_parts, "use a mesh with these axes split in two"),
    "device order": (_device_order, "use a mesh that numbers its devices in order"),
}
"""By name: what finds it, and what to do where a format cannot say it."""


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
