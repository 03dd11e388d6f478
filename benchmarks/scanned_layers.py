"""Does a plan cost the same whether layers are in a `lax.scan` or listed, and does FSDP move what its closed form says?

`python -m benchmarks.scanned_layers [LAYERS]`: Llama 3's decoder of 8B (32 layers; 8 by default), a step of Adam on 512
sequences of 2,048 tokens, all of a layer computed again, on 64 H100s.  Closed form of FSDP: weights of layers and the
output's are gathered in bf16 for each pass that reads them, the embedding's for the forward pass, and all gradients are
reduced to pieces.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
from rich.table import Table

from benchmarks.published.planning import planner_of, received_bytes
from benchmarks.published.transformer import LLAMA_8B, Config, parameters
from benchmarks.verdict import finish, judged
from hlosharding.cost import machines
from hlosharding.search import Plan, Planner

DEVICES, BATCH = 64, 512
LIMIT, BYTES = 1.02, 1.01
PLANS = (
    Plan(64, strategy="fsdp"),
    Plan(64, strategy="fsdp", replicas=8),
    Plan(64, strategy="fsdp", context=8),
    Plan(8, 8, strategy="fsdp"),
    Plan(8, 8, strategy="fsdp", sequence=True),
    Plan(64, strategy="zero2"),
    Plan(64, microbatches=4, strategy="zero1"),
    Plan(16, 2, 2, 16),
    Plan(16, 2, 2, 16, "1f1b-x2"),
    Plan(16, 1, 3, 16),
    Plan(64, microbatches=4),
)


@dataclass(frozen=True)
class Cost:
    """Of one step."""

    seconds: float
    gigabytes: float
    moved: float
    """Gigabytes that a device receives."""
    cpu: float
    """Seconds of a core to price the plan."""


def cost_of(planner: Planner, plan: Plan) -> Cost:
    """As `hs.search` prices it."""
    machine, start = machines.h100(DEVICES), time.process_time()
    pipeline = planner.pipeline(plan, machine)
    run = planner.schedule(plan, machine).simulate(machine)
    cpu = time.process_time() - start
    return Cost(run.time_s, run.peak_memory_bytes / 1e9, received_bytes(pipeline, machine) / 1e9, cpu)


def closed_form(config: Config) -> float:
    """Gigabytes that FSDP over all devices moves."""
    weights: Mapping[str, Any] = parameters(config)
    count = {name: sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(part)) for name, part in weights.items()}
    times = {"layers": 3, "output": 3, "embedding": 2}
    return sum(count[name] * often for name, often in times.items()) * 2 * (DEVICES - 1) / DEVICES / 1e9


def main() -> None:
    """Print the table; fail where one form costs more than the other."""
    parser = argparse.ArgumentParser(description="Plans of scanned and of listed layers.")
    parser.add_argument("layers", nargs="?", type=int, default=8)
    config = replace(LLAMA_8B, layers=parser.parse_args().layers)
    planners = [planner_of(form, BATCH) for form in (config, config.listed())]
    heads = "plan", "step, scanned / listed", "ratio", "memory, GB", "ratio", "moved, GB", "CPU s"
    table = Table(*heads, title=f"Llama 8B, {config.layers} layers, {DEVICES} H100s, {BATCH} sequences")
    kept: list[bool] = []
    for plan in PLANS:
        scanned, listed = (cost_of(planner, plan) for planner in planners)
        time_ratio, is_as_fast = judged(scanned.seconds / listed.seconds, LIMIT)
        memory_ratio, is_as_small = judged(scanned.gigabytes / listed.gigabytes, LIMIT)
        kept += [is_as_fast, is_as_small]
        both = [f"{a:.3g} / {b:.3g}" for a, b in zip(vars(scanned).values(), vars(listed).values(), strict=True)]
        table.add_row(str(plan), f"{both[0]} s", time_ratio, both[1], memory_ratio, both[2], both[3])
        if plan == PLANS[0]:
            bytes_ratio, is_lean = judged(scanned.moved / closed_form(config), BYTES)
            kept.append(is_lean)
            table.caption = f"{plan}: bytes over the closed form {bytes_ratio}"
    finish(table, kept)


if __name__ == "__main__":
    main()
