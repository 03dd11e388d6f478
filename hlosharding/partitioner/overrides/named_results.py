"""Results of a traced function for which no sharding was asked take one that JAX's arrays can have.

Floor: partitioner.  Propagation may leave a result in tiles that no axes of the mesh name, reversed ones say, or that
do not divide it: what is nearest of those that axes can name, by the price of going there, is taken.

    y = reverse(x), x f32[16] over a 4-way axis     propagated: devices=[4]3,2,1,0     here: devices=[4]<=[4]
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from hlosharding.ir import Instruction, Shape
from hlosharding.partitioner.overrides.open_results import changed_results
from hlosharding.partitioner.overrides.program_shardings import ProgramShardings
from hlosharding.partitioner.prices import Prices
from hlosharding.sharding import REPLICATED, HloSharding, MeshInfo, find_named_form, uneven_dims

_MOST_TRIED = 256
"""Ways to put axes on dims; of more, whole on every device is taken."""


def named_results(program: ProgramShardings) -> dict[int, HloSharding]:
    """By id, another sharding of the result; empty where all that is open has names, or JAX has no mesh for it."""
    mesh = program.module.mesh
    if program.module.signature is None or mesh is None or mesh.num_devices != program.num_partitions:
        return {}

    def named(result: Instruction, given: HloSharding) -> HloSharding:
        if result.name in program.annotated or _has_name(given, result.shape, mesh):
            return given
        return _nearest(given, result.shape, mesh, program.prices)

    return changed_results(program, named)


def _has_name(sharding: HloSharding, shape: Shape, mesh: MeshInfo) -> bool:
    if sharding.kind not in ("tiled", "maximal") or set(sharding.subgroup_types) - {"replicated"}:
        return True
    return not uneven_dims(sharding, shape.dims) and find_named_form(sharding, mesh) is not None


def _nearest(given: HloSharding, shape: Shape, mesh: MeshInfo, prices: Prices) -> HloSharding:
    """The cheapest to go to; of equally cheap ones that with the most tiles."""

    def price(target: HloSharding) -> tuple[float, int]:
        return prices.reshard_seconds(shape, given, target, None), -target.num_tiles

    return min(_named_shardings(given, shape, mesh), key=price)


def _named_shardings(given: HloSharding, shape: Shape, mesh: MeshInfo) -> Iterator[HloSharding]:
    """Each axis on one of the dims that are split, or on none, as far as they divide evenly."""
    yield REPLICATED
    dims = [d for d, ways in enumerate(given.data_dims) if ways > 1]
    if (len(dims) + 1) ** len(mesh.names) > _MOST_TRIED:
        return
    for places in product((None, *dims), repeat=len(mesh.names)):
        spec = [tuple(n for n, p in zip(mesh.names, places, strict=True) if p == d) for d in range(shape.rank)]
        found = HloSharding.named(mesh, spec, shape.rank)
        if found.num_tiles > 1 and not uneven_dims(found, shape.dims):
            yield found
