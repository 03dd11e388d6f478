"""Sets of measured runs, with what is aimed at and what other simulators publish of theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.published.runs import Run


@dataclass(frozen=True, kw_only=True)
class RunSet:
    """Rows of tables that are judged together."""

    title: str
    tables: tuple[str, ...]
    """By the names of `benchmarks.published.runs.TABLES`."""
    aim: str
    others: str = ""
    """Published errors of other simulators."""
    takes: Callable[[Run], bool] = lambda run: True


def _is_narrow(run: Run) -> bool:
    return run.config.width == 2048 and run.plan.tensor <= 4


SETS: Mapping[str, RunSet] = {
    "megatron": RunSet(
        title="Megatron, A100",
        tables=("megatron_a100_sc21", "megatron_a100_korthikanti"),
        aim="median 5 %, worst 12 %, memory 10 %",
        others="calculon: mean 3.65 %, worst 8.87 %",
    ),
    "vtrain_multi": RunSet(
        title="vTrain, 64 to 512 A100",
        tables=("vtrain_a100_multi",),
        aim="mean 8 %, rank .95, regret 2 %",
        others="vTrain: mean 14.73 %",
    ),
    "vtrain_2048": RunSet(
        title="vTrain, one node, width 2048, T at most 4",
        tables=("vtrain_a100_single",),
        aim="mean 8 %, rank .95, regret 3 %",
        takes=_is_narrow,
    ),
    "vtrain_single": RunSet(
        title="vTrain, one node",
        tables=("vtrain_a100_single",),
        aim="mean 8 %",
        others="vTrain: mean 8.37 %",
    ),
    "llm_foundry": RunSet(
        title="llm-foundry, A100 and H100",
        tables=("llm_foundry_mpt_fsdp",),
        aim="median 8 %, worst 25 %, rank .95",
    ),
    "torchtitan": RunSet(
        title="torchtitan, H100",
        tables=("torchtitan_h100",),
        aim="bf16 8 %, memory 10 %; 405B, interleaved over 1F1B: 1.28 within 5 %",
    ),
    "maxtext": RunSet(
        title="MaxText, TPU v7",
        tables=("maxtext_ironwood",),
        aim="dense models in bf16 10 %",
    ),
}
"""By the name that the command takes."""
