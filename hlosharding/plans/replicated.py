"""Values of a partitioned program that every device holds whole.

Floor: plans.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlosharding.compiler import Partitioned
from hlosharding.ir import CONTROL_FLOW, DEVICE_NUMBERS, GENERATORS, PACKS, Instruction
from hlosharding.propagation import Propagation

REPLICATED_OVER = 2**20
"""Bytes over which a replicated value counts, where nobody says."""

_HOLD_NOTHING = PACKS | CONTROL_FLOW | {"bitcast", "opt-barrier"}
_MADE_IN_PLACE = GENERATORS | DEVICE_NUMBERS | {"broadcast"}


@dataclass(frozen=True, slots=True)
class ReplicatedValue:
    """A value of which no dim is split."""

    instruction: Instruction
    """Of the whole program."""

    @property
    def name(self) -> str:
        """An argument's path, or the opcode: instructions are numbered anew when a program changes."""
        inst = self.instruction
        return inst.path if inst.opcode == "parameter" else inst.opcode

    @property
    def nbytes(self) -> int:
        """On each device."""
        return self.instruction.shape.byte_size

    @property
    def location(self) -> str:
        return self.instruction.location


def replicated_values(partitioned: Partitioned, *, over: int = 0) -> list[ReplicatedValue]:
    """Values that devices hold whole, of more than `over` bytes, in program order.

    What is made in place (constants, broadcasts) and what only holds values (tuples, loops) is left out.

    >>> import hlosharding as hs
    >>> text = '''HloModule m
    ... ENTRY e {
    ...   x = f32[8,4] parameter(0), sharding={devices=[2,1]<=[2]}
    ...   w = f32[4,8] parameter(1)
    ...   ROOT y = f32[8,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    ... }'''
    >>> made = hs.partition(hs.propagate(hs.load(text), to_outputs=True))
    >>> [(value.name, value.nbytes) for value in replicated_values(made)]
    [('w', 128)]
    """
    propagation = partitioned.propagation
    if propagation is None or partitioned.num_partitions < 2:
        return []
    chosen = {one.instruction.name: one.chosen for one in partitioned.sharding_overrides}
    found: list[ReplicatedValue] = []
    for inst in propagation.module.instructions:
        sharding = chosen.get(inst.name) or propagation.shardings.get(inst.name)
        is_whole = (
            sharding is None or sharding.is_replicated() or (sharding.kind == "tiled" and sharding.num_tiles == 1)
        )
        if is_whole and is_held(inst) and inst.shape.byte_size > over:
            found.append(ReplicatedValue(inst))
    return found


def replicated_by_accident(partitioned: Partitioned, *, over: int = REPLICATED_OVER) -> list[ReplicatedValue]:
    """Those that no annotation asks to be whole, of more than `over` bytes (1 MiB), in program order.

    An argument is asked to be whole by an annotation of its own; another value also by one that reached it.

    >>> import hlosharding as hs
    >>> text = '''HloModule m
    ... ENTRY e {
    ...   x = f32[8,4] parameter(0), sharding={devices=[2,1]<=[2]}
    ...   v = f32[4,4] parameter(1), sharding={replicated}
    ...   w = f32[4,4] parameter(2)
    ...   y = f32[8,4] dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    ...   ROOT z = f32[8,4] dot(y, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    ... }'''
    >>> made = hs.partition(hs.propagate(hs.load(text), to_outputs=True))
    >>> [value.name for value in hs.replicated_by_accident(made, over=0)]
    ['w']
    """
    found, propagation = replicated_values(partitioned, over=over), partitioned.propagation
    return [value for value in found if propagation is not None and not _is_asked(propagation, value.instruction)]


def _is_asked(propagation: Propagation, inst: Instruction) -> bool:
    if inst.opcode == "parameter" or inst.name in propagation.annotated:
        return inst.name in propagation.annotated
    return propagation.explain(inst.name).links[-1].is_given


def is_held(inst: Instruction) -> bool:
    """Is it an array that a device keeps, and does not make where it is read?"""
    is_inner_argument = inst.opcode == "parameter" and not inst.computation.is_entry
    return inst.shape.is_array and inst.opcode not in _HOLD_NOTHING | _MADE_IN_PLACE and not is_inner_argument
