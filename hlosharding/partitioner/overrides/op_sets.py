"""Which ops bind the shardings of their operands and results, and which read less than there is.

Floor: partitioner.  Tables: opcodes stand nowhere else in this folder.
"""

from __future__ import annotations

from hlosharding.ir import COLLECTIVES, CONTROL_FLOW, ELEMENTWISE, GENERATORS, REARRANGES

BINDING = COLLECTIVES | CONTROL_FLOW | GENERATORS | {
    "parameter", "copy", "opt-barrier", "custom-call", "infeed", "recv", "partition-id", "after-all", "add-dependency",
    "rng", "rng-bit-generator", "rng-get-and-update-state",
}  # fmt: skip
"""Their shardings are agreed on with others (callers, loops), or what they are for."""
BINDING_RESULTS = BINDING - {"copy"}
"""Those whose own sharding says nothing about what they need of an operand."""
READ_PARTS = frozenset({"slice", "dynamic-slice", "reduce", "gather"})
"""Ops that may read less than there is."""
FOLLOW_USERS = ELEMENTWISE | {"broadcast"}
"""Values that are made as their users want them, where all want the same."""
REPEATABLE = ELEMENTWISE | REARRANGES | {"reduce", "scatter"}
"""They look up, copy and combine elements: the work of several devices may be done by each."""
FUSED = ELEMENTWISE | {"broadcast", "reshape"}
"""What others of them read of these is in no memory."""
