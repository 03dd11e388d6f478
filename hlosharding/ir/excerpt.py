"""A program with some instructions of its entry left out, for who looks at a part in place of the whole.

Floor: ir.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hlosharding import wire
from hlosharding.ir.graph import Computation, Instruction, callees_first
from hlosharding.ir.module import Module
from hlosharding.ir.shape import Shape


def excerpt(
    module: Module,
    operands: Mapping[Instruction, Sequence[Instruction]],
    users: Callable[[Instruction], Iterable[Instruction]],
    results: Sequence[int],
) -> tuple[Module, dict[Instruction, Instruction]]:
    """`module` with the instructions of the entry that `operands` names, and what each of them became.

    `operands` and `users` say, in terms of the whole program, what each uses and is used by; `results` which elements
    of the root tuple are left.  Ids, names and protos stay as they are, so that side tables fit, but for the numbers of
    parameters; the computations that they call are the whole program's own.
    """
    out = Module(module.name, num_partitions=module.num_partitions)
    out.mesh, out.weights, out.signature = module.mesh, module.weights, module.signature
    out.open_outputs, out.open_parameters = module.open_outputs, module.open_parameters
    out.callbacks, out.custom_calls = module.callbacks, module.custom_calls
    out.partitionings, out.shardings = module.partitionings, module.shardings
    entry = Computation(module.entry.name, out, module.entry.proto)
    new = {inst: _again(inst, entry) for inst in operands}
    of = new.__getitem__
    for inst, copy in new.items():
        copy.operands, copy.users = tuple(map(of, operands[inst])), list(map(of, users(inst)))
    entry.instructions = list(new.values())
    entry.set_root(new[module.entry.root])
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
