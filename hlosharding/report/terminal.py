"""A view on a terminal: grids where there is room for them, rows as `heading: text` lines where there is not.

Floor: report.  Numbers and words stay whole at any width.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from shutil import get_terminal_size

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text as RichText

from hlosharding.printable import printable
from hlosharding.report.drawing import draw
from hlosharding.report.model import Drawing, Facts, Lines, Part, Picture, Table, Text, Tree, View, Within
from hlosharding.report.plain import PlainTable, facts_table, plain, row_lines
from hlosharding.report.widths import ColumnWidths, fit, wrap_text

_WIDE = 200
"""Where nobody says how wide: in a file or a pipe."""
_INDENT = "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """Where a view is shown."""

    width: int = _WIDE
    wraps: bool = False
    """Are lines wrapped, too, not only cells?  In a file or a pipe a line stays a line."""
    is_styled: bool = False
    frames: box.Box = box.HEAVY_HEAD

    @classmethod
    def of_output(cls) -> Screen:
        """That of standard output; `COLUMNS` overrules."""
        is_terminal = sys.stdout.isatty()
        known = is_terminal or "COLUMNS" in os.environ
        width = get_terminal_size().columns if known else _WIDE
        frames = box.HEAVY_HEAD if (sys.stdout.encoding or "utf").lower().startswith("utf") else box.ASCII
        styled = is_terminal and "NO_COLOR" not in os.environ
        return cls(width=width, wraps=is_terminal, is_styled=styled, frames=frames)


def show(*views: View, width: int | None = None) -> None:
    """Print views on standard output: as wide as the terminal; elsewhere as wide as `width` or `COLUMNS` allows.

    >>> show(View((Text("two devices"),)))
    two devices
    """
    screen = Screen.of_output()
    if width is not None and not screen.wraps:
        screen = replace(screen, width=width)
    for view in views:
        sys.stdout.write("".join(f"{line}\n" for line in _view_lines(view, screen)))


def to_text(view: View, *, width: int = _WIDE, wraps: bool = True) -> str:
    """The view as plain text for a terminal of that width; `wraps`: lines, too, and not only cells.

    >>> print(to_text(View((Text("warning: this op was replicated"),)), width=16))
    warning: this op
        was
        replicated
    """
    return "\n".join(line.rstrip() for line in _view_lines(view, Screen(width=width, wraps=wraps)))


def _view_lines(view: View, screen: Screen) -> Iterator[str]:
    is_first = True
    for part in view.parts:
        for number, line in enumerate(_lines(part, screen)):
            if number == 0 and not is_first and isinstance(part, Tree | Drawing):
                yield ""
            yield line
            is_first = False


def _lines(part: Part, screen: Screen) -> Iterator[str]:
    match part:
        case Table() if part.line:
            for line in row_lines(part):
                yield from _text(line, screen)
        case Table():
            yield from _table(plain(part), screen) if part.is_shown else ()
        case Facts():
            yield from _table(plain(facts_table(part)), screen) if part.labels else ()
        case Text():
            yield from _text(str(part.content), screen, part.style)
        case Lines():
            for line in part.lines:
                yield from _text(part.label + printable(line), screen, part.style)
        case Tree():
            yield from _text(part.text, screen)
        case Drawing():
            yield from [part.title] if part.title else []
            yield from draw(part.sharding, part.dims, width=screen.width if screen.wraps else None).splitlines()
        case Picture():
            yield from _text(part.text, screen)
        case Within():
            yield from _within(part, screen) if part.is_shown else ()


def _within(part: Within, screen: Screen) -> Iterator[str]:
    if part.title:
        yield ""
        yield from _text(part.title.upper(), screen, "bold")
        yield from _text(part.note, screen)
    yield from _view_lines(part.view, screen)


def _text(text: str, screen: Screen, style: str = "") -> Iterator[str]:
    """The lines, what does not fit behind a deeper indent."""
    for line in map(printable, text.splitlines()):
        indent = line[: len(line) - len(line.lstrip())] + 2 * _INDENT
        for piece in wrap_text(line, screen.width if screen.wraps else None, indent):
            yield _styled(piece, style) if screen.is_styled else piece


def _table(table: PlainTable, screen: Screen) -> Iterator[str]:
    layout = fit(table, screen.width)
    if layout is None:
        yield from _folded(table, screen)
        return
    yield from _grid(table, layout, screen)
    missing = [c.heading for n, c in enumerate(table.columns) if n not in layout.columns]
    if missing:
        yield from wrap_text(f"left out for lack of room: {', '.join(missing)}", screen.width, _INDENT)


def _grid(table: PlainTable, layout: ColumnWidths, screen: Screen) -> list[str]:
    title = "\n".join(wrap_text(table.title, layout.width)) or None
    grid = RichTable(title=RichText(title, style="italic") if title else None, box=screen.frames)
    for column, wide in zip(layout.columns, layout.widths, strict=True):
        shown = table.columns[column]
        # Texts, since of a string rich takes words in brackets for tags; and wrapped here, since rich breaks words, and
        # numbers from their units.
        heading = RichText("\n".join(wrap_text(shown.heading, wide)))
        grid.add_column(heading, justify="right" if shown.kind.is_figure else "left", width=wide, no_wrap=True)
    for number, row in enumerate(table.rows):
        if number in table.breaks:
            grid.add_section()
        cells = ["\n".join(wrap_text(row[c], w)) for c, w in zip(layout.columns, layout.widths, strict=True)]
        grid.add_row(*map(RichText, cells))
    console = _console(layout.width, screen.is_styled)
    console.print(grid)
    return _written(console)


def _folded(table: PlainTable, screen: Screen) -> Iterator[str]:
    """Each row as a block of lines; empty cells are left out."""
    yield from _text(table.title, replace(screen, wraps=True), "italic")
    for row in table.rows:
        yield ""
        for number, (column, cell) in enumerate(zip(table.columns, row, strict=True)):
            if cell:
                name = f"{column.heading}: " if column.heading.strip() else ""
                lead = _INDENT if number else ""
                yield from wrap_text(f"{lead}{name}{cell}", screen.width, lead + 2 * _INDENT)
    yield ""


def _styled(line: str, style: str) -> str:
    if not style:
        return line
    # So wide that rich breaks nothing: the line has been wrapped.
    console = _console(10_000, is_styled=True)
    console.print(RichText(line, style=style))
    return "\n".join(_written(console))


def _console(width: int, is_styled: bool) -> Console:
    # Foreign text again: rich would colour numbers in it, and make pictures of what stands between colons.
    return Console(file=io.StringIO(), width=width, force_terminal=is_styled, highlight=False, emoji=False)


def _written(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()
