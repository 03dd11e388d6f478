"""Programs of foreign libraries cut into plans: does each give the numbers of one device, or say why it cannot be cut?

`python -m benchmarks.foreign_plans [NAME ...]`: a name is any part of a program's or its library's.  Nothing was tuned
on them.  Data, tensors, stages, microbatches, schedules and strategies of eight devices, each plan run on eight CPU
devices.  Needs the extra `foreign` (`benchmarks.foreign`); what is not installed is left out.
"""

from __future__ import annotations

from typing import Any

from rich.table import Table

from benchmarks.foreign_programs import Program
from benchmarks.foreign_programs.parts import distance_from_one_device
from benchmarks.verdict import finish
from benchmarks.workers import foreign_rows
from hlosharding.search import Plan

PLANS = (
    Plan(8),
    Plan(8, strategy="fsdp"),
    Plan(8, microbatches=2),
    Plan(4, 2),
    Plan(4, 2, sequence=True),
    Plan(4, 2, microbatches=2, strategy="zero1"),
    Plan(2, 4, strategy="fsdp"),
    Plan(4, 1, 2, 2),
    Plan(2, 2, 2, 2),
    Plan(2, 2, 2, 2, "gpipe"),
    Plan(2, 2, 2, 4, "1f1b-x2"),
    Plan(2, 1, 4, 4),
)


def measured(program: Program) -> dict[str, Any]:
    """Of one program how far each plan's results are from one device's; of those that are refused the reason."""
    import jax

    import hlosharding as hs
    from examples import devices

    devices.choose_platform()
    step, machine = program.build(program.mesh(1)), hs.machines.h100(8)
    try:
        found = hs.search(step.function, *step.arguments, machine=machine, plans=PLANS, prune=False, progress=False)
    except hs.ScheduleError as error:
        return {"off": {}, "refused": {"all": str(error)}}
    off = dict[str, float]()
    for each in found.table:
        schedule = found.sizes.planner(each.batch_size).schedule(each.plan, machine)
        made = schedule.compile(jax.devices()[:8])(*jax.tree.leaves(step.arguments))
        off[str(each.plan)] = distance_from_one_device(made, step)
    return {"off": off, "refused": {str(sized.plan): reason for sized, reason in found.refused}}


def main() -> None:
    """Measure each in a process of its own; fail where a plan fails, or gives other numbers."""
    table, kept = Table("program", "right", "furthest off", "refused", "for instance"), list[bool]()
    for program, row in foreign_rows(
        "foreign_plans", "Programs of foreign libraries, cut into plans of eight devices.", measured
    ):
        if "failed" in row:
            table.add_row(program.name, "", "", "", row["failed"])
            kept.append(False)
            continue
        off, refused = row["off"], row["refused"]
        wrong = {plan: far for plan, far in off.items() if not far <= program.tolerance}
        reason = next((f"{plan}: {why}" for plan, why in {**wrong, **refused}.items()), "")
        table.add_row(
            program.name,
            f"{len(off) - len(wrong)} of {len(off)}",
            f"{max(off.values(), default=0):.2g}",
            str(len(refused)),
            reason,
        )
        kept.append(not wrong)
    finish(table, kept)


if __name__ == "__main__":
    main()
