"""Our propagation against the XLA in jaxlib, live: JAX programs compiled with GSPMD, which dumps its module before and
after the pass.  Every instruction's sharding must agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from hlosharding import xla_bridge
from hlosharding.frontends import load
from hlosharding.ir import Module
from hlosharding.propagation import propagate
from tests.oracle.oracle_program import by_original_name

pytestmark = pytest.mark.oracle

P = PartitionSpec


def struct(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def dumps(lowered: Any, folder: Path) -> tuple[Module, Module, str]:
    """The modules before and after XLA's pass, and the first line of their text."""
    dump: dict[str, Any] = {"xla_dump_to": str(folder), "xla_dump_hlo_pass_re": "sharding-propagation"}
    # Newer versions leave elements of tuples, and their shardings, out of the text.
    dump |= {"xla_dump_hlo_as_text": True, "xla_dump_hlo_as_proto": True}
    with xla_bridge.shardy(False):
        lowered.compile(compiler_options=dump)
    (text,) = folder.glob("*before_sharding-propagation*.txt")
    (before,) = folder.glob("*before_sharding-propagation*.pb")
    after = list(folder.glob("*after_sharding-propagation*.pb"))
    # A pass that changes nothing leaves no dump.
    modules = [load(path, format="hlo-proto") for path in (before, after[0] if after else before)]
    return modules[0], modules[1], text.read_text().partition("\n")[0]


def options(text: str) -> dict[str, list[bool]]:
    """Which edges XLA may choose, from the head of the module."""

    def vector(name: str) -> list[bool]:
        found = re.search(name + r"=\{([a-z,]*)\}", text.partition("\n")[0])
        return [word == "true" for word in found.group(1).split(",")] if found else [False]

    prefix = "allow_spmd_sharding_propagation_to_"
    return {"to_outputs": vector(prefix + "output"), "to_parameters": vector(prefix + "parameters")}


def shardings(module: Module) -> dict[str, str | None]:
    """Instruction name -> printed sharding, of XLA's own module."""
    found = {i.name: module.sharding(i) for i in module.instructions}
    return {name: None if s is None else str(s) for name, s in found.items()}


def attention(x: Any, w: Any) -> Any:
    q, k, v = jnp.split(x @ w, 3, axis=-1)
    heads = [t.reshape(*t.shape[:2], 4, -1).swapaxes(1, 2) for t in (q, k, v)]
    scores = jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", heads[0], heads[1]))
    return (scores @ heads[2]).swapaxes(1, 2).reshape(*x.shape[:2], -1)


def attention_step(x: Any, w: Any) -> Any:
    return jax.value_and_grad(lambda w: (attention(x, w) ** 2).mean())(w)


def layers(x: Any, ws: Any) -> Any:
    def body(c: Any, w: Any) -> tuple[Any, Any]:
        return jax.nn.gelu(c @ w) + c, c.sum()

    return jax.grad(lambda ws: jax.lax.scan(body, x, ws)[0].sum())(ws)


def convolution(x: Any, k: Any) -> Any:
    return jax.grad(lambda x, k: (jax.lax.conv(x, k, (1, 1), "SAME") ** 2).sum(), argnums=(0, 1))(x, k)


def pooled(x: Any, k: Any) -> Any:
    y = jax.lax.conv(x, k, (2, 2), "SAME")
    return jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def embedding(table: Any, ids: Any) -> Any:
    return jax.grad(lambda t: (jnp.take(t, ids, axis=0) ** 2).sum())(table)


def experts(x: Any, w: Any) -> Any:
    gates = jax.nn.softmax(x @ w[:, 0, :8])
    weight, expert = jax.lax.top_k(gates, 2)
    chosen = jnp.take_along_axis(gates, expert, axis=-1)
    return jnp.einsum("td,edf,te->tf", x, w.swapaxes(0, 1), jax.nn.one_hot(expert[:, 0], 8)) * (weight * chosen).sum()


def sorted_rows(x: Any, ids: Any) -> Any:
    order = jnp.argsort(x, axis=1)
    return jnp.take_along_axis(x, order, axis=1)[::-1], jnp.cumsum(x, axis=0), x.at[ids].add(1.0)


def branches(x: Any, y: Any) -> Any:
    return jax.lax.cond(x[0, 0] > 0, lambda a: a @ a, lambda a: a.T, y) + jax.random.uniform(jax.random.key(0), y.shape)


def updated(x: Any, y: Any) -> Any:
    x = jax.lax.dynamic_update_slice(x, y, (0, 0))
    return jnp.pad(jax.lax.dynamic_slice(x, (1, 0), (4, 16)), ((2, 2), (0, 0))), jnp.concatenate([x, x[:8]], 0)


