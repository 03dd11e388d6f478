"""What a differential run exercised: opcode x direction x level x kind of sharding, every opcode of HLO a row.

A cell counts the changes in which a sharding of that kind was taken from an operand by such an op (forward), or offered
by such an op to its operand (backward), at that level, in modules on which XLA agreed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hlosharding.ir import ALL_OPCODES, Module
from hlosharding.propagation import Change
from hlosharding.sharding import HloSharding

KINDS = {
    "R": "replicated", "M": "one device", "T": "tiled", "P": "tiled with copies", "S": "manual subgroup",
    "U": "unreduced subgroup", "N": "manual",
}  # fmt: skip
COLUMNS = [(direction, level) for direction in "FB" for level in range(4)]
Cell = tuple[str, str, int, str]


def all_cells() -> frozenset[Cell]:
    """Every cell of the table."""
    return frozenset((op, d, level, k) for op in ALL_OPCODES for d, level in COLUMNS for k in KINDS)


def name(cell: Cell) -> str:
    """As files spell it: "add F0 T"."""
    opcode, direction, level, letter = cell
    return f"{opcode} {direction}{level} {letter}"


def kind(leaf: HloSharding) -> str:
    """The letter of a leaf's kind."""
    if leaf.kind != "tiled":
        return {"replicated": "R", "maximal": "M", "manual": "N"}.get(leaf.kind, "U")
    return "S" if leaf.is_manual_subgroup() else "U" if leaf.is_unreduced_subgroup() else (
        "P" if leaf.has_partial_replication() else "T"
    )  # fmt: skip


def cells(module: Module, steps: Iterable[Change]) -> Counter[Cell]:
    """The cells that those steps of one run exercised."""
    opcodes = [i.opcode for i in module.instructions]
    counted: Counter[Cell] = Counter()
    for step in steps:
        if step.direction in ("operands", "users") and step.level >= 0:
            forward = step.direction == "operands"
            for i in (step.instruction,) if forward else step.sources:
                if i < len(opcodes):
                    counted.update((opcodes[i], "F" if forward else "B", step.level, k) for k in _new_kinds(step))
    return counted


def _new_kinds(step: Change) -> set[str]:
    if step.new is None:
        return set()
    old = step.old.leaves if step.old is not None else ()
    fresh = step.new.leaves if len(old) != len(step.new.leaves) else [
        after for before, after in zip(old, step.new.leaves, strict=True) if before is not after
    ]  # fmt: skip
    return {kind(leaf) for leaf in fresh}


def gaps(counted: Counter[Cell], possible: frozenset[Cell]) -> list[Cell]:
    """The cells that some module can fill and none did."""
    return sorted(possible - set(+counted))


def contradictions(counted: Counter[Cell], possible: frozenset[Cell]) -> list[Cell]:
    """The cells that were filled though the statement calls them impossible."""
    return sorted(set(+counted) - possible)


def table(counted: Counter[Cell], seen: Counter[str], possible: frozenset[Cell]) -> Iterable[str]:
    """Lines: per opcode how many modules had it and the kinds per direction and level, then gaps and contradictions."""
    total = len(all_cells())
    empty = gaps(counted, possible)
    yield (
        f"coverage: {len(possible) - len(empty):,} of {len(possible):,} possible cells; {total - len(possible):,} of"
        f" {total:,} cannot be filled; {len(seen)} of {len(ALL_OPCODES)} opcodes occurred"
    )
    yield "kinds: " + ", ".join(f"{letter} {name}" for letter, name in KINDS.items())
    yield "(in small letters: possible, and empty; no letter: impossible)"
    yield f"{'opcode':26} {'modules':>7}  " + " ".join(f"{d}{level:<7}" for d, level in COLUMNS)
    for opcode in sorted(ALL_OPCODES):
        row = ["".join(_letters(counted, possible, (opcode, d, level))) or "." for d, level in COLUMNS]
        yield f"{opcode:26} {seen[opcode]:7}  " + " ".join(f"{kinds:8}" for kinds in row).rstrip()
    yield f"gaps: {_names(empty) or 'none'}"
    yield f"filled though impossible: {_names(contradictions(counted, possible)) or 'none'}"


def _letters(counted: Counter[Cell], possible: frozenset[Cell], place: tuple[str, str, int]) -> Iterable[str]:
    for k in KINDS:
        if counted[*place, k]:
            yield k
        elif (*place, k) in possible:
            yield k.lower()


def _names(cells: list[Cell]) -> str:
    """Cells in one line, kinds of one place together."""
    places: dict[str, str] = {}
    for opcode, direction, level, letter in cells:
        place = f"{opcode} {direction}{level}"
        places[place] = places.get(place, "") + letter
    return ", ".join(f"{place} {letters}" for place, letters in places.items())
