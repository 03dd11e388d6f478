"""Tables and what opens below their rows, as data that the page's script reads.

Floor: report.  Texts and numbers only: whoever shows them decides on tags.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hlosharding.printable import printable
from hlosharding.report.drawing import draw, sharding_icon
from hlosharding.report.model import Column, Drawing, Figure, Lines, Shown, Table, Text, Thread, Tree, View, Within
from hlosharding.report.plain import cell_text, joined_rows, summed_row
from hlosharding.sharding import HloSharding

Data = dict[str, Any]
_MOST_ICONS = 400
LARGEST_DRAWING = 256
"""Tiles."""
_MINOR = 2
"""Columns of at least this priority go on narrow screens."""


@dataclass(slots=True)
class Icons:
    """The shardings of a page, each drawn once."""

    drawn: list[str] = field(default_factory=list[str])
    _numbers: dict[HloSharding, int | None] = field(default_factory=dict[HloSharding, "int | None"])

    def number(self, sharding: HloSharding) -> int | None:
        """Which of `drawn` it is; None where there is nothing to draw."""
        if sharding not in self._numbers:
            drawn = sharding_icon(sharding) if len(self.drawn) < _MOST_ICONS else ""
            self._numbers[sharding] = len(self.drawn) if drawn else None
            self.drawn += [drawn] if drawn else []
        return self._numbers[sharding]


@dataclass(frozen=True, slots=True)
class TableWriter:
    """Writes tables as data; `most`: of how many rows, `most_below`: in what opens below a row."""

    icons: Icons
    most: int
    most_below: int

    def table(self, table: Table, *, is_below: bool = False) -> Data:
        """Columns, rows (texts, beside them what to sort by), sums, and how many rows were left out."""
        rows = joined_rows(table)
        most = self.most_below if is_below else self.most
        data: Data = {
            "title": printable(table.title),
            "columns": [_column(column) for column in table.columns],
            "rows": [[self._cell(row.get(c.key, ""), c, table.mesh) for c in table.columns] for row in rows[:most]],
            "empty": table.empty,
        }
        if table.total and len(rows) > 1:
            sums = summed_row(table, table.total, rows)
            data["total"] = [self._cell(sums.get(c.key, ""), c, table.mesh) for c in table.columns]
        if len(rows) > most:
            data["left_out"] = len(rows) - most
        if table.thread:
            data["threads"] = [self._thread(row.get(table.thread)) for row in rows[:most]]
        if table.detail and not is_below:
            data["below"] = [self._below(row.get(table.detail)) for row in rows[:most]]
        return data

    def _cell(self, cell: Any, column: Column, mesh: Any) -> Any:
        """A text; with a number to sort by, or with an icon, a short list."""
        text = cell_text(cell, column.kind, mesh)
        if isinstance(cell, HloSharding):
            number = self.icons.number(cell)
            return text if number is None else [text, number]
        if column.kind.is_figure and text:
            value = cell.value if isinstance(cell, Figure) else cell.raw if isinstance(cell, Shown) else cell
            return [text, value] if isinstance(value, int | float) else text
        return text

    def _thread(self, cell: Any) -> Any:
        """Two lists of names: the row's own, and those of other rows."""
        if not isinstance(cell, Thread) or not cell.names:
            return None
        # A row of many layers, or a line of many ops, has thousands of names: where rows have to be few, so have
        # addresses.
        return [cell.names[: self.most], cell.related[: self.most]]

    def _below(self, view: Any) -> list[Data]:
        if not isinstance(view, View):
            return []
        parts: list[Data] = []
        for part in view.parts:
            match part:
                case Text() | Tree() | Lines():
                    parts.append({"tree": part.printable_text})
                case Drawing() if part.sharding.num_tiles <= LARGEST_DRAWING:
                    parts.append({"tree": f"{printable(part.title)}\n{draw(part.sharding, part.dims)}"})
                case Table() if part.is_shown:
                    parts.append({"table": self.table(part, is_below=True)})
                case Within() if part.is_shown:
                    parts += self._below(part.view)
                case _:
                    pass
        return parts


def _column(column: Column) -> Data:
    kind = "figure" if column.kind.is_figure else column.kind.name.lower()
    return {"heading": printable(column.heading), "kind": kind + (" minor" if column.priority >= _MINOR else "")}
