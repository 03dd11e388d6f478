"""Single ops between random shardings: bytes against the best of all ways to put mesh axes on the op's dims.

`python -m benchmarks.op_choice [COUNT] [--seed N] [--objective O] [--without-xla]`.  The brute force tries, for each
axis of the mesh, each dim of the op's iteration space and none, in every order of axes on one dim; it adds up the least
bytes that bring operands and result into place, and counts only what repeats no more work than the program that is
judged.  Live XLA, with GSPMD and with Shardy, partitions the same ops in the same run.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from rich.progress import track
from rich.table import Table

from benchmarks.axis_splits import (
    MESHES,
    MOST_DEVICES,
    SAME_WORK,
    Assignment,
    assignments,
    bytes_of_xla,
    divides,
    in_jax,
    moved,
    num_parts,
    random_spec,
    ratio_of_sums,
)
from benchmarks.verdict import finish, judged

SIZES = (16, 48, 64, 256, 1024, 4096)
MOST_ELEMENTS = 1 << 26
SUM_LIMIT, WORST_LIMIT = 1.02, 1.1
SHOWN = 8


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of op over dims named by letters."""

    operands: tuple[str, ...]
    result: str
    function: Callable[..., Any]
    integers: tuple[int, ...] = ()
    """Operands that are row numbers."""
    looked_up: str = ""
    """Dims that row numbers stand for: splitting them divides no work."""


def _kinds() -> dict[str, Kind]:
    import jax.numpy as jnp

    def einsum(text: str) -> Kind:
        operands, result = text.split("->")
        return Kind(tuple(operands.split(",")), result, lambda *arrays: jnp.einsum(text, *arrays))

    return {
        "dot": einsum("mk,kn->mn"),
        "batched dot": einsum("bmk,bkn->bmn"),
        "two contracted dims": einsum("mkl,kln->mn"),
        "outer product": einsum("m,n->mn"),
        "add": Kind(("mn", "mn"), "mn", lambda x, y: x + y),
        "select": Kind(("mn", "mn", "mn"), "mn", lambda p, x, y: jnp.where(p > 0, x, y)),
        "reduce": Kind(("mn",), "m", lambda x: x.sum(1)),
        "reduce to a scalar": Kind(("mn",), "", lambda x: x.max()),
        "take": Kind(("rc", "n"), "nc", lambda t, i: t[i], (1,), "r"),
        "scatter-add": Kind(("rc", "n", "nc"), "rc", lambda t, i, u: t.at[i].add(u), (1,), "r"),
        "convolution 1x1": einsum("bhwi,io->bhwo"),
    }


@dataclass(frozen=True, slots=True)
class Case:
    """One op between shardings: for each tensor, by dim, the mesh axes that split it."""

    name: str
    kind: Kind
    mesh: tuple[int, ...]
    sizes: dict[str, int]
    specs: tuple[Assignment, ...]
    """Of the operands, then of the result."""

    @property
    def tensors(self) -> tuple[str, ...]:
        """The letters of each operand, and of the result."""
        return (*self.kind.operands, self.kind.result)

    def dims(self, letters: str) -> tuple[int, ...]:
        """Sizes of a tensor."""
        return tuple(self.sizes[letter] for letter in letters)


def random_case(random: Random, kinds: dict[str, Kind]) -> Case:
    """Dims that every axis divides, so that only the choice is judged."""
    name = random.choice(sorted(kinds))
    kind, mesh = kinds[name], random.choice(MESHES)
    letters = sorted(set("".join((*kind.operands, kind.result))))
    while True:
        sizes = {letter: random.choice(SIZES) for letter in letters}
        tensors = (*kind.operands, kind.result)
        if max(math.prod(sizes[c] for c in t) for t in tensors) <= MOST_ELEMENTS:
            break
    specs = tuple(random_spec(random, len(t), len(mesh)) for t in tensors)
    return Case(name, kind, mesh, sizes, specs)


# ---- ours, XLA's


def measured(case: Case, objective: str) -> tuple[float, float]:
    """(bytes a device receives, the part of the work that one device does) of our program.

    Of the objective "time" seconds in collectives, each priced alone, in place of bytes.
    """
    import hlosharding as hs
    from hlosharding.partitioner import PartitionOptions

    mesh, arguments, specs, result = _as_jax(case)
    module = hs.trace(case.kind.function, mesh=mesh, in_shardings=specs, out_shardings=result)(*arguments)
    ours = hs.partition(module, options=PartitionOptions(objective=objective))
    alone = hs.cost(hs.partition(hs.trace(case.kind.function, mesh=mesh)(*arguments))).flops
    work = hs.cost(ours).flops / alone if alone and not case.kind.looked_up else 1.0
    return hs.cost(ours, combine=False).comm_s if objective == "time" else ours.comm_bytes_per_device, work


