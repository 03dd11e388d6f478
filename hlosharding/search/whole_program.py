"""Annotations for a program that has none: its arguments' best shardings, and of inner values as few as do it.  And of
one that has some, the fewest other shardings of arguments that save what such may save.

Floor: search.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from hlosharding.cost import Machine
from hlosharding.frontends import annotate
from hlosharding.ir import Module
from hlosharding.plans import smallest
from hlosharding.propagation import propagate
from hlosharding.search.optimum import Optimum, find_optimum
from hlosharding.sharding import REPLICATED, DeviceGrid, HloSharding, MeshInfo, ends_of

Specs = Mapping[str, HloSharding]
"""By name."""


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
    best = find_optimum(module, machine, mesh or _mesh_for(module, machine))
    boundary = {parameter.name for parameter in module.entry.parameters}
    inner = {name: sharding for name, sharding in best.said.items() if name not in boundary}
    outer = {name: sharding for name, sharding in best.said.items() if name in boundary}

    def suffices(names: Sequence[str]) -> bool:
        return replace(best, said={**outer, **{name: inner[name] for name in names}}).time_s <= _NEAR * best.time_s

    return {**outer, **{name: inner[name] for name in (_needed(best, outer, inner, suffices) if inner else ())}}


_NEAR = 1.01
"""Times the least: for so little nobody writes another line."""
_MOST_TRIED = 24
"""Sets of inner values, or of changes, that are tried without some of them; each is partitioned."""


def _needed(best: Optimum, outer: Specs, inner: Specs, suffices: Callable[[Sequence[str]], bool]) -> list[str]:
    """Inner values whose shardings propagation must be told.  Of those that lie otherwise without, made of what does
    not, the largest are told, as many again as were, until the program takes no longer; then what is not needed goes.
    """
    kept = list[str]()
    # Not until propagation gives back all of the optimum: of a two-layer transformer of Flax's that was not reached
    # with 290 values, and 16 do for the time.
    while not suffices(kept):
        found = propagate(annotate(best.module, {**outer, **{n: inner[n] for n in kept}}, mesh=best.mesh)).shardings
        wrong = {best.module.by_name(name): name for name, sharding in inner.items() if found[name] != sharding}
        first = [inst for inst, name in wrong.items() if name not in kept and wrong.keys().isdisjoint(inst.operands)]
        if not first:
            return list(inner)
        first.sort(key=lambda inst: -inst.shape.byte_size)
        kept += [wrong[inst] for inst in first[: max(1, len(kept))]]
    return smallest(kept, suffices, _MOST_TRIED)


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
    best = find_optimum(free, machine, mesh or _mesh_for(module, machine))
    wanted = {p.name: s for p, s in best.shardings.items() if p.name in given}
    changes = [(name, sharding) for name, sharding in wanted.items() if given[name] != sharding]
    before, after = seconds({}), seconds(dict(changes))
    if after >= before:
        return {}
    enough = after + _REST * (before - after)
    return dict(smallest(changes, lambda part: seconds(dict(part)) <= enough, _MOST_TRIED))


_REST = 0.1
"""Of what all changes save: for so much nobody touches another line."""


def _mesh_for(module: Module, machine: Machine) -> MeshInfo:
    """An axis for the devices of a node, and one for nodes, where there are several; cut where annotations bind tilings
    of fewer tiles, which would be gathered and split again around each of them.
    """
    count, node = machine.num_devices, machine.devices_per_node
    nodes = (count,) if count <= node or count % node else (count // node, node)
    grid = DeviceGrid(nodes, tuple(range(count)))
    leaves = (leaf for sharding in module.shardings.values() for leaf in sharding.leaves)
    for leaf in dict.fromkeys(leaf for leaf in leaves if leaf.kind == "tiled"):
        digits = grid.digits_of(leaf.tiles.array, unordered=REPLICATED in leaf.subgroup_types)
        grid = (grid.cut_at(ends_of(chain(*digits))) if digits is not None else None) or grid
    if grid.sizes == nodes:
        return MeshInfo(("nodes", "devices")[-len(nodes) :], nodes)
    return MeshInfo([f"axis{number}" for number in range(len(grid.sizes))], grid.sizes)
