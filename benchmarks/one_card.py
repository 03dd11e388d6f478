"""What one GPU takes beside what its preset says: products, attention, streams, training steps, a rank of 512.

`python -m benchmarks.one_card FILE [--measure] [--only FAMILY]`: prices the cases that FILE (JSON) has times of.
`--measure` runs them on the GPU that is here first, and writes the file.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

import hlosharding as hs
from benchmarks.card.cases import Case, cases
from hlosharding.cost import Machine, machines


def measured(chosen: Iterable[Case], path: Path) -> None:
    """Write what each case takes; one that fails is named with the reason.  What is there already stays."""
    import jax

    from benchmarks.card.measuring import measure

    rows: dict[str, Any] = json.loads(path.read_text())["rows"] if path.exists() else {}
    card = jax.devices()[0].device_kind
    for case in chosen:
        start = perf_counter()
        try:
            rows[case.name] = measure(case)._asdict()
        except Exception as error:  # noqa: BLE001  a case too large for a card says nothing of the others
            sys.stderr.write(f"{case.name}: {error}\n"[:500])
            continue
        sys.stderr.write(f"{case.name}: {rows[case.name]['seconds'] * 1e3:.4g} ms, {perf_counter() - start:.0f} s\n")
        path.write_text(json.dumps({"card": card, "jax": jax.__version__, "rows": rows}, indent=1))


def show(chosen: Iterable[Case], path: Path, machine: Machine) -> None:
    """Print a table of each family."""
    found = json.loads(path.read_text())
    families: defaultdict[str, list[tuple[Case, dict[str, float]]]] = defaultdict(list)
    for case in chosen:
        if case.name in found["rows"]:
            families[case.family].append((case, found["rows"][case.name]))
    for family, rows in families.items():
        Console(width=120).print(
            _table(f"{family}: {found['card']}, jax {found['jax']}, {machine.name}", rows, machine)
        )


def _table(title: str, rows: list[tuple[Case, dict[str, float]]], machine: Machine) -> Table:
    table = Table(
        "", "measured, ms", "predicted", "ratio", "TFLOP/s", "GB/s", "GiB", "predicted", title=title, box=box.MARKDOWN
    )
    ratios: list[float] = []
    for case, row in rows:
        module = case.module()
        found, report = hs.simulate(module, machine), hs.cost(module, machine)
        seconds = row["seconds"]
        ratios.append(found.time_s / seconds)
        rates = f"{report.flops / seconds / 1e12:.0f}", f"{report.memory_traffic_bytes / seconds / 1e9:.0f}"
        memory = f"{row['gibibytes']:.2f}" if row["gibibytes"] else "", f"{report.peak_memory_bytes / 2**30:.2f}"
        table.add_row(
            case.name, f"{seconds * 1e3:.4g}", f"{found.time_s * 1e3:.4g}", f"{ratios[-1]:.2f}", *rates, *memory
        )
    errors = [abs(ratio - 1) for ratio in ratios]
    table.caption = f"error: mean {sum(errors) / len(errors):.1%}, median {median(errors):.1%}, worst {max(errors):.1%}"
    return table


def main() -> None:
    """Measure if asked to, then print the tables."""
    parser = argparse.ArgumentParser(description="One card, measured and predicted.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--only", action="append", help="a family, or the name of a case")
    parser.add_argument("--preset", default="h100")
    given = parser.parse_args()
    chosen = [case for case in cases() if not given.only or any(o in (case.family, case.name) for o in given.only)]
    if not chosen:
        families = ", ".join(sorted({case.family for case in cases()}))
        parser.error(f"no case is of {' or '.join(given.only)}; families are {families}")
    if given.measure:
        measured(chosen, given.file)
    show(chosen, given.file, getattr(machines, given.preset)(1))


if __name__ == "__main__":
    main()
