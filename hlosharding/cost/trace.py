"""Simulated runs as Chrome traces: a row for each device (or class of devices), a lane for each stream, counters.

Floor: cost.  The format is the Trace Event Format that Perfetto reads; times in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

_MICRO = 1e6
_NO_DETAILS: dict[str, Any] = {}


class TraceRow(NamedTuple):
    """What a trace shows as a process, with its lanes."""

    name: str
    lanes: Sequence[str]


class TraceSlice(NamedTuple):
    """Something that takes time; seconds from the start of the run."""

    row: int
    lane: int
    name: str
    start: float
    seconds: float
    details: dict[str, Any] = _NO_DETAILS


class TraceLevel(NamedTuple):
    """From a moment on a counter of a row has this value."""

    row: int
    when: float
    nbytes: float


def trace_text(rows: Sequence[TraceRow], slices: Iterable[TraceSlice], memory: Iterable[TraceLevel]) -> str:
    """The trace as JSON text.

    >>> text = trace_text([TraceRow("device 0", ["compute"])], [TraceSlice(0, 0, "dot", 0.0, 1e-6)], [])
    >>> json.loads(text)["traceEvents"][-1]
    {'ph': 'X', 'pid': 0, 'tid': 1, 'name': 'dot', 'ts': 0.0, 'dur': 1.0, 'args': {}}
    """
    events = [*_names(rows), *map(_slice, slices), *map(_counter, memory)]
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events})


def _names(rows: Sequence[TraceRow]) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(rows):
        yield {"ph": "M", "pid": number, "name": "process_name", "args": {"name": row.name}}
        for lane, name in enumerate(row.lanes, 1):
            yield {"ph": "M", "pid": number, "tid": lane, "name": "thread_name", "args": {"name": name}}


def _slice(found: TraceSlice) -> dict[str, Any]:
    times = {"ts": found.start * _MICRO, "dur": found.seconds * _MICRO}
    return {"ph": "X", "pid": found.row, "tid": found.lane + 1, "name": found.name, **times, "args": found.details}


def _counter(found: TraceLevel) -> dict[str, Any]:
    when = found.when * _MICRO
    return {"ph": "C", "pid": found.row, "name": "memory", "ts": when, "args": {"bytes": found.nbytes}}
