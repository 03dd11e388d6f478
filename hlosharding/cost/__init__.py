"""What things cost: machines, local ops, collectives, memory, whole programs."""

from hlosharding.cost import machines
from hlosharding.cost.calibration import Calibration, Measurement, calibrate, calibration_of
from hlosharding.cost.collective_time import collective_time, op_time, placement_time
from hlosharding.cost.combining import MOST_BYTES
from hlosharding.cost.host_offload import leaves_on_host
from hlosharding.cost.kernels import Kernels
from hlosharding.cost.machine import LARGEST_FIGURE, Chip, Link, Machine, Nccl, Overlap, Runtime
from hlosharding.cost.machine_file import machine_for, machine_text, parse_machine, preset_text, read_machine
from hlosharding.cost.measured_sets import nearest_set
from hlosharding.cost.memory import order_by_memory, peak_memory, temporary_memory
from hlosharding.cost.model import (
    CostReport,
    Priced,
    Subtotal,
    cost,
    count_operations,
    local_time,
    price_uncombined,
    sustained_rate,
)
from hlosharding.cost.placement import GroupPlacement, group_placement, permute_placement
from hlosharding.cost.presets import machine_named, machine_presets, preset_of_kind
from hlosharding.cost.sharing import LinkUse, run_sharing_links
from hlosharding.cost.simulation import Event, Simulation, streams_of
from hlosharding.cost.simulator import (
    Lifetime,
    execute_priced,
    given_lifetimes,
    lifetimes,
    simulate,
    simulate_priced,
    step_seconds,
)
from hlosharding.cost.step_breakdown import PARTS, StepBreakdown
from hlosharding.cost.step_figures import StepFigures
from hlosharding.cost.tasks import NOTHING, Tasks, Times, run_in_order
from hlosharding.cost.topology import Topology, machine_of, node_topology, target_config, topology
from hlosharding.cost.trace import TraceLevel, TraceRow, TraceSlice, trace_text
from hlosharding.cost.unfused_attention import UnfusedAttention, unfused_attention
from hlosharding.cost.utilization import FlopsByType, WholeStep, hardware_flops, model_flops, utilization
from hlosharding.cost.work import PART_READERS, OpWork, matrix_sizes, memory_passes, op_work

__all__ = [
    "LARGEST_FIGURE",
    "MOST_BYTES",
    "NOTHING",
    "PARTS",
    "PART_READERS",
    "Calibration",
    "Chip",
    "CostReport",
    "Event",
    "FlopsByType",
    "GroupPlacement",
    "Kernels",
    "Lifetime",
    "Link",
    "LinkUse",
    "Machine",
    "Measurement",
    "Nccl",
    "OpWork",
    "Overlap",
    "Priced",
    "Runtime",
    "Simulation",
    "StepBreakdown",
    "StepFigures",
    "Subtotal",
    "Tasks",
    "Times",
    "Topology",
    "TraceLevel",
    "TraceRow",
    "TraceSlice",
    "UnfusedAttention",
    "WholeStep",
    "calibrate",
    "calibration_of",
    "collective_time",
    "cost",
    "count_operations",
    "execute_priced",
    "given_lifetimes",
    "group_placement",
    "hardware_flops",
    "leaves_on_host",
    "lifetimes",
    "local_time",
    "machine_for",
    "machine_named",
    "machine_of",
    "machine_presets",
    "machine_text",
    "machines",
    "matrix_sizes",
    "memory_passes",
    "model_flops",
    "nearest_set",
    "node_topology",
    "op_time",
    "op_work",
    "order_by_memory",
    "parse_machine",
    "peak_memory",
    "permute_placement",
    "placement_time",
    "preset_of_kind",
    "preset_text",
    "price_uncombined",
    "read_machine",
    "run_in_order",
    "run_sharing_links",
    "simulate",
    "simulate_priced",
    "step_seconds",
    "streams_of",
    "sustained_rate",
    "target_config",
    "temporary_memory",
    "topology",
    "trace_text",
    "unfused_attention",
    "utilization",
]
