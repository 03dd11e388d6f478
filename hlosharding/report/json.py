"""A view for programs: plain dicts and lists that `json` writes.

Floor: report.  Sizes are bytes, times seconds; shardings and shapes are XLA's text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hlosharding.ir import Shape
from hlosharding.report.model import Facts, Figure, Lines, Part, Shown, Table, View, Within
from hlosharding.sharding import HloSharding

Record = dict[str, Any]


def render(view: View) -> Record:
    """The view's facts with raw numbers; what is only for people is left out.

    >>> from hlosharding.report.model import Text
    >>> render(View((Facts({"flops": 8.0}), Text("only for people")), schema="hlosharding.example/1"))
    {'schema': 'hlosharding.example/1', 'flops': 8.0}
    """
    record: Record = {"schema": view.schema} if view.schema else {}
    for part in view.parts:
        record |= _entries(part)
    return record


def _entries(part: Part) -> Record:
    match part:
        case Facts():
            return {key: _raw(cell) for key, cell in part.items.items()}
        case Table():
            return {part.key: _rows(part)} if part.key else {}
        case Lines():
            return {part.key: list(part.lines)} if part.key else {}
        case Within():
            return {part.key: render(part.view)} if part.in_record else {}
        case _:
            return {}


def _rows(table: Table) -> list[Record] | Record:
    for_people = {table.thread, *(column.key for column in table.columns if not column.in_record)}
    rows = [{key: _raw(cell) for key, cell in row.items() if key not in for_people} for row in table.rows]
    return {row.pop(table.by): row for row in rows} if table.by else rows


def _raw(cell: Any) -> Any:
    match cell:
        case Shown():
            return _raw(cell.raw)
        case Figure():
            return _raw(cell.value)
        case View():
            return render(cell)
        case HloSharding() | Shape():
            return str(cell)
        case np.generic():
            return cell.item()
        # Before sequences: a text is one, too.
        case str():
            return cell
        case Mapping():
            return {key: _raw(value) for key, value in cell.items()}
        case Sequence() | np.ndarray() | frozenset():
            return [_raw(value) for value in cell]
        case _:
            return cell
