"""The demo's tables: equal rows counted, ratios printed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rich.console import Console

from examples import tables


def collective(axes: str) -> Any:
    return SimpleNamespace(
        kind="all-reduce",
        axes=axes,
        groups=((0, 1), (2, 3)),
        pairs=None,
        shape="f32[4,8]",
        bytes_per_device=100.0,
        executions=2,
        cause="gradient of the batch",
        location="model.py:3",
    )


def text_of(table: Any) -> str:
    console = Console(width=160)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_equal_collectives_share_a_row_and_their_bytes_add_up() -> None:
    partitioned: Any = SimpleNamespace(collectives=[collective("data"), collective("data"), collective("")])
    table = tables.collectives(partitioned)
    assert table.row_count == 3
    text = text_of(table)
    assert "200" in text
    assert "2 groups" in text
    assert "300" in text


def test_the_comparison_prints_ratios() -> None:
    ours: Any = SimpleNamespace(comm_bytes=50.0, flops=100.0, peak_memory_bytes=0.0)
    live: Any = SimpleNamespace(comm_bytes=100.0, flops=100.0, peak_memory_bytes=0.0)
    text = text_of(tables.against_xla(ours, live))
    assert "0.500" in text
    assert "1.000" in text
    assert "n/a" in text
