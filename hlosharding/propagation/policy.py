"""When a sharding travels: levels, who may receive, whose operand speaks for an op.  The whole table on one page.

Floor: propagation.  XLA runs four fix points with rising aggressiveness, here called levels 0 to 3.  What is said here
about an opcode is policy, not truth: the truth about its dims is in `rules`.
"""

from __future__ import annotations

from collections.abc import Callable

from hlosharding.ir import (
    CONTROL_FLOW,
    ELEMENTWISE,
    SIDE_EFFECTS_IN_XLA,
    Computation,
    Instruction,
    is_custom_partitioning,
)
from hlosharding.ir import custom_call_targets as targets
from hlosharding.rules import batch_dims, function_signature

NEVER = 9
"""A level that is never reached."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


BROADCASTS = frozenset({"broadcast"})
# XLA's CanPropagateThroughAtAggressiveLevel: these pass at any level, broadcast from 2 on, all others from 1 on.
ANY_LEVEL = _words(
    "call concatenate copy dynamic-slice dynamic-update-slice get-tuple-element opt-barrier reshape tuple"
    " transpose while"
)
# XLA gives the way forward through a broadcast the lowest priority: else a small operand would decide how the large
# result lies, which would then be resharded.
BROADCAST_FORWARD_LEVEL = 3
BROADCAST_BACKWARD_LEVEL = 2
LAST_LEVEL = 3

PASSES_LEAVES = CONTROL_FLOW | _words("get-tuple-element opt-barrier parameter tuple")
"""These hand values on as they are."""

# XLA's SupportSpatialPartitioning; a root or a parameter is judged by its computation first.
RECEIVERS = _words(
    "broadcast concatenate conditional constant convolution opt-barrier dot dynamic-slice"
    " dynamic-update-slice gather get-tuple-element infeed iota pad reduce reduce-window reshape scatter"
    " select-and-scatter slice sort transpose tuple while rng-bit-generator all-reduce collective-permute"
    " reduce-scatter scan"
)
SPMD_RECEIVERS = frozenset({"reverse"})
# Of several arrays these make a tuple, which takes from its users alone: XLA puts one operand's sharding on it, and
# dies.
COMBINED_COLLECTIVES = frozenset({"all-reduce", "collective-permute", "reduce-scatter"})

# XLA's PickRepresentativeOperand: operand 0 speaks, or the first operand that no later one beats.
FIRST_OPERAND_SPEAKS = _words(
    "map pad power opt-barrier ragged-all-to-all reverse slice shift-left shift-right-arithmetic shift-right-logical"
)
BEST_OPERAND_SPEAKS = (
    ELEMENTWISE - FIRST_OPERAND_SPEAKS
    | _words("concatenate all-gather all-reduce reduce-scatter all-to-all collective-broadcast")
    | frozenset(["collective-permute", "topk", "sort", "while"])
)

# Without a handler.  Operand 0 and the result exchange what they share by the op's signature; for pad and slice the
# result's sharding goes to operand 0 as it is.  All other ops pass shardings on as they are, or have a handler.
FOLLOWS_SHARED_DIMS = frozenset({"broadcast", "dynamic-slice", "transpose"})
AS_IS_TO_FIRST_OPERAND = frozenset({"pad", "slice"})
# A scan takes nothing on purpose: XLA puts an array's sharding on its tuple (tests/oracle/known_exceptions.py).
TAKES_NOTHING_FORWARD = frozenset({"conditional", "constant", "infeed", "iota", "rng-bit-generator", "scan"})

# At level 0 these take no manual sharding from an operand, and a dynamic slice gives none back.
NOT_MANUAL_AT_LEVEL_0 = frozenset({"concatenate", "dynamic-slice"})
NOT_BACKWARD_AT_LEVEL_0 = frozenset({"dynamic-slice"})
REPLICATES_ITSELF = frozenset({"rng"})
"""Of a sharding that it takes from an operand only the subgroups stay."""
REPLICATES_OPERANDS = frozenset({"rng-bit-generator"})
"""Backward, whatever it has itself."""
LOOKS_AHEAD = ("dot", "convolution")
"""Where operands tie, these ask what the users ahead would like."""

# What may matter beyond an op and its operands' shapes: how the indices were made; what is concatenated.
STACKS = frozenset({"concatenate"})
STACKED = frozenset({"reshape"})
WEIGHTS = frozenset({"parameter", "get-tuple-element"})
"""A concatenation of reshaped ones is taken for a stack of layers' weights (AggressiveConcat...)."""
COPIES, BRANCHES = frozenset({"copy"}), frozenset({"conditional"})
MAKES_TUPLE = frozenset({"tuple"})
OF_ITS_OWN_KIND = frozenset({"rng", "constant", "fusion"}) | FIRST_OPERAND_SPEAKS
"""Elementwise, and yet inference does not treat them as it does the others."""

