"""The mesh dialect's propagation over axes: a second policy on the same rules, for clusters of unknown size too."""

from hlosharding.propagation.axes.axis_sharding import PARTIAL_KINDS, AxisSharding
from hlosharding.propagation.axes.cluster import Axis, Cluster
from hlosharding.propagation.axes.loops import describe_loops, iterator_kind
from hlosharding.propagation.axes.notes import AxisAnnotation
from hlosharding.propagation.axes.offers import Conflict, Offer
from hlosharding.propagation.axes.outcome import AxisPropagation, LoopOption
from hlosharding.propagation.axes.propagate import propagate_axes

__all__ = [
    "PARTIAL_KINDS",
    "Axis",
    "AxisAnnotation",
    "AxisPropagation",
    "AxisSharding",
    "Cluster",
    "Conflict",
    "LoopOption",
    "Offer",
    "describe_loops",
    "iterator_kind",
    "propagate_axes",
]
