"""A sharding in the words its reader uses: mesh axes where they can say it, XLA's text elsewhere.

Floor: sharding.  Does not import jax: a PartitionSpec's text is enough for a person.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hlosharding.sharding.hlo_sharding import HloSharding
from hlosharding.sharding.mesh import MeshInfo
from hlosharding.sharding.named import DimAxes, NamedForm
from hlosharding.sharding.naming import find_named_form

_LEAVES_SHOWN = 4
"""Of a tuple's sharding, in messages: loops carry hundreds."""


def spell(sharding: HloSharding | None, mesh: Any = None) -> str:
    """The sharding as a PartitionSpec over `mesh` (a jax Mesh or MeshInfo), or as XLA writes it.

    XLA's text is what remains where no whole axes say it, where there is no mesh, and for manual or one-device values.

    >>> spell(HloSharding.parse("{devices=[2,1,4]<=[8] last_tile_dim_replicate}"), MeshInfo(("data", "model"), (2, 4)))
    "P('data', None)"
    >>> spell(HloSharding.parse("{devices=[8]<=[8]}")), spell(None)
    ('{devices=[8]<=[8]}', 'none')
    """
    if sharding is None:
        return "none"
    if mesh is None:
        return str(sharding)
    if sharding.is_tuple():
        return "(" + ", ".join(spell(leaf, mesh) for leaf in sharding.leaves) + ")"
    form = find_named_form(sharding, MeshInfo.from_jax(mesh))
    return (_spec(form) if form is not None else None) or str(sharding)


def spell_short(sharding: HloSharding | None, mesh: Any = None) -> str:
    """The same; of a tuple of many leaves, how many have which.

    >>> spell_short(HloSharding.single_tuple(HloSharding.replicate(), 7))
    '7 x {replicated}'
    """
    if sharding is None or len(sharding.leaves) <= _LEAVES_SHOWN:
        return spell(sharding, mesh)
    counts = Counter(spell(leaf, mesh) for leaf in sharding.leaves)
    return ", ".join(f"{times} x {leaf}" for leaf, times in counts.most_common())


def _spec(form: NamedForm) -> str | None:
    """`P(...)`, or None where a PartitionSpec cannot say it."""
    if form.whole == "replicated":
        return "P()"
    if form.whole is not None or form.manual or any(axis.size is not None for axis in form.axes):
        return None
    parts = [_entry(dim) for dim in form.dims]
    if form.unreduced:
        parts.append("unreduced={" + ", ".join(repr(axis.name) for axis in form.unreduced) + "}")
    return f"P({', '.join(parts)})"


def _entry(dim: DimAxes) -> str:
    names = tuple(axis.name for axis in dim.axes)
    return repr(names[0] if len(names) == 1 else names or None)
