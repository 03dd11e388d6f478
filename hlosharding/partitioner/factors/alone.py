"""What one op takes by itself, written this way or that: simulated, so that what overlaps counts once.

Floor: partitioner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hlosharding.cost import cost, step_seconds
from hlosharding.ir import Builder, Instruction, Shape
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.prices import Cost
from hlosharding.spmd import Emitter, Program


class Alone(NamedTuple):
    """Of one device."""

    cost: Cost
    """Bytes received, and seconds of all that it does."""
    flops: float


def priced_alone(
    context: Context, shapes: Sequence[Shape], emit: Callable[[Emitter, Sequence[Instruction]], Instruction]
) -> Alone:
    """A program of parameters of these shapes and what is emitted of them."""
    program = Program(Builder("alone", num_partitions=context.num_partitions), context.num_partitions)
    body = program.builder.computation("main")
    body.root(emit(Emitter(program, body), [body.parameter(n, shape) for n, shape in enumerate(shapes)]))
    module = program.builder.finish(body)
    report = cost(module, context.prices.machine)
    return Alone(Cost(report.comm_bytes, step_seconds(module, report)), report.flops)
