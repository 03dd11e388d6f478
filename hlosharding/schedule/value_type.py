"""The type of a value in a schedule: a global shape, the devices it lies on, and how.

Floor: schedule.  A value on one device is the special case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from hlosharding.errors import ExecutionError, ScheduleError
from hlosharding.executor import with_dtype
from hlosharding.ir import Shape
from hlosharding.schedule.shares import Share, Shares
from hlosharding.sharding import MOST_DEVICES, REPLICATED, HloSharding, check_devices


@dataclass(frozen=True, slots=True)
class ValueType:
    """An array on a submesh.

    >>> whole = ValueType(Shape.array("f32", (8, 4)), (0, 1, 2, 3))
    >>> tiled = ValueType(whole.shape, whole.devices, HloSharding.parse("{devices=[4,1]<=[4]}"))
    >>> print(whole, tiled, sep="\\n")
    f32[8,4] on {0-3}
    f32[8,4] on {0-3} as {devices=[4,1]<=[4]}
    >>> whole.tile_bytes, tiled.tile_bytes, tiled.tile, tiled.ways(0)
    (128, 32, f32[2,4], 4)
    """

    shape: Shape
    """Global: of the whole array on all devices of the submesh."""
    devices: tuple[int, ...]
    """Of the machine; device n of `sharding` is the n-th."""
    sharding: HloSharding = REPLICATED
    shares: Shares = ()
    """Where it is but a part of what the step works on."""
    is_on_host: bool = False
    """Does it lie in the memory of the devices' hosts?"""

    def __str__(self) -> str:
        spread = "" if self.sharding.is_replicated() else f" as {self.sharding}"
        where = f"{devices_text(self.devices)}{spread}{_ON_HOST if self.is_on_host else ''}"
        return f"{self.shape} on {where}" + "".join(f", {s}" for s in self.shares)

    @property
    def tile(self) -> Shape:
        """The shape of one device's tile, padding included."""
        if not self.sharding.is_tiled():
            return self.shape
        return self.shape.with_dims(tuple(self.sharding.tile_shape(self.shape.dims)))

    @property
    def tile_bytes(self) -> int:
        """Bytes of one device's tile, padding included."""
        return self.tile.byte_size

    @property
    def device_bytes(self) -> int:
        """Bytes that it takes of a device's memory."""
        return 0 if self.is_on_host else self.tile_bytes

    def ways(self, dim: int) -> int:
        """Into how many tiles a dim is split over the devices."""
        return self.sharding.num_tiles_along(dim) if self.sharding.is_tiled() else 1

    def as_array(self, value: Any) -> np.ndarray:
        """`value` as an array of this type.  Raises ScheduleError where the shape is another."""
        array = np.asarray(value)
        if array.shape != self.shape.dims:
            raise ScheduleError(f"an array of shape {list(array.shape)} for {self.shape}")
        return array.astype(self.shape.dtype, copy=False)


Types = Sequence[ValueType]
"""Of several values, in their order."""


def numbers_for(given: Any, taken: Shape, where: str | None = None) -> Any:
    """With a dtype.  Raises ScheduleError for numbers that are cut off (real ones to integers, complex ones to real
    ones), or that the type does not hold."""
    dtype = given.dtype if hasattr(given, "dtype") else np.asarray(given).dtype
    if dtype != taken.dtype and _kind_of_numbers(Shape.from_dtype(dtype, ())) > _kind_of_numbers(taken):
        raise ScheduleError(f"an array of {dtype} for {taken}", where=where, remedy="convert it")
    try:
        return with_dtype(given, taken)
    except ExecutionError as error:
        raise ScheduleError(error.what, where=where, remedy="convert it") from None


def _kind_of_numbers(shape: Shape) -> int:
    """Which numbers it is of: real ones hold integers, complex ones hold both."""
    return 2 if shape.is_complex else int(shape.is_floating)


def devices_of_all(kinds: Iterable[ValueType]) -> tuple[int, ...]:
    """Each device on which any of these lies, once."""
    return tuple(dict.fromkeys(device for kind in kinds for device in kind.devices))


def devices_text(devices: Sequence[int]) -> str:
    """Devices as runs.

    >>> devices_text((0, 1, 2, 8)), devices_text((3, 1))
    ('{0-2,8}', '{3,1}')
    """
    runs: list[str] = []
    for _, group in groupby(enumerate(devices), key=lambda pair: pair[1] - pair[0]):
        run = [device for _, device in group]
        runs += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run)
    return f"{{{','.join(runs)}}}"


_RUN = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?$")


def parse_devices(text: str) -> tuple[int, ...]:
    """What `devices_text` prints.  Raises ScheduleError.

    >>> parse_devices("{0-2,8}")
    (0, 1, 2, 8)
    """
    found: list[int] = []
    for part in text.strip().removeprefix("{").removesuffix("}").split(","):
        match = _RUN.match(part.strip())
        if match is None:
            raise ScheduleError(f"no devices: {text!r}", remedy="write them like {0-3,8}")
        first, last = int(match.group(1)), int(match.group(2) or match.group(1))
        if last < first or last >= MOST_DEVICES:
            raise ScheduleError(f"no devices: {part.strip()!r} in {text!r}")
        found += range(first, last + 1)
        # After each run: a short text may name many long ones.
        check_devices(len(found))
    if len(set(found)) != len(found):
        raise ScheduleError(f"a device is there twice: {text!r}")
    return tuple(found)


_ON_HOST = " in pinned_host"
"""JAX's kind of memory."""
_SHARE = re.compile(r", (piece|sum) (\d{1,9}(?:,\d{1,9})*)/(\d{1,9}) of ([\w\-]+)")
# The same without groups, which `_TYPE` would count as its own.
_SHARES = _SHARE.pattern.replace("(?:", "(").replace("(", "(?:")
_TYPE = re.compile(rf"(\S+) on (\{{[^}}]*\}})(?: as (\{{.*?\}}))?({_ON_HOST})?((?:{_SHARES})*+)$")


def parse_type(text: str) -> ValueType:
    """What `str(ValueType)` prints.  Raises ScheduleError; of a sharding or shape their own errors.

    >>> text = "f32[8,4] on {0-3} as {devices=[4,1]<=[4]}, sum 0,1/4 of micro"
    >>> str(parse_type(text)) == text
    True
    """
    match = _TYPE.match(text.strip())
    if match is None:
        raise ScheduleError(f"no type: {text.strip()!r}", remedy="write it like: f32[8,4] on {0-3}")
    shape, devices, sharding, on_host, shares = match.groups()
    found = tuple(Share.of_text(*share) for share in _SHARE.findall(shares))
    axes = [share.axis for share in found]
    if axes != sorted(set(axes)):
        raise ScheduleError(f"shares along {', '.join(axes)}", remedy="name each axis once, in the order of names")
    kind = HloSharding.parse(sharding) if sharding else REPLICATED
    made = ValueType(Shape.parse(shape), parse_devices(devices), kind, found, on_host is not None)
    if not made.shape.is_array:
        raise ScheduleError(f"{made.shape} is no array", remedy="give each element of a tuple a value of its own")
    kind.validate(made.shape.dims, len(made.devices))
    return made
