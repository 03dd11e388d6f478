"""`hs.no_communication`: which collectives break a region, and what the error says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.cli import main
from hlosharding.errors import PartitionError

MESH = AbstractMesh((2, 4), ("data", "model"))
X, W = jax.ShapeDtypeStruct((64, 128), jnp.float32), jax.ShapeDtypeStruct((128, 128), jnp.float32)
ROWS, COLUMNS = P("data"), P(None, "model")


def partitioned(function: Callable[..., Any], *shardings: Any, arrays: Any = (X, W)) -> hs.Partitioned:
    return hs.partition(hs.trace(function, mesh=MESH, in_shardings=shardings)(*arrays))


def silent(x: Any, w: Any) -> Any:
    with hs.no_communication():
        return jnp.tanh(x @ w)


@hs.no_communication()
def decorated(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w)


@jax.jit
def inner(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w)


def of_a_jit(x: Any, w: Any) -> Any:
    outside = inner(x, w)
    with hs.no_communication():
        return inner(outside, w)


def scanned(x: Any, w: Any) -> Any:
    def layer(x: Any, _: Any) -> Any:
        return silent(x, w), None

    return jax.lax.scan(layer, x, None, length=3)[0]


def mapped(x: Any, w: Any) -> Any:
    return jax.vmap(lambda row: silent(row[None], w)[0])(x)


def checkpointed(x: Any, w: Any) -> Any:
    return jax.checkpoint(silent)(x, w)


def branched(x: Any, w: Any) -> Any:
    return jax.lax.cond(x[0, 0] > 0, silent, lambda x, w: x, x, w)


FUNCTIONS = [silent, decorated, scanned, mapped, checkpointed, branched]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_contraction_that_is_split_breaks_it(function: Any) -> None:
    assert all("no_communication" not in c.op_name for c in partitioned(function, ROWS, P()).collectives)
    with pytest.raises(PartitionError, match=r"where hs\.no_communication\(\) allows none"):
        partitioned(function, P(None, "model"), P("model"))


def test_what_the_region_does_not_hold_may_communicate() -> None:
    def loss(x: Any, w: Any) -> Any:
        return silent(x, w).sum()

    assert [c.kind for c in partitioned(loss, ROWS, P()).collectives] == ["all-reduce"]


def test_work_is_not_spread_where_that_would_communicate() -> None:
    """Four devices compute the same rows: to divide these and gather is faster, and not allowed in the region."""
    large = [jax.ShapeDtypeStruct((8192, 8192), jnp.bfloat16)] * 2
    free = partitioned(lambda x, w: jnp.tanh(x @ w), ROWS, P(), arrays=large)
    assert [c.kind for c in free.collectives] == ["all-gather"]
    assert partitioned(silent, ROWS, P(), arrays=large).collectives == []


def test_a_jitted_function_is_meant_where_it_is_called() -> None:
    def outside_alone(x: Any, w: Any) -> Any:
        made = inner(x, w)
        with hs.no_communication():
            return made + 1

    split = P(None, "model"), P("model")
    assert partitioned(outside_alone, *split).collectives
    with pytest.raises(PartitionError):
        partitioned(of_a_jit, *split)


def test_the_error_names_line_bytes_and_both_annotations() -> None:
    with pytest.raises(PartitionError) as raised:
        partitioned(silent, P(None, "model"), P("model"))
    told = str(raised.value)
    number, line = silent.__code__.co_firstlineno + 2, "test_silent_regions.py"
    assert f"at {line}:{number}" in told
    [found] = partitioned(lambda x, w: jnp.tanh(x @ w), P(None, "model"), P("model")).collectives[:1]
    assert f"{found.bytes_per_device:,.0f} bytes" in told
    assert "add of partial results" in told
    assert "operand 0 lies as it does because of %x.1 (parameter at x) P(None, 'model')" in told
    assert "operand 1 lies as it does because of %w.1 (parameter at w) P('model', None)" in told


def test_a_collective_of_the_users_own_breaks_it() -> None:
    def summed(x: Any) -> Any:
        return jax.shard_map(lambda x: jax.lax.psum(x, "model"), mesh=MESH, in_specs=P(None, "model"), out_specs=P())(x)

    assert partitioned(summed, P(None, "model"), arrays=(X,)).collectives
    with pytest.raises(PartitionError, match="1 collective,"):
        partitioned(hs.no_communication()(summed), P(None, "model"), arrays=(X,))


def gradient(function: Any) -> Any:
    return jax.grad(lambda x, w: function(x, w).sum(), argnums=1)


def test_gradients_of_a_region_are_meant_where_that_is_said() -> None:
    def strict(x: Any, w: Any) -> Any:
        with hs.no_communication(gradients=True):
            return jnp.tanh(x @ w)

    found = partitioned(gradient(silent), ROWS, P()).collectives  # the gradient of the weights is a sum over the batch
    assert [c.kind for c in found] == ["all-reduce"]
    with pytest.raises(PartitionError, match="all-reduce"):
        partitioned(gradient(strict), ROWS, P())


def test_a_gradient_inside_of_the_region_is_of_it() -> None:
    with pytest.raises(PartitionError):
        partitioned(hs.no_communication()(gradient(lambda x, w: jnp.tanh(x @ w))), ROWS, P())


def test_it_holds_for_calls_and_has_no_effect_in_jax() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
    x, w = jnp.ones((8, 16)), jnp.ones((16, 16))
    shardings = [jax.sharding.NamedSharding(mesh, spec) for spec in (P(None, "model"), P("model"))]
    with pytest.raises(PartitionError):
        hs.jit(silent, in_shardings=shardings)(x, w)
    jax.jit(silent, in_shardings=shardings)(x, w)


def test_it_holds_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = tmp_path / "silent.hlo"
    module = hs.trace(silent, mesh=MESH, in_shardings=(P(None, "model"), P("model")))(X, W)
    dump.write_text(module.to_hlo_text(metadata=True))
    assert main(["partition", str(dump)]) == 1
    assert "where hs.no_communication() allows none" in capsys.readouterr().err
