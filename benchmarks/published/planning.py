"""Plans of the published decoders: who makes them, and what they move."""

from __future__ import annotations

from functools import cache, partial

import hlosharding as hs
from benchmarks.published.transformer import Config, arguments, train_step
from hlosharding.cost import Machine
from hlosharding.schedule import Pipeline, StageProgram
from hlosharding.search import Planner


@cache
def planner_of(config: Config, batch: int) -> Planner:
    """Of a step with so many sequences: it is traced once for all plans."""
    traced = hs.trace(partial(train_step, config))(*arguments(config, batch))
    return Planner(traced, ["tokens"], ["weights", "moments"])


def received_bytes(pipeline: Pipeline, machine: Machine | None = None) -> float:
    """What a device of each stage receives inside its programs, added up."""
    ops = [each.op for each in (*pipeline.pieces, *pipeline.closings)]
    programs = [op.program.module for op in ops if isinstance(op, StageProgram)]
    return sum(hs.cost(program, machine=machine).comm_bytes for program in programs)
