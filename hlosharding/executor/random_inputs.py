"""Arrays of a shape, at random, for a run whose results only have to be comparable.

Floor: executor.
"""

from __future__ import annotations

import numpy as np

from hlosharding.ir import Shape


def random_array(shape: Shape, generator: np.random.Generator) -> np.ndarray:
    """Floats from 0 to 1 (roots and logarithms stay defined), integers from 0 to 7.

    >>> random_array(Shape.array("s32", (3,)), np.random.default_rng(0)).dtype.name
    'int32'
    """
    dtype = shape.dtype
    if dtype.kind == "b":
        return generator.integers(0, 2, shape.dims).astype(dtype)
    if is_integer(shape):
        # Four bits and fewer hold no 7.
        ways = 8 if dtype.kind in "iu" else 2
        return generator.integers(0, ways, shape.dims).astype(dtype)
    values = generator.random(shape.dims)
    if dtype.kind == "c":
        return (values + 1j * generator.random(shape.dims)).astype(dtype)
    return values.astype(dtype)


def is_integer(shape: Shape) -> bool:
    """Is an array of whole numbers?"""
    # numpy knows int4 and its like only as opaque extension types.
    return shape.dtype.kind in "iu" or shape.element_type.startswith(("s", "u"))
