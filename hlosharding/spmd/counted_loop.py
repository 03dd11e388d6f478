"""A `while` of so many steps: for what the partitioner itself writes as a loop.

Floor: spmd.  Knows the counter; what a step does is its caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from hlosharding.ir import Instruction, Shape
from hlosharding.spmd.emitter import Emitter

Step = Callable[[Emitter, Instruction, Sequence[Instruction]], list[Instruction]]
"""(an emitter of the body, the number of the step, what is carried) -> what is carried on."""


class LoopNames(NamedTuple):
    """How its computations are called, and what collectives in it give as their reason."""

    body: str
    condition: str
    reason: str


def counted_loop(
    emitter: Emitter, names: LoopNames, start: Sequence[Instruction], times: int, step: Step
) -> list[Instruction]:
    """`carried = step(number, carried)` so many times, the number counting from 0."""
    counter = emitter.constant(np.int32(0))
    shape = Shape.tuple((counter.shape, *(x.shape for x in start)))
    body, (number, *carried) = _opened(emitter, names.body, names.reason, shape)
    following = body.binary("add", number, body.constant(np.int32(1)))
    body.computation.root(body.op("tuple", shape, (following, *step(body, number, carried))))
    condition, (number, *_) = _opened(emitter, names.condition, names.reason, shape)
    condition.computation.root(condition.compare(number, "LT", condition.constant(np.int32(times))))
    packed = emitter.op("tuple", shape, (counter, *start))
    called = (body.computation.computation, condition.computation.computation)
    return emitter.elements(emitter.op("while", shape, (packed,), called=called))[1:]


def _opened(emitter: Emitter, name: str, reason: str, shape: Shape) -> tuple[Emitter, list[Instruction]]:
    """A computation of a carry, and the elements of the carry."""
    inner = Emitter(emitter.program, emitter.program.body(name), emitter.manual_groups)
    if emitter.cause.source is not None:
        inner.lowering(emitter.cause.source, reason)
    return inner, inner.elements(inner.computation.parameter(0, shape, name="carried"))
