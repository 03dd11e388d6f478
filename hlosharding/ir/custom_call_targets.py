"""Targets of custom calls that compute nothing: what they say about a value, or where they move it.

Floor: ir.  XLA's and Shardy's own spellings, each once; whoever asks what such a call means imports them from here.
What a target's rule, price or lowering is stands in the rooms that answer those questions.
"""

from __future__ import annotations

from typing import Final, Literal

SHARDING: Final = "Sharding"
"""The sharding of a value, put on by the user."""
FULL_TO_SHARD: Final = "SPMDFullToShardShape"
"""Into a manual region: from the whole array to one device's tile."""
SHARD_TO_FULL: Final = "SPMDShardToFullShape"
"""Out of a manual region."""
MANUAL_CONVERSIONS: Final = frozenset({FULL_TO_SHARD, SHARD_TO_FULL})

SHARDY_PREFIX: Final = "xla.sdy."
"""Of Shardy's targets, and of its frontend attributes."""
FUNC_RESULT_SHARDING: Final = SHARDY_PREFIX + "FuncResultSharding"
GLOBAL_TO_LOCAL: Final = SHARDY_PREFIX + "GlobalToLocalShape"
LOCAL_TO_GLOBAL: Final = SHARDY_PREFIX + "LocalToGlobalShape"
PROPAGATION_BARRIER: Final = SHARDY_PREFIX + "PropagationBarrier"
SHARDING_GROUP: Final = SHARDY_PREFIX + "ShardingGroup"

ANNOTATIONS: Final = MANUAL_CONVERSIONS | {SHARDING, FUNC_RESULT_SHARDING, GLOBAL_TO_LOCAL, LOCAL_TO_GLOBAL}
"""Calls that only say something about their operand: in a program for one device nothing is left of them but that."""

Memory = Literal["host", "device"]
PLACEMENT_MARK: Final = "annotate_device_placement"
"""JAX's mark of the memory a value is to lie in; the memory's kind is a frontend attribute."""
MOVE_TARGETS: Final[dict[Memory, str]] = {"host": "MoveToHost", "device": "MoveToDevice"}
"""What XLA makes of such marks."""
MOVES: Final = frozenset(MOVE_TARGETS.values())
PLACEMENTS: Final = MOVES | {PLACEMENT_MARK}

X64_COMBINE: Final = "X64Combine"
LAYOUT_CONSTRAINT: Final = "LayoutConstraint"
HAND_ON: Final = PLACEMENTS | {SHARDING, LAYOUT_CONSTRAINT}
"""Calls whose result is their one operand."""
TOP_K: Final = "TopK"
QR: Final = "Qr"
HOUSEHOLDER_PRODUCT: Final = "ProductOfElementaryHouseholderReflectors"
EIGH: Final = "Eigh"
EXPANDED: Final = (QR, HOUSEHOLDER_PRODUCT, EIGH)
"""Linear algebra that XLA itself writes as loops of HLO: TensorFlow calls it, and JAX on TPUs."""
FUSED_ATTENTION: Final = "__cudnn$fmha"
"""What the targets of cuDNN's flash attention begin with."""
