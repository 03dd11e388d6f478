"""Ops that only move elements (data movement, reshapes) or make them (generators)."""

from hlosharding.partitioner.movement import data_movement, generators, reshapes, special_ops

__all__ = ["data_movement", "generators", "reshapes", "special_ops"]
