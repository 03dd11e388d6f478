"""Products of tokens sorted by expert: what lies between two of them is made expert by expert, and is the same."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlosharding as hs
from hlosharding.search.ragged_products import group_by_expert

OF_SEQUENCES = jax.lax.RaggedDotDimensionNumbers((((2,), (1,)), ((), ())), [1], [0])
SIZES = np.array([[3, 5, 0, 8], [16, 0, 0, 0], [1, 2, 3, 10]], np.int32)


def whole(rows: Any, weights: Any, sizes: Any) -> Any:
    return jax.lax.ragged_dot(rows, weights, sizes)


def apart(rows: Any, weights: Any, sizes: Any) -> Any:
    return jax.lax.ragged_dot_general(rows, weights, sizes, OF_SEQUENCES)


@pytest.mark.parametrize(
    ("product", "rows", "sizes", "between"),
    [(whole, (16, 8), SIZES[0], "f32[4,16,2]"), (apart, (3, 16, 8), SIZES, "f32[4,3,16,2]")],
    ids=["all rows", "sequence by sequence"],
)
def test_what_lies_between_two_products_is_made_expert_by_expert(
    product: Any, rows: tuple[int, ...], sizes: Any, between: str
) -> None:
    def layer(up: Any, down: Any, x: Any, sizes: Any) -> Any:
        return product(jnp.tanh(product(x, up, sizes)), down, sizes)

    random = np.random.default_rng(0)
    up, down, x = (random.normal(size=dims).astype(np.float32) for dims in ((4, 8, 2), (4, 2, 8), rows))
    made = group_by_expert(hs.trace(layer)(up, down, x, sizes))
    first, _ = made.of_opcodes("dot")
    assert str(first.shape) == between
    found = hs.partition(made).run_reference(up, down, x, sizes)
    np.testing.assert_allclose(found, layer(up, down, x, sizes), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("others", "sign"), [(1.0, 1), (0.0, -1)], ids=["ones", "from the last row on"])
def test_rows_that_are_masked_otherwise_are_left_as_they_are(others: float, sign: int) -> None:
    """Of what is no zero every expert's product has a part, and of two masks each may have other rows of an expert."""

    def product(x: Any, weights: Any, sizes: Any, sign: int) -> Any:
        repeated, ends = (len(sizes), *x.shape), jnp.cumsum(sizes)
        numbers = jax.lax.broadcasted_iota(sizes.dtype, repeated, 1)[:, ::sign]
        starts = jnp.concatenate([jnp.zeros(1, sizes.dtype), ends[:-1]])
        starts, ends = (jax.lax.broadcast_in_dim(one, repeated, (0,)) for one in (starts, ends))
        rows = jax.lax.broadcast_in_dim(x, repeated, (1, 2))
        masked = jnp.where((starts <= numbers) & (numbers < ends), rows, jnp.full((), others, x.dtype))
        return jax.lax.dot_general(masked, weights, (((0, 2), (0, 1)), ((), ())))

    def layer(up: Any, down: Any, x: Any, sizes: Any) -> Any:
        return product(jnp.cos(product(x, up, sizes, sign)), down, sizes, 1)

    random = np.random.default_rng(0)
    up, down, x = (random.normal(size=dims).astype(np.float32) for dims in ((4, 8, 2), (4, 2, 8), (16, 8)))
    made = group_by_expert(hs.trace(layer)(up, down, x, SIZES[0]))
    found = hs.partition(made).run_reference(up, down, x, SIZES[0])
    np.testing.assert_allclose(found, layer(up, down, x, SIZES[0]), rtol=1e-5, atol=1e-6)
