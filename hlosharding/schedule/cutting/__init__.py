"""Any traced program as a pipeline: microbatches along an axis of time, stages cut out of the graph."""

from hlosharding.schedule.cutting.batch_flow import keep_split, split_flows
from hlosharding.schedule.cutting.microbatched import is_layout_call
from hlosharding.schedule.cutting.pipelining import Cutter, Layout, argument_numbers, arguments_by_name, pipelined

__all__ = [
    "Cutter",
    "Layout",
    "argument_numbers",
    "arguments_by_name",
    "is_layout_call",
    "keep_split",
    "pipelined",
    "split_flows",
]
