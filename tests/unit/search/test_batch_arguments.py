"""Which arguments are the batch: what the zoo's authors call so, in programs that say nothing else of it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import hlosharding as hs
from benchmarks.published.transformer import LLAMA_8B, arguments, train_step
from benchmarks.zoo import MODELS
from hlosharding.errors import ScheduleError
from hlosharding.search.batch_arguments import find_batch

BATCH_FIRST = (
    "transformer, tensor",
    "transformer, context",
    "transformer, FSDP in a scan",
    "MoE, dense dispatch",
    "T5",
    "ViT",
    "ResNet, data",
    "ResNeXt, data",
    "U-Net",
    "DLRM, tables split",
    "state space, time split",
    "linear recurrence in a scan",
    "FFT convolution",
    "Fourier neural operator",
)
NOT_FIRST = ("pipeline in a scan", "accumulation in a scan, data", "LSTM in a scan", "Gaussian process, points")


def module_of(name: str) -> hs.Module:
    model = next(model for model in MODELS if model.name == name)
    program = model.build(model.mesh(alone=True), 1)
    return hs.trace(program.function)(*program.arguments)


def found(module: hs.Module) -> list[str]:
    return [module.entry.parameters[number].op_name for number in find_batch(module)]


@pytest.mark.parametrize("name", BATCH_FIRST)
def test_what_authors_call_the_batch_is_found(name: str) -> None:
    module = module_of(name)
    named = [p.op_name for p in module.entry.parameters if p.op_name.startswith("batch") and p.shape.dims]
    assert found(module) == named


@pytest.mark.parametrize("name", NOT_FIRST)
def test_where_no_first_dim_is_of_examples_the_user_is_asked(name: str) -> None:
    with pytest.raises(ScheduleError, match="no argument was found whose first dim is the batch"):
        find_batch(module_of(name))


@pytest.mark.parametrize("scanned", [True, False], ids=["scanned", "listed"])
def test_tokens_of_a_language_model(scanned: bool) -> None:
    config = replace(LLAMA_8B, layers=3, scanned=scanned)
    assert found(hs.trace(partial(train_step, config))(*arguments(config, 16))) == ["tokens"]


def test_arguments_beside_the_tokens() -> None:
    def step(weights: Any, table: Any, positions: Any, mask: Any, tokens: Any, labels: Any, rate: Any) -> Any:
        def loss(weights: Any) -> Any:
            x = weights["in"][tokens] + table[positions]
            q, k, v = (x @ weights[name] for name in "qkv")
            scores = jax.nn.softmax(jnp.einsum("bsd,btd->bst", q, k))
            logits = jnp.einsum("bst,btd->bsd", scores, v) @ weights["out"]
            lost = -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)[..., 0]
            return jnp.sum(lost * mask)

        return jax.tree.map(lambda w, g: w - rate * g, weights, jax.grad(loss)(weights))

    weights = {"in": jnp.ones((32, 16)), **{n: jnp.ones((16, 16)) for n in "qkv"}, "out": jnp.ones((16, 32))}
    ids = jnp.zeros((8, 12), int)
    module = hs.trace(step)(weights, jnp.ones((12, 16)), ids, jnp.ones((8, 12)), ids, ids, jnp.ones(()))
    assert found(module) == ["positions", "mask", "tokens", "labels"]


def test_weights_of_a_program_that_updates_nothing_are_no_examples() -> None:
    module = hs.trace(lambda w, x: jnp.tanh(x @ w[0]) @ w[1])(
        [jnp.ones((16, 64)), jnp.ones((64, 16))], jnp.ones((8, 16))
    )
    assert found(module) == ["x"]


def test_a_program_without_products_has_no_batch() -> None:
    with pytest.raises(ScheduleError, match=r"batch=\[\"tokens\"\]"):
        find_batch(hs.trace(lambda x: x + 1)(jnp.ones((8, 8))))


def test_products_inside_what_the_flow_does_not_follow_are_passed_over() -> None:
    text = """HloModule m
    fused { a = f32[8,16] parameter(0)  b = f32[16,4] parameter(1)
      ROOT c = f32[8,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
    ENTRY e { x = f32[8,16] parameter(0)  w = f32[16,4] parameter(1)  v = f32[16,16] parameter(2)
      h = f32[8,16] dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      g = f32[8,16] dot(h, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      ROOT y = f32[8,4] fusion(g, w), kind=kOutput, calls=fused }"""
    module = hs.load(text)
    assert [module.entry.parameters[number].name for number in find_batch(module)] == ["x"]
