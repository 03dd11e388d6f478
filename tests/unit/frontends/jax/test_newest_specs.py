"""What specs and lowerings of the newest JAX say: run wherever a JAX has it, and judged by its own `jax.jit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs

MESH = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("a", "b"), axis_types=(AxisType.Explicit,) * 2)
X = np.arange(32, dtype=np.float32).reshape(8, 4) - 16

KINDS = getattr(jax.sharding, "UnreducedKind", None)
has_kinds = pytest.mark.skipif(KINDS is None, reason="this JAX has partial sums alone")


def laid_out(spec: P) -> Any:
    return jax.device_put(X, NamedSharding(MESH, spec))


def partial(kind: str) -> P:
    return P("b", unreduced={"a"}, unreduced_kind=getattr(KINDS, kind))


def extreme(kind: str) -> Callable[[Any], Any]:
    """Of each column, in pieces."""
    reduce = getattr(jax.lax, f"reduce_{kind}")
    return lambda x: reduce(x, axes=(0,), out_sharding=partial(kind))


@has_kinds
@pytest.mark.parametrize("kind", ["max", "min"])
def test_pieces_of_an_extreme_are_combined(kind: str) -> None:
    with jax.set_mesh(MESH):
        step = hs.jit(lambda x: jax.reshard(2 * jax.reshard(extreme(kind)(x), P("b")), P("b")))
        np.testing.assert_array_equal(step(laid_out(P("a", "b"))), 2 * getattr(X, kind)(axis=0))


@has_kinds
@pytest.mark.parametrize("kind", ["max", "min", "sum"])
def test_pieces_of_an_extreme_come_and_go_as_jaxs(kind: str) -> None:
    with jax.set_mesh(MESH):
        pieces, ours = jax.jit(extreme(kind))(laid_out(P("a", "b"))), hs.jit(extreme(kind))(laid_out(P("a", "b")))
        assert jax.typeof(ours) == jax.typeof(pieces)
        assert ours.sharding == pieces.sharding
        want = getattr(X, kind)(axis=0)
        whole = hs.jit(lambda x: jax.reshard(x, P("b")))
        for found in (jax.jit(lambda x: jax.reshard(x, P("b")))(ours), whole(pieces), whole(ours)):
            np.testing.assert_array_equal(found, want)
        compiled = whole.lower(pieces).compile()
        np.testing.assert_array_equal(compiled(pieces), want)
        for _ in range(2):
            again = hs.jit(lambda x: x, in_shardings=NamedSharding(MESH, partial(kind)))(pieces)
            np.testing.assert_array_equal(jax.reshard(again, P("b")), want)


@has_kinds
def test_hlo_knows_partial_sums_alone() -> None:
    with pytest.raises(hs.ShardingError, match="partial by max; HLO knows partial sums alone"):
        hs.HloSharding.from_jax(NamedSharding(MESH, partial("max")), 1)
    assert hs.HloSharding.from_jax(NamedSharding(MESH, partial("sum")), 1).is_unreduced_subgroup()


@has_kinds
def test_an_extreme_that_leaves_a_region_in_pieces_is_refused() -> None:
    with jax.set_mesh(MESH):
        region = jax.shard_map(lambda x: x, in_specs=partial("max"), out_specs=partial("max"))
        pieces = jax.jit(extreme("max"))(laid_out(P("a", "b")))
        with pytest.raises(hs.LoadError, match="what leaves a region is partial by max"):
            hs.jit(region)(pieces)
        combined = jax.shard_map(
            lambda x: jax.lax.psum(x, "b"), in_specs=P("a", "b"), out_specs=P("a"), axis_names={"a", "b"}
        )
        np.testing.assert_array_equal(hs.jit(combined)(laid_out(P("a", "b"))), X[:, :2] + X[:, 2:])


@pytest.mark.parametrize("jit", [hs.jit, jax.jit])
def test_reduced_arguments_have_gradients_in_pieces(jit: Callable[..., Any]) -> None:
    with jax.set_mesh(MESH):
        weights = jax.device_put(X[:4], NamedSharding(MESH, P(None, "b", reduced={"a"})))
        gradient = jit(jax.grad(lambda w, x: (x @ w).sum()))(weights, laid_out(P("a")))
        assert gradient.sharding.spec.unreduced == {"a"}
        np.testing.assert_array_equal(jax.reshard(gradient, P(None, "b")), X.T @ np.ones((8, 4)))


def has_groups_of_axes() -> bool:
    from jax._src import config

    return hasattr(config, "use_rgv3")


REGIONS: dict[str, tuple[Callable[[Any], Any], P, P]] = {
    "all-reduce": (lambda x: jax.lax.psum(x, "a"), P("a", "b"), P(None, "b")),
    "of two axes": (lambda x: jax.lax.psum(x, ("b", "a")), P("a", "b"), P()),
    "all-gather": (lambda x: jax.lax.all_gather(x, ("a", "b"), tiled=True), P(("a", "b")), P()),
    "reduce-scatter": (lambda x: jax.lax.psum_scatter(x, "b", tiled=True), P("a"), P(("a", "b"))),
    "all-to-all": (lambda x: jax.lax.all_to_all(x, "b", 1, 0, tiled=True), P("a"), P(("a", "b"))),
}


@pytest.mark.skipif(not has_groups_of_axes(), reason="this JAX names devices alone")
@pytest.mark.parametrize("case", REGIONS)
def test_replica_groups_that_name_mesh_axes(case: str) -> None:
    from jax._src import config

    body, takes, gives = REGIONS[case]
    with jax.set_mesh(MESH), config.use_rgv3(True):
        region = jax.shard_map(body, in_specs=takes, out_specs=gives, check_vma=False)
        lowered = jax.jit(region).lower(laid_out(takes))
        assert "replica_group_mesh_axes" in lowered.as_text()
        found = hs.jit(region)(laid_out(takes))
        np.testing.assert_array_equal(found, jax.jit(region)(laid_out(takes)))
        assert [c.kind for c in hs.partition(hs.load(lowered)).collectives] == [
            c.kind for c in hs.partition(hs.trace(region)(laid_out(takes))).collectives
        ]


@pytest.mark.skipif(not hasattr(jax, "get_mesh"), reason="this JAX has jax.set_mesh alone")
def test_the_mesh_that_was_set() -> None:
    with jax.set_mesh(MESH):
        assert jax.get_mesh() == MESH
        for said in ({}, {"mesh": jax.get_mesh(), "in_shardings": P("a")}):
            found = hs.jit(lambda x: 2 * x, **said)(X)
            np.testing.assert_array_equal(found, 2 * X)
            assert found.sharding.mesh == MESH
        assert hs.trace(lambda x: 2 * x)(X).num_partitions == 4
