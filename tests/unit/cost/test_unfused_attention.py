"""Attention that is written out is found, whoever wrote it; a fused call would take what cuDNN's takes."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import hlosharding as hs
from benchmarks import one_card
from benchmarks.card.cases import Case, cases
from benchmarks.published.transformer import GPT_1_7B, Config, arguments, train_step
from hlosharding.cost import Priced, UnfusedAttention, cost, machines, unfused_attention

H100 = machines.h100(1)
SMALL = replace(GPT_1_7B, layers=2, width=256, heads=4, vocabulary=512, length=512, hidden=1024)
SHAPE = jax.ShapeDtypeStruct((8, 512, 4, 64), jnp.bfloat16)


def attention(implementation: str, q: Any, k: Any, v: Any) -> Any:
    return jax.nn.dot_product_attention(q, k, v, implementation=implementation)


def gradients(implementation: str, *arrays: Any) -> Any:
    def loss(*arrays: Any) -> Any:
        return jnp.sum(attention(implementation, *arrays).astype(jnp.float32))

    return jax.value_and_grad(loss, argnums=(0, 1, 2))(*arrays)


def found_in(function: Any, *shapes: Any, machine: hs.Machine = H100) -> list[UnfusedAttention]:
    module = hs.trace(function, platform="cuda")(*shapes)
    return unfused_attention(module, cost(module, machine))


def fused_calls(function: Any, *shapes: Any) -> list[Priced]:
    report = cost(hs.trace(function, platform="cuda")(*shapes), H100)
    return [row for row in report.rows if row.instruction.custom_call_target.startswith("__cudnn$fmha")]


@pytest.mark.parametrize("function", [attention, gradients], ids=["forward", "both passes"])
def test_a_fused_call_would_take_what_jaxs_own_takes(function: Any) -> None:
    [found] = found_in(partial(function, "xla"), SHAPE, SHAPE, SHAPE)
    calls = fused_calls(partial(function, "cudnn"), SHAPE, SHAPE, SHAPE)
    assert len(calls) == (1 if function is attention else 2)
    assert found.fused_s == pytest.approx(sum(row.time_s for row in calls), rel=0.02)
    assert found.fused_bytes == pytest.approx(sum(row.bytes for row in calls), rel=0.05)
    assert found.saved_s > 0
    assert found.saved_bytes > 2 * 8 * 4 * 512**2 * 2  # scores are written and read, at least


@pytest.mark.parametrize("config", [SMALL, SMALL.listed(), replace(SMALL, remat="none")], ids=["scan", "list", "kept"])
@pytest.mark.parametrize("attention", ["xla", "written"])
def test_all_passes_of_a_decoder_count(config: Config, attention: Any) -> None:
    """With a checkpoint a fused kernel goes forward a second time, too."""
    found = found_in(partial(train_step, replace(config, attention=attention)), *arguments(config, 8))
    calls = fused_calls(partial(train_step, replace(config, attention="cudnn")), *arguments(config, 8))
    assert sum(each.fused_bytes for each in found) == pytest.approx(sum(row.bytes for row in calls), rel=0.05)
    assert all(each.saved_s > 0 for each in found)


CALLS = [case for case in cases() if case.family == "attention" and case.name.startswith("xla")]
ON_H100 = json.loads((Path(one_card.__file__).parent / "card" / "h100.json").read_text())["rows"]


@pytest.mark.parametrize("case", CALLS, ids=lambda case: case.name)
def test_an_h100_saved_no_less(case: Case) -> None:
    """Measured by `benchmarks.one_card`.  The calls are causal, of which ours does not know: cuDNN saves more."""
    module = case.module()
    [found] = unfused_attention(module, cost(module, H100))
    written, fused = (ON_H100[name]["seconds"] for name in (case.name, case.name.replace("xla", "cudnn")))
    assert 0.55 * (written - fused) < found.saved_s <= written - fused


def test_what_is_fused_is_not_found() -> None:
    assert found_in(partial(gradients, "cudnn"), SHAPE, SHAPE, SHAPE) == []


@pytest.mark.parametrize(
    "function",
    [
        lambda q, k, v: jnp.einsum("bst,btd->bsd", jnp.einsum("bsd,btd->bst", q, k), v),
        lambda q, k, v: jax.nn.softmax(q[0] @ k[0].T) @ v[0],
    ],
    ids=["no softmax", "no batch"],
)
def test_other_products_are_no_attention(function: Any) -> None:
    assert found_in(function, *[jax.ShapeDtypeStruct((16, 512, 64), jnp.bfloat16)] * 3) == []


def test_nothing_is_fused_on_a_cpu_or_in_f32() -> None:
    assert found_in(partial(attention, "xla"), SHAPE, SHAPE, SHAPE, machine=machines.cpu(1)) == []
    wide = jax.ShapeDtypeStruct(SHAPE.shape, jnp.float32)
    assert found_in(partial(attention, "xla"), wide, wide, wide) == []


def masked(levels: int) -> list[UnfusedAttention]:
    """Attention whose mask was doubled so often."""
    doubled = "\n".join(f"m{n + 1} = bf16[2,64,64] add(m{n}, m{n})" for n in range(levels))
    module = hs.load(f"""HloModule m
    ENTRY e {{
      q = bf16[2,64,64] parameter(0)
      m0 = bf16[2,64,64] parameter(1)
      {doubled}
      s = bf16[2,64,64] dot(q, q), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{2}},
        rhs_contracting_dims={{2}}
      a = bf16[2,64,64] add(s, m{levels})
      x = bf16[2,64,64] exponential(a)
      ROOT o = bf16[2,64,64] dot(x, q), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{2}},
        rhs_contracting_dims={{1}}
    }}""")
    return unfused_attention(module, cost(module, H100))


def test_what_made_the_mask_is_looked_at_once() -> None:
    began = time.process_time()
    [plain], [doubled] = masked(0), masked(22)
    assert time.process_time() - began < 2
    assert doubled.nbytes == plain.nbytes
