"""Whole programs: a module as a record, a partitioned program at one glance.

Floor: report.
"""

from __future__ import annotations

from typing import Any

from hlosharding.compiler import Partitioned
from hlosharding.cost import CostReport
from hlosharding.ir import Instruction, Module
from hlosharding.printable import printable
from hlosharding.report.collectives import collectives_view
from hlosharding.report.costs import cost_view
from hlosharding.report.model import Column, Facts, Kind, Lines, Part, Row, Shown, Table, Text, View, Within, fields_of

_OVERRIDES_SHOWN = 12


def module_view(module: Module) -> View:
    """The graph with its shardings."""
    facts = Facts.of(
        name=module.name,
        num_partitions=module.num_partitions,
        entry=module.entry.name,
        computations=[
            {
                "name": computation.name,
                "root": computation.root.name,
                "instructions": [_instruction_facts(inst) for inst in computation.instructions],
            }
            for computation in module.computations
        ],
    )
    return View((facts, Text(module)), schema="hlosharding.module/1")


def _instruction_facts(inst: Instruction) -> dict[str, Any]:
    return {
        **fields_of(inst, "name opcode shape"),
        "operands": [operand.name for operand in inst.operands],
        "called": [computation.name for computation in inst.called],
        "sharding": inst.computation.module.sharding(inst),
        **fields_of(inst, "location op_name"),
    }


def partitioned_view(partitioned: Partitioned, *, cost: CostReport | None = None) -> View:
    """The totals, the collectives, the values that propagation had sharded otherwise, and the warnings.

    `cost`: other prices than the program's own.
    """
    cost = cost if cost is not None else partitioned.cost
    count = partitioned.num_partitions
    overrides = overrides_view(partitioned, most=_OVERRIDES_SHOWN) if partitioned.sharding_overrides else None
    head = Text(f"{printable(partitioned.module.name)} on {count} device{'' if count == 1 else 's'}", style="bold")
    parts: tuple[Part, ...] = (
        head,
        _boundary(partitioned),
        Within("cost", cost_view(cost, by=())),
        *collectives_view(partitioned, cost=cost).parts,
        *(overrides.parts if overrides else (Facts({"sharding_overrides": ()}),)),
        *warnings_view(partitioned).parts,
    )
    return View(parts, schema="hlosharding.partition/1")


def _boundary(partitioned: Partitioned) -> Facts:
    module = partitioned.module
    root = module.sharding(module.entry.root)
    leaves = module.entry.root.shape.leaves
    return Facts.of(
        module=module.name,
        num_partitions=partitioned.num_partitions,
        parameters=[
            {"name": p.name, "path": p.op_name, "local_shape": p.shape, "sharding": module.sharding(p)}
            for p in module.entry.parameters
        ],
        outputs=[
            {"local_shape": shape, "sharding": leaf}
            for shape, leaf in zip(leaves, root.leaves if root is not None else (), strict=True)
        ],
    )


def overrides_view(partitioned: Partitioned, *, most: int | None = None) -> View:
    """The values sharded otherwise than propagated; those of one source line that are alike share a row.

    A chosen sharding with `unreduced` is one of partial sums: each device has its own, to be added up later.  `most`:
    rows shown; one more says how many values the others are.
    """
    rows: list[Row] = [
        {
            **fields_of(one, "name opcode shape"),
            "location": Shown(one.location or f"%{one.name}", one.location),
            **fields_of(one, "propagated chosen"),
            "times": 1,
            "why": one.why,
        }
        for one in partitioned.sharding_overrides
    ]
    columns = (
        Column(key="location", heading="source", kind=Kind.LOCATION),
        Column(key="opcode", heading="operation", priority=2),
        Column(key="shape", heading="shape", kind=Kind.SHAPE, priority=2),
        Column(key="propagated", heading="propagated", kind=Kind.SHARDING),
        Column(key="chosen", heading="chosen", kind=Kind.SHARDING),
        Column(key="times", heading="times", kind=Kind.COUNT, sums=True, in_record=False, priority=3),
        Column(key="why", heading="why", kind=Kind.PROSE),
    )
    table = Table(
        title="Sharded otherwise than propagated",
        key="sharding_overrides",
        columns=columns,
        rows=rows,
        mesh=partitioned.module.mesh,
        joins=True,
        most=most,
        empty="none",
    )
    return View((table,))


def warnings_view(partitioned: Partitioned) -> View:
    """The ops that were not partitioned, a line each; nothing where there are none."""
    return View((Lines("warnings", partitioned.warnings, label="warning: ", style="yellow"),))
