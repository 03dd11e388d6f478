"""The program: a light graph over HLO's own proto."""

from hlosharding.ir import rewrite
from hlosharding.ir.attributes import ConvDims, DotDims, Frame, GatherDims, PaddingDim, ScatterDims, SliceDim, WindowDim
from hlosharding.ir.builder import Builder, ComputationBuilder
from hlosharding.ir.executions import Runs, Trips, executions, trip_count, while_parts
from hlosharding.ir.instruction import Instruction
from hlosharding.ir.marks import PARTITIONING_MARK, RULE_MARK
from hlosharding.ir.module import Computation, Module
from hlosharding.ir.opcode import (
    ALL_OPCODES,
    COLLECTIVES,
    CONTROL_FLOW,
    ELEMENTWISE,
    ELEMENTWISE_BINARY,
    ELEMENTWISE_TERNARY,
    ELEMENTWISE_UNARY,
)
from hlosharding.ir.passes import Pass, Property, run_passes
from hlosharding.ir.placement import MOVE_TARGETS, PLACEMENT_MARK, memory_of, named_memory, processor_of
from hlosharding.ir.shape import Shape
from hlosharding.ir.verifier import verify

__all__ = [
    "ALL_OPCODES",
    "COLLECTIVES",
    "CONTROL_FLOW",
    "ELEMENTWISE",
    "ELEMENTWISE_BINARY",
    "ELEMENTWISE_TERNARY",
    "ELEMENTWISE_UNARY",
    "MOVE_TARGETS",
    "PARTITIONING_MARK",
    "PLACEMENT_MARK",
    "RULE_MARK",
    "Builder",
    "Computation",
    "ComputationBuilder",
    "ConvDims",
    "DotDims",
    "Frame",
    "GatherDims",
    "Instruction",
    "Module",
    "PaddingDim",
    "Pass",
    "Property",
    "Runs",
    "ScatterDims",
    "Shape",
    "SliceDim",
    "Trips",
    "WindowDim",
    "executions",
    "memory_of",
    "named_memory",
    "processor_of",
    "rewrite",
    "run_passes",
    "trip_count",
    "verify",
    "while_parts",
]
