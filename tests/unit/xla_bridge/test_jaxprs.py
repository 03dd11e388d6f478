"""Equal checksums only where JAX would lower the same program: everything that changes what is lowered changes them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import Primitive
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from hlosharding.xla_bridge import traced_digest

X = np.ones((4, 4), np.float32)


def checksum(function: Callable[..., Any], *arguments: Any, said: Any = (), **options: Any) -> bytes | None:
    return traced_digest(jax.jit(function, **options).trace(*(arguments or (X,))), said)


def closed_over(value: Any) -> Callable[..., Any]:
    return lambda x: x + value


def sharded(spec: P, devices: Any = None) -> Any:
    mesh = Mesh(np.array(devices or jax.devices()[:8]).reshape(2, 4), ("a", "b"))
    return lambda x: lax.with_sharding_constraint(x, NamedSharding(mesh, spec))


@jax.custom_jvp
def _squared(x: Any) -> Any:
    return x * x


_squared.defjvp(lambda primals, tangents: (_squared(*primals), tangents[0]))


def scaled_by(step: float) -> Callable[..., Any]:
    return lambda x: lax.scan(lambda c, _: (c * step, c.sum()), x, None, length=3)


def named(name: str) -> Callable[..., Any]:
    def function(x: Any) -> Any:
        with jax.named_scope(name):
            return x + 1

    return function


BIG = np.arange(4096, dtype=np.float32).reshape(64, 64)
BIG_BUT_ONE = BIG.copy()
BIG_BUT_ONE[30, 30] = -1  # JAX's own print leaves out the middle

DIFFERENT: tuple[tuple[Callable[[], bytes | None], Callable[[], bytes | None]], ...] = (
    (lambda: checksum(jnp.sin), lambda: checksum(jnp.cos)),
    (lambda: checksum(jnp.sin), lambda: checksum(jnp.sin, X[:2])),
    (lambda: checksum(jnp.sin), lambda: checksum(jnp.sin, X.astype(np.float16))),
    (lambda: checksum(lambda x: x + x), lambda: checksum(lambda x: x + 1)),
    (lambda: checksum(lambda x, y: x - y, X, X), lambda: checksum(lambda x, y: y - x, X, X)),
    (lambda: checksum(lambda x: (x, x + 1)), lambda: checksum(lambda x: (x + 1, x))),
    (lambda: checksum(lambda x: x + 1.0), lambda: checksum(lambda x: x + 2.0)),
    (lambda: checksum(lambda x: x * 0.0), lambda: checksum(lambda x: x * -0.0)),
    (lambda: checksum(lambda x: x + 1, 2), lambda: checksum(lambda x: x + 2, 2)),
    (lambda: checksum(lambda x: x * 1.5, 2.5), lambda: checksum(lambda x: x * 2.5, 2.5)),
    (lambda: checksum(lambda x: x * 1j, 2j), lambda: checksum(lambda x: x * 2j, 2j)),
    (lambda: checksum(closed_over(jnp.asarray(BIG)), BIG),
     lambda: checksum(closed_over(jnp.asarray(BIG_BUT_ONE)), BIG)),
    (lambda: checksum(closed_over(BIG), BIG), lambda: checksum(closed_over(BIG_BUT_ONE), BIG)),
    (lambda: checksum(scaled_by(2.0)), lambda: checksum(scaled_by(3.0))),
    (lambda: checksum(lambda x: lax.cumsum(x, 0)), lambda: checksum(lambda x: lax.cumsum(x, 1))),
    (lambda: checksum(lambda x: lax.cumsum(x, 0)), lambda: checksum(lambda x: lax.cumsum(x, 0, reverse=True))),
    (lambda: checksum(lambda x: lax.dot(x, x)), lambda: checksum(lambda x: lax.dot(x, x, precision="highest"))),
    (lambda: checksum(jax.jit(jnp.sin)), lambda: checksum(jax.jit(jnp.cos))),
    (lambda: checksum(named("one")), lambda: checksum(named("two"))),
    (lambda: checksum(jnp.sin), lambda: checksum(jnp.sin, donate_argnums=0)),
    (lambda: checksum(jnp.sin), lambda: checksum(jnp.sin, said=("more",))),
    (lambda: checksum(sharded(P("a"))), lambda: checksum(sharded(P("b")))),
    (lambda: checksum(sharded(P("a"))), lambda: checksum(sharded(P("a"), jax.devices()[7::-1]))),
    (lambda: checksum(lambda x: x + jax.random.normal(jax.random.key(0), (4, 4))),
     lambda: checksum(lambda x: x + jax.random.normal(jax.random.key(0, impl="rbg"), (4, 4)))),
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(DIFFERENT)))
def test_what_is_lowered_otherwise_has_another_checksum(number: int) -> None:
    one, other = (make() for make in DIFFERENT[number])
    assert one is not None
    assert other is not None
    assert one != other


@pytest.mark.parametrize("setting", ["jax_enable_x64", "jax_threefry_partitionable", "jax_debug_nans"])
def test_jax_s_settings_count(setting: str) -> None:
    before, usual = checksum(jnp.sin), getattr(jax.config, setting)
    jax.config.update(setting, not usual)
    try:
        assert checksum(jnp.sin) != before
    finally:
        jax.config.update(setting, usual)
    assert checksum(jnp.sin) == before


def test_settings_of_a_context_count() -> None:
    before = checksum(jnp.sin)
    with jax.default_matmul_precision("float32"):
        assert checksum(jnp.sin) != before


def test_where_jax_s_cache_lies_does_not_count() -> None:
    before, usual = checksum(jnp.sin), jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_compilation_cache_dir", "elsewhere")
    try:
        assert checksum(jnp.sin) == before
    finally:
        jax.config.update("jax_compilation_cache_dir", usual)


def test_equal_closures_have_one_checksum() -> None:
    def make() -> Any:
        offset = jnp.arange(4.0)
        return lambda x: jax.nn.relu(_squared(x) + offset) @ jax.random.normal(jax.random.key(1), (4, 2))

    assert checksum(make()) == checksum(make()) is not None


def test_functions_of_python_and_foreign_primitives_have_none() -> None:
    shape = jax.ShapeDtypeStruct((4, 4), np.float32)
    assert checksum(lambda x: jax.pure_callback(np.sin, shape, x)) is None
    assert checksum(lambda x: (jax.debug.print("{}", x.sum()), x)[1]) is None
    mine = Primitive("sin")
    mine.def_abstract_eval(lambda x: x)
    assert checksum(mine.bind) is None


SCRIPT = """
import jax, jax.numpy as jnp, numpy as np
from hlosharding.xla_bridge import traced_digest
if MORE:  # JAX remembers more before the function is traced
    jax.jit(lambda x: jax.nn.softmax(jax.nn.relu(x)))(np.ones((4, 4), np.float32))
def f(x, key):
    y = jax.nn.softmax(jax.nn.relu(x) @ jax.random.normal(key, (4, 4)))
    return jax.lax.scan(lambda c, _: (jnp.linalg.cholesky(c), c.sum()), y, None, length=3)
print(traced_digest(jax.jit(f).trace(np.ones((4, 4), np.float32), jax.random.key(0)), ("a", {"b", "c", "d"})).hex())
"""


def test_another_process_finds_the_same() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT.replace("MORE", more)], capture_output=True, text=True, check=True
        ).stdout
        for more in ("True", "False")
    }
    assert len(found) == 1


def test_what_only_differentiation_reads_does_not_count() -> None:
    """Policies of rematerialisation are functions, or objects: no program depends on them once traced."""
    keep, none = jax.checkpoint_policies.dots_saveable, lambda *_, **__: False
    found = {checksum(jax.checkpoint(jnp.sin, policy=policy)) for policy in (keep, none)}
    assert None not in found
    assert len(found) == 1
