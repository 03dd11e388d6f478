"""How a table meets a terminal: which columns stay, how wide they are, where cells break.

Floor: report.  A break never falls inside a word, nor between a number and its unit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from hlosharding.report.plain import PlainTable

_UNITS = "B|kB|MB|GB|TB|us|ms|s"
_WORD = re.compile(rf"~?\d[\d.,]* (?:{_UNITS})(?![^\s,;)])\S*|\S+")
_FRAME = 3
"""Columns of the terminal that a cell takes beside its text; the last line of the frame is one more."""
_HEIGHTS = (2, 4)
"""Lines of the average row: a higher one rather leaves out columns; above the second a table is no table any more."""


@dataclass(frozen=True, slots=True)
class ColumnWidths:
    """The columns that are shown, by number, and the width of each."""

    columns: tuple[int, ...]
    widths: tuple[int, ...]

    @property
    def width(self) -> int:
        """Of the whole table."""
        return sum(self.widths) + _FRAME * len(self.widths) + 1


@dataclass(frozen=True, slots=True)
class _Measured:
    """A column with the widths that its texts ask for."""

    heading: str
    cells: tuple[str, ...]
    longest_word: int
    cells_width: int

    @property
    def width(self) -> int:
        return max(self.cells_width, cell_len(self.heading))


def fit(table: PlainTable, width: int) -> ColumnWidths | None:
    """The layout that leaves out fewest columns; None where even the indispensable ones have no room.

    Where rows would be high, headings are folded before cells are.
    """
    measured = [_measured(table, number) for number in range(len(table.columns))]
    choices = list(_choices(table))
    for height in _HEIGHTS:
        for kept in choices:
            columns = [measured[number] for number in kept]
            for asked in ([c.width for c in columns], [max(c.longest_word, c.cells_width) for c in columns]):
                widths = _narrowed(columns, asked, width - _FRAME * len(kept) - 1)
                if widths is not None and _lines(columns, widths) <= height * (len(table.rows) + 1):
                    return ColumnWidths(kept, widths)
    return None


def _measured(table: PlainTable, number: int) -> _Measured:
    heading, cells = table.columns[number].heading, tuple(row[number] for row in table.rows)
    longest = max(map(_longest_word, (heading, *cells)))
    return _Measured(heading, cells, longest, max(map(cell_len, cells), default=0))


def _choices(table: PlainTable) -> Iterator[tuple[int, ...]]:
    """All columns, then ever fewer, the one of highest priority left out first."""
    kept = tuple(range(len(table.columns)))
    while kept:
        yield kept
        last = max(kept, key=lambda c: table.columns[c].priority)
        if table.columns[last].priority == 0:
            return
        kept = tuple(c for c in kept if c != last)


def _narrowed(columns: Sequence[_Measured], asked: Sequence[int], room: int) -> tuple[int, ...] | None:
    """The widths asked for, the widest narrowed first until all have room; None where words would break."""
    if sum(c.longest_word for c in columns) > room:
        return None
    widths = list(asked)
    while sum(widths) > room:
        # There is one: longest words have room together, so while more is asked for some column is wider than its own.
        widest = max((n for n, c in enumerate(columns) if widths[n] > c.longest_word), key=lambda n: widths[n])
        widths[widest] -= 1
    return tuple(widths)


def _lines(columns: Sequence[_Measured], widths: Sequence[int]) -> int:
    """Lines that heading and rows take."""
    rows = zip(*((column.heading, *column.cells) for column in columns), strict=True)
    return sum(max(map(len, map(wrap_text, row, widths))) for row in rows)


def _longest_word(text: str) -> int:
    return max(map(cell_len, _WORD.findall(text)), default=0)


def wrap_text(text: str, width: int | None, indent: str = "") -> list[str]:
    """The text in lines of at most `width`, those after the first behind `indent`; longer words stay whole.

    >>> wrap_text("priced at 23.0 us, by a kernel", 16)
    ['priced at', '23.0 us, by a', 'kernel']
    """
    if width is None or cell_len(text) <= width:
        return [text]
    lead = text[: len(text) - len(text.lstrip())]
    lines: list[str] = []
    line = ""
    for word in _WORD.findall(text):
        start = lead if not lines else indent
        if line and cell_len(f"{start}{line} {word}") > width:
            lines.append(start + line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, (indent if lines else lead) + line]
