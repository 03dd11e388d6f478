"""Plans of the published decoders: who makes them, and what they move."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache, partial

import hlosharding as hs
from benchmarks.published.transformer import Config, arguments, train_step
from hlosharding.cost import Machine
from hlosharding.schedule import Closing, Piece, Pipeline, StageProgram
from hlosharding.search import Planner


@lru_cache(maxsize=4)
def planner_of(config: Config, batch: int) -> Planner:
    """Of a step with so many sequences: it is traced once for plans that are asked for one after the other."""
    platform = "cuda" if config.attention == "cudnn" else None
    traced = hs.trace(partial(train_step, config), platform=platform)(*arguments(config, batch))
    return Planner(traced, ["tokens"], ["weights", "moments"])


def received_bytes(pipeline: Pipeline, machine: Machine | None = None) -> float:
    """What a device of each stage receives inside its programs, added up."""
    return received_by((*pipeline.pieces, *pipeline.closings), machine)


def received_by(steps: Iterable[Piece | Closing], machine: Machine | None = None) -> float:
    """The same of some of its programs."""
    programs = [step.op.program.module for step in steps if isinstance(step.op, StageProgram)]
    return sum(hs.cost(program, machine=machine).comm_bytes for program in programs)
