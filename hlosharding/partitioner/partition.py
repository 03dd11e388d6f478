"""The walk: a global module with shardings in, a local module with explicit collectives out.

Floor: partitioner.  One walk in program order, then the passes of `passes/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hlosharding.collector import collector_waits
from hlosharding.cost import CostReport, Machine, cost
from hlosharding.errors import PartitionError, is_count
from hlosharding.ir import COLLECTIVES, Builder, Instruction, Module, run_passes
from hlosharding.partitioner.choice import OpPlan
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.control_flow import enter_parameter, forms_of
from hlosharding.partitioner.decisions import Decisions
from hlosharding.partitioner.overrides import ShardingOverride, ShardingTable, bypassed_annotations, sharding_overrides
from hlosharding.partitioner.passes import per_device_passes
from hlosharding.partitioner.regions import left_undone
from hlosharding.partitioner.resharding import pack, reshard_leaves, value_of
from hlosharding.partitioner.strategies import lower
from hlosharding.partitioner.value import Value
from hlosharding.sharding import REPLICATED, HloSharding
from hlosharding.spmd import Emitter, Program


@dataclass(slots=True)
class LocalProgram:
    """The outcome: `module` has local shapes; its entry parameters and root carry the shardings of their tiles.

    Each collective carries its cause as a frontend attribute, and the source line of the op that needed it.
    """

    module: Module
    warnings: list[str] = field(default_factory=list)
    overrides: tuple[ShardingOverride, ...] = ()
    """Values with another sharding than `module.shardings` gave them, in program order."""
    table: ShardingTable | None = None
    """The shardings that the walk followed."""
    found: Mapping[int, HloSharding] = field(default_factory=dict[int, HloSharding])
    """Of values that the table leaves open, by id: where the walk put them."""
    plans: Mapping[Instruction, OpPlan] = field(default_factory=dict[Instruction, OpPlan])
    """How the ops of the program were partitioned, in which it is in plain forms; of what there was a choice for."""
    priced: dict[Machine, CostReport] = field(default_factory=dict[Machine, CostReport], repr=False, compare=False)
    """What it was found to cost, by machine: whoever chose it knows that already."""

    def cost(self, machine: Machine) -> CostReport:
        """FLOPs, bytes, peak memory and time of a device."""
        if machine not in self.priced:
            self.priced[machine] = cost(self.module, machine)
        return self.priced[machine]


@collector_waits
def partition_module(
    module: Module, table: ShardingTable, decisions: Decisions, *, num_partitions: int, dump: Path | None = None
) -> LocalProgram:
    """Rewrite `module` for `num_partitions` devices, following the shardings of `table`.

    Walks that share `decisions` decide equal ops once.  `dump`: a folder for the program after each pass.  The
    shardings are for that many devices (`check_devices`).
    """
    program = Program(Builder(module.name, num_partitions=num_partitions, like=module), num_partitions)
    program.channel = max((i.channel_id for i in module.of_opcodes(*_CHANNELED)), default=0)
    entry = program.builder.computation(module.entry.name)
    context = Context(
        shardings=dict(table.shardings), decisions=decisions, emitter=Emitter(program, entry), lower=lower
    )
    local = program.builder.finish(entry, _walk(context, module, table))
    local.proto.input_output_alias.CopyFrom(module.proto.input_output_alias)
    local.proto.buffer_donor.CopyFrom(module.proto.buffer_donor)
    # Before the passes: the values of the walk name the ops that it wrote, which passes replace.
    bypassed = bypassed_annotations(local, program.annotated, decisions.prices)
    passes = per_device_passes(program, decisions.prices, has_manual_groups=decisions.has_manual_groups)
    run_passes(local, passes, dump=dump)
    overrides = sharding_overrides(module, dict(table.shardings), program.undecided, table.reasons, bypassed)
    found = {inst.id: made.sharding for inst, made in program.undecided.items() if type(made) is Value}
    warnings = [*program.warnings, *left_undone(module)]
    return LocalProgram(local, warnings, tuple(overrides), table, found, context.plans)


_CHANNELED = COLLECTIVES | {"custom-call", "send", "recv", "send-done", "recv-done"}
"""What may have a channel already: that of a manual region stays."""


def _walk(context: Context, module: Module, table: ShardingTable) -> dict[Instruction, HloSharding]:
    """Every instruction of the entry in program order; callees when their callers come.

    Gives the shardings of the local parameters and of the root.
    """
    boundary = dict[Instruction, HloSharding]()
    for parameter in module.entry.parameters:
        shardings = tuple(w if w is not None else REPLICATED for w in context.wanted_leaves(parameter))
        local, context.values[parameter] = enter_parameter(context, parameter, forms_of(shardings))
        boundary[local] = _sharding_of(parameter, shardings)
    for inst in module.entry.instructions:
        if inst.opcode != "parameter":
            context.values[inst] = lower(context, inst)
        if inst.id in table.copies and isinstance(value := context.values[inst], Value):
            value.copy = table.copies[inst.id]
    context.emitter.computation.root(_finish_root(context, module.entry.root, boundary))
    return boundary


def _finish_root(context: Context, root: Instruction, boundary: dict[Instruction, HloSharding]) -> Instruction:
    context.emitter.lowering(root, "output")
    value = value_of(context, root)
    targets = [w if w is not None else REPLICATED for w in context.wanted_leaves(root)]
    local = pack(context, reshard_leaves(context, value, targets, "output"))
    # A parameter that is given back may be wanted otherwise than it came: the table has one sharding for each op.
    if local in boundary or local.opcode == "parameter":
        local = context.emitter.op("copy", local.shape, (local,))
    boundary[local] = _sharding_of(root, tuple(targets))
    return local


def _sharding_of(inst: Instruction, leaves: tuple[HloSharding, ...]) -> HloSharding:
    return HloSharding.tuple(leaves) if inst.shape.is_tuple else leaves[0]


def check_devices(module: Module, num_partitions: int) -> None:
    """PartitionError where shardings are for another number of devices, or the program is one of several replicas."""
    if not is_count(num_partitions):
        raise PartitionError(f"num_partitions is {num_partitions}", remedy="pass the number of devices")
    if module.num_replicas > 1:
        raise PartitionError(
            f"the program runs in {module.num_replicas} replicas, and a partitioned one would run in one",
            remedy="say the replicas as a dim that is split, or load it without replica_count",
        )
    known = (None, num_partitions)
    alien = {id(s): leaf for s in module.distinct_shardings for leaf in s.leaves if leaf.num_devices not in known}
    if alien:
        inst = next(i for i in module.instructions if id(module.shardings.get(i.id)) in alien)
        leaf = alien[id(module.shardings[inst.id])]
        raise PartitionError(
            f"sharding {leaf} is for {leaf.num_devices} devices, the program for {num_partitions}",
            where=inst.where,
        )
