"""`hlosharding run`: partition a program, run it on this machine, and compare it with one device's run.

Floor: cli.
"""

from __future__ import annotations

import os
import re
import sys
from argparse import Namespace
from typing import Any

import numpy as np
from rich.table import Table

from hlosharding import xla_bridge
from hlosharding.cli.arrays import Arrays, Difference, difference, random_arrays, read_arrays, save_arrays
from hlosharding.cli.files import show, working, write
from hlosharding.cli.programs import annotated_program, as_json, partitioned_program, partitions
from hlosharding.compiler import Partitioned
from hlosharding.errors import ExecutionError
from hlosharding.ir import Module, Shape
from hlosharding.report import add_row, new_table

_FORCED = re.compile(r"--xla_force_host_platform_device_count=\d+")


def execute(arguments: Namespace) -> None:
    """Run, save, show; raise ExecutionError where `--check` finds a difference."""
    module = annotated_program(arguments)
    choose_devices(arguments.platform, 1 if arguments.reference else partitions(arguments, module))
    _require(arguments.platform)
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
    if arguments.emit == "json":
        write(as_json(_record(partitioned, outputs, shapes, apart)), None)
    else:
        show(_table(partitioned, outputs, shapes, apart))
    _judge(apart)


def choose_devices(platform: str, count: int) -> None:
    """Ask JAX for `count` CPU devices, or for its GPUs; too late, and without effect, once JAX runs."""
    if "jax" in sys.modules:
        return
    # The CPU stays visible beside GPUs: the one device of --check.
    os.environ["JAX_PLATFORMS"] = "cpu" if platform == "cpu" else f"{platform},cpu"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if platform == "cpu":
        flags = _FORCED.sub("", os.environ.get("XLA_FLAGS", ""))
        os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={count}".strip()


def _require(platform: str) -> None:
    import jax

    if platform == "cuda" and jax.default_backend() == "cpu":
        remedy = "leave --platform out to run on CPU devices; for GPUs install hlosharding[cuda12]"
        raise ExecutionError("--platform cuda: JAX sees no GPU", remedy=remedy)


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


def _table(
    partitioned: Partitioned, outputs: Arrays, shapes: tuple[Shape, ...], apart: list[Difference] | None
) -> Table:
    figures = ("norm", "largest", "not finite", "from one device's run")
    columns = ("output", "shape", *figures[:3]) if apart is None else ("output", "shape", *figures, "")
    title = f"{partitioned.module.name} on {_devices(partitioned.num_partitions)}"
    table = new_table(title, *columns, figures=figures)
    for n, (array, shape) in enumerate(zip(outputs, shapes, strict=True)):
        norm, largest, wrong = _figures(array)
        row = [str(n), str(shape), f"{norm:.6g}", f"{largest:.6g}", str(wrong) if wrong else ""]
        if apart is not None:
            row += [f"{apart[n].relative:.1e}", "agrees" if apart[n].agrees else "DIFFERS"]
        add_row(table, *row)
    return table


def _devices(count: int) -> str:
    return f"{count} device{'' if count == 1 else 's'}"


def _figures(array: np.ndarray) -> tuple[float, float, int]:
    """Norm and largest magnitude of the finite values; how many are not finite."""
    wide = np.abs(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64))
    finite = np.isfinite(wide)
    kept = wide[finite]
    return float(np.linalg.norm(kept)), float(np.max(kept, initial=0)), int(finite.size - finite.sum())


def _record(
    partitioned: Partitioned, outputs: Arrays, shapes: tuple[Shape, ...], apart: list[Difference] | None
) -> dict[str, Any]:
    records: list[dict[str, Any]] = []
    for n, (array, shape) in enumerate(zip(outputs, shapes, strict=True)):
        norm, largest, wrong = _figures(array)
        records.append({"shape": str(shape), "norm": norm, "largest": largest, "not_finite": wrong})
        if apart is not None:
            far = apart[n].relative
            records[-1] |= {"relative_difference": far if np.isfinite(far) else None, "agrees": apart[n].agrees}
    return {
        "schema": "hlosharding.run/1",
        "module": partitioned.module.name,
        "num_partitions": partitioned.num_partitions,
        "outputs": records,
    }


def _judge(apart: list[Difference] | None) -> None:
    wrong = [str(n) for n, one in enumerate(apart or ()) if not one.agrees]
    if wrong:
        sys.stdout.flush()
        raise ExecutionError(f"output {', '.join(wrong)} differs from one device's run", remedy="see --tolerance")
