"""Frontend attributes with which tracing marks calls for the partitioner.

Floor: ir.
"""

from __future__ import annotations

from typing import Final

PARTITIONING_MARK: Final = "hlosharding.custom_partitioning"
"""A call of a function under `custom_partitioning`: the place of what the user gave in `Module.partitionings`."""
RULE_MARK: Final = "xla.sdy.sharding_rule"
"""Shardy's rule of a call, as Shardy itself exports it."""
