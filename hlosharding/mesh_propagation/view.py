"""What there is to see of propagation over axes: a row in the report's table of views.

Floor: mesh_propagation.
"""

from __future__ import annotations

from hlosharding.mesh_propagation.outcome import AxisPropagation
from hlosharding.report import Facts, Text, View


def axes_view(found: AxisPropagation) -> View:
    """Annotations, options and conflicts of propagation over axes, as text."""
    facts = Facts(
        {
            "cluster": str(found.cluster),
            "annotations": [
                {
                    "name": one.value,
                    "sharding": str(one.sharding),
                    "required": one.required,
                    "annotate_for_users": one.annotate_for_users,
                    "users": one.users,
                    "operand": one.operand,
                    "by": one.by,
                }
                for one in found.annotations
            ],
            "options": {name: {"loops": o.loops, "option": str(o)} for name, o in found.options.items()},
            "conflicts": [str(conflict) for conflict in found.conflicts],
            "yielded": [str(conflict) for conflict in found.yielded],
        }
    )
    return View((facts, Text(found)), schema="hlosharding.axes/1")


VIEWS = {AxisPropagation: axes_view}
"""Row of the table of views."""
