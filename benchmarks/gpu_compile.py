"""The zoo compiled for eight H100s that nobody has: bytes, memory and compile time of ours beside `jax.jit`'s.

`python -m benchmarks.gpu_compile [NAME ...] [--scale N] [--jobs N] [--chip NAME]`; needs the extra `cuda12`, no GPU.
Both programs are read as XLA's executables have them: bytes of the collectives in the optimized HLO, memory by XLA's
own analysis (arguments, outputs and temporaries, less what is aliased), seconds from trace to executable, caches empty:
of the program that we generated, and of the function that `jax.jit` was given.  Our own propagation and partitioning
stand apart.  Collectives: as our program has them, as `hs.cost` expects XLA's combiner to leave them, as XLA left them.
`jax.jit` runs with Shardy and with GSPMD; what stands in the table is the one with fewer bytes, then with less memory.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.workers import tell, zoo_arguments, zoo_rows
from benchmarks.zoo_against_xla import rated

LIMITS = {"bytes": 1.0, "memory": 1.05, "seconds": 1.1}
SECONDS_A_MODEL = 1800
REPEATS = 2
OTHERS = ("shardy", "gspmd")
Row = dict[str, Any]


def main() -> None:
    """Measure in workers, print the table."""
    blurs = "; more than one blur the seconds"
    parser = zoo_arguments("The zoo compiled for GPUs that are not there.", jobs=1, blurs=blurs)
    parser.add_argument("--chip", default="h100", help="a preset that has a chip: a100, h100, h200, b200")
    options = parser.parse_args()
    if options.worker:
        tell(measured(options.names[0], options.scale, options.chip))
    else:
        sys.exit(report(options))


# The worker: one model, one line of JSON


def measured(name: str, scale: int, chip: str) -> Row:
    """Ours and both of XLA's; what fails is said in its place."""
    from examples import devices

    devices.choose_platform()
    row: Row = {"name": name}
    try:
        row |= figures(name, scale, chip)
    except Exception as error:  # noqa: BLE001  (whatever it is, it is the finding)
        row["failed"] = f"{type(error).__name__}: {str(error)[:300]}"
    return row


def figures(name: str, scale: int, chip: str) -> Row:
    """Of the three executables."""
    import jax

    import hlosharding as hs
    from benchmarks import live_xla
    from benchmarks.zoo import MODELS

    jax.config.update("jax_enable_compilation_cache", False)
    [model] = [m for m in MODELS if m.name == name]
    mesh = model.mesh(devices=hs.topology(chip, 8).devices)
    program = model.build(mesh, scale)
    arguments = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), program.arguments)
    ours = hs.jit(program.function, mesh=mesh, **program.options)
    theirs = jax.jit(program.function, **program.options)
    start = time.perf_counter()
    stage = ours.lower(*arguments)
    partitioned = stage.partitioned
    _ = stage.as_python()
    found: Row = {"found_in": time.perf_counter() - start, "planned": partitioned.comm_bytes_per_device}
    found["collectives"] = len(partitioned.collectives), partitioned.cost.num_combined
    ways: dict[str, tuple[Callable[[], Any], Any]] = {
        "ours": (lambda: anew(partitioned, mesh), nullcontext),
        "shardy": (lambda: theirs.lower(*arguments).compile(), nullcontext),
        "gspmd": (lambda: theirs.lower(*arguments).compile(), live_xla.gspmd),
    }
    for _ in range(REPEATS):  # in turns, so that a busy machine slows all
        for who, (compiled, context) in ways.items():
            with context():
                found[who] = one_more(found.get(who), compiled)
    return found


def one_more(row: Row | None, compiled: Callable[[], Any]) -> Row:
    """Compiled once more; XLA's GPU compiler has faults of its own, so that what it says may be all there is."""
    import jax

    try:
        seconds, executable = timed(compiled)
    except (jax.errors.JaxRuntimeError, RuntimeError) as error:
        return {"failed": str(error)[:200]}
    row = row or read(executable)
    return row | {"seconds": min(seconds, row.get("seconds", seconds))}


