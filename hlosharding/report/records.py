"""The same facts for programs: plain dicts and lists that `json` writes, with a schema name that changes with them.

Floor: report.  Keys are only added within one version; sizes are bytes, times seconds, figures those of one device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hlosharding.compiler import Partitioned, partition
from hlosharding.cost import CostReport, Simulation, Subtotal
from hlosharding.ir import Instruction, Module
from hlosharding.mesh_propagation import AxisPropagation
from hlosharding.partitioner import ShardingOverride
from hlosharding.propagation import Explanation, Link, LostOffer, Propagation
from hlosharding.reshard import ReshardPlan
from hlosharding.search import Suggestion
from hlosharding.sharding import HloSharding
from hlosharding.spmd import Collective

Record = dict[str, Any]


def module_record(module: Module) -> Record:
    """`hlosharding.module/1`: the graph with its shardings."""
    return {
        "schema": "hlosharding.module/1",
        "name": module.name,
        "num_partitions": module.num_partitions,
        "entry": module.entry.name,
        "computations": [
            {
                "name": computation.name,
                "root": computation.root.name,
                "instructions": [_instruction_record(inst) for inst in computation.instructions],
            }
            for computation in module.computations
        ],
    }


def _instruction_record(inst: Instruction) -> Record:
    return {
        "name": inst.name,
        "opcode": inst.opcode,
        "shape": str(inst.shape),
        "operands": [operand.name for operand in inst.operands],
        "called": [computation.name for computation in inst.called],
        "sharding": _text(inst.computation.module.sharding(inst)),
        "location": inst.location,
        "op_name": inst.op_name,
    }


def propagation_record(propagated: Propagation) -> Record:
    """`hlosharding.propagation/1`: every value's sharding, by instruction name."""
    return {
        "schema": "hlosharding.propagation/1",
        "module": propagated.module.name,
        "num_partitions": propagated.module.num_partitions,
        "changed": propagated.changed,
        "shardings": {name: _text(sharding) for name, sharding in propagated.shardings.items()},
    }


def explanations_record(explanations: Sequence[Explanation]) -> Record:
    """`hlosharding.explanation/1`: of each value the chain of causes, the value first."""
    return {"schema": "hlosharding.explanation/1", "explanations": [_explanation_record(e) for e in explanations]}


def _explanation_record(explanation: Explanation) -> Record:
    return {
        "chain": [_link_record(link) for link in explanation.links],
        "not_split_because": list(explanation.stopped),
        "conflicts": [_conflict_record(lost) for lost in explanation.conflicts],
    }


def _link_record(link: Link) -> Record:
    return {
        "name": link.name,
        "leaf": link.leaf,
        "opcode": link.opcode,
        "location": link.location,
        "sharding": _text(link.sharding),
        "from": link.direction,
        "level": link.level,
        "also": list(link.also),
        "is_given": link.is_given,
        "called_from": link.called_from,
    }


def conflicts_record(conflicts: Sequence[LostOffer]) -> Record:
    """`hlosharding.conflicts/1`: the offers that lost, in program order."""
    return {"schema": "hlosharding.conflicts/1", "conflicts": [_conflict_record(lost) for lost in conflicts]}


def _conflict_record(lost: LostOffer) -> Record:
    return {
        "winner": _link_record(lost.winner),
        "held_since": _link_record(lost.held_since),
        "loser": _link_record(lost.loser),
        "role": lost.role,
        "offered": _text(lost.offered),
        "offered_since": _link_record(lost.offered_since),
        "reason": lost.reason,
    }


def trace_record(propagated: Propagation) -> Record:
    """`hlosharding.trace/1`: every step of a propagation, in order."""
    names = {i.id: i.name for i in propagated.module.instructions}
    steps = [
        {
            "level": step.level,
            "name": names.get(step.instruction),
            "from": step.direction,
            "sources": [names.get(s) for s in step.sources],
            "before": _text(step.old),
            "after": _text(step.new),
        }
        for step in propagated.provenance.steps
    ]
    return {"schema": "hlosharding.trace/1", "module": propagated.module.name, "steps": steps}


