"""Stencils, running sums and their like: bytes against the strips that a device cannot do without.

`python -m benchmarks.stencils [NAME ...] [--without-xla]`; a name is any part of a program's.  On eight CPU devices, as
a mesh of 8 and of 2x4.  Each program is partitioned for the fewest bytes, run, and compared with one
device's; live XLA, with GSPMD and with Shardy, partitions it in the same run.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from rich.progress import track
from rich.table import Table
from rich.text import Text

from benchmarks.axis_splits import bytes_of_xla
from benchmarks.verdict import finish, judged

MESHES = ((8,), (2, 4))
OBJECTIVES = ("bytes",)
Row = dict[str, Any]


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description="Stencils against the strips they need.")
    parser.add_argument("names", nargs="*", help="parts of names; all programs without any")
    parser.add_argument("--without-xla", action="store_true")
    options = parser.parse_args()
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    from benchmarks.stencil_cases import CASES

    cases = [c for c in CASES if not options.names or any(name in c.name for name in options.names)]
    _print([row for case in track(cases, "programs") for row in _rows(case, with_xla=not options.without_xla)])


def _rows(case: Any, *, with_xla: bool) -> Iterator[Row]:
    for sizes in MESHES:
        mesh, spec, tiles = _placed(case, sizes)
        row: Row = {"case": case, "mesh": sizes, "needs": case.needs(case.shapes[0], tiles)}
        for objective in OBJECTIVES:
            row[objective], row[f"{objective} is right"] = ours(case, mesh, spec, objective)
        if with_xla:
            row |= {"GSPMD": of_xla(case, mesh, spec, shardy=False), "Shardy": of_xla(case, mesh, spec, shardy=True)}
        yield row


def _placed(case: Any, sizes: tuple[int, ...]) -> tuple[Any, Any, tuple[int, ...]]:
    """The mesh, how every array is split over it, and how often each dim of the first one is."""
    import jax
    from jax.sharding import Mesh, PartitionSpec

    names = tuple("xy"[: len(sizes)])
    mesh = Mesh(np.array(jax.devices("cpu")[:8]).reshape(sizes), names)
    rank, count = len(case.shapes[0]), min(case.splits, len(case.shapes[0]))
    # All axes: what is left of them goes to the last dim that is split.
    axes = [names[d] for d in range(count - 1)] + [names[count - 1 :]] if len(names) >= count else [names]
    ways = [int(np.prod([mesh.shape[a] for a in axis])) for axis in axes]
    return mesh, PartitionSpec(*axes), (*ways, *(1,) * (rank - len(ways)))


def ours(case: Any, mesh: Any, spec: Any, objective: str) -> tuple[float, bool]:
    """Bytes a device receives, and whether the result is one device's."""
    import jax
    from jax.sharding import PartitionSpec

    import hlosharding as hs
    from benchmarks.stencil_cases import arguments
    from hlosharding.partitioner import PartitionOptions

    given = arguments(case)
    out = PartitionSpec() if case.is_whole else spec
    trace = hs.trace(case.function, mesh=mesh, in_shardings=(spec,) * len(given), out_shardings=out)
    program = hs.partition(trace(*given), options=PartitionOptions(objective=objective))
    found, expected = jax.tree.leaves(program.run(*given)), jax.tree.leaves(jax.jit(case.function)(*given))
    alike = (np.allclose(f, e, rtol=1e-3, atol=1e-3) for f, e in zip(found, expected, strict=True))
    return program.comm_bytes_per_device, all(alike)


def of_xla(case: Any, mesh: Any, spec: Any, *, shardy: bool) -> float:
    """Bytes of live XLA's program, as `bytes_of_xla` counts; NaN where there is no valid one."""
    import jax
    from jax.sharding import PartitionSpec

    shapes = [jax.ShapeDtypeStruct(shape, np.float32) for shape in case.shapes]
    out = PartitionSpec() if case.is_whole else spec
    try:
        return bytes_of_xla(case.function, shapes, mesh, [spec] * len(shapes), out, shardy=shardy)
    except ValueError:  # jax.jit wants sizes that the mesh divides
        return float("nan")


# ---- the table


def _print(rows: Sequence[Row]) -> None:
    table = Table("program", "mesh", "needed", "bytes", "ours", "GSPMD", "Shardy", "right",
                  title="Bytes a device receives, over what is needed")  # fmt: skip
    checks: list[bool] = []
    for row in rows:
        cells, kept = _cells(row)
        table.add_row(*cells)
        checks += kept
    limited = [_ratio(row, o) for row in rows if row["case"].limit is not None for o in OBJECTIVES]
    text, _ = judged(max(limited, default=0.0), max((row["case"].limit or 0.0 for row in rows), default=1.0))
    from benchmarks.stencil_cases import STENCIL_LIMIT

    table.caption = f"worst {text}; a stencil is allowed {STENCIL_LIMIT:g}"
    finish(table, checks)


def _cells(row: Row) -> tuple[list[Any], list[bool]]:
    case, shown, kept = row["case"], list[str](), list[bool]()
    for objective in OBJECTIVES:
        text, is_kept = _judged(row, objective)
        shown.append(text)
        kept.append(is_kept)
    xla = [
        f"{_ratio(row, who):.3g}" if row["needs"] else f"{row[who]:.0f} B" for who in ("GSPMD", "Shardy") if who in row
    ]
    right = all(row[f"{objective} is right"] for objective in OBJECTIVES)
    first = [Text(case.name), "x".join(map(str, row["mesh"])), case.needed, f"{row['needs']:.0f}"]
    return [*first, *shown, *(xla or ["", ""]), "yes" if right else "[red]no[/red]"], [*kept, right]


def _judged(row: Row, objective: str) -> tuple[str, bool]:
    limit, ratio = row["case"].limit, _ratio(row, objective)
    shown = f"{ratio:.3f}" if row["needs"] else f"{row[objective]:.0f} B"
    if limit is None:
        return shown, True
    colour = "green" if ratio <= limit else "red"
    return f"[{colour}]{shown}[/{colour}]", ratio <= limit


def _ratio(row: Row, who: str) -> float:
    """Where nothing is needed: one for nothing."""
    if row["needs"]:
        return row[who] / row["needs"]
    return 1.0 if not row[who] else float("inf")


if __name__ == "__main__":
    main()
