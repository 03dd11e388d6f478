"""What a loop communicates anew in every trip though no trip changes it, it communicates once, before its first trip.

Floor: partitioner.  Reads and changes a finished per-device program; knows no shardings, only who is computed from
whom.  A collective on values that the body hands on as they came moves out of body or condition with all it is computed
from, and its result is carried; what only served to compute it is carried no longer.  Results that wait in front of a
loop take room: those that save most for it move, as many as the program's peak memory bears, and small ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hlosharding.cost import collective_time, peak_memory
from hlosharding.ir import (
    COLLECTIVES,
    CONTROL_FLOW,
    Computation,
    Instruction,
    Module,
    rewrite,
    trip_count,
    while_parts,
)
from hlosharding.partitioner.passes.loop_carries import (
    at_first,
    drop_idle,
    is_handed_on,
    is_plain,
    path_of,
    place_of,
    set_carry,
    taken,
)
from hlosharding.partitioner.prices import SMALL, Cost, Prices
from hlosharding.spmd import Collective, PartialSums, collectives

Copies = dict[Instruction, Instruction]
"""What was in a loop, and what computes it before the loop."""

# What saved communication may cost in peak memory.
_MORE = 1.05
# They run other computations, or somebody put them where they are.
_STAYING = CONTROL_FLOW | {"parameter", "custom-call", "fusion", "opt-barrier", "after-all", "add-dependency"}


class _Invariant(NamedTuple):
    made: Instruction
    """In a loop's body or condition; the same in every trip."""
    collectives: tuple[Instruction, ...]
    """What it is computed by, among others."""


def hoist_invariants(module: Module, prices: Prices, partial_sums: PartialSums) -> None:
    """Move collectives that all trips of a loop have in common before it, inner loops first.

    `module` has dense ids, before and after.  A loop of unknown length is taken to make more than one trip; one that
    makes none then computes in vain what nobody reads.
    """
    most = None
    for loop in module.of_opcodes("while"):
        trips, is_exact = trip_count(loop)
        found = list(_invariants(loop)) if trips > 1 or not is_exact else []
        if not found:
            continue
        if most is None:
            peak = peak_memory(module).bytes
            # Small ones move at any rate: a table that a loop searches is gathered once, though in a small program it
            # may be more than a twentieth of the peak.
            most = max(_MORE * peak, peak + SMALL)
        made = [f.made for f in _dearest_first(module, found, prices)]
        count = _fitting(module, loop, made, most)
        if count:
            _follow(partial_sums, _hoist(module, loop, made[:count]))


# What is the same in every trip


def _invariants(loop: Instruction) -> Iterator[_Invariant]:
    """What is worth computing before the loop: what the last of a chain of collectives makes."""
    if not is_plain(loop):
        return
    for part in loop.called:
        if not any(i.opcode in COLLECTIVES for i in part.instructions):
            continue
        same, taken = _same_in_all_trips(part, while_parts(loop).body), set[Instruction]()
        for inst in reversed(part.instructions):
            # Whoever reads it moves already, and takes it along.
            if inst.opcode not in COLLECTIVES or inst not in same or taken.issuperset(inst.users):
                continue
            made = _last_of(inst, same)
            needed = _needed(made)
            taken.update(needed)
            if made.shape.is_array and not made.is_root:
                yield _Invariant(made, tuple(i for i in needed if i.opcode in COLLECTIVES))


def _same_in_all_trips(part: Computation, body: Computation) -> set[Instruction]:
    """Instructions of a loop's `part` computed from nothing but what the body hands on."""
    [parameter] = part.parameters
    same: set[Instruction] = set()
    for inst in part.instructions:
        path = path_of(inst, parameter)
        if path is not None:
            if inst.shape.is_array and is_handed_on(body, path):
                same.add(inst)
        elif _may_move(inst) and same.issuperset(inst.operands):
            same.add(inst)
    return same


def _may_move(inst: Instruction) -> bool:
    return inst.opcode not in _STAYING and not inst.has_side_effect and not inst.control_predecessors


def _last_of(inst: Instruction, same: set[Instruction]) -> Instruction:
    """Past ops that are all a collective's result is for, and that make it no larger."""
    while len(inst.users) == 1:
        [user] = inst.users
        if user not in same or user.opcode in COLLECTIVES or user.shape.byte_size > inst.shape.byte_size:
            break
        inst = user
    return inst


def _needed(made: Instruction) -> list[Instruction]:
    """All that is computed for it, itself last; what the loop carries is not."""
    [parameter] = made.computation.parameters
    order: dict[Instruction, None] = {}
    stack = [made]
    while stack:
        waiting = [o for o in stack[-1].operands if o not in order and path_of(o, parameter) is None]
        stack.extend(waiting)
        if not waiting:
            order[stack.pop()] = None
    return list(order)


