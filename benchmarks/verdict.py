"""A ratio, its limit, and the exit status of a benchmark that misses one."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table


def judged(ratio: float, limit: float) -> tuple[str, bool]:
    """The ratio as text with its limit, and whether it is kept.

    >>> judged(0.5, 1.0)
    ('[green]0.500[/green] (at most 1)', True)
    """
    kept = ratio <= limit
    colour = "green" if kept else "red"
    return f"[{colour}]{ratio:.3f}[/{colour}] (at most {limit:g})", kept


def finish(table: Table, kept: Iterable[bool]) -> None:
    """Print the table; the process ends with status 1 where a limit was missed."""
    Console(width=max(120, Console().width)).print(table)
    sys.exit(not all(kept))
