"""`hlosharding draw`: which devices hold which part of an array.

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace

from hlosharding.cli.files import write
from hlosharding.cli.programs import array_shape, as_json, present
from hlosharding.report import Drawing, View, draw_svg, sharding_view
from hlosharding.sharding import HloSharding


def execute(arguments: Namespace) -> None:
    """Write the drawing as text or SVG."""
    sharding, dims = HloSharding.parse(arguments.sharding), array_shape(arguments.shape).dims
    sharding.validate(dims)
    if arguments.emit == "json":
        write(as_json(sharding_view(sharding)), arguments.output)
        return
    if arguments.emit == "svg":
        write(draw_svg(sharding, dims), arguments.output)
        return
    present(View((Drawing(sharding, dims),)), output=arguments.output)