# Which of it moves


def _dearest_first(module: Module, found: Sequence[_Invariant], prices: Prices) -> list[_Invariant]:
    """By what a trip pays for a byte of it, as the objective has it."""
    known = {c.name: c for c in collectives(module)}

    def worth(invariant: _Invariant) -> float:
        paid = sum(_worth(known[i.name], prices) for i in invariant.collectives if i.name in known)
        return paid / max(1, invariant.made.shape.byte_size)

    return sorted(found, key=worth, reverse=True)


def _worth(collective: Collective, prices: Prices) -> float:
    groups = collective.pairs if collective.groups is None else collective.groups
    seconds = collective_time(collective.kind, collective.nbytes, collective.group_size, groups, prices.machine)
    return prices.objective_value(Cost(collective.bytes_per_execution, seconds))


def _fitting(module: Module, loop: Instruction, made: Sequence[Instruction], most: float) -> int:
    """How many of them, the first ones, may wait before the loop within `most` bytes of peak memory."""

    def fits(count: int) -> bool:
        trial = module.clone()
        _hoist(trial, trial.instructions[loop.id], [trial.instructions[i.id] for i in made[:count]])
        return peak_memory(trial).bytes <= most

    few, many = 0, len(made)
    while few < many:
        # All of them first: where they fit, one trial is enough, which clones the program and walks it for its peak.
        count = many if few == 0 and many == len(made) else (few + many + 1) // 2
        if fits(count):
            few = count
        else:
            many = count - 1
    return few


# How it moves


def _hoist(module: Module, loop: Instruction, made: Sequence[Instruction]) -> Copies:
    """Compute `made` before the loop and carry it.  Ids are dense again: costs walk the module's list."""
    needed = list(dict.fromkeys(i for inst in made for i in _needed(inst)))
    given, copies = _given_to(module, loop, needed), Copies()
    read = {path[0] for i in given if (path := path_of(i, i.computation.parameters[0]))}
    for inst in needed:
        operands = [copies.get(o) or given[o] for o in inst.operands]
        copies[inst] = rewrite.copy(inst, place_of(loop), operands, to=loop.computation)
    _carry(module, loop, [(i, copies[i]) for i in made])
    # Users first: what only served what has gone has no user left when it is looked at.
    for inst, copy in reversed(copies.items()):
        if inst.users:
            _set_apart(module, copy)
        else:
            rewrite.remove(inst)
    drop_idle(module, loop, read)
    module.renumber()
    return copies


def _set_apart(module: Module, copy: Instruction) -> None:
    """From the op that it is a copy of, and that stays."""
    rewrite.rename(copy, rewrite.fresh_name(module, copy.name))
    # Both stay, and a channel is one collective's alone.
    if copy.opcode in COLLECTIVES and copy.channel_id:
        channels = (i.channel_id for c in module.computations for i in c.instructions if i.opcode in COLLECTIVES)
        rewrite.set_attributes(copy, channel_id=max(channels) + 1)


def _given_to(module: Module, loop: Instruction, needed: Sequence[Instruction]) -> Copies:
    """Of the elements of the carry that are read for `needed`: what they are before the loop."""
    found: Copies = {}
    for inst in dict.fromkeys(o for i in needed for o in i.operands):
        path = path_of(inst, inst.computation.parameters[0])
        if path is not None:
            found[inst] = at_first(module, loop, path)
    return found


def _carry(module: Module, loop: Instruction, pairs: Sequence[tuple[Instruction, Instruction]]) -> None:
    """More elements of the carry: for what stands in the loop, what it is from now on."""
    old = len(loop.shape.tuple_shapes)
    firsts = [at_first(module, loop, (k,)) for k in range(old)] + [first for _, first in pairs]
    set_carry(module, loop, firsts)
    body = while_parts(loop).body
    for index, (inst, _) in enumerate(pairs, start=old):
        for part in dict.fromkeys((body, inst.computation)):
            [parameter] = part.parameters
            element = taken(module, parameter, index, part, part.instructions.index(parameter) + 1)
            if part is inst.computation:
                rewrite.replace_uses(inst, element)
            if part is body:
                rewrite.set_operands(body.root, (*body.root.operands, element))


def _follow(partial_sums: PartialSums, copies: Copies) -> None:
    """What stands before the loop owes and pays what it did inside."""
    for before, after in copies.items():
        for noted in (partial_sums.values, partial_sums.readers):
            if before in noted:
                noted.add(after)
