"""`hlosharding rank`: plans that are run, and how well the prices told which is the fastest.

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace

from hlosharding.cli.devices import use
from hlosharding.cli.programs import load_program, machine, present
from hlosharding.report import ranking_view
from hlosharding.search import rank, sample_plans


def execute(arguments: Namespace) -> None:
    """Run the plans, and show them with what was predicted."""
    count = use(arguments.platform, arguments.devices)
    plans = arguments.plans or sample_plans(count, arguments.count, arguments.seed)
    module = load_program(arguments)
    priced = machine(arguments, max(plan.num_devices for plan in plans))
    found = rank(module, batch=arguments.batch, plans=plans, machine=priced)
    present(ranking_view(found, most=arguments.most), arguments.emit)