def difference_record(before: Propagation, after: Propagation) -> Record:
    """`hlosharding.difference/1`: the values that two propagations shard differently, and what each program costs."""
    pairs = {name: (old, after.shardings.get(name)) for name, old in before.shardings.items()}
    return {
        "schema": "hlosharding.difference/1",
        "differing": {n: {"before": _text(a), "after": _text(b)} for n, (a, b) in pairs.items() if a != b},
        "cost_before": cost_record(partition(before).cost),
        "cost_after": cost_record(partition(after).cost),
    }


def suggestions_record(suggestions: Sequence[Suggestion]) -> Record:
    """`hlosharding.suggestions/1`: sets of annotations, the best first."""
    return {
        "schema": "hlosharding.suggestions/1",
        "suggestions": [
            {
                "annotations": {name: str(sharding) for name, sharding in one.annotations},
                "replaces": list(one.replaces),
                "sharding": _text(one.sharding),
                "bytes_before": one.bytes_before,
                "bytes_received": one.bytes_received,
                "flops_before": one.flops_before,
                "flops": one.flops,
                "conflicts_before": one.conflicts_before,
                "conflicts_after": one.conflicts,
                "is_smallest": one.is_smallest,
            }
            for one in suggestions
        ],
    }


def sharding_record(sharding: HloSharding) -> Record:
    """`hlosharding.sharding/1`: its text, how often each dim is split, and the devices of each tile, row-major."""
    leaves = sharding.leaves if sharding.is_tuple() else ()
    tiled = sharding.kind == "tiled"
    return {
        "schema": "hlosharding.sharding/1",
        "text": str(sharding),
        "kind": sharding.kind,
        "split": list(map(int, sharding.data_dims)) if tiled else None,
        "tiles": _nested(sharding.tiles.array.reshape(sharding.num_tiles, -1)) if tiled else None,
        "leaves": [sharding_record(leaf) for leaf in leaves],
    }


def axes_record(found: AxisPropagation) -> Record:
    """`hlosharding.axes/1`: annotations, options and conflicts of propagation over axes, as text."""
    return {
        "schema": "hlosharding.axes/1",
        "cluster": str(found.cluster),
        "annotations": [
            {
                "name": one.value,
                "sharding": str(one.sharding),
                "required": one.required,
                "annotate_for_users": one.annotate_for_users,
                "users": list(one.users),
                "operand": one.operand,
                "by": one.by,
            }
            for one in found.annotations
        ],
        "options": {name: {"loops": list(o.loops), "option": str(o)} for name, o in found.options.items()},
        "conflicts": [str(conflict) for conflict in found.conflicts],
        "yielded": [str(conflict) for conflict in found.yielded],
    }


def reshard_record(plan: ReshardPlan) -> Record:
    """`hlosharding.reshard/1`: the steps of a plan, its bytes, its bound and its price."""
    return {
        "schema": "hlosharding.reshard/1",
        "shape": str(plan.shape),
        "source": str(plan.source),
        "target": str(plan.target),
        "machine": plan.machine.name,
        "num_devices": plan.num_devices,
        "steps": [
            {
                "step": str(step),
                "local_before": str(before),
                "local_after": str(after),
                "received_bytes": float(step.received_bytes(before, plan.num_devices).mean()),
                "time_s": step.seconds(before, plan.machine),
            }
            for step, before, after in plan.stages
        ],
        "received_bytes": plan.mean_received_bytes,
        "lower_bound": float(plan.lower_bound),
        "peak_bytes": int(plan.peak_bytes),
        "time_s": float(plan.predicted_s),
    }


