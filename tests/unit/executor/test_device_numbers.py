"""Numbers that differ by device, as arithmetic on axes: expected texts are worked out by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.executor.axes import Axes
from hlosharding.executor.device_numbers import DeviceNumbers
from hlosharding.executor.flow import Inline
from hlosharding.ir import Builder, Shape


def number_of(table: list[int], axes: Axes) -> Inline | None:
    """What is written for the entry of each device in a table."""
    main = Builder("m", num_partitions=8).computation("main")
    place = main.add("convert", Shape.array("s32"), (main.add("partition-id", Shape.array("u32"), ()),))
    values = main.constant(np.array(table, np.int32))
    row = main.add("dynamic-slice", Shape.array("s32", (1,)), (values, place), dynamic_slice_sizes=(1,))
    main.root(main.add("reshape", Shape.array("s32"), (row,)))
    numbers = DeviceNumbers(axes)
    return [numbers.constant(inst) for inst in main.computation.instructions][-1]


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ([0, 12, 24, 36, 0, 12, 24, 36], 'lax.axis_index("model") * 12'),
        ([0, 0, 0, 0, 1, 1, 1, 1], 'lax.axis_index("data")'),
        ([0, 3, 6, 9, 12, 15, 18, 21], "lax.axis_index(AXES) * 3"),
        ([5, 6, 7, 8, 5, 6, 7, 8], 'lax.axis_index("model") + 5'),
        ([0, 2, 4, 6, 1, 3, 5, 7], 'lax.axis_index("data") + lax.axis_index("model") * 2'),
        ([3, 2, 1, 0, 3, 2, 1, 0], 'lax.axis_index("model") * -1 + 3'),
        ([0, 1, 2, 4, 0, 1, 2, 4], None),
        ([0, 1, 2, 3, 0, 1, 2, 4], None),
    ],
)
def test_a_table_that_counts_along_axes_is_arithmetic(table: list[int], text: str | None) -> None:
    found = number_of(table, Axes((2, 4), tuple(range(8)), ("data", "model")))
    assert (found and found.text) == text
    assert found is None or found.is_atom == (text == 'lax.axis_index("data")')


def test_places_count_not_device_ids() -> None:
    axes = Axes((2, 4), (0, 2, 4, 6, 1, 3, 5, 7), ("data", "model"))
    found = number_of([0, 0, 10, 10, 20, 20, 30, 30], axes)
    assert found is not None
    assert found.text == 'lax.axis_index("model") * 10'


def test_where_a_tile_begins_stands_where_it_is_used(mesh_2x4: Mesh) -> None:
    x, w1, w2 = (jax.random.normal(jax.random.key(n), (8, 8)) for n in range(3))
    shardings = P("data"), P(None, "model"), P()
    function = hs.jit(lambda x, a, b: jnp.tanh(x @ a) @ b, mesh=mesh_2x4, in_shardings=shardings)
    text = function.lower(x, w1, w2).as_python()
    assert 'lax.dynamic_slice(b, [lax.axis_index("model") * 2, np.int32(0)]' in text
    assert "partition_id" not in text
    np.testing.assert_allclose(function(x, w1, w2), jnp.tanh(x @ w1) @ w2, rtol=1e-5)
