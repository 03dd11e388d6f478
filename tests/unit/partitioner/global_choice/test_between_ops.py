"""Values between two ops lie where both together cost least; what is annotated stays."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.partitioner import PartitionOptions
from tests.support.split_programs import mark, module_of, right, split

ROWS, COLUMNS = "[8,1]<=[8]", "[1,8]<=[8]"
BOTH_ENDS = "the ops that make and read it cost less together"


def attention(batch: int, length: int, between: str = "") -> str:
    """Scores and mixed values of `batch` sequences; queries are split along their length, all others by sequence."""
    lengths, batches = mark("[1,8,1]<=[8]"), mark("[8,1,1]<=[8]")
    return f"""
        q = f32[{batch},{length},16] parameter(0){lengths}
        k = f32[{batch},{length},16] parameter(1), sharding={{replicated}}
        v = f32[{batch},{length},16] parameter(2){batches}
        s = f32[{batch},{length},{length}] dot(q, k), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
          lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}
        t = f32[{batch},{length},{length}] tanh(s){between}
        ROOT o = f32[{batch},{length},16] dot(t, v), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
          lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}{batches}"""


def overrides(local: hs.Partitioned) -> dict[str, str]:
    return {o.name: str(o.chosen) for o in local.sharding_overrides if o.why == BOTH_ENDS}


def test_a_value_that_both_ends_want_elsewhere_moves_there() -> None:
    text = "HloModule m, num_partitions=8\nENTRY e {" + attention(16, 64) + "\n}"
    propagated = hs.propagate(hs.load(text))
    assert str(propagated.module.shardings[propagated.module.by_name("s").id]) == "{devices=[1,8,1]<=[8]}"
    local = right(attention(16, 64))
    assert overrides(local) == dict.fromkeys(["s", "t"], "{devices=[8,1,1]<=[8]}")
    # Queries change places, and each device keeps an eighth of its eighth; the scores, four times as large, stay.
    assert local.comm_bytes_per_device == pytest.approx(16 * 64 * 16 * 4 * 7 / 64)


def test_what_the_user_annotated_stays() -> None:
    local = right(attention(16, 64, mark("[1,8,1]<=[8]")))
    assert not overrides(local)


@pytest.mark.parametrize("objective", ["bytes", "time"])
def test_it_never_costs_more_bytes_than_a_program_without_choice(objective: str) -> None:
    text = "HloModule m, num_partitions=8\nENTRY e {" + attention(16, 512) + "\n}"
    local = hs.partition(hs.load(text), options=PartitionOptions(objective=objective))
    scores = 16 * 512 * 512 * 4 * 7 / 64
    assert local.comm_bytes_per_device < scores


def test_a_program_that_moves_nothing_is_left_alone() -> None:
    local = split(f"""
        x = f32[64,32] parameter(0){mark(ROWS)}
        w = f32[32,16] parameter(1), sharding={{replicated}}
        h = f32[64,16] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{mark(ROWS)}
        ROOT y = f32[64,16] tanh(h){mark(ROWS)}""")
    assert not local.sharding_overrides
    assert not local.collectives


BATCHED = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"


def test_an_operand_is_moved_on_from_the_nearest_of_its_copies() -> None:
    local = right(f"""
        x = f32[512,64] parameter(0){mark(COLUMNS)}
        w = f32[64,16] parameter(1), sharding={{replicated}}
        u = f32[512,8] parameter(2){mark(ROWS)}
        y = f32[512,16] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{mark(ROWS)}
        z = f32[64,8] dot(x, u), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}{mark(ROWS)}
        ROOT t = (f32[512,16], f32[64,8]) tuple(y, z), sharding={{{{devices={ROWS}}}, {{devices={ROWS}}}}}""")
    # x goes to rows for y; z then has partial sums of both its operands as they lie, and u is not gathered for it.
    to_rows, sums = 512 * 64 * 4 * 7 / 64, 64 * 8 * 4 * 7 / 8
    assert local.comm_bytes_per_device == pytest.approx(to_rows + sums)


def test_one_copy_serves_ops_that_alone_would_not_have_asked_for_it() -> None:
    batches, inner = "[8,1,1]<=[8]", "[1,8,1]<=[8]"
    program = module_of(f"""
        x = f32[16,64,64] parameter(0){mark("[1,1,8]<=[8]")}
        u = f32[16,64,8] parameter(1){mark(inner)}
        v = f32[16,64,8] parameter(2){mark(inner)}
        y = f32[16,64,8] dot(x, u), {BATCHED}{mark(batches)}
        z = f32[16,64,8] dot(x, v), {BATCHED}{mark(batches)}
        ROOT t = (f32[16,64,8], f32[16,64,8]) tuple(y, z),
          sharding={{{{devices={batches}}}, {{devices={batches}}}}}""")
    local = hs.partition(program, options=PartitionOptions(objective="bytes"))
    sums = 16 * 64 * 8 * 4 * 7 / 8
    to_batches, of_x = 16 * 64 * 8 * 4 * 7 / 64, 16 * 64 * 64 * 4 * 7 / 64
    assert sums < of_x + to_batches
    assert local.comm_bytes_per_device == pytest.approx(of_x + 2 * to_batches)
    assert of_x + 2 * to_batches < 2 * sums


def test_values_that_may_take_any_sharding_lie_where_all_their_ops_cost_least() -> None:
    """One product is nearest to rows, the other to columns; who multiplies them would have one of the two moved."""
    contract = "lhs_contracting_dims={1}, rhs_contracting_dims="
    local = right(f"""
        g = f32[1024,16] parameter(0){mark(COLUMNS)}
        v = f32[4096,16] parameter(1), sharding={{replicated}}
        x = f32[1024,16] parameter(2), sharding={{replicated}}
        w = f32[16,4096] parameter(3){mark(ROWS)}
        d = f32[1024,4096] dot(g, v), {contract}{{1}}
        h = f32[1024,4096] dot(x, w), {contract}{{0}}
        t = f32[1024,4096] tanh(h)
        m = f32[1024,4096] multiply(d, t)
        ROOT r = f32[16,4096] dot(x, m), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}{mark(ROWS)}""")
    whole_g, w_to_columns = 1024 * 16 * 4 * 7 / 8, 16 * 4096 * 4 * 7 / 64
    assert local.comm_bytes_per_device == pytest.approx(whole_g + w_to_columns + w_to_columns)


def attention_gradient(length: int, *places: P) -> hs.Partitioned:
    """Of attention over eight heads, one on each device; what it mixes is asked for in one place after another."""
    mesh, heads = Mesh(np.array(jax.devices()[:8]), ("x",)), P(None, "x")

    def loss(queries: jax.Array, keys: jax.Array, values: jax.Array) -> jax.Array:
        weights = jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", queries, keys))
        mixed = jnp.einsum("bhqk,bhkd->bhqd", weights, values)
        for place in places:
            mixed = jax.lax.with_sharding_constraint(mixed, NamedSharding(mesh, place))
        return jnp.sum(mixed**3)

    gradient = jax.grad(loss, argnums=(0, 1, 2))
    step = hs.jit(gradient, mesh=mesh, in_shardings=(heads,) * 3, out_shardings=(heads,) * 3)
    return step.lower(*[jax.ShapeDtypeStruct((2, 8, length, 16), jnp.float32)] * 3).partitioned


@pytest.mark.parametrize("length", [64, 256, 512])
def test_what_a_softmax_spreads_over_rows_lies_as_they_do(length: int) -> None:
    """Said by hand, scores and their gradients stay by heads; propagation has the gradients by rows."""
    heads, rows = P(None, "x"), P(None, None, "x")
    found, by_hand = attention_gradient(length, rows), attention_gradient(length, heads, rows)
    assert found.comm_bytes_per_device == by_hand.comm_bytes_per_device
    assert len(found.collectives) == len(by_hand.collectives)


def projections(length: int, *, are_moved_together: bool) -> hs.Partitioned:
    """Queries, keys and values by one product; made by rows, and each asked for by heads."""
    mesh, heads = Mesh(np.array(jax.devices()[:8]), ("x",)), P(None, None, "x")

    def project(weights: jax.Array, x: jax.Array) -> tuple[jax.Array, ...]:
        found = jnp.einsum("btd,dchk->cbthk", x, weights)
        if are_moved_together:
            found = jax.lax.with_sharding_constraint(found, NamedSharding(mesh, P(None, *heads)))
        return tuple([jax.lax.with_sharding_constraint(one, NamedSharding(mesh, heads)) for one in found])

    step = hs.jit(project, mesh=mesh, in_shardings=(P(), P(None, "x")))
    return step.lower(
        *[jax.ShapeDtypeStruct(dims, jnp.float32) for dims in ((64, 3, 8, 16), (2, length, 64))]
    ).partitioned


def test_what_is_cut_in_slices_that_are_all_wanted_elsewhere_moves_before_it_is_cut() -> None:
    found, by_hand = (projections(64, are_moved_together=together) for together in (False, True))
    assert found.comm_bytes_per_device == by_hand.comm_bytes_per_device
    assert len(found.collectives) == len(by_hand.collectives) == 1
