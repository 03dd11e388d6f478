"""The program: a light graph over HLO's own proto."""

from hlosharding.ir import custom_call_targets, layers, rewrite
from hlosharding.ir.attributes import (
    ConvDims,
    DotDims,
    Frame,
    GatherDims,
    PaddingDim,
    ScatterDims,
    SliceDim,
    Stack,
    WindowDim,
    is_at,
)
from hlosharding.ir.builder import Builder, ComputationBuilder
from hlosharding.ir.control_flow import arguments, branches, callers, while_parts
from hlosharding.ir.edit import Edit
from hlosharding.ir.excerpt import excerpt
from hlosharding.ir.executions import GuessedLoop, Runs, executions, guessed_loops
from hlosharding.ir.function_boundary import FunctionBoundary
from hlosharding.ir.fused_attention import FusedAttention, attention_config, fused_attention
from hlosharding.ir.graph import MAY_ACT, Computation, Instruction, ModuleGraph, callees_first
from hlosharding.ir.group_mode import GroupMode, fault_of_ids, group_mode, group_size, named_things
from hlosharding.ir.invalid_modules import blaming
from hlosharding.ir.libraries import register_library
from hlosharding.ir.loop_carry import add_to_carry, drop_from_carry
from hlosharding.ir.marks import PARTITIONING_MARK, RULE_MARK, custom_partitioning_of, is_custom_partitioning
from hlosharding.ir.module import Module
from hlosharding.ir.name_uniquer import NameUniquer
from hlosharding.ir.opcode import (
    ALL_OPCODES,
    COLLECTIVES,
    COLLECTIVES_AND_STARTS,
    CONTROL_FLOW,
    DEVICE_NUMBERS,
    ELEMENTWISE,
    ELEMENTWISE_BINARY,
    FIRST_INDEX,
    GENERATORS,
    INDEXED,
    PACKS,
    PRODUCTS,
    REARRANGES,
    RENAMES,
    SAME_ELEMENTS,
    SIDE_EFFECTS_IN_XLA,
    TRANSCENDENTAL,
    collective_kind,
)
from hlosharding.ir.open_dims import unspecified_dims, unspecified_dims_text
from hlosharding.ir.passes import Pass, Property, run_passes
from hlosharding.ir.placement import memory_of, named_memory, processor_of
from hlosharding.ir.reducers import REDUCER_KINDS, is_neutral, neutral_element, reduce_arrays, reducer_kind
from hlosharding.ir.resizing import Between, NotResizable, ResizableModule
from hlosharding.ir.sameness import Sameness, attributes_of, stated_of
from hlosharding.ir.serialization import digest
from hlosharding.ir.shape import Shape
from hlosharding.ir.shape_inference import infer_shape
from hlosharding.ir.subprogram import Callees, same_op, subprogram
from hlosharding.ir.trip_counts import LoopCounter, Trips, loop_counter, trip_count, with_trip_counts
from hlosharding.ir.tuple_elements import ElementReaders
from hlosharding.ir.verifier import verify

__all__ = [
    "ALL_OPCODES",
    "COLLECTIVES",
    "COLLECTIVES_AND_STARTS",
    "CONTROL_FLOW",
    "DEVICE_NUMBERS",
    "ELEMENTWISE",
    "ELEMENTWISE_BINARY",
    "FIRST_INDEX",
    "GENERATORS",
    "INDEXED",
    "MAY_ACT",
    "PACKS",
    "PARTITIONING_MARK",
    "PRODUCTS",
    "REARRANGES",
    "REDUCER_KINDS",
    "RENAMES",
    "RULE_MARK",
    "SAME_ELEMENTS",
    "SIDE_EFFECTS_IN_XLA",
    "TRANSCENDENTAL",
    "Between",
    "Builder",
    "Callees",
    "Computation",
    "ComputationBuilder",
    "ConvDims",
    "DotDims",
    "Edit",
    "ElementReaders",
    "Frame",
    "FunctionBoundary",
    "FusedAttention",
    "GatherDims",
    "GroupMode",
    "GuessedLoop",
    "Instruction",
    "LoopCounter",
    "Module",
    "ModuleGraph",
    "NameUniquer",
    "NotResizable",
    "PaddingDim",
    "Pass",
    "Property",
    "ResizableModule",
    "Runs",
    "Sameness",
    "ScatterDims",
    "Shape",
    "SliceDim",
    "Stack",
    "Trips",
    "WindowDim",
    "add_to_carry",
    "arguments",
    "attention_config",
    "attributes_of",
    "blaming",
    "branches",
    "callees_first",
    "callers",
    "collective_kind",
    "custom_call_targets",
    "custom_partitioning_of",
    "digest",
    "drop_from_carry",
    "excerpt",
    "executions",
    "fault_of_ids",
    "fused_attention",
    "group_mode",
    "group_size",
    "guessed_loops",
    "infer_shape",
    "is_at",
    "is_custom_partitioning",
    "is_neutral",
    "layers",
    "loop_counter",
    "memory_of",
    "named_memory",
    "named_things",
    "neutral_element",
    "processor_of",
    "reduce_arrays",
    "reducer_kind",
    "register_library",
    "rewrite",
    "run_passes",
    "same_op",
    "stated_of",
    "subprogram",
    "trip_count",
    "unspecified_dims",
    "unspecified_dims_text",
    "verify",
    "while_parts",
    "with_trip_counts",
]
