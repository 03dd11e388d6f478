"""Some instructions of a module's entry as a module of their own, with copies of what they call.

Floor: ir.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hlosharding import wire
from hlosharding.ir.builder import Builder, ComputationBuilder
from hlosharding.ir.graph import Computation, Instruction, callees_first
from hlosharding.ir.module import Module
from hlosharding.ir.shape import Shape
from hlosharding.once import remembered


def subprogram(
    module: Module,
    name: str,
    instructions: Iterable[Instruction],
    reads: Sequence[Instruction],
    makes: Sequence[Instruction],
) -> Module:
    """A module with a parameter for each of `reads` whose root is the tuple of `makes`.

    `instructions`: in program order, reading nothing but each other and `reads`.  Names, attributes and source lines
    stay; computations that they call come along.

    >>> from hlosharding.ir import Shape
    >>> main = (builder := Builder("m")).computation("main")
    >>> x = main.parameter(0, Shape.array("f32", (4,)))
    >>> y = main.op("negate", (x,))
    >>> _ = main.op("exponential", (y,))
    >>> part = subprogram(builder.finish(main), "part", [y], [x], [y])
    >>> [inst.opcode for inst in part.entry.instructions]
    ['parameter', 'negate', 'tuple']
    """
    builder = Builder(name, like=module)
    builder.module.signature = None
    callees = Callees(builder)
    chosen = list(instructions)
    called = {inst: callees.of(inst) for inst in chosen}
    main = builder.computation(module.entry.name)
    made = {inst: main.parameter(number, inst.shape, name=inst.name) for number, inst in enumerate(reads)}
    for inst in chosen:
        made[inst] = same_op(main, inst, [made[operand] for operand in inst.operands], called[inst])
    main.root(main.op("tuple", [made[inst] for inst in makes]))
    return builder.finish(main)


# ---- copies of what is called

CopyOp = Callable[[ComputationBuilder, Instruction, Sequence[Instruction], Sequence[Computation]], Instruction]
"""(into, the op, its new operands, what it calls there) to the new op."""


def same_op(
    into: ComputationBuilder, inst: Instruction, operands: Sequence[Instruction], called: Sequence[Computation]
) -> Instruction:
    """The same op on other operands."""
    return into.add_like(inst, inst.opcode, inst.shape, operands, called, inst.name)


class Callees:
    """Each computation is copied once, before the one that calls it.

    >>> import hlosharding as hs
    >>> module = hs.trace(lambda x: x.sum())(__import__("numpy").ones(4, "f"))
    >>> [reduce] = module.of_opcodes("reduce")
    >>> [len(made.instructions) for made in Callees(Builder("other")).of(reduce)]
    [3]
    """

    def __init__(self, builder: Builder, copy: CopyOp = same_op, *, name: str = "") -> None:
        self._builder, self._copy, self._name = builder, copy, name

    def of(self, inst: Instruction) -> list[Computation]:
        """What an op calls."""
        return [self.add_copy(computation) for computation in inst.called]

    @remembered
    def add_copy(self, computation: Computation) -> Computation:
        """The copy, under the name that all have, or its own."""
        called = {inst: self.of(inst) for inst in computation.instructions}
        into = self._builder.computation(self._name or computation.name)
        new: dict[Instruction, Instruction] = {}
        for inst in computation.instructions:
            new[inst] = self._copy(into, inst, [new[operand] for operand in inst.operands], called[inst])
        into.root(new[computation.root])
        return into.computation


# ---- a program with some instructions of its entry left out, for who looks at a part in place of the whole


def excerpt(
    module: Module,
    operands: Mapping[Instruction, Sequence[Instruction]],
    users: Callable[[Instruction], Iterable[Instruction]],
    results: Sequence[int],
) -> tuple[Module, dict[Instruction, Instruction]]:
    """`module` with the instructions of the entry that `operands` names, and what each of them became.

    `operands` and `users` say, in terms of the whole program, what each uses and is used by; `results` which elements
    of the root tuple are left.  Ids, names and protos stay as they are, so that side tables fit, but for the numbers of
    parameters; the computations that they call are the whole program's own.  A root that is no tuple stays as it is.
    """
    out = Module(module.name, num_partitions=module.num_partitions)
    out.mesh, out.weights, out.signature = module.mesh, module.weights, module.signature
    out.open_outputs, out.open_parameters = module.open_outputs, module.open_parameters
    out.callbacks, out.custom_calls, out.elided = module.callbacks, module.custom_calls, module.elided
    out.partitionings, out.shardings = module.partitionings, module.shardings
    entry = Computation(module.entry.name, out, module.entry.proto)
    new = {inst: _again(inst, entry) for inst in operands}
    of = new.__getitem__
    for inst, copy in new.items():
        copy.operands, copy.users = tuple(map(of, operands[inst])), list(map(of, users(inst)))
    entry.instructions = list(new.values())
    entry.set_root(new[module.entry.root])
    if module.entry.root.opcode == "tuple":
        entry.root.shape = Shape.tuple(tuple(module.entry.root.shape.tuple_shapes[n] for n in results))
    out.proto = _header(module, _renumber(entry), results)
    kept = {module.entry, *callees_first([entry])}
    out.computations = [entry if c is module.entry else c for c in module.computations if c in kept]
    out.set_entry(entry)
    out.instructions = [i for c in out.computations for i in c.instructions]
    return out, new


def _renumber(entry: Computation) -> list[int]:
    """Parameters from 0 on; gives the numbers that they had."""
    parameters = sorted((i for i in entry.instructions if i.opcode == "parameter"), key=lambda i: i.parameter_number)
    had = [parameter.parameter_number for parameter in parameters]
    for number, parameter in enumerate(parameters):
        if had[number] == number:
            continue
        own = wire.HloInstructionProto()
        own.CopyFrom(parameter.proto)
        own.parameter_number = number
        parameter.proto = own
        parameter.forget()
    return had


def _header(module: Module, parameters: Sequence[int], results: Sequence[int]) -> Any:
    """What the module says of itself, of the parameters and results that are left."""
    given, out = module.proto, wire.HloModuleProto()
    out.stack_frame_index.CopyFrom(given.stack_frame_index)
    number_of, place_of = ({old: new for new, old in enumerate(kept)} for kept in (parameters, results))
    donations = out.buffer_donor.entries, out.input_output_alias.entries
    for made, entries in zip(donations, (given.buffer_donor.entries, given.input_output_alias.entries), strict=True):
        for entry in entries:
            place = list(getattr(entry, "output_shape_index", ()))
            if entry.parameter_number in number_of and (not place or place[0] in place_of):
                copy = made.add()
                copy.CopyFrom(entry)
                copy.parameter_number = number_of[entry.parameter_number]
                if place:
                    copy.output_shape_index[0] = place_of[place[0]]
    return out


def _again(inst: Instruction, computation: Computation) -> Instruction:
    made = Instruction.__new__(Instruction)
    # All that was decoded of it comes along.
    made.__dict__.update(inst.__dict__)
    made.computation = computation
    return made
