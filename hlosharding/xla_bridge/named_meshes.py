"""Meshes and devices that a traced function names in its equations: constraints, shard_map, jitted functions inside.

Floor: ground.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


def names_devices(traced: Any, marks: frozenset[str]) -> bool:
    """Does anything in a `jax.stages.Traced` name a mesh or a sharding of several devices?

    `marks`: primitives that do so by themselves.
    """
    return any(name in marks or any(map(_is_of_several_devices, said)) for name, said in _equations(traced))


def mesh_inside(traced: Any) -> Any:
    """The first mesh of several devices that an equation of a `jax.stages.Traced` names; None where none does.

    JAX keeps those of constraints beside what it lowers, but no AbstractMesh.

    >>> import jax
    >>> from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P
    >>> mesh = AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    >>> rows = NamedSharding(mesh, P("data"))
    >>> mesh_inside(jax.jit(lambda x: jax.lax.with_sharding_constraint(x, rows)).trace(jax.numpy.ones((8, 8)))).shape
    OrderedDict([('data', 4), ('model', 2)])
    """
    values = (getattr(value, "mesh", value) for _, said in _equations(traced) for value in said)
    return next((value for value in values if _is_mesh_of_several(value)), None)


def _equations(traced: Any) -> Iterator[tuple[str, list[Any]]]:
    """The primitive's name and the parameters of each equation, of each jaxpr once."""
    waiting, known = [traced.jaxpr.jaxpr], set[int]()
    while waiting:
        jaxpr = waiting.pop()
        if id(jaxpr) in known:
            continue
        known.add(id(jaxpr))
        for eqn in jaxpr.eqns:
            said = list(_flat(eqn.params.values()))
            yield eqn.primitive.name, said
            inner = (getattr(value, "jaxpr", value) for value in said)
            waiting += [value for value in inner if hasattr(value, "eqns")]


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from _flat(value)
        else:
            yield value


def _is_of_several_devices(value: Any) -> bool:
    import jax

    is_several = isinstance(value, jax.sharding.Sharding) and value.num_devices > 1
    return is_several or _is_mesh_of_several(value)


def _is_mesh_of_several(value: Any) -> bool:
    import jax

    return isinstance(value, (jax.sharding.Mesh, jax.sharding.AbstractMesh)) and value.size > 1
