"""`prepare` against the live compiler: the module that XLA hands to its sharding propagation, to the letter.

Names, operands, attributes, shardings, op names and Python frames of every instruction must agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from hlosharding import xla_bridge
from hlosharding.frontends import prepare
from hlosharding.frontends.hlo.text_and_proto import from_hlo_proto, from_hlo_text
from hlosharding.ir import Instruction, Module

pytestmark = pytest.mark.oracle

P = PartitionSpec
F = jnp.float32


def struct(*shape: int, dtype: Any = F) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


X = struct(16, 16)
EMPTY = struct(0, 16)
STACK = struct(3, 16, 16)


def live(lowered: Any, folder: Path) -> Module:
    """XLA's own module just before sharding propagation."""
    dump = {"xla_dump_to": str(folder), "xla_dump_hlo_pass_re": "sharding-propagation", "xla_dump_hlo_as_text": True}
    with xla_bridge.shardy(False):
        lowered.compile(compiler_options=dump)
    (path,) = folder.glob("*before_sharding-propagation*")
    return from_hlo_text(path.read_text())


def lines(module: Module) -> dict[str, list[str]]:
    """What jaxlib prints of each computation, less the numbers of frames and the names of tuple elements."""
    text = module.to_hlo_text(metadata=True)
    # Newer versions print elements under names made of the tuple's, without metadata.
    elements = {f"%{i.name}": i for i in module.instructions if i.opcode == "get-tuple-element"}
    text = re.sub(r"(get-tuple-element\(.*, index=\d+).*", r"\1", text)

    def renamed(match: re.Match[str]) -> str:
        i = elements.get(match[0])
        return match[0] if i is None else f"{renamed_name(i.operands[0])}#{i.tuple_index}"

    def renamed_name(i: Instruction) -> str:
        return f"{renamed_name(i.operands[0])}#{i.tuple_index}" if f"%{i.name}" in elements else f"%{i.name}"

    text = re.sub(r"%[\w.\-]+", renamed, text)
    text = re.sub(r" ?stack_frame_id=\d+|, metadata=\{\}", "", text)
    blocks = re.findall(r"^(?:ENTRY )?%([\w.\-]+) \(.*?\{\n(.*?)^\}", text, re.DOTALL | re.MULTILINE)
    return {name: [re.sub(r", metadata=\{\}", "", line) for line in body.splitlines()] for name, body in blocks}


def frames(module: Module) -> dict[str, Any]:
    return {i.name: i.frames for i in module.instructions if i.opcode != "get-tuple-element"}


def scan(params: Any, x: Any, mesh: Mesh) -> Any:
    def body(c: Any, w: Any) -> tuple[Any, Any]:
        c = jax.nn.gelu(c @ w)
        c = jax.lax.with_sharding_constraint(c, NamedSharding(mesh, P("data", "model")))
        return c, c.sum()

    return jax.lax.scan(body, x, params)


def everything(params: Any, x: Any, empty: Any, mesh: Mesh) -> Any:
    c, s = scan(params, x, mesh)
    c = jax.nn.softmax(c)
    c = jax.lax.cond(c.sum() > 0, jnp.sin, jnp.cos, c)
    y = jnp.concatenate([jnp.sort(c, axis=0), empty], 0)
    z = jax.shard_map(lambda v: jax.lax.psum(v, "data"), mesh=mesh, in_specs=P("data"), out_specs=P())(y)
    return jnp.var(y) + s.sum() + z.sum() + jax.random.uniform(jax.random.key(0), (4, 4)).sum()


def branch(x: Any, y: Any) -> Any:
    return jax.lax.cond(x[0, 0] > 0, jax.nn.relu, jax.nn.softmax, y)


def rows(x: Any) -> Any:
    each = lambda r: jnp.linalg.norm(jax.nn.softmax(r))  # noqa: E731
    return jax.lax.map(each, x), jax.lax.map(each, x + 1)


