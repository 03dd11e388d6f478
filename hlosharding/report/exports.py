"""A plan for a stock `jax.jit`: the edge of the program, and the lines that its function needs.

Floor: report.
"""

from __future__ import annotations

from hlosharding.plans import ExportedPlan
from hlosharding.report.model import Column, Facts, Kind, Lines, Row, Shown, Table, View, fields_of


def exported_view(plan: ExportedPlan) -> View:
    """The PartitionSpecs of arguments and results, the constraints by source line, and what neither says.

    >>> import hlosharding as hs
    >>> module = hs.load("HloModule m\\nENTRY e {\\n  ROOT x = f32[8] parameter(0), sharding={devices=[2]<=[2]}\\n}")
    >>> [part.title for part in exported_view(hs.export_plan(module)).parts[1:4]]
    ['Arguments', 'Results', 'Constraints']
    """
    axes = dict(zip(plan.mesh.names, plan.mesh.sizes, strict=True))
    arguments, results = (
        Table(title=title, key=key, columns=_EDGE, rows=[_edge(*each) for each in edge])
        for title, key, edge in (("Arguments", "arguments", plan.arguments), ("Results", "results", plan.results))
    )
    lines: list[Row] = [
        {
            **fields_of(one, "location expression shape"),
            "spec": str(one.spec),
            "values": Shown(str(len(one.values)), [inst.name for inst in one.values]),
        }
        for one in plan.constraints
    ]
    constraints = Table(title="Constraints", key="constraints", columns=_LINES, rows=lines, is_shown=bool(lines))
    facts = Facts({"module": plan.stock.name, "mesh": axes})
    return View(
        (facts, arguments, results, constraints, Lines("unsaid", plan.unsaid, label="left to XLA")),
        schema="hlosharding.export/1",
    )


def _edge(name: str, spec: object) -> Row:
    said = None if spec is None else str(spec)
    return {"name": name, "spec": Shown(said or "left to XLA", said)}


_EDGE = (Column(key="name", heading="name"), Column(key="spec", heading="PartitionSpec"))
_LINES = (
    Column(key="location", heading="source", kind=Kind.LOCATION),
    Column(key="expression", heading="expression", kind=Kind.PROSE),
    Column(key="shape", heading="shape", kind=Kind.SHAPE, priority=1),
    Column(key="spec", heading="PartitionSpec"),
    Column(key="values", heading="values", priority=1),
)
