"""Results of the program for which no sharding was asked, and which their split does not divide evenly, or in which
JAX's arrays cannot be.

Floor: partitioner.  Looks at instructions and shardings alone.  XLA's propagation makes such a result whole on every
device.  Only a dim that cannot be shared evenly has to be whole: other dims keep their split, and take over what that
one had, where they divide by it.  No more is moved than for the whole.  A program that is given buffers for its results
(donation) gives them back as it took them.

    logits f32[16,32,1023] = [2,1,1] x [1,1,4]     propagated: whole on all devices     here: [2,4,1]

Of a traced function propagation may leave a result in tiles that no axes of the mesh name, reversed ones say, or that
do not divide it: what is nearest of those that axes can name, by the price of going there, is taken.

    y = reverse(x), x f32[16] over a 4-way axis     propagated: devices=[4]3,2,1,0     here: devices=[4]<=[4]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations, product

from hlosharding.ir import Instruction, Module, Shape
from hlosharding.partitioner.iteration_space import as_compared, lift, project
from hlosharding.partitioner.overrides.op_sets import BINDING, ProgramShardings
from hlosharding.partitioner.prices import Prices
from hlosharding.rules import Signature, signature_of
from hlosharding.sharding import (
    REPLICATED,
    HloSharding,
    MeshInfo,
    find_named_form,
    first_target_dim,
    merge_if_compatible,
    move_and_merge_tiles,
    replicate_on_dims,
    uneven_dims,
)


def evenly_split_results(program: ProgramShardings) -> dict[int, HloSharding]:
    """By id, another sharding of the result; empty where none of it is open, or can be split."""
    if _takes_donations(program.module):
        return {}
    return changed_results(program, lambda one, given: _evenly_split(one, given, program.shardings, program.annotated))


def changed_results(
    program: ProgramShardings, change: Callable[[Instruction, HloSharding], HloSharding]
) -> dict[int, HloSharding]:
    """By id, the sharding of the result when each open one of its arrays takes what `change` says, if that differs."""
    module, root = program.module, program.module.entry.root
    given = program.shardings.get(root.id)
    if not module.open_outputs or given is None:
        return {}
    if root.shape.is_array:
        found = change(root, given)
        return {} if found is given else {root.id: found}
    if root.opcode != "tuple" or not all(o.shape.is_array for o in root.operands):
        return {}
    leaves = given.normalize_tuple(len(root.operands)).leaves
    is_open = module.open_outputs if isinstance(module.open_outputs, tuple) else (True,) * len(leaves)
    if len(is_open) != len(leaves):
        return {}
    made = [
        change(operand, leaf) if may else leaf
        for operand, leaf, may in zip(root.operands, leaves, is_open, strict=True)
    ]
    return {root.id: HloSharding.tuple(made)} if any(a is not b for a, b in zip(made, leaves, strict=True)) else {}


def _takes_donations(module: Module) -> bool:
    return bool(module.proto.input_output_alias.entries or module.proto.buffer_donor.entries)


def _evenly_split(
    result: Instruction, given: HloSharding, shardings: Mapping[int, HloSharding], bound: frozenset[str]
) -> HloSharding:
    """The most tiles that some claims share evenly, where one does not; else `given`."""
    if as_compared(given) is not REPLICATED or not result.shape.rank:
        return given
    claims = list(_claims(result, shardings, bound))
    claims += [both for pair in combinations(claims, 2) if (both := merge_if_compatible(*pair)) is not None]
    even = [_even_part(result, claim) for claim in claims]
    # Where every claim divides evenly it was not unevenness that made the result whole.
    if all(as_compared(a) is b for a, b in zip(claims, even, strict=True)):
        return given
    return max((s for s in even if s.kind == "tiled"), key=lambda s: s.num_tiles, default=given)


def _claims(result: Instruction, shardings: Mapping[int, HloSharding], bound: frozenset[str]) -> Iterator[HloSharding]:
    """The result's own sharding before it was made whole, and those that its operands imply."""
    own = shardings.get(result.id)
    if own is not None and _is_plain_split(own):
        yield own
    signature = signature_of(result) if result.opcode not in BINDING and result.name not in bound else None
    if not isinstance(signature, Signature) or len(signature.results) != 1:
        return
    for operand, dims in zip(result.operands, signature.operands, strict=True):
        lifted = shardings.get(operand.id)
        if lifted is not None and _is_plain_split(lifted):
            claim = project(lift(lifted, dims, len(signature.factors)), signature.results[0])
            if _is_plain_split(claim):
                yield claim


def _is_plain_split(sharding: HloSharding) -> bool:
    return sharding.kind == "tiled" and sharding.num_tiles > 1 and not set(sharding.subgroup_types) - {"replicated"}


def _even_part(result: Instruction, sharding: HloSharding) -> HloSharding:
    """The split with the tiles of uneven dims on the first other dims that they divide."""
    for dim in uneven_dims(sharding, result.shape.dims):
        target = first_target_dim(result.shape.dims, sharding, dim)
        sharding = (
            replicate_on_dims(sharding, (dim,)) if target is None else move_and_merge_tiles(sharding, dim, target)
        )
    return sharding.meaning


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
