"""Find the mesh axes that spell a sharding, whenever there are any.

Floor: sharding.  The way back from tiles to names, so that axis names survive the algebra and propagation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hlosharding.sharding.mesh import MeshInfo
from hlosharding.sharding.named import AxisRef, DimAxes, NamedForm
from hlosharding.sharding.tile_assignment import Dims, TileAssignment
from hlosharding.sharding.value import S, ShardingValue


def with_mesh(sharding: S, mesh: MeshInfo) -> S:
    """The same layout with axis names of `mesh`, where axes (or parts of them) can say it; else without names.

    >>> from hlosharding.sharding import HloSharding
    >>> mesh = MeshInfo(("a", "b"), (2, 4))
    >>> str(with_mesh(HloSharding.parse("{devices=[4,2]<=[2,4]T(1,0)}"), mesh))
    "{mesh['a'=2,'b'=4], [{'b'}, {'a'}]}"
    """
    if sharding.kind == "tuple":
        return type(sharding).tuple(with_mesh(e, mesh) for e in sharding.tuple_elements)
    form = find_named_form(sharding, mesh)
    return sharding.with_named_form(form) if form is not None else sharding.without_names()


def find_named_form(sharding: ShardingValue, mesh: MeshInfo) -> NamedForm | None:
    """The form that spells a leaf over `mesh`, or None."""
    if sharding.named_form is not None and sharding.named_form.mesh == mesh:
        return sharding.named_form
    key = ("named", mesh.names, mesh.sizes, mesh.assignment.uid)
    if key not in sharding.memo:
        sharding.memo[key] = _find(sharding, mesh)
    found: NamedForm | None = sharding.memo[key]
    return found


def axes_by_dim(sharding: ShardingValue, mesh: MeshInfo) -> dict[int, tuple[str, ...]]:
    """The axes, or parts of them, of each dim that is split, major to minor; of none where those of `mesh` cannot say
    the sharding.

    >>> from hlosharding.sharding import HloSharding
    >>> mesh = MeshInfo(("a", "b"), (2, 4))
    >>> axes_by_dim(HloSharding.parse("{devices=[1,4,2]<=[2,4]T(1,0)}"), mesh)
    {1: ('b',), 2: ('a',)}
    >>> axes_by_dim(HloSharding.parse("{devices=[2,4]<=[2,2,2]T(1,0,2) last_tile_dim_replicate}"), mesh)
    {0: ('b:(1)2',)}
    """
    form = find_named_form(sharding, mesh)
    dims = () if form is None else form.dims
    return {dim: tuple(axis.text for axis in found.axes) for dim, found in enumerate(dims) if found.axes}


def _find(sharding: ShardingValue, mesh: MeshInfo) -> NamedForm | None:
    if sharding.kind in ("replicated", "manual", "unreduced"):
        return NamedForm(mesh, whole=sharding.kind)
    if sharding.kind == "maximal":
        return NamedForm(MeshInfo((), ()), whole="maximal", device=sharding.device)
    if sharding.kind != "tiled" or sharding.tiles.num_elements != mesh.num_devices:
        return None
    digits = _digits(sharding, mesh)
    groups = _group(digits, sharding.tiles.dims) if digits is not None else None
    if groups is None:
        return None
    axes = [_join(group, mesh) for group in groups]
    rank = sharding.tiled_data_rank
    by_type = dict(zip(sharding.subgroup_types, axes[rank:], strict=True))
    return NamedForm(
        mesh,
        tuple(DimAxes(found) for found in axes[:rank]),
        unreduced=by_type.get("unreduced", ()),
        manual=by_type.get("manual", ()),
    )


Digit = tuple[int, int, int]
"""Part of a mesh axis: its index, and the sizes before its start and its end."""


def _digits(sharding: ShardingValue, mesh: MeshInfo) -> list[Digit] | None:
    """The parts of mesh axes that the tile order runs through, major to minor; None if it is not made of such parts."""
    position = {device: i for i, device in enumerate(mesh.device_ids)}
    if any(device not in position for device in sharding.tiles.flat):
        return None
    order = [position[device] for device in sharding.tiles.flat]
    copies = sharding.subgroup_size("replicated")
    order = [p for start in range(0, len(order), copies) for p in sorted(order[start : start + copies])]
    iota = TileAssignment.from_flat((len(order),), order).meaning.iota
    return None if iota is None else _cut(iota.reshape_dims, iota.transpose_perm, mesh.sizes)


def _cut(reshape_dims: Dims, perm: Dims, sizes: Dims) -> list[Digit] | None:
    """Cut the iota's dims where mesh axes end; None where those do not divide each other."""
    parts: list[list[Digit]] = []
    axes = [(i, size) for i, size in enumerate(sizes) if size > 1]
    axis, left = axes.pop(0) if axes else (0, 1)
    for size in reshape_dims:
        found: list[Digit] = []
        while size > 1:
            if left == 1:
                axis, left = axes.pop(0)
            step = math.gcd(size, left)
            if step not in (size, left):
                return None
            start = sizes[axis] // left
            found.append((axis, start, start * step))
            size, left = size // step, left // step
        parts.append(found)
    return [digit for p in perm for digit in parts[p]]


def _group(digits: list[Digit], dims: Sequence[int]) -> list[list[Digit]] | None:
    """The digits of each tile dim, cut where a tile dim ends within one."""
    rest = digits[::-1]
    groups: list[list[Digit]] = []
    for ways in dims:
        group: list[Digit] = []
        while ways > 1:
            axis, start, end = rest.pop()
            step = math.gcd(ways, end // start)
            if step not in (ways, end // start):
                return None
            if start * step < end:
                rest.append((axis, start * step, end))
            group.append((axis, start, start * step))
            ways //= step
        groups.append(group)
    return groups


def _join(group: list[Digit], mesh: MeshInfo) -> tuple[AxisRef, ...]:
    """Neighbouring parts of one axis as one, whole axes by their plain name."""
    joined: list[Digit] = []
    for axis, start, end in group:
        if joined and joined[-1][0] == axis and joined[-1][2] == start:
            joined[-1] = (axis, joined[-1][1], end)
        else:
            joined.append((axis, start, end))
    return tuple(_axis_ref(digit, mesh) for digit in joined)


def _axis_ref(digit: Digit, mesh: MeshInfo) -> AxisRef:
    axis, start, end = digit
    name = mesh.names[axis]
    return AxisRef(name) if (start, end) == (1, mesh.sizes[axis]) else AxisRef(name, start, end // start)
