"""Decoders as people write them: GPT, MPT, Llama 3, Mixtral and DeepSeek; layers in a scan or listed, each under
`jax.checkpoint`.

Weights, moments and the update are f32, the layers compute in bf16; heads are a dim of their own, as in Flax.  Of the
types each can be another: Megatron's weights are f16, with f32 masters beside the moments, torchtitan's linears float8.
What frameworks have as one kernel (a norm, a masked softmax, the update) has a `jax.named_scope`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from benchmarks.published.experts import Experts, feed_forward
from benchmarks.published.float8 import product8

Tree = Any


@dataclass(frozen=True, kw_only=True)
class Config:
    """What tells one published model from another."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    length: int
    hidden: int
    """Of the feed-forward layer."""
    kv_heads: int = 0
    """0: as many as heads."""
    head_dim: int = 0
    """0: width over heads."""
    gated: bool = False
    """Silu times a gate (Llama), or gelu (GPT)."""
    positions: str = "learned"
    """`learned`, `rotary` or `alibi`."""
    tied: bool = True
    """Is the embedding the output's weight, too?"""
    scanned: bool = True
    remat: str | tuple[str, ...] = "full"
    """`none`, `full`, `whole`, the name of one of `jax.checkpoint_policies`, or which of `NAMED` each layer keeps.

    `whole` is full as PyTorch has it: a layer's function is called again, to its end, where JAX leaves out the last
    product (a third of a layer of GPT) and its all-reduce, for nobody reads them."""
    compute: Any = jnp.bfloat16
    stored: Any = jnp.float32
    """Of the weights, norms apart; where it is narrower, f32 masters lie beside the moments."""
    float8: str = ""
    """Products of layers in float8, operands scaled as this one of `SCALINGS` has it."""
    attention: Literal["xla", "cudnn", "written"] = "xla"
    """JAX's own, as XLA or (on GPUs alone) cuDNN computes it, or `written`: a product, a masked softmax, a product, as
    Megatron had it before flash attention."""
    fused_qkv: bool = False
    """Queries, keys and values of one product; there are as many heads of each."""
    sums_first: bool = False
    """Are gradients summed over devices, narrow as they are, before anything is updated?"""
    megatron: bool = False
    """As Megatron has it: dropout of attention's probabilities and of what each half of a layer adds; biases; a loss op
    by op; gradients that become f32, are unscaled and clipped ahead of the update."""
    softmax: Literal["fused", "op by op"] = "fused"
    """Of attention that is written: a kernel, as Megatron's own, which takes a multiple of four sequences and heads."""
    by_blocks: bool = False
    """As torchtitan has it: each layer compiled for itself, so the loss is op by op, in f32; a rotation of complex
    numbers, which its compiler leaves alone; keys and values repeated for all heads of queries."""
    is_split_loss: bool = False
    """By blocks: is the loss that of DTensor, for logits that are split by vocabulary?"""
    update: Literal["fused", "op by op"] = "fused"
    """Adam's, as one kernel for each array, or as PyTorch's `foreach`, ahead of which gradients are clipped."""
    experts: Experts | None = None

    @property
    def dense_layers(self) -> int:
        """The first ones, that lie apart from those of experts."""
        return self.experts.dense_layers if self.experts else 0

    @property
    def kv(self) -> int:
        return self.kv_heads or self.heads

    @property
    def dim(self) -> int:
        return self.head_dim or self.width // self.heads

    def listed(self) -> Config:
        """The same with its layers in a list."""
        return replace(self, scanned=False)


CONTEXT = "context"
"""What attention makes, the sums that its backward pass reads included: it is not computed again where this is kept."""
NAMED = ("q", "k", "v", "qkv", CONTEXT, "o", "up", "gate", "down")
"""Products of a layer that `Config.remat` can name, and what attention makes."""
GPT_1_7B = Config(layers=24, width=2304, heads=24, vocabulary=51200, length=2048, hidden=9216)
MPT_7B = Config(layers=32, width=4096, heads=32, vocabulary=50368, length=2048, hidden=16384, positions="alibi")
LLAMA_8B = Config(
    layers=32,
    width=4096,
    heads=32,
    kv_heads=8,
    vocabulary=128256,
    length=2048,
    hidden=14336,
    gated=True,
    positions="rotary",
    tied=False,
)
LLAMA_70B = replace(LLAMA_8B, layers=80, width=8192, heads=64, hidden=28672)
LLAMA_405B = replace(LLAMA_8B, layers=126, width=16384, heads=128, hidden=53248)
MIXTRAL_8X7B = replace(LLAMA_8B, vocabulary=32000, experts=Experts(count=8, chosen=2, hidden=14336))
DEEPSEEK_16B = replace(
    LLAMA_8B,
    layers=28,
    width=2048,
    heads=16,
    kv_heads=16,
    vocabulary=102400,
    hidden=10944,
    experts=Experts(count=64, chosen=6, hidden=1408, shared=2, dense_layers=1),
)


