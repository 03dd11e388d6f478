"""The same facts for programs: plain dicts and lists that `json` writes, with a schema name that changes with them.

Floor: report.  Keys are only added within one version; sizes are bytes, times seconds, figures those of one device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlosharding.compiler import Partitioned
from hlosharding.cost import Collective, CostReport, Subtotal
from hlosharding.ir import Instruction, Module
from hlosharding.propagation import Explanation, Propagation
from hlosharding.sharding import HloSharding

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
        "chain": [
            {
                "name": link.name,
                "opcode": link.opcode,
                "location": link.location,
                "sharding": _text(link.sharding),
                "from": link.direction,
                "level": link.level,
                "also": list(link.also),
            }
            for link in explanation.links
        ],
        "not_split_because": list(explanation.stopped),
    }


def partitioned_record(partitioned: Partitioned) -> Record:
    """`hlosharding.partition/1`: boundary, collectives, cost and warnings of a per-device program."""
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
        "warnings": list(partitioned.warnings),
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


def _nested(numbers: tuple[tuple[int, ...], ...] | None) -> list[list[int]] | None:
    return None if numbers is None else [[int(n) for n in group] for group in numbers]


def _text(sharding: HloSharding | None) -> str | None:
    return None if sharding is None else str(sharding)
