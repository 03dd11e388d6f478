"""Ops that only move elements (data movement, reshapes) or make them (generators)."""

from hlosharding.partitioner.movement import data_movement, generators, reshapes
from hlosharding.partitioner.movement.movement_plans import cheapest_plan
from hlosharding.partitioner.movement.op_movements import op_movement

__all__ = ["cheapest_plan", "data_movement", "generators", "op_movement", "reshapes"]
