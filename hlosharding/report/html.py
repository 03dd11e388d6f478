"""A view as HTML for a notebook or a page: every text escaped, tables that scroll where the page is narrow.

Floor: report.  A name from a program is data: nothing of it becomes a tag.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from jinja2 import Environment, Template
from markupsafe import Markup

from hlosharding.printable import printable
from hlosharding.report.drawing import draw_svg
from hlosharding.report.model import Column, Drawing, Facts, Kind, Lines, Part, Picture, Table, Text, Tree, View, Within
from hlosharding.report.plain import PlainTable, facts_table, plain, row_lines

_LONG = 40
"""Characters from which a sentence breaks into lines where the page is narrow; names and figures never do."""
_LARGEST_DRAWING = 256  # tiles

# Styles stand at the tags, since many notebooks drop a sheet of styles; colours are those of the page around.
_FONT = "font-family:Menlo,Consolas,monospace;font-size:12px;line-height:1.35"
_SCROLLS = "overflow-x:auto;max-width:100%"
_PAGE = """
{%- macro lines(first, rest) -%}
<pre style="white-space:pre-wrap;{{ scrolls }};{{ font }}">
{%- if rest is none %}{{ first }}{% else %}<b>{{ first }}</b>{{ rest }}{% endif -%}
</pre>
{%- endmacro -%}

{%- macro table(table) -%}
<div style="{{ scrolls }}"><table style="border-collapse:collapse;margin:8px 0;{{ font }}">
{%- if table.title %}
<caption style="text-align:left;font-style:italic;padding:4px 0;white-space:nowrap">{{ table.title }}</caption>
{%- endif %}
<thead><tr>
{%- for column in table.columns %}
<th style="padding:2px 8px;vertical-align:bottom;border-bottom:1px solid;text-align:{{ side(column) }}">
{{- column.heading }}</th>
{%- endfor %}
</tr></thead><tbody>
{%- for row in table.rows %}
<tr{% if loop.index0 and loop.index0 in table.breaks %} style="border-top:1px solid"{% endif %}>
{%- for column, text in zip(table.columns, row) %}
<td style="padding:2px 8px;vertical-align:top;text-align:{{ side(column) }};{{ space(column, text) }}">{{ text }}</td>
{%- endfor %}
</tr>
{%- endfor %}
</tbody></table></div>
{%- endmacro -%}
"""
_NO_BREAK, _BREAKS = "white-space:nowrap", "white-space:normal;min-width:28em"


def render(view: View) -> str:
    """The view's parts one below the other.

    >>> print(render(View((Text("<b>%x</b>"),))).split(">", 1)[1])
    &lt;b&gt;%x&lt;/b&gt;</pre>
    """
    return "\n".join(_rendered(view))


def _rendered(view: View) -> Iterator[str]:
    for part in view.parts:
        yield from _part(part)


def _part(part: Part) -> Iterator[str]:
    match part:
        case Table() if part.line:
            yield _lines("\n".join(row_lines(part)))
        case Table():
            yield from [_table(plain(part))] if part.is_shown else []
        case Facts():
            yield from [_table(plain(facts_table(part)))] if part.labels else []
        case Text():
            yield _lines(part.printable_text)
        case Lines():
            yield from [_lines(part.printable_text)] if part.lines else []
        case Tree():
            first, _, rest = part.printable_text.partition("\n")
            yield _lines(first, f"\n{rest}" if rest else "")
        case Drawing():
            yield from [_drawing(part)] if part.sharding.num_tiles <= _LARGEST_DRAWING else []
        case Picture():
            yield f'<div style="{_SCROLLS}">{part.svg}</div>'
        case Within():
            yield from _within(part) if part.is_shown else []


def _within(part: Within) -> Iterator[str]:
    if part.title:
        yield Markup("<h3>{}</h3>").format(printable(part.title))
    if part.note:
        yield Markup("<p>{}</p>").format(printable(part.note))
    yield from _rendered(part.view)


def _lines(first: str, rest: str | None = None) -> str:
    return _macros().lines(first, rest)


def _table(table: PlainTable) -> str:
    return _macros().table(table)


def _side(column: Column) -> str:
    return "right" if column.kind.is_figure else "left"


def _space(column: Column, text: str) -> str:
    return _BREAKS if column.kind is Kind.PROSE and len(text) > _LONG else _NO_BREAK


def _drawing(part: Drawing) -> str:
    title = Markup("<div>{}</div>").format(part.title) if part.title else ""
    style = f"display:inline-block;vertical-align:top;margin-right:16px;{_SCROLLS};{_FONT}"
    return f'<div style="{style}">{title}{draw_svg(part.sharding, part.dims)}</div>'


@cache
def _macros() -> Any:
    """The template's macros: what they are given is escaped."""
    known = {"font": _FONT, "scrolls": _SCROLLS, "side": _side, "space": _space, "zip": zip}
    template: Template = Environment(autoescape=True).from_string(_PAGE, known)
    return template.module
