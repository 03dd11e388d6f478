"""What a step takes, in five figures.

Floor: report.
"""

from __future__ import annotations

from hlosharding.report.figures import as_count, as_seconds
from hlosharding.report.model import Facts, Kind, Label, Row, View, figures_of
from hlosharding.report.sections.reported import ReportedProgram


def summary_view(about: ReportedProgram) -> View:
    """Time, memory, bytes and FLOPs of one device in one step.

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT y = f32[8] negate(x)\\n}"
    >>> view = summary_view(ReportedProgram(hs.partition(hs.load(text))))
    >>> [label.name for label in view.parts[0].labels]
    ['step', 'exposed communication', 'peak memory', 'bytes received', 'FLOPs']
    """
    run, cost = about.simulation, about.partitioned.cost
    is_exact = not run.guessed_loops
    share = run.exposed_comm_s / run.time_s if run.time_s else 0.0
    items: Row = {
        "machine": run.machine.name,
        **figures_of(run, "time_s exposed_comm_s", is_exact=is_exact),
        "peak_memory_bytes": int(cost.peak_memory_bytes),
        **figures_of(cost, "comm_bytes flops", is_exact=is_exact),
        "utilization": run.figures.utilization,
    }
    computing, talking = as_seconds(run.compute_s), as_seconds(run.comm_s)
    memory, number = cost.peak_memory_bytes / run.machine.memory_bytes, len(cost.collectives)
    told = f"in {as_count(number)} collective{'' if number == 1 else 's'}"
    reached = Label("utilization", run.figures.kind, "of the chip's peak", Kind.SHARE)
    labels = (
        Label("time_s", "step", f"simulated on {run.machine.name}: {computing} computing", Kind.SECONDS),
        Label("exposed_comm_s", "exposed communication", f"{share:.0%} of the step, of {talking}", Kind.SECONDS),
        Label("peak_memory_bytes", "peak memory", f"{memory:.2%} of a device", Kind.BYTES),
        Label("comm_bytes", "bytes received", told, Kind.BYTES),
        Label("flops", "FLOPs", "of one device", Kind.LARGE),
        *([reached] if run.figures.utilization else []),
    )
    return View((Facts(items, f"One device, one step, on {run.machine.name}", labels),))
