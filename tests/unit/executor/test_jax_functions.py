"""What JAX itself emits: functions of many kinds, traced, written as a program and run, against `jax.jit`."""

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

import hlosharding as hs
from hlosharding import xla_bridge
from hlosharding.errors import ExecutionError
from hlosharding.executor import ShardMapProgram, run_reference
from hlosharding.ir import Module
from tests.unit.executor.op_cases import module_of as case_module

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 8)).astype(np.float32)
S = (X[:6, :6] @ X[:6, :6].T + 6 * np.eye(6)).astype(np.float32)
IMAGE = RNG.normal(size=(2, 8, 8, 3)).astype(np.float32)
KERNEL = RNG.normal(size=(3, 3, 3, 4)).astype(np.float32)
IDS = RNG.integers(0, 6, (5,)).astype(np.int32)


def _scan(x: Any) -> Any:
    return lax.scan(lambda c, row: (c * 0.5 + row.sum(), c), jnp.float32(0), x)


def _cond(x: Any) -> Any:
    return lax.cond(x.sum() > 0, lambda v: (v * 2, v.sum()), lambda v: (v - 1, v.max()), x)


def _switch(x: Any, i: Any) -> Any:
    return lax.switch(i[0], [jnp.sin, jnp.cos, jnp.tanh], x)


