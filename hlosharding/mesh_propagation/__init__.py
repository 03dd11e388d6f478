"""The mesh dialect's propagation over axes: a second policy on the same rules, for clusters of unknown size too."""

from hlosharding.mesh_propagation.loops import describe_loops
from hlosharding.mesh_propagation.mesh_text import Stage
from hlosharding.mesh_propagation.notes import AxisAnnotation
from hlosharding.mesh_propagation.offers import Conflict
from hlosharding.mesh_propagation.outcome import AxisPropagation, LoopOption
from hlosharding.mesh_propagation.propagate import propagate_axes

__all__ = [
    "AxisAnnotation",
    "AxisPropagation",
    "Conflict",
    "LoopOption",
    "Stage",
    "describe_loops",
    "propagate_axes",
]
