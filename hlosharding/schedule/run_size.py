"""How much a schedule's text asks for, told before it is read and before it runs: runs of devices are listed, calls
multiply.

Floor: schedule.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from hlosharding.errors import ScheduleError
from hlosharding.schedule.steps import Apply, Call, Function, Functions

MOST_NAMED = 1 << 24
"""Devices in all of a text, as often as they are named: half a gigabyte of numbers."""
MOST_STEPS = 1 << 20
"""Of a schedule that somebody wrote: seconds of checking.  64 stages with 1000 microbatches take half as many."""
MOST_TURNS = 1 << 26
"""Steps times devices: each step looks at all that it names."""
DEEPEST = 100
"""Calls inside of calls."""


class _Size(NamedTuple):
    steps: int
    depth: int


_RUN_OF_DEVICES = re.compile(r"[{,]\s*+(\d{1,9})-(\d{1,9})\s*+(?=[,}])")


def check_named(text: str) -> None:
    """Raise ScheduleError for a text that names more devices, all in all, than can be listed."""
    named = 0
    for first, last in _RUN_OF_DEVICES.findall(text):
        named += max(0, int(last) - int(first) + 1)
    if named > MOST_NAMED:
        raise ScheduleError(f"it names {named:,} devices", remedy=f"{MOST_NAMED:,} are the most, all types together")


def check_run(functions: Functions) -> None:
    """Raise ScheduleError for a schedule whose run takes more than anybody waits for."""
    known: dict[str, _Size] = {}
    steps = _size_of(functions, "main", (), known).steps
    turns = steps * max((len(devices) for name in known for devices in _devices_named(functions[name])), default=1)
    if steps > MOST_STEPS or turns > MOST_TURNS:
        what = f"its run takes {steps:.3g} steps" + (f" on {turns // steps} devices" if turns > steps else "")
        remedy = f"{MOST_STEPS:,} steps are the most, {MOST_TURNS:,} times devices"
        raise ScheduleError(what, remedy=remedy)


def _size_of(functions: Functions, name: str, callers: tuple[str, ...], known: dict[str, _Size]) -> _Size:
    function = functions.get(name)
    if function is None or name in callers:  # there the run ends: the interpreter says at which step
        return _Size(0, 0)
    # What is known of a function is how deep it goes by itself: it may be called from deeper than the first time.
    depth = known[name].depth if name in known else 1
    if len(callers) + depth > DEEPEST:
        raise ScheduleError(f"@{name} is called {DEEPEST} calls deep", remedy="call fewer functions inside of others")
    if name not in known:
        called = [s.function for s in function.steps if isinstance(s, Call)]
        # Each is measured once and counted as often as it is called: n functions may ask for 2^n steps.
        inner = {each: _size_of(functions, each, (*callers, name), known) for each in dict.fromkeys(called)}
        steps = 1 + len(function.steps) + sum(inner[each].steps for each in called)
        known[name] = _Size(steps, 1 + max((size.depth for size in inner.values()), default=0))
    return known[name]


def _devices_named(function: Function) -> list[tuple[int, ...]]:
    """Where a function's own values lie; all others are of its callers, or of those that it calls."""
    stated = [parameter.type.devices for parameter in function.parameters if parameter.type is not None]
    return stated + [tuple(getattr(step.op, "to", ())) for step in function.steps if isinstance(step, Apply)]
