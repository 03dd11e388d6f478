"""Is a partitioned program right?  It must equal one device's run of the same module, as DESIGN §9 defines it.

Four ways to run it: `local` gives the local module to XLA as it stands, tiles cut here and padded with garbage, and
`stablehlo` its StableHLO text; `run` and `reference` are the user's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

import hlosharding as hs
from hlosharding.ir import Module, Shape
from hlosharding.partitioner import PartitionOptions
from hlosharding.sharding import HloSharding
from hlosharding.xla_bridge import run_proto, run_stablehlo, without_shardings
from tests.support.random_programs.programs import RandomProgram
from tests.support.yardsticks import kept_apart, wide, widened

Arrays = Sequence[np.ndarray]
RELATIVE = 1e-5


class WrongResult(AssertionError):
    """A partitioned program that computes something else."""


class Disputed(WrongResult):
    """XLA's one-device run differs from itself with the ops kept apart, which the partitioned program equals."""


def one_device(module: Module, arguments: Arrays) -> list[np.ndarray]:
    """Outputs of the module on one device, shardings ignored."""
    return [copies[0] for copies in run_proto(without_shardings(module.to_hlo_proto()), [[a] for a in arguments])]


# Cutting and joining tiles


def tiles(array: np.ndarray, sharding: HloSharding, devices: int) -> list[np.ndarray]:
    """Each device's tile; where a tile reaches over the edge, garbage."""
    dims = array.shape
    found = []
    for device in range(devices):
        if sharding.is_replicated():
            found.append(array)
            continue
        low, high = sharding.tile_offset(dims, device), sharding.tile_limit(dims, device)
        tile = garbage(sharding.tile_shape(dims), array.dtype)
        part = array[tuple(slice(a, b) for a, b in zip(low, high, strict=True))]
        tile[tuple(slice(0, n) for n in part.shape)] = part
        found.append(tile)
    return found


