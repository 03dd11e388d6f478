"""`hlosharding reshard`: the way of an array from one sharding to another, with its bytes and its bound.

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace

from hlosharding import report
from hlosharding.cli.files import write
from hlosharding.cli.programs import array_shape, as_json, machine
from hlosharding.ir import Shape
from hlosharding.reshard import plan_reshard
from hlosharding.sharding import HloSharding


def execute(arguments: Namespace) -> None:
    """Print the plan, and a drawing of both shardings."""
    shape = array_shape(arguments.shape)
    source, target = HloSharding.parse(arguments.source), HloSharding.parse(arguments.target)
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
    if arguments.emit == "json":
        write(as_json(report.reshard_record(plan)), None)
        return
    drawings = "" if arguments.no_drawing else _drawings(shape, source, target)
    write(f"{plan}\n{drawings}", None)


def _drawings(shape: Shape, source: HloSharding, target: HloSharding) -> str:
    return f"\nfrom\n{report.draw(source, shape.dims)}\n\nto\n{report.draw(target, shape.dims)}\n"
