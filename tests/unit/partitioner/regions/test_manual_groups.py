"""`shard_map` over some axes of the mesh: each group partitions the rest; results are those of JAX's own run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, NamedSharding, get_abstract_mesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.errors import PartitionError
from hlosharding.sharding import HloSharding
from hlosharding.spmd.manual_groups import (
    ManualGroups,
    group_pieces,
    manual_groups_of,
    sharding_in_groups,
    sharding_of_all,
    tiles_in_groups,
)
from tests.support.split_programs import module_of

X = np.arange(128, dtype=np.float32).reshape(16, 8) / 64
W = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
shard_map = partial(jax.shard_map, check_vma=False)


@pytest.fixture(scope="module")
def cube(cpu_devices: list[Any]) -> Mesh:
    return Mesh(np.array(cpu_devices).reshape(2, 2, 2), ("a", "b", "c"))


ROWS = P("a")


def over_a(inner: Callable[..., Any], mesh: Mesh, out_specs: Any = ROWS) -> Any:
    return shard_map(inner, mesh=mesh, in_specs=(P("a"), P()), out_specs=out_specs, axis_names={"a"})


def same_as_jax(program: Callable[..., Any], mesh: Mesh, specs: tuple[P, P], x: Any = X, w: Any = W) -> str:
    """Runs both; the generated source."""
    ours = hs.partition(hs.trace(program, mesh=mesh, in_shardings=specs)(x, w))
    want = jax.tree.leaves(jax.jit(program)(x, w))
    for found in (ours.run(x, w), ours.run_reference(x, w)):
        for a, b in zip(jax.tree.leaves(found), want, strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=1e-5 * float(np.abs(b).max()))
    return ours.as_python()


def layer(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.tanh(x @ w) + lax.axis_index("a")


def summed(x: jax.Array, w: jax.Array) -> jax.Array:
    return lax.psum(x @ w, "a")


@pytest.mark.parametrize("given", [P(("a", "b"), "c"), P(("b", "a"), "c"), P("c", "a"), P("b"), P(None, ("c", "b"))])
def test_each_group_partitions_the_product(cube: Mesh, given: P) -> None:
    def program(x: jax.Array, w: jax.Array) -> Any:
        return over_a(layer, cube)(x, w), over_a(summed, cube, P())(x, w)

    same_as_jax(program, cube, (given, P("c")))


ODD = (
    "{devices=[4,1,2]5,6,1,3,2,7,0,4 last_tile_dim_replicate}",
    "{devices=[1,4,2]2,5,1,4,0,6,3,7 last_tile_dim_replicate}",
)


def test_inputs_in_an_order_that_differs_between_groups(cube: Mesh) -> None:
    program = over_a(lambda x, w: jnp.tanh(x @ w) + lax.axis_index("a"), cube)
    given = tuple(HloSharding.parse(text) for text in ODD)
    ours = hs.partition(hs.trace(program, mesh=cube, in_shardings=given)(X, W))
    np.testing.assert_allclose(np.asarray(ours.run(X, W)), np.asarray(jax.jit(program)(X, W)), atol=1e-5)
    whys = {d.why for d in ours.sharding_overrides if d.propagated.is_manual_subgroup()}
    assert whys <= {"every manual group has its tiles in one order"}


def test_sums_inside_groups_and_between_them_stand_apart(cube: Mesh) -> None:
    source = same_as_jax(over_a(summed, cube, P()), cube, (P("a", "c"), P("c")))
    assert 'lax.psum(x @ w, "c")' in source
    assert ', "a")' in source


def test_a_region_in_a_region(cube: Mesh) -> None:
    def columns(y: jax.Array) -> jax.Array:
        return lax.psum(y.sum(0, keepdims=True), "b") + y

    def outer(x: jax.Array, w: jax.Array) -> jax.Array:
        inner = shard_map(
            columns, mesh=get_abstract_mesh(), in_specs=P(None, "b"), out_specs=P(None, "b"), axis_names={"b"}
        )
        y = inner(x @ w)
        return y * 2 + lax.pmean(y.sum(), "a")

    same_as_jax(over_a(outer, cube), cube, (P("a", "c"), P()))


def test_a_region_over_two_of_three_axes(cube: Mesh) -> None:
    def inner(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.psum(jnp.exp(x) @ w, ("a", "b")) + lax.axis_index("a") + lax.psum(lax.axis_index("b"), "b")

    region = shard_map(inner, mesh=cube, in_specs=(P("a", "b"), P("b")), out_specs=P("a"), axis_names={"a", "b"})
    same_as_jax(region, cube, (P("a", "c"), P("c", "b")))


def test_gradients_through_a_region(cube: Mesh) -> None:
    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        square = lambda x, w: lax.psum((jnp.sin(x @ w) ** 2).sum(), "a")  # noqa: E731
        return over_a(square, cube, P())(x, w)

    same_as_jax(lambda x, w: jax.grad(loss)(w, x), cube, (P("a", "c"), P("c", "b")))


def test_the_users_collectives_run_between_groups(cube: Mesh) -> None:
    def inner(x: jax.Array, w: jax.Array) -> Any:
        exchanged = lax.all_to_all(x, "a", 1, 0, tiled=True)
        scattered = lax.psum_scatter(x @ w, "a", scatter_dimension=1, tiled=True)
        moved = lax.ppermute(x, "a", [(0, 1), (1, 0)])
        return exchanged, scattered, moved, lax.pmax(x, "a"), lax.all_gather(w[0], "a")

    outs = (P(None, "a"), P("a"), P("a"), P("a"), P())
    same_as_jax(over_a(inner, cube, outs), cube, (P("a", "c"), P("c", "b")))


def test_annotations_inside_speak_of_the_other_axes(cube: Mesh) -> None:
    def inner(x: jax.Array, w: jax.Array) -> jax.Array:
        y = lax.with_sharding_constraint(x @ w, NamedSharding(get_abstract_mesh(), P("b", "c")))
        return jnp.sort(y, axis=0)

    same_as_jax(over_a(inner, cube), cube, (P("a", "c"), P("c", "b")))


def test_loops_and_branches_that_differ_between_groups(mesh_2x4: Mesh) -> None:
    def inner(x: jax.Array, w: jax.Array) -> Any:
        def goes_on(state: Any) -> Any:
            return state[1] < 3 + lax.axis_index("a")

        looped = lax.while_loop(goes_on, lambda s: (jnp.sin(s[0] @ w), s[1] + 1), (x, 0))[0]
        branched = lax.cond(lax.axis_index("a") == 0, lambda x: x @ w, lambda x: (x + 1) @ w, x)
        return looped, branched

    mesh = Mesh(mesh_2x4.devices, ("a", "b"))
    region = over_a(inner, mesh, (P("a"),) * 2)
    same_as_jax(region, mesh, (P("a", "b"), P("b")))


def test_groups_that_part_do_not_wait_for_each_other_at_a_permute(cpu_devices: list[Any]) -> None:
    """JAX's own program stands still here: XLA's permute waits for all devices."""
    mesh = Mesh(np.array(cpu_devices).reshape(2, 4), ("a", "b"))

    def inner(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.cond(lax.axis_index("a") == 0, lambda x: x @ w, lambda x: jnp.flip(x, 1) @ w + 1, x)

    specs = (P("a", "b"), P("b"))
    ours = hs.partition(hs.trace(over_a(inner, mesh), mesh=mesh, in_shardings=specs)(X, W))
    want = np.concatenate([X[:8] @ W, X[8:, ::-1] @ W + 1])
    np.testing.assert_allclose(ours.run(X, W), want, rtol=0, atol=1e-4)
    below = {i.opcode for i in ours.module.instructions if not i.computation.is_entry}
    assert "all-gather" in below
    assert "collective-permute" not in below


def test_a_scan_with_permutes_and_uneven_tiles(cpu_devices: list[Any]) -> None:
    mesh = Mesh(np.array(cpu_devices).reshape(2, 4), ("a", "b"))

    def inner(x: jax.Array, w: jax.Array) -> Any:
        def step(state: jax.Array, _: None) -> Any:
            state = lax.ppermute(jnp.tanh(state @ w), "a", [(0, 1), (1, 0)])
            return state, state.sum()

        last, sums = lax.scan(step, x, None, length=3)
        return last - last.mean(0), lax.psum(sums, "a"), jnp.argmax(x, 0), jnp.cumsum(x, 0)

    region = over_a(inner, mesh, (P("a"), P(), P("a"), P("a")))
    same_as_jax(region, mesh, (P("b"), P(None, "b")), X[:14, :7], W[:7, :7])


# What cannot be


def refused(text: str, words: str) -> None:
    with pytest.raises(PartitionError, match=words):
        hs.partition(module_of(text))


def test_a_collective_inside_a_group_is_refused() -> None:
    refused(
        """
        x = f32[8] parameter(0), sharding={devices=[4,2]<=[2,4]T(1,0) last_tile_dims={manual}}
        ROOT y = f32[8] collective-permute(x), channel_id=1, source_target_pairs={{0,1}},
            sharding={devices=[4,2]<=[2,4]T(1,0) last_tile_dims={manual}}""",
        "combines devices .* of one manual group",
    )


def test_a_region_whose_pieces_do_not_fit_is_refused() -> None:
    refused(
        """
        x = f32[16] parameter(0), sharding={devices=[8]<=[8]}
        a = f32[16] copy(x), sharding={devices=[8]<=[8]}
        b = f32[5] custom-call(a), custom_call_target="SPMDFullToShardShape",
            sharding={devices=[1,2,4]<=[8] last_tile_dims={manual, replicated}}
        ROOT c = f32[16] custom-call(b), custom_call_target="SPMDShardToFullShape", sharding={replicated}""",
        "do not make up the pieces",
    )


def test_other_groups_are_refused() -> None:
    manual_groups = ManualGroups(((0, 1), (2, 3)))
    with pytest.raises(PartitionError, match="other manual groups"):
        sharding_in_groups(
            HloSharding.parse("{devices=[1,2,2]<=[4] last_tile_dims={replicated, manual}}"), manual_groups
        )
    with pytest.raises(PartitionError, match="lie differently"):
        sharding_in_groups(HloSharding.parse("{devices=[2,2]0,3,1,2 last_tile_dims={manual}}"), manual_groups)


@pytest.mark.parametrize("text", ["{devices=[2,2]<=[4]}", "{devices=[1,4]<=[2,2]T(1,0)}", "{replicated}"])
def test_strip_undoes_wrap(text: str) -> None:
    manual_groups, inner = ManualGroups(((0, 2, 4, 6), (1, 3, 5, 7))), HloSharding.parse(text)
    outer = sharding_of_all(inner, manual_groups, 2)
    assert manual_groups_of(outer) == manual_groups
    assert sharding_in_groups(outer, manual_groups) == inner


def test_pieces_of_groups() -> None:
    manual_groups = ManualGroups(((0, 1), (2, 3)))
    rows, crossed = HloSharding.parse("{devices=[4]<=[4]}"), HloSharding.parse("{devices=[4]0,2,1,3}")
    assert str(tiles_in_groups(rows, manual_groups, (8,), (4,))) == "{devices=[2]<=[2]}"
    assert str(group_pieces(rows, manual_groups, (8,), (4,))) == "{devices=[2,2]<=[4] last_tile_dim_replicate}"
    assert tiles_in_groups(crossed, manual_groups, (8,), (4,)) is None
    assert tiles_in_groups(rows, manual_groups, (8,), (3,)) is None