def anew(partitioned: Any, mesh: Any) -> Any:
    """Our generated program, traced and compiled as if it were the first time."""
    from dataclasses import replace

    return replace(partitioned.program.compile(tuple(mesh.devices.flat))).compiled


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    """With JAX's caches empty."""
    import jax

    jax.clear_caches()
    start = time.perf_counter()
    found = action()
    return time.perf_counter() - start, found


def read(executable: Any) -> Row:
    """Bytes of its collectives, and XLA's analysis of its memory."""
    import hlosharding as hs

    stats = executable.memory_analysis()
    memory = {
        "arguments": stats.argument_size_in_bytes,
        "outputs": stats.output_size_in_bytes - stats.alias_size_in_bytes,
        "temporaries": stats.temp_size_in_bytes,
    }
    module = hs.load(executable.as_text(), format="hlo")
    priced = hs.cost(module)
    return {
        "bytes": priced.comm_bytes,
        "collectives": len(priced.collectives),
        "memory": sum(memory.values()),
        **memory,
    }


# The parent


def report(options: argparse.Namespace) -> int:
    """Run the workers and print; 1 where a limit is missed."""
    rows = zoo_rows("gpu_compile", options, SECONDS_A_MODEL, ["--chip", options.chip])
    console = Console(width=max(170, Console().width))
    table, kept = tabulated(rows, options.chip)
    console.print(table)
    for row in rows:
        for who, part in [("", row), *((f", {who}", row.get(who, {})) for who in ("ours", *OTHERS))]:
            if "failed" in part:
                console.print(f"{row['name']}{who}: {part['failed']}", markup=False, highlight=False)
    return int(not kept)


def tabulated(rows: Iterable[Row], chip: str) -> tuple[Table, bool]:
    """The table, and whether every limit is kept."""
    table = Table(
        "model", "bytes", "jax.jit", "ratio", "memory", "jax.jit", "ratio", "temporaries", "found",
        "seconds", "jax.jit", "ratio",
        "of", "planned", "collectives",
        title=f"The zoo compiled for eight {chip.upper()}: one device, one step, as XLA's executables have it",
    )  # fmt: skip
    for column in table.columns[1:]:
        column.justify = "right"
    all_kept = True
    for row in rows:
        cells, kept = line(row)
        all_kept &= kept
        table.add_row(row["name"], *cells)
    return table, all_kept


def line(row: Row) -> tuple[list[str], bool]:
    """The cells of one model behind its name, and whether it keeps every limit."""
    ours = row.get("ours", row)
    if "bytes" not in ours:
        return ["[red]failed[/red]"], False
    others = [who for who in OTHERS if "bytes" in row[who]]
    if not others:
        return [f"{ours['bytes']:,.0f}", "failed", "", f"{ours['memory']:,}"], True
    who = min(others, key=lambda who: (row[who]["bytes"], row[who]["memory"]))
    xla = row[who]
    ratios = {q: rated(ours[q], xla[q], limit) for q, limit in LIMITS.items()}
    cells = [
        *(f"{ours['bytes']:,.0f}", f"{xla['bytes']:,.0f}", ratios["bytes"][0]),
        *(f"{ours['memory']:,}", f"{xla['memory']:,}", ratios["memory"][0]),
        f"{ours['temporaries'] / max(1, xla['temporaries']):.3f}",
        f"{row['found_in']:.1f}",
        *(f"{ours['seconds']:.1f}", f"{xla['seconds']:.1f}", ratios["seconds"][0]),
        who,
        f"{ours['bytes'] / row['planned']:.3f}" if row["planned"] else "",
        " ".join(map(str, (*row["collectives"], ours["collectives"]))),
    ]
    return cells, all(kept for _, kept in ratios.values())


if __name__ == "__main__":
    main()
