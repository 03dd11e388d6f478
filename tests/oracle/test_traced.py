"""From a JAX function to its shardings: `load` and `propagate` against the live compile of the same lowering.

Matched by name: `prepare` names instructions as XLA's pipeline does (tests/oracle/test_prepare.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from hlosharding import xla_bridge
from hlosharding.frontends import load
from hlosharding.frontends.hlo.text_and_proto import from_hlo_text
from hlosharding.propagation import propagate

pytestmark = pytest.mark.oracle

P = PartitionSpec
WEIGHTS = {"up": P("data", "model"), "down": P("model", "data"), "query": P("data", "model"), "key": P("data", "model")}


def struct(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def layer(p: dict[str, Any], x: Any) -> Any:
    hidden = jax.nn.gelu(x @ p["up"]) @ p["down"]
    query, key = (jnp.reshape(x @ p[name], (8, 64, 4, 32)) for name in ("query", "key"))
    attention = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", query, key))
    x = x + hidden + jnp.einsum("bhts,bshd->bthd", attention, key).reshape(8, 64, 128)
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def loss(layers: list[dict[str, Any]], x: Any) -> Any:
    for p in layers:
        x = layer(p, x)
    return jnp.mean(x**2)


def step(layers: Any, first: Any, second: Any, x: Any) -> Any:
    value, grad = jax.value_and_grad(loss)(layers, x)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grad)
    second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, grad)
    update = lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8)  # noqa: E731
    return value, jax.tree.map(update, layers, first, second), first, second


def rolled(stacked: dict[str, Any], x: Any) -> Any:
    def body(x: Any, p: dict[str, Any]) -> tuple[Any, Any]:
        x = jax.lax.with_sharding_constraint(layer(p, x), P("data"))
        return x, x.sum()

    return jax.value_and_grad(lambda s: jnp.sum(jax.lax.scan(jax.checkpoint(body), x, s)[0]))(stacked)


SHAPES = {"up": struct(128, 512), "down": struct(512, 128), "query": struct(128, 128), "key": struct(128, 128)}
STACK = {name: struct(3, *s.shape) for name, s in SHAPES.items()}
STACKED = {name: P(None, *spec) for name, spec in WEIGHTS.items()}
X = struct(8, 64, 128)
CASES: dict[str, tuple[Any, tuple[Any, ...], tuple[Any, ...]]] = {
    "step, all given": (step, ([SHAPES] * 3,) * 3 + (X,), ([WEIGHTS] * 3,) * 3 + (P("data"),)),
    "step, state open": (step, ([SHAPES] * 2,) * 3 + (X,), ([WEIGHTS] * 2, None, None, P("data"))),
    "step, batch only": (step, ([SHAPES] * 2,) * 3 + (X,), (None, None, None, P("data"))),
    "scan, data": (rolled, (STACK, X), (STACKED, P("data"))),
    "scan, open weights": (rolled, (STACK, X), (None, P("data", "model"))),
}


@pytest.mark.parametrize("dialect", ["gspmd", "shardy"])
@pytest.mark.parametrize("case", CASES)
def test_a_traced_model_is_sharded_as_the_live_compiler_does(
    case: str, dialect: str, mesh_2x4: Mesh, tmp_path: Path
) -> None:
    fn, args, specs = CASES[case]
    is_leaf = lambda s: s is None or isinstance(s, P)  # noqa: E731
    named = jax.tree.map(lambda s: None if s is None else NamedSharding(mesh_2x4, s), specs, is_leaf=is_leaf)
    jitted = jax.jit(fn, in_shardings=named, keep_unused=True)
    with jax.set_mesh(mesh_2x4):
        with xla_bridge.shardy(False):
            lowered = jitted.lower(*args)
            theirs = _live_shardings(lowered, tmp_path)
        with xla_bridge.shardy(dialect == "shardy"):
            module = load(jitted.lower(*args))
    found = propagate(module).shardings
    elements = {i.name for i in module.instructions if i.opcode == "get-tuple-element"}
    ours = {name: None if s is None else str(s) for name, s in found.items() if name not in elements}
    if dialect == "gspmd":
        matched = {name: s for name, s in theirs.items() if name in ours}
        assert {name: ours[name] for name in matched} == matched
        # A `Sharding` call that XLA made a copy of keeps its name with us.
        assert len(theirs) - len(matched) == sum(i.custom_call_target == "Sharding" for i in module.instructions)
    else:
        assert sorted(map(str, ours.values())) == sorted(map(str, theirs.values()))


def _live_shardings(lowered: Any, folder: Path) -> dict[str, str | None]:
    dump = {"xla_dump_to": str(folder), "xla_dump_hlo_pass_re": "sharding-propagation", "xla_dump_hlo_as_text": True}
    lowered.compile(compiler_options=dump)
    (path,) = folder.glob("*after_sharding-propagation*")
    module = from_hlo_text(path.read_text())
    # Newer versions print tuple elements under other names.
    found = {i.name: module.sharding(i) for i in module.instructions if i.opcode != "get-tuple-element"}
    return {name: None if s is None else str(s) for name, s in found.items()}