def parameters(config: Config, dtype: Any = None) -> Tree:
    """Shapes of all weights; of scanned layers each is a stack.  `dtype`: in the place of the one that is stored."""

    def array(*dims: int) -> jax.ShapeDtypeStruct:
        is_norm = len(dims) == 1
        return jax.ShapeDtypeStruct(dims, jnp.float32 if is_norm else dtype or config.stored)

    width, dim = config.width, config.dim
    separate = {"q": config.heads, "k": config.kv, "v": config.kv}
    attention = {
        "attention_norm": array(width),
        **({"qkv": array(width, 3, config.heads, dim)} if config.fused_qkv else {}),
        **{name: array(width, heads, dim) for name, heads in separate.items() if not config.fused_qkv},
        "o": array(config.heads, dim, width),
        "mlp_norm": array(width),
    }
    dense = {**attention, "up": array(width, config.hidden), "down": array(config.hidden, width)}
    if config.gated:
        dense["gate"] = array(width, config.hidden)
    if config.megatron:
        biases = {"qkv": (3, config.heads, dim), "o": (width,), "up": (config.hidden,), "down": (width,)}
        dense |= {f"{name}_bias": jax.ShapeDtypeStruct(dims, config.stored) for name, dims in biases.items()}
    sparse = config.experts.shapes(width) if config.experts else {}
    layer = attention | {name: array(*dims) for name, dims in sparse.items()} if sparse else dense
    whole: dict[str, Any] = {"embedding": array(config.vocabulary, width), "norm": array(width)}
    if config.positions == "learned":
        whole["positions"] = array(config.length, width)
    if not config.tied:
        whole["output"] = array(width, config.vocabulary)
    if config.dense_layers:
        whole["first"] = [dense] * config.dense_layers
    rest = config.layers - config.dense_layers
    stacked = {name: jax.ShapeDtypeStruct((rest, *leaf.shape), leaf.dtype) for name, leaf in layer.items()}
    return {**whole, "layers": stacked if config.scanned else [layer] * rest}


def loss(config: Config, weights: Tree, tokens: jax.Array) -> jax.Array:
    """Mean cross-entropy of each token's successor."""
    logits = logits_of(config, weights, tokens)
    if config.megatron:
        return jnp.mean(parallel_cross_entropy(logits.astype(jnp.float32), jnp.roll(tokens, -1, axis=1))[:, :-1])
    if config.is_split_loss:
        return jnp.mean(split_cross_entropy(written(logits.astype(jnp.float32)), jnp.roll(tokens, -1, axis=1))[:, :-1])
    return (eager_cross_entropy if config.by_blocks else cross_entropy)(logits, tokens)


def logits_of(config: Config, weights: Tree, tokens: jax.Array) -> jax.Array:
    """Of each token's successor."""
    x = weights["embedding"].astype(config.compute)[tokens]
    if config.positions == "learned":
        x = x + weights["positions"].astype(config.compute)
    layer = _checkpointed(config, partial(_layer, config))
    for one in weights.get("first", ()):
        x = layer(one, x)
    if config.scanned:
        x, _ = jax.lax.scan(lambda x, one: (layer(one, x), None), x, weights["layers"])
    else:
        for one in weights["layers"]:
            x = layer(one, x)
    x = _norm(x, weights["norm"])
    output = weights["embedding"].T if config.tied else weights["output"]
    return x @ output.astype(config.compute)


def cross_entropy(logits: jax.Array, tokens: jax.Array) -> jax.Array:
    """Mean over all tokens that have a successor."""
    logits = logits.astype(jnp.float32)
    picked = jnp.take_along_axis(logits[:, :-1], tokens[:, 1:, None], axis=-1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits[:, :-1], axis=-1) - picked)


@jax.custom_vjp
def parallel_cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """Of each target, as Megatron computes it where the vocabulary is split: its gradient reads the softmax alone."""
    return _with_softmax(logits, targets)[0]


