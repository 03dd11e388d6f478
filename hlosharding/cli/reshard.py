"""`hlosharding reshard`: the way of an array from one sharding to another, with its bytes and its bound.

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace

from hlosharding.cli.programs import array_shape, machine, present
from hlosharding.report import reshard_view
from hlosharding.reshard import plan_reshard
from hlosharding.sharding import HloSharding


def execute(arguments: Namespace) -> None:
    """Print the plan, and a drawing of both shardings."""
    shape = array_shape(arguments.shape)
    source, target = HloSharding.parse(arguments.source), HloSharding.parse(arguments.target)
    # A maximal sharding names its device, and no number of them.
    devices = arguments.num_partitions or max(s.num_devices or 1 + (s.device or 0) for s in (source, target))
    plan = plan_reshard(
        shape.dims,
        shape.dtype,
        source,
        target,
        objective=arguments.objective,
        machine=machine(arguments, devices),
        memory_limit=arguments.memory_limit,
        num_devices=devices,
    )
    present(reshard_view(plan, drawn=not arguments.no_drawing), arguments.emit)
