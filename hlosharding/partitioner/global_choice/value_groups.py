"""Values that ops on one element after another make of each other: they lie alike, so one choice serves all of them.

Floor: partitioner.  Looks at instructions and shardings alone.

    h = dot(x, w1)                  a group of h, g and m: all three f32[512,4096], split alike;
    g = tanh(h); m = g * h          made by the dot before them, read by the dot after them:
    y = dot(m, w2)                  the two ops at its borders
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from hlosharding.ir import PACKS, REARRANGES, Computation, Instruction
from hlosharding.partitioner.factors import FAST_ELEMENTWISE
from hlosharding.partitioner.global_choice.op_prices import MADE_AT_NO_COST
from hlosharding.partitioner.overrides import BINDING
from hlosharding.sharding import HloSharding

_FIXED = BINDING | PACKS | REARRANGES - {"broadcast", "gather", "transpose"}
"""Ops whose values keep their sharding, and that (but for reshapes) are given others' as they are."""


@dataclass(eq=False, slots=True)
class Group:
    """Values of one shape and one sharding, in program order."""

    sharding: HloSharding
    members: list[Instruction] = field(default_factory=list[Instruction])
    borders: list[Instruction] = field(default_factory=list[Instruction])
    """Ops that make members of other values, or read them and make others."""
    asked: list[tuple[Instruction, HloSharding]] = field(default_factory=list[tuple[Instruction, HloSharding]])
    """Members, and slices of members, that are wanted in a sharding of their own: of a result, of what the user
    annotated, of a loop."""
    values: set[Instruction] = field(default_factory=set[Instruction])
    """The members, to be asked for."""
    is_copy: bool = False
    """Is it a copy of a parameter that all its readers share, wherever it lies?"""


def groups_of(computation: Computation, shardings: Mapping[int, HloSharding], bound: frozenset[str]) -> list[Group]:
    """The groups that nobody binds; `bound` names the values that the user annotated."""
    of = _joined(computation, shardings, bound)
    # The entry may have parameters to copy all the same.
    if not of and not computation.is_entry:
        return []
    for inst in computation.instructions:
        if not inst.users and not inst.is_root and not inst.has_side_effect:  # nobody needs what it would move
            continue
        mine = of.get(inst)
        if mine is not None and _is_inner(inst, mine, of):
            continue
        if inst.opcode in _FIXED and inst.opcode != "reshape":
            for operand, place in _wanted_by(inst, shardings):
                if operand in of:
                    group = of[operand]
                    # A slice lies as what it is cut from, and is moved itself, were that elsewhere.
                    wanted = inst if inst.opcode == "slice" and place is not None else operand
                    group.asked.append((wanted, group.sharding if place is None else place))
            continue
        for group in dict.fromkeys([of[v] for v in (inst, *inst.operands) if v in of]):
            group.borders.append(inst)
    found = [*dict.fromkeys(of.values()), *_copies(computation, shardings)]
    for group in found:
        group.values.update(group.members)
    return found


def _copies(computation: Computation, shardings: Mapping[int, HloSharding]) -> Iterator[Group]:
    """Of each parameter of the program that several ops compute with."""
    for inst in computation.parameters if computation.is_entry else ():
        given = shardings.get(inst.id)
        if given is None or given.kind != "tiled" or given.is_manual_subgroup() or len(inst.users) < 2:
            continue
        readers = [u for u in inst.users if u.opcode not in _FIXED and (u.users or u.is_root)]
        if len(readers) > 1:
            yield Group(given, [inst], readers, is_copy=True)


def _joined(
    computation: Computation, shardings: Mapping[int, HloSharding], bound: frozenset[str]
) -> dict[Instruction, Group]:
    """The group of every value that has one."""
    of: dict[Instruction, Group] = {}
    for inst in computation.instructions:
        given = shardings.get(inst.id)
        if given is None or not inst.shape.is_array or not inst.shape.rank or inst.is_root:
            continue
        if inst.opcode in _FIXED or inst.opcode in MADE_AT_NO_COST or inst.name in bound:
            continue
        if given.kind not in ("tiled", "replicated") or given.is_manual_subgroup():
            continue
        group = Group(given)
        if inst.opcode in FAST_ELEMENTWISE:
            joined = {
                of[o] for o in inst.operands if o in of and of[o].sharding is given and o.shape.dims == inst.shape.dims
            }
            group = _merged(joined, of) or group
        group.members.append(inst)
        of[inst] = group
    return of


def _merged(groups: set[Group], of: dict[Instruction, Group]) -> Group | None:
    """All in the largest of them."""
    if not groups:
        return None
    # A set has no order that lasts from run to run: of groups of one size the first in the program is kept.
    kept, *others = sorted(groups, key=lambda g: (-len(g.members), g.members[0].id))
    for other in others:
        kept.members += other.members
        of.update(dict.fromkeys(other.members, kept))
    return kept


def _is_inner(inst: Instruction, mine: Group, of: Mapping[Instruction, Group]) -> bool:
    if inst.opcode not in FAST_ELEMENTWISE:
        return False
    return all(of.get(o) is mine or o.opcode in MADE_AT_NO_COST for o in inst.operands)


def _wanted_by(
    op: Instruction, shardings: Mapping[int, HloSharding]
) -> Iterable[tuple[Instruction, HloSharding | None]]:
    """The operands of an op that binds them, each once in every sharding that it wants; None: as it is."""
    given = shardings.get(op.id)
    if op.opcode == "tuple" and given is not None:
        leaves = iter(given.normalize_tuple(len(op.shape.leaves)).leaves)
        first = [list(islice(leaves, len(o.shape.leaves) if o.shape.is_tuple else 1))[:1] for o in op.operands]
        return [(o, place) for o, places in zip(op.operands, first, strict=True) for place in places]
    if op.opcode in ("copy", "slice") and given is not None:
        return [(op.operands[0], given)]
    return [(o, None) for o in op.operands]
