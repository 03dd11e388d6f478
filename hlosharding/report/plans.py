"""Plans between two shardings of an array.

Floor: report.
"""

from __future__ import annotations

from hlosharding.report.model import Drawing, Facts, Text, View, fields_of
from hlosharding.reshard import ReshardPlan


def reshard_view(plan: ReshardPlan, *, drawn: bool = True) -> View:
    """The steps of a plan, its bytes, its bound and its price; `drawn`: and both shardings."""
    facts = Facts(
        {
            **fields_of(plan, "shape source target"),
            "machine": plan.machine.name,
            "num_devices": plan.num_devices,
            "steps": [
                {
                    "step": str(step),
                    "local_before": before,
                    "local_after": after,
                    "received_bytes": float(step.received_bytes(before, plan.num_devices).mean()),
                    "time_s": step.seconds(before, plan.machine),
                }
                for step, before, after in plan.stages
            ],
            "received_bytes": plan.mean_received_bytes,
            "lower_bound": float(plan.lower_bound),
            "peak_bytes": int(plan.peak_bytes),
            "time_s": float(plan.predicted_s),
        }
    )
    dims = plan.shape.dims
    drawings = (Drawing(plan.source, dims, "from"), Drawing(plan.target, dims, "to")) if drawn else ()
    return View((facts, Text(plan), *drawings), schema="hlosharding.reshard/1")
