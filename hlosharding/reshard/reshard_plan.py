"""A reshard as users see it: the steps, what they cost beside the least they could cost, and what they do to an array.

Floor: reshard.  Only shows and runs what `plan` decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hlosharding.collector import collector_waits
from hlosharding.cost import Machine, machine_of
from hlosharding.errors import ModuleError, PartitionError, is_count
from hlosharding.ir import Shape
from hlosharding.notebook import InNotebooks
from hlosharding.reshard.layout import Layout, layout_of, least_mean_elements
from hlosharding.reshard.objectives import Objective
from hlosharding.reshard.planner import plan
from hlosharding.reshard.request import ReshardRequest
from hlosharding.reshard.steps import Step
from hlosharding.sharding import HloSharding


@dataclass(frozen=True, slots=True, eq=False)
class ReshardPlan(InNotebooks):
    """Steps from one sharding to another.  Bytes are per device; seconds are predicted for `machine`.

    >>> import hlosharding as hs
    >>> plan = hs.plan_reshard((8,), "f32", "{devices=[4]<=[4]}", "{replicated}")
    >>> plan.received_bytes.tolist(), plan.lower_bound, plan.peak_bytes
    ([24.0, 24.0, 24.0, 24.0], 24.0, 40)
    """

    shape: Shape
    """Global."""
    source: HloSharding
    target: HloSharding
    machine: Machine
    num_devices: int
    steps: tuple[Step, ...]
    received_bytes: npt.NDArray[np.float64]
    """[device]: bytes received, padding included."""
    lower_bound: float
    """Bytes no plan can do without, mean over devices: what a device's target tile has and its source tile lacks."""
    peak_bytes: int
    """Most bytes alive during a step: its input, its output and what is in between."""
    predicted_s: float

    @property
    def mean_received_bytes(self) -> float:
        """Mean of `received_bytes` over devices."""
        return float(self.received_bytes.mean())

    @property
    def stages(self) -> Iterator[tuple[Step, Shape, Shape]]:
        """Every step, with a device's local shape before and after it."""
        shape = self.shape.with_dims(layout_of(self.source, self.shape.dims, self.num_devices).tile)
        for step in self.steps:
            after = step.result(shape)
            yield step, shape, after
            shape = after

    def run(self, array: npt.ArrayLike | Sequence[npt.ArrayLike]) -> list[npt.NDArray[Any]]:
        """The target's local tiles, one per device (padding zero or garbage at the end), of a global array.

        Of a partial source: `array` lists its partial sums.

        >>> import hlosharding as hs
        >>> rows, columns = hs.HloSharding.parse("{devices=[2,1]<=[2]}"), hs.HloSharding.parse("{devices=[1,2]<=[2]}")
        >>> plan = hs.plan_reshard((2, 2), "int32", rows, columns)
        >>> [tile.tolist() for tile in plan.run([[1, 2], [3, 4]])]
        [[[1], [3]], [[2], [4]]]
        """
        layout = layout_of(self.source, self.shape.dims, self.num_devices)
        tiles = list(local_tiles(self._partial_sums(array, layout), layout))
        for step in self.steps:
            tiles = step.apply(tiles)
        return tiles

    def _partial_sums(self, array: Any, layout: Layout) -> list[npt.NDArray[Any]]:
        given = list(array) if layout.num_partial_sums > 1 else [array]
        arrays = [np.asarray(a, self.shape.dtype) for a in given]
        wrong = next((a.shape for a in arrays if a.shape != self.shape.dims), None)
        if len(arrays) != layout.num_partial_sums or wrong is not None:
            several = f"{layout.num_partial_sums} partial sums of {self.shape}"
            expected = several if layout.num_partial_sums > 1 else str(self.shape)
            got = list(wrong or arrays[0].shape)
            raise PartitionError(f"the plan is for {expected}, got {len(arrays)} of dims {got}")
        return arrays

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"reshard {self.shape} from {self.source} to {self.target} on {self.num_devices} devices"
        for number, (step, shape, after) in enumerate(self.stages, 1):
            received = float(step.received_bytes(shape, self.num_devices).mean())
            price = f"  ({_count(received)} B, {_micro(step.seconds(shape, self.machine))})" if received else ""
            yield f"  {number}. {step}: {shape} -> {after}{price}"
        if not self.steps:
            yield "  nothing to do"
        ratio = f", {self.mean_received_bytes / self.lower_bound:.2f}x" if self.lower_bound else ""
        bound = f"lower bound {_count(self.lower_bound)} B{ratio}"
        yield (
            f"  received per device {_count(self.mean_received_bytes)} B ({bound}), peak {_count(self.peak_bytes)} B, "
            f"predicted {_micro(self.predicted_s)} on {self.machine.name}"
        )


