"""Whether a schedule makes sense: every law that holds before anything runs.

Floor: schedule.  Most laws are the interpreter's, run on types: names, types, devices, shares, what was freed.  Here
stand those of the whole: results are complete, no device holds more than it has.
"""

from __future__ import annotations

from hlosharding.collector import collector_waits
from hlosharding.cost import Machine
from hlosharding.errors import ScheduleError
from hlosharding.schedule.interpreter import interpret
from hlosharding.schedule.op import type_of
from hlosharding.schedule.simulation import simulate_schedule
from hlosharding.schedule.steps import Functions, function_named


@collector_waits
def verify_schedule(functions: Functions, machine: Machine | None = None) -> None:
    """Raise ScheduleError with the step at which a schedule breaks a law.

    A value is defined once, before it is read, and not read once it is freed or overwritten; operands lie where their
    op runs, with the type it takes; each term of a sum is reduced once; a result of the whole is no piece and lacks no
    term.  With a machine: its devices exist, and none holds more than its memory.

    >>> from hlosharding.schedule import parse_schedule
    >>> parse_schedule('''
    ... func @main(%x: f32[8] on {0}) {
    ...   %y = send(%x) to={0}
    ...   return %y
    ... }''')
    Traceback (most recent call last):
        ...
    hlosharding.errors.ScheduleError: it is sent from {0} to {0}; at line 3: %y = send(%x) of @main
    """
    results = [type_of(value) for value in interpret(functions)]
    for name, kind in zip(function_named(functions, "main").results, results, strict=True):
        if kind.shares:
            raise ScheduleError(
                f"result %{name} is {kind}: not the whole",
                where="return of @main",
                remedy="add or reduce all terms of a sum, join all pieces",
            )
    if machine is not None:
        simulate_schedule(functions, machine).check_memory()
