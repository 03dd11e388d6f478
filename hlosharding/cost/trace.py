"""A simulated run as a Chrome trace: two lanes of ops, the memory as a counter.

Floor: cost.  The format is the Trace Event Format that Perfetto reads; times in microseconds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hlosharding.cost.timeline import Event
from hlosharding.errors import CostError

_LANES = {"compute": 1, "communication": 2}
_MICRO = 1e6


def chrome_trace(timeline: Iterable[Event], memory: Iterable[tuple[float, int]], machine: str) -> str:
    """The trace as JSON text; `memory` is (time, bytes alive) at each change, `machine` its name."""
    events = [*_names(machine), *map(_slice, timeline), *_counters(memory)]
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events})


def _names(machine: str) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": 0, "name": "process_name", "args": {"name": f"one device of {machine}"}}
    for lane, number in _LANES.items():
        yield {"ph": "M", "pid": 0, "tid": number, "name": "thread_name", "args": {"name": lane}}


def _slice(event: Event) -> dict[str, Any]:
    inst = event.instruction
    details: dict[str, Any] = {"shape": str(inst.shape), "location": inst.location, "op_name": inst.op_name}
    if event.nbytes:
        details["bytes received"] = event.nbytes
    if event.joined:
        details["joined with it"] = ", ".join(op.name for op in event.joined)
    if event.trips != 1:
        details["trips"] = event.trips
    if not event.is_exact:
        details["trips"] = f"{event.trips}, a guess"
    times = {"ts": event.start * _MICRO, "dur": event.seconds * _MICRO}
    lane, name = _LANES[event.stream], f"{inst.opcode} {inst.name}"
    return {"ph": "X", "pid": 0, "tid": lane, "name": name, **times, "args": details}


def _counters(memory: Iterable[tuple[float, int]]) -> Iterator[dict[str, Any]]:
    for when, nbytes in memory:
        yield {"ph": "C", "pid": 0, "name": "memory", "ts": when * _MICRO, "args": {"bytes": nbytes}}


def write_whole(path: Any, text: str) -> None:
    """Write a file that appears only when it is complete.  Raises CostError where that cannot be."""
    target = Path(path)
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        draft.write_text(text)
        draft.replace(target)
    except OSError as error:
        raise CostError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        draft.unlink(missing_ok=True)