def convolution(x: Any, k: Any) -> Any:
    return jax.grad(lambda x, k: (jax.lax.conv(x, k, (1, 1), "SAME") ** 2).sum(), argnums=(0, 1))(x, k)


def embedding(table: Any, ids: Any) -> Any:
    return jax.grad(lambda t: (jnp.take(t, ids, axis=0) ** 2).sum())(table)


def recomputed(x: Any, y: Any) -> Any:
    return jax.grad(lambda x: jax.checkpoint(lambda x: jnp.sin(jax.nn.relu(x) @ y))(x).sum())(x)


def until(x: Any) -> Any:
    return jax.vmap(lambda x: jax.lax.while_loop(lambda c: c.sum() < 10, lambda c: jax.nn.relu(c) + 1, x))(x)


def switch(i: Any, x: Any) -> Any:
    return jax.lax.switch(i, [jax.nn.relu, jax.nn.relu, jax.nn.gelu], x)


def twice(x: Any) -> Any:
    """A function with a branch, and one with a loop around a branch, each called twice."""
    within = jax.jit(lambda x: jax.lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x))
    around = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda i, c: within(c) * i, x))
    return within(x) + within(x * 2), around(around(x))


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...], Any]] = {
    "add": (lambda x: x + 1, (X,), (P("data"),), None),
    "call": (lambda x, y: (jax.nn.relu(x) @ y, x), (X, X), (P("data"), None), (P("model"), None)),
    "dead copies of outputs": (lambda x, y: (x @ y, x), (X, X), (P("data"), None), (P("model"), None)),
    "everything": (everything, (STACK, X, EMPTY), (P(None, "data", "model"), P(), P()), None),
    "its gradient": (None, (STACK, X, EMPTY), (P(None, "data", "model"), P(), P()), None),  # type: ignore[dict-item]
    "cond": (branch, (X, X), (P("data"), None), None),
    "switch": (switch, (struct(dtype=jnp.int32), X), (None, P("data")), None),
    "branches in what is called twice": (twice, (X,), (P("data"),), None),
    "empty": (lambda x, y: (jnp.concatenate([x, y]), y.sum(0), jnp.zeros((0, 3))), (X, EMPTY), (P("data"), None), None),
    "solve": (lambda x, y: (jnp.linalg.solve(x, y), jax.lax.top_k(x, 3)), (X, X), (P("data"), None), None),
    "while": (until, (X,), (P("data"),), None),
    "map": (rows, (X,), (P("data"),), None),
    "conv": (convolution, (struct(4, 3, 8, 8), struct(5, 3, 3, 3)), (P("data"), None), None),
    "embedding": (embedding, (struct(32, 8), struct(5, dtype=jnp.int32)), (P("data"), None), None),
    "remat": (recomputed, (X, X), (P("data"), None), None),
}


@pytest.mark.parametrize("case", CASES)
def test_prepare_gives_what_xla_propagates_on(case: str, mesh_2x4: Mesh, tmp_path: Path) -> None:
    fn, args, specs, out_specs = CASES[case]
    if case == "everything":
        fn = lambda *a: everything(*a, mesh=mesh_2x4)  # noqa: E731
    elif case == "its gradient":
        fn = jax.grad(lambda *a: everything(*a, mesh=mesh_2x4))
    named = tuple(None if s is None else NamedSharding(mesh_2x4, s) for s in specs)
    options: dict[str, Any] = {"in_shardings": named, "keep_unused": True}
    if out_specs is not None:
        options["out_shardings"] = tuple(None if s is None else NamedSharding(mesh_2x4, s) for s in out_specs)
    with xla_bridge.shardy(False):
        lowered = jax.jit(fn, **options).lower(*args)
    ours, theirs = prepare(from_hlo_proto(xla_bridge.lowered_to_hlo_proto(lowered))), live(lowered, tmp_path)
    assert lines(ours) == lines(theirs)
    assert frames(ours) == frames(theirs)
