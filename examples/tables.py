"""The one table that only the examples need: two trainings' losses, step by step."""

from __future__ import annotations

from collections.abc import Sequence

from hlosharding.report import Column, Shown, Table, View

_LOSS, _DIFFERENCE = ".6f", ".1e"


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
