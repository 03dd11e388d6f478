"""One rank run on one device without the others: how long a rank of a large plan works, on the GPU that is there.

Floor: schedule.  What comes from others is zero, or given; what is done with others is a local op (`stubs`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np

from hlosharding import xla_bridge
from hlosharding.errors import ScheduleError
from hlosharding.ir import Shape
from hlosharding.schedule.execution import Call, local_call
from hlosharding.schedule.flat_run import find_dropped
from hlosharding.schedule.local_ops import Add, Concat, Split
from hlosharding.schedule.op import Op
from hlosharding.schedule.ranks.steps import (
    BoundaryTile,
    RankApply,
    RankFree,
    RankJoin,
    RankReceive,
    RankSend,
    RankStep,
)
from hlosharding.schedule.ranks.stubs import compile_stub, dims_that_differ
from hlosharding.schedule.stage_program import StageProgram
from hlosharding.schedule.tiles import type_of_tile
from hlosharding.schedule.transfers import SubmeshCollective
from hlosharding.schedule.value_type import numbers_for


@dataclass(frozen=True, slots=True)
class RankRun:
    """What one rank did alone."""

    results: tuple[np.ndarray, ...]
    """Tiles of the right shapes; their numbers are not the schedule's."""
    seconds: float
    """Of the whole, the host not waiting between steps."""
    steps: tuple[tuple[RankStep, float], ...]
    """Each with its seconds, the host waiting for it."""

    def __str__(self) -> str:
        lines = [f"{seconds * 1e3:10.3f} ms  {step}" for step, seconds in self.steps]
        return "\n".join([*lines, f"{self.seconds * 1e3:10.3f} ms  in one go"])


def run_alone(
    parameters: Sequence[BoundaryTile],
    steps: Sequence[RankStep],
    results: Sequence[BoundaryTile],
    arrays: Sequence[Any] | None,
    received: Mapping[str, Any],
    device: Any | None,
) -> RankRun:
    """Run the steps three times: to compile, for the whole's time, for each step's.  Raises ScheduleError."""
    import jax

    if arrays is not None and len(arrays) != len(parameters):
        raise ScheduleError(f"{len(arrays)} arrays for the {len(parameters)} tiles that the rank takes")
    given = {
        tile.name: _tile(tile.name, tile.shape, None if arrays is None else arrays[number])
        for number, tile in enumerate(parameters)
    }
    with jax.enable_x64(True):
        alone = _Alone(steps, [tile.name for tile in results], received, device or jax.devices()[0])
        alone.run_once(given)
        found, seconds, _ = alone.run_once(given)
        *_, each = alone.run_once(given, waiting=True)
    return RankRun(tuple(map(np.asarray, found)), seconds, tuple(zip(steps, each, strict=True)))


def _tile(name: str, shape: Shape, given: Any | None) -> np.ndarray:
    if given is None:
        return np.zeros(shape.dims, shape.dtype)
    array = np.asarray(numbers_for(given, shape, where=f"%{name}"))
    if array.shape != shape.dims:
        raise ScheduleError(f"%{name} is a tile of {shape}, the array given has shape {list(array.shape)}")
    return array.astype(shape.dtype, copy=False)


