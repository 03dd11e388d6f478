"""Passes over the finished per-device program."""

from hlosharding.partitioner.passes.pipeline import per_device_passes

__all__ = ["per_device_passes"]
