"""Chains of two to four ops and their gradients: bytes against the best of all splits of all ops together.

`python -m benchmarks.chains [COUNT] [--seed N] [--objective O] [--without-xla]`.  Dots through elementwise ops,
attention, batched dots and residuals, with random shardings of the arguments and of the result (a gradient lies as its
argument); nothing between is annotated.  The brute force (`least_program.py`) splits every op in every way and puts
every value between into every sharding; its contractions do no more work than those of the program that is judged.
Live XLA, with GSPMD and with Shardy, partitions the same programs in the same run.  Chain 17 alone is `1 --seed 17`.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from rich.progress import track
from rich.table import Table

from benchmarks.axis_splits import MESHES, MOST_DEVICES, Assignment, bytes_of_xla, in_jax, random_spec, ratio_of_sums
from benchmarks.min_sum import TooLargeError
from benchmarks.verdict import finish, judged

SIZES = (16, 48, 64, 256, 1024, 4096)
MOST_ELEMENTS = 1 << 26
SUM_LIMIT = 1.05
SHOWN, SHOWN_ABOVE = 12, 1.05
WHO = ("ours", "GSPMD", "Shardy")


@dataclass(frozen=True, slots=True)
class Chain:
    """A function of arrays whose dims are letters, and its shardings."""

    seed: int
    name: str
    text: str
    function: Callable[..., Any]
    arguments: tuple[tuple[int, ...], ...]
    """The shape of each."""
    num_results: int
    mesh: tuple[int, ...]
    specs: tuple[Assignment, ...]
    """Of the arguments, then of the results."""

    @property
    def given(self) -> tuple[Assignment, ...]:
        """Shardings of the arguments."""
        return self.specs[: len(self.arguments)]

    @property
    def wanted(self) -> tuple[Assignment, ...]:
        """Shardings of the results."""
        return self.specs[len(self.arguments) :]


# ---- what is drawn


def random_chain(seed: int) -> Chain:
    """A chain, or its gradient with respect to every argument, on some mesh."""
    random = Random(seed)
    name = random.choice(sorted(_DRAWS))
    text, function, letters, result = _DRAWS[name](random)
    mesh = random.choice(MESHES)
    while True:
        sizes = {letter: random.choice(SIZES) for letter in sorted(set("".join((*letters, result))))}
        tensors = [tuple(sizes[c] for c in t) for t in (*letters, result)]
        if max(map(math.prod, _all_tensors(text, sizes))) <= MOST_ELEMENTS:
            break
    text += f" {sizes}"
    if random.random() < 0.5:
        specs = [random_spec(random, len(t), len(mesh)) for t in tensors]
        return Chain(seed, name, text, function, tuple(tensors[:-1]), 1, mesh, tuple(specs))
    specs = [random_spec(random, len(t), len(mesh)) for t in tensors]
    gradient = _gradient(function, len(letters))
    return Chain(seed, f"{name}, gradient", text, gradient, tuple(tensors), len(letters), mesh, (*specs, *specs[:-1]))


def _gradient(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    import jax

    def gradient(*arguments: Any) -> Any:
        return jax.vjp(function, *arguments[:count])[1](arguments[count])

    return gradient


Drawn = tuple[str, Callable[..., Any], tuple[str, ...], str]
"""In words, the function, its arguments' dims, its result's."""


def _all_tensors(text: str, sizes: dict[str, int]) -> Iterator[tuple[int, ...]]:
    for part in text.replace("->", ",").replace(";", ",").split(","):
        letters = part.strip().split(" ")[0]
        if letters and all(c in sizes for c in letters):
            yield tuple(sizes[c] for c in letters)


def _acts() -> dict[str, Callable[[Any], Any]]:
    """Of primitives alone: the brute force reads one computation."""
    import jax

    return {"tanh": jax.lax.tanh, "gelu": lambda x: x * jax.lax.logistic(1.702 * x), "scaled": lambda x: x * 0.125}


def _softmax(scores: Any) -> Any:
    import jax

    raised = jax.lax.exp(scores - jax.lax.stop_gradient(scores.max(-1, keepdims=True)))
    return raised / raised.sum(-1, keepdims=True)


def _einsum(text: str) -> Callable[..., Any]:
    import jax.numpy as jnp

    return lambda *arrays: jnp.einsum(text, *arrays)


def _two_dots(random: Random) -> Drawn:
    act = random.choice(sorted(_acts()))
    inner, f = (_einsum(t) for t in ("mk,kf->mf", "mf,fn->mn")), _acts()[act]
    first, second = inner
    return f"mk,kf->mf; {act}; mf,fn->mn", lambda x, w, v: second(f(first(x, w)), v), ("mk", "kf", "fn"), "mn"


def _three_dots(random: Random) -> Drawn:
    names = [random.choice(sorted(_acts())) for _ in range(2)]
    f, g = (_acts()[n] for n in names)
    a, b, c = (_einsum(t) for t in ("mk,kf->mf", "mf,fg->mg", "mg,gn->mn"))
    text = f"mk,kf->mf; {names[0]}; mf,fg->mg; {names[1]}; mg,gn->mn"
    return text, lambda x, u, v, w: c(g(b(f(a(x, u)), v)), w), ("mk", "kf", "fg", "gn"), "mn"


def _residual(random: Random) -> Drawn:
    act = random.choice(sorted(_acts()))
    f, (a, b) = _acts()[act], (_einsum(t) for t in ("mk,kf->mf", "mf,fk->mk"))
    return f"mk,kf->mf; {act}; mf,fk->mk; + mk", lambda x, w, v: x + b(f(a(x, w)), v), ("mk", "kf", "fk"), "mk"


def _batched(random: Random) -> Drawn:
    act = random.choice(sorted(_acts()))
    f, (a, b) = _acts()[act], (_einsum(t) for t in ("bmk,bkf->bmf", "bmf,bfn->bmn"))
    return (
        f"bmk,bkf->bmf; {act}; bmf,bfn->bmn",
        lambda x, w, v: b(f(a(x, w)), v),
        ("bmk", "bkf", "bfn"),
        "bmn",
    )


def _tokens(random: Random) -> Drawn:
    act = random.choice(sorted(_acts()))
    f, (a, b) = _acts()[act], (_einsum(t) for t in ("btk,kf->btf", "btf,fn->btn"))
    return f"btk,kf->btf; {act}; btf,fn->btn", lambda x, w, v: b(f(a(x, w)), v), ("btk", "kf", "fn"), "btn"


def _attention(random: Random) -> Drawn:
    heads = random.choice(("h", ""))
    texts = [t.replace("h", heads) for t in ("bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd")]
    scores, values = (_einsum(t) for t in texts)
    q, k = ("bqhd".replace("h", heads), "bkhd".replace("h", heads))
    return (
        f"{texts[0]}; softmax; {texts[1]}",
        lambda x, y, z: values(_softmax(scores(x, y) * 0.125), z),
        (q, k, k),
        q,
    )


def _projected(random: Random) -> Drawn:
    """A value that two dots read, and the sum of both."""
    act = random.choice(sorted(_acts()))
    f, (a, b) = _acts()[act], (_einsum(t) for t in ("mk,kf->mf", "mf,fn->mn"))
    text = f"mk,kf->mf; * {act} of mk,kf->mf; mf,fn->mn"
    return text, lambda x, u, v, w: b(a(x, u) * f(a(x, v)), w), ("mk", "kf", "kf", "fn"), "mn"


_DRAWS: dict[str, Callable[[Random], Drawn]] = {
    "two dots": _two_dots,
    "three dots": _three_dots,
    "residual": _residual,
    "gated": _projected,
    "batched dots": _batched,
    "tokens": _tokens,
    "attention": _attention,
}


# ---- what is measured


def measured(chain: Chain, options: argparse.Namespace) -> dict[str, Any]:
    """Our bytes (of the objective "time": seconds in collectives), the least, and XLA's bytes."""
    import jax

    import hlosharding as hs
    from benchmarks.least_program import Program
    from hlosharding.partitioner import PartitionOptions

    mesh, specs = in_jax(chain.mesh, chain.specs)
    arguments = [jax.ShapeDtypeStruct(shape, np.float32) for shape in chain.arguments]
    given, out = tuple(specs[: len(arguments)]), tuple(specs[len(arguments) :])
    wanted: Any = out[0] if len(out) == 1 else out
    module = hs.trace(chain.function, mesh=mesh, in_shardings=given, out_shardings=wanted)(*arguments)
    started = time.perf_counter()
    # Each collective alone, as the brute force prices them.
    ours = hs.cost(hs.partition(module, options=PartitionOptions(objective=options.objective)), combine=False)
    work = ours.by_opcode["dot"].flops / hs.cost(module).by_opcode["dot"].flops
    row: dict[str, Any] = {
        "chain": chain,
        "ours": ours.comm_s if options.objective == "time" else ours.comm_bytes,
        "work": work,
    }
    row["seconds"] = time.perf_counter() - started
    program = Program(module, chain.mesh, chain.given, chain.wanted, options.objective)
    row["least"], row["states"] = program.least(work)
    row["brute_seconds"] = time.perf_counter() - started - row["seconds"]
    if not options.without_xla:
        for name, shardy in (("GSPMD", False), ("Shardy", True)):
            row[name] = bytes_of_xla(chain.function, arguments, mesh, given, wanted, shardy=shardy)
    return row


