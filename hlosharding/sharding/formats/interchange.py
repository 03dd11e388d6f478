"""What formats exchange: an HloSharding, named over a mesh where it has one, and what HLO has no word for.

Floor: sharding.  The one hub: each format reads to it and writes from it, and none knows another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hlosharding.errors import ShardingError
from hlosharding.sharding.formats.cluster import Cluster
from hlosharding.sharding.formats.sdy_text import is_mesh_text, read_mesh_text
from hlosharding.sharding.hlo_sharding import HloSharding
from hlosharding.sharding.mesh import MeshInfo
from hlosharding.sharding.named import AxisRef, DimAxes, NamedForm
from hlosharding.sharding.naming import find_named_form
from hlosharding.sharding.tile_assignment import MOST_DIMS


@dataclass(frozen=True, slots=True)
class Interchange:
    """A sharding between two formats."""

    sharding: HloSharding
    """With its `named_form` where the format says axes: open dims and explicitly replicated axes stand there."""
    priorities: tuple[int | None, ...] = ()
    """Of each dim, in which round propagation may use it; empty where none is given."""
    reduction: str = "sum"
    """How the pieces of a partial value are combined."""
    devices: int | None = None
    """How many take part, where neither tiles nor a mesh say it."""

    @classmethod
    def of_form(
        cls,
        form: NamedForm,
        priorities: tuple[int | None, ...] = (),
        reduction: str = "sum",
        *,
        knows_rank: bool = False,
    ) -> Interchange:
        """Of axes over a mesh; `knows_rank`: no dims are those of a scalar, not of any array.

        Raises ShardingError where the axes contradict themselves.
        """
        sharding = HloSharding.from_named_form(form)
        return cls(sharding.with_named_form(form) if knows_rank else sharding, priorities, reduction)

    @property
    def form(self) -> NamedForm:
        """The axes; asked for once `over` has found them."""
        assert self.sharding.named_form is not None
        return self.sharding.named_form

    @property
    def unreduced(self) -> tuple[AxisRef, ...]:
        """The axes along which the value is partial."""
        return tuple(map(AxisRef, self.form.mesh.names)) if self.form.whole == "unreduced" else self.form.unreduced

    @property
    def rank(self) -> int | None:
        """The rank of the array, where the sharding tells."""
        form = self.sharding.named_form
        if form is not None and form.whole is None:
            return len(form.dims)
        return self.sharding.tiled_data_rank if self.sharding.kind == "tiled" else None

    @property
    def num_devices(self) -> int | None:
        """How many devices take part, where the sharding tells."""
        form = self.sharding.named_form
        if form is not None and form.whole != "maximal":
            return form.mesh.num_devices
        return self.sharding.num_devices or self.devices

    def over(self, mesh: MeshInfo | None, ndim: int | None = None) -> Interchange:
        """The same over the axes of `mesh`, by default those it came with, every dim spelled out.

        Raises ShardingError where axes, or parts of them, cannot say it.

        >>> found = Interchange(HloSharding.parse("{devices=[4,2]<=[2,4]T(1,0)}")).over(MeshInfo(("a", "b"), (2, 4)))
        >>> print(*found.form.dims)
        {'b'} {'a'}
        """
        own = self.sharding.named_form
        if mesh is None and own is None and not self.sharding.is_maximal():
            raise ShardingError(f"{self.sharding} carries no axis names", remedy='pass mesh=, as mesh="x=2,y=4"')
        form = own if mesh is None or own is None or own.mesh == mesh else None
        form = form or self._found(mesh or MeshInfo((), ()))
        return replace(self, sharding=self.sharding.with_named_form(_spelled_out(form, ndim)))

    def _found(self, mesh: MeshInfo) -> NamedForm:
        found = find_named_form(self.sharding.without_names(), mesh)
        if found is None:
            raise ShardingError(_why_not(self.sharding, mesh), remedy="give a mesh whose axes split it so")
        own = self.sharding.named_form
        if own is None or own.whole is not None or found.whole == "maximal":
            return found
        if own.replicated and any(dim.is_open for dim in own.dims):
            kept = ", ".join(map(str, own.replicated))
            raise ShardingError(f"{mesh!r} has no axes for the replicated ones, {kept} of {own.mesh!r}")
        found = _spelled_out(found, len(own.dims))
        opened = (DimAxes(dim.axes, old.is_open) for dim, old in zip(found.dims, own.dims, strict=True))
        return replace(found, dims=tuple(opened))


def _why_not(sharding: HloSharding, mesh: MeshInfo) -> str:
    said = sharding.without_names()
    count = sharding.num_devices
    if count is not None and count != mesh.num_devices:
        return f"{said} is over {count} devices, {mesh!r} has {mesh.num_devices}"
    return f"no axes of {mesh!r}, nor parts of them, say {said}: its devices come in another order"


def _spelled_out(form: NamedForm, ndim: int | None) -> NamedForm:
    """Without a word for the whole: every dim, and all axes of a mesh that is manual or unreduced as a whole."""
    if form.whole == "maximal":
        return form
    if form.whole is None:
        if ndim is not None and len(form.dims) != ndim:
            raise ShardingError(f"{form.to_string()} is of {len(form.dims)} dims, the array has {ndim}")
        return form
    every = tuple(map(AxisRef, form.mesh.names))
    dims = (DimAxes(),) * (ndim or 0)
    whole = form.whole if ndim is None else None
    unreduced, manual = (every if form.whole == word else () for word in ("unreduced", "manual"))
    return NamedForm(form.mesh, dims, unreduced=unreduced, manual=manual, whole=whole)


# ---- what a conversion is told beside the sharding: the mesh, in any spelling, and the rank of the array


@dataclass(frozen=True, slots=True)
class FormatContext:
    """The mesh and the rank that a caller gives, or None.

    >>> context = FormatContext.of("sdy.mesh @m = <['x'=2]>".replace("'", '"'), ndim=2)
    >>> context.mesh, context.symbol, context.ndim
    (MeshInfo('x'=2), 'm', 2)
    """

    mesh: MeshInfo | None = None
    symbol: str | None = None
    """The name of the mesh in a program, where the caller's text gives one."""
    ndim: int | None = None
    jax_mesh: Any = None

    @classmethod
    def of(cls, mesh: Any = None, ndim: int | None = None) -> FormatContext:
        """A mesh as a jax mesh, MeshInfo, {axis: size}, sizes, `Cluster`, or text: `x=2,y=4`, `2x4`, a declaration.

        Such as `sdy.mesh @m = <["x"=2]>`, `mesh.cluster @m(rank = 1, dim_sizes = [2])`, `shard.grid @m(shape = 2)`
        """
        if ndim is not None and (not isinstance(ndim, int) or not 0 <= ndim <= MOST_DIMS):
            raise ShardingError(f"{ndim!r} is no number of dims", remedy=f"give 0, 1, 2 ... up to {MOST_DIMS}")
        info, symbol = (None, None) if mesh is None else _mesh(mesh)
        is_jax = hasattr(mesh, "axis_names") and not isinstance(mesh, MeshInfo)
        return cls(info, symbol, ndim, mesh if is_jax else None)

    def needed_mesh(self, what: str) -> MeshInfo:
        """The mesh; raises ShardingError where none was given."""
        if self.mesh is None:
            raise ShardingError(f"{what} is read over a mesh", remedy='pass mesh=, as mesh="x=2,y=4"')
        return self.mesh

    def rank(self, shown: int, what: object) -> int:
        """The rank of the array: as given, or the dims that are shown; raises ShardingError if these are more."""
        if self.ndim is not None and shown > self.ndim:
            raise ShardingError(f"{what} is of {shown} dims, the array has {self.ndim}")
        if shown > MOST_DIMS:
            raise ShardingError(f"{what} is of {shown} dims, {MOST_DIMS} are the most")
        return shown if self.ndim is None else self.ndim

    def dim(self, dim: int, what: object) -> int:
        """A dim that may be counted from behind; raises ShardingError if there is none such."""
        if dim < 0 and self.ndim is None:
            raise ShardingError(f"{what} counts dim {dim} from behind", remedy="pass ndim=, the rank of the array")
        found = dim + (self.ndim or 0) if dim < 0 else dim
        if found < 0 or (self.ndim is not None and found >= self.ndim):
            raise ShardingError(f"{what} names dim {dim} of an array of {self.ndim} dims")
        return found


def _mesh(source: Any) -> tuple[MeshInfo, str | None]:
    if isinstance(source, str) and is_mesh_text(source):
        return read_mesh_text(source)
    if isinstance(source, str | Cluster | Mapping) or (isinstance(source, Sequence) and not hasattr(source, "mesh")):
        cluster = Cluster.of(source)
        named = isinstance(source, Cluster) or (isinstance(source, str) and "@" in source)
        return cluster.mesh("a sharding"), cluster.symbol if named else None
    return MeshInfo.from_jax(source), None
