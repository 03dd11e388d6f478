"""How every table is made: plain text in, figures to the right, never read as markup.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text


def new_table(title: str, *columns: str, figures: Sequence[str] = ()) -> Table:
    """An empty table; the columns named in `figures` stand to the right.

    >>> [column.justify for column in new_table("Loss", "step", "loss", figures=("loss",)).columns]
    ['left', 'right']
    """
    table = Table(title=Text(title))
    for column in columns:
        # On a narrow terminal a cell folds: "f32[32…" would say nothing.
        table.add_column(Text(column), justify="right" if column in figures else "left", overflow="fold")
    return table


def add_row(table: Table, *cells: str) -> None:
    """Add a row of plain text: `params[/w]` is a name, and no end of a style."""
    table.add_row(*map(Text, cells))
