"""Rows of public tables of measured training steps as what is run: model, plan, batch, machine, runtime.

A rule a table; a row that cannot be said yields the reason instead.  What the rules take for granted of a source stands
with its licence in `data/README.md`.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp

from benchmarks.published.fsdp2 import NOTHING, Beside, beside
from benchmarks.published.transformer import LLAMA_8B, LLAMA_70B, LLAMA_405B, Config
from hlosharding.cost import Runtime
from hlosharding.search import Plan

DATA = Path(__file__).parent / "data"
Row = Mapping[str, str]


class FlashAttention(NamedTuple):
    """A kernel on a chip: see `Machine.attention_efficiency` and `attention_backward`."""

    forward: float
    backward: float


@dataclass(frozen=True, kw_only=True)
class Run:
    """A step that a cluster took."""

    model: str
    config: Config = field(repr=False)
    plan: Plan
    batch: int
    machine: str
    """Of `hlosharding.cost.machines`."""
    seconds: float
    """Measured."""
    runtime: Runtime = "compiled"
    dispatch: float = 0.0
    """Seconds of the framework's host for each launch, where that is known; 0: the machine's."""
    attention: FlashAttention | None = None
    """How fast its flash attention is, where that is known; None: as the machine says."""
    products: float = 1.0
    """Share of the rate of the machine's large products that its library reaches."""
    network: float = 1.0
    """Share of the machine's links between nodes that its nodes have."""
    beside: Beside = NOTHING
    """What the framework holds and copies beside the program's values."""
    gibibytes: float | None = None
    """The measured peak of a device, where it is known."""

    @property
    def group(self) -> tuple[tuple[str, int], int, int]:
        """What plans have in common that can be chosen for the same work: the model, the devices, the batch."""
        return (self.model, self.config.length), self.plan.num_devices, self.batch


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
    """As Megatron trains it: weights and what flows are narrow, masters and moments f32, scores are written.

    They are f16 there, which costs what bf16 costs on an A100.  But partial sums of f16 we add up at once, lest they
    overflow, and Megatron, which scales its loss, leaves those of gradients until the last microbatch.
    """
    width = int(row["hidden"])
    return Config(
        layers=int(row["layers"]),
        width=width,
        heads=int(row["heads"]),
        vocabulary=vocabulary,
        length=int(row["sequence"]),
        hidden=4 * width,
        compute=jnp.bfloat16,
        stored=jnp.bfloat16,
        attention="written",
        fused_qkv=True,
        sums_first=row["pipeline"] == "1",  # what is not cut keeps all stages' gradients in one place
        megatron=True,
        softmax="op by op" if int(row["micro_batch"]) * int(row["heads"]) // int(row["tensor"]) % 4 else "fused",
    )


def _ways(row: Row) -> Plan:
    data, batch = int(row["data"]), int(row["global_batch"])
    microbatches = batch // (data * int(row["micro_batch"]))
    stages, chunks = int(row["pipeline"]), int(row.get("interleaved_chunks", 1))
    schedule = f"1f1b-x{chunks}" if chunks > 1 else ""
    return Plan(data, int(row["tensor"]), stages, microbatches, schedule, even=stages > 1)


_DEEPSPEED = 59e-6
"""Seconds that Megatron-DeepSpeed's Python takes for each of our launches.  The one figure here that comes from rows: a
microbatch of one sequence takes 3.05 ms a layer, whatever its width, on 2 to 8 GPUs, and we count 52 launches in it,
without sums of gradients."""


def _vtrain(row: Row) -> Run:
    config = _gpt(row, vocabulary=50304)  # 50,257, padded to 128 as Megatron does
    return Run(
        model=f"GPT {config.layers} x {config.width}",
        config=config,
        plan=_ways(row),
        batch=int(row["global_batch"]),
        machine="a100",
        seconds=float(row["iteration_ms"]) / 1e3,
        runtime="eager",
        dispatch=_DEEPSPEED,
        network=0.5,  # four cards a node, of 200 Gb/s each
    )


