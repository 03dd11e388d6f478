"""The order in which XLA's compiler decided to run a module's instructions, if it wrote it down.

Floor: cost.  A schedule that no longer fits its computation (a pass changed it) is not used.
"""

from __future__ import annotations

from hlosharding.ir import Computation, Instruction, Module


def schedules(module: Module) -> dict[Computation, list[Instruction]]:
    """Instructions in scheduled order, of the computations that have a schedule which still fits them."""
    if not module.proto.HasField("schedule"):
        return {}
    sequences = {entry.key: entry.value.instruction_ids for entry in module.proto.schedule.sequences}
    found: dict[Computation, list[Instruction]] = {}
    for computation in module.computations:
        by_id = {i.proto.id: i for i in computation.instructions}
        order = [by_id.get(number) for number in sequences.get(computation.proto.id, ())]
        steps = [i for i in order if i is not None]
        if len(steps) == len(order) == len(computation.instructions):
            found[computation] = steps
    return found
