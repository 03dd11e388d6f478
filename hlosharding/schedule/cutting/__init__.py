"""Any traced program as a pipeline: microbatches along an axis of time, stages cut out of the graph."""

from hlosharding.schedule.cutting.batch_flow import find_batch_flow, flowing_dim
from hlosharding.schedule.cutting.kept_splits import StageAxes, flows_of, keep_split, sharding_as_read
from hlosharding.schedule.cutting.microbatched import is_layout_call, without_layout_calls
from hlosharding.schedule.cutting.pipelining import Cutter, StageLayout, argument_numbers, arguments_by_name, pipelined
from hlosharding.schedule.cutting.recomputation import recompute_layers, recomputed_ops

__all__ = [
    "Cutter",
    "StageAxes",
    "StageLayout",
    "argument_numbers",
    "arguments_by_name",
    "find_batch_flow",
    "flowing_dim",
    "flows_of",
    "is_layout_call",
    "keep_split",
    "pipelined",
    "recompute_layers",
    "recomputed_ops",
    "sharding_as_read",
    "without_layout_calls",
]
