"""The page: sections with tables that sort, filter and fold, drawings, and no request to anybody.

Floor: report.  Markup comes of the template and of drawings alone; whatever a program says is escaped, in
tags as in the data that the script reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, Template
from markupsafe import Markup

from hlosharding.errors import HloShardingError
from hlosharding.printable import printable
from hlosharding.report.drawing import SIZE, draw_svg
from hlosharding.report.model import Drawing, Facts, Lines, Part, Picture, Table, Text, Tree, View, Within
from hlosharding.report.page.tables import LARGEST_DRAWING, Data, Icons, TableWriter
from hlosharding.report.plain import cell_text
from hlosharding.report.svg import titled

LARGEST_PAGE = 5_000_000
"""Characters."""
_ROWS = ((2000, 400), (500, 100), (100, 30), (25, 8))
"""Rows of a table, and of one below a row: the first that make a page small enough."""
_SCRIPTS = tuple(f"script/{name}.js" for name in ("elements", "places", "tables", "timeline", "search", "page"))
"""One after the other they are the script: each uses what those before it say."""
_FIRST_ROWS = 15
"""Of a table, that stand on the page before its script runs."""


def render_page(view: View, *, title: str) -> str:
    """The view as a page; its titled parts are sections.  Raises HloShardingError where it cannot be made small enough.

    >>> page = render_page(View((Text("</script><b>"),)), title="<i>")
    >>> "<title>&lt;i&gt;</title>" in page, "<b>" in page
    (True, False)
    """
    for most, most_below in _ROWS:
        has_bars = most > _ROWS[-1][0]
        page = _PageRenderer(TableWriter(Icons(), most, most_below), has_bars=has_bars).render(view, title)
        if len(page) <= LARGEST_PAGE:
            return page
    raise HloShardingError(f"the page would have over {LARGEST_PAGE:,} characters", remedy="take --emit json")


@dataclass(slots=True)
class _PageRenderer:
    writer: TableWriter
    has_bars: bool
    """Is there room for a timeline that is drawn anew at each zoom?"""
    tables: list[Data] = field(default_factory=list[Data])
    timeline: Mapping[str, Any] | None = None

    def render(self, view: View, title: str) -> str:
        sections = [self._section(part) for part in view.parts if isinstance(part, Within) and part.title]
        lead = View(tuple(part for part in view.parts if not (isinstance(part, Within) and part.title)))
        return _template().render(
            title=printable(title),
            lead=list(self._parts(lead)),
            sections=sections,
            data={"tables": self.tables, "first_rows": _FIRST_ROWS, "timeline": self.timeline},
            icons=[Markup(drawn) for drawn in self.writer.icons.drawn],
            icon_size=SIZE,
            style=Markup(_resource("page.css")),
            script=Markup("\n".join(map(_resource, _SCRIPTS))),
        )

    def _section(self, part: Within) -> dict[str, Any]:
        return {
            "id": part.key,
            "title": printable(part.title),
            "note": printable(part.note),
            "parts": list(self._parts(part.view)) if part.is_shown else [],
        }

    def _parts(self, view: View) -> Iterator[dict[str, Any]]:
        for part in view.parts:
            yield from self._part(part)

    def _part(self, part: Part) -> Iterator[dict[str, Any]]:
        match part:
            case Table() if part.is_shown:
                self.tables.append(self.writer.table(part))
                yield {"kind": "table", "number": len(self.tables) - 1, "table": self.tables[-1]}
            case Facts() if part.labels:
                yield {"kind": "cards", "cards": [_card(part, label) for label in part.labels]}
            case Lines() if not part.lines:
                pass
            case Text() | Lines():
                yield {"kind": "text", "text": part.printable_text, "style": part.style}
            case Tree():
                yield {"kind": "tree", "text": part.printable_text}
            case Picture():
                bars = part.bars if self.has_bars else {}
                self.timeline = bars or self.timeline
                svg = Markup(titled(part.svg, part.title))
                yield {"kind": "picture", "svg": svg, "title": part.title, "is_timeline": bool(bars)}
            case Drawing() if part.sharding.num_tiles <= LARGEST_DRAWING:
                svg = Markup(draw_svg(part.sharding, part.dims))
                title = printable(part.title) or "Pieces, by the devices that hold them"
                yield {"kind": "picture", "svg": svg, "title": title}
            case Within() if part.is_shown:
                yield from self._parts(part.view)
            case _:
                pass


def _card(facts: Facts, label: Any) -> dict[str, str]:
    figure = cell_text(facts.items[label.key], label.kind)
    return {"name": printable(label.name), "figure": figure, "note": printable(label.note)}


def _resource(name: str) -> str:
    return files(__package__ or "").joinpath(name).read_text(encoding="utf-8")


@cache
def _template() -> Template:
    return Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(_resource("page.html"))
