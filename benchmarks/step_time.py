"""A compiled step of every model of the zoo on eight CPU devices: our program against `jax.jit` with GSPMD.

`python -m benchmarks.step_time [NAME ...] [--scale N] [--rounds N]`; a name is any part of a model's.  The same
function, annotations, arguments and devices; the two are called in turns, each round timed, and the least time of each
counts.  Each model is measured in a process of its own.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from rich.table import Table

from benchmarks.verdict import finish, judged
from benchmarks.workers import ask, tell

LIMIT = 1.0
SECONDS_A_MODEL = 900
MOST_SECONDS_A_ROUND = 40.0
Row = dict[str, Any]


def main() -> None:
    """Measure in workers, one after the other; print the table."""
    parser = argparse.ArgumentParser(description="A step of each model, ours against jax.jit with GSPMD.")
    parser.add_argument("names", nargs="*", help="parts of names; all models without any")
    parser.add_argument("--scale", type=int, default=4, help="sizes of the programs")
    parser.add_argument("--rounds", type=int, default=15, help="calls of each program")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        tell(measured(options.names[0], options.scale, options.rounds))
    else:
        report(options)


# The worker


def measured(name: str, scale: int, rounds: int) -> Row:
    """Seconds of a step of one model, ours and XLA's; what fails is said in its place."""
    from benchmarks.zoo import MODELS
    from examples import devices

    devices.choose_platform()
    [model] = [m for m in MODELS if m.name == name]
    try:
        return {"name": name, **steps(model, scale, rounds)}
    except Exception as error:  # noqa: BLE001  (whatever it is, it is the finding)
        return {"name": name, "failed": f"{type(error).__name__}: {str(error)[:300]}"}


def steps(model: Any, scale: int, rounds: int) -> Row:
    """Both programs compiled, their arguments laid out as each wants them, called in turns."""
    import jax

    import hlosharding as hs
    from benchmarks import live_xla

    mesh = model.mesh()
    program, devices = model.build(mesh, scale), list(mesh.devices.flat)
    flat, tree = jax.tree.flatten(program.arguments)
    traced = hs.jit(program.function, mesh=mesh, **program.options).trace(*program.arguments)
    compiled = traced.propagate().partition().compile(devices)
    with live_xla.gspmd():
        live = jax.jit(program.function, **program.options).lower(*program.arguments).compile()
    theirs = tree.unflatten(
        [jax.device_put(a, s) for a, s in zip(flat, jax.tree.leaves(live.input_shardings[0]), strict=True)]
    )
    wanted = zip(flat, jax.tree.leaves(compiled.input_shardings[0]), strict=True)
    ours = tree.unflatten([hs.device_put(a, s, devices=devices) for a, s in wanted])
    seconds = in_turns((lambda: compiled(*ours), lambda: live(*theirs)), rounds)
    return {"ours": seconds[0], "xla": seconds[1]}


def in_turns(programs: tuple[Callable[[], Any], ...], rounds: int) -> list[float]:
    """The least time of each program's calls, one call of each a round."""
    import jax

    for program in programs:
        jax.block_until_ready(program())
    least = [float("inf")] * len(programs)
    begin = time.perf_counter()
    for _ in range(rounds):
        for number, program in enumerate(programs):
            start = time.perf_counter()
            jax.block_until_ready(program())
            least[number] = min(least[number], time.perf_counter() - start)
        if time.perf_counter() - begin > MOST_SECONDS_A_ROUND:
            break
    return least


# The parent


def report(options: argparse.Namespace) -> None:
    """Run the workers and print; status 1 where the median is over the limit, or a model failed."""
    from benchmarks.zoo import MODELS

    chosen = [m.name for m in MODELS if not options.names or any(part in m.name for part in options.names)]
    settings = ["--scale", str(options.scale), "--rounds", str(options.rounds)]
    rows = [ask("step_time", name, settings, SECONDS_A_MODEL) for name in chosen]
    table = Table("model", "ours, ms", "XLA, ms", "ratio", title="A compiled step on eight CPU devices")
    for column in table.columns[1:]:
        column.justify = "right"
    ratios = []
    for row in rows:
        if "failed" in row:
            table.add_row(row["name"], f"[red]{row['failed']}[/red]", "", "")
            continue
        ratios.append(row["ours"] / row["xla"])
        table.add_row(row["name"], f"{row['ours'] * 1e3:,.2f}", f"{row['xla'] * 1e3:,.2f}", f"{ratios[-1]:.3f}")
    table.add_section()
    text, good = judged(statistics.median(ratios), LIMIT) if ratios else ("[red]nothing ran[/red]", False)
    table.add_row("median", "", "", text)
    finish(table, [good, len(ratios) == len(rows)])


if __name__ == "__main__":
    main()
