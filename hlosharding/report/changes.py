"""How shardings came about, step by step; and what another set of annotations changes.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group
from rich.table import Table

from hlosharding.compiler import partition
from hlosharding.ir import Instruction
from hlosharding.propagation import Propagation
from hlosharding.report.costs import show_comparison
from hlosharding.report.tables import add_row, new_table
from hlosharding.sharding import spell_short


def trace_lines(propagation: Propagation) -> Iterator[str]:
    """Every step of a propagation in order: level, where it came from, what the value had and has.

    >>> from hlosharding.frontends import load
    >>> from hlosharding.propagation import propagate
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0), sharding={devices=[2]<=[2]}\\n"
    >>> text += "  ROOT y = f32[8] abs(x)\\n}"
    >>> print(*trace_lines(propagate(load(text), to_outputs=True)), sep="\\n")
       1  level 0  from operands %x: %y none -> {devices=[2]<=[2]}
    """
    by_id, mesh = {i.id: i for i in propagation.module.instructions}, propagation.module.mesh
    for number, step in enumerate(propagation.provenance.changes, 1):
        level = f"level {step.level}" if step.level >= 0 else "before "
        sources = ", ".join(_name(by_id.get(s)) for s in step.sources)
        change = f"{spell_short(step.old, mesh)} -> {spell_short(step.new, mesh)}"
        yield f"{number:4}  {level}  from {step.direction} {sources}: {_name(by_id.get(step.instruction))} {change}"


def _name(inst: Instruction | None) -> str:
    return f"%{inst.name}" if inst is not None else "(removed)"


def show_difference(before: Propagation, after: Propagation) -> Group:
    """Values that two propagations of one program shard differently, and what each then costs on one device."""
    table = new_table("Shardings that differ", "value", "source", "before", "after")
    places, mesh = {i.name: i.location for i in before.module.instructions}, before.module.mesh
    for name, old in before.shardings.items():
        new = after.shardings.get(name)
        if old != new:
            add_row(table, f"%{name}", places[name], spell_short(old, mesh), spell_short(new, mesh))
    return Group(table if table.row_count else "No sharding differs.", _costs(before, after))


def _costs(before: Propagation, after: Propagation) -> Table:
    ours, theirs = (partition(p).cost for p in (after, before))
    return show_comparison(ours, theirs, names=("after", "before"))