class _Alone:
    """The steps as calls on one device."""

    def __init__(
        self, steps: Sequence[RankStep], results: Sequence[str], received: Mapping[str, Any], device: Any
    ) -> None:
        self._device, self._results = device, results
        self._stub = cache(partial(compile_stub, device=device))
        receives = {step.makes[0]: step.shape for step in steps if isinstance(step, RankReceive)}
        unknown = [name for name in received if name not in receives]
        if unknown:
            raise ScheduleError(
                f"the rank receives no %{unknown[0]}", remedy=f"it receives {', '.join(receives) or 'nothing'}"
            )
        self._received = {name: _tile(name, receives[name], array) for name, array in received.items()}
        self._steps = [(step, self._call(step)) for step in steps]
        self._dropped = find_dropped([(step.reads, step.makes) for step in steps], results)

    def run_once(
        self, given: Mapping[str, np.ndarray], *, waiting: bool = False
    ) -> tuple[list[Any], float, list[float]]:
        """Results, seconds of all, and those of each step, which mean something where the host waits for it."""
        import jax

        # Anew in each run, since a step may overwrite what it is given.
        tiles: dict[str, Any] = {name: jax.device_put(array, self._device) for name, array in given.items()}
        jax.block_until_ready(tiles)
        times = [time.perf_counter()]
        for number, (step, call) in enumerate(self._steps):
            made = call(*[_read(tiles, name, step) for name in step.reads])
            tiles.update(zip(step.makes, made, strict=False))  # a send makes what only others read
            if waiting:
                jax.block_until_ready(made)
            for name in self._dropped[number]:
                tiles.pop(name, None)
            times.append(time.perf_counter())
        found = [tiles[name] for name in self._results]
        jax.block_until_ready(list(tiles.values()))
        return found, time.perf_counter() - times[0], [b - a for a, b in pairwise(times)]

    def _call(self, step: RankStep) -> Call:
        match step:
            case RankApply():
                return self._apply(step)
            case RankSend():
                return _do_nothing if step.cut is None else _jit(take_part, box=step.cut)
            case RankReceive():
                return partial(self._receive, step)
            case RankJoin():
                return _jit(join_tile, at=step.at, dims=step.shape.dims, dtype=step.shape.dtype)
            case RankFree():
                return _do_nothing

    def _receive(self, step: RankReceive) -> Sequence[Any]:
        import jax
        import jax.numpy as jnp

        [name] = step.makes
        if name in self._received:
            return [jax.device_put(self._received[name], self._device)]
        return [jnp.zeros(step.shape.dims, step.shape.dtype, device=self._device)]

    def _apply(self, step: RankApply) -> Call:
        op = step.tile_op.op
        match op:
            case StageProgram():
                return self._stub(op.program, step.tile_op.members.index(step.device), donate=op.donates)
            case Split() | Concat() | Add():
                return local_call(op, type_of_tile(step.tile_op.operands[0]), [self._device])
            case SubmeshCollective():
                return _jit(fit_tile, shapes=tuple(shape.dims for shape in step.shapes))
            case _:
                return partial(self._run_in_numpy, op, step)

    def _run_in_numpy(self, op: Op, step: RankApply, *arrays: Any) -> Sequence[Any]:
        """What a user's op means in numpy."""
        import jax

        if len(step.peers) > 1:
            raise ScheduleError(
                f"nothing says what one device does of {op.name}",
                where=f"rank {step.device}: {step}",
                remedy="make it a StageProgram, or let it lie replicated",
            )
        tile_op = step.tile_op
        tiles = {step.device: [np.asarray(array) for array in arrays]}
        made = op.on_tiles(tiles, tile_op.operands, tile_op.results)[step.device]
        return [jax.device_put(array, self._device) for array in made]


def _read(tiles: Mapping[str, Any], name: str, step: RankStep) -> Any:
    if name not in tiles:
        raise ScheduleError(f"%{name} is not there", where=str(step), remedy="make or receive it earlier")
    return tiles[name]


def _jit(kernel: Call, **static: Any) -> Call:
    return partial(xla_bridge.jit(kernel, static_argnames=tuple(static)), **static)


def _do_nothing(*arrays: Any) -> Sequence[Any]:
    return ()


# What transfers do to the tiles, for `jax.jit`: arrays come by place, what is static by keyword.


def fit_tile(x: Any, *, shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    """A collective's stub: the operand, repeated or cut to each of some shapes.

    >>> import numpy as np
    >>> [tile.tolist() for tile in fit_tile(np.float32([1, 2]), shapes=((4,), (1,), (2,)))]
    [[1.0, 2.0, 1.0, 2.0], [1.0], [1.0, 2.0]]
    """
    return [_fit_one(x, dims) for dims in shapes]


def _fit_one(x: Any, dims: tuple[int, ...]) -> Any:
    import jax.numpy as jnp

    made = jnp.copy(x)
    for dim, has, wants in dims_that_differ(x.shape, dims):
        times = -(-wants // has)
        repeated = jnp.concatenate([made] * times, axis=dim) if times > 1 else made
        made = repeated[(*[slice(None)] * dim, slice(wants))]
    return made


def take_part(x: Any, *, box: Sequence[tuple[int, int]]) -> list[Any]:
    """A part of a tile: start and end along each dim."""
    return [x[tuple(slice(*ends) for ends in box)]]


def join_tile(*parts: Any, at: Sequence[tuple[int, ...]], dims: tuple[int, ...], dtype: Any) -> list[Any]:
    """A tile of parts, each with where it begins; what is padding is zero."""
    import jax
    import jax.numpy as jnp

    tile = jnp.zeros(dims, dtype)
    for start, part in zip(at, parts, strict=True):
        tile = jax.lax.dynamic_update_slice(tile, part, start)
    return [tile]