def garbage(dims: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """What no result may depend on."""
    if dtype.kind in "iub":
        return np.full(dims, 1 if dtype.kind == "b" else 113, dtype)
    return np.full(dims, np.nan, dtype)


def joined(copies: Sequence[np.ndarray], sharding: HloSharding, shape: Shape) -> np.ndarray:
    """The global array of the tiles; devices that hold one tile must agree on it."""
    if sharding.is_replicated():
        for copy in copies:
            if copy.tobytes() != copies[0].tobytes():
                raise WrongResult(f"devices disagree on a replicated {shape}")
        return copies[0]
    out, seen = np.empty(shape.dims, shape.dtype), {}
    for device, copy in enumerate(copies):
        low, high = sharding.tile_offset(shape.dims, device), sharding.tile_limit(shape.dims, device)
        part = copy[tuple(slice(0, max(0, b - a)) for a, b in zip(low, high, strict=True))]
        if seen.setdefault(tuple(low), part.tobytes()) != part.tobytes():
            raise WrongResult(f"devices disagree on the tile at {low} of {shape} ({sharding})")
        out[tuple(slice(a, b) for a, b in zip(low, high, strict=True))] = part
    return out


def run_local(local: hs.Partitioned, arguments: Arrays, *, as_text: bool = False) -> list[np.ndarray]:
    """The local module as it stands, on XLA's CPU devices; `as_text`: of its StableHLO text."""
    module, devices = local.module, local.num_partitions
    given = [
        tiles(array, module.sharding(p) or HloSharding.replicate(), devices)
        for array, p in zip(arguments, module.entry.parameters, strict=True)
    ]
    if as_text:
        outputs = run_stablehlo(local.to_stablehlo_text(), given, devices)
    else:
        outputs = run_proto(module.to_hlo_proto(), given, devices)
    root = local.propagation.module.entry.root if local.propagation else module.entry.root
    shardings = module.sharding(module.entry.root) or HloSharding.replicate()
    leaves = shardings.leaves if shardings.is_tuple() else (shardings,) * len(root.shape.leaves)
    return [joined(o, s, shape) for o, s, shape in zip(outputs, leaves, root.shape.leaves, strict=True)]


RUNNERS: dict[str, Callable[[hs.Partitioned, Arrays], list[np.ndarray]]] = {
    "local": run_local,
    "stablehlo": partial(run_local, as_text=True),
    "run": lambda local, arguments: _arrays(local.run(*arguments)),
    "reference": lambda local, arguments: _arrays(local.run_reference(*arguments)),
}


def _arrays(outputs: Any) -> list[np.ndarray]:
    return [np.asarray(a) for a in (outputs if isinstance(outputs, (tuple, list)) else (outputs,))]


# Comparing


@dataclass(frozen=True)
class Checked:
    """A program that was right."""

    partitioned: hs.Partitioned
    outputs: int


def check(program: RandomProgram, *, how: str = "local", options: PartitionOptions | None = None) -> Checked:
    """Partition, run, compare.  Raises WrongResult, or whatever the library raises."""
    local = hs.partition(program.module, options=options)
    found = RUNNERS[how](local, program.arguments)
    expected = one_device(program.module, program.arguments)
    yardstick: list[np.ndarray] | None = None
    for number, (got, want) in enumerate(zip(found, expected, strict=True)):
        if is_close(got, want):
            continue
        yardstick = yardstick or one_device(widened(program.module), [wide(a) for a in program.arguments])
        if not is_no_worse(got, want, yardstick[number]):
            apart = one_device(kept_apart(program.module), program.arguments)[number]
            error = Disputed if is_close(got, apart) else WrongResult
            raise error(difference(program.module, number, got, want))
    return Checked(local, len(found))


def is_close(got: np.ndarray, want: np.ndarray) -> bool:
    """Integers exactly; floats within 1e-5 of the largest magnitude, not-a-numbers at the same places."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    if want.dtype.kind in "iub":
        return bool((got == want).all())
    a, b = wide(got), wide(want)
    with np.errstate(invalid="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        return bool((same | (np.abs(a - b) <= RELATIVE * _largest(b))).all())


def is_no_worse(got: np.ndarray, want: np.ndarray, exact: np.ndarray) -> bool:
    """No further from the f64 result than one device's run, times 2, plus one unit in the last place (or 1e-5)."""
    if got.shape != want.shape or want.dtype.kind in "iub":
        return False
    a, b, x = wide(got), wide(want), wide(exact)
    if not (np.isnan(a) == np.isnan(x)).all() or not (np.isinf(a) == np.isinf(b)).all():
        return False
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(x)
    a, b, x = a[finite], b[finite], x[finite]
    if not a.size:
        return True
    largest = max(_largest(x), _largest(b))
    # bf16 has seven bits behind the leading one.
    unit = 2.0 ** (np.frexp(largest)[1] - 8) if want.dtype == ml_dtypes.bfloat16 else RELATIVE * largest
    allowed = 2 * np.abs(b - x).max() + unit
    return bool(np.abs(a - x).max() <= allowed)


def _largest(array: np.ndarray) -> float:
    finite = np.abs(array[np.isfinite(array)])
    return float(finite.max()) if finite.size else 0.0


def difference(module: Module, number: int, got: np.ndarray, want: np.ndarray) -> str:
    """A line that names the output and the first place where it is wrong."""
    root = module.entry.root
    inst = root.operands[number] if root.opcode == "tuple" else root
    where = f"output {number}, {inst!r}"
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{where}: {got.dtype}{got.shape} for {want.dtype}{want.shape}"
    a, b = wide(got), wide(want)
    with np.errstate(invalid="ignore"):
        off = np.where(np.isnan(a) != np.isnan(b), np.inf, np.nan_to_num(np.abs(a.astype(complex) - b)))
    place = np.unravel_index(int(np.argmax(off)), off.shape) if off.ndim else ()
    wrong = f"{int((off > 0).sum())} of {off.size} differ"
    return f"{where}: {got[place]} for {want[place]} at {tuple(map(int, place))}, {wrong}"
