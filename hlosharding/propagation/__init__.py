"""From a few annotations to a sharding of every value, and the reason: GSPMD's way, and the mesh dialect's."""

from hlosharding.propagation.axes import (
    AxisAnnotation,
    AxisPropagation,
    AxisSharding,
    Cluster,
    Conflict,
    LoopOption,
    describe_loops,
    propagate_axes,
)
from hlosharding.propagation.explanation import Explanation, Link, LostOffer
from hlosharding.propagation.propagate import Propagation, propagate
from hlosharding.propagation.provenance import Step, Trail

__all__ = [
    "AxisAnnotation",
    "AxisPropagation",
    "AxisSharding",
    "Cluster",
    "Conflict",
    "Explanation",
    "Link",
    "LoopOption",
    "LostOffer",
    "Propagation",
    "Step",
    "Trail",
    "describe_loops",
    "propagate",
    "propagate_axes",
]
