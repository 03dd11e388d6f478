"""Find the mesh axes that spell a sharding, whenever there are any.

Floor: sharding.  The way back from tiles to names, so that axis names survive the algebra and propagation.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlosharding.sharding.device_grid import DeviceGrid, Digit, ends_of
from hlosharding.sharding.mesh import MeshInfo
from hlosharding.sharding.named import AxisRef, DimAxes, NamedForm
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
    grid = DeviceGrid(mesh.sizes, mesh.device_ids)
    # Normal form lists copies in ascending order, which need not be the order of the mesh's axes.
    digits = grid.digits_of(sharding.tiles.array, unordered="replicated" in sharding.subgroup_types)
    if digits is None:
        return None
    axes = [found for dim in digits if (found := axis_refs(dim, grid, mesh.names)) is not None]
    if len(axes) < len(digits):
        return None
    rank = sharding.tiled_data_rank
    by_type = dict(zip(sharding.subgroup_types, axes[rank:], strict=True))
    return NamedForm(
        mesh,
        tuple(DimAxes(found) for found in axes[:rank]),
        unreduced=by_type.get("unreduced", ()),
        manual=by_type.get("manual", ()),
    )


def axis_refs(digits: Sequence[Digit], grid: DeviceGrid, names: Sequence[str]) -> tuple[AxisRef, ...] | None:
    """The axes of a grid, or parts of them, that digits are made of, major first; None where one ends unevenly in them.

    >>> grid = DeviceGrid((2, 4), tuple(range(8)))
    >>> [axis.text for axis in axis_refs([Digit(1, 2), Digit(2, 4)], grid, ("a", "b"))]
    ['b:(2)2', 'a', 'b:(1)2']
    """
    if grid.cut_at(ends_of(digits)) is None:
        return None
    return tuple(
        AxisRef(name) if (low, high) == (axis.stride, axis.end) else AxisRef(name, axis.end // high, high // low)
        for digit in digits
        for name, axis in zip(names, grid.digits, strict=True)
        if (low := max(digit.stride, axis.stride)) < (high := min(digit.end, axis.end))
    )
