"""Ways to put the axes of a mesh on dims, random ones and all of them, and what it costs to get from one to another.

What the brute forces of `op_choice` and `chains` share, and how they and `stencils` count the bytes of live XLA.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import permutations, product
from random import Random
from typing import Any

import numpy as np

MESHES = ((2, 4), (2, 2, 2), (4, 4), (2, 8))
MOST_DEVICES = 16
SAME_WORK = 1.06
"""A program may add up partial results, too."""
Assignment = tuple[tuple[int, ...], ...]
"""By dim, the mesh axes that split it, major to minor."""


def random_spec(random: Random, rank: int, num_axes: int) -> Assignment:
    """Each axis on some dim, or on none."""
    spec: list[list[int]] = [[] for _ in range(rank)]
    for axis in random.sample(range(num_axes), num_axes):
        place = random.randrange(rank + 1)
        if place < rank:
            spec[place].append(axis)
    return tuple(map(tuple, spec))


@cache
def assignments(num_axes: int, num_dims: int) -> tuple[Assignment, ...]:
    """Every way to put axes on dims or on none, in every order of the axes of one dim."""
    found: dict[Assignment, None] = {}
    for order in permutations(range(num_axes)):
        for places in product(range(num_dims + 1), repeat=num_axes):
            split = tuple(
                tuple(a for a, place in zip(order, places, strict=True) if place == d) for d in range(num_dims)
            )
            found[split] = None
    return tuple(found)


def num_parts(mesh: tuple[int, ...], axes: Sequence[int]) -> int:
    """Into how many parts these axes cut."""
    return math.prod(mesh[axis] for axis in axes)


def divides(sizes: Sequence[int], mesh: tuple[int, ...], split: Assignment) -> bool:
    """Are all tiles of one size?"""
    return all(size % num_parts(mesh, axes) == 0 for size, axes in zip(sizes, split, strict=True))


@cache
def moved(
    dims: tuple[int, ...],
    mesh: tuple[int, ...],
    source: Assignment,
    target: Assignment,
    partial: tuple[int, ...],
    objective: str = "bytes",
) -> float:
    """From one split of 4-byte numbers to another: bytes, or of the objective "time" seconds.

    Over axes `partial` devices hold partial sums.
    """
    import hlosharding as hs

    first, last = _sharding(mesh, source, partial), _sharding(mesh, target, ())
    choice: Any = objective
    plan = hs.plan_reshard(dims, "f32", first, last, num_devices=math.prod(mesh), objective=choice)
    return plan.predicted_s if objective == "time" else plan.mean_received_bytes


def _sharding(mesh: tuple[int, ...], split: Assignment, partial: tuple[int, ...]) -> Any:
    import hlosharding as hs

    used = [axis for axes in split for axis in axes]
    rest = [axis for axis in range(len(mesh)) if axis not in used and axis not in partial]
    grid = np.arange(math.prod(mesh)).reshape(mesh).transpose([*used, *partial, *rest])
    counts = [num_parts(mesh, axes) for axes in split]
    return hs.HloSharding.subgroup(grid.reshape((*counts, num_parts(mesh, partial), -1)), ("unreduced", "replicated"))


def in_jax(mesh: tuple[int, ...], specs: Sequence[Assignment]) -> tuple[Any, list[Any]]:
    """A mesh of CPU devices, and the specs of its axes."""
    import jax
    from jax.sharding import Mesh, PartitionSpec

    names = tuple("abcd"[: len(mesh)])
    devices = np.array(jax.devices("cpu")[: math.prod(mesh)]).reshape(mesh)
    return Mesh(devices, names), [PartitionSpec(*(tuple(names[a] for a in axes) or None for axes in s)) for s in specs]


def bytes_of_xla(
    function: Callable[..., Any], arguments: Sequence[Any], mesh: Any, specs: Sequence[Any], out: Any, *, shardy: bool
) -> float:
    """Bytes of live XLA's program of a function whose arguments and results are sharded so, as `ideal_bytes` counts.

    NaN where that program is no valid HLO, which is printed: XLA runs on with it.
    """
    import jax
    from jax.sharding import NamedSharding

    import hlosharding as hs
    from benchmarks import live_xla
    from benchmarks.ideal import ideal_bytes
    from hlosharding.errors import LoadError

    placed = [
        jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(mesh, spec))
        for a, spec in zip(arguments, specs, strict=True)
    ]
    wanted = tuple(NamedSharding(mesh, s) for s in out) if isinstance(out, tuple) else NamedSharding(mesh, out)
    dump = live_xla.partitioned_by(function, placed, shardy=shardy, out_shardings=wanted)
    try:
        return ideal_bytes(hs.load(dump, format="hlo-proto"))
    except LoadError as error:
        # Of jax 0.10.2, with either propagation: the partitioner cuts [64,16] out of [128,8] where a gather's table is
        # split along both dims by axes of (2,2,2), its indices by the first, and the result's rows by the last and the
        # first (op_choice, seed 0, case 258).
        print(f"{'Shardy' if shardy else 'GSPMD'}: {error}")
        return math.nan


def ratio_of_sums(cases: Iterable[tuple[float, float]]) -> float:
    """What is sent over the least, over the cases of which there is a valid program: others have NaN.

    >>> ratio_of_sums([(6.0, 4.0), (float("nan"), 8.0), (3.0, 2.0)])
    1.5
    """
    known = [(sent, least) for sent, least in cases if not math.isnan(sent)]
    return sum(sent for sent, _ in known) / (sum(least for _, least in known) or 1.0)
