"""The best plans of the DistIR paper's tables 2 and 3 (16 V100s), found by `hs.search` on ordinary JAX functions.

`python -m benchmarks.paper_plans [PART-OF-A-NAME ...] [--only-stated] [--jobs 1]`.  One machine profile for all rows;
every plan of the paper's grid is priced, a model's batch sizes in one search.  Beside the paper's best plan stand its
rank in our table and our first three.  DistIR needs 78 s of a core for the 75 plans of MLP 1B at one batch size, 8.6
hours for the 1,035 of GPT-2 1.6B.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

import hlosharding as hs
from benchmarks.verdict import finish, judged
from hlosharding.cost import machines

DEVICES, MOST_RANK, VOCABULARY = 16, 10, 50257


@dataclass(frozen=True)
class Workload:
    """A model of the paper, with its best plan for some batch sizes."""

    name: str
    step: Callable[..., Any]
    arguments: tuple[Any, ...]
    """Of one batch size."""
    batch: tuple[str, ...]
    sizes: tuple[int, ...]
    """The grid's batch sizes."""
    best: Mapping[int, str]
    """What tables 2 and 3 of the paper say."""


def mlp(name: str, layers: int, width: int, sizes: Sequence[int], best: Mapping[int, str]) -> Workload:
    """A training step of a perceptron in half precision."""
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

    w, x = (jax.ShapeDtypeStruct(dims, jnp.float16) for dims in ((width, width), (sizes[0], width)))
    return Workload(name, step, ([w] * layers, x, x), ("x", "y"), tuple(sizes), best)


def gpt2(
    name: str, layers: int, width: int, heads: int, sizes: Sequence[int], best: Mapping[int, str], length: int = 8
) -> Workload:
    """Inference, the sequence as long as in the authors' code."""
    import jax
    import jax.numpy as jnp

    def norm(x: Any, scale: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5) * scale

    def attention(layer: Any, x: Any) -> Any:
        batch = x.shape[0]
        q, k, v = ((x @ layer[n]).reshape(batch, length, heads, -1).transpose(0, 2, 1, 3) for n in ("q", "k", "v"))
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
    dims = dict.fromkeys("qkvo", (width, width)) | {"up": (width, 4 * width), "down": (4 * width, width)}
    layer = {key: jax.ShapeDtypeStruct(size, half) for key, size in dims.items()}
    layer |= {key: jax.ShapeDtypeStruct((width,), half) for key in ("scale1", "scale2")}
    weights = {
        "tokens": jax.ShapeDtypeStruct((VOCABULARY, width), half),
        "places": jax.ShapeDtypeStruct((length, width), half),
        "scale": jax.ShapeDtypeStruct((width,), half),
        "layers": [layer] * layers,
    }
    tokens = jax.ShapeDtypeStruct((sizes[0], length), jnp.int32)
    return Workload(name, model, (weights, tokens), ("tokens",), tuple(sizes), best)


def _alike(plan: str, *batches: int) -> dict[int, str]:
    return dict.fromkeys(batches, plan)


def _powers(first: int, last: int) -> list[int]:
    return [2**n for n in range(first, last + 1)]


WORKLOADS: Mapping[str, Callable[[], Workload]] = {
    "MLP 1B": lambda: mlp(
        "MLP 1B",
        16,
        8192,
        _powers(7, 18),
        _alike("1/16/1/1", 128, 256, 512, 1024)
        | {2048: "2/8/1/1"}
        | _alike("4/4/1/1", 4096, 8192)
        | _alike("8/2/1/1", 16384, 32768)
        | _alike("16/1/1/1", 65536, 131072, 262144),
    ),
    "MLP 17B": lambda: mlp(
        "MLP 17B",
        64,
        16384,
        _powers(7, 17),
        _alike("1/16/1/1", 128, 256, 512, 1024, 2048)
        | {4096: "2/8/1/1", 32768: "2/4/2/8", 65536: "4/2/2/8", 131072: "4/2/2/32"}
        | _alike("4/4/1/1", 8192, 16384),
    ),
    "MLP 103B": lambda: mlp("MLP 103B", 96, 32768, _powers(7, 10), _alike("1/16/1/1", 128, 256, 512, 1024)),
    "GPT-2 1.6B": lambda: gpt2("GPT-2 1.6B", 24, 2048, 32, _powers(7, 20), {32768: "16/1/1/1"}),
    "GPT-2 13B": lambda: gpt2("GPT-2 13B", 40, 5120, 40, _powers(7, 20), {16384: "16/1/1/1"}),
    "GPT-2 175B": lambda: gpt2("GPT-2 175B", 96, 12288, 96, _powers(7, 20), {1024: "1/8/2/2"}),
}


def main() -> None:
    """Print the table; fail where the paper's plan is not among our first ten."""
    parser = argparse.ArgumentParser(description="The DistIR paper's best plans, found again.")
    parser.add_argument("names", nargs="*", help="parts of names; all models without any")
    parser.add_argument(
        "--only-stated", action="store_true", help="batch sizes of which the paper states the best plan"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes that price")
    options = parser.parse_args()
    columns = (
        "model",
        "batch",
        "paper's best",
        "its rank",
        "its time / our first's",
        "our first three",
        "plans that fit",
    )
    plans = Table(*columns, title="The best plans for 16 V100s")
    figures = "plans", "fit", "CPU seconds", "plans a CPU second", "seconds", "memory, GB"
    grids = Table("model", *figures, title="Whole grids")
    kept: list[bool] = []
    for name, made in WORKLOADS.items():
        if not options.names or any(part in name for part in options.names):
            kept += _rows(plans, grids, made(), only_stated=options.only_stated, jobs=options.jobs)
            plans.add_section()
    Console().print(grids)
    finish(plans, kept)


def _rows(plans: Table, grids: Table, workload: Workload, *, only_stated: bool, jobs: int) -> list[bool]:
    start, began = _cpu_seconds(), time.perf_counter()
    found = hs.search(
        workload.step,
        *workload.arguments,
        batch=workload.batch,
        machine=machines.dgx2_v100(DEVICES),
        donate=("weights",) if len(workload.batch) > 1 else (),
        batch_sizes=sorted(workload.best) if only_stated else workload.sizes,
        prune=False,
        keep=0,
        jobs=jobs,
    )
    seconds, waited = _cpu_seconds() - start, time.perf_counter() - began
    fitting = sum(priced.fits for priced in found.table)
    memory = max(resource.getrusage(who).ru_maxrss for who in _PROCESSES) / 1e6
    count = len(found.table)
    rates = f"{seconds:.0f}", f"{count / seconds:.1f}", f"{waited:.0f}"
    grids.add_row(workload.name, f"{count}", f"{fitting}", *rates, f"{memory:.1f}")
    return [_row(plans, workload, found, batch, best) for batch, best in workload.best.items()]


_PROCESSES = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN


def _cpu_seconds() -> float:
    """Of this process, and of those that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in _PROCESSES)


def _row(table: Table, workload: Workload, found: hs.SearchResult, batch: int, best: str) -> bool:
    times = {str(each.plan): each.time_s for each in found.table if each.fits and each.batch_size == batch}
    order = list(times)
    rank = order.index(best) + 1 if best in order else len(order) + 1
    share = f"{times[best] / times[order[0]]:.3f}" if best in order else "does not fit"
    cell, good = judged(rank, MOST_RANK)
    table.add_row(workload.name, f"{batch:,}", best, cell, share, "  ".join(order[:3]), str(len(order)))
    return good


if __name__ == "__main__":
    main()
