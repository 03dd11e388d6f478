"""Temporary memory of the zoo's models as we predict it before XLA compiles, against XLA's own analysis afterwards.

`python -m benchmarks.temp_memory [NAME ...] [--scale N] [--jobs N]`.  Both are of our partitioned program for eight CPU
devices: ours by liveness of the program as we hand it over, with a guess of what XLA fuses; XLA's is what
`memory_analysis()` has as `temp_size_in_bytes`.  Arguments and results stand apart, which both know exactly.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from rich.table import Table

from benchmarks.verdict import finish, judged
from benchmarks.workers import tell, zoo_arguments, zoo_rows

LIMIT, SECONDS_A_MODEL = 0.1, 900
Row = dict[str, Any]


def main() -> None:
    """Measure in workers, print the table; fail where the median error is over the limit."""
    options = zoo_arguments("Temporary memory as predicted and as XLA has it.").parse_args()
    if options.worker:
        tell(measured(options.names[0], options.scale))
    else:
        report(options)


def measured(name: str, scale: int) -> Row:
    """Of one model; what fails is said in its place."""
    from examples import devices

    devices.choose_platform()
    try:
        return {"name": name, **figures(name, scale)}
    except Exception as error:  # noqa: BLE001  (whatever it is, it is the finding)
        return {"name": name, "failed": f"{type(error).__name__}: {str(error)[:300]}"}


def figures(name: str, scale: int) -> Row:
    """Temporaries of one model's program, predicted, found by liveness in what XLA made of it, and allocated by XLA."""
    import hlosharding as hs
    from benchmarks.zoo import MODELS
    from hlosharding.cost import temporary_memory

    [model] = [m for m in MODELS if m.name == name]
    mesh = model.mesh()
    program = model.build(mesh, scale)
    traced = hs.jit(program.function, mesh=mesh, **program.options).trace(*program.arguments)
    partitioned = traced.propagate().partition()
    compiled = partitioned.compile(list(mesh.devices.flat))
    return {
        "ours": temporary_memory(partitioned.module),
        "afterwards": temporary_memory(hs.load(compiled.as_text())),
        "xla": compiled.memory_analysis().temp_size_in_bytes,
    }


def report(options: argparse.Namespace) -> None:
    """Run the workers and print."""
    rows = zoo_rows("temp_memory", options, SECONDS_A_MODEL)
    columns = ("model", "predicted", "XLA", "ratio", "by liveness of XLA's program", "ratio")
    table = Table(*columns, title="Temporary memory of one device, bytes")
    for column in table.columns[1:]:
        column.justify = "right"
    errors: list[float] = []
    for row in rows:
        if "failed" in row:
            table.add_row(row["name"], f"[red]{row['failed']}[/red]")
            continue
        xla = max(1, row["xla"])
        errors.append(abs(row["ours"] / xla - 1))
        found = f"{row['ours']:,}", f"{xla:,}", f"{row['ours'] / xla:.3f}"
        table.add_row(row["name"], *found, f"{row['afterwards']:,}", f"{row['afterwards'] / xla:.3f}")
    table.add_section()
    text, good = judged(statistics.median(errors), LIMIT) if errors else ("[red]nothing ran[/red]", False)
    table.add_row("median error", "", "", text)
    finish(table, [good and len(errors) == len(rows)])


if __name__ == "__main__":
    main()