def _loss(kernel: Any, image: Any) -> Any:
    y = lax.conv_general_dilated(image, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    pooled = lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return jnp.mean(jax.nn.gelu(pooled) ** 2)


def _attention(q: Any, k: Any) -> Any:
    scores = jnp.where(jnp.tril(jnp.ones((6, 6), bool)), q @ k.T, -1e9)
    return jax.nn.softmax(scores) @ k


def _rnn(x: Any) -> Any:
    return jax.grad(lambda w: lax.fori_loop(0, 3, lambda i, h: jnp.tanh(h @ w), x[:, :6]).sum())(x[:6, :6])


def _dropout(x: Any) -> Any:
    return jnp.where(jax.random.bernoulli(jax.random.key(0), 0.5, x.shape), x, 0)


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "attention": (_attention, (X, X)),
    "argmax": (lambda x: (jnp.argmax(x, 1), jnp.argmin(x)), (X,)),
    "categorical": (lambda x: jax.random.categorical(jax.random.key(1), x), (X,)),
    "cholesky": (jnp.linalg.cholesky, (S,)),
    "cond": (_cond, (X,)),
    "convolution gradient": (jax.grad(_loss), (KERNEL, IMAGE)),
    "cumsum": (lambda x: (jnp.cumsum(x, 1), lax.cummax(x, 0), lax.associative_scan(jnp.multiply, x)), (X,)),
    "determinant": (lambda s: jnp.linalg.slogdet(s)[1], (S,)),
    "dropout": (_dropout, (X,)),
    "eigh": (lambda s: jnp.linalg.eigh(s)[0], (S,)),
    "embedding gradient": (jax.grad(lambda t, i: (t[i] ** 2).sum()), (X, IDS)),
    "erf_inv": (lambda x: lax.erf_inv(jnp.tanh(x)), (X,)),
    "fft": (lambda x: jnp.abs(jnp.fft.rfft(x)), (X,)),
    "gather": (lambda x, i: (x.at[i].get(mode="fill"), jnp.take_along_axis(x, x.argsort(1), 1)), (X, IDS)),
    "integers": (lambda i: (i // 4, i % 3, i << 2, i & 5, ~i, jnp.bitwise_count(i)), (IDS,)),
    "inverse": (jnp.linalg.inv, (S,)),
    "normal": (lambda x: x + jax.random.normal(jax.random.key(2), x.shape), (X,)),
    "one hot": (lambda i: jax.nn.one_hot(i, 6), (IDS,)),
    "permutation": (lambda x: jax.random.permutation(jax.random.key(3), x), (X,)),
    "qr": (lambda s: jnp.abs(jnp.linalg.qr(s)[1]), (S,)),
    "rnn gradient": (_rnn, (X,)),
    "scan": (_scan, (X,)),
    "scan gradient": (jax.grad(lambda x: _scan(x * x)[0]), (X,)),
    "segment sum": (lambda x, i: jax.ops.segment_sum(x[:5], i, 6), (X, IDS)),
    "solve": (lambda s, x: jax.scipy.linalg.solve_triangular(s, x, lower=True), (S, X)),
    "sort": (lambda x: (jnp.sort(x, 0), jnp.argsort(x, 1), jnp.median(x)), (X,)),
    "special functions": (lambda x: (lax.lgamma(x), lax.digamma(x), lax.bessel_i1e(x), lax.acosh(x * x + 1)), (X,)),
    "svd": (lambda x: jnp.linalg.svd(x, compute_uv=False), (X,)),
    "switch": (_switch, (X, IDS)),
    "top k": (lambda x: lax.top_k(x, 3), (X,)),
    "while": (lambda x: lax.while_loop(lambda c: c[1] < 4, lambda c: (c[0] * 0.9, c[1] + 1), (x, 0)), (X,)),
}


def module_of(function: Callable[..., Any], arguments: tuple[np.ndarray, ...]) -> Module:
    return Module.from_proto(xla_bridge.lowered_to_hlo_proto(jax.jit(function).lower(*arguments)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_program_equals_jit(name: str) -> None:
    function, arguments = FUNCTIONS[name]
    expected = jax.tree.leaves(jax.jit(function)(*arguments))
    module = module_of(function, arguments)
    outputs = ShardMapProgram(module).run(*arguments)
    assert len(outputs) == len(expected)
    for got, want in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(got, np.asarray(want), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["attention", "scan", "switch", "sort", "qr", "embedding gradient"])
def test_reference_equals_jit(name: str) -> None:
    function, arguments = FUNCTIONS[name]
    expected = jax.tree.leaves(jax.jit(function)(*arguments))
    for got, want in zip(run_reference(module_of(function, arguments), arguments), expected, strict=True):
        np.testing.assert_allclose(got, np.asarray(want), rtol=2e-5, atol=2e-5)


def test_sort_of_lax_is_written_as_lax_sort() -> None:
    source = ShardMapProgram(module_of(lambda x: (jnp.sort(x, 0), lax.sort((x, x), num_keys=2)), (X,))).source
    assert "RAW_" not in source
    assert "num_keys=2" in source


def test_wide_types_survive() -> None:
    with jax.enable_x64(True):
        x = np.arange(6, dtype=np.float64) * 1e-12 + 1
        module = module_of(lambda v: (v.sum(), v.astype(np.int64) + 2**40), (x,))
        outputs = ShardMapProgram(module).run(x)
    assert [o.dtype for o in outputs] == [np.float64, np.int64]
    np.testing.assert_allclose(outputs[0], x.sum(), rtol=1e-15)
    np.testing.assert_array_equal(outputs[1], np.ones(6, np.int64) + 2**40)


def test_linear_algebra_of_a_module_from_elsewhere() -> None:
    """In a process that has traced nothing XLA finds no LAPACK until we load it."""
    proto = module_of(*FUNCTIONS["qr"]).to_hlo_proto()
    code = (
        "import sys, numpy as np; from hlosharding.ir import Module;"
        "from hlosharding.executor import ShardMapProgram, run_reference;"
        "module = Module.from_proto(sys.stdin.buffer.read()); x = np.eye(6, dtype=np.float32);"
        "print(np.abs(ShardMapProgram(module).run(x)[0]).sum(), np.abs(run_reference(module, [x])[0]).sum())"
    )
    done = subprocess.run([sys.executable, "-c", code], input=proto, capture_output=True, check=False)
    assert done.stdout.split() == [b"6.0", b"6.0"], done.stderr.decode()


def test_unknown_custom_calls_and_lost_callbacks_are_errors() -> None:
    def doubled(x: Any) -> Any:
        return jax.pure_callback(lambda v: v * 2, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    for run in (lambda m: ShardMapProgram(m).run(X), lambda m: run_reference(m, [X])):
        known = module_of(doubled, (X,))
        known.callbacks = (lambda v: (np.asarray(v) * 2,),)
        np.testing.assert_array_equal(run(known)[0], X * 2)
        with pytest.raises(
            ExecutionError, match=r"calls back into Python, .*; at %pure_callback.*; trace the function"
        ):
            run(module_of(doubled, (X,)))
        unknown = case_module('x = f32[6,8] parameter(0) ROOT r = f32[6,8] custom-call(x), custom_call_target="nobody"')
        with pytest.raises(ExecutionError, match=r"custom call nobody is native code, .* may not run unasked; at %r"):
            run(unknown)
        unknown.custom_calls = frozenset({"nobody"})
        with pytest.raises(ExecutionError, match="No registered implementation for untyped custom call to nobody"):
            run(unknown)


def test_each_device_looks_one_element_up() -> None:
    """XLA's CPU compiler fails on a gather of one place whose coordinates are cut out of a table of devices."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:6]).reshape(3, 2), ("a", "b"))
    x = np.arange(24, dtype=np.int32).reshape(8, 3)

    def look_up(x: Any) -> Any:
        return x.at[jnp.asarray([9, -10, 3, 0], jnp.int16)[:, None], ..., 0].get(mode="clip")

    got = hs.jit(look_up, mesh=mesh, in_shardings=jax.sharding.PartitionSpec("b", "a"))(x)
    np.testing.assert_array_equal(got, look_up(jnp.asarray(x)))
