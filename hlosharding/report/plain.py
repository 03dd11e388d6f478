"""A table as text cells: what terminals and pages share.

Floor: report.  Rows that read alike are joined, the largest put first, the others summed up.  A name from a program is
data: characters that would steer a terminal are spelled out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hlosharding.ir import Shape
from hlosharding.printable import printable
from hlosharding.report.figures import as_bytes, as_count, as_large, as_seconds
from hlosharding.report.model import Cell, Column, Facts, Figure, Kind, Row, Shown, Table, Thread
from hlosharding.sharding import HloSharding, spell_short

_LEAVES_SHOWN = 4
_NAME, _FIGURE, _NOTE = "name", "figure", "note"

_WRITE: dict[Kind, Callable[[float], str]] = {
    Kind.COUNT: as_count,
    Kind.LARGE: as_large,
    Kind.BYTES: as_bytes,
    Kind.SECONDS: as_seconds,
    Kind.RATIO: "{:.3f}".format,
    Kind.SHARE: "{:.1%}".format,
    Kind.NUMBER: "{:.6g}".format,
    Kind.DIFFERENCE: "{:.1e}".format,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainTable:
    """Cells as people read them."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    breaks: frozenset[int]
    """Numbers of the rows above which there is a line."""


def plain(table: Table) -> PlainTable:
    """The table as it is shown.

    >>> columns = (Column(key="kind", heading="kind"), Column(key="n", heading="n", kind=Kind.COUNT, sums=True))
    >>> rows = [{"kind": "all-reduce", "n": 1000}, {"kind": "all-gather", "n": 1}, {"kind": "all-reduce", "n": 500}]
    >>> plain(Table(columns=columns, rows=rows, joins=True, largest="n", total="all")).rows
    (('all-reduce', '1,500'), ('all-gather', '1'), ('all', '1,501'))
    """
    rows = joined_rows(table)
    breaks, most = table.breaks, table.most if table.most is not None else len(rows)
    shown, rest = rows[:most], rows[most:]
    for name, summed in ((f"{len(rest)} others" if rest else "", rest), (table.total, rows)):
        if name:
            breaks |= {len(shown)}
            shown.append(summed_row(table, name, summed))
    if not shown and table.empty:
        shown.append({table.columns[0].key: table.empty})
    texts = tuple(tuple(cell_text(row.get(c.key, ""), c.kind, table.mesh) for c in table.columns) for row in shown)
    return PlainTable(title=printable(table.title), columns=table.columns, rows=texts, breaks=breaks)


def row_lines(table: Table) -> list[str]:
    """The rows of a table that has no grid."""
    keys = [column.key for column in table.columns]
    return [table.line.format(**dict(zip(keys, row, strict=True))) for row in plain(table).rows]


def joined_rows(table: Table) -> list[Row]:
    """All rows, those that read alike joined and the largest first where the table wants that."""
    rows = _joined(table) if table.joins else list(table.rows)
    if table.largest:
        rows.sort(key=lambda row: -_number(row[table.largest]).value)
    return rows


def _joined(table: Table) -> list[Row]:
    same = [column for column in table.columns if not column.sums]
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in table.rows:
        groups.setdefault(tuple(cell_text(row[c.key], c.kind, table.mesh) for c in same), []).append(row)
    return [{**rows[0], **_added(table, rows), table.thread: _joined_thread(table, rows)} for rows in groups.values()]


def _joined_thread(table: Table, rows: Sequence[Row]) -> Thread:
    """Whoever looks for one of the rows finds the one that they share."""
    threads = [cell for row in rows if isinstance(cell := row.get(table.thread), Thread)]
    return Thread(tuple(name for one in threads for name in one.names), threads[0].related if threads else ())


def summed_row(table: Table, name: str, rows: Sequence[Row]) -> Row:
    """A row with the sums of others, under a name."""
    return {table.columns[0].key: name, **_added(table, rows)}


def _added(table: Table, rows: Sequence[Row]) -> dict[str, Cell]:
    return {c.key: _sum(_number(row[c.key]) for row in rows) for c in table.columns if c.sums}


def _sum(figures: Iterable[Figure]) -> Figure:
    found = list(figures)
    kind = found[0].kind if found else None
    return Figure(sum(f.value for f in found), kind, all(f.is_exact for f in found))


def _number(cell: Cell) -> Figure:
    if isinstance(cell, Figure):
        return cell
    return Figure(cell) if isinstance(cell, int | float) else Figure(0)


def cell_text(cell: Any, kind: Kind, mesh: Any = None) -> str:
    """A cell as people read it; `~` marks a guess.

    >>> cell_text(Figure(2.5e-5, is_exact=False), Kind.SECONDS), cell_text(None, Kind.SHARDING)
    ('~25.0 us', 'none')
    """
    match cell:
        case Shown():
            return printable(cell.text)
        case Figure():
            return ("" if cell.is_exact else "~") + _WRITE[cell.kind or kind](cell.value)
        case HloSharding():
            return printable(spell_short(cell, mesh))
        case Shape() if kind is Kind.SHAPE and len(cell.leaves) > _LEAVES_SHOWN:
            return f"tuple of {len(cell.leaves)} arrays"
        case None:
            return "none" if kind is Kind.SHARDING else ""
        case int() | float() if kind in _WRITE:
            return _WRITE[kind](cell)
        case _:
            return printable(str(cell))


def facts_table(facts: Facts) -> Table:
    """The labelled facts as a table of name, figure and note."""
    columns = (
        Column(key=_NAME, heading=""),
        Column(key=_FIGURE, heading="figure", kind=Kind.COUNT),
        Column(key=_NOTE, heading=" ", kind=Kind.PROSE),
    )
    rows = [
        {_NAME: label.name, _FIGURE: replace(_number(facts.items[label.key]), kind=label.kind), _NOTE: label.note}
        for label in facts.labels
    ]
    return Table(title=facts.title, columns=columns, rows=rows)