def of_xla(case: Case, *, shardy: bool) -> float:
    """Bytes of live XLA's program, with the credits of `ideal_bytes`; NaN where that program is no valid HLO."""
    mesh, arguments, specs, result = _as_jax(case)
    return bytes_of_xla(case.kind.function, arguments, mesh, specs, result, shardy=shardy)


def _as_jax(case: Case) -> tuple[Any, list[Any], tuple[Any, ...], Any]:
    import jax

    mesh, specs = in_jax(case.mesh, case.specs)
    arguments = [
        jax.ShapeDtypeStruct(case.dims(letters), np.int32 if n in case.kind.integers else np.float32)
        for n, letters in enumerate(case.kind.operands)
    ]
    return mesh, arguments, tuple(specs[:-1]), specs[-1]


# ---- brute force


def least_sent(case: Case, most_work: float, objective: str = "bytes") -> float:
    """The fewest bytes, or seconds, of all assignments of mesh axes that repeat no more work."""
    letters = sorted(set("".join(case.tensors)))
    splits = (dict(zip(letters, axes, strict=True)) for axes in assignments(len(case.mesh), len(letters)))
    lean = (split for split in splits if _work(case, split) <= most_work * SAME_WORK and _divides(case, split))
    return min(_sent(case, split, objective) for split in lean)


def _work(case: Case, split: dict[str, tuple[int, ...]]) -> float:
    axes = (axis for letter, mine in split.items() if letter not in case.kind.looked_up for axis in mine)
    return 1 / num_parts(case.mesh, tuple(axes))


def _divides(case: Case, split: dict[str, tuple[int, ...]]) -> bool:
    return divides([case.sizes[d] for d in split], case.mesh, tuple(split.values()))


def _sent(case: Case, split: dict[str, tuple[int, ...]], objective: str) -> float:
    total = 0.0
    for letters, given in zip(case.kind.operands, case.specs[:-1], strict=True):
        total += moved(case.dims(letters), case.mesh, given, tuple(split[d] for d in letters), (), objective)
    result = case.kind.result
    partial = tuple(sorted(a for d, axes in split.items() if d not in result for a in axes))
    wanted = tuple(split[d] for d in result)
    return total + moved(case.dims(result), case.mesh, wanted, case.specs[-1], partial, objective)


# ---- the table


def main() -> None:
    """Draw, measure, print."""
    parser = argparse.ArgumentParser(description="Single ops between random shardings.")
    parser.add_argument("count", nargs="?", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--objective", default="bytes")
    parser.add_argument("--without-xla", action="store_true")
    options = parser.parse_args()
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={MOST_DEVICES}"
    random, kinds = Random(options.seed), _kinds()
    rows = list(_rows([random_case(random, kinds) for _ in range(options.count)], options))
    what = "Seconds in collectives" if options.objective == "time" else "Bytes"
    _print(rows, f"{what} against brute force, sums")


def _rows(cases: Sequence[Case], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for case in track(cases, "ops"):
        ours, work = measured(case, options.objective)
        row: dict[str, Any] = {"case": case, "ours": ours, "least": least_sent(case, work, options.objective)}
        if not options.without_xla and options.objective != "time":
            row |= {"GSPMD": of_xla(case, shardy=False), "Shardy": of_xla(case, shardy=True)}
        yield row


def _print(rows: Sequence[dict[str, Any]], title: str) -> None:
    table = Table("op", "number", "ours", "GSPMD", "Shardy", "above 1.1", title=title)
    for name in sorted({row["case"].name for row in rows}):
        table.add_row(*_row(name, [row for row in rows if row["case"].name == name]))
    table.add_section()
    table.add_row(*_row("all", rows))
    worst = sorted(rows, key=lambda row: -_ratio(row))[:SHOWN]
    for row in worst:
        if _ratio(row) > WORST_LIMIT:
            case = row["case"]
            print(f"{_ratio(row):.2f}: {case.name} {case.sizes} mesh {case.mesh} {case.specs}")
    checks = [judged(_sum_ratio(rows, "ours"), SUM_LIMIT), judged(max(map(_ratio, rows)), WORST_LIMIT)]
    table.caption = f"sum {checks[0][0]}, worst {checks[1][0]}"
    finish(table, [kept for _, kept in checks])


def _ratio(row: dict[str, Any]) -> float:
    return row["ours"] / row["least"] if row["least"] else (1.0 if not row["ours"] else math.inf)


def _sum_ratio(rows: Sequence[dict[str, Any]], who: str) -> float:
    return ratio_of_sums((row[who], row["least"]) for row in rows)


def _row(name: str, rows: Sequence[dict[str, Any]]) -> list[str]:
    sums = [f"{_sum_ratio(rows, who):.3f}" if who in rows[0] else "" for who in ("ours", "GSPMD", "Shardy")]
    return [name, str(len(rows)), *sums, str(sum(_ratio(row) > WORST_LIMIT for row in rows))]


if __name__ == "__main__":
    main()
