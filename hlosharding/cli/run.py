"""`hlosharding run`: partition a program, run it on this machine, and compare it with one device's run.

Floor: cli.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any

import numpy as np

from hlosharding import xla_bridge
from hlosharding.cli.arrays import ArrayDifference, Arrays, difference, random_arrays, read_arrays, save_arrays
from hlosharding.cli.devices import choose_devices, require
from hlosharding.cli.files import working
from hlosharding.cli.onnx_runtime import is_installed, outputs_by_onnx_runtime
from hlosharding.cli.programs import GivenProgram, present
from hlosharding.compiler import Partitioned
from hlosharding.errors import ExecutionError
from hlosharding.ir import COLLECTIVES_AND_STARTS, Instruction, Module, Shape, custom_call_targets
from hlosharding.report import Column, Facts, Kind, Shown, Table, Text, View

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
_BY_RUNTIME = (
    Column(key="onnx_runtime_difference", heading="from ONNX Runtime", kind=Kind.DIFFERENCE),
    Column(key="onnx_runtime_agrees", heading=""),
)


def execute(arguments: Namespace) -> None:
    """Run, save, show; raise ExecutionError where `--check` finds a difference."""
    program = GivenProgram.of(arguments)
    if program.is_onnx:
        # JAX traces such a model, and takes its devices before.
        choose_devices(arguments.platform, 1 if arguments.reference else program.num_devices_named)
    module = program.module
    # Without effect where JAX runs by now, as for an ONNX model or by a rule.
    choose_devices(arguments.platform, 1 if arguments.reference else program.num_devices)
    require(arguments.platform)
    partitioned = program.partition()
    if arguments.check:
        _check_comparable(module, partitioned.num_partitions)
    parameters = [p for p in module.entry.parameters if p.name not in module.weights]
    given = (
        read_arrays(parameters, arguments.inputs) if arguments.inputs else random_arrays(parameters, arguments.random)
    )
    outputs = _run(partitioned, given, reference=arguments.reference)
    shapes = module.entry.root.shape.leaves
    apart = _differences(partitioned, given, outputs, shapes, arguments.tolerance) if arguments.check else None
    by_runtime = _from_onnx_runtime(program, given, outputs)
    if arguments.save:
        save_arrays(outputs, arguments.save)
    present(_outputs_view(partitioned, outputs, shapes, apart, by_runtime), arguments.emit)
    _judge(apart)
    if arguments.check and isinstance(by_runtime, list):
        _judge(by_runtime, "ONNX Runtime's")


def _check_comparable(module: Module, num_devices: int) -> None:
    """Raise ExecutionError for a program of which one device's run would be another."""
    found = next((inst for inst in module.instructions if _is_of_devices(inst)), None)
    if found is not None and num_devices > 1:
        raise ExecutionError(
            f"the program says itself what its {num_devices} devices do: one device's run would be another program's",
            where=found.where,
            remedy="leave --check out, or compare what --save writes with and without --reference",
        )


def _is_of_devices(inst: Instruction) -> bool:
    return inst.opcode in COLLECTIVES_AND_STARTS or inst.custom_call_target in custom_call_targets.MANUAL_CONVERSIONS


def _from_onnx_runtime(program: GivenProgram, given: Arrays, outputs: Arrays) -> list[ArrayDifference] | str | None:
    """How far the outputs are from ONNX Runtime's; why it gives none; None where it is not installed."""
    if not (is_installed() and program.is_onnx):
        return None
    module, source, tolerance = program.module, program.source, program.arguments.tolerance
    names = [p.op_name for p in module.entry.parameters if p.name not in module.weights]
    feeds = {**program.inputs, **dict(zip(names, given, strict=True))}
    try:
        with working("running by ONNX Runtime"):
            expected = outputs_by_onnx_runtime(source if isinstance(source, bytes) else str(source), feeds)
    except ExecutionError as error:
        return str(error)
    shapes = module.entry.root.shape.leaves
    return [difference(a, b, s, tolerance) for a, b, s in zip(outputs, expected, shapes, strict=True)]


def _run(partitioned: Partitioned, given: Arrays, *, reference: bool) -> Arrays:
    with working("running"):
        found = partitioned.run_reference(*given) if reference else partitioned.run(*given)
    return [np.asarray(array) for array in (found if isinstance(found, tuple | list) else (found,))]


def _differences(
    partitioned: Partitioned, given: Arrays, outputs: Arrays, shapes: tuple[Shape, ...], tolerance: float | None
) -> list[ArrayDifference]:
    assert partitioned.propagation is not None
    with working("running on one device"):
        expected = one_device(partitioned.propagation.module, given)
    return [difference(a, b, s, tolerance) for a, b, s in zip(outputs, expected, shapes, strict=True)]


def one_device(module: Module, given: Arrays) -> Arrays:
    """Outputs of the unpartitioned module on one CPU device."""
    weights = [np.asarray(module.weights[p.name]) for p in module.entry.parameters if p.name in module.weights]
    # Weights of an ONNX model are the program's last parameters.
    outputs = xla_bridge.run_proto(module.to_hlo_proto(), [[array] for array in (*given, *weights)])
    return [copies[0] for copies in outputs]


def _outputs_view(
    partitioned: Partitioned,
    outputs: Arrays,
    shapes: tuple[Shape, ...],
    apart: list[ArrayDifference] | None,
    by_runtime: list[ArrayDifference] | str | None,
) -> View:
    """Figures of each output, and how far it is from one device's run and from ONNX Runtime's."""
    name, count = partitioned.module.name, partitioned.num_partitions
    rows = [_figures(n, array, shape) for n, (array, shape) in enumerate(zip(outputs, shapes, strict=True))]
    columns = _FIGURES
    for found, more in ((apart, _COMPARED), (by_runtime, _BY_RUNTIME)):
        if isinstance(found, list):
            columns = (*columns, *more)
            rows = [row | _comparison(one, more) for row, one in zip(rows, found, strict=True)]
    table = Table(
        title=f"{name} on {count} device{'' if count == 1 else 's'}",
        key="outputs",
        columns=columns,
        rows=rows,
    )
    facts = Facts({"module": name, "num_partitions": count})
    notes = (Text(by_runtime),) if isinstance(by_runtime, str) else ()
    return View((facts, table, *notes), schema="hlosharding.run/1")


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


def _comparison(apart: ArrayDifference, columns: tuple[Column, ...]) -> dict[str, Any]:
    far, (difference_column, verdict) = apart.relative, columns
    return {
        difference_column.key: Shown(f"{far:.1e}", far if np.isfinite(far) else None),
        verdict.key: Shown("agrees" if apart.agrees else "DIFFERS", apart.agrees),
    }


def _judge(apart: list[ArrayDifference] | None, whose: str = "one device's") -> None:
    wrong = [str(n) for n, one in enumerate(apart or ()) if not one.agrees]
    if wrong:
        # Two streams: the table comes before the error that says what is wrong in it.
        sys.stdout.flush()
        raise ExecutionError(f"output {', '.join(wrong)} differs from {whose} run", remedy="see --tolerance")
