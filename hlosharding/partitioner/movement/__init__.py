"""Ops that only move elements (data movement, reshapes) or make them (generators)."""

from hlosharding.partitioner.movement import data_movement, generators, reshapes
from hlosharding.partitioner.movement.movement_plans import plan_movement

__all__ = ["data_movement", "generators", "plan_movement", "reshapes"]