def simulation_record(simulation: Simulation) -> Record:
    """`hlosharding.simulation/1`: the figures of a step, and its events; those of the critical path are marked."""
    critical = set(map(id, simulation.critical_path))
    return {
        "schema": "hlosharding.simulation/1",
        "machine": simulation.machine.name,
        "time_s": simulation.time_s,
        "compute_s": simulation.compute_s,
        "comm_s": simulation.comm_s,
        "exposed_comm_s": simulation.exposed_comm_s,
        "peak_memory_bytes": int(simulation.peak_memory_bytes),
        "host_memory_bytes": int(simulation.host_memory_bytes),
        "timeline": [
            {
                "name": event.instruction.name,
                "opcode": event.instruction.opcode,
                "shape": str(event.instruction.shape),
                "location": event.instruction.location,
                "stream": event.stream,
                "start": event.start,
                "end": event.end,
                "received_bytes": event.nbytes,
                "trips": event.trips,
                "is_critical": id(event) in critical,
            }
            for event in simulation.timeline
        ],
    }


def partitioned_record(partitioned: Partitioned) -> Record:
    """`hlosharding.partition/1`: boundary, collectives, cost, sharding overrides and warnings of a per-device program."""
    entry = partitioned.module.entry
    root = partitioned.module.sharding(entry.root)
    return {
        "schema": "hlosharding.partition/1",
        "module": partitioned.module.name,
        "num_partitions": partitioned.num_partitions,
        "parameters": [
            {
                "name": p.name,
                "path": p.op_name,
                "local_shape": str(p.shape),
                "sharding": _text(partitioned.module.sharding(p)),
            }
            for p in entry.parameters
        ],
        "outputs": [
            {"local_shape": str(shape), "sharding": _text(leaf)}
            for shape, leaf in zip(entry.root.shape.leaves, root.leaves if root is not None else (), strict=True)
        ],
        "collectives": [collective_record(one) for one in partitioned.collectives],
        "cost": cost_record(partitioned.cost),
        "sharding overrides": [_override_record(one) for one in partitioned.sharding_overrides],
        "warnings": list(partitioned.warnings),
    }


def _override_record(departure: ShardingOverride) -> Record:
    return {
        "name": departure.name,
        "opcode": departure.opcode,
        "shape": departure.shape,
        "location": departure.location,
        "propagated": str(departure.propagated),
        "chosen": str(departure.chosen),
        "why": departure.why,
    }


def collective_record(collective: Collective) -> Record:
    """One collective; bytes are those of all its executions."""
    return {
        "kind": collective.kind,
        "name": collective.name,
        "axes": collective.axes,
        "groups": _nested(collective.groups),
        "pairs": _nested(collective.pairs),
        "shape": str(collective.shape),
        "bytes_per_device": collective.bytes_per_device,
        "executions": collective.executions,
        "is_exact": collective.is_exact,
        "cause": collective.cause,
        "location": collective.location,
    }


def cost_record(cost: CostReport) -> Record:
    """Totals per device and run, with the subtotals by source line and by opcode."""
    return {
        "machine": cost.machine.name,
        "flops": cost.flops,
        "comm_bytes": cost.comm_bytes,
        "memory_traffic_bytes": cost.memory_traffic_bytes,
        "peak_memory_bytes": int(cost.peak_memory_bytes),
        "host_memory_bytes": int(cost.host_memory_bytes),
        "peak_at": cost.peak_at,
        "time_s": cost.time_s,
        "compute_s": cost.compute_s,
        "comm_s": cost.comm_s,
        "by_location": {name: _subtotal_record(part) for name, part in cost.by_location.items()},
        "by_opcode": {name: _subtotal_record(part) for name, part in cost.by_opcode.items()},
    }


def _subtotal_record(part: Subtotal) -> Record:
    return {
        "instructions": part.instructions,
        "flops": part.flops,
        "comm_bytes": part.comm_bytes,
        "memory_traffic_bytes": part.bytes,
        "time_s": part.time_s,
    }


def _nested(numbers: Iterable[Iterable[int]] | None) -> list[list[int]] | None:
    return None if numbers is None else [[int(n) for n in group] for group in numbers]


def _text(sharding: HloSharding | None) -> str | None:
    return None if sharding is None else str(sharding)
