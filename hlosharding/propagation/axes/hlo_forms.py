"""Axes to tiles and back, where all sizes are known.

Floor: propagation.  Tiles are made by `sharding` from its own named form; here axes only change their spelling.
"""

from __future__ import annotations

from hlosharding.errors import ShardingError
from hlosharding.propagation.axes.axis_sharding import Axes, AxisSharding
from hlosharding.propagation.axes.cluster import Axis, Cluster
from hlosharding.sharding import AxisRef, DimAxes, HloSharding, NamedForm, find_named_form, named_sharding


def to_hlo(sharding: AxisSharding, cluster: Cluster, rank: int) -> HloSharding:
    """The tiles of a value of that rank; axes stay named if the cluster names them.

    HLO knows partial sums alone.  Raises ShardingError for other kinds, and for unknown sizes.

    >>> str(to_hlo(AxisSharding.parse("[[1], [0]]"), Cluster.of("2x4"), 2))
    '{devices=[4,2]<=[2,4]T(1,0)}'
    """
    AxisSharding.of(sharding, rank)
    if sharding.partial and sharding.kind != "sum":
        remedy = "reduce the value first: annotate it for its users without partial axes"
        raise ShardingError(f"HLO has no sharding for {sharding}: its partial values are sums", remedy=remedy)
    mesh = cluster.mesh(f"{sharding} as HLO tiles")

    def refs(axes: Axes) -> tuple[AxisRef, ...]:
        # An axis of size 1 splits nothing, and HLO has no name for that.
        numbers = [cluster.index(axis) for axis in axes]
        return tuple(AxisRef(mesh.names[n]) for n in numbers if mesh.sizes[n] > 1)

    dims = tuple(DimAxes(refs(sharding.along(dim))) for dim in range(rank))
    partial = refs(tuple(sorted(sharding.partial, key=cluster.index)))
    found = named_sharding(NamedForm(mesh, dims, unreduced=partial))
    return found if cluster.names else found.without_names()


def from_hlo(sharding: HloSharding, cluster: Cluster) -> AxisSharding:
    """The axes behind the tiles of an array.

    Raises ShardingError for unknown sizes, and for tiles that whole axes of this cluster cannot say.

    >>> str(from_hlo(HloSharding.parse("{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}"), Cluster.of("2x4")))
    '[[1]]'
    """
    if sharding.is_replicated() or sharding.is_unknown():
        return AxisSharding()
    mesh = cluster.mesh(f"{sharding} as axes")
    form = find_named_form(sharding.without_names(), mesh)
    if form is None or form.manual or form.whole in ("manual", "maximal"):
        remedy = "annotate the value with axes, or choose a cluster with finer ones"
        raise ShardingError(f"whole axes of {cluster} cannot say {sharding}", remedy=remedy)
    if form.whole == "unreduced":
        return AxisSharding((), tuple(cluster.axis(n) for n in range(cluster.rank)))

    def axes(refs: tuple[AxisRef, ...]) -> tuple[Axis, ...]:
        part = next((ref for ref in refs if ref.size is not None), None)
        if part is not None:
            remedy = "split that axis of the cluster in two"
            raise ShardingError(f"{sharding} splits by part of axis {part.name} of {cluster}", remedy=remedy)
        return tuple(cluster.axis(mesh.index_of(ref.name)) for ref in refs)

    return AxisSharding(tuple(axes(dim.axes) for dim in form.dims), axes(form.unreduced))
