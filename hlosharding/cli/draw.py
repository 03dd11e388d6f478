"""`hlosharding draw`: which devices hold which part of an array.

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace

from hlosharding import report
from hlosharding.cli.files import write
from hlosharding.cli.programs import array_shape, as_json
from hlosharding.sharding import HloSharding


def execute(arguments: Namespace) -> None:
    """Write the drawing as text or SVG."""
    sharding, dims = HloSharding.parse(arguments.sharding), array_shape(arguments.shape).dims
    sharding.validate(dims)
    if arguments.emit == "json":
        write(as_json(report.sharding_record(sharding)), arguments.output)
        return
    picture = report.draw_svg if arguments.emit == "svg" else report.draw
    write(picture(sharding, dims), arguments.output)
