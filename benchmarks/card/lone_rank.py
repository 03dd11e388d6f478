"""One rank of plans for 512 devices as a program for one: collectives are local ops of their shape (`stub_module`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial

from benchmarks.published.planning import planner_of
from benchmarks.published.transformer import LLAMA_8B, Config
from hlosharding.cost import machines
from hlosharding.ir import Module
from hlosharding.schedule import Pipeline, StageProgram
from hlosharding.schedule.ranks.stubs import stub_module
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
    return stub_module(middle.op.program.module, 0)


@cache
def _pipeline(config: Config, plan: Plan, batch: int) -> Pipeline:
    return planner_of(config, batch).pipeline(plan, machines.h100(plan.num_devices))
