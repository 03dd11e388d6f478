"""Annotations worth a trial: on values near the one in question, shardings that the ops around them would give.

Floor: search.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from hlosharding.ir import Instruction, Module
from hlosharding.partitioner import lift, project
from hlosharding.propagation import Propagation
from hlosharding.rules import Signature, signature_of
from hlosharding.sharding import HloSharding, MeshInfo, uneven_dims

Annotation = tuple[str, HloSharding]
_Shardings = Mapping[str, HloSharding | None]

_REACH = 4
"""How far from the value, in ops, an annotation is tried.  What is nearest is tried first: on chains of products and on
the page's clash 1 finds what 8 does; further away lie values that an op keeps from this one."""


def find_candidates(module: Module, targets: list[Instruction], propagation: Propagation) -> Iterator[Annotation]:
    """(name, sharding): nearest values first, and for each the shardings of its neighbours before made-up ones."""
    shardings = propagation.shardings
    counts = [s.num_devices or 1 for s in shardings.values() if s is not None]
    devices = max([module.num_partitions, *counts])
    found: dict[Annotation, None] = {}
    for inst in _nearest_first(targets):
        if not inst.shape.is_array or not inst.shape.rank:
            continue
        for sharding in shardings_of(inst, shardings, MeshInfo(("all",), (devices,))):
            # What a value has by propagation is worth a trial where nobody said it: as an annotation it stays.
            is_new = sharding != shardings.get(inst.name) or module.sharding(inst) is None
            if is_new and sharding.num_tiles > 1:
                found.setdefault((inst.name, sharding))
    yield from found


def nearest_split(propagation: Propagation, inst: Instruction) -> HloSharding | None:
    """The split that comes first for a whole value; None where none would be even.  Not tried."""
    return next((s for name, s in find_candidates(propagation.source, [inst], propagation) if name == inst.name), None)


def shardings_of(inst: Instruction, shardings: _Shardings, mesh: MeshInfo) -> Iterator[HloSharding]:
    """Those of a value that the ops around it would give; then those by the axes of a mesh, each along one dim or none.

    All tiles of the latter are full.
    """
    yield from _shardings_of_neighbours(inst, shardings)
    dims, axes = inst.shape.dims, [name for name, size in zip(mesh.names, mesh.sizes, strict=True) if size > 1]
    for places in product((None, *range(len(dims))), repeat=len(axes)):
        placed = list(zip(axes, places, strict=True))
        spec = [tuple(axis for axis, place in placed if place == dim) for dim in range(len(dims))]
        sharding = HloSharding.unnamed(mesh, spec, len(dims))
        if not uneven_dims(sharding, dims):
            yield sharding


def _nearest_first(targets: list[Instruction]) -> list[Instruction]:
    order, seen = list(targets), set(targets)
    ring = list(targets)
    for _ in range(_REACH):
        ring = [n for i in ring for n in (*i.operands, *i.users) if n not in seen and not seen.add(n)]
        order += ring
    return order


def _shardings_of_neighbours(inst: Instruction, shardings: _Shardings) -> Iterator[HloSharding]:
    """What ops around a value would give it: their other tensors' shardings, as far as they share dims with it."""
    for op in (inst, *inst.users):
        signature = signature_of(op)
        if isinstance(signature, Signature) and not op.shape.is_tuple:
            yield from _offers(op, signature, inst, shardings)


def _offers(op: Instruction, signature: Signature, inst: Instruction, shardings: _Shardings) -> Iterator[HloSharding]:
    tensors = list(zip((*op.operands, op), (*signature.operands, signature.results[0]), strict=True))
    mine = [dims for tensor, dims in tensors if tensor is inst]
    for tensor, dims in tensors:
        sharding = shardings.get(tensor.name)
        if tensor is inst or sharding is None or sharding.kind != "tiled":
            continue
        space = lift(sharding.meaning, dims, len(signature.factors))
        yield from (offer for own in mine if (offer := project(space, own)).num_tiles > 1)