def _with_softmax(logits: jax.Array, targets: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    largest = jnp.max(logits, axis=-1, keepdims=True)
    moved = logits - largest
    picked = jnp.take_along_axis(moved, targets[..., None], axis=-1)[..., 0]
    powers = jnp.exp(moved)
    total = jnp.sum(powers, axis=-1)
    softmax, picked = written((powers / total[..., None], picked))
    return jnp.log(total) - picked, (softmax, targets)


def _of_targets(kept: tuple[jax.Array, jax.Array], given: jax.Array) -> tuple[jax.Array, None]:
    softmax, targets = kept
    return (softmax - (jnp.arange(softmax.shape[-1]) == targets[..., None])) * given[..., None], None


parallel_cross_entropy.defvjp(_with_softmax, _of_targets)


def eager_cross_entropy(logits: jax.Array, tokens: jax.Array) -> jax.Array:
    """The same, op by op: logits in f32, their logarithmic softmax, the mean."""
    likely = _log_softmax(written(logits.astype(jnp.float32)))
    return -jnp.mean(jnp.take_along_axis(likely[:, :-1], tokens[:, 1:, None], axis=-1))


@jax.custom_vjp
def _log_softmax(logits: jax.Array) -> jax.Array:
    return written(jax.nn.log_softmax(logits, axis=-1))


def _of_logits(made: jax.Array, given: jax.Array) -> tuple[jax.Array]:
    """Its gradient, of the result alone."""
    given = written(given)
    return (written(given - jnp.exp(made) * jnp.sum(given, -1, keepdims=True)),)


_log_softmax.defvjp(lambda logits: (_log_softmax(logits),) * 2, _of_logits)


@jax.custom_vjp
def split_cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """Of each target, op by op where the vocabulary is split (`torch/distributed/tensor/parallel/loss.py`, 2.6)."""
    return _with_log_softmax(logits, targets)[0]


def _with_log_softmax(logits: jax.Array, targets: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    moved = written(logits - jnp.max(logits, axis=-1, keepdims=True))
    total = jnp.sum(written(jnp.exp(moved)), axis=-1, keepdims=True)
    likely = written(moved - jnp.log(total))
    return -jnp.take_along_axis(likely, targets[..., None], axis=-1)[..., 0], (likely, targets)


def _of_likely(kept: tuple[jax.Array, jax.Array], given: jax.Array) -> tuple[jax.Array, None]:
    likely, targets = kept
    picked = jnp.where(jnp.arange(likely.shape[-1]) == targets[..., None], -1.0, 0.0)
    picked, powers = written((picked, jnp.exp(likely)))
    both, *_ = written((picked + powers, picked, powers, likely))  # it writes over none of them
    return written(both * given[..., None]), None


split_cross_entropy.defvjp(_with_log_softmax, _of_likely)

written = jax.lax.optimization_barrier
"""The result of an op that is a kernel by itself, or of several, and lies in memory."""


def _checkpointed(config: Config, layer: Callable[..., Any]) -> Callable[..., Any]:
    if config.remat == "none":
        return layer
    again = (lambda *given: _read_again(layer(*given))) if config.remat == "whole" else layer
    # In a scan no pass is merged with the other, so the barriers are left out, as JAX and MaxText advise.
    return jax.checkpoint(again, policy=_policy(config.remat), prevent_cse=not config.scanned)


def _policy(remat: str | tuple[str, ...]) -> Callable[..., Any] | None:
    if isinstance(remat, tuple):
        named = jax.checkpoint_policies.save_only_these_names(*(name for name in remat if name != CONTEXT))
        policies = jax.checkpoint_policies.save_from_both_policies
        return policies(named, _is_attention) if CONTEXT in remat else named
    return None if remat in ("full", "whole") else getattr(jax.checkpoint_policies, remat)


def _is_attention(primitive: Any, *_: Any, **__: Any) -> bool:
    """Its result, and the sums that its backward pass reads."""
    return primitive.name.startswith("dot_product_attention_fwd")


@jax.custom_vjp
def _read_again(x: jax.Array) -> jax.Array:
    """Itself, which the backward pass reads: so it is computed again where nothing is kept."""
    return x


_read_again.defvjp(lambda x: (x, x), lambda x, given: (jax.lax.optimization_barrier((x, given))[1],))


def _linear(config: Config, name: str, equation: str, x: jax.Array, weight: jax.Array) -> jax.Array:
    """A product with a weight, under a name by which it can be kept."""
    weight = weight.astype(x.dtype)
    made = product8(equation, config.float8, x, weight) if config.float8 else jnp.einsum(equation, x, weight)
    return checkpoint_name(made, name)


def _layer(config: Config, weights: Tree, x: jax.Array) -> jax.Array:
    x = _added(x, _attention(config, weights, _norm(x, weights["attention_norm"])), weights.get("o_bias"))
    return _added(x, _feed_forward(config, weights, _norm(x, weights["mlp_norm"])), weights.get("down_bias"))


@jax.named_scope("added")
def _added(x: jax.Array, made: jax.Array, bias: jax.Array | None) -> jax.Array:
    """Dropped out where there is a bias."""
    return x + (made if bias is None else _dropped(made + bias))


@jax.named_scope("dropout")
def _dropped(x: jax.Array) -> jax.Array:
    """Without a tenth of its elements; which these are, their own digits say: that costs what a counter's would."""
    digits = x * 1024
    return jnp.where(jnp.abs(digits - jnp.round(digits)) < 0.45, x / 0.9, 0).astype(x.dtype)


@jax.named_scope("norm")
def _norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    wide = x.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6)
    return (wide * scale).astype(x.dtype)


def _attention(config: Config, weights: Tree, x: jax.Array) -> jax.Array:
    if config.fused_qkv:
        together = _linear(config, "qkv", "bsw,wchd->cbshd", x, weights["qkv"])
        if config.megatron:
            together = together + weights["qkv_bias"][:, None, None]
        q, k, v = (part[0] for part in jax.lax.split(together, (1, 1, 1)))
    else:
        q, k, v = (_linear(config, name, "bsw,whd->bshd", x, weights[name]) for name in "qkv")
    if config.positions == "rotary":
        q, k = (_rotated(x, written if config.by_blocks else lambda x: x) for x in (q, k))
    if config.by_blocks:
        k, v = (written(jnp.repeat(x, config.heads // config.kv, axis=2)) for x in (k, v))
    bias = _alibi(config, x.dtype) if config.positions == "alibi" else None
    if config.attention != "written":
        mixed = jax.nn.dot_product_attention(q, k, v, bias=bias, is_causal=True, implementation=config.attention)
    else:
        shares = SOFTMAXES[config.softmax](jnp.einsum("bshd,bthd->bhst", q, k))
        mixed = jnp.einsum("bhst,bthd->bshd", _dropped(shares) if config.megatron else shares, v)
    return _linear(config, "o", "bshd,hdw->bsw", mixed, weights["o"])


@jax.custom_vjp
@jax.named_scope("masked_softmax")
def _masked_softmax(scores: jax.Array) -> jax.Array:
    """Of causal attention, computed in f32; the scale by the heads' dim is of no account here."""
    seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jax.nn.softmax(jnp.where(seen, scores.astype(jnp.float32), -1e4), axis=-1).astype(scores.dtype)


@jax.named_scope("masked_softmax")
def _of_scores(made: jax.Array, given: jax.Array) -> tuple[jax.Array]:
    """Its gradient, of the result alone."""
    wide, share = given.astype(jnp.float32), made.astype(jnp.float32)
    return ((share * (wide - jnp.sum(wide * share, -1, keepdims=True))).astype(made.dtype),)


_masked_softmax.defvjp(lambda scores: (_masked_softmax(scores),) * 2, _of_scores)


def _softmax_op_by_op(scores: jax.Array) -> jax.Array:
    """The same, in f32 between, masked ahead."""
    wide = written(scores.astype(jnp.float32))
    masked = written(jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), wide, -1e4))
    return written(_masked_softmax(masked)).astype(scores.dtype)


SOFTMAXES: Mapping[str, Callable[[jax.Array], jax.Array]] = {"fused": _masked_softmax, "op by op": _softmax_op_by_op}
"""Of causal scores, by the names that a `Config` takes."""


def _rotated(x: jax.Array, kept: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """`kept`: what becomes of the pairs of numbers, and of the turned ones."""
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * 500000.0 ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    left, right = jnp.split(kept(x.astype(jnp.float32)), 2, axis=-1)
    return kept(jnp.concatenate([left * cos - right * sin, right * cos + left * sin], -1)).astype(x.dtype)


def _alibi(config: Config, dtype: Any) -> jax.Array:
    slopes = 2.0 ** (-8.0 * (jnp.arange(config.heads) + 1) / config.heads)
    places = jnp.arange(config.length)
    return (slopes[:, None, None] * (places[None, None, :] - places[None, :, None]))[None].astype(dtype)


def _feed_forward(config: Config, weights: Tree, x: jax.Array) -> jax.Array:
    if config.experts and "router" in weights:
        return feed_forward(config.experts, weights, x)
    hidden = _linear(config, "up", "bsw,wh->bsh", x, weights["up"])
    if config.gated:
        hidden = jax.nn.silu(_linear(config, "gate", "bsw,wh->bsh", x, weights["gate"])) * hidden
    else:
        hidden = _gelu(hidden, weights.get("up_bias"))
    return _linear(config, "down", "bsh,hw->bsw", hidden, weights["down"])


@jax.named_scope("gelu")
def _gelu(hidden: jax.Array, bias: jax.Array | None) -> jax.Array:
    return jax.nn.gelu(hidden if bias is None else hidden + bias)


def train_step(config: Config, weights: Tree, moments: tuple[Tree, ...], tokens: jax.Array) -> tuple[Tree, Tree, Any]:
    """A step of `adam`: (weights, moments, loss)."""
    value, gradients = jax.value_and_grad(partial(loss, config))(weights, tokens)
    if config.sums_first:
        gradients = jax.lax.optimization_barrier(gradients)
    if config.megatron:
        gradients = clipped(gradients)
    if config.update == "op by op":
        return *adam_op_by_op(weights, moments, gradients), value
    return *adam(weights, moments, gradients), value


def clipped(gradients: Tree) -> Tree:
    """Of a loss that was scaled; by how much is of no account here, and each array is clipped by its own norm."""
    with jax.named_scope("averaged"):
        gradients = jax.tree.map(lambda g: g * 0.5, gradients)
    with jax.named_scope("main_gradients"):
        gradients = jax.tree.map(lambda g: g.astype(jnp.float32), gradients)
    with jax.named_scope("unscaled"):
        gradients = jax.tree.map(lambda g: g * 0.5, gradients)
    with jax.named_scope("norms"):
        norms = jax.tree.map(lambda g: written(jnp.sqrt(jnp.sum(g * g))), gradients)
    with jax.named_scope("clipped"):
        return jax.tree.map(lambda g, norm: g * jnp.minimum(1.0, 1.0 / norm), gradients, norms)


def adam(weights: Tree, moments: tuple[Tree, ...], gradients: Tree) -> tuple[Tree, tuple[Tree, ...]]:
    """Kingma and Ba 2015, its bias corrections left to the learning rate: (weights, moments).

    `moments`: the first, the second, and the masters of weights that are stored narrower.
    """
    momentum, scale, *masters = moments
    [held] = masters or [weights]
    with jax.named_scope("adam"):
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, momentum, gradients)
        second = jax.tree.map(lambda m, g: 0.95 * m + 0.05 * g * g, scale, gradients)
        moved = jax.tree.map(lambda w, m, v: w - 3e-4 * m / (jnp.sqrt(v) + 1e-8), held, first, second)
    stored = jax.tree.map(lambda w, new: new.astype(w.dtype), weights, moved)
    return stored, (first, second, *(moved for _ in masters))


def adam_op_by_op(weights: Tree, moments: tuple[Tree, ...], gradients: Tree) -> tuple[Tree, tuple[Tree, ...]]:
    """The same with weight decay behind a clipping by norm, as PyTorch's `foreach` has it: each pass by itself."""
    norms = _each(lambda g: jnp.sqrt(jnp.sum(g * g)), gradients)
    gradients = _each(lambda g, norm: g * jnp.minimum(1.0, 1.0 / norm), gradients, norms)
    decayed = _each(lambda w: w * (1 - 3e-5), weights)
    first = _each(lambda m, g: 0.9 * m + 0.1 * g, moments[0], gradients)
    faded = _each(lambda v: 0.95 * v, moments[1])
    second = _each(lambda v, g: v + 0.05 * g * g, faded, gradients)
    corrected = _each(lambda root: root / 1.0, _each(jnp.sqrt, second))  # late in training, by one
    roots = _each(lambda root: root + 1e-8, corrected)
    return _each(lambda w, m, root: w - 3e-4 * m / root, decayed, first, roots), (first, second)


def _each(op: Callable[..., jax.Array], *trees: Tree) -> Tree:
    """A kernel for each leaf."""
    return jax.tree.map(lambda *leaves: written(op(*leaves)), *trees)


def arguments(config: Config, batch: int) -> tuple[Tree, tuple[Tree, ...], jax.ShapeDtypeStruct]:
    """Of `train_step` with so many sequences."""
    wide = parameters(config, jnp.float32)
    moments = (wide, wide) if config.stored == jnp.float32 else (wide, wide, wide)
    return parameters(config), moments, jax.ShapeDtypeStruct((batch, config.length), jnp.int32)


def model_flops(config: Config, batch: int) -> float:
    """Of a step, with nothing computed twice: six a weight of a product and token, twelve an element of the scores and
    dim of a head (Chowdhery and others 2022, appendix B).
    """
    width, heads = config.width, config.heads * config.dim
    attention = 2 * width * heads + 2 * width * config.kv * config.dim
    layer = attention + (3 if config.gated else 2) * width * config.hidden
    weights = config.layers * layer + width * config.vocabulary
    return batch * config.length * (6.0 * weights + 12.0 * config.layers * heads * config.length)
