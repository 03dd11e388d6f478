"""Annotations worth a trial: on values near the one in question, shardings that the ops around them would give.

Floor: search.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hlosharding.ir import Instruction, Module
from hlosharding.partitioner import lift, project
from hlosharding.propagation import Propagation
from hlosharding.rules import Signature, signature_of
from hlosharding.sharding import HloSharding

Annotation = tuple[str, HloSharding]
_Shardings = Mapping[str, HloSharding | None]

# How far from the value, in ops, an annotation is tried.
_REACH = 4


def candidates(module: Module, targets: list[Instruction], propagation: Propagation) -> Iterator[Annotation]:
    """(name, sharding): nearest values first, and for each the shardings of its neighbours before made-up ones."""
    shardings = propagation.shardings
    counts = [s.num_devices or 1 for s in shardings.values() if s is not None]
    devices = max([module.num_partitions, *counts])
    found: dict[Annotation, None] = {}
    for inst in _near(targets):
        if not inst.shape.is_array or not inst.shape.rank:
            continue
        for sharding in (*_neighbours(inst, shardings), *_one_dim_splits(inst, devices)):
            if sharding != shardings.get(inst.name) or module.sharding(inst) is None:
                found.setdefault((inst.name, sharding))
    yield from found


def _near(targets: list[Instruction]) -> list[Instruction]:
    order, seen = list(targets), set(targets)
    ring = list(targets)
    for _ in range(_REACH):
        ring = [n for i in ring for n in (*i.operands, *i.users) if n not in seen and not seen.add(n)]
        order += ring
    return order


def _neighbours(inst: Instruction, shardings: _Shardings) -> Iterator[HloSharding]:
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


def _one_dim_splits(inst: Instruction, devices: int) -> Iterator[HloSharding]:
    for dim, size in enumerate(inst.shape.dims):
        if devices > 1 and size % devices == 0:
            yield HloSharding.iota_tile(tuple(devices if d == dim else 1 for d in range(inst.shape.rank)))
