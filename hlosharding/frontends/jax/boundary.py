"""Shardings of a traced function's arguments and results: prefix trees in, one HloSharding per leaf out.

Floor: frontends.  Knows pytrees, meshes and the ways users spell a sharding; nothing of HLO.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hlosharding import xla_bridge
from hlosharding.errors import ShardingError, TraceError
from hlosharding.sharding import HloSharding, has_unconstrained_dims, without_partial_extremes


def broadcast(prefix: Any, tree: Any, what: str) -> list[Any]:
    """One entry of `prefix` per leaf of `tree`; raises TraceError where `prefix` is no prefix of `tree`.

    >>> broadcast((None, "{replicated}"), (1, {"a": 2, "b": 3}), "in_shardings")
    [None, '{replicated}', '{replicated}']
    """
    import jax

    if prefix is None:
        return [None] * len(jax.tree.leaves(tree))
    try:
        # Boxed, because None is a leaf in a prefix and an empty subtree elsewhere.
        boxes = jax.tree.broadcast(jax.tree.map(_PrefixEntry, prefix, is_leaf=_is_entry), tree)
    except ValueError as error:
        found = xla_bridge.prefix_errors(prefix, tree, what)
        raise TraceError(
            f"{what} do not match the structure they stand for. Mismatch details ({len(found)} found):\n"
            + "\n".join(found),
            remedy="give one sharding for all, or a tree that is a prefix of it (None: open)",
        ) from error
    return [box.entry for box in jax.tree.leaves(boxes)]


@dataclass(frozen=True, slots=True)
class _PrefixEntry:
    entry: Any


def _is_entry(node: Any) -> bool:
    from jax.sharding import PartitionSpec

    return node is None or isinstance(node, (str, HloSharding, PartitionSpec))


def resolve(entry: Any, mesh: Any, where: str) -> Any:
    """A user's spelling as a jax Sharding, an HloSharding, or None (open).

    Takes PartitionSpec (needs `mesh`), any jax Sharding, HloSharding, HLO text, None.
    """
    from jax.sharding import PartitionSpec, Sharding

    if entry is None or isinstance(entry, (Sharding, HloSharding)):
        return entry
    if isinstance(entry, PartitionSpec):
        if mesh is None:
            raise TraceError(f"{entry} needs a mesh", where=where, remedy="pass mesh=, or trace under jax.set_mesh")
        return _named(mesh, entry, where)
    if isinstance(entry, str):
        return HloSharding.parse(entry)
    # JAX's own value for open; its class is private.
    if type(entry).__name__ == "UnspecifiedValue":
        return None
    raise TraceError(
        f"{entry!r} is no sharding", where=where, remedy="use NamedSharding, PartitionSpec, HloSharding, text or None"
    )


def _named(mesh: Any, spec: Any, where: str) -> Any:
    from jax.sharding import NamedSharding

    try:
        return NamedSharding(mesh, spec)
    except xla_bridge.spec_errors() as error:
        remedy = f"name axes of the mesh ({', '.join(map(str, mesh.axis_names))}), each once at most"
        raise TraceError(str(error), where=where, remedy=remedy) from error


def said_by_jax(prefix: Any, mesh: Any) -> Any:
    """A prefix tree of shardings as far as JAX can say them; other entries are open.

    >>> said_by_jax((None, "{replicated}"), None)
    (None, None)
    """
    import jax
    from jax.sharding import PartitionSpec

    def said(entry: Any) -> Any:
        if isinstance(entry, (str, HloSharding)):
            return None
        if isinstance(entry, PartitionSpec) and mesh is not None:
            return _named(mesh, entry, "a sharding")
        return entry

    return jax.tree.map(said, prefix, is_leaf=_is_entry)


def as_hlo(sharding: Any, shape: Sequence[int], where: str) -> HloSharding | None:
    """An entry that `resolve` gave, for an array of that shape; None stays None."""
    if sharding is None:
        return None
    if has_unconstrained_dims(sharding):
        raise TraceError(f"unconstrained dims in {sharding.spec}", where=where, remedy="use None, or leave it open")
    try:
        whole = without_partial_extremes(sharding)
        found = whole if isinstance(whole, HloSharding) else HloSharding.from_jax(whole, len(shape))
        # As XLA spells it; the axis names are those of the module's mesh.
        found = found.without_names()
        if found.is_tuple():
            raise ShardingError(f"{found} is a tuple, an array needs a leaf")
        found.validate(tuple(shape))
    except ShardingError as error:
        raise TraceError(error.what, where=where, remedy=error.remedy) from error
    return found


def divides(sharding: Any, shape: Sequence[int]) -> bool:
    """Can JAX itself lay out an array of that shape so (a NamedSharding whose splits are even)?"""
    from jax.sharding import NamedSharding

    if not isinstance(sharding, NamedSharding):
        return False
    try:
        sharding.shard_shape(tuple(shape))
    except ValueError:
        return False
    return True


def mesh_of(shardings: Sequence[Any]) -> Any:
    """The first mesh that NamedShardings bring with them, or None."""
    return next((s.mesh for s in shardings if hasattr(s, "mesh") and hasattr(s, "spec")), None)
