"""Values that propagation left whole, read in part: they stay where they are made; what the user said stays."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from tests.support.split_programs import counts, mark, right

SPECTRUM = f"""
    x = f32[8,128] parameter(0){mark("[8,1]<=[8]")}
    f = c64[8,65] fft(x), fft_type=RFFT, fft_length={{128}}"""


@pytest.mark.parametrize("steps", [1, 3])
def test_a_transform_that_is_cut_afterwards_is_cut_before_it_is_gathered(steps: int) -> None:
    chain = [f"g{n + 1} = c64[65,8] negate(g{n})" for n in range(steps)]
    local = right(f"""{SPECTRUM}
        g0 = c64[65,8] transpose(f), dimensions={{1,0}}
        {" ".join(chain)}
        ROOT s = c64[4,8] slice(g{steps}), slice={{[0:4], [0:8]}}{mark("")}""")
    assert local.comm_bytes_per_device == 7 / 8 * 4 * 8 * 8


def test_real_and_imaginary_part_of_one_transform_leave_it_in_pieces() -> None:
    local = right(f"""{SPECTRUM}
        r = f32[8,65] real(f)
        i = f32[8,65] imag(f)
        a = f32[8,2] slice(r), slice={{[0:8], [0:2]}}
        b = f32[8,2] slice(i), slice={{[0:8], [0:2]}}
        ROOT s = f32[8,2] add(a, b){mark("")}""")
    assert local.comm_bytes_per_device <= 2 * 7 / 8 * 8 * 2 * 4


def test_a_value_that_the_user_wants_whole_is_gathered_though_only_a_part_is_read() -> None:
    local = right(f"""{SPECTRUM}
        g = c64[8,65] negate(f){mark("")}
        ROOT s = c64[8,4] slice(g), slice={{[0:8], [0:4]}}{mark("")}""")
    assert local.comm_bytes_per_device == 7 / 8 * 8 * 65 * 8


def test_a_value_that_somebody_needs_whole_is_gathered_once() -> None:
    local = right(f"""{SPECTRUM}
        g = c64[8,65] negate(f)
        s = c64[8,4] slice(g), slice={{[0:8], [0:4]}}
        ROOT t = (c64[8,4], c64[8,65]) tuple(s, g), sharding={{{{replicated}}, {{replicated}}}}""")
    assert counts(local) == {"all-gather": 1}


def test_what_is_repeated_along_a_split_dim_is_read_whole() -> None:
    """Sums over a batch, as of a batch norm: one all-reduce, not parts of them that are gathered behind it."""
    rows = mark("[8,1]<=[8]")
    local = right(f"""
        x = f32[64,512] parameter(0){rows}
        zero = f32[] constant(0)
        s = f32[512] reduce(x, zero), dimensions={{0}}, to_apply=add_f32{mark("")}
        m = f32[512] negate(s){mark("")}
        b = f32[64,512] broadcast(m), dimensions={{1}}{rows}
        ROOT y = f32[64,512] subtract(x, b){rows}""")
    assert counts(local) == {"all-reduce": 1}


def test_an_update_that_may_be_anywhere_is_made_whole(mesh_2x4: Mesh) -> None:
    """Row after row of an array that is split by them: no trip moves parts of a row, which each device needs whole."""

    def rows(x: jax.Array) -> jax.Array:
        def one(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            number, out = state
            row = jax.lax.dynamic_slice(x, (number, 0), (1, 32)).reshape(32)
            made = jnp.exp(row - row.max()).reshape(1, 32)
            return number + 1, jax.lax.dynamic_update_slice(out, made, (number, 0))

        return jax.lax.while_loop(lambda state: state[0] < 64, one, (jnp.int32(0), jnp.zeros_like(x)))[1]

    split, shape = P(("data", "model")), jax.ShapeDtypeStruct((64, 32), jnp.float32)
    local = hs.partition(hs.trace(rows, mesh=mesh_2x4, in_shardings=(split,), out_shardings=split)(shape))
    assert [one.executions for one in local.collectives] == [1]
    x = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
    np.testing.assert_allclose(local.run(x), np.exp(x - x.max(1, keepdims=True)), rtol=1e-6)


def test_where_parts_of_what_is_read_whole_later_take_more_collectives_it_stays_whole(mesh_2x4: Mesh) -> None:
    """Gram and Schmidt's method on split rows: of each column a sum of products with the others and one of squares."""

    def orthogonal(x: jax.Array) -> jax.Array:
        def column(number: jax.Array, q: jax.Array) -> jax.Array:
            v = jax.lax.dynamic_slice_in_dim(q, number, 1, 1)
            v -= (q * (jnp.arange(16) < number)) @ (q.T @ v)
            return jax.lax.dynamic_update_slice_in_dim(q, v / jnp.linalg.norm(v), number, 1)

        return jax.lax.fori_loop(0, 16, column, x)

    x = np.random.default_rng(0).normal(size=(64, 16)).astype(np.float32)
    local = hs.partition(hs.propagate(hs.trace(orthogonal, mesh=mesh_2x4, in_shardings=(P("model"),))(x)))
    assert sum(one.executions for one in local.collectives) <= 2 * 16
    q = local.run(x)
    np.testing.assert_allclose(q.T @ q, np.eye(16), atol=1e-4)
