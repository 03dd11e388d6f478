"""Explicit schedules: stages on submeshes, microbatches, transfers; checked, run and simulated."""

from hlosharding.schedule.builder import Ref, ScheduleBuilder
from hlosharding.schedule.cutting import (
    Cutter,
    StageAxes,
    StageLayout,
    argument_numbers,
    arguments_by_name,
    find_batch_flow,
    flowing_dim,
    flows_of,
    is_layout_call,
    keep_split,
    pipelined,
    recompute_layers,
    recomputed_ops,
    sharding_as_read,
    without_layout_calls,
)
from hlosharding.schedule.local_ops import Add
from hlosharding.schedule.op import Known, Op, UserOp, Work
from hlosharding.schedule.parser import parse_schedule
from hlosharding.schedule.pipelines import (
    ORDERS,
    SPLIT_BACKWARD,
    Closing,
    PassKind,
    Piece,
    Pipeline,
    PipelineRuns,
    ResizablePipeline,
    Sized,
    device_orders,
    order_and_chunks,
)
from hlosharding.schedule.ranks import RankProgram, RankRun, run_ranks
from hlosharding.schedule.schedule import Schedule
from hlosharding.schedule.simulating import simulate
from hlosharding.schedule.simulation import ScheduleSimulation, StepEvent, Usage
from hlosharding.schedule.stage_program import StageProgram
from hlosharding.schedule.transfers import Send
from hlosharding.schedule.value_type import ValueType, devices_text

__all__ = [
    "ORDERS",
    "SPLIT_BACKWARD",
    "Add",
    "Closing",
    "Cutter",
    "Known",
    "Op",
    "PassKind",
    "Piece",
    "Pipeline",
    "PipelineRuns",
    "RankProgram",
    "RankRun",
    "Ref",
    "ResizablePipeline",
    "Schedule",
    "ScheduleBuilder",
    "ScheduleSimulation",
    "Send",
    "Sized",
    "StageAxes",
    "StageLayout",
    "StageProgram",
    "StepEvent",
    "Usage",
    "UserOp",
    "ValueType",
    "Work",
    "argument_numbers",
    "arguments_by_name",
    "device_orders",
    "devices_text",
    "find_batch_flow",
    "flowing_dim",
    "flows_of",
    "is_layout_call",
    "keep_split",
    "order_and_chunks",
    "parse_schedule",
    "pipelined",
    "recompute_layers",
    "recomputed_ops",
    "run_ranks",
    "sharding_as_read",
    "simulate",
    "without_layout_calls",
]
