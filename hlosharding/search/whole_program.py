"""Annotations for a program that has none: its arguments' best shardings, and of inner values as few as do it.  And of
one that has some, the fewest other shardings of arguments that save what such may save.

Floor: search.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hlosharding.cost import Machine
from hlosharding.frontends import annotate
from hlosharding.ir import Module
from hlosharding.plans import smallest
from hlosharding.propagation import propagate
from hlosharding.search.optimum import Optimum, find_optimum
from hlosharding.sharding import HloSharding, MeshInfo

_MOST_TRIED = 200
"""Sets of annotations; each is propagated."""


def find_annotations(module: Module, machine: Machine, mesh: MeshInfo | None) -> dict[str, HloSharding]:
    """By name, annotations with which a program takes least; the program's own bind.  `mesh`: by default nodes of
    devices.

    >>> import jax, jax.numpy as jnp, hlosharding as hs
    >>> shape = lambda *dims: jax.ShapeDtypeStruct(dims, jnp.float32)
    >>> arrays = shape(512, 65536), shape(65536, 512), shape(64, 512)
    >>> mlp = hs.trace(lambda up, down, x: jnp.tanh(x @ up) @ down)(*arrays)
    >>> for name, sharding in find_annotations(mlp, hs.machines.h100(4), None).items():
    ...     print(name, sharding)
    x.1 {replicated}
    up.1 {devices=[1,4]<=[4]}
    down.1 {devices=[4,1]<=[4]}
    dot_general.3 {devices=[4,1]<=[4]}
    """
    best = find_optimum(module, machine, mesh or _mesh_of_nodes(machine))
    boundary = {parameter.name for parameter in module.entry.parameters}
    inner = [name for name in best.said if name not in boundary]
    needed = smallest(inner, _Likeness(best, boundary).holds, _MOST_TRIED) if inner else []
    return {name: sharding for name, sharding in best.said.items() if name in boundary or name in needed}


def find_changes(
    module: Module, machine: Machine, mesh: MeshInfo | None, seconds: Callable[[Mapping[str, HloSharding]], float]
) -> dict[str, HloSharding]:
    """Of an annotated program, by name, the fewest other shardings of arguments that save nine tenths of what all of
    them do; none where nobody annotated any, or they save nothing.  `seconds`: what it takes with such shardings.
    """
    parameters = module.entry.parameters
    given = {p.name: sharding for p in parameters if (sharding := module.sharding(p)) is not None}
    if not given:
        return {}
    free = module.clone()
    free.shardings = {i: s for i, s in module.shardings.items() if i not in {p.id for p in parameters}}
    best = find_optimum(free, machine, mesh or _mesh_of_nodes(machine))
    wanted = {p.name: s for p, s in best.shardings.items() if p.name in given}
    changes = [(name, sharding) for name, sharding in wanted.items() if given[name] != sharding]
    before, after = seconds({}), seconds(dict(changes))
    if after >= before:
        return {}
    enough = after + _REST * (before - after)
    return dict(smallest(changes, lambda part: seconds(dict(part)) <= enough, _MOST_PARTITIONED))


_REST = 0.1
"""Of what all changes save: for so much nobody touches another line."""
_MOST_PARTITIONED = 24
"""Sets of changes; each is partitioned."""


class _Likeness:
    """Does propagation say of all that was annotated what the annotations did?"""

    def __init__(self, best: Optimum, boundary: set[str]) -> None:
        self.best, self.boundary = best, boundary
        self.wanted = self._propagated(best.said)

    def holds(self, inner: Sequence[str]) -> bool:
        """With annotations of these inner values, and of all arguments."""
        kept = {name: s for name, s in self.best.said.items() if name in self.boundary or name in inner}
        return self._propagated(kept) == self.wanted

    def _propagated(self, said: Mapping[str, HloSharding]) -> dict[str, HloSharding | None]:
        shardings = propagate(annotate(self.best.module, said, mesh=self.best.mesh)).shardings
        return {name: shardings[name] for name in self.best.said}


def _mesh_of_nodes(machine: Machine) -> MeshInfo:
    """An axis for the devices of a node, and one for nodes, where there are several."""
    count, node = machine.num_devices, machine.devices_per_node
    if count <= node or count % node:
        return MeshInfo(("devices",), (count,))
    return MeshInfo(("nodes", "devices"), (count // node, node))
