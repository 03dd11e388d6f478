"""Rows of public tables of measured training steps as what is run: model, plan, batch, machine.

A rule a table; a row that cannot be said yields the reason instead.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.published.transformer import LLAMA_8B, Config
from hlosharding.search import Plan

Row = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Run:
    """A step that a cluster took."""

    config: Config
    plan: Plan
    batch: int
    machine: str
    """Of `hlosharding.cost.machines`."""
    seconds: float
    """Measured."""
    gibibytes: float | None = None
    """The measured peak of a device, where it is known."""


class UnsaidError(Exception):
    """Why a row cannot be said."""


def runs(folder: Path, table: str) -> Iterator[Run | UnsaidError]:
    """Each row of a table, in its order."""
    with (folder / f"{table}.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            try:
                yield TABLES[table](row)
            except UnsaidError as reason:
                yield reason


def _gpt(row: Row, vocabulary: int = 51200) -> Config:
    width = int(row["hidden"])
    return Config(
        layers=int(row["layers"]),
        width=width,
        heads=int(row["heads"]),
        vocabulary=vocabulary,
        length=int(row["sequence"]),
        hidden=4 * width,
    )


def _ways(row: Row) -> Plan:
    data, batch = int(row["data"]), int(row["global_batch"])
    microbatches = batch // (data * int(row["micro_batch"]))
    stages, chunks = int(row["pipeline"]), int(row.get("interleaved_chunks", 1))
    schedule = f"1f1b-x{chunks}" if chunks > 1 else ""
    return Plan(data, int(row["tensor"]), stages, microbatches, schedule, even=stages > 1)


def _vtrain(row: Row) -> Run:
    config = _gpt(row, vocabulary=50304)  # 50,257, padded to 128 as Megatron does
    seconds = float(row["iteration_ms"]) / 1e3
    return Run(config=config, plan=_ways(row), batch=int(row["global_batch"]), machine="a100", seconds=seconds)


def _sc21(row: Row) -> Run:
    config, plan, batch = _gpt(row), _ways(row), int(row["global_batch"])
    flops = 96 * batch * config.length * config.layers * config.width**2  # with a second forward pass
    flops *= 1 + config.length / (6 * config.width) + config.vocabulary / (16 * config.layers * config.width)
    seconds = flops / (float(row["tflops_per_s_per_gpu"]) * 1e12 * plan.num_devices)
    return Run(config=config, plan=plan, batch=batch, machine="a100", seconds=seconds)


def _korthikanti(row: Row) -> Run:
    is_selective = row["recompute"] == "selective_sequence_parallel"
    # what attention makes between its products is computed again, all else kept
    remat = "dots_with_no_batch_dims_saveable" if is_selective else "full"
    return Run(
        config=replace(_gpt(row), remat=remat),
        plan=replace(_ways(row), sequence=is_selective),
        batch=int(row["global_batch"]),
        machine="a100",
        seconds=float(row["step_s"]),
    )


MPT = {  # layers, width, heads: llm-foundry's yamls
    "125m": (12, 768, 12),
    "350m": (24, 1024, 16),
    "760m": (24, 1536, 12),
    "1b": (24, 2048, 16),
    "3b": (32, 2560, 20),
    "7b": (32, 4096, 32),
    "13b": (40, 5120, 40),
    "30b": (48, 7168, 56),
    "70b": (80, 8192, 64),
}
_FSDP = {"FULL_SHARD": "fsdp", "SHARD_GRAD_OP": "zero2"}


def _mpt(row: Row) -> Run:
    if "fp8" in row["precision"]:
        raise UnsaidError("float8 linears")
    if row["gpu"] == "a100_40gb":
        raise UnsaidError("no preset of an A100 with 40 GB")
    layers, width, heads = MPT[row["model"]]
    gpus, length, batch = int(row["gpus"]), int(row["sequence"]), int(row["global_batch"])
    config = Config(
        layers=layers,
        width=width,
        heads=heads,
        vocabulary=50368,
        length=length,
        hidden=4 * width,
        remat="full" if row["activation_checkpointing"] == "True" else "none",
    )
    plan = Plan(gpus, microbatches=int(row["gradient_accumulation"]), strategy=_FSDP[row["fsdp"]])
    seconds = batch * length / (float(row["tokens_per_s_per_gpu"]) * gpus)
    return Run(config=config, plan=plan, batch=batch, machine=row["gpu"].partition("_")[0], seconds=seconds)


def _torchtitan(row: Row) -> Run:
    if "float8" in row["precision"]:
        raise UnsaidError("float8 linears")
    if row["model"] != "8B":
        raise UnsaidError(f"model {row['model']}")
    gpus, length, batch = int(row["gpus"]), int(row["sequence"]), int(row["global_batch"])
    # its selective recomputation keeps what products make
    config = replace(LLAMA_8B, length=length, remat="dots_with_no_batch_dims_saveable")
    seconds = batch * length / (float(row["tokens_per_s_per_gpu"]) * gpus)
    plan = Plan(gpus, strategy="fsdp")
    memory = float(row["memory_gib"])
    return Run(config=config, plan=plan, batch=batch, machine="h100", seconds=seconds, gibibytes=memory)


def _maxtext(row: Row) -> Run:
    raise UnsaidError("no preset of a TPU v7")


TABLES: Mapping[str, Callable[[Row], Run]] = {
    "vtrain_a100_single": _vtrain,
    "vtrain_a100_multi": _vtrain,
    "megatron_a100_sc21": _sc21,
    "megatron_a100_korthikanti": _korthikanti,
    "llm_foundry_mpt_fsdp": _mpt,
    "torchtitan_h100": _torchtitan,
    "maxtext_ironwood": _maxtext,
}
"""By the name of the file."""