def main() -> None:
    """Draw, measure, print."""
    parser = argparse.ArgumentParser(description="Chains of ops between random shardings.")
    parser.add_argument("count", nargs="?", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--objective", choices=("bytes", "time"), default="bytes")
    parser.add_argument("--without-xla", action="store_true")
    options = parser.parse_args()
    options.without_xla |= options.objective == "time"
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={MOST_DEVICES}"
    rows, left_out = list[dict[str, Any]](), list[str]()
    for chain in track([random_chain(options.seed + n) for n in range(options.count)], "chains"):
        try:
            rows.append(measured(chain, options))
        except TooLargeError as error:
            left_out.append(f"left out, {error}: {_told(chain)}")
    _print(rows, left_out, "Seconds in collectives" if options.objective == "time" else "Bytes")


def _print(rows: Sequence[dict[str, Any]], left_out: Sequence[str], what: str) -> None:
    for line in left_out:
        print(line)
    for row in sorted(rows, key=lambda row: -_ratio(row))[:SHOWN]:
        if _ratio(row) > SHOWN_ABOVE:
            print(f"{_ratio(row):.2f} ({row['ours']:.4g} for {row['least']:.4g}): {_told(row['chain'])}")
            print(f"    best: {row['states']}")
            print(f"    part of the work of the contractions: {row['work']:.3f}")
    table = Table("chain", "number", *WHO, "above 1.05", "below", title=f"{what} against brute force, sums")
    for name in sorted({row["chain"].name for row in rows}):
        table.add_row(*_row(name, [row for row in rows if row["chain"].name == name]))
    table.add_section()
    table.add_row(*_row("all", rows))
    text, kept = judged(_sum_ratio(rows, "ours"), SUM_LIMIT)
    table.caption = f"sum {text}"
    finish(table, [kept])


def _told(chain: Chain) -> str:
    return f"chain {chain.seed}, {chain.name}: {chain.text} mesh {chain.mesh} {chain.specs}"


def _least(row: dict[str, Any]) -> float:
    """Where ours is below the brute force, which lets no sum wait, ours is the yardstick."""
    return min(row["least"], row["ours"])


def _ratio(row: dict[str, Any]) -> float:
    least = _least(row)
    return row["ours"] / least if least else (1.0 if not row["ours"] else math.inf)


def _sum_ratio(rows: Sequence[dict[str, Any]], who: str) -> float:
    return ratio_of_sums((row[who], _least(row)) for row in rows)


def _row(name: str, rows: Sequence[dict[str, Any]]) -> list[str]:
    sums = [f"{_sum_ratio(rows, who):.3f}" if who in rows[0] else "" for who in WHO]
    above = sum(_ratio(row) > SHOWN_ABOVE for row in rows)
    below = sum(row["ours"] < row["least"] * 0.999 for row in rows)
    return [name, str(len(rows)), *sums, str(above), str(below)]


if __name__ == "__main__":
    main()
