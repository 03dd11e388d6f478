"""The source against what a person would write: hardly longer, equal numbers, the user's functions, nothing of ours."""

from __future__ import annotations

import ast
import inspect
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from examples.models import gpt2
from hlosharding import xla_bridge
from hlosharding.executor import ShardMapProgram
from hlosharding.ir import Module
from tests.unit.executor.op_cases import CASES, module_of, programs

HEADS, WIDTH = 4, 16


# ---- as users write them for all devices, and as a person would for one device of `shard_map`


def mlp(x: jax.Array, up: jax.Array, bias: jax.Array, down: jax.Array) -> jax.Array:
    return jax.nn.gelu(x @ up + bias) @ down


def mlp_by_hand(x: jax.Array, up: jax.Array, bias: jax.Array, down: jax.Array) -> jax.Array:
    h = x @ up + bias
    h = 0.5 * h * (1 + jnp.tanh(0.7978845608 * (h + 0.044715 * h**3)))
    return lax.psum(h @ down, "model")


def attention(x: jax.Array, scale: jax.Array, bias: jax.Array, qkv: jax.Array, out: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    normed = centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + bias
    q, k, v = jnp.einsum("btd,dchk->cbthk", normed, qkv)
    scores = jnp.einsum("bqhk,bthk->bhqt", q, k) / np.sqrt(q.shape[-1])
    causal = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -1e9), axis=-1)
    return x + jnp.einsum("bhqt,bthk,hkd->bqd", weights, v, out)


def attention_by_hand(x: jax.Array, scale: jax.Array, bias: jax.Array, qkv: jax.Array, out: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    normed = centred / jnp.sqrt(variance + 1e-5) * scale + bias
    q, k, v = jnp.einsum("btd,dchk->cbthk", normed, qkv)
    scores = jnp.einsum("bqhk,bthk->bhqt", q, k) / np.sqrt(q.shape[-1])
    time = jnp.arange(x.shape[1])
    scores = jnp.where(time[:, None] >= time, scores, -1e9)
    weights = jnp.exp(scores - scores.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    mixed = jnp.einsum("bhqt,bthk->bqhk", weights, v)
    return x + lax.psum(jnp.einsum("bqhk,hkd->bqd", mixed, out), "model")


def resnet_block(x: jax.Array, first: jax.Array, second: jax.Array, norms: jax.Array) -> jax.Array:
    def convolve(x: jax.Array, kernel: jax.Array, norm: jax.Array) -> jax.Array:
        mean, variance, scale, bias = norm
        x = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + bias

    y = jax.nn.relu(convolve(x, first, norms[0]))
    return jax.nn.relu(convolve(y, second, norms[1]) + x)


def resnet_block_by_hand(x: jax.Array, first: jax.Array, second: jax.Array, norms: jax.Array) -> jax.Array:
    names = ("NHWC", "HWIO", "NHWC")
    mean, variance, scale, bias = norms[0]
    y = lax.conv_general_dilated(x, first, (1, 1), "SAME", dimension_numbers=names)
    y = (y - mean) * lax.rsqrt(variance + 1e-5) * scale + bias
    y = jnp.maximum(y, 0.0)
    mean, variance, scale, bias = norms[1]
    y = lax.conv_general_dilated(y, second, (1, 1), "SAME", dimension_numbers=names)
    y = (y - mean) * lax.rsqrt(variance + 1e-5) * scale + bias
    return jnp.maximum(y + x, 0.0)


CASES_BY_HAND: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[tuple[tuple[int, ...], P]]]] = {
    "mlp": (
        mlp,
        mlp_by_hand,
        [((8, WIDTH), P("data")), ((WIDTH, 32), P(None, "model")), ((32,), P("model")), ((32, WIDTH), P("model"))],
    ),
    "attention": (
        attention,
        attention_by_hand,
        [
            ((4, 8, WIDTH), P("data")),
            ((WIDTH,), P()),
            ((WIDTH,), P()),
            ((WIDTH, 3, HEADS, 4), P(None, None, "model")),
            ((HEADS, 4, WIDTH), P("model")),
        ],
    ),
    "resnet block": (
        resnet_block,
        resnet_block_by_hand,
        [((8, 6, 6, 4), P(("data", "model"))), ((3, 3, 4, 4), P()), ((3, 3, 4, 4), P()), ((2, 4, 4), P())],
    ),
}


def traced(function: Callable[..., Any], *arguments: Any) -> Module:
    return Module.from_proto(xla_bridge.lowered_to_hlo_proto(jax.jit(function).lower(*arguments)))


