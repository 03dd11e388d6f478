"""Pipeline schedules: orders of passes, and the schedules they make of a pipeline's pieces."""

from hlosharding.schedule.pipelines.orders import ORDERS, SPLIT_BACKWARD, PassKind, device_orders, order_and_chunks
from hlosharding.schedule.pipelines.pipeline import Closing, Piece, Pipeline
from hlosharding.schedule.pipelines.resizing import ResizablePipeline, Sized
from hlosharding.schedule.pipelines.step_recorder import PipelineRuns

__all__ = [
    "ORDERS",
    "SPLIT_BACKWARD",
    "Closing",
    "PassKind",
    "Piece",
    "Pipeline",
    "PipelineRuns",
    "ResizablePipeline",
    "Sized",
    "device_orders",
    "order_and_chunks",
]
