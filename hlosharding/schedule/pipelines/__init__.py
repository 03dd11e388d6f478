"""Pipeline schedules: orders of passes, and the schedules they make of a pipeline's pieces."""

from hlosharding.schedule.pipelines.estimate import Estimate, estimated
from hlosharding.schedule.pipelines.orders import ORDERS, Action, Kind, orders
from hlosharding.schedule.pipelines.pipeline import Closing, Piece, Pipeline

__all__ = ["ORDERS", "Action", "Closing", "Estimate", "Kind", "Piece", "Pipeline", "estimated", "orders"]
