"""Tables of the shardings that propagation found: of parameters, of the main activations, of everything.

Floor: report.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from rich.table import Table

from hlosharding.propagation import Propagation
from hlosharding.report.spelling import spell

_INDEX = re.compile(r"\[\d+\]")
_ROOT = re.compile(r"^[\w.]+(\[\d+\])*")
_Row = tuple[str, str, str]


def show_parameters(propagated: Propagation, mesh: Any = None) -> Table:
    """The sharding found for each parameter; layers that agree share a row, and so do an optimizer's moments.

    `mesh`: whose axis names are used; by default the module's own.
    """
    mesh = mesh if mesh is not None else propagated.module.mesh
    rows: Counter[_Row] = Counter()
    for parameter in propagated.module.entry.parameters:
        found = spell(propagated.module.sharding(parameter), mesh)
        rows[_row_of((parameter.op_name or parameter.name, str(parameter.shape), found), rows)] += 1
    table = _table("Parameters, with their layers and moments", "parameter", "shape", "sharding found", "times")
    for row, times in rows.items():
        table.add_row(*row, str(times))
    return table


def _row_of(row: _Row, rows: Iterable[_Row]) -> _Row:
    """The earlier row of the same parameter (other layer, or whose moment this is), else a new one."""
    path, *rest = row
    tail = _ROOT.sub("", path)
    path = path.removesuffix(tail) + _INDEX.sub("[*]", tail)
    for known in rows:
        tail = _ROOT.sub("", known[0])
        if tail and path.endswith(tail) and [*known[1:]] == rest:
            return known
    return path, *row[1:]


def show_activations(
    propagated: Propagation, mesh: Any = None, *, opcodes: Sequence[str] = ("dot", "convolution")
) -> Table:
    """The sharding found for the results of the forward pass's large ops (`opcodes`); equal ones share a row."""
    mesh = mesh if mesh is not None else propagated.module.mesh
    rows = Counter(
        (inst.location, inst.opcode, str(inst.shape), spell(propagated.module.sharding(inst), mesh))
        for inst in propagated.module.entry.instructions
        if inst.opcode in opcodes and "transpose(" not in inst.op_name
    )
    table = _table("Activations, forward pass", "source", "operation", "shape", "sharding found", "times")
    for row, times in rows.items():
        table.add_row(*row, str(times))
    return table


def show_shardings(propagated: Propagation, mesh: Any = None) -> Table:
    """Every value with its sharding, in program order; one section a computation."""
    mesh = mesh if mesh is not None else propagated.module.mesh
    table = _table("Shardings", "value", "operation", "shape", "sharding", "source")
    for computation in propagated.module.computations:
        table.add_section()
        for inst in computation.instructions:
            root = "ROOT " if inst.is_root else ""
            found = spell(propagated.module.sharding(inst), mesh)
            table.add_row(f"{root}%{inst.name}", inst.opcode, str(inst.shape), found, inst.location)
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title)
    for column in columns:
        table.add_column(column, justify="right" if column == "times" else "left")
    return table
