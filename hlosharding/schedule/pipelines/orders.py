"""In which order each device of a pipeline does its work: one function for each published schedule.

Floor: schedule.  p devices, m microbatches, v chunks (model stages) a device; stage s of p*v stands on device s mod p.
An order says nothing of times: it is what a device does when nothing keeps it waiting.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Literal, NamedTuple

from hlosharding.errors import ScheduleError

PassKind = Literal["forward", "backward", "weights"]
"""A backward pass may be one, or two: what the stage before waits for, and the gradients of weights."""


class Action(NamedTuple):
    """One pass of one microbatch through one stage."""

    kind: PassKind
    stage: int
    microbatch: int

    def __str__(self) -> str:
        return f"the {self.kind} pass of microbatch {self.microbatch} in stage {self.stage}"


def forward_only(device: int, p: int, m: int, v: int) -> Iterator[Action]:
    """Inference: chunk by chunk in groups of p microbatches, as interleaved schedules go through them.

    >>> [action.microbatch for action in forward_only(0, 2, 3, 1)]
    [0, 1, 2]
    """
    for number in range(m * v):
        chunk, microbatch = number // p % v, number // (p * v) * p + number % p
        yield Action("forward", chunk * p + device, microbatch)


def _backwards(device: int, p: int, m: int, v: int) -> Iterator[Action]:
    for _, stage, microbatch in forward_only(device, p, m, v):
        # Gradients come from the last chunk: chunk * p + device becomes (v - 1 - chunk) * p + device.
        yield Action("backward", (v - 1) * p + 2 * device - stage, microbatch)


def gpipe(device: int, p: int, m: int, v: int) -> Iterator[Action]:
    """All forward passes, then all backward passes (Huang et al. 2019): m microbatches in flight."""
    return chain(forward_only(device, p, m, v), _backwards(device, p, m, v))


def one_f_one_b(device: int, p: int, m: int, v: int) -> Iterator[Action]:
    """After a start of p-1-i forward passes one forward, one backward (PipeDream-flush, Narayanan et al. 2021).

    With v > 1 interleaved: 2(p-1-i) + (v-1)p forward passes of chunks come first.

    >>> ["".join(action.kind[0] for action in one_f_one_b(device, 3, 5, 1)) for device in (0, 2)]
    ['fffbfbfbbb', 'fbfbfbfbfb']
    """
    forwards, backwards = list(forward_only(device, p, m, v)), list(_backwards(device, p, m, v))
    first = p - 1 - device if v == 1 else 2 * (p - 1 - device) + (v - 1) * p
    first = min(first, len(forwards))
    yield from forwards[:first]
    for forward, backward in zip(forwards[first:], backwards, strict=False):
        yield forward
        yield backward
    yield from backwards[len(forwards) - first :]


def zero_bubble_h1(device: int, p: int, m: int, v: int) -> Iterator[Action]:
    """1F1B with the gradients of weights on their own, device i's i microbatches late (Qi et al. 2023, ZB-H1): they
    fill what was bubble, and every device holds what the first does.

    >>> "".join(action.kind[0] for action in zero_bubble_h1(1, 2, 3, 1))
    'fbfbwfbww'
    """
    done = 0
    for action in one_f_one_b(device, p, m, v):
        yield action
        if action.kind == "backward":
            done += 1
            if done > device:
                yield Action("weights", action.stage, done - 1 - device)
    for microbatch in range(max(0, m - device), m):
        yield Action("weights", device, microbatch)


def breadth_first(device: int, p: int, m: int, v: int) -> Iterator[Action]:
    """All microbatches through a chunk, then the next one (Lamy-Poirier 2022): weights are gathered, and gradients
    reduced, once a chunk.

    >>> [(a.kind[0], a.stage, a.microbatch) for a in breadth_first(0, 2, 2, 2)][:4]
    [('f', 0, 0), ('f', 0, 1), ('f', 2, 0), ('f', 2, 1)]
    """
    stages = [chunk * p + device for chunk in range(v)]
    forward = (Action("forward", stage, k) for stage in stages for k in range(m))
    backward = (Action("backward", stage, k) for stage in reversed(stages) for k in range(m))
    return chain(forward, backward)


Order = Callable[[int, int, int, int], Iterator[Action]]
"""(device, p, m, v) to what the device does, in order."""

ORDERS: Mapping[str, Order] = {
    "forward": forward_only,
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "zb-h1": zero_bubble_h1,
    "breadth-first": breadth_first,
}
SPLIT_BACKWARD = {"zb-h1"}
"""Schedules that need gradients of weights in passes of their own."""
_ONE_CHUNK = {"gpipe", "zb-h1"}
_GROUPS_OF_P = {"1f1b", "forward"}
"""With several chunks a device goes through p microbatches at a time."""


_IN_CHUNKS = re.compile(r"(.+)-x([1-9]\d{0,3})")


def order_and_chunks(name: str) -> tuple[str, int]:
    """Of a schedule's name the order, and how many stages each device has.

    >>> order_and_chunks("1f1b-x2"), order_and_chunks("zb-h1")
    (('1f1b', 2), ('zb-h1', 1))
    """
    found = _IN_CHUNKS.fullmatch(name)
    return (found[1], int(found[2])) if found else (name, 1)


def device_orders(name: str, p: int, m: int, v: int = 1) -> list[list[Action]]:
    """What each of the p devices does, in order.  Raises ScheduleError for what the schedule cannot do.

    >>> [len(each) for each in device_orders("1f1b", p=4, m=8)]
    [16, 16, 16, 16]
    """
    found = ORDERS.get(name)
    if found is None:
        raise ScheduleError(f"no schedule {name!r}", remedy=f"there are {', '.join(ORDERS)}")
    if min(p, m, v) < 1:
        raise ScheduleError(f"a pipeline of {p} devices, {m} microbatches, {v} chunks")
    if v > 1 and name in _ONE_CHUNK:
        raise ScheduleError(f"{name} has one stage a device, {v} were asked for", remedy="take 1f1b or breadth-first")
    if v > 1 and m % p and name in _GROUPS_OF_P:
        raise ScheduleError(
            f"{m} microbatches do not go through {p} devices in groups of {p}",
            remedy=f"take a multiple of {p}, or breadth-first",
        )
    return [list(found(device, p, m, v)) for device in range(p)]
