"""`hlosharding partition`: what each device runs, and what that costs.

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace

from hlosharding.cli.files import write
from hlosharding.cli.programs import GivenProgram, as_json, in_format, mesh_text
from hlosharding.compiler import Partitioned
from hlosharding.cost import CostReport, cost
from hlosharding.errors import ExecutionError
from hlosharding.onnx_ranks import write_onnx_ranks
from hlosharding.report import collectives_view, cost_view, overrides_view, partitioned_view, show


def execute(arguments: Namespace) -> None:
    """Write the local program in the form asked for; without `--emit`, tables."""
    partitioned = GivenProgram.of(arguments).partition()
    prices = partitioned.cost if arguments.combine else cost(partitioned, partitioned.machine, combine=False)
    if arguments.emit == "onnx":
        _write_ranks(partitioned, arguments.output)
    elif arguments.emit:
        write(_in_form(partitioned, prices, arguments), arguments.output)
    if arguments.collectives:
        show(collectives_view(partitioned, cost=prices))
    if arguments.cost:
        show(cost_view(prices))
    if arguments.sharding_overrides:
        show(overrides_view(partitioned))
    if not (arguments.emit or arguments.collectives or arguments.cost or arguments.sharding_overrides):
        show(partitioned_view(partitioned, cost=prices))


def _write_ranks(partitioned: Partitioned, folder: str | None) -> None:
    if folder in (None, "-"):
        raise ExecutionError("a model for each rank is a folder of files", remedy="name a new one: -o FOLDER")
    write_onnx_ranks(partitioned).write(folder)


def _in_form(partitioned: Partitioned, prices: CostReport, arguments: Namespace) -> str | bytes:
    if arguments.emit == "python":
        return partitioned.as_python()
    if arguments.emit == "json":
        return as_json(partitioned_view(partitioned, cost=prices))
    if arguments.emit == "mesh":
        return mesh_text(partitioned.propagation, "materialized")
    if arguments.emit == "stablehlo":
        return partitioned.to_stablehlo_text()
    return in_format(partitioned.module, arguments.emit, metadata=arguments.metadata)
