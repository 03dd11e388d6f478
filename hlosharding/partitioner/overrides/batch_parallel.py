"""Another table of shardings to try: activations split over all devices along their batch.

Floor: partitioner.  Looks at instructions and shardings alone.  A tensor-parallel plan sums activations between the
devices that share a layer's weights; one that also splits rows of an image, or times of a sequence, moves halos, and
whole arrays where an op mixes them.  Where less moves if each device keeps a part of the batch (data parallelism, or
FSDP where weights are split), that is another program to try.  Only values whose sharding is the propagation's own
change: annotations, parameters and results stay; what a loop carries changes if each trip hands it on (`batch_walk`).

    8 devices, batch over 2, model over 4        propagated              batch-parallel
    x  f32[512,16]                               [2,1] and 4 copies      [8,1]
    d  f32[512,16] = dot(x, w)                   all-reduce over 4       all-gather w, nothing to reduce
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import product

from hlosharding.ir import GENERATORS, Computation, Instruction, trip_count, while_parts
from hlosharding.partitioner.iteration_space import as_compared, lift, project, sum_of_parts
from hlosharding.partitioner.overrides.batch_walk import Batch, BatchWalk, batches_of, is_free, orders_of
from hlosharding.partitioner.overrides.op_sets import ProgramShardings
from hlosharding.reshard import is_partial, least_of
from hlosharding.rules import Signature, signature_of
from hlosharding.sharding import HloSharding

# Trying costs a whole run of the partitioner.  A program that moves more bytes may still take less time, as nobody
# waits long for weights, and for sums of their gradients: of 31 models nine were faster so, which received 0.3 to 0.95
# at least of what they had, a stage of a billion weights by eight tensors 1.8; with more, one of four was, by 3 %.
_MOST_RECEIVED = 1.9
_LEAST_CHANGED = 0.5
"""Of the values that are split: what leaves more of them as they are is another plan with moves at its borders."""
_MOST_BATCHES = 3
"""Dims by which most values are split: batch, sequence and hidden dims."""

_Move = tuple[Instruction, HloSharding, HloSharding]
"""A value, from where, to where."""


def batch_parallel_shardings(program: ProgramShardings) -> dict[int, HloSharding]:
    """By id, shardings with batches over all devices; empty where that promises nothing."""
    split = [i for i in program.module.instructions if _is_split(i, program)]
    free = [i for i in split if is_free(i, program)]
    most, best = _MOST_RECEIVED * program.cost.mean_bytes, dict[int, HloSharding]()
    for batch, order in _batches_to_try(program, split, free):
        walk = BatchWalk(program, batch, order)
        walk.through(program.module.entry)
        if len(walk.changed) >= max(1, _LEAST_CHANGED * len(free)):
            received = _received(walk, program.module.entry, most)
            if received < most:
                most, best = received, walk.changed
    return best


def _batches_to_try(
    program: ProgramShardings, split: Collection[Instruction], free: Collection[Instruction]
) -> Iterable[tuple[Batch, Batch]]:
    """What most values are split by, on the devices that are next to them; then in the orders that others bind."""
    count = program.num_partitions
    found = Counter(batch for i in free for batch in batches_of(program.shardings[i.id], count))
    batches = [batch for batch, _ in found.most_common(_MOST_BATCHES)]
    bound = [i for i in split if not is_free(i, program)]
    orders = dict.fromkeys(order for i in bound for order in orders_of(program.shardings[i.id], count))
    return dict.fromkeys([*zip(batches, batches, strict=True), *product(batches, orders)])


def _is_split(inst: Instruction, program: ProgramShardings) -> bool:
    given = program.shardings.get(inst.id)
    return inst.shape.is_array and given is not None and given.kind == "tiled"


def _received(walk: BatchWalk, computation: Computation, most: float) -> float:
    """Bytes that a device receives then at least: of what comes into the batch, of what leaves it, and of sums over it;
    in each trip of a loop.  Of more than `most` only so many."""
    total = 0.0
    # One move serves all who read the value there.
    for value, source, target in dict.fromkeys(move for i in computation.instructions for move in _moves(walk, i)):
        if total > most:
            return total
        lacked = least_of(source, target, value.shape.dims, walk.program.num_partitions)
        total += lacked.mean_bytes(value.shape)
    for loop in (inst for inst in computation.instructions if inst.opcode == "while"):
        trips = max(1, trip_count(loop).count)
        total += trips * _received(walk, while_parts(loop).body, (most - total) / trips)
    return total


def _moves(walk: BatchWalk, inst: Instruction) -> Iterator[_Move]:
    """What an op moves of values that it reads, or makes, of the batch."""
    signature = signature_of(inst)
    if inst.opcode == "tuple":
        yield from _moves_into_tuple(walk, inst)
    elif inst.opcode == "get-tuple-element":
        yield from _moves_out_of_tuple(walk, inst)
    elif not isinstance(signature, Signature) or not inst.shape.is_array:
        return
    elif (made := walk.seen.get(inst)) is not None:
        space = lift(made, signature.results[0], len(signature.factors))
        for operand, dims in zip(inst.operands, signature.operands, strict=True):
            lies, needed = _lies(walk, operand), project(space, dims)
            # Of what is repeated (a bias) every device has all: it makes as many copies as it needs.
            if lies is not needed and operand.opcode not in GENERATORS | {"broadcast"}:
                yield operand, lies, needed
    else:
        yield from _moves_out(walk, inst, signature)


def _moves_into_tuple(walk: BatchWalk, inst: Instruction) -> Iterator[_Move]:
    """Values as they are given back, or as a loop carries them."""
    given = walk.changed.get(inst.id, walk.program.shardings.get(inst.id))
    if given is None or not all(o.shape.is_array for o in inst.operands):
        return
    for operand, leaf in zip(inst.operands, given.normalize_tuple(len(inst.operands)).leaves, strict=False):
        lies, wanted = _lies(walk, operand), as_compared(leaf)
        if lies is not wanted and (operand.id in walk.changed or inst.id in walk.changed):
            yield operand, lies, wanted


def _moves_out_of_tuple(walk: BatchWalk, element: Instruction) -> Iterator[_Move]:
    """An element that is given back otherwise than a tuple that changed holds it: what a call gives back."""
    held = walk.changed.get(element.operands[0].id)
    if held is None or not element.shape.is_array:
        return
    lies, wanted = as_compared(held.leaves[element.tuple_index]), _lies(walk, element)
    if lies is not wanted:
        yield element, lies, wanted


def _moves_out(walk: BatchWalk, inst: Instruction, signature: Signature) -> Iterator[_Move]:
    """Sums over the batch, or else what is read of it as it was."""
    for operand, dims in zip(inst.operands, signature.operands, strict=True):
        if operand.id not in walk.changed:
            continue
        made = sum_of_parts(walk.changed[operand.id], dims, signature.results[0], len(signature.factors))
        if is_partial(made):
            yield inst, made, _lies(walk, inst)
            return
        yield operand, walk.changed[operand.id], as_compared(walk.program.shardings.get(operand.id))


def _lies(walk: BatchWalk, inst: Instruction) -> HloSharding:
    """Of an annotation what it is a copy of: the nearer one is read."""
    while inst.opcode == "copy" and inst.operands[0] in walk.seen:
        [inst] = inst.operands
    return as_compared(walk.changed.get(inst.id, walk.program.shardings.get(inst.id)))
