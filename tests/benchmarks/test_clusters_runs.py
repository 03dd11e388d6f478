"""Rows of public tables as plans."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import pytest

from benchmarks.published.runs import DATA, TABLES, Run, UnsaidError, runs
from benchmarks.published.transformer import LLAMA_8B, arguments, model_flops, parameters
from hlosharding.search import Plan

HEADER = (
    "model,hidden,heads,layers,sequence,vocabulary,tensor,pipeline,data,global_batch,micro_batch,interleaved_chunks,"
)


def table(folder: Path, ways: str) -> list[Run | UnsaidError]:
    """A GPT of four layers, so split and recomputed."""
    name = "megatron_a100_korthikanti"
    (folder / f"{name}.csv").write_text(f"{HEADER}recompute,step_s\nGPT,64,4,4,32,512,{ways},1.5\n")
    return list(runs(folder, name))


def test_a_row_is_a_plan(tmp_path: Path) -> None:
    (run,) = table(tmp_path, "2,2,4,32,2,1,full")
    assert isinstance(run, Run)
    assert (run.plan, run.batch, run.seconds) == (Plan(4, 2, 2, 4, even=True), 32, 1.5)
    assert (run.config.width, run.config.hidden, run.config.length) == (64, 256, 32)


def test_megatron_has_narrow_weights_with_masters_beside_and_no_compiler(tmp_path: Path) -> None:
    (run,) = table(tmp_path, "2,2,4,32,2,1,full")
    assert isinstance(run, Run)
    assert run.runtime == "eager"
    weights = parameters(run.config)["layers"]
    assert {weights["qkv"].dtype, weights["up"].dtype} == {jnp.dtype(jnp.bfloat16)}
    assert weights["mlp_norm"].dtype == jnp.float32
    moments = arguments(run.config, run.batch)[1]
    assert [each["layers"]["up"].dtype for each in moments] == [jnp.float32] * 3


@pytest.mark.parametrize(("ways", "softmax"), [("1,1,8,8,1,1,full", "fused"), ("2,1,4,4,1,1,full", "op by op")])
def test_megatrons_softmax_takes_a_multiple_of_four(tmp_path: Path, ways: str, softmax: str) -> None:
    """Four heads, over one or two ways, of one sequence."""
    (run,) = table(tmp_path, ways)
    assert isinstance(run, Run)
    assert run.config.softmax == softmax


def test_interleaved_chunks_are_said_by_the_schedule(tmp_path: Path) -> None:
    (run,) = table(tmp_path, "2,2,4,32,2,2,full")
    assert isinstance(run, Run)
    assert run.plan == Plan(4, 2, 2, 4, "1f1b-x2", even=True)


def test_selective_recomputation_comes_with_sequence_parallelism(tmp_path: Path) -> None:
    (run,) = table(tmp_path, "2,2,4,32,2,1,selective_sequence_parallel")
    assert isinstance(run, Run)
    assert run.plan == Plan(4, 2, 2, 4, sequence=True, even=True)
    assert run.config.remat == "dots_with_no_batch_dims_saveable"


def test_a_row_that_cannot_be_said_has_a_reason() -> None:
    reasons = {str(row) for row in runs(DATA, "maxtext_ironwood") if isinstance(row, UnsaidError)}
    assert "a mixture of experts as MaxText runs it" in reasons


def first(name: str, which: str) -> Run:
    """The first row of a table that is said and has a word in it."""
    return next(run for run in runs(DATA, name) if isinstance(run, Run) and which in f"{run.model} {run.plan} {run}")


def test_each_source_has_its_devices_and_its_way_to_split() -> None:
    assert first("torchtitan_h100", "8B").plan == Plan(8, strategy="fsdp")
    assert first("torchtitan_h100", "70B").plan == Plan(32, 8, strategy="fsdp", sequence=True)
    long = first("maxtext_ironwood", "context=8")
    assert long.plan == Plan(512, strategy="fsdp", context=8)  # 256 chips of two devices
    assert long.config.remat == ("q", "k", "v", "context", "down")
    assert first("llm_foundry_mpt_fsdp", "a100_40gb").machine == "a100_40gb"
    assert first("llm_foundry_mpt_fsdp", "zero2").plan.strategy == "zero2"


def test_fsdp_holds_and_copies_what_its_streams_have() -> None:
    """Of 8.03e9 weights (Llama's paper, table 3) in bf16: embedding and output twice, 2.1 GB together, a layer's 0.44
    twice, an eighth of the gradients in f32; 14 bytes a weight are copied."""
    held, copied = first("torchtitan_h100", "8B").beside
    assert held == pytest.approx(2 * (2.1e9 + 0.436e9) + 4.015e9, rel=0.01)
    assert copied == pytest.approx(14 * 8.03e9, rel=0.01)


@pytest.mark.parametrize("name", TABLES)
def test_all_rows_are_said_or_have_a_reason(name: str) -> None:
    rows = list(runs(DATA, name))
    said = [row for row in rows if isinstance(row, Run)]
    assert len(said) > len(rows) / 3
    for run in said:
        assert run.seconds > 0
        assert run.plan.divides(run.batch)


def test_model_flops_are_six_a_weight_and_token_and_twelve_an_element_of_the_scores() -> None:
    # Llama 3 8B has 8.03e9 weights, the embedding's 128,256 x 4,096 multiply nothing (Llama's paper, table 3).
    found = model_flops(LLAMA_8B, 1)
    weights, attention = 8.03e9 - 128256 * 4096, 12 * 32 * 4096 * 2048
    assert found == pytest.approx(2048 * (6 * weights + attention), rel=1e-3)
