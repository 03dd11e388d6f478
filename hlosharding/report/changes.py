"""How shardings came about, step by step; what another set of annotations changes; which set would do better.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hlosharding.compiler import partition
from hlosharding.ir import Instruction
from hlosharding.propagation import Propagation
from hlosharding.report.costs import comparison, cost_view
from hlosharding.report.model import Column, Facts, Kind, Row, Shown, Table, Text, View, Within
from hlosharding.search import Suggestion

_STEP = "{number:>4}  {level}  from {from} {sources}: {name} {before} -> {after}"


def trace_view(propagation: Propagation) -> View:
    """Every step of a propagation in order: level, where it came from, what the value had and has.

    >>> from hlosharding.frontends import load
    >>> from hlosharding.propagation import propagate
    >>> from hlosharding.report.terminal import to_text
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0), sharding={devices=[2]<=[2]}\\n"
    >>> text += "  ROOT y = f32[8] abs(x)\\n}"
    >>> print(to_text(trace_view(propagate(load(text), to_outputs=True))))
       1  level 0  from operands %x: %y none -> {devices=[2]<=[2]}
    """
    by_id = {i.id: i for i in propagation.module.instructions}
    rows: list[Row] = []
    for number, step in enumerate(propagation.provenance.changes, 1):
        sources = [by_id.get(source) for source in step.sources]
        rows.append(
            {
                "number": number,
                "level": Shown(f"level {step.level}" if step.level >= 0 else "before ", step.level),
                "name": _name(by_id.get(step.instruction)),
                "from": step.direction,
                "sources": Shown(", ".join(_name(s).text for s in sources), [_name(s) for s in sources]),
                "before": step.old,
                "after": step.new,
            }
        )
    columns = (
        Column(key="number", heading="step", in_record=False),
        *(Column(key=key, heading=key) for key in ("level", "from", "sources", "name")),
        *(Column(key=key, heading=key, kind=Kind.SHARDING) for key in ("before", "after")),
    )
    table = Table(title="", key="steps", columns=columns, rows=rows, mesh=propagation.module.mesh, line=_STEP)
    return View((Facts({"module": propagation.module.name}), table), schema="hlosharding.trace/1")


def _name(inst: Instruction | None) -> Shown:
    return Shown(f"%{inst.name}", inst.name) if inst is not None else Shown("(removed)", None)


def difference_view(before: Propagation, after: Propagation) -> View:
    """Values that two propagations of one program shard differently, and what each then costs on one device."""
    places, mesh = {i.name: i.location for i in before.module.instructions}, before.module.mesh
    pairs = {name: (old, after.shardings.get(name)) for name, old in before.shardings.items()}
    rows: list[Row] = [
        {"name": Shown(f"%{name}", name), "location": places[name], "before": old, "after": new}
        for name, (old, new) in pairs.items()
        if old != new
    ]
    columns = (
        Column(key="name", heading="value"),
        Column(key="location", heading="source", kind=Kind.LOCATION, in_record=False, priority=1),
        Column(key="before", heading="before", kind=Kind.SHARDING),
        Column(key="after", heading="after", kind=Kind.SHARDING),
    )
    title, none = "Shardings that differ", () if rows else (Text("No sharding differs."),)
    table = Table(title=title, key="differing", by="name", columns=columns, rows=rows, mesh=mesh, is_shown=bool(rows))
    old, new = (partition(one).cost for one in (before, after))
    costs = (
        Within("cost_before", cost_view(old), is_shown=False),
        Within("cost_after", cost_view(new), is_shown=False),
    )
    compared = comparison(new, old, names=("after", "before"))
    return View((table, *none, replace(compared, key=""), *costs), schema="hlosharding.difference/1")


def suggestions_view(suggestions: Sequence[Suggestion]) -> View:
    """Sets of annotations, the best first."""
    rows: list[Row] = [
        {
            "text": str(one),
            "annotations": dict(one.annotations),
            "replaces": one.replaces,
            "sharding": one.sharding,
            "bytes_before": one.bytes_before,
            "bytes_received": one.bytes_received,
            "flops_before": one.flops_before,
            "flops": one.flops,
            "conflicts_before": one.conflicts_before,
            "conflicts_after": one.conflicts,
            "is_smallest": one.is_smallest,
        }
        for one in suggestions
    ]
    columns = (Column(key="text", heading="suggestion", in_record=False),)
    table = Table(title="", key="suggestions", columns=columns, rows=rows, line="{text}")
    return View((table,), schema="hlosharding.suggestions/1")