def _count(nbytes: float) -> str:
    return f"{nbytes:,.0f}" if nbytes == int(nbytes) else f"{nbytes:,.1f}"


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us"


def local_tiles(
    partial_sums: Sequence[npt.NDArray[Any]], layout: Layout, padding: Any = 0
) -> Iterator[npt.NDArray[Any]]:
    """Each device's local tile of the global arrays that add up to the value; `padding` fills what is no data."""
    low, high = layout.bounds
    has_data = layout.has_data()
    for device in range(layout.num_devices):
        whole = partial_sums[layout.partial_sum[device]]
        tile = np.full(layout.tile, padding, whole.dtype)
        if has_data[device]:
            part = whole[tuple(slice(a, b) for a, b in zip(low[device], high[device], strict=True))]
            tile[tuple(slice(0, size) for size in part.shape)] = part
        yield tile


@collector_waits
def plan_reshard(
    shape: Sequence[int],
    dtype: Any,
    source: HloSharding | str,
    target: HloSharding | str,
    *,
    objective: Objective = "time",
    memory_limit: int | None = None,
    machine: Machine | None = None,
    reduce_kind: str = "add",
    num_devices: int | None = None,
) -> ReshardPlan:
    """The steps that bring an array of global `shape` from one sharding to another.

    `objective`: "time": least predicted, even if the whole array is gathered; "bytes": fewest received (mean over
    devices).  `memory_limit`: bytes per device that may be alive at once.  `machine`: default H100s.  `reduce_kind`:
    how the partial sums of an unreduced source combine.  `num_devices`: needed only where neither sharding lists its
    devices.  Shardings may be given as text.

    Raises ShardingError where a sharding does not fit the shape, and PartitionError for what is no shape or element
    type, and where no plan fits the memory.

    >>> import hlosharding as hs
    >>> print(hs.plan_reshard((8, 8), "f32", "{devices=[4,1]<=[4]}", "{devices=[1,4]<=[4]}"))
    reshard f32[8,8] from {devices=[4,1]<=[4]} to {devices=[1,4]<=[4]} on 4 devices
      1. all-to-all, split dim 1, join dim 0, over {0, 1, 2, 3}: f32[2,8] -> f32[8,2]  (48 B, ... us)
      received per device 48 B (lower bound 48 B, 1.00x), peak 128 B, predicted ... us on h100(4)
    """
    full = _shape(shape, dtype)
    if num_devices is not None and not is_count(num_devices):
        raise PartitionError(f"num_devices is {num_devices}", remedy="pass how many there are")
    first, last = (HloSharding.parse(s) if isinstance(s, str) else s for s in (source, target))
    request = ReshardRequest(
        full,
        first,
        last,
        reduce_kind=reduce_kind,
        objective=objective,
        machine=machine_of(machine),
        memory_limit=memory_limit,
        num_devices=num_devices,
    )
    n = request.devices
    for sharding in (first, last):
        sharding.validate(full.dims, n)
    found = plan(request)
    layouts = layout_of(first, full.dims, n), layout_of(last, full.dims, n)
    received, local = np.zeros(n), full.with_dims(layouts[0].tile)
    for step in found.steps:
        received += step.received_bytes(local, n)
        local = step.result(local)
    bound = least_mean_elements(*layouts) * full.byte_size / full.size if full.size else 0.0
    used = request.target_machine
    return ReshardPlan(full, first, last, used, n, found.steps, received, bound, found.peak_bytes, found.seconds)


def _shape(dims: Sequence[int], dtype: Any) -> Shape:
    """From XLA's name of an element type, or a numpy dtype or its name ("f16" and "u8" are XLA's: bits, not bytes)."""
    if not all(is_count(size, 0) for size in dims):
        raise PartitionError(f"{list(dims)} is no shape of an array", remedy="give the global size of every dim")
    if isinstance(dtype, str):
        with suppress(ModuleError):
            return Shape.parse(f"{dtype}[]").with_dims(tuple(dims))
    try:
        return Shape.from_dtype(dtype, tuple(dims))
    except (TypeError, ModuleError) as error:
        remedy = 'name it as XLA or numpy do: "bf16", "int8"'
        raise PartitionError(f"{dtype!r} is no element type", remedy=remedy) from error
