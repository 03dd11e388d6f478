"""What every proposer of other shardings looks at: a program as its values lie so far, and which ops bind the shardings
of their operands and results, or read less than there is.

Floor: partitioner.  Tables: opcodes stand nowhere else in this folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hlosharding.ir import COLLECTIVES, CONTROL_FLOW, ELEMENTWISE, GENERATORS, REARRANGES, Module
from hlosharding.partitioner.prices import NOTHING, Cost, Prices
from hlosharding.sharding import HloSharding

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


@dataclass(frozen=True, slots=True)
class ProgramShardings:
    """A program, how its values lie so far, and what may not change."""

    module: Module
    shardings: Mapping[int, HloSharding]
    """By instruction id; nothing for those that may take any."""
    annotated: frozenset[str]
    """Names of the instructions that the user annotated: they keep their shardings."""
    num_partitions: int
    prices: Prices
    cost: Cost = NOTHING
    """Bytes that a device receives in the program that goes by these, and its seconds, once they are known."""
    waits_for_small: float = 0.0
    """Of these seconds those in which parts of small values move."""


Proposer = Callable[[ProgramShardings], Mapping[int, HloSharding]]
"""By instruction id, the other shardings that some values should have; empty where that promises nothing."""
