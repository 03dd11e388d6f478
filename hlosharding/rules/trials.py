"""A rule tried on small arguments: is what pieces make up what the whole makes?

Floor: rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hlosharding import xla_bridge
from hlosharding.errors import RuleError
from hlosharding.ir import Shape, reduce_arrays
from hlosharding.once import remembered
from hlosharding.rules.signature import Dims, Reduce, Signature

Function: TypeAlias = Callable[..., Any]
_Array: TypeAlias = npt.NDArray[Any]
_Place: TypeAlias = tuple[int, tuple[int, ...], int]
"""Of a factor in an array: the dim, the sizes of the factors it consists of, and which of these it is."""

_MOST_ELEMENTS = 1 << 24
"""Of an argument."""


class Trial:
    """Functions that compute the same, run on random arrays of a signature's shapes, and on halves of these.

    >>> from hlosharding.rules import Factor
    >>> found = Signature((Factor("a", 4), Factor("b", 2, Reduce("add"))), (((0,), (1,)),), (((0,),),))
    >>> trial = Trial([lambda x: x.mean(1)], found, [Shape.parse("f32[4,2]")], 1e-3)
    >>> trial.verdict(0), trial.verdict(1)
    (True, False)
    """

    def __init__(self, functions: Sequence[Function], signature: Signature, shapes: Sequence[Shape], tolerance: float):
        self._functions, self._signature, self._tolerance = functions, signature, tolerance
        self._sizes = [factor.size for factor in signature.factors]
        self._arguments = [*self._drawn(shapes)]
        self._expected, *others = [_run(function, self._arguments) for function in functions]
        self.is_agreed = all(self._is_close(results, self._expected) for results in others)
        """Do all functions give the same?"""

    def _drawn(self, shapes: Sequence[Shape]) -> Iterator[_Array]:
        random = np.random.default_rng(0)
        for shape, dims in zip(shapes, self._signature.operands, strict=True):
            sizes = [
                prod(self._sizes[n] for n in numbers) if numbers else size
                for numbers, size in zip(dims, shape.dims, strict=True)
            ]
            if prod(sizes) > _MOST_ELEMENTS:
                raise RuleError(f"{shape} is too large to be tried")
            numbers = random.integers(0, 4, sizes) if shape.is_integral else random.normal(size=sizes)
            yield (numbers > 0 if shape.element_type == "pred" else numbers).astype(shape.dtype)

    @remembered
    def verdict(self, factor: int) -> bool | None:
        """May this factor be split, by what each function makes of halves?  None where one does not take these."""
        each = [
            _halves(a, self._place(d, factor)) for a, d in zip(self._arguments, self._signature.operands, strict=True)
        ]
        try:
            found = [[_run(function, [pair[n] for pair in each]) for n in (0, 1)] for function in self._functions]
        except Exception:  # noqa: BLE001  (whatever the user's functions raise)
            return None
        return all(self._is_whole(factor, first, second) for first, second in found)

    def _is_whole(self, factor: int, first: Sequence[_Array], second: Sequence[_Array]) -> bool:
        owes = self._signature.factors[factor].owes
        for n, (dims, expected) in enumerate(zip(self._signature.results, self._expected, strict=True)):
            place = self._place(dims, factor)
            if place is not None:
                found = [_joined(first[n], second[n], place)]
            elif isinstance(owes, Reduce):
                found = [reduce_arrays(owes.kind, [first[n], second[n]])]
            else:
                found = [first[n], second[n]]
            if not self._is_close(found, [expected] * len(found)):
                return False
        return True

    def _place(self, dims: Dims, factor: int) -> _Place | None:
        places = ((dim, numbers) for dim, numbers in enumerate(dims) if factor in numbers)
        return next(((d, tuple(self._sizes[n] for n in parts), parts.index(factor)) for d, parts in places), None)

    def _is_close(self, found: Sequence[_Array], expected: Sequence[_Array]) -> bool:
        return all(
            one.shape == other.shape and _is_close(one, other, self._tolerance)
            for one, other in zip(found, expected, strict=True)
        )


def _run(function: Function, arguments: Sequence[_Array]) -> list[_Array]:
    import jax

    # A step that JAX is tracing may have led here.  And by default accelerators multiply f32 with fewer bits than the
    # comparison asks for.
    with xla_bridge.outside_traces(), jax.default_matmul_precision("highest"):
        return [np.asarray(leaf) for leaf in jax.tree.leaves(xla_bridge.jit(function)(*arguments))]


def _halves(array: _Array, place: _Place | None) -> list[_Array]:
    """Twice the array where it has no place for the factor."""
    if place is None:
        return [array, array]
    dim, sizes, part = place
    spread = array.reshape(*array.shape[:dim], *sizes, *array.shape[dim + 1 :])
    return [_merged(half, dim, len(sizes)) for half in np.array_split(spread, 2, dim + part)]


def _joined(first: _Array, second: _Array, place: _Place) -> _Array:
    dim, sizes, part = place
    others = prod(sizes) // sizes[part]
    halves = [
        half.reshape(
            *half.shape[:dim], *sizes[:part], half.shape[dim] // others, *sizes[part + 1 :], *half.shape[dim + 1 :]
        )
        for half in (first, second)
    ]
    return _merged(np.concatenate(halves, dim + part), dim, len(sizes))


def _merged(array: _Array, dim: int, count: int) -> _Array:
    """So many dims from this one on as one."""
    end = dim + count
    return array.reshape(*array.shape[:dim], prod(array.shape[dim:end]), *array.shape[end:])


def _is_close(found: _Array, expected: _Array, tolerance: float) -> bool:
    kind = np.complex128 if np.iscomplexobj(expected) else np.float64
    one, other = found.astype(kind), expected.astype(kind)
    largest = float(np.max(np.abs(other), initial=0.0, where=np.isfinite(other)))
    # A small sum of large terms has the terms' rounding errors: it is judged by the largest number, too.
    return bool(np.allclose(one, other, rtol=tolerance, atol=tolerance * largest, equal_nan=True))
