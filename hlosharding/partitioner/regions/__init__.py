"""What is per device already, or on one device: manual regions, custom calls, infeed and outfeed, host offload."""

from hlosharding.partitioner.regions.host_offload import left_undone
from hlosharding.partitioner.regions.manual import MANUAL, alike, is_manual, note_synced_condition

__all__ = [
    "MANUAL",
    "alike",
    "is_manual",
    "left_undone",
    "note_synced_condition",
]
