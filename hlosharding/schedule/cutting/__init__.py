"""Any traced program as a pipeline: microbatches along an axis of time, stages cut out of the graph."""

from hlosharding.schedule.cutting.batch_flow import batch_flow
from hlosharding.schedule.cutting.kept_splits import StageAxes, as_read, flows_of, keep_split
from hlosharding.schedule.cutting.microbatched import is_layout_call
from hlosharding.schedule.cutting.pipelining import Cutter, Layout, argument_numbers, arguments_by_name, pipelined

__all__ = [
    "Cutter",
    "Layout",
    "StageAxes",
    "argument_numbers",
    "arguments_by_name",
    "as_read",
    "batch_flow",
    "flows_of",
    "is_layout_call",
    "keep_split",
    "pipelined",
]
