"""The tables that only the examples need: of a forward pass's large ops, and of two trainings' losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlosharding import Propagation
from hlosharding.report import Column, Kind, Row, Shown, Table, View

_LOSS, _DIFFERENCE = ".6f", ".1e"
_LARGE = {"dot", "convolution"}
_OF_ACTIVATIONS = (
    Column(key="location", heading="source", kind=Kind.LOCATION),
    Column(key="operation", heading="operation", priority=3),
    Column(key="shape", heading="shape", kind=Kind.SHAPE, priority=1),
    Column(key="sharding", heading="sharding found", kind=Kind.SHARDING),
    Column(key="times", heading="times", kind=Kind.COUNT, sums=True, priority=2),
)


def activations(propagated: Propagation, mesh: Any) -> View:
    """The sharding found for the results of the forward pass's large ops; equal ones share a row."""
    module = propagated.module
    rows: list[Row] = [
        {
            "location": inst.location,
            "operation": inst.opcode,
            "shape": inst.shape,
            "sharding": module.sharding(inst),
            "times": 1,
        }
        for inst in module.entry.instructions
        if inst.opcode in _LARGE and "transpose(" not in inst.op_name
    ]
    title = "Activations, forward pass"
    return View((Table(title=title, key="activations", columns=_OF_ACTIVATIONS, rows=rows, mesh=mesh, joins=True),))


def losses(many: Sequence[float], one: Sequence[float], devices: int) -> View:
    """The loss at every step, on all devices and on one."""
    headings = {"step": "step", "many": f"{devices} devices", "one": "one device", "apart": "relative difference"}
    columns = tuple(Column(key=key, heading=heading) for key, heading in headings.items())
    rows = [
        {
            "step": step,
            "many": _shown(sharded, _LOSS),
            "one": _shown(single, _LOSS),
            "apart": _shown(abs(sharded / single - 1), _DIFFERENCE),
        }
        for step, (sharded, single) in enumerate(zip(many, one, strict=True), 1)
    ]
    return View((Table(title="Loss", key="losses", columns=columns, rows=rows),))


def _shown(value: float, form: str) -> Shown:
    return Shown(format(value, form), value)
