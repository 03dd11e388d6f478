"""Arrays in and out of `hlosharding run`: from a file or at random, and how far two runs are apart.

Floor: cli.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NamedTuple

import numpy as np

from hlosharding.cli.array_file import ArrayFile
from hlosharding.cli.files import open_output
from hlosharding.errors import ExecutionError
from hlosharding.executor import is_integer, random_array
from hlosharding.ir import Instruction, Shape

Arrays = list[np.ndarray]

# Of the largest magnitude of an output.  The sums of a training step are long: hence not f32's last bits.
_TOLERANCE = {"f64": 1e-10, "c128": 1e-10, "f32": 1e-4, "c64": 1e-4, "f16": 2e-2, "bf16": 5e-2}
_NARROW = 0.25
_LONGEST_COMPARED, _MOST_COMPARED = 200, 1000
"""Letters, and names, that are compared with one that is not there."""


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
    file = ArrayFile(path)
    return [_read(file, _pick(file, each, n), each) for n, each in enumerate(_inputs(parameters))]


def _pick(file: ArrayFile, parameter: _Input, number: int) -> str:
    names, known = [parameter.name, parameter.path, f"arr_{number}"], file.names
    for name in names:
        if name in known:
            return name
    near = get_close_matches((parameter.path or parameter.name)[:_LONGEST_COMPARED], known[:_MOST_COMPARED], 3)
    others = f"did you mean {', '.join(near)}?" if near else f"it has {', '.join(known[:8]) or 'none'}"
    wanted = " or ".join(repr(name) for name in dict.fromkeys(names) if name)
    raise ExecutionError(f"{file.path} has no array {wanted}; {others}", where=f"parameter {number}")


def _read(file: ArrayFile, name: str, parameter: _Input) -> np.ndarray:
    """Of another shape or type it is not read at all."""
    shape, (dims, dtype) = parameter.shape, file.header(name)
    # np.savez writes bfloat16 and its like as bytes without a type.
    is_untyped = dtype.type is np.void and dtype.itemsize == shape.dtype.itemsize
    if dims != shape.dims:
        raise ExecutionError(f"the file has {list(dims)}, the program takes {shape}", where=f"%{parameter.name}")
    if not is_untyped and dtype != shape.dtype and not np.can_cast(dtype, shape.dtype, "same_kind"):
        raise ExecutionError(f"the file has {dtype}, the program takes {shape}", where=f"%{parameter.name}")
    array = file.read(name)
    return array.view(shape.dtype) if is_untyped else array.astype(shape.dtype, copy=False)


def save_arrays(outputs: Sequence[np.ndarray], path: str) -> None:
    """Write output_0, output_1 ... to an .npz file, whole or not at all."""
    named = {f"output_{n}": array for n, array in enumerate(outputs)}
    with open_output(path) as file:
        np.savez(file, **named)  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True, slots=True)
class ArrayDifference:
    """How far an output is from what it should be."""

    largest: float
    """Absolute; infinity where one of the two is not finite."""
    relative: float
    """To the largest finite magnitude of the expected array."""
    agrees: bool


def difference(
    found: np.ndarray, expected: np.ndarray, shape: Shape, tolerance: float | None = None
) -> ArrayDifference:
    """Compare two runs' outputs: integers exactly, the rest relative to the largest magnitude.

    `tolerance`: None takes the type's own (f32: 1e-4).

    >>> ones = np.ones(4, np.float32)
    >>> difference(ones + 1e-6, ones, Shape.array("f32", (4,))).agrees
    True
    """
    if shape.dtype.kind == "b" or is_integer(shape):
        largest = float(np.max(np.abs(found.astype(np.float64) - expected.astype(np.float64)), initial=0))
        return ArrayDifference(largest, largest, bool(np.array_equal(found, expected)))
    wide = np.complex128 if found.dtype.kind == "c" else np.float64
    mine, its = found.astype(wide), expected.astype(wide)
    # Asked first, since of two infinities the difference is nan.
    same = (mine == its) | (np.isnan(mine) & np.isnan(its))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.nan_to_num(np.abs(mine - its), nan=np.inf))
    largest = float(np.max(apart, initial=0))
    scale = float(np.max(np.abs(its), initial=0, where=np.isfinite(its)))
    relative = largest / scale if scale else largest
    allowed = tolerance if tolerance is not None else _TOLERANCE.get(shape.element_type, _NARROW)
    return ArrayDifference(largest, relative, relative <= allowed)
