"""What a conversion is told beside the sharding: the mesh, in any spelling, and the rank of the array.

Floor: sharding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hlosharding.errors import ShardingError
from hlosharding.sharding.formats.cluster import Cluster
from hlosharding.sharding.formats.sdy_text import is_mesh_text, read_mesh_text
from hlosharding.sharding.mesh import MeshInfo
from hlosharding.sharding.tile_assignment import MOST_DIMS


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
