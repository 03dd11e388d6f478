"""Axes to tiles and back, where all sizes are known.

Floor: notations.  Tiles are made by `sharding` from its own named form; here axes only change their spelling.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlosharding.errors import ShardingError
from hlosharding.sharding import Axes, AxisRef, Cluster, DimAxes, HloSharding, MeshInfo, NamedForm, find_named_form


def tiles_of(dims: Sequence[Axes], partial: Axes, kind: str, cluster: Cluster, rank: int, text: str) -> HloSharding:
    """`AxisSharding.to_hlo`; `text` is the sharding for messages."""
    if len(dims) > rank:
        raise ShardingError(f"{text} has {len(dims)} entries for rank {rank}", remedy="one per dim")
    if partial and kind != "sum":
        remedy = "reduce the value first: annotate it for its users without partial axes"
        raise ShardingError(f"HLO has no sharding for {text}: its partial values are sums", remedy=remedy)
    mesh = cluster.mesh(f"{text} as HLO tiles")

    def refs(axes: Axes) -> tuple[AxisRef, ...]:
        # An axis of size 1 splits nothing, and HLO has no name for that.
        numbers = [cluster.index(axis) for axis in axes]
        return tuple(AxisRef(mesh.names[n]) for n in numbers if mesh.sizes[n] > 1)

    data = tuple(DimAxes(refs(axes)) for axes in (*dims, *((),) * (rank - len(dims))))
    unreduced = refs(tuple(sorted(partial, key=cluster.index)))
    found = HloSharding.from_named_form(NamedForm(mesh, data, unreduced=unreduced))
    return found if cluster.names else found.without_names()


def axes_of(sharding: HloSharding, cluster: Cluster) -> tuple[tuple[Axes, ...], Axes]:
    """`AxisSharding.from_hlo`: the axes of each dim, and the partial ones."""
    if sharding.is_replicated() or sharding.is_unknown():
        return (), ()
    mesh = cluster.mesh(f"{sharding} as axes")
    form = find_named_form(sharding.without_names(), mesh)
    if form is None or form.manual or form.whole in ("manual", "maximal"):
        remedy = "annotate the value with axes, or choose a cluster with finer ones"
        raise ShardingError(f"whole axes of {cluster} cannot say {sharding}", remedy=remedy)
    # Then the form names no axes: all of the mesh are meant.
    if form.whole == "unreduced":
        return (), tuple(cluster.axis(n) for n in range(cluster.rank))
    return tuple(_whole_axes(dim.axes, cluster, mesh) for dim in form.dims), _whole_axes(form.unreduced, cluster, mesh)


def _whole_axes(refs: tuple[AxisRef, ...], cluster: Cluster, mesh: MeshInfo) -> Axes:
    part = next((ref for ref in refs if ref.size is not None), None)
    if part is not None:
        raise ShardingError(f"the tiles split by part of axis {part.name} of {cluster}", remedy="give it as two axes")
    return tuple(cluster.axis(mesh.index_of(ref.name)) for ref in refs)
