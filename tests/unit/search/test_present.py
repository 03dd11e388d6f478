"""Found plans beside what the user annotated: the same plan has the same price and no difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.cost import machines
from hlosharding.search import Plan, Present, PricedPlan, SearchResult, argument_path

PAIR = tuple(jax.ShapeDtypeStruct(dims, jnp.bfloat16) for dims in ((1024, 4096), (4096, 1024)))
ROWS = jax.ShapeDtypeStruct((2048, 1024), jnp.bfloat16)


def step_with(constrain: Callable[[jax.Array], jax.Array]) -> Callable[..., Any]:
    """Two layers and their gradients; `constrain`: what is said of hidden values."""

    def step(weights: Any, x: jax.Array) -> Any:
        def loss(weights: Any) -> jax.Array:
            h = x
            for up, down in weights:
                h = h + constrain(jnp.tanh(h @ up)) @ down
            return jnp.mean(h**2)

        return jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(loss)(weights))

    return step


def found(tensor: str, plan: str, *, weights: Any = None, count: int = 8) -> SearchResult:
    """A program annotated as Megatron splits it, on a mesh of 2 x 4 devices whose second axis is called so."""
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", tensor))
    step = step_with(lambda x: jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("data", tensor))))
    specs = [(P(None, tensor), P(tensor))] * 2 if weights is None else weights
    module = hs.trace(step, mesh=mesh, in_shardings=(specs, P("data")))([PAIR] * 2, ROWS)
    return hs.search(module, batch=["x"], machine=machines.h100(count), plans=[Plan.parse(plan)], donate=["weights"])


def beside(*args: Any, **more: Any) -> Present:
    present = found(*args, **more).present
    assert present is not None
    return present


@pytest.mark.parametrize("tensor", ["tensor", "model"])
def test_the_plan_that_the_user_wrote_has_the_price_of_his_program(tensor: str) -> None:
    """Whatever his axes are called."""
    present = beside(tensor, "2/4/1/1")
    assert not isinstance(present.priced, str)
    assert present.priced.time_s == pytest.approx(present.found.time_s, rel=1e-9)
    assert present.priced.peak_memory_bytes == present.found.peak_memory_bytes
    assert [change.value.opcode for change in present.changes if change.value.opcode == "parameter"] == []


def test_each_argument_that_lies_otherwise_is_named_and_each_constraint_once() -> None:
    present = beside("tensor", "4/2/1/1")
    arguments = [argument_path(change.value) for change in present.changes if change.value.opcode == "parameter"]
    assert arguments == [f"weights[{layer}][{at}]" for layer in (0, 1) for at in (0, 1)] + ["x"]
    assert len(present.changes) == len(arguments) + 2  # the hidden values of two layers, their gradients not
    assert f"{len(present.changes)} annotations differ from 4/2/1/1" in str(present)


def test_of_stages_how_often_dims_are_split_is_compared() -> None:
    present = beside("tensor", "1/4/2/2")
    assert [argument_path(change.value) for change in present.changes if change.value.opcode == "parameter"] == ["x"]


def test_a_plan_file_speaks_as_annotations_do() -> None:
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))
    plan = hs.PlanFile.of(
        {"weights[0][0]": "P(None, 'model')", "weights[0][1]": "P('model')", "x": "P('data')"}, mesh=mesh
    )
    module = plan.apply(hs.trace(step_with(lambda x: x))([PAIR], ROWS))
    result = hs.search(module, batch=["x"], machine=machines.h100(8), plans=[Plan(2, 4)])
    assert result.present is not None
    assert result.present.changes == ()
    assert isinstance(result.present.priced, PricedPlan)
    assert result.present.priced.time_s == pytest.approx(result.table[0].time_s, rel=1e-9)


def test_a_faster_program_of_the_user_is_said_to_be_so() -> None:
    slow, fast = beside("tensor", "1/1/8/2"), beside("tensor", "2/4/1/1")
    assert "no plan here is as fast" in str(slow)
    assert "no plan here is as fast" not in str(fast)


def test_a_program_without_annotations_has_none() -> None:
    bare = hs.search(step_with(lambda x: x), [PAIR], ROWS, batch=["x"], machine=machines.h100(2), plans=[Plan(2)])
    assert bare.present is None
    assert "annotated" not in bare.explain()


def test_a_machine_that_is_too_small_for_it_is_said_to_be_so() -> None:
    present = beside("tensor", "2/2/1/1", count=4)
    assert str(present).startswith("as annotated today it has no price: there is no device 7 in h100(4)")
