"""`hlosharding run`: partition a program, run it on this machine, and compare it with one device's run.

Floor: cli.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any

import numpy as np

from hlosharding import xla_bridge
from hlosharding.cli.arrays import Arrays, Difference, difference, random_arrays, read_arrays, save_arrays
from hlosharding.cli.devices import choose_devices, require
from hlosharding.cli.files import working
from hlosharding.cli.programs import annotated_program, partitioned_program, partitions, present
from hlosharding.compiler import Partitioned
from hlosharding.errors import ExecutionError
from hlosharding.ir import Module, Shape
from hlosharding.report import Column, Facts, Kind, Shown, Table, View

_FIGURES = (
    Column(key="output", heading="output", in_record=False),
    Column(key="shape", heading="shape", kind=Kind.SHAPE),
    Column(key="norm", heading="norm", kind=Kind.NUMBER),
    Column(key="largest", heading="largest", kind=Kind.NUMBER, priority=1),
    Column(key="not_finite", heading="not finite", kind=Kind.COUNT),
)
_COMPARED = (
    Column(key="relative_difference", heading="from one device's run", kind=Kind.DIFFERENCE),
    Column(key="agrees", heading=""),
)


def execute(arguments: Namespace) -> None:
    """Run, save, show; raise ExecutionError where `--check` finds a difference."""
    module = annotated_program(arguments)
    choose_devices(arguments.platform, 1 if arguments.reference else partitions(arguments, module))
    require(arguments.platform)
    partitioned = partitioned_program(arguments, module)
    parameters = [p for p in module.entry.parameters if p.name not in module.weights]
    given = (
        read_arrays(parameters, arguments.inputs) if arguments.inputs else random_arrays(parameters, arguments.random)
    )
    outputs = _run(partitioned, given, reference=arguments.reference)
    shapes = module.entry.root.shape.leaves
    apart = _differences(partitioned, given, outputs, shapes, arguments.tolerance) if arguments.check else None
    if arguments.save:
        save_arrays(outputs, arguments.save)
    present(_outputs_view(partitioned, outputs, shapes, apart), arguments.emit)
    _judge(apart)


def _run(partitioned: Partitioned, given: Arrays, *, reference: bool) -> Arrays:
    with working("running"):
        found = partitioned.run_reference(*given) if reference else partitioned.run(*given)
    return [np.asarray(array) for array in (found if isinstance(found, tuple | list) else (found,))]


def _differences(
    partitioned: Partitioned, given: Arrays, outputs: Arrays, shapes: tuple[Shape, ...], tolerance: float | None
) -> list[Difference]:
    assert partitioned.propagation is not None
    with working("running on one device"):
        expected = one_device(partitioned.propagation.module, given)
    return [difference(a, b, s, tolerance) for a, b, s in zip(outputs, expected, shapes, strict=True)]


def one_device(module: Module, given: Arrays) -> Arrays:
    """Outputs of the unpartitioned module on one CPU device."""
    weights = [np.asarray(module.weights[p.name]) for p in module.entry.parameters if p.name in module.weights]
    outputs = xla_bridge.run_proto(module.to_hlo_proto(), [[array] for array in (*given, *weights)])
    return [copies[0] for copies in outputs]


def _outputs_view(
    partitioned: Partitioned, outputs: Arrays, shapes: tuple[Shape, ...], apart: list[Difference] | None
) -> View:
    """Figures of each output, and how far it is from one device's run."""
    name, count = partitioned.module.name, partitioned.num_partitions
    rows = [_figures(n, array, shape) for n, (array, shape) in enumerate(zip(outputs, shapes, strict=True))]
    compared = [_comparison(one) for one in apart] if apart is not None else []
    table = Table(
        title=f"{name} on {count} device{'' if count == 1 else 's'}",
        key="outputs",
        columns=(*_FIGURES, *(_COMPARED if compared else ())),
        rows=[row | more for row, more in zip(rows, compared, strict=True)] if compared else rows,
    )
    facts = Facts({"module": name, "num_partitions": count})
    return View((facts, table), schema="hlosharding.run/1")


def _figures(number: int, array: np.ndarray, shape: Shape) -> dict[str, Any]:
    """Norm and largest magnitude of the finite values; how many are not finite."""
    wide = np.abs(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64))
    finite = np.isfinite(wide)
    kept, wrong = wide[finite], int(finite.size - finite.sum())
    return {
        "output": number,
        "shape": str(shape),
        "norm": float(np.linalg.norm(kept)),
        "largest": float(np.max(kept, initial=0)),
        "not_finite": wrong or Shown("", 0),
    }


def _comparison(apart: Difference) -> dict[str, Any]:
    far = apart.relative
    return {
        "relative_difference": Shown(f"{far:.1e}", far if np.isfinite(far) else None),
        "agrees": Shown("agrees" if apart.agrees else "DIFFERS", apart.agrees),
    }


def _judge(apart: list[Difference] | None) -> None:
    wrong = [str(n) for n, one in enumerate(apart or ()) if not one.agrees]
    if wrong:
        sys.stdout.flush()
        raise ExecutionError(f"output {', '.join(wrong)} differs from one device's run", remedy="see --tolerance")