def _sc21(row: Row) -> Run:
    config, plan, batch = _gpt(row), _ways(row), int(row["global_batch"])
    flops = 96 * batch * config.length * config.layers * config.width**2  # with a second forward pass
    flops *= 1 + config.length / (6 * config.width) + config.vocabulary / (16 * config.layers * config.width)
    seconds = flops / (float(row["tflops_per_s_per_gpu"]) * 1e12 * plan.num_devices)
    return Run(
        model=row["model"], config=config, plan=plan, batch=batch, machine="a100", seconds=seconds, runtime="eager"
    )


def _korthikanti(row: Row) -> Run:
    is_selective = row["recompute"] == "selective_sequence_parallel"
    # what attention makes between its products is computed again, all else kept
    remat = "dots_with_no_batch_dims_saveable" if is_selective else "full"
    parts = "parameters_and_optimizer_gib", "activations_selective_sp_gib"
    return Run(
        model=row["model"],
        config=replace(_gpt(row), remat=remat),
        plan=replace(_ways(row), sequence=is_selective),
        batch=int(row["global_batch"]),
        machine="a100",
        seconds=float(row["step_s"]),
        runtime="eager",
        gibibytes=sum(float(row[part]) for part in parts) if is_selective and parts[0] in row else None,
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
_FLASH2 = {"h100": FlashAttention(0.53, 0.80)}
"""FlashAttention-2 as PyTorch ran it before cuDNN 9: on an H100 335 TFLOP/s at best for both passes, where products
reach 792 (Dao 2023); on an A100 as the preset has it."""
_CUBLAS_12_1 = 0.79
"""Of what products reach on an H100 today.  It comes from rows, the four of 2,048 tokens on eight H100s in bf16."""
_TRITON = {"a100": FlashAttention(0.74, 0.53), "h100": FlashAttention(0.37, 0.57)}
"""The first FlashAttention as a Triton kernel, which takes 1.4 times as long forward, and twice as long backward, as
the second (Dao 2023)."""
_MOSAIC = {"h100_80gb": "h100", "a100_80gb": "a100", "a100_40gb": "a100_40gb"}


def _mpt(row: Row) -> Run:
    layers, width, heads = MPT[row["model"]]
    gpus, length, batch = int(row["gpus"]), int(row["sequence"]), int(row["global_batch"])
    microbatches = int(row["gradient_accumulation"])
    is_old = row["gpu"] == "a100_40gb"  # PyTorch 1.13; since 2.1 what is computed again ends at what is needed
    config = Config(
        layers=layers,
        width=width,
        heads=heads,
        vocabulary=50368,
        length=length,
        hidden=4 * width,
        attention="cudnn",
        fused_qkv=True,
        remat=("whole" if is_old else "full") if row["activation_checkpointing"] == "True" else "none",
        float8=_scaling(microbatches) if "fp8" in row["precision"] else "",
    )
    return Run(
        model=f"MPT {row['model']}",
        config=config,
        plan=Plan(gpus, microbatches=microbatches, strategy=_FSDP[row["fsdp"]]),
        batch=batch,
        machine=_MOSAIC[row["gpu"]],
        seconds=batch * length / (float(row["tokens_per_s_per_gpu"]) * gpus),
        runtime="eager",
        attention=_flash_of_mpt(row),
        products=_CUBLAS_12_1 if row["gpu"].startswith("h100") else 1.0,
    )


def _flash_of_mpt(row: Row) -> FlashAttention:
    """Triton's kernel is the default of its benchmarks; the sweep on many H100s asks for the other, of most models."""
    is_second = "Large Scale" in row["section"] and row["model"] not in ("13b", "30b")
    return (_FLASH2 if is_second else _TRITON)[row["gpu"].partition("_")[0]]


def _scaling(microbatches: int) -> str:
    """Of float8: the largest element of a whole batch cannot be found in a microbatch."""
    return "dynamic" if microbatches == 1 else "fixed"


LLAMA = {"8b": LLAMA_8B, "70b": LLAMA_70B, "405b": LLAMA_405B}
_RECOMPUTED = {
    "selective": ("q", "v", "context", "gate", "down"),  # every second product's result, and attention's
    "full": "full",
}
_SCHEDULES = {"": "", "async tensor parallel": "", "1f1b": "1f1b", "interleaved 1f1b": "1f1b-x2"}


def _torchtitan(row: Row) -> Run:
    model = LLAMA[row["model"].lower()]
    ways = {name: int(count) for name, count in (part.split() for part in row["plan"].split(", "))}
    stages, schedule = ways.get("pipeline", 1), _SCHEDULES[row["schedule"]]
    plan = Plan(
        ways["fsdp"],
        ways.get("tensor", 1),
        stages,
        stages,  # as many microbatches as stages: its default
        schedule,
        strategy="fsdp" if stages == 1 else "zero2",  # stages keep their weights whole for all microbatches
        sequence="tensor" in ways,
    )
    float8 = "sequences" if "float8" in row["precision"] else ""
    gpus, length, batch = int(row["gpus"]), int(row["sequence"]), int(row["global_batch"])
    config = replace(
        model,
        length=length,
        attention="cudnn",
        remat=_RECOMPUTED[row["recompute"]],
        float8=float8,
        by_blocks=True,
        update="op by op" if stages == 1 else "fused",  # passes keep all stages' gradients in one place
        is_split_loss="tensor" in ways,
    )
    return Run(
        model=f"Llama 3.1 {row['model']}",
        config=config,
        plan=plan,
        batch=batch,
        machine="h100_96gb",
        seconds=batch * length / (float(row["tokens_per_s_per_gpu"]) * gpus),
        attention=_FLASH2["h100"],
        beside=beside(config, plan, batch),
        gibibytes=float(row["memory_gib"]),
    )


_KEPT = {"405b": ("k", "v", "down"), "70b": ("q", "k", "v", "context")}
"""What the recipe of a model keeps of each layer, on the device or on the host."""
_NOT_DENSE = ("deepseek", "gpt-oss", "qwen3", "gemma4-26b", "mixtral")
_LONG = 131072


def _maxtext(row: Row) -> Run:
    family, _, size = row["model"].rpartition("-")
    if row["model"].startswith(_NOT_DENSE):
        raise UnsaidError("a mixture of experts as MaxText runs it")
    if not family.startswith("llama"):
        raise UnsaidError("layers of several kinds: windows of attention, keys and values that layers share")
    devices, length, batch = 2 * int(row["chips"]), int(row["sequence"]), int(row["global_batch"])
    is_fp8 = "fp8" in row["precision"]
    kept = ("q", "k", "v", "context", "down") if length == _LONG else () if is_fp8 and size == "405b" else _KEPT[size]
    float8 = "" if not is_fp8 else "channels" if length == _LONG else "calibrated"  # as each recipe says
    return Run(
        model=f"Llama 3.1 {size}",
        # The call to cuDNN stands for the TPU's kernel, as far as its price goes.
        config=replace(LLAMA[size], length=length, attention="cudnn", remat=kept, float8=float8),
        plan=Plan(devices, strategy="fsdp", context=8 if length == _LONG else 1),
        batch=batch,
        machine="tpu_v7",
        seconds=float(row["step_s"]),
    )


TABLES: Mapping[str, Callable[[Row], Run]] = {
    "megatron_a100_sc21": _sc21,
    "megatron_a100_korthikanti": _korthikanti,
    "vtrain_a100_multi": _vtrain,
    "vtrain_a100_single": _vtrain,
    "llm_foundry_mpt_fsdp": _mpt,
    "torchtitan_h100": _torchtitan,
    "maxtext_ironwood": _maxtext,
}
"""By the name of the file."""
