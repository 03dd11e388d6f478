"""Does every instruction of the examples get the sharding that live GSPMD gives it?

Both propagate the module that XLA's own pipeline prepared, with the same freedom of parameters and outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

import hlosharding as hs
from benchmarks import cases, live_xla
from benchmarks.verdict import finish
from examples import devices

SHOWN = 10


@dataclass(frozen=True, slots=True)
class Difference:
    """One instruction on which the two disagree."""

    name: str
    ours: hs.HloSharding | None
    theirs: hs.HloSharding | None


def compare(case: cases.Case) -> tuple[int, list[Difference]]:
    """(instructions of XLA's propagated module, those whose sharding differs)."""
    live = live_xla.modules(case.lowered())
    module = hs.load(live.prepared, format="hlo-proto")
    ours = hs.propagate(module, to_parameters=case.free_parameters, to_outputs=case.free_outputs).shardings
    theirs = hs.load(live.propagated, format="hlo-proto")
    names = same_instructions(theirs, module)
    differing = [
        Difference(inst.name, ours.get(names.get(inst.name, "")), theirs.sharding(inst))
        for inst in theirs.instructions
        if inst.name not in names or ours[names[inst.name]] != theirs.sharding(inst)
    ]
    return len(theirs.instructions), differing


def same_instructions(after: hs.Module, before: hs.Module) -> dict[str, str]:
    """Names in `after` -> names in `before`: equal ones, and the copies that GSPMD made of `Sharding` calls.

    Such a copy has a new name; its metadata, its operand and its users tell which call it was.
    """
    old = {inst.name for inst in before.instructions}
    both = old & {inst.name for inst in after.instructions}
    calls = {_place(inst, both): inst.name for inst in before.instructions if inst.name not in both}
    copies = {inst.name: calls.get(_place(inst, both)) for inst in after.instructions if inst.name not in both}
    return {name: name for name in both} | {copy: call for copy, call in copies.items() if call}


def _place(inst: Any, known: set[str]) -> tuple[Any, ...]:
    around = (inst.operands, sorted(inst.users, key=lambda user: user.name))
    return inst.op_name, str(inst.shape), *(tuple(one.name for one in some if one.name in known) for some in around)


def main() -> None:
    """Print the table; fail where any instruction differs."""
    devices.choose_platform()
    table = Table("program", "instructions", "equal", "different", title="Shardings after propagation, against GSPMD")
    all_equal = []
    for case in cases.example_cases():
        count, differing = compare(case)
        table.add_row(case.name, f"{count:,}", f"{count - len(differing):,}", f"{len(differing):,}")
        all_equal.append(not differing)
        for one in differing[:SHOWN]:
            Console().print(f"{case.name}: %{one.name}: ours {one.ours}, GSPMD's {one.theirs}", markup=False)
    finish(table, all_equal)


if __name__ == "__main__":
    main()
