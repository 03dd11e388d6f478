"""How shardings came about, step by step; what another set of annotations changes; which set would do better.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hlosharding.ir import Instruction
from hlosharding.plans import Difference
from hlosharding.propagation import Propagation
from hlosharding.report.collectives import participants
from hlosharding.report.costs import comparison, cost_view
from hlosharding.report.model import Column, Facts, Kind, Row, Shown, Table, Text, View, Within, fields_of
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
    table = Table(key="steps", columns=columns, rows=rows, mesh=propagation.module.mesh, line=_STEP)
    return View((Facts({"module": propagation.module.name}), table), schema="hlosharding.trace/1")


def _name(inst: Instruction | None) -> Shown:
    return Shown(f"%{inst.name}", inst.name) if inst is not None else Shown("(removed)", None)


def difference_view(found: Difference, *, names: tuple[str, str] = ("before", "after"), most: int = 40) -> View:
    """What differs between two programs: values that they shard differently, collectives, and what each then costs.

    `names`: of the two; `most`: how many rows of each table are shown.
    """
    old, new = names
    is_same = () if found.shardings or not found.has_values else (Text("No sharding differs."),)
    sides = (("cost_before", found.before), ("cost_after", found.after))
    costs = [Within(key, cost_view(cost), is_shown=False) for key, cost in sides]
    compared = comparison(found.after, found.before, names=(new, old))
    tables = (_differing(found, names, most), *is_same, _moved(found, names, most))
    facts = Facts(fields_of(found, "is_same only_before only_after"))
    left_over = zip((found.only_before, found.only_after), names, strict=True)
    only = [f"{len(left)} values only {name}" for left, name in left_over if left]
    said = (Text("; ".join(only) + "."),) if only else ()
    schema = "hlosharding.difference/1"
    return View((facts, *tables, *said, replace(compared, key=""), *costs), schema=schema)


def _differing(found: Difference, names: tuple[str, str], most: int) -> Table:
    rows: list[Row] = [
        {"name": Shown(f"%{one.name}", one.name), **fields_of(one, "location before after")} for one in found.shardings
    ]
    columns = (
        Column(key="name", heading="value"),
        Column(key="location", heading="source", kind=Kind.LOCATION, in_record=False, priority=1),
        Column(key="before", heading=names[0], kind=Kind.SHARDING),
        Column(key="after", heading=names[1], kind=Kind.SHARDING),
    )
    return Table(
        title="Shardings that differ",
        key="differing",
        by="name",
        columns=columns,
        rows=rows,
        mesh=found.module.mesh,
        is_shown=bool(rows),
        most=most,
    )


def _moved(found: Difference, names: tuple[str, str], most: int) -> Table:
    rows: list[Row] = [
        {
            "change": one.change,
            "kind": one.one.kind,
            "axes": Shown(one.one.axes or participants(one.one), one.one.axes),
            "shape": str(one.one.shape),
            **fields_of(one, "bytes_before bytes_after"),
            "location": one.one.location,
            "cause": Shown(one.one.kind_of_cause, one.one.cause),
        }
        for one in found.collectives
    ]
    columns = (
        Column(key="change", heading=""),
        Column(key="kind", heading="kind"),
        Column(key="axes", heading="axes", priority=1),
        Column(key="shape", heading="shape", kind=Kind.SHAPE, priority=2),
        Column(key="bytes_before", heading=f"bytes {names[0]}", kind=Kind.COUNT, sums=True),
        Column(key="bytes_after", heading=f"bytes {names[1]}", kind=Kind.COUNT, sums=True),
        Column(key="location", heading="source", kind=Kind.LOCATION),
        Column(key="cause", heading="cause", kind=Kind.PROSE, priority=1),
    )
    return Table(
        title="Collectives that differ",
        key="collectives",
        columns=columns,
        rows=rows,
        joins=True,
        is_shown=bool(rows),
        most=most,
    )


def suggestions_view(suggestions: Sequence[Suggestion]) -> View:
    """Sets of annotations, the best first."""
    rows: list[Row] = [
        {
            "text": str(one),
            "annotations": dict(one.annotations),
            **fields_of(one, "replaces sharding bytes_before bytes_received flops_before flops time_before_s time_s"),
            "conflicts_before": one.conflicts_before,
            "conflicts_after": one.conflicts,
            "is_smallest": one.is_smallest,
        }
        for one in suggestions
    ]
    columns = (Column(key="text", heading="suggestion", in_record=False),)
    table = Table(key="suggestions", columns=columns, rows=rows, line="{text}")
    return View((table,), schema="hlosharding.suggestions/1")
