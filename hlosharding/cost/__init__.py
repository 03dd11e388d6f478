"""What things cost: machines, local ops, collectives, memory, whole programs."""

from hlosharding.cost import machines
from hlosharding.cost.collective_time import (
    GroupPlacement,
    collective_time,
    group_placement,
    op_time,
    permute_placement,
    placement_time,
)
from hlosharding.cost.machine import Chip, Link, Machine
from hlosharding.cost.memory import Peak, peak_memory
from hlosharding.cost.model import CostReport, Priced, Subtotal, cost, local_time
from hlosharding.cost.presets import machine_named, machine_presets
from hlosharding.cost.simulation import Simulation
from hlosharding.cost.simulator import simulate
from hlosharding.cost.timeline import Event
from hlosharding.cost.topology import Topology, machine_of, node_topology, target_config, topology
from hlosharding.cost.work import OpCost, op_cost

__all__ = [
    "Chip",
    "CostReport",
    "Event",
    "GroupPlacement",
    "Link",
    "Machine",
    "OpCost",
    "Peak",
    "Priced",
    "Simulation",
    "Subtotal",
    "Topology",
    "collective_time",
    "cost",
    "group_placement",
    "local_time",
    "machine_named",
    "machine_of",
    "machine_presets",
    "machines",
    "node_topology",
    "op_cost",
    "op_time",
    "peak_memory",
    "permute_placement",
    "placement_time",
    "simulate",
    "target_config",
    "topology",
]
