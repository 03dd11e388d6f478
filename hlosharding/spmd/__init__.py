"""What a per-device program means: who takes part in a collective, who holds the same value, its laws, its ops."""

from hlosharding.spmd import collective_arrays
from hlosharding.spmd.collective import (
    CAUSE_ATTRIBUTE,
    Collective,
    bytes_received,
    collectives,
    module_of,
    read_collective,
)
from hlosharding.spmd.compound_ops import LoopNames, counted_loop, identity, inside, mask_padding, only_first
from hlosharding.spmd.emitter import Emitter
from hlosharding.spmd.manual_groups import (
    ManualGroups,
    group_pieces,
    in_one_order,
    manual_groups_of,
    sharding_in_groups,
    sharding_of_all,
    tiles_in_groups,
)
from hlosharding.spmd.op_writer import OpOrigin
from hlosharding.spmd.participants import Devices, Groups, Pairs, device_groups, devices_of, left_out, permute_pairs
from hlosharding.spmd.program import PartialSums, Program
from hlosharding.spmd.uniformity import Uniformity, integer_on_devices, integers_of
from hlosharding.spmd.verifier import DivergenceError, find_guards, verify_conditions, verify_partitioned

__all__ = [
    "CAUSE_ATTRIBUTE",
    "Collective",
    "Devices",
    "DivergenceError",
    "Emitter",
    "Groups",
    "LoopNames",
    "ManualGroups",
    "OpOrigin",
    "Pairs",
    "PartialSums",
    "Program",
    "Uniformity",
    "bytes_received",
    "collective_arrays",
    "collectives",
    "counted_loop",
    "device_groups",
    "devices_of",
    "find_guards",
    "group_pieces",
    "identity",
    "in_one_order",
    "inside",
    "integer_on_devices",
    "integers_of",
    "left_out",
    "manual_groups_of",
    "mask_padding",
    "module_of",
    "only_first",
    "permute_pairs",
    "read_collective",
    "sharding_in_groups",
    "sharding_of_all",
    "tiles_in_groups",
    "verify_conditions",
    "verify_partitioned",
]
