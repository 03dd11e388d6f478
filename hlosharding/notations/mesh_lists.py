"""The RFC's lists of axes, `[[0], [1]] partial=sum[2]`, over the axes of a `mesh.cluster`.

Floor: notations.
"""

from __future__ import annotations

import re
from typing import Any

from hlosharding.errors import ShardingError
from hlosharding.notations.axis_sharding import AxisSharding
from hlosharding.sharding import Axes, Axis, AxisRef, Cluster, DimAxes, FormatContext, Interchange, MeshInfo, NamedForm

_TEXT = re.compile(r"\s*(mesh\.cluster\b|#mesh\.shard\b|\[\s*(\[[^\](]*\]|\]))")
_CLUSTER = re.compile(r"\s*(mesh\.cluster\s*@\w+\s*\([^()]*\))")
_WORD = re.compile(r"[^\W\d]\w*")


def is_lists(source: Any) -> bool:
    """An AxisSharding, its text, or a list of lists of axes?"""
    if isinstance(source, str):
        return _TEXT.match(source) is not None
    is_nested = isinstance(source, list) and all(isinstance(part, list) for part in source)
    return isinstance(source, AxisSharding) or is_nested


def read(source: Any, context: FormatContext) -> Interchange:
    """From an AxisSharding or its text, behind a `mesh.cluster` if there is one.  Entry `ndim` holds partial axes."""
    mesh = context.mesh
    if isinstance(source, str) and (cluster := _CLUSTER.match(source)) is not None:
        mesh = declared_mesh(Cluster.of(cluster[1]), mesh)
        source = source[cluster.end() :]
    if mesh is None:
        mesh = context.needed_mesh(f"{source}".strip())
    return interchange(AxisSharding.of(source, context.ndim), mesh, context)


def declared_mesh(cluster: Cluster, given: MeshInfo | None) -> MeshInfo:
    """The mesh of a text that declares its axes: the caller's, which must fit, or else its own."""
    if given is None:
        return cluster.mesh("a sharding")
    fits = len(given.sizes) == cluster.rank and all(
        size in (None, known) for size, known in zip(cluster.sizes, given.sizes, strict=True)
    )
    if not fits or (cluster.names and cluster.names != given.names):
        raise ShardingError(f"{cluster} is not the given mesh, {given!r}")
    return given


def interchange(lists: AxisSharding, mesh: MeshInfo, context: FormatContext) -> Interchange:
    """Lists of axes over that mesh."""

    def refs(axes: Axes) -> tuple[AxisRef, ...]:
        return tuple(AxisRef(_name(axis, mesh)) for axis in axes)

    dims = (*(DimAxes(refs(axes)) for axes in lists.dims),)
    dims += (DimAxes(),) * (context.rank(len(dims), lists) - len(dims))
    unreduced = sorted(refs(lists.partial), key=lambda axis: mesh.index_of(axis.name))
    form = NamedForm(mesh, dims, unreduced=tuple(unreduced))
    return Interchange.of_form(form, reduction=lists.kind, knows_rank=context.ndim is not None)


def _name(axis: Axis, mesh: MeshInfo) -> str:
    if isinstance(axis, str):
        return mesh.names[mesh.index_of(axis)]
    if axis >= len(mesh.names):
        raise ShardingError(f"{mesh!r} has no axis {axis}", remedy=f"its axes are 0 to {len(mesh.names) - 1}")
    return mesh.names[axis]


def write(found: Interchange, context: FormatContext) -> str:
    """`[[x], [y]] partial=sum[z]`: axes by name, or by number where the mesh has no names that are words."""
    mesh = found.form.mesh
    is_worded = all(map(_WORD.fullmatch, mesh.names))

    def axes(refs: tuple[AxisRef, ...]) -> Axes:
        return tuple(ref.name if is_worded else mesh.index_of(ref.name) for ref in refs)

    return str(AxisSharding(tuple(axes(dim.axes) for dim in found.form.dims), axes(found.unreduced), found.reduction))
