"""Functions under JAX's `custom_partitioning` are partitioned as what they compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.errors import ExecutionError

X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)


def with_rule(function: Callable[..., jax.Array], rule: str, whole: tuple[str, ...]) -> Any:
    """The function, with a rule string and the callbacks that GSPMD asks for."""
    made = custom_partitioning(function)

    def first(mesh: Any, arguments: Any, result: Any) -> Any:
        return NamedSharding(mesh, P(*arguments[0].sharding.spec[:1], None))

    def partition(mesh: Any, arguments: Any, result: Any) -> Any:
        rows, rest = NamedSharding(mesh, P("data", None)), NamedSharding(mesh, P(None, None))
        return mesh, function, rows, (rows, *[rest] * (len(arguments) - 1))

    made.def_partition(
        partition=partition, infer_sharding_from_operands=first, sharding_rule=rule, need_replication_factors=whole
    )
    return made


product = with_rule(lambda x, w: jnp.einsum("ij,jk->ik", x, w), "i j, j k -> i k", ("j",))
softmax = with_rule(lambda x: jax.nn.softmax(x, -1), "b n -> b n", ("n",))


def both(x: jax.Array, w: jax.Array) -> jax.Array:
    return softmax(product(x * 2, w) + 1).sum(0)


@pytest.mark.parametrize("specs", [(P("data"), P()), (P("data", "model"), P("model")), (P(None, "data"), P())])
def test_rule_strings_do_not_stand_in_the_way(mesh_2x4: Mesh, specs: tuple[P, P]) -> None:
    stage = hs.jit(both, mesh=mesh_2x4, in_shardings=specs).trace(X, X.T).propagate().partition()
    assert not stage.partitioned.warnings
    want = jax.nn.softmax(2 * X @ X.T + 1, -1).sum(0)
    np.testing.assert_allclose(stage.partitioned.run(X, X.T), want, rtol=1e-5)


def test_jax_itself_lowers_them_as_before(mesh_2x4: Mesh) -> None:
    hs.trace(both, mesh=mesh_2x4)(X, X)
    rows = NamedSharding(mesh_2x4, P("data"))
    lowered = jax.jit(both, in_shardings=(rows, None)).lower(X, X)
    assert "CustomSPMDPartitioning" in lowered.as_text()
    with pytest.raises(ExecutionError, match=r"only XLA's own partitioner.*trace the function"):
        hs.partition(hs.load(lowered)).run(X, X)
