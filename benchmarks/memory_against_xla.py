"""How near is peak memory by liveness to what XLA allocates?  Both for the very program that XLA compiled.

Liveness is a lower bound: XLA adds fragmentation and, on CPU, scratch space of its libraries.
"""

from __future__ import annotations

from typing import Any

from rich.table import Table

import hlosharding as hs
from benchmarks import cases, live_xla
from benchmarks.verdict import finish, judged
from examples import devices

LIMIT = 0.25


def main() -> None:
    """Print the table; fail where liveness is further off than the limit."""
    devices.choose_platform()
    table = Table("program", "liveness", "allocated by XLA", "ratio", "off by", title="Peak memory of one device")
    kept = []
    for case in (*cases.example_cases(), cases.gpt2_case(layers=12)):
        with live_xla.gspmd():
            compiled = case.lowered().compile()
        found = hs.cost(hs.load(compiled.as_text())).peak_memory_bytes
        total = _allocated(compiled.memory_analysis())
        ratio = found / total
        text, good = judged(abs(ratio - 1), LIMIT)
        table.add_row(case.name, f"{found:,}", f"{total:,}", f"{ratio:.3f}", text)
        kept.append(good)
    finish(table, kept)


def _allocated(stats: Any) -> int:
    total = stats.argument_size_in_bytes + stats.output_size_in_bytes + stats.temp_size_in_bytes
    return total - stats.alias_size_in_bytes


if __name__ == "__main__":
    main()
