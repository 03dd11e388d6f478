"""Tables of the shardings that propagation found: of parameters, of the main activations, of everything.

Floor: report.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from hlosharding.ir import Shape
from hlosharding.propagation import Propagation
from hlosharding.report.tables import add_row, new_table
from hlosharding.sharding import spell, spell_short

_INDEX = re.compile(r"\[\d+\]")
_ROOT = re.compile(r"^[\w.]+(\[\d+\])*")
_LEAVES_SHOWN = 4
_Row = tuple[str, str, str]


def show_parameters(propagated: Propagation, mesh: Any = None) -> Table:
    """The sharding found for each parameter; layers that agree share a row, and so do an optimizer's moments.

    `mesh`: whose axis names are used; by default the module's own.
    """
    mesh = mesh if mesh is not None else propagated.module.mesh
    rows: Counter[_Row] = Counter()
    known: dict[_Row, _Row] = {}
    for parameter in propagated.module.entry.parameters:
        found = spell(propagated.module.sharding(parameter), mesh)
        rows[_row_of(parameter.op_name or parameter.name, (str(parameter.shape), found), known)] += 1
    title = "Parameters, with their layers and moments"
    table = new_table(title, "parameter", "shape", "sharding found", "times", figures=("times",))
    for row, times in rows.items():
        add_row(table, *row, str(times))
    return table


def _row_of(path: str, rest: tuple[str, str], known: dict[_Row, _Row]) -> _Row:
    """The earlier row of the same parameter (other layer, or whose moment this is), else a new one.

    `known` finds rows by what follows the name of the argument: a moment's path ends like its parameter's.
    """
    tail = _ROOT.sub("", path)
    path = path.removesuffix(tail) + _INDEX.sub("[*]", tail)
    tail = _INDEX.sub("[*]", tail)
    for start, letter in enumerate(path):
        if letter in ".[" and (path[start:], *rest) in known:
            return known[path[start:], *rest]
    row = (path, *rest)
    if tail:
        known[tail, *rest] = row
    return row


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
    columns = ("source", "operation", "shape", "sharding found", "times")
    table = new_table("Activations, forward pass", *columns, figures=("times",))
    for row, times in rows.items():
        add_row(table, *row, str(times))
    return table


def show_shardings(propagated: Propagation, mesh: Any = None) -> Table:
    """Every value with its sharding, in program order, a section a computation; reducers and their like left out."""
    mesh = mesh if mesh is not None else propagated.module.mesh
    table = new_table("Shardings", "value", "operation", "shape", "sharding", "source")
    for computation in propagated.module.computations:
        found = [propagated.module.sharding(inst) for inst in computation.instructions]
        if not computation.is_entry and not any(found):
            continue
        table.add_section()
        for inst, sharding in zip(computation.instructions, found, strict=True):
            name = f"ROOT %{inst.name}" if inst.is_root else f"%{inst.name}"
            add_row(table, name, inst.opcode, _shape(inst.shape), spell_short(sharding, mesh), inst.location)
    return table


def _shape(shape: Shape) -> str:
    leaves = len(shape.leaves)
    return str(shape) if leaves <= _LEAVES_SHOWN else f"tuple of {leaves} arrays"
