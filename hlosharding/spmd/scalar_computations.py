"""Computations on scalars: reducers that collectives need, and those of the user's ops, taken over; each made once.

Floor: spmd.  Equal computations are one, whatever their instructions are called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hlosharding import wire
from hlosharding.ir import REDUCER_KINDS, Builder, Computation, Instruction, Shape


class ScalarComputations:
    """The computations on scalars of one program."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._reducers: dict[tuple[str, str], Computation] = {}
        self._copies: dict[Computation, Computation] = {}
        self._by_meaning: dict[tuple[Any, ...], Computation] = {}
        self._acts: dict[Computation, bool] = {}

    def reducer(self, kind: str, element_type: str) -> Computation:
        """The scalar computation `kind(a, b)`, made once per element type."""
        key = (kind, element_type)
        if key not in self._reducers:
            body = self._builder.computation(f"{kind}_{element_type}")
            shape = Shape.array(element_type)
            a, b = body.parameter(0, shape, name="a"), body.parameter(1, shape, name="b")
            body.root(body.add(kind, shape, (a, b)))
            self._reducers[key] = body.computation
        return self._reducers[key]

    def copy(self, source: Computation) -> Computation:
        """A computation of scalars (a reducer, a comparator), taken over as it is; equal ones become one."""
        if source not in self._copies:
            called = {c: self.copy(c) for i in source.instructions for c in i.called}
            meaning = _meaning(source, called)
            if meaning not in self._by_meaning:
                self._by_meaning[meaning] = self._copied(source, called)
            self._copies[source] = self._by_meaning[meaning]
        return self._copies[source]

    def acts(self, copied: Computation) -> bool:
        """Has any op of a computation that `copy` made a side effect?"""
        known = self._acts.get(copied)
        if known is None:
            known = self._acts[copied] = any(i.has_side_effect for i in copied.instructions)
        return known

    def _copied(self, source: Computation, called: Mapping[Computation, Computation]) -> Computation:
        body = self._builder.computation(source.name)
        made: dict[Instruction, Instruction] = {}
        for i in source.instructions:
            operands = [made[o] for o in i.operands]
            if i.opcode == "copy":  # what is left of an annotation, which means nothing here
                made[i] = operands[0]
                continue
            made[i] = body.add(i.opcode, i.shape, operands, like=i, called=[called[c] for c in i.called])
        body.root(made[source.root])
        return body.computation


def _meaning(source: Computation, called: Mapping[Computation, Computation]) -> tuple[Any, ...]:
    """All that a computation computes: names, ids and metadata left out."""
    number = {inst: n for n, inst in enumerate(source.instructions)}
    return tuple(_token(inst, number, called) for inst in source.instructions)


def _token(inst: Instruction, number: Mapping[Instruction, int], called: Mapping[Computation, Computation]) -> Any:
    if inst.opcode == "parameter":
        return inst.opcode, inst.shape, inst.parameter_number, inst.is_root
    operands = tuple([number[o] for o in inst.operands])
    if inst.opcode in REDUCER_KINDS:
        return inst.opcode, inst.shape, operands, inst.is_root
    callees = tuple(called[c] for c in inst.called)
    return attributes_of(inst), inst.opcode, operands, callees, inst.is_root


def attributes_of(inst: Instruction) -> bytes:
    """What an instruction's proto says of its result, but for its operands and callees: a key for equal ops."""
    proto = wire.HloInstructionProto()
    proto.CopyFrom(inst.proto)
    for field_name in ("name", "id", "metadata", "operand_ids", "called_computation_ids", "sharding"):
        proto.ClearField(field_name)
    return proto.SerializeToString(deterministic=True)
