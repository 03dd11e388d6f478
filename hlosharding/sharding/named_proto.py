"""Named shardings as messages (field 14 of `xla.OpSharding`).

Floor: sharding.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hlosharding.errors import ShardingError
from hlosharding.sharding.mesh import MeshInfo
from hlosharding.sharding.named import AxisRef, DimAxes, NamedForm
from hlosharding.sharding.tile_assignment import TileAssignment
from hlosharding.sharding.value import S


def fill_named(message: Any, form: NamedForm) -> None:
    """Write `form` into an empty NamedShardingProto."""
    if form.whole == "maximal":
        message.mesh.device_ids.append(form.device or 0)
        return
    _fill_mesh(message.mesh, form.mesh)
    if form.whole in ("manual", "unreduced"):
        # As XLA: a wholly manual or unreduced sharding lists all axes of its mesh.
        axes = message.manual_axes if form.whole == "manual" else message.unreduced_axes
        _fill_axes(axes, map(AxisRef, form.mesh.names), form.mesh)
        return
    for dim in form.dims:
        entry = message.dim_shardings.add(is_closed=not dim.is_open)
        _fill_axes(entry.axes, dim.axes, form.mesh)
    _fill_axes(message.replicated_axes, form.replicated, form.mesh)
    _fill_axes(message.unreduced_axes, form.unreduced, form.mesh)
    _fill_axes(message.manual_axes, form.manual, form.mesh)


def _fill_mesh(message: Any, mesh: MeshInfo) -> None:
    for name, size in zip(mesh.names, mesh.sizes, strict=True):
        message.axes.add(name=name, size=size)
    message.SetInParent()
    if mesh.is_plain:
        return
    if mesh.assignment.iota is not None:
        message.iota_transform.reshape_dims.extend(mesh.assignment.iota.reshape_dims)
        message.iota_transform.transpose_perm.extend(mesh.assignment.iota.transpose_perm)
    else:
        message.device_ids.extend(mesh.device_ids)


def _fill_axes(repeated: Any, axes: Iterable[AxisRef], mesh: MeshInfo) -> None:
    for axis in axes:
        entry = repeated.add(mesh_axis_index=mesh.index_of(axis.name))
        if axis.size is not None:
            entry.sub_axis_info.pre_size = axis.pre_size
            entry.sub_axis_info.size = axis.size


def read_named(cls: type[S], message: Any) -> S:
    """The sharding of a NamedShardingProto, less metadata; raises ShardingError for contradictions."""
    if not message.mesh.axes and message.mesh.device_ids:
        if len(message.mesh.device_ids) != 1:
            raise ShardingError(f"a mesh without axes names one device, got {len(message.mesh.device_ids)}")
        return cls.from_named_form(NamedForm(MeshInfo((), ()), whole="maximal", device=message.mesh.device_ids[0]))
    mesh = _read_mesh(message.mesh)
    dims = tuple(DimAxes(_read_axes(d.axes, mesh), not d.is_closed) for d in message.dim_shardings)
    replicated, unreduced = _read_axes(message.replicated_axes, mesh), _read_axes(message.unreduced_axes, mesh)
    manual = _read_axes(message.manual_axes, mesh)
    return cls.from_named_form(NamedForm(mesh, dims, replicated, unreduced, manual))


def _read_mesh(message: Any) -> MeshInfo:
    names, sizes = [axis.name for axis in message.axes], [axis.size for axis in message.axes]
    if message.HasField("iota_transform"):
        iota = message.iota_transform
        return MeshInfo(names, sizes, TileAssignment.from_iota(sizes, iota.reshape_dims, iota.transpose_perm))
    return MeshInfo(names, sizes, tuple(message.device_ids) or None)


def _read_axes(repeated: Any, mesh: MeshInfo) -> tuple[AxisRef, ...]:
    found: list[AxisRef] = []
    for entry in repeated:
        if not 0 <= entry.mesh_axis_index < len(mesh.names):
            raise ShardingError(f"axis number {entry.mesh_axis_index} of a mesh with {len(mesh.names)} axes")
        sub = entry.sub_axis_info if entry.HasField("sub_axis_info") else None
        name = mesh.names[entry.mesh_axis_index]
        found.append(AxisRef(name, sub.pre_size, sub.size) if sub is not None else AxisRef(name))
    return tuple(found)
