"""Passes over the finished per-device program."""

from hlosharding.partitioner.passes.condition_sync import verify_and_sync
from hlosharding.partitioner.passes.loop_invariants import hoist_invariants

__all__ = [
    "hoist_invariants",
    "verify_and_sync",
]
