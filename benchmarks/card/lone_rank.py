"""One rank of a plan as a program for one device: what others would send stands in for itself.

A collective becomes the local op that makes an array of its shape of the rank's own operand, behind a barrier, so that
XLA computes everything else as it would among 512.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial

import hlosharding as hs
from benchmarks.published.planning import planner_of
from benchmarks.published.transformer import LLAMA_8B, Config
from hlosharding.cost import machines
from hlosharding.ir import COLLECTIVES, Instruction, Module, SliceDim, rewrite
from hlosharding.schedule import Pipeline, StageProgram
from hlosharding.search import Plan

GPT_76B = Config(layers=60, width=10240, heads=80, vocabulary=51200, length=2048, hidden=40960)
PLANS = (
    ("Llama 8B", LLAMA_8B, Plan(512, strategy="fsdp"), 512),
    ("Llama 8B", LLAMA_8B, Plan(64, 8, strategy="fsdp"), 512),
    ("Llama 8B, cuDNN", replace(LLAMA_8B, length=8192, attention="cudnn"), Plan(512, strategy="fsdp"), 512),
    ("GPT 76B", GPT_76B, Plan(16, 8, 4, 56), 1792),
)


def ranks() -> Iterator[tuple[str, Callable[[], Module]]]:
    """Both passes of a stage in the middle of each plan, by name."""
    for model, config, plan, batch in PLANS:
        for kind in ("forward", "backward"):
            yield f"{model}, {plan}: {kind}", partial(_program, config, plan, batch, kind)


def _program(config: Config, plan: Plan, batch: int, kind: str) -> Module:
    found = [piece for piece in _pipeline(config, plan, batch).pieces if piece.kind == kind]
    middle = found[len(found) // 2]
    assert isinstance(middle.op, StageProgram)
    return alone(middle.op.program.module)


@cache
def _pipeline(config: Config, plan: Plan, batch: int) -> Pipeline:
    return planner_of(config, batch).pipeline(plan, machines.h100(plan.num_devices))


def alone(module: hs.Module) -> hs.Module:
    """The program of one device without the others."""
    made = module.clone()
    for computation in made.computations:
        for inst in list(computation.instructions):
            if inst.opcode in COLLECTIVES:
                _stand_in(inst)
    made.num_partitions = 1
    made.shardings.clear()
    made.renumber()
    return made


def _stand_in(inst: Instruction) -> None:
    kind, (operand, *_) = inst.opcode, inst.operands
    given, wanted = operand.shape.dims, inst.shape.dims
    dim = next((n for n, sizes in enumerate(zip(given, wanted, strict=True)) if sizes[0] != sizes[1]), 0)
    if kind == "all-gather" and given != wanted:
        rewrite.change_opcode(inst, "concatenate", [operand] * (wanted[dim] // given[dim]))
        rewrite.set_attributes(inst, dimensions=(dim,))
    elif given != wanted:
        rewrite.change_opcode(inst, "slice", [operand])
        rewrite.set_attributes(inst, slice_dims=tuple(SliceDim(0, size) for size in wanted))
    else:
        rewrite.change_opcode(inst, "copy", [operand])
    place = inst.computation.instructions.index(inst) + 1
    behind = rewrite.insert(inst.computation, place, "opt-barrier", inst.shape, [inst], name=f"{inst.name}.alone")
    rewrite.replace_uses(inst, behind)