def code_lines(functions: list[ast.FunctionDef]) -> int:
    """Lines of the bodies, without docstrings, comments and blank lines."""
    bodies = ["\n".join(ast.unparse(s) for s in f.body if not _is_docstring(s)) for f in functions]
    return sum(len([line for line in body.splitlines() if line.strip()]) for body in bodies)


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def functions_of(source: str) -> list[ast.FunctionDef]:
    found = [f for f in ast.parse(source).body if isinstance(f, ast.FunctionDef)]
    return [f for f in found if f.name not in ("program", "compile_once", "keeping_nan", "stablehlo")]


@pytest.mark.parametrize("name", CASES_BY_HAND)
def test_hardly_longer_than_by_hand_and_equal_numbers(name: str, mesh_2x4: Mesh) -> None:
    function, by_hand, given = CASES_BY_HAND[name]
    rng = np.random.default_rng(0)
    arrays = [np.abs(rng.normal(size=shape)).astype(np.float32) / 4 for shape, _ in given]
    placed = [jax.device_put(a, NamedSharding(mesh_2x4, spec)) for a, (_, spec) in zip(arrays, given, strict=True)]
    partitioned = hs.jit(function).lower(*placed).partitioned
    source = partitioned.as_python()
    ours = code_lines(functions_of(source))
    theirs = code_lines(functions_of(textwrap.dedent(inspect.getsource(by_hand))))
    assert ours <= 1.5 * theirs, f"{ours} lines for {theirs}\n{source}"

    specs = tuple(spec for _, spec in given)
    mapped = jax.shard_map(by_hand, mesh=mesh_2x4, in_specs=specs, out_specs=specs[0], check_vma=False)
    wanted = np.asarray(jax.jit(mapped)(*placed))
    np.testing.assert_allclose(ShardMapProgram(partitioned.module).run(*arrays)[0], wanted, rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(np.asarray(function(*arrays)), wanted, rtol=2e-5, atol=2e-6)


# ---- the user's functions


def layer_norm(x: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def dense(weights: jax.Array, x: jax.Array) -> jax.Array:
    x = jnp.tanh(x @ weights) + jnp.sin(x) * jnp.cos(x)
    return x * jnp.exp(-x) + 1.0


def block(weights: jax.Array, x: jax.Array) -> jax.Array:
    return x + dense(
        weights,
        layer_norm(x),
    )


def deep(stack: list[jax.Array], x: jax.Array) -> jax.Array:
    for weights in stack:
        x = block(weights, x)
    return x


def test_functions_are_the_users_and_each_is_written_once() -> None:
    stack = [jnp.eye(4) * n for n in range(5)]
    functions = functions_of(ShardMapProgram(traced(deep, stack, jnp.ones((3, 4)))).source)
    assert [f.name for f in functions] == ["layer_norm", "dense", "block", "deep"]
    calls = [n.func.id for n in ast.walk(functions[-1]) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    assert calls == ["block"] * 5
    assert [len(f.args.args) for f in functions[:3]] == [1, 2, 2]


def looped(stack: list[jax.Array], x: jax.Array) -> jax.Array:
    x = jnp.sin(x)
    for weights in stack:
        x = x - layer_norm(x)
        x = x + dense(weights, x)
    return x.sum()


def test_rounds_of_a_loop_with_several_calls_are_one_function() -> None:
    stack, x = [np.eye(4, dtype=np.float32) * n for n in range(9)], np.arange(12, dtype=np.float32).reshape(3, 4)
    program = ShardMapProgram(traced(looped, stack, x))
    functions = {f.name: ast.unparse(f) for f in functions_of(program.source)}
    assert list(functions) == ["layer_norm", "dense", "looped_round", "looped"]
    assert functions["looped"].count("looped_round(") >= 7
    np.testing.assert_allclose(program.run(*stack, x)[0], jax.jit(looped)(stack, x), rtol=1e-5)


def test_a_gradients_functions_are_named_after_those_they_come_from() -> None:
    stack = [np.eye(4, dtype=np.float32) * n for n in range(6)]
    program = ShardMapProgram(traced(jax.grad(deep_sum), stack))
    names = [f.name for f in functions_of(program.source)]
    assert {"block", "block_grad"} <= set(names), names
    for ours, theirs in zip(program.run(*stack), jax.jit(jax.grad(deep_sum))(stack), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_the_text_does_not_tell_who_asked_for_it(mesh_2x4: Mesh) -> None:
    """A thread's function has no caller, so that the count of callers below is exact."""
    config = gpt2.Config(layers=1, width=32, heads=4, vocabulary=64, context=16, batch=4)
    step, arguments = gpt2.training_step(mesh_2x4), gpt2.abstract_arguments(config)

    def source(callers: int) -> str:
        return source(callers - 1) if callers else hs.jit(step, mesh=mesh_2x4).lower(*arguments).as_python()

    with ThreadPoolExecutor(1) as pool:
        alone, *called = [pool.submit(source, callers).result() for callers in (0, 1, 2, 7)]
    assert called == [alone] * 3


# ---- literals and operators


def every_type(x: jax.Array) -> list[jax.Array]:
    types = (jnp.float32, jnp.bfloat16, jnp.float16, jnp.int8, jnp.uint32, jnp.int32)
    return [(2 - x.astype(t)) * 3 + 1 for t in types] + [x * 0.1, (x * 0.1).astype(jnp.bfloat16) * jnp.bfloat16(0.1)]


def limits(x: jax.Array) -> list[jax.Array]:
    chosen = jnp.where(x > 1, x, -jnp.inf)
    return [chosen, jnp.maximum(chosen, jnp.nan), x.astype(jnp.uint32) + np.uint32(2**32 - 1), -x - -0.0, x // 2, x % 2]


def scalars(x: jax.Array) -> list[jax.Array]:
    return [x[0] * 2 + 1, jnp.full((3,), 2.0) * 3, x + x[1], x[None] * x[:, None], (x > 1) & True, ~(x > 1) | (x < 0)]


def bits(x: jax.Array) -> list[jax.Array]:
    n = x.astype(jnp.uint32)
    return [(n << 3) ^ (n >> 1), n.astype(jnp.int32) >> 1, n | 5 & n, 1.0 / (x + 1) - x - (x - 1), (x + 1) @ jnp.eye(4)]


@pytest.mark.parametrize("function", [every_type, limits, scalars, bits])
def test_operators_and_literals_mean_the_same_bit_by_bit(function: Callable[..., Any]) -> None:
    x = np.array([0.0, 1.0, 2.5, 3.0], np.float32)
    program = ShardMapProgram(traced(function, x))
    for ours, theirs in zip(program.run(x), jax.tree.leaves(jax.jit(function)(x)), strict=True):
        assert (ours.dtype, ours.tobytes()) == (theirs.dtype, np.asarray(theirs).tobytes()), program.source


def test_users_rules_of_promotion_do_not_reach_the_program() -> None:
    x, weights = np.ones((3, 4), np.float32), np.ones(4, np.float32)
    program = ShardMapProgram(traced(lambda x, w: x * w + 1.0, x, weights))
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        np.testing.assert_array_equal(program.run(x, weights)[0], x * weights + 1)


# ---- where nothing of ours is installed

ALONE = """
import pickle, sys
sys.modules["hlosharding"] = None
import jax
for source, is_wide, constants, shapes in pickle.load(open(sys.argv[1], "rb")):
    names = {"CONSTANTS": constants, "CALLBACKS": [lambda *arrays: arrays] * 9}
    exec(compile(source, "program", "exec"), names)
    with jax.enable_x64(is_wide):
        mesh = jax.make_mesh((1,) * len(names["AXES"]), names["AXES"])
        jax.jit(names["program"](mesh)).lower(*[jax.ShapeDtypeStruct(*shape) for shape in shapes])
"""


def test_every_program_runs_without_us(tmp_path: Path) -> None:
    texts: list[tuple[Any, ...]] = []
    for body in (body for opcode in sorted(CASES) for body in programs(opcode)[:2]):
        module = module_of(body)
        written = ShardMapProgram(module).written
        shapes = [(layout.boundary_shape(1), layout.shape.dtype) for layout in written.inputs]
        texts.append((written.text, written.is_wide, written.constants, shapes))
    stack = [jnp.eye(4)] * 60
    written = ShardMapProgram(traced(jax.grad(deep_sum), stack)).written
    texts.append((written.text, False, written.constants, [((4, 4), np.float32)] * 60))
    assert any("stablehlo(" in text for text, *_ in texts)
    assert "@compile_once" in written.text
    path = tmp_path / "programs"
    path.write_bytes(pickle.dumps(texts))
    done = subprocess.run(
        [sys.executable, "-I", "-c", ALONE, str(path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


def deep_sum(stack: list[jax.Array]) -> jax.Array:
    return deep(stack, jnp.ones((3, 4))).sum()
