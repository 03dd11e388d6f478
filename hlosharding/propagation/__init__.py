"""From a few annotations to a sharding of every value, with the reason for each: GSPMD's way, and the mesh dialect's."""

from hlosharding.propagation.axes import (
    AxisAnnotation,
    AxisPropagation,
    AxisSharding,
    Cluster,
    Conflict,
    LoopOption,
    describe_loops,
    from_hlo,
    propagate_axes,
    to_hlo,
)
from hlosharding.propagation.propagate import Propagation, propagate
from hlosharding.propagation.provenance import Explanation, Link, Step, Trail

__all__ = [
    "AxisAnnotation",
    "AxisPropagation",
    "AxisSharding",
    "Cluster",
    "Conflict",
    "Explanation",
    "Link",
    "LoopOption",
    "Propagation",
    "Step",
    "Trail",
    "describe_loops",
    "from_hlo",
    "propagate",
    "propagate_axes",
    "to_hlo",
]
