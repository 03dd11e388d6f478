"""Marks inside traced functions: any sharding, under jit, grad, vmap, scan; identities elsewhere."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from hlosharding.errors import AnnotationError
from hlosharding.frontends import shard_alike, trace, with_sharding
from hlosharding.ir import Module
from hlosharding.sharding import HloSharding

P = PartitionSpec
ODD = "{devices=[3,1]2,0,1}"
X = jax.ShapeDtypeStruct((4, 4), jnp.float32)


def marks(module: Module) -> list[tuple[str, str]]:
    found = [i for i in module.instructions if i.custom_call_target == "Sharding"]
    return [(str(module.sharding(i)), i.opaque) for i in found]


@pytest.mark.parametrize(
    "spelled",
    [ODD, HloSharding.parse(ODD), np.array([[2], [0], [1]]), [ODD]],
    ids=["text", "sharding", "devices", "tree"],
)
def test_every_spelling_gives_the_same_mark(spelled: Any) -> None:
    module = trace(lambda x: with_sharding([x * 2], spelled))(X)
    assert marks(module) == [(ODD, "")]
    assert module.num_partitions == 3


def test_one_more_dim_of_devices_means_copies() -> None:
    module = trace(lambda x: with_sharding(x, np.arange(4).reshape(2, 1, 2)))(X)
    assert marks(module) == [("{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}", "")]


def test_specs_go_to_jax_and_none_is_nothing(mesh_2x4: Mesh) -> None:
    def f(x: Any) -> Any:
        return with_sharding((x + 1, x * 2, x), (P("data"), NamedSharding(mesh_2x4, P(None, "model")), None))

    assert [m[0] for m in marks(trace(f, mesh=mesh_2x4)(X))] == [
        "{devices=[2,1,4]<=[8] last_tile_dim_replicate}",
        "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
    ]


def test_a_tuple_sharding_is_spread_over_the_leaves() -> None:
    module = trace(lambda x: with_sharding((x, x), HloSharding.parse(f"{{{ODD}, {{replicated}}}}")))(X)
    assert [m[0] for m in marks(module)] == [ODD, "{replicated}"]


def test_gradients_are_marked_as_their_values() -> None:
    def loss(x: Any) -> Any:
        return jnp.sum(with_sharding(jnp.sin(x), ODD) ** 2)

    assert marks(trace(jax.grad(loss))(X)) == [(ODD, ""), (ODD, "")]
    x = np.linspace(0, 1, 16, dtype=np.float32).reshape(4, 4)
    np.testing.assert_allclose(jax.grad(loss)(x), 2 * np.sin(x) * np.cos(x), rtol=1e-6)
    assert marks(trace(jax.hessian(lambda x: loss(x * jnp.ones((4, 4)))))(jax.ShapeDtypeStruct((), jnp.float32)))


def test_a_batched_dim_is_inserted_and_left_open() -> None:
    f = lambda x: with_sharding(x, ODD)  # noqa: E731
    batch = jax.ShapeDtypeStruct((5, 4, 4), jnp.float32)
    assert marks(trace(jax.vmap(f))(batch)) == [("{devices=[1,3,1]2,0,1}", "unspecified_dims=[0]")]
    last = jax.ShapeDtypeStruct((4, 4, 5), jnp.float32)
    assert marks(trace(jax.vmap(f, in_axes=2))(last)) == [("{devices=[3,1,1]2,0,1}", "unspecified_dims=[2]")]
    twice = jax.ShapeDtypeStruct((6, 5, 4, 4), jnp.float32)
    assert marks(trace(jax.vmap(jax.vmap(f)))(twice)) == [("{devices=[1,1,3,1]2,0,1}", "unspecified_dims=[0,1]")]


def test_marks_stand_inside_loops_and_branches() -> None:
    def f(x: Any) -> Any:
        x, _ = jax.lax.scan(lambda c, _: (with_sharding(jnp.sin(c), ODD), None), x, None, length=3)
        return jax.lax.cond(x[0, 0] > 0, lambda v: with_sharding(v, ODD), lambda v: v, x)

    module = trace(f)(X)
    assert marks(module) == [(ODD, ""), (ODD, "")]
    assert all(not i.computation.is_entry for i in module.instructions if i.custom_call_target == "Sharding")


def test_elsewhere_marks_change_no_value() -> None:
    x = np.ones((4, 4), np.float32)
    np.testing.assert_array_equal(jax.jit(lambda x: with_sharding(x + 1, ODD))(x), x + 1)
    np.testing.assert_array_equal(jax.vmap(lambda x: with_sharding(x, "{devices=[2]1,0}"))(x), x)
    a, b = jax.jit(shard_alike)(x, x + 1)
    np.testing.assert_array_equal(a + 1, b)


def test_in_plain_jit_a_sharding_that_the_mesh_can_say_has_its_effect(mesh_2x4: Mesh) -> None:
    with jax.set_mesh(mesh_2x4):
        y = jax.jit(lambda x: with_sharding(x + 1, "{devices=[2,4]<=[8]}"))(np.ones((8, 8), np.float32))
        assert y.sharding.is_equivalent_to(NamedSharding(mesh_2x4, P("data", "model")), 2)
        jax.jit(lambda x: with_sharding(x + 1, ODD))(np.ones((8, 8), np.float32))


def test_alike_values_share_a_group_of_their_own() -> None:
    def f(x: Any, y: Any) -> Any:
        a, b = shard_alike(x * 2, y)
        c, d = shard_alike({"k": a + 1}, {"k": b})
        return c, d

    groups = [m[0] for m in marks(trace(f)(X, X))]
    assert len(groups) == 4
    assert len(set(groups)) == 2
    assert all(g.startswith("{unknown shard_as ") for g in groups)


def test_alike_under_grad_and_vmap() -> None:
    def loss(x: Any, y: Any) -> Any:
        a, b = shard_alike(x, y)
        return jnp.sum(a * b)

    assert len(marks(trace(jax.grad(loss, argnums=(0, 1)))(X, X))) == 4
    batch = jax.ShapeDtypeStruct((5, 4, 4), jnp.float32)
    module = trace(jax.vmap(shard_alike, in_axes=(0, None)))(batch, X)
    assert {str(i.shape) for i in module.instructions if i.custom_call_target == "Sharding"} == {"f32[5,4,4]"}


@pytest.mark.parametrize(
    ("sharding", "message"),
    [
        ("{oops}", "unknown word"),
        ("{devices=[2]<=[2]}", "splits 1 dims"),
        (np.arange(16).reshape(2, 2, 2, 2), "splits 4 dims"),
    ],
)
def test_what_does_not_fit_is_an_error(sharding: Any, message: str) -> None:
    with pytest.raises(AnnotationError, match=message):
        jax.jit(lambda x: with_sharding(x, sharding))(np.ones((4, 4)))


def test_unlike_shapes_and_structures_cannot_be_alike() -> None:
    with pytest.raises(AnnotationError, match="equal shapes"):
        shard_alike(np.ones(3), np.ones(4))
    with pytest.raises(AnnotationError, match="equal structures"):
        shard_alike(np.ones(3), (np.ones(3),))


@pytest.mark.parametrize("text", ["{devices=[2,4]3,1,0,2,7,5,4,6}", "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"])
def test_outside_of_a_trace_an_array_is_laid_out(text: str) -> None:
    x, sharding = np.arange(64.0).reshape(8, 8), HloSharding.parse(text)
    placed = with_sharding(x, text)
    assert np.array_equal(placed, x)
    devices = jax.devices()
    for shard in placed.addressable_shards:
        offset = sharding.tile_offset((8, 8), devices.index(shard.device))
        assert tuple(s.start or 0 for s in shard.index) == tuple(offset)


def test_outside_of_a_trace_uneven_tiles_stay_whole() -> None:
    x = np.arange(5.0)
    assert with_sharding(x, "{devices=[8]<=[8]}") is x
    assert with_sharding(np.arange(5.0), "{maximal device=3}").devices() == {jax.devices()[3]}
