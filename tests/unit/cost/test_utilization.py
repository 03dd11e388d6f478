"""Model FLOPs are those of the published formula, whatever is computed again, fused or split."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from benchmarks.published import transformer
from benchmarks.published.transformer import GPT_1_7B, LLAMA_8B, Config, arguments, train_step
from hlosharding.cost import hardware_flops, machines, model_flops

SMALL = {"layers": 2, "width": 256, "vocabulary": 512, "length": 128, "hidden": 1024}
GPT = replace(GPT_1_7B, heads=4, **SMALL)
LLAMA = replace(LLAMA_8B, heads=4, kv_heads=2, **SMALL)


@pytest.mark.parametrize(
    "config",
    [
        GPT,
        GPT.listed(),
        LLAMA,
        replace(GPT, remat="none"),
        replace(GPT, remat="dots_with_no_batch_dims_saveable"),
        replace(GPT, attention="cudnn"),
        replace(LLAMA, attention="cudnn", remat="none"),
        replace(GPT, attention="written"),
    ],
    ids=["gpt", "listed", "llama", "kept", "products kept", "fused", "fused and kept", "written"],
)
def test_a_decoder_has_what_the_formula_says(config: Config) -> None:
    """Chowdhery and others 2022, appendix B."""
    platform = "cuda" if config.attention == "cudnn" else None
    module = hs.trace(partial(train_step, config), platform=platform)(*arguments(config, 4))
    assert sum(model_flops(module).values()) == transformer.model_flops(config, 4)


def test_where_the_loss_is_not_asked_for_a_second_pass_is_the_first() -> None:
    def loss(weights, x):
        return jnp.sum(jax.checkpoint(lambda x: jnp.tanh(x @ weights))(x))

    module = hs.trace(jax.grad(loss))(jnp.ones((8, 8)), jnp.ones((8, 8)))
    assert model_flops(module) == hardware_flops(module) == {"f32": 2 * 2 * 8**3}


def test_copies_count_for_the_hardware_alone() -> None:
    mesh, x = AbstractMesh((8,), ("x",)), jax.ShapeDtypeStruct((1024, 1024), jnp.bfloat16)
    local = hs.partition(hs.trace(jnp.dot, mesh=mesh, in_shardings=(P(), P()))(x, x))
    machine = machines.h100(8)
    run, alone = hs.simulate(local, machine), hs.simulate(local.module, machine)
    needed = 2 * 1024**3 / machine.flops("bf16") / run.time_s
    assert (run.figures.kind, alone.figures.kind) == ("MFU", "HFU")
    assert run.figures.utilization == pytest.approx(needed / 8)
    assert alone.figures.utilization == pytest.approx(needed)
