"""The best plans of the DistIR paper's tables 2 and 3 (16 V100s), found by `hs.search` on ordinary JAX functions.

`python -m benchmarks.paper_plans [PART-OF-A-NAME ...] [--batches N]`.  One machine profile for all rows; every plan of
the paper's grid is priced.  Beside the paper's best plan stand its rank in our table and our first three.  `seconds` is
what pricing the grid took, against DistIR's 78 s for 75 plans of MLP 1B on one core.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich.table import Table

import hlosharding as hs
from benchmarks.verdict import finish, judged
from hlosharding.cost import machines

DEVICES, MOST_RANK = 16, 10


@dataclass(frozen=True)
class Workload:
    """A model of the paper, with its best plan for each batch size."""

    name: str
    step: Callable[[int], hs.Module]
    """Traced for a batch size."""
    batch: tuple[str, ...]
    best: dict[int, str]


def mlp(layers: int, width: int) -> Callable[[int], hs.Module]:
    """A training step of a perceptron in half precision."""

    def traced(batch: int) -> hs.Module:
        import jax
        import jax.numpy as jnp

        def step(weights: Any, x: Any, y: Any) -> Any:
            def loss(weights: Any) -> Any:
                h = x
                for w in weights:
                    h = jax.nn.relu(h @ w)
                return jnp.mean((h - y) ** 2, dtype=jnp.float32)

            gradients = jax.grad(loss)(weights)
            return [w - jnp.asarray(0.1, w.dtype) * g for w, g in zip(weights, gradients, strict=True)]

        w, x = (jax.ShapeDtypeStruct(size, jnp.float16) for size in ((width, width), (batch, width)))
        return hs.trace(step)([w] * layers, x, x)

    return traced


def gpt2(layers: int, width: int, heads: int, length: int = 8, vocabulary: int = 50257) -> Callable[[int], hs.Module]:
    """Inference, the sequence as long as in the authors' code."""

    def traced(batch: int) -> hs.Module:
        import jax
        import jax.numpy as jnp

        def norm(x: Any, scale: Any) -> Any:
            centred = x - x.mean(-1, keepdims=True)
            return centred * jax.lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5) * scale

        def attention(layer: Any, x: Any) -> Any:
            q, k, v = (
                (x @ layer[name]).reshape(batch, length, heads, -1).transpose(0, 2, 1, 3) for name in ("q", "k", "v")
            )
            scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), q @ k.swapaxes(-1, -2), -1e4)
            mixed = (jax.nn.softmax(scores, -1) @ v).transpose(0, 2, 1, 3).reshape(batch, length, width)
            return mixed @ layer["o"]

        def model(weights: Any, tokens: Any) -> Any:
            x = weights["tokens"][tokens] + weights["places"]
            for layer in weights["layers"]:
                x = x + attention(layer, norm(x, layer["scale1"]))
                x = x + jax.nn.gelu(norm(x, layer["scale2"]) @ layer["up"]) @ layer["down"]
            return norm(x, weights["scale"])

        half = jnp.float16
        sizes = dict.fromkeys("qkvo", (width, width)) | {"up": (width, 4 * width), "down": (4 * width, width)}
        layer = {name: jax.ShapeDtypeStruct(size, half) for name, size in sizes.items()}
        layer |= {name: jax.ShapeDtypeStruct((width,), half) for name in ("scale1", "scale2")}
        weights = {
            "tokens": jax.ShapeDtypeStruct((vocabulary, width), half),
            "places": jax.ShapeDtypeStruct((length, width), half),
            "scale": jax.ShapeDtypeStruct((width,), half),
            "layers": [layer] * layers,
        }
        return hs.trace(model)(weights, jax.ShapeDtypeStruct((batch, length), jnp.int32))

    return traced


def _alike(plan: str, *batches: int) -> dict[int, str]:
    return dict.fromkeys(batches, plan)


WORKLOADS = (
    Workload(
        "MLP 1B",
        mlp(16, 8192),
        ("x", "y"),
        _alike("1/16/1/1", 128, 256, 512, 1024)
        | {2048: "2/8/1/1"}
        | _alike("4/4/1/1", 4096, 8192)
        | _alike("8/2/1/1", 16384, 32768)
        | _alike("16/1/1/1", 65536, 131072, 262144),
    ),
    Workload(
        "MLP 17B",
        mlp(64, 16384),
        ("x", "y"),
        _alike("1/16/1/1", 128, 256, 512, 1024, 2048)
        | {4096: "2/8/1/1", 32768: "2/4/2/8", 65536: "4/2/2/8", 131072: "4/2/2/32"}
        | _alike("4/4/1/1", 8192, 16384),
    ),
    Workload("MLP 103B", mlp(96, 32768), ("x", "y"), _alike("1/16/1/1", 128, 256, 512, 1024)),
    Workload("GPT-2 1.6B", gpt2(24, 2048, 32), ("tokens",), {32768: "16/1/1/1"}),
    Workload("GPT-2 13B", gpt2(40, 5120, 40), ("tokens",), {16384: "16/1/1/1"}),
    Workload("GPT-2 175B", gpt2(96, 12288, 96), ("tokens",), {1024: "1/8/2/2"}),
)


def main() -> None:
    """Print the table; fail where the paper's plan is not among our first ten."""
    parser = argparse.ArgumentParser(description="The DistIR paper's best plans, found again.")
    parser.add_argument("names", nargs="*", help="parts of names; all models without any")
    parser.add_argument("--batches", type=int, help="of each model the first so many")
    options = parser.parse_args()
    columns = "model", "batch", "paper's best", "its rank", "our first three", "plans", "seconds"
    table = Table(*columns, title="The best plans for 16 V100s")
    kept: list[bool] = []
    for workload in WORKLOADS:
        if not options.names or any(part in workload.name for part in options.names):
            for batch, best in list(workload.best.items())[: options.batches]:
                kept.append(_row(table, workload, batch, best))
            table.add_section()
    finish(table, kept)


def _row(table: Table, workload: Workload, batch: int, best: str) -> bool:
    module = workload.step(batch)
    start = time.perf_counter()
    found = hs.search(module, batch=workload.batch, machine=machines.dgx2_v100(DEVICES), prune=False)
    seconds = time.perf_counter() - start
    order = [str(priced.plan) for priced in found.table if priced.fits]
    rank = order.index(best) + 1 if best in order else len(order) + 1
    cell, good = judged(rank, MOST_RANK)
    count = f"{len(found.table)}, {len(order)} fit"
    table.add_row(workload.name, f"{batch:,}", best, cell, "  ".join(order[:3]), count, f"{seconds:.1f}")
    return good


if __name__ == "__main__":
    main()
