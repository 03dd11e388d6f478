"""Logical axis rules: what Flax's own function gives where nothing clashes, and an error where it goes by order."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax.linen.spmd import logical_to_mesh_sharding
from jax.sharding import AbstractMesh, Mesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.errors import AnnotationError

MESH: Any = AbstractMesh((4, 2, 1), ("data", "model", "fsdp"))
RULES = [("batch", ("data", "fsdp")), ("embed", None), ("mlp", "model"), ("heads", "model"), ("length", "data")]


@pytest.mark.parametrize(
    "spec",
    [P("batch", None), P("embed", "mlp"), P("length", "embed"), P(), P("unknown", "heads"), P(None, "batch", "mlp")],
)
def test_what_does_not_clash_is_as_flax_has_it(spec: P) -> None:
    ours = hs.logical_to_mesh_sharding(spec, MESH, RULES)
    theirs: Any = logical_to_mesh_sharding(spec, MESH, RULES)
    assert ours.is_equivalent_to(theirs, len(spec))


def test_flax_makes_a_dim_whole_where_two_claim_an_axis() -> None:
    theirs: Any = logical_to_mesh_sharding(P("batch", "length"), MESH, RULES)
    assert theirs.spec == P(("data", "fsdp"), None)


def test_axes_of_size_1_clash_with_nothing() -> None:
    rules = [("batch", ("data", "fsdp")), ("embed", ("fsdp",))]
    assert hs.logical_to_mesh_sharding(P("batch", "embed"), MESH, rules).spec == P("data", None)


def test_rules_as_maxtext_writes_them() -> None:
    """Its lists have two rules for a name; on most meshes they say the same."""
    rules = [["embed", ["fsdp", "model"]], ["embed", ["model"]], ["norm", []], ["mlp", ["data"]]]
    found = hs.logical_to_mesh_sharding([P("embed", "mlp"), P("norm")], MESH, rules)
    assert [s.spec for s in found] == [P("model", "data"), P(None)]


@pytest.mark.parametrize(
    ("spec", "rules", "message"),
    [
        (
            P("batch", "length"), RULES,
            r"rules \('batch', \('data', 'fsdp'\)\) and \('length', 'data'\) both claim axis 'data'; at \['x'\] P",
        ),
        (P("mlp", "mlp"), RULES, r"the rules \('mlp', 'model'\) and \('mlp', 'model'\) both claim"),
        (
            P("embed"), [("embed", "data"), ("embed", "model")],
            r"the rules \('embed', 'data'\) and \('embed', 'model'\) give 'embed' two answers; at \['x'\] P",
        ),
        (P("embed"), [("embed", "model"), ("embed", None)], "two answers"),
        (P("embed"), [("embed", "modle")], r"names 'modle', and the mesh has no such axis; it has model"),
        (P("embed"), [("embed", 3)], r"\('embed', 3\) is no rule"),
        (P("embed"), ["embed"], "'embed' is no rule"),
        ("embed", RULES, "names no logical axes"),
    ],
)  # fmt: skip
def test_what_clashes_is_an_error_that_says_both(spec: Any, rules: Any, message: str) -> None:
    with pytest.raises(AnnotationError, match=message):
        hs.logical_to_mesh_sharding({"x": spec}, MESH, rules)


def test_rules_that_clash_where_no_array_asks_are_no_error() -> None:
    assert hs.logical_to_mesh_sharding(P("mlp"), MESH, [*RULES, ("embed", "data")]).spec == P("model")


class Block(nn.Module):
    """A perceptron whose parameters have logical names."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        names = [("embed", "mlp"), ("mlp", "embed")]
        up, down = (nn.with_logical_partitioning(nn.initializers.lecun_normal(), each) for each in names)
        return nn.Dense(16, kernel_init=down)(nn.relu(nn.Dense(64, kernel_init=up)(x)))


def test_a_flax_model_is_sharded_by_its_names() -> None:
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2, 1), MESH.axis_names)
    model, x = Block(), np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)
    variables = model.init(jax.random.key(0), x)
    shardings = hs.logical_to_mesh_sharding(nn.get_partition_spec(variables), mesh, RULES)
    batch = hs.logical_to_mesh_sharding(P("batch"), mesh, RULES)
    plain = nn.unbox(variables)
    apply = hs.jit(model.apply, in_shardings=(shardings, batch))
    expected: Any = model.apply(plain, x)
    assert jnp.allclose(apply(plain, x), expected, atol=1e-5)
    [found] = apply.trace(plain, x).propagate().partition().partitioned.collectives
    assert (found.kind, found.axes) == ("all-reduce", "model")


def test_annotations_by_name_take_them() -> None:
    module = hs.trace(lambda x, w: x @ w)(jnp.ones((8, 4)), jnp.ones((4, 2)))
    shardings = hs.logical_to_mesh_sharding({"x": P("batch"), "w": P("embed", "mlp")}, MESH, RULES)
    found = hs.annotate(module, shardings, mesh=MESH)
    assert [str(found.sharding(p)) for p in found.entry.parameters] == [
        "{devices=[4,1,2]<=[8] last_tile_dim_replicate}",
        "{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}",
    ]
