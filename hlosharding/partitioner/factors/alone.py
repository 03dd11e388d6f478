"""What one op takes by itself, written this way or that: simulated, so that what overlaps counts once.

Floor: partitioner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlosharding.cost import simulate
from hlosharding.ir import Builder, Instruction, Shape
from hlosharding.partitioner.context import Context
from hlosharding.spmd import Emitter, Program


def seconds_alone(
    context: Context, shapes: Sequence[Shape], emit: Callable[[Emitter, Sequence[Instruction]], Instruction]
) -> float:
    """Of a program of parameters of these shapes and what is emitted of them."""
    program = Program(Builder("alone", num_partitions=context.num_partitions), context.num_partitions)
    body = program.builder.computation("main")
    body.root(emit(Emitter(program, body), [body.parameter(n, shape) for n, shape in enumerate(shapes)]))
    return simulate(program.builder.finish(body), context.prices.machine).time_s
