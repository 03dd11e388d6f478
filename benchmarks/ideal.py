"""XLA's *ideal* bytes: its program as it stands, credited for what a later pass could have saved.

Two credits: all-reduces one behind the other count as one over the product of their groups, and an all-reduce of which
each device then takes its own slice counts as a reduce-scatter.
"""

from __future__ import annotations

from collections.abc import Iterator

from hlosharding.ir import Instruction, Module
from hlosharding.spmd import Collective, collectives

# Between an all-reduce and the slice of it.
SEE_THROUGH = frozenset({"reshape", "bitcast", "copy", "convert"})


def ideal_bytes(module: Module) -> float:
    """Bytes that a device receives in one run, mean over devices, with both credits.

    >>> import hlosharding.ir as ir
    >>> b = ir.Builder("m", num_partitions=4)
    >>> main = b.computation("main")
    >>> x = main.parameter(0, ir.Shape.array("f32", (100,)))
    >>> ids = {"channel_id": 1, "use_global_device_ids": True}
    >>> y = main.add("all-reduce", x.shape, (x,), replica_groups=((0, 1), (2, 3)), **ids)
    >>> _ = main.add("all-reduce", x.shape, (y,), replica_groups=((0, 2), (1, 3)), **ids)
    >>> ideal_bytes(b.finish(main))  # 600, not 800
    600.0
    """
    found = {module.by_name(c.name): c for c in collectives(module)}
    total = sum(c.bytes_per_device for c in found.values())
    return total - sum(credit(chain, found) for chain in chains(found))


def chains(found: dict[Instruction, Collective]) -> Iterator[list[Instruction]]:
    """All-reduces, each the only reader of the one before."""
    sums = {
        op: None for op, c in found.items() if c.kind == "all-reduce" and len(op.operands) == 1 and not c.in_conditional
    }
    for op in sums:
        before = op.operands[0]
        if before in sums and only_reader(before) is op:
            continue
        chain = [op]
        while (after := only_reader(chain[-1])) is not None and after in sums:
            chain.append(after)
        yield chain


def credit(chain: list[Instruction], found: dict[Instruction, Collective]) -> float:
    """Bytes saved on one chain; never negative."""
    group, last = 1, found[chain[-1]]
    for op in chain:
        group *= found[op].group_size
    factor = 1 if is_cut(chain[-1], group) else 2
    needed = factor * (group - 1) / group * last.nbytes * last.executions
    return max(0.0, sum(found[op].bytes_per_device for op in chain) - needed)


def is_cut(op: Instruction, ways: int) -> bool:
    """Does the only reader take one part of `ways`?"""
    reader = only_reader(op)
    while reader is not None and reader.opcode in SEE_THROUGH:
        reader = only_reader(reader)
    return reader is not None and reader.opcode == "dynamic-slice" and reader.shape.size * ways == op.shape.size


def only_reader(op: Instruction) -> Instruction | None:
    """The instruction that alone uses `op`; None where there is none, several, or the computation's result is `op`."""
    return op.users[0] if len(op.users) == 1 and not op.is_root else None
