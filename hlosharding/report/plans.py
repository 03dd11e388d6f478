"""Plans between two shardings of an array, and for a stock `jax.jit`.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Iterable

from hlosharding.plans import ExportedPlan
from hlosharding.report.model import Column, Drawing, Facts, Kind, Lines, Row, Shown, Table, Text, View, fields_of
from hlosharding.reshard import ReshardPlan


def reshard_view(plan: ReshardPlan, *, drawn: bool = True) -> View:
    """The steps of a plan, its bytes, its bound and its price; `drawn`: and both shardings."""
    facts = Facts.of(
        **fields_of(plan, "shape source target"),
        machine=plan.machine.name,
        num_devices=plan.num_devices,
        steps=[
            {
                "step": str(step),
                "local_before": before,
                "local_after": after,
                "received_bytes": float(step.received_bytes(before, plan.num_devices).mean()),
                "time_s": step.seconds(before, plan.machine),
            }
            for step, before, after in plan.stages
        ],
        received_bytes=plan.mean_received_bytes,
        lower_bound=float(plan.lower_bound),
        peak_bytes=int(plan.peak_bytes),
        time_s=float(plan.predicted_s),
    )
    dims = plan.shape.dims
    drawings = (Drawing(plan.source, dims, "from"), Drawing(plan.target, dims, "to")) if drawn else ()
    return View((facts, Text(plan), *drawings), schema="hlosharding.reshard/1")


# ---- for a stock jax.jit


def exported_view(plan: ExportedPlan) -> View:
    """The PartitionSpecs of arguments and results, the constraints by source line, and what neither says.

    >>> import hlosharding as hs
    >>> module = hs.load("HloModule m\\nENTRY e {\\n  ROOT x = f32[8] parameter(0), sharding={devices=[2]<=[2]}\\n}")
    >>> [part.title for part in exported_view(hs.export_plan(module)).parts[1:4]]
    ['Arguments', 'Results', 'Constraints']
    """
    axes = dict(zip(plan.mesh.names, plan.mesh.sizes, strict=True))
    edges = (("Arguments", plan.arguments), ("Results", plan.results))
    tables = [Table(title=title, key=title.lower(), columns=_EDGE, rows=_edge_rows(edge)) for title, edge in edges]
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
    unsaid = Lines("unsaid", plan.unsaid, label="left to XLA")
    return View((facts, *tables, constraints, unsaid), schema="hlosharding.export/1")


def _edge_rows(edge: Iterable[tuple[str, object]]) -> list[Row]:
    said = [(name, None if spec is None else str(spec)) for name, spec in edge]
    return [{"name": name, "spec": Shown(spec or "left to XLA", spec)} for name, spec in said]


_EDGE = (Column(key="name", heading="name"), Column(key="spec", heading="PartitionSpec"))
_LINES = (
    Column(key="location", heading="source", kind=Kind.LOCATION),
    Column(key="expression", heading="expression", kind=Kind.PROSE),
    Column(key="shape", heading="shape", kind=Kind.SHAPE, priority=1),
    Column(key="spec", heading="PartitionSpec"),
    Column(key="values", heading="values", priority=1),
)
