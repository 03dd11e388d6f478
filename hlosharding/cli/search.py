"""`hlosharding search`: the best data, tensor and pipeline parallelism of a step for a machine.

Floor: cli.
"""

from __future__ import annotations

import os
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from hlosharding.cli.files import write
from hlosharding.cli.programs import load_program, named_machine, present
from hlosharding.plans import PlanFile
from hlosharding.report import pareto_svg, search_view
from hlosharding.search import MICROBATCHES, Plan, SearchResult, search


def execute(arguments: Namespace) -> None:
    """Print the best plan, why it won, what would change it, and the others.

    Raises ScheduleError where none could be priced.
    """
    module = load_program(arguments)
    found = search(
        module,
        batch=arguments.batch,
        machine=named_machine(*arguments.machine),
        plans=arguments.plans,
        microbatches=arguments.microbatches or MICROBATCHES,
        schedules=arguments.schedules,
        orders=Plan.ORDERS if arguments.orders == ["all"] else arguments.orders,
        strategies=arguments.strategy,
        replicas=arguments.replicas,
        context=arguments.context,
        experts=arguments.experts,
        sequence=(False, True) if arguments.sequence else (False,),
        recompute=(False, True) if arguments.recompute else (False,),
        donate=arguments.donate,
        prune=not arguments.all,
        resume=arguments.resume,
        jobs=arguments.jobs,
        runtime=arguments.runtime,
    )
    if arguments.plot:
        write(pareto_svg(found), arguments.plot)
    if arguments.output:
        write(found.schedule.to_text(), arguments.output)
    if arguments.save_plan:
        _as_file(found, arguments).write(arguments.save_plan)
    changes = found.what_if() if found.table else ()
    present(search_view(found, most=arguments.most, what_if=changes), arguments.emit)
    if not found.table:
        _ = found.best  # raises, with the reason


def _as_file(found: SearchResult, arguments: Namespace) -> PlanFile:
    """The best plan; a machine that stands in a file is named as seen from the plan's."""
    plan, (name, _) = found.plan_file(), arguments.machine
    if not name.endswith(".toml"):
        return plan
    return replace(plan, machine=os.path.relpath(name, Path(arguments.save_plan).parent))