def matrices(x: Any, y: Any) -> Any:
    definite = x @ x.swapaxes(1, 2) + jnp.eye(x.shape[-1])
    return jnp.linalg.cholesky(definite), jnp.linalg.solve(definite, y), jnp.linalg.eigh(definite)[0]


def diagonal_in_a_branch(x: Any, ids: Any, which: Any) -> Any:
    """The rows of a gather are an iota that the branch is given: what it reads moves in step with them."""
    dims = jax.lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0, 1), start_index_map=(0, 1))

    def taken(x: Any, rows: Any, ids: Any) -> Any:
        return jax.lax.gather(x, jnp.concatenate([rows, ids], 1), dims, (1, 1), mode="promise_in_bounds")

    rows = jax.lax.broadcasted_iota(jnp.int32, ids.shape, 0)
    return jax.lax.switch(which, [taken, lambda x, rows, ids: x[:, 0] + ids[:, 0]], x, rows, ids)


INTS = jnp.int32
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]] = {
    "attention": (attention_step, (struct(4, 16, 32), struct(32, 96)), (P("data"), P(None, "model"))),
    "layers": (layers, (struct(8, 16), struct(3, 16, 16)), (P("data"), P(None, None, "model"))),
    "convolution": (convolution, (struct(4, 3, 8, 8), struct(8, 3, 3, 3)), (P("data", None, "model"), None)),
    "pooled": (pooled, (struct(4, 4, 16, 16), struct(8, 4, 3, 3)), (P("data", None, "model"), None)),
    "embedding rows": (embedding, (struct(32, 8), struct(16, dtype=INTS)), (P("model"), P("data"))),
    "embedding columns": (embedding, (struct(32, 8), struct(16, dtype=INTS)), (P(None, "model"), P("data"))),
    "experts": (experts, (struct(16, 8), struct(8, 8, 16)), (P("data"), P(None, "model"))),
    "sort": (sorted_rows, (struct(16, 8), struct(4, dtype=INTS)), (P("data", "model"), None)),
    "diagonal in a branch": (
        diagonal_in_a_branch,
        (struct(16, 8), struct(16, 1, dtype=INTS), struct(dtype=INTS)),
        (P("data"), P("model"), None),
    ),
    "branches": (branches, (struct(8, 8), struct(8, 8)), (P("data"), P(None, "model"))),
    "linear algebra": (matrices, (struct(8, 8, 8), struct(8, 8, 4)), (P("data", "model"), P("model"))),
    "slices": (updated, (struct(16, 16), struct(4, 16)), (P(None, "model"), P("data", "model"))),
}


def random_specs(args: tuple[Any, ...], seed: int) -> tuple[PartitionSpec, ...]:
    """Both mesh axes, each on some dim of each argument that it divides, or on none."""
    rng, specs = Random(seed), []
    for arg in args:
        dims: list[list[str]] = [[] for _ in arg.shape]
        for axis, ways in (("data", 2), ("model", 4)):
            fits = [d for d, n in enumerate(arg.shape) if n % ways == 0 and not dims[d]]
            if fits and rng.random() < 0.8:
                dims[rng.choice(fits)].append(axis)
        specs.append(P(*(names[0] if names else None for names in dims)))
    return tuple(specs)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("case", CASES)
def test_every_sharding_agrees_under_random_annotations(case: str, seed: int, mesh_2x4: Mesh, tmp_path: Path) -> None:
    _check(case, random_specs(CASES[case][1], seed * 101 + len(case)), mesh_2x4, tmp_path)


@pytest.mark.parametrize("case", CASES)
def test_every_sharding_agrees(case: str, mesh_2x4: Mesh, tmp_path: Path) -> None:
    _check(case, CASES[case][2], mesh_2x4, tmp_path)


def _check(case: str, specs: tuple[Any, ...], mesh_2x4: Mesh, tmp_path: Path) -> None:
    function, args, _ = CASES[case]
    named = tuple(None if s is None else NamedSharding(mesh_2x4, s) for s in specs)
    with xla_bridge.shardy(False):
        lowered = jax.jit(function, in_shardings=named, keep_unused=True).lower(*args)
    asked, answered, head = dumps(lowered, tmp_path)
    found = propagate(asked, **options(head))
    before, after = asked.to_hlo_text(), answered.to_hlo_text()
    theirs = by_original_name(before, after, shardings(answered))
    ours = {name: s if (s := found.shardings[name]) is None else str(s) for name in theirs}
    assert len(theirs) >= len(found.shardings) * 0.9
    assert ours == theirs


def test_options_are_read_from_the_head() -> None:
    head = "HloModule m, allow_spmd_sharding_propagation_to_parameters={true,false}, x=1\n"
    assert options(head) == {"to_outputs": [False], "to_parameters": [True, False]}
