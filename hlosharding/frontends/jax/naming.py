"""In which words users see where an output lies that they left to us: JAX's own.

Floor: frontends.  Knows meshes and the ways JAX spells a sharding; nothing of HLO modules.  JAX finds the words again
for what XLA chose (`maybe_recover_user_shardings`): those of the first argument that has a NamedSharding, where the
output lies alike, else the shortest, over the mesh that the output's type names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hlosharding.errors import ShardingError
from hlosharding.frontends.jax.arguments import Arguments
from hlosharding.frontends.jax.signature import is_key
from hlosharding.sharding import HloSharding, shortest, without_partial_extremes


@dataclass(frozen=True, slots=True)
class OutputNames:
    """What JAX calls the shardings that an output may get."""

    mesh: Any
    """Whose axes they name; None where there is none, or one without devices."""
    of_argument: Any
    """The sharding of the first argument that lies on several devices; None where it is of another rank or mesh."""
    of_type: Any
    """The sharding in the output's type, over Explicit axes; None where it has none."""
    has_every_dim: bool
    """Keys are seen as numbers with all their dims, split or not."""

    def said(self, sharding: HloSharding, rank: int, *, is_typed: bool = False) -> Any:
        """A sharding in JAX's words; None where it has none.  `is_typed`: the output's type says part of it."""
        known = self.of_type if is_typed else self.of_argument
        is_sayable = known is not None and without_partial_extremes(known) is known
        if is_sayable and HloSharding.from_jax(known, rank).without_names() == sharding:
            return known
        if self.mesh is None:
            return None
        try:
            found = sharding.to_jax(self.mesh)
        except ShardingError:
            return None
        return found if self.has_every_dim else shortest(found)


def output_names(call: Arguments, avals: Sequence[Any], mesh: Any) -> tuple[OutputNames, ...]:
    """Per output.  `mesh`: the first that the program names."""
    return tuple(_names(call, aval, mesh) for aval in avals)


def _names(call: Arguments, aval: Any, mesh: Any) -> OutputNames:
    typed = getattr(aval, "sharding", None)
    if typed is not None and (typed.mesh.empty or typed.mesh.manual_axes):
        typed = None
    over = _with_devices(mesh if typed is None else typed.mesh, mesh)
    of_type = None if typed is None or over is None else typed.update(mesh=over)
    return OutputNames(over, _of_first_argument(call, aval, over), of_type, is_key(aval))


def _with_devices(mesh: Any, of: Any) -> Any:
    """A mesh over the devices of another; None where these have none, or another number."""
    import jax

    if not isinstance(of, jax.sharding.Mesh) or mesh.size != of.size:
        return None
    if mesh in (of, of.abstract_mesh):
        return of
    return jax.sharding.Mesh(of.devices.reshape(mesh.axis_sizes), mesh.axis_names, axis_types=mesh.axis_types)


def _of_first_argument(call: Arguments, aval: Any, over: Any) -> Any:
    """Of several devices: those of one are JAX's business."""
    import jax

    given = zip(call.spelled, call.avals, strict=True)
    named = (
        (said, len(a.shape)) for said, a in given if isinstance(said, jax.sharding.Sharding) and said.num_devices > 1
    )
    said, rank = next(named, (None, None))
    is_same = said is not None and getattr(said, "mesh", None) == over and not is_key(aval)
    return said if is_same and rank == len(aval.shape) else None
