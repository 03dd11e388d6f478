"""Pipeline schedules: orders of passes, and the schedules they make of a pipeline's pieces."""

from hlosharding.schedule.pipelines.orders import ORDERS, SPLIT_BACKWARD, Action, Kind, order_and_chunks, orders
from hlosharding.schedule.pipelines.pipeline import Closing, Piece, Pipeline
from hlosharding.schedule.pipelines.resizing import ResizablePipeline, Sized
from hlosharding.schedule.pipelines.runs import PipelineRuns

__all__ = [
    "ORDERS",
    "SPLIT_BACKWARD",
    "Action",
    "Closing",
    "Kind",
    "Piece",
    "Pipeline",
    "PipelineRuns",
    "ResizablePipeline",
    "Sized",
    "order_and_chunks",
    "orders",
]