# Ops that may name a channel, and with it a device.
CHANNEL_TRANSFERS = frozenset({"send", "recv"})
CHANNEL_REDUCTIONS = frozenset({"all-reduce", "reduce-scatter"})

# XLA's IsPassthroughCustomOps: the first always, the second when unary over arrays of one rank.
PASS_THROUGH_CALLS = frozenset({targets.SHARDING, targets.X64_COMBINE, targets.LAYOUT_CONSTRAINT})
PASS_THROUGH_UNARY_CALLS = targets.MOVES | {
    *("ResizeNearest", "ResizeBilinear", "ResizeNearestGrad", "ResizeBilinearGrad", "Cholesky")
}

SHARD_BARRIER_FROM, SHARD_BARRIER_TO = "ShardBarrierFrom", "ShardBarrierTo"

# Tuples whose elements belong together take a manual operand's sharding as a whole.
CORRELATED_TUPLES = frozenset({"reduce", "sort", "reduce-window", "custom-call"})

_LAYOUT_SIDE_EFFECTS = frozenset({"all-to-all", "all-gather", "all-reduce", "reduce-scatter"})


def is_elementwise(instruction: Instruction, opcode: str, fuses: Callable[[Computation], bool]) -> bool:
    """XLA's HloInstruction::IsElementwise; a constant and an rng count, a map when it runs over all dims in order.

    `fuses`: is what a fusion calls elementwise?
    """
    if opcode == "bitcast-convert":
        return instruction.shape.bits == instruction.operands[0].shape.bits
    if opcode == "map":
        dims = instruction.dimensions
        return not dims or dims == tuple(range(instruction.shape.rank))
    if opcode == "fusion":
        return fuses(instruction.called[0])
    return opcode in ELEMENTWISE or opcode in ("constant", "rng")


def through_level(opcode: str, elementwise: bool, target: str) -> int:
    """The first level at which a sharding may pass through an op of that kind."""
    if elementwise or opcode in ANY_LEVEL or target == targets.SHARDING:
        return 0
    return BROADCAST_BACKWARD_LEVEL if opcode in BROADCASTS else 1


def is_pass_through_call(instruction: Instruction, target: str) -> bool:
    """Does the custom call hand on its operand's sharding?"""
    if target in PASS_THROUGH_CALLS:
        return True
    if target not in PASS_THROUGH_UNARY_CALLS or len(instruction.operands) != 1:
        return False
    source = instruction.operands[0].shape
    return instruction.shape.is_array and source.is_array and source.rank == instruction.shape.rank


def may_receive(instruction: Instruction, opcode: str, elementwise: bool, target: str, spmd: bool) -> bool:
    """May an op that is neither root nor parameter be given a sharding at all?"""
    if elementwise:
        return opcode != "rng" or spmd
    if opcode == "custom-call":
        barrier = target in (SHARD_BARRIER_FROM, SHARD_BARRIER_TO)
        if barrier or is_pass_through_call(instruction, target) or batch_dims(instruction) > 0:
            return spmd
        return spmd and function_signature(instruction) is not None
    if opcode == "call":
        return spmd and is_custom_partitioning(instruction)
    return opcode in RECEIVERS or (spmd and opcode in SPMD_RECEIVERS)


def has_side_effect(instruction: Instruction, opcode: str) -> bool:
    """XLA's HasSideEffect; a channel alone is none where programs are to be partitioned."""
    return _acts(instruction, opcode) or any(_acts(i, i.opcode) for i in instruction.called_instructions())


def _acts(instruction: Instruction, opcode: str) -> bool:
    if opcode in SIDE_EFFECTS_IN_XLA:
        return True
    if opcode == "custom-call" and instruction.proto.custom_call_has_side_effect:
        return True
    return opcode in _LAYOUT_SIDE_EFFECTS and bool(instruction.proto.constrain_layout)
