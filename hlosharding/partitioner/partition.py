"""The walk: a global module with shardings in, a local module with explicit collectives out.

Floor: partitioner.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from hlosharding.collector import collector_waits
from hlosharding.cost import Machine, cost, simulate
from hlosharding.errors import PartitionError
from hlosharding.ir import COLLECTIVES, Builder, ComputationBuilder, Instruction, Module, rewrite
from hlosharding.partitioner.context import Context, Decisions
from hlosharding.partitioner.control_flow import enter_parameter, forms_of
from hlosharding.partitioner.factors import OVERLAPS
from hlosharding.partitioner.overrides import (
    BATCH_OVER_ALL,
    ONE_ORDER,
    ShardingOverride,
    batch_parallel_shardings,
    relaxed_shardings,
    sharding_overrides,
)
from hlosharding.partitioner.passes import hoist_invariants, verify_and_sync
from hlosharding.partitioner.prices import Prices
from hlosharding.partitioner.regions import has_manual_groups, left_undone
from hlosharding.partitioner.strategies import lower
from hlosharding.sharding import REPLICATED, HloSharding
from hlosharding.spmd import Emitter, Program, in_one_order


@dataclass(frozen=True, slots=True)
class PartitionOptions:
    """How the partitioner decides."""

    objective: str = "balanced"
    """What a reshard minimises: "bytes" received, priced "time", or both ("balanced": few steps for small arrays)."""
    overlap: str = "off"
    """Whether matrix products that wait for an all-gather or a reduce-scatter become loops, which permute tiles while
    they multiply others: "off" never, "auto" where that is faster by simulation, of the product and of the program,
    "always" wherever they can.  The bytes are the same, and the gathered operand is never held."""


@dataclass(slots=True)
class LocalProgram:
    """The outcome: `module` has local shapes; its entry parameters and root carry the shardings of their tiles.

    Each collective carries its cause as a frontend attribute, and the source line of the op that needed it.
    """

    module: Module
    warnings: list[str] = field(default_factory=list)
    sharding_overrides: tuple[ShardingOverride, ...] = ()
    """Values with another sharding than `module.shardings` gave them, in program order."""


@collector_waits
def partition_module(
    module: Module,
    *,
    num_partitions: int,
    machine: Machine,
    options: PartitionOptions | None = None,
    bound: Collection[str] = (),
) -> LocalProgram:
    """Rewrite `module` for `num_partitions` devices, following `module.shardings`.

    Instructions without a sharding may take any.  `bound` names those that the user annotated: they keep theirs even
    where another would do.  Raises PartitionError for shardings of another device count.
    """
    _check(module, num_partitions)
    options = options or PartitionOptions()
    if options.overlap not in OVERLAPS:
        raise PartitionError(f"overlap is {options.overlap!r}", remedy=f"use one of {', '.join(OVERLAPS)}")
    prices = Prices(machine.with_devices(num_partitions), options.objective)
    annotated = frozenset(bound)
    decisions = Decisions(prices, overlap=options.overlap, has_manual_groups=has_manual_groups(module), bound=annotated)
    made = _with_decisions(module, bound, decisions, num_partitions)
    if options.overlap != "auto" or not any(decisions.faster_collective_matmuls.values()):
        return made
    # A product that is faster as a loop need not make the program faster: the wait may be hidden already.
    still = Decisions(prices, has_manual_groups=decisions.has_manual_groups, bound=annotated)
    plain = _with_decisions(module, bound, still, num_partitions)
    return min(plain, made, key=lambda local: simulate(local.module, prices.machine).time_s)


def _with_decisions(module: Module, bound: Collection[str], decisions: Decisions, num_partitions: int) -> LocalProgram:
    shardings = relaxed_shardings(module, bound)
    if decisions.has_manual_groups:
        ordered = {i: in_one_order(sharding) for i, sharding in shardings.items()}
        why = {i: ONE_ORDER for i, sharding in ordered.items() if sharding is not shardings[i]}
        return _partitioned(module, ordered, decisions, num_partitions, why)
    local = _partitioned(module, shardings, decisions, num_partitions)
    other = batch_parallel_shardings(module, shardings, bound, num_partitions)
    if other is None:
        return local
    why = {i: BATCH_OVER_ALL for i, sharding in other.items() if sharding != shardings.get(i)}
    return _better(local, _partitioned(module, other, decisions, num_partitions, why), decisions.prices)


def _better(first: LocalProgram, second: LocalProgram, prices: Prices) -> LocalProgram:
    """The second program, if it moves clearly less at no price in work, memory or time, else the first."""
    old, new = (cost(local.module, machine=prices.machine) for local in (first, second))
    is_leaner = (
        new.flops <= _MORE * old.flops
        and new.peak_memory_bytes <= _MORE * old.peak_memory_bytes
        and new.comm_bytes < _LESS * old.comm_bytes
    )
    if not is_leaner:
        return first
    before, after = (simulate(local.module, prices.machine).time_s for local in (first, second))
    return second if after <= before else first


_MORE, _LESS = 1.05, 0.95


def _partitioned(
    module: Module,
    shardings: dict[int, HloSharding],
    decisions: Decisions,
    num_partitions: int,
    why: Mapping[int, str] = MappingProxyType({}),
) -> LocalProgram:
    program = Program(Builder(module.name, num_partitions=num_partitions, like=module), num_partitions)
    program.channel = max((i.channel_id for i in module.instructions if i.opcode in _CHANNELED), default=0)
    builder = program.builder.computation(module.entry.name)
    context = Context(Emitter(program, builder), shardings, decisions)
    boundary: dict[Instruction, HloSharding] = {}
    for parameter in module.entry.parameters:
        shardings_of = tuple(w if w is not None else REPLICATED for w in context.wanted_leaves(parameter))
        local, context.values[parameter] = enter_parameter(context, parameter, forms_of(shardings_of))
        boundary[local] = _sharding_of(parameter, shardings_of)
    for inst in module.entry.instructions:
        if inst.opcode != "parameter":
            context.values[inst] = lower(context, inst)
    root = _finish_root(context, module.entry.root, boundary)
    builder.root(root)
    local = _close(program, builder, module, boundary, decisions)
    return replace(local, sharding_overrides=sharding_overrides(module, shardings, program.undecided, why))


_CHANNELED = COLLECTIVES | {"custom-call", "send", "recv", "send-done", "recv-done"}
"""What may have a channel already: that of a manual region stays."""


def _finish_root(context: Context, root: Instruction, boundary: dict[Instruction, HloSharding]) -> Instruction:
    context.emitter.lowering(root, "output")
    value = context.value(root)
    wanted = context.wanted_leaves(root)
    targets = [w if w is not None else REPLICATED for w in wanted]
    local = context.pack(context.reshard_leaves(value, targets, "output"))
    if local in boundary or local.opcode == "parameter":
        local = context.emitter.op("copy", local.shape, (local,))
    boundary[local] = _sharding_of(root, tuple(targets))
    return local


def _sharding_of(inst: Instruction, leaves: tuple[HloSharding, ...]) -> HloSharding:
    return HloSharding.tuple(leaves) if inst.shape.is_tuple else leaves[0]


def _close(
    program: Program,
    entry: ComputationBuilder,
    source: Module,
    boundary: dict[Instruction, HloSharding],
    decisions: Decisions,
) -> LocalProgram:
    module = program.builder.finish(entry)
    module.proto.input_output_alias.CopyFrom(source.proto.input_output_alias)
    module.proto.buffer_donor.CopyFrom(source.proto.buffer_donor)
    rewrite.dead_code(module)
    module.renumber()
    hoist_invariants(module, decisions.prices, program.deferred)
    module.shardings = {i.id: s for i, s in boundary.items()}
    verify_and_sync(module, program, has_manual_groups=decisions.has_manual_groups)
    return LocalProgram(module, [*program.warnings, *left_undone(source)])


def _check(module: Module, num_partitions: int) -> None:
    if num_partitions < 1:
        raise PartitionError(f"num_partitions is {num_partitions}", remedy="pass the number of devices")
    known = (None, num_partitions)
    alien = {id(s): leaf for s in module.distinct_shardings for leaf in s.leaves if leaf.num_devices not in known}
    if alien:
        inst = next(i for i in module.instructions if id(module.shardings.get(i.id)) in alien)
        leaf = alien[id(module.shardings[inst.id])]
        raise PartitionError(
            f"sharding {leaf} is for {leaf.num_devices} devices, the program for {num_partitions}",
            where=f"%{inst.name} {inst.location}".strip(),
        )
