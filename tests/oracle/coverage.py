"""What a differential run exercised: opcode x direction x level x kind of sharding, every opcode of HLO a row.

A cell counts the changes in which a sharding of that kind was taken from an operand by such an op (forward), or offered
by such an op to its operand (backward), at that level, in modules on which XLA agreed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hlosharding.ir import ALL_OPCODES, Module
from hlosharding.propagation import Propagation, Step
from hlosharding.sharding import HloSharding

KINDS = {
    "R": "replicated", "M": "one device", "T": "tiled", "P": "tiled with copies", "S": "manual subgroup",
    "U": "unreduced subgroup", "N": "manual",
}  # fmt: skip
COLUMNS = [(direction, level) for direction in "FB" for level in range(4)]
Cell = tuple[str, str, int, str]


def kind(leaf: HloSharding) -> str:
    """The letter of a leaf's kind."""
    if leaf.kind != "tiled":
        return {"replicated": "R", "maximal": "M", "manual": "N"}.get(leaf.kind, "U")
    return "S" if leaf.is_manual_subgroup() else "U" if leaf.is_unreduced_subgroup() else (
        "P" if leaf.has_partial_replication() else "T"
    )  # fmt: skip


def cells(module: Module, found: Propagation) -> Counter[Cell]:
    """The cells that one run exercised."""
    opcodes = [i.opcode for i in module.instructions]
    counted: Counter[Cell] = Counter()
    for step in found.provenance.steps:
        if step.direction in ("operands", "users") and step.level >= 0:
            forward = step.direction == "operands"
            for i in (step.instruction,) if forward else step.sources:
                if i < len(opcodes):
                    counted.update((opcodes[i], "F" if forward else "B", step.level, k) for k in _new_kinds(step))
    return counted


def _new_kinds(step: Step) -> set[str]:
    if step.new is None:
        return set()
    old = step.old.leaves if step.old is not None else ()
    fresh = step.new.leaves if len(old) != len(step.new.leaves) else [
        after for before, after in zip(old, step.new.leaves, strict=True) if before is not after
    ]  # fmt: skip
    return {kind(leaf) for leaf in fresh}


def table(counted: Counter[Cell], seen: Counter[str]) -> Iterable[str]:
    """Lines: per opcode how many modules had it, the kinds per direction and level, then the empty cells."""
    total = len(ALL_OPCODES) * len(COLUMNS) * len(KINDS)
    yield f"coverage: {len(counted):,} of {total:,} cells; {len(seen)} of {len(ALL_OPCODES)} opcodes occurred"
    yield "kinds: " + ", ".join(f"{letter} {name}" for letter, name in KINDS.items())
    yield f"{'opcode':26} {'modules':>7}  " + " ".join(f"{d}{level:<7}" for d, level in COLUMNS)
    for opcode in sorted(ALL_OPCODES):
        row = ["".join(k for k in KINDS if counted[opcode, d, level, k]) or "." for d, level in COLUMNS]
        yield f"{opcode:26} {seen[opcode]:7}  " + " ".join(f"{kinds:8}" for kinds in row)
    yield "empty cells, by opcode (an opcode that is not here has none):"
    for opcode in sorted(ALL_OPCODES):
        empty = [
            f"{d}{level}:" + ("all" if len(missing) == len(KINDS) else missing)
            for d, level in COLUMNS
            if (missing := "".join(k for k in KINDS if not counted[opcode, d, level, k]))
        ]
        if empty:
            moves = any(counted[opcode, d, level, k] for d, level in COLUMNS for k in KINDS)
            yield f"  {opcode}: " + (" ".join(empty) if moves else "all (nothing passes)")
