"""What steps take as a program: written as local HLO between a producer and a reader, and priced op by op.

Floor: reshard.  Dearer than the steps' own prices, and truer: what comes before a collective must be
written to memory, what comes behind it disappears into its reader.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlosharding.cost import Machine, op_time, price_uncombined
from hlosharding.ir import Builder, Shape
from hlosharding.reshard.steps import AllToAll, DynamicSlice, Pad, Pieces, Slice, Step
from hlosharding.spmd import Emitter, Program

_NEIGHBOUR = "not"
"""An elementwise op that no step writes."""


def emitted_seconds(steps: Sequence[Step], local: Shape, num_devices: int, machine: Machine) -> float:
    """Predicted seconds of steps that start from local arrays `local`; the neighbours' own time does not count.

    >>> from hlosharding.cost import machines
    >>> from hlosharding.reshard.steps import Permute
    >>> h100 = machines.h100(2)
    >>> step = Permute(((0, 1), (1, 0)))
    >>> emitted_seconds([step], Shape.parse("f32[256]"), 2, h100) == step.seconds(Shape.parse("f32[256]"), h100)
    True
    """
    program = Program(Builder("reshard", num_partitions=num_devices), num_devices)
    main = program.builder.computation("main")
    emitter = Emitter(program, main)
    # The price knows widths, not meanings: integers stand for all types, for which the neighbours have an op.
    shape = local.with_type(_INTEGERS[local.byte_size // max(1, local.size)]) if local.size else local
    x = main.add(_NEIGHBOUR, shape, (main.parameter(0, shape),))
    for step in steps:
        x = step.emit(emitter, x)
    main.root(main.add(_NEIGHBOUR, x.shape, (x,)))
    # One step after the other: what XLA joins depends on what else the program does.
    rows = price_uncombined(program.builder.finish(main), machine)
    return sum(row.time_s for row in rows if row.instruction.opcode != _NEIGHBOUR)


def estimated_seconds(steps: Sequence[Step], local: Shape, machine: Machine) -> float:
    """About `emitted_seconds`, without a program: one kernel for all local work before a collective, none behind the
    last; of an exchange the transpose before it may be no work at all."""
    total, has_local_work = 0.0, False
    for step in steps:
        if isinstance(step, (Pad, Slice, DynamicSlice)):
            has_local_work = True
        else:
            kernel = op_time(0, 2 * local.byte_size, "f32", machine, matrix=False)
            total += step.seconds(local, machine) + has_local_work * kernel
            has_local_work = isinstance(step, (AllToAll, Pieces))
            if isinstance(step, AllToAll):
                total -= (1 + step.is_simple) * kernel
            elif isinstance(step, Pieces):
                total -= sum(
                    op_time(0, 2 * local.with_dims(turn.sizes).byte_size, "f32", machine, matrix=False)
                    for turn in step.rounds
                    if turn.sizes != step.sizes and not turn.is_local
                )
        local = step.result(local)
    return total


_INTEGERS = {0: "u8", 1: "u8", 2: "u16", 4: "u32", 8: "u64", 16: "c128"}
