"""The one table that only the examples need: two trainings' losses, step by step."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table


def losses(many: Sequence[float], one: Sequence[float], devices: int) -> Table:
    """The loss at every step, on all devices and on one."""
    table = Table("step", f"{devices} devices", "one device", "relative difference", title="Loss")
    for step, (sharded, single) in enumerate(zip(many, one, strict=True), 1):
        table.add_row(str(step), f"{sharded:.6f}", f"{single:.6f}", f"{abs(sharded / single - 1):.1e}")
    return table
