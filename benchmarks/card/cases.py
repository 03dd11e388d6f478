"""What one card is asked to do: products, attention, what only moves bytes, training steps, a rank of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import ShapeDtypeStruct as Struct

import hlosharding as hs
from benchmarks.card.lone_rank import ranks
from benchmarks.published.transformer import LLAMA_8B, Config, adam, arguments, cross_entropy, train_step


@dataclass(frozen=True)
class Case:
    """A function with the shapes that it takes, or a module for one device."""

    family: str
    name: str
    function: Callable[..., Any] | None = field(default=None, compare=False)
    shapes: tuple[Any, ...] = field(default=(), compare=False)
    ready: Callable[[], hs.Module] | None = field(default=None, compare=False)
    """In place of the function."""

    def module(self) -> hs.Module:
        """What is priced."""
        if self.ready:
            return self.ready()
        assert self.function is not None
        traced = hs.trace(self.function, platform="cuda")(*self.shapes)
        return hs.partition(traced, num_partitions=1).module


def cases() -> Iterator[Case]:
    """All, in the order of the table."""
    yield from _products()
    yield from _attention()
    yield from _streams()
    yield from _steps()
    for name, module in ranks():
        yield Case("rank of 512", name, ready=module)


def _products() -> Iterator[Case]:
    squares = [(1, size, size, size, "bfloat16") for size in (256, 512, 1024, 2048, 4096, 8192, 16384)]
    squares += [(1, size, size, size, dtype) for dtype in ("float16", "float32") for size in (1024, 4096, 8192)]
    layers = [(1, rows, width, out * width, "bfloat16") for rows in (2048, 16384) for width, out in _LAYERS]
    # A layer's part under eight tensor ways, forward and back to the weights.
    parts = [(1, 4096, 4096, 512, "bfloat16"), (1, 4096, 512, 4096, "bfloat16"), (1, 4096, 4096, 1792, "bfloat16")]
    parts += [(1, 4096, 8192, 512, "bfloat16"), (1, 8192, 2048, 1536, "bfloat16"), (1, 12288, 2048, 6144, "bfloat16")]
    scores = [(64, 2048, 128, 2048, "bfloat16"), (64, 2048, 2048, 128, "bfloat16"), (128, 1024, 64, 1024, "bfloat16")]
    for batch, rows, depth, columns, dtype in squares + layers + parts + scores:
        shapes = Struct((batch, rows, depth), dtype), Struct((batch, depth, columns), dtype)
        yield Case("product", f"{dtype}[{batch},{rows},{depth}] x [{depth},{columns}]", jnp.matmul, shapes)


_LAYERS = ((1024, 1), (1024, 4), (2048, 4), (4096, 1), (4096, 3), (4096, 4))


def _attention() -> Iterator[Case]:
    sizes = [(8, 1024, 16, 16, 64), (4, 2048, 16, 16, 128), (2, 4096, 32, 32, 128), (1, 8192, 32, 8, 128)]
    for kind in ("cudnn", "xla"):
        for batch, length, heads, shared, dim in sizes[: 4 if kind == "cudnn" else 2]:
            name = f"{kind} [{batch},{length},{heads}/{shared},{dim}]"
            q, k = (Struct((batch, length, count, dim), jnp.bfloat16) for count in (heads, shared))
            mixed = partial(jax.nn.dot_product_attention, is_causal=True, implementation=kind)
            yield Case("attention", f"{name} forward", mixed, (q, k, k))
            yield Case("attention", f"{name} forward and back", _with_gradients(mixed), (q, k, k, q))


def _with_gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    def both(*given: Any) -> Any:
        *primals, cotangent = given
        result, back = jax.vjp(function, *primals)
        return result, back(cotangent)

    return both


def _streams() -> Iterator[Case]:
    for megabytes in (64, 256, 1024):
        yield Case("stream", f"x / 2 + 1, {megabytes} MiB", _scaled, (Struct((megabytes * 2**18,), jnp.float32),))
    rows, wide = Struct((16384, 4096), jnp.bfloat16), Struct((16384, 4096), jnp.float32)
    scale = Struct((4096,), jnp.float32)
    yield Case("stream", "norm of 16384 rows of 4096", _norm, (rows, scale))
    yield Case("stream", "norm of 16384 rows of 4096, and back", _with_gradients(_norm), (rows, scale, rows))
    yield Case("stream", "gelu of 16384 x 16384, and back", _with_gradients(jax.nn.gelu), (_SQUARE, _SQUARE))
    yield Case("stream", "softmax of 65536 rows of 2048", jax.nn.softmax, (Struct((65536, 2048), jnp.bfloat16),))
    yield Case("stream", "sum over 16384 rows of 4096", lambda x: x.sum(0), (wide,))
    yield Case("stream", "transposed 16384 x 4096", lambda x: x.T + 1, (wide,))
    yield Case("stream", "Adam, 2^28 weights", adam, (_WEIGHTS, (_WEIGHTS, _WEIGHTS), _WEIGHTS))
    logits, tokens = Struct((4, 2048, 50304), jnp.bfloat16), Struct((4, 2048), jnp.int32)
    loss = jax.value_and_grad(cross_entropy)
    yield Case("stream", "cross-entropy of 8192 x 50304, and back", loss, (logits, tokens))
    table, picked = Struct((50304, 4096), jnp.float32), Struct((8, 2048), jnp.int32)
    yield Case("stream", "16384 rows of a table of 50304 x 4096", lambda table, at: table[at], (table, picked))
    yield Case("stream", "their gradient", _scattered, (Struct((8, 2048, 4096), jnp.bfloat16), picked))


_SQUARE = Struct((16384, 16384), jnp.bfloat16)
_WEIGHTS = Struct((2**14, 2**14), jnp.float32)


def _scaled(x: jax.Array) -> jax.Array:
    return x * 0.5 + 1


def _norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6) * scale).astype(x.dtype)


def _scattered(gradient: jax.Array, picked: jax.Array) -> jax.Array:
    return jnp.zeros((50304, 4096), gradient.dtype).at[picked].add(gradient)


_GPT = Config(layers=12, width=768, heads=12, vocabulary=50304, length=1024, hidden=3072, remat="none")
_LLAMA = replace(LLAMA_8B, layers=4, vocabulary=32000, length=4096)


def _steps() -> Iterator[Case]:
    full = replace(_GPT, remat="full")
    for name, config, batch in (
        ("GPT 125M, 8 x 1024 tokens", _GPT, 8),
        ("GPT 125M, 8 x 1024 tokens, computed again", full, 8),
        ("GPT 125M, 32 x 1024 tokens, computed again, listed", full.listed(), 32),
        ("four layers of Llama 8B, 2 x 4096 tokens", _LLAMA, 2),
        ("the same, cuDNN's attention", replace(_LLAMA, attention="cudnn"), 2),
    ):
        yield Case("step", name, partial(train_step, config), arguments(config, batch))
