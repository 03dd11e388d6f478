"""Instructions as a module of their own: what raw ops are lowered from and the reference executor compiles.

Floor: executor.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlosharding import wire
from hlosharding.ir import Builder, Computation, ComputationBuilder, Instruction, Module, Shape


def extract(instructions: Sequence[Instruction], inputs: Sequence[Instruction], outputs: Sequence[Instruction]) -> Module:
    """A module with one parameter per value of `inputs` whose root is the tuple of `outputs`.

    `instructions` come in order and use nothing but each other and the inputs; called computations are copied.
    """
    builder = Builder("extract")
    callees = _Callees(builder)
    for inst in instructions:
        callees.of(inst)
    main = builder.computation("main")
    new = {inst: main.parameter(number, inst.shape) for number, inst in enumerate(inputs)}
    for inst in instructions:
        new[inst] = _copy(main, inst, [new[o] for o in inst.operands], callees)
    main.root(main.add("tuple", Shape.tuple(tuple(o.shape for o in outputs)), [new[o] for o in outputs]))
    return builder.finish(main)


def op_module(inst: Instruction) -> Module:
    """One op alone: a parameter for each leaf of each operand, in order; the root is the op."""
    builder = Builder("op")
    callees = _Callees(builder)
    callees.of(inst)
    main = builder.computation("main")
    counter = iter(range(sum(len(o.shape.leaves) for o in inst.operands)))
    operands = [_parameters(main, o.shape, counter) for o in inst.operands]
    main.root(_copy(main, inst, operands, callees))
    return builder.finish(main)


def _parameters(main: ComputationBuilder, shape: Shape, counter: object) -> Instruction:
    if not shape.is_tuple:
        return main.parameter(next(counter), shape)  # type: ignore[call-overload]
    return main.add("tuple", shape, [_parameters(main, part, counter) for part in shape.tuple_shapes])


def _copy(
    into: ComputationBuilder, inst: Instruction, operands: Sequence[Instruction], callees: _Callees
) -> Instruction:
    copy = into.add(inst.opcode, inst.shape, operands, like=inst, called=callees.of(inst))
    proto = wire.HloInstructionProto()
    proto.CopyFrom(copy.proto)
    # The frame table stays behind.
    proto.ClearField("metadata")
    copy.proto = proto
    return copy


class _Callees:
    """Copies of called computations, each made once, before the computation that calls them."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._done: dict[Computation, Computation] = {}

    def of(self, inst: Instruction) -> list[Computation]:
        return [self._copied(c) for c in inst.called]

    def _copied(self, computation: Computation) -> Computation:
        if computation not in self._done:
            for inst in computation.instructions:
                self.of(inst)
            into = self._builder.computation(computation.name)
            new: dict[Instruction, Instruction] = {}
            for inst in computation.instructions:
                new[inst] = _copy(into, inst, [new[o] for o in inst.operands], self)
            into.root(new[computation.root])
            self._done[computation] = into.computation
        return self._done[computation]
