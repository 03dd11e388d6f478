"""A program with some instructions of its entry left out, for who looks at a part in place of the whole.

Floor: ir.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from hlosharding.ir.graph import Computation, Instruction
from hlosharding.ir.module import Module
from hlosharding.ir.shape import Shape


def excerpt(
    module: Module,
    operands: Mapping[Instruction, Sequence[Instruction]],
    users: Callable[[Instruction], Iterable[Instruction]],
    root_shape: Shape,
) -> tuple[Module, dict[Instruction, Instruction]]:
    """`module` with the instructions of the entry that `operands` names, and what each of them became.

    `operands` and `users` say, in terms of the whole program, what each uses and is used by.  Ids, names and protos
    stay as they are, so that side tables fit; the computations that they call are the whole program's own.
    """
    out = Module(module.name, num_partitions=module.num_partitions)
    out.mesh, out.weights, out.signature, out.proto = module.mesh, module.weights, module.signature, module.proto
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
    entry.root.shape = root_shape
    called = _called(entry)
    out.computations = [
        entry if c is module.entry else c for c in module.computations if c in called or c is module.entry
    ]
    out.set_entry(entry)
    out.instructions = [i for c in out.computations for i in c.instructions]
    return out, new


def _called(entry: Computation) -> set[Computation]:
    """What its instructions call, and what those call."""
    found, waiting = set[Computation](), [entry]
    while waiting:
        made = {c for i in waiting.pop().instructions if i.called for c in i.called} - found
        found |= made
        waiting += made
    return found


def _again(inst: Instruction, computation: Computation) -> Instruction:
    made = Instruction.__new__(Instruction)
    # All that was decoded of it comes along.
    made.__dict__.update(inst.__dict__)
    made.computation = computation
    return made
