"""`hs.suggest`: which annotations would split a value that propagation leaves whole?  Found by trying.

Floor: search.  Each candidate is put on the program, propagated and partitioned; what does not split the value is
dropped, the rest is ranked by how few annotations it takes and by what the program then costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from hlosharding.compiler import Partitioned, partition
from hlosharding.cost import Machine
from hlosharding.errors import HloShardingError
from hlosharding.frontends import annotate
from hlosharding.ir import Instruction, Module
from hlosharding.partitioner import lift, project
from hlosharding.propagation import Propagation, propagate
from hlosharding.rules import Signature, signature_of
from hlosharding.sharding import HloSharding

# How far from the value, in ops, an annotation is tried; and how many programs are propagated at most.
_REACH = 4
_MOST_TRIALS = 150
_MOST_PRICED = 12


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Annotations that split the value, and what the program then costs on one device."""

    annotations: tuple[tuple[str, HloSharding], ...]
    sharding: HloSharding
    """What the value gets."""
    bytes_received: float
    bytes_before: float
    flops: float
    flops_before: float

    def __str__(self) -> str:
        said = ", ".join(f"%{name}={sharding}" for name, sharding in self.annotations)
        moved = f"bytes {self.bytes_before:,.0f} -> {self.bytes_received:,.0f}"
        work = f"FLOPs {self.flops_before:,.0f} -> {self.flops:,.0f}"
        return f"annotate {said}: the value becomes {self.sharding}; {moved}, {work}"


def suggest(
    module: Module,
    name: str,
    *,
    most: int = 5,
    machine: Machine | None = None,
    progress: Callable[[int, int], None] = lambda done, all_: None,
) -> list[Suggestion]:
    """The best annotations that split the value `name`, fewest first, then fewest bytes received; [] if none was found.

    Values within a few ops of `name` are tried with the shardings their neighbours have and with one-dim splits.  When
    no single annotation does, pairs are tried.  Raises ModuleError for an unknown name.

    >>> from hlosharding.frontends import load
    >>> text = '''HloModule m
    ... ENTRY e {
    ...   a = f32[8,4] parameter(0), sharding={devices=[2,1]<=[2]}
    ...   b = f32[4,8] parameter(1)
    ...   c = f32[4,8] negate(b)
    ...   ROOT d = f32[8,8] dot(a, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    ... }'''
    >>> best = suggest(load(text), "c")[0]
    >>> len(best.annotations), best.sharding.num_tiles
    (1, 2)
    """
    target = module.by_name(name)
    before = _priced(_propagated(module), machine)
    candidates = list(_candidates(module, target, before.propagation))
    found = _working(module, target, [(c,) for c in candidates], progress)
    if not found:
        found = _working(module, target, list(combinations(candidates, 2)), progress)
    suggestions = [_suggestion(p, target, annotations, before, machine) for annotations, p in found[:_MOST_PRICED]]
    return sorted(suggestions, key=lambda s: (len(s.annotations), s.flops > s.flops_before, s.bytes_received))[:most]


Annotation = tuple[str, HloSharding]


def _propagated(module: Module) -> Propagation:
    signature = module.signature
    outputs: Any = signature.open_outputs if signature is not None else False
    parameters: Any = signature.open_parameters if signature is not None else False
    return propagate(module, to_outputs=outputs, to_parameters=parameters)


def _priced(propagation: Propagation, machine: Machine | None) -> Partitioned:
    return partition(propagation, machine=machine)


def _candidates(module: Module, target: Instruction, propagation: Propagation | None) -> Iterator[Annotation]:
    """(name, sharding): nearest values first, and for each the shardings of its neighbours before made-up ones."""
    found: dict[Annotation, None] = {}
    shardings = propagation.shardings if propagation is not None else {}
    devices = max((s.num_devices or 1 for s in shardings.values() if s is not None), default=module.num_partitions)
    for inst in _near(target):
        if not inst.shape.is_array or not inst.shape.rank:
            continue
        for sharding in (*_neighbours(inst, shardings), *_one_dim_splits(inst, max(devices, module.num_partitions))):
            found.setdefault((inst.name, sharding))
    yield from found


def _near(target: Instruction) -> list[Instruction]:
    order, seen = [target], {target}
    ring = [target]
    for _ in range(_REACH):
        ring = [n for i in ring for n in (*i.operands, *i.users) if n not in seen and not seen.add(n)]
        order += ring
    return order


def _neighbours(inst: Instruction, shardings: dict[str, HloSharding | None]) -> Iterator[HloSharding]:
    """What ops around a value would give it: their other tensors' shardings, as far as they share dims with it."""
    for op in (inst, *inst.users):
        signature = signature_of(op)
        if isinstance(signature, Signature) and not op.shape.is_tuple:
            yield from _offers(op, signature, inst, shardings)


def _offers(
    op: Instruction, signature: Signature, inst: Instruction, shardings: dict[str, HloSharding | None]
) -> Iterator[HloSharding]:
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


def _working(
    module: Module,
    target: Instruction,
    trials: list[tuple[Annotation, ...]],
    progress: Callable[[int, int], None],
) -> list[tuple[tuple[Annotation, ...], Propagation]]:
    """Trials after which the value is split."""
    found: list[tuple[tuple[Annotation, ...], Propagation]] = []
    trials = trials[:_MOST_TRIALS]
    for number, trial in enumerate(trials):
        progress(number, len(trials))
        try:
            propagation = _propagated(annotate(module, dict(trial)))
        except HloShardingError:
            continue  # an annotation that contradicts another is no suggestion
        sharding = propagation.shardings.get(target.name)
        if sharding is not None and sharding.num_tiles > 1:
            found.append((trial, propagation))
    return found


def _suggestion(
    propagation: Propagation,
    target: Instruction,
    annotations: tuple[Annotation, ...],
    before: Partitioned,
    machine: Machine | None,
) -> Suggestion:
    after, sharding = _priced(propagation, machine), propagation.shardings[target.name]
    assert sharding is not None, "only trials that split the value get here"
    return Suggestion(
        annotations,
        sharding,
        after.comm_bytes_per_device,
        before.comm_bytes_per_device,
        after.flops_per_device,
        before.flops_per_device,
    )
