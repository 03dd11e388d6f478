"""Does any entry of the library take longer by more than the program is larger?

`python -m benchmarks.growth [SHAPE ...] [--size N]`: programs of N, 2 N and 4 N instructions, deep, wide, and with one
value that everything reads (`growing.py`), go through every public entry, in one process each.  Seconds are of CPU, the
child that converts included.  The exponent is that between N and 4 N: 1.0 for what grows as the program does, 1.1 for
n log n at these sizes.  What takes less than a tenth of a second at the largest is not judged.
"""

from __future__ import annotations

import argparse
import gc
import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.export
from jax.sharding import NamedSharding
from rich.table import Table

import hlosharding as hs
from benchmarks import growing
from benchmarks.process_seconds import seconds
from benchmarks.verdict import finish, judged
from benchmarks.workers import tell, told
from examples import devices
from hlosharding.xla_bridge import lowered_to_hlo_proto

EXPONENT, LEAST_SECONDS = 1.3, 0.1
SIZE, FACTORS = 1000, (1, 2, 4)
SECONDS_A_PROGRAM = 900
Seconds = dict[str, float]


def entries(program: growing.Growing) -> Iterator[str]:
    """A step is what happens before its name is given; what only prepares has none."""
    mesh, batch = program.mesh, program.batch
    boundary = {"in_shardings": program.in_shardings, "out_shardings": program.out_shardings}
    module = hs.trace(program.function, mesh=mesh, **boundary)(*program.arguments)
    yield "trace"
    yield from _loads(program)
    annotated = hs.annotate(module, {"tanh*": "P('data')"})
    yield "annotate by glob"
    hs.annotate(module, {"tanh*": "P('data')"}, annotate_for_users=True)
    yield "annotate for users"
    found = hs.propagate(annotated)
    yield "propagate"
    _ = found.conflicts, str(found.explain(_a_tanh(module)))
    yield "explain a value"
    machine = hs.machines.h100(8)
    partitioned = hs.partition(found, machine=machine)
    yield "partition"
    yield from _of_partitioned(partitioned, machine)
    hs.diff(found, hs.partition(module, machine=machine), machine=machine)
    yield "diff"
    yield from _of_plans(module)
    yield from _of_onnx(program)
    unsplit = hs.trace(program.function)(*program.arguments)
    yield ""
    schedule = hs.pipelined(unsplit, batch=batch, stages=2, microbatches=2)
    yield "pipelined"
    hs.simulate(schedule, hs.machines.h100(2))
    yield "simulate a schedule"
    schedule.ranks()
    yield "ranks"
    hs.search(unsplit, batch=batch, machine=machine, plans=[hs.Plan(2, 2, 2, 2)])
    yield "search, one plan"


def _a_tanh(module: hs.Module) -> str:
    return module.of_opcodes("tanh")[-1].name


def _loads(program: growing.Growing) -> Iterator[str]:
    say: dict[str, Any] = {key: _named(program, getattr(program, key)) for key in ("in_shardings", "out_shardings")}
    step = jax.jit(program.function, **say)
    lowered = step.lower(*program.arguments)
    sources = {
        "Lowered": lowered,
        "StableHLO": lowered.as_text(),
        "bytecode": jax.export.export(step)(*program.arguments).mlir_module_serialized,
        "HLO proto": lowered_to_hlo_proto(lowered),
        "HLO text": lowered.as_text("hlo"),
    }
    yield ""
    for name, source in sources.items():
        hs.load(source)
        yield f"load {name}"


def _named(program: growing.Growing, specs: object) -> object:
    return jax.tree.map(lambda spec: NamedSharding(program.mesh, spec), specs)


def _of_partitioned(partitioned: hs.Partitioned, machine: hs.Machine) -> Iterator[str]:
    partitioned.explain_collectives()
    yield "explain collectives"
    partitioned.as_python()
    yield "as_python"
    partitioned.to_hlo_text()
    yield "to_hlo_text"
    partitioned.to_stablehlo_text()
    yield "to_stablehlo_text"
    hs.cost(partitioned, machine)
    yield "cost"
    hs.simulate(partitioned, machine)
    yield "simulate"
    with tempfile.TemporaryDirectory() as folder:
        hs.report(partitioned, path=Path(folder) / "report.html")
    yield "report"


def _of_plans(module: hs.Module) -> Iterator[str]:
    plan = hs.PlanFile.of({i.name: "P('data')" for i in module.of_opcodes("tanh")}, mesh=module.mesh)
    with tempfile.TemporaryDirectory() as folder:
        plan.write(Path(folder) / "plan.toml")
        yield "write a plan"
        read = hs.PlanFile.read(Path(folder) / "plan.toml")
        yield "read a plan"
    read.apply(module)
    yield "apply a plan"
    hs.to_sdy_text(module)
    yield "to_sdy_text"
    hs.verify(module)
    yield "verify"
    hs.export_plan(module)
    yield "export_plan"


def _of_onnx(program: growing.Growing) -> Iterator[str]:
    model = program.onnx()
    yield ""
    module = hs.load(model)
    yield "load ONNX"
    found = hs.propagate(hs.annotate(module, {"x0": "{devices=[8,1]<=[8]}"}))
    yield ""
    annotated = hs.write_onnx_shardings(model, found)
    yield "write_onnx_shardings"
    hs.read_onnx_shardings(annotated)
    yield "read_onnx_shardings"


def measured(shape: str, count: int) -> Seconds:
    """Of each entry, a small program having gone first."""
    devices.choose_platform()
    for _ in entries(growing.SHAPES[shape](16)):
        pass
    gc.disable()  # it walks all that lives, now and then: noise here, and the passes do without it, too
    found: Seconds = {}
    start = seconds()
    for name in entries(growing.SHAPES[shape](count)):
        now = seconds()
        if name:
            found[name] = now - start
        start = seconds()
    return found


def _growth(shape: str, size: int) -> Iterator[tuple[str, Sequence[float]]]:
    """Of each entry its seconds at each size."""
    rows: list[Seconds] = []
    for factor in FACTORS:
        answer, died = told("growth", ["--worker", shape, str(size * factor)], SECONDS_A_PROGRAM)
        if not answer:
            raise RuntimeError(f"{shape}, {size * factor}: {died[-2000:]}")
        rows.append(answer[-1])
    for name in rows[-1]:
        yield name, [row[name] for row in rows]


def main() -> None:
    """Print a table for each shape; fail where an entry grows faster than its program."""
    parser = argparse.ArgumentParser(description="Seconds of every entry on programs of one, two and four sizes.")
    parser.add_argument("shapes", nargs="*", choices=[[], *growing.SHAPES], help="all without any")
    parser.add_argument("--size", type=int, default=SIZE, help="instructions of the smallest program")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        shape, count = options.worker
        tell(measured(shape, int(count)))
        return
    table = Table("program", "entry", *(f"{options.size * f:,}" for f in FACTORS), "exponent", title="CPU seconds")
    kept: list[bool] = []
    for shape in options.shapes or growing.SHAPES:
        for name, found in _growth(shape, options.size):
            text, good = _verdict(found)
            kept.append(good)
            table.add_row(shape, name, *(f"{s:.3f}" for s in found), text)
        table.add_section()
    finish(table, kept)


def _verdict(found: Sequence[float]) -> tuple[str, bool]:
    if found[-1] < LEAST_SECONDS:
        return "", True
    return judged(math.log(found[-1] / found[0]) / math.log(FACTORS[-1] / FACTORS[0]), EXPONENT)


if __name__ == "__main__":
    main()
