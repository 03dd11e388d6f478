"""Arrays in and out of `hlosharding run`: from a file or at random, and how far two runs are apart.

Floor: cli.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hlosharding.cli.files import opened
from hlosharding.errors import ExecutionError
from hlosharding.executor import is_integer, random_array
from hlosharding.ir import Instruction, Shape

Arrays = list[np.ndarray]

# Of the largest magnitude of an output.  The sums of a training step are long: hence not f32's last bits.
_TOLERANCE = {"f64": 1e-10, "c128": 1e-10, "f32": 1e-4, "c64": 1e-4, "f16": 2e-2, "bf16": 5e-2}
_NARROW = 0.25


def random_arrays(parameters: Sequence[Instruction], seed: int) -> Arrays:
    """One array a parameter, or each that a tuple holds: floats from 0 to 1 (roots and logarithms stay defined),
    integers from 0 to 7.

    >>> import hlosharding as hs
    >>> module = hs.load("HloModule m\\nENTRY e {\\n  ROOT x = s32[3] parameter(0)\\n}")
    >>> [array] = random_arrays(module.entry.parameters, seed=0)
    >>> array.dtype.name, array.shape
    ('int32', (3,))
    """
    generator = np.random.default_rng(seed)
    return [random_array(each.shape, generator) for each in _inputs(parameters)]


class _Input(NamedTuple):
    """An array that the program takes."""

    name: str
    """Of its parameter; of one that a tuple holds with its place, as in p.0."""
    path: str
    shape: Shape


def _inputs(parameters: Sequence[Instruction]) -> Iterator[_Input]:
    for p in parameters:
        if not all(leaf.is_array for leaf in p.shape.leaves):
            raise ExecutionError(f"parameter %{p.name} is {p.shape}", remedy="a program to be run takes arrays")
        if not p.shape.is_tuple:
            yield _Input(p.name, p.op_name, p.shape)
            continue
        for place, leaf in enumerate(p.shape.leaves):
            yield _Input(f"{p.name}.{place}", p.op_name and f"{p.op_name}.{place}", leaf)


def read_arrays(parameters: Sequence[Instruction], path: str) -> Arrays:
    """One array a parameter from an .npz file: by name, by path, or by position (arr_0 ...).  Raises ExecutionError.

    What a tuple `p` holds is named p.0, p.1 ...
    """
    given = named_arrays(path)
    return [_fitting(_pick(given, each, n, path), each) for n, each in enumerate(_inputs(parameters))]


def named_arrays(path: str) -> dict[str, np.ndarray]:
    """All arrays of an .npz file.  Raises ExecutionError."""
    try:
        if not zipfile.is_zipfile(path):
            raise ExecutionError(f"{path} is no .npz file", remedy="write the arrays with np.savez")
        with np.load(Path(path), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ExecutionError(f"cannot read {path}: {error}", remedy="write the arrays with np.savez") from error


def _pick(given: dict[str, np.ndarray], parameter: _Input, number: int, path: str) -> np.ndarray:
    names = [parameter.name, parameter.path, f"arr_{number}"]
    for name in names:
        if name in given:
            return given[name]
    near = get_close_matches(parameter.path or parameter.name, given, 3)
    known = f"did you mean {', '.join(near)}?" if near else f"it has {', '.join(list(given)[:8]) or 'none'}"
    wanted = " or ".join(repr(name) for name in dict.fromkeys(names) if name)
    raise ExecutionError(f"{path} has no array {wanted}; {known}", where=f"parameter {number}")


def _fitting(array: np.ndarray, parameter: _Input) -> np.ndarray:
    shape = parameter.shape
    if array.dtype.type is np.void and array.dtype.itemsize == shape.dtype.itemsize:
        # np.savez writes bfloat16 and its like as bytes without a type.
        array = array.view(shape.dtype)
    if array.shape != shape.dims:
        raise ExecutionError(f"the file has {list(array.shape)}, the program takes {shape}", where=f"%{parameter.name}")
    if array.dtype != shape.dtype and not np.can_cast(array.dtype, shape.dtype, "same_kind"):
        raise ExecutionError(f"the file has {array.dtype}, the program takes {shape}", where=f"%{parameter.name}")
    return array.astype(shape.dtype, copy=False)


def save_arrays(outputs: Sequence[np.ndarray], path: str) -> None:
    """Write output_0, output_1 ... to an .npz file, whole or not at all."""
    named = {f"output_{n}": array for n, array in enumerate(outputs)}
    with opened(path) as file:
        np.savez(file, **named)  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True, slots=True)
class Difference:
    """How far an output is from what it should be."""

    largest: float
    """Absolute; infinity where one of the two is not finite."""
    relative: float
    """To the largest finite magnitude of the expected array."""
    agrees: bool


def difference(found: np.ndarray, expected: np.ndarray, shape: Shape, tolerance: float | None = None) -> Difference:
    """Compare two runs' outputs: integers exactly, the rest relative to the largest magnitude.

    `tolerance`: None takes the type's own (f32: 1e-4).

    >>> ones = np.ones(4, np.float32)
    >>> difference(ones + 1e-6, ones, Shape.array("f32", (4,))).agrees
    True
    """
    if shape.dtype.kind == "b" or is_integer(shape):
        largest = float(np.max(np.abs(found.astype(np.float64) - expected.astype(np.float64)), initial=0))
        return Difference(largest, largest, bool(np.array_equal(found, expected)))
    wide = np.complex128 if found.dtype.kind == "c" else np.float64
    mine, its = found.astype(wide), expected.astype(wide)
    same = (mine == its) | (np.isnan(mine) & np.isnan(its))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.nan_to_num(np.abs(mine - its), nan=np.inf))
    largest = float(np.max(apart, initial=0))
    scale = float(np.max(np.abs(its), initial=0, where=np.isfinite(its)))
    relative = largest / scale if scale else largest
    allowed = tolerance if tolerance is not None else _TOLERANCE.get(shape.element_type, _NARROW)
    return Difference(largest, relative, relative <= allowed)
