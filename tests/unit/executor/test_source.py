"""The text of a program: repeats become functions, long functions are cut, the user's names and lines survive."""

# ruff: noqa: E501
from __future__ import annotations

import ast
import traceback
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlosharding import xla_bridge
from hlosharding.executor import ShardMapProgram
from hlosharding.executor.axes import Axes
from hlosharding.executor.axis_choice import Needs, choose_axes
from hlosharding.executor.source import write_source
from hlosharding.executor.text import identifier, scalar_text, wrap_items
from hlosharding.ir import Builder, Module, Shape, rewrite
from hlosharding.sharding import HloSharding, MeshInfo
from hlosharding.spmd import CAUSE_ATTRIBUTE


def traced(function: Callable[..., Any], *arguments: Any) -> Module:
    return Module.from_proto(xla_bridge.lowered_to_hlo_proto(jax.jit(function).lower(*arguments)))


def functions_of(source: str) -> dict[str, ast.FunctionDef]:
    return {f.name: f for f in ast.parse(source).body if isinstance(f, ast.FunctionDef)}


def block(params: dict[str, Any], x: Any) -> Any:
    h = jnp.tanh(x @ params["up"] + params["bias"])
    y = h @ params["down"]
    centred = y - y.mean(-1, keepdims=True)
    return x + centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def network(layers: list[dict[str, Any]], x: Any) -> Any:
    for params in layers:
        x = block(params, x)
    return (x**2).sum()


def weights(count: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    sizes = {"up": (4, 8), "bias": (8,), "down": (8, 4)}
    return [{k: rng.normal(size=s).astype(np.float32) for k, s in sizes.items()} for _ in range(count)]


X = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)


def test_layers_are_one_function_called_many_times() -> None:
    layers = weights(12)
    module = traced(jax.value_and_grad(network), layers, X)
    program = ShardMapProgram(module)
    written = functions_of(program.source)
    lines = sum(i.opcode not in ("parameter", "constant", "tuple") for i in module.instructions)
    assert len(program.source.splitlines()) < lines
    shared = [name for name in written if name.startswith(("block", "layer"))]
    assert shared
    assert program.source.count(f"= {shared[0]}(") + program.source.count(f"= {shared[-1]}(") >= 10
    expected = jax.tree.leaves(jax.jit(jax.value_and_grad(network))(layers, X))
    for got, want in zip(program.run(*jax.tree.leaves((layers, X))), expected, strict=True):
        np.testing.assert_allclose(got, np.asarray(want), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("count", "is_kept"), [(6, False), (40, True)])
def test_calls_that_save_many_lines_stay_calls(count: int, is_kept: bool) -> None:
    # Small weights: deep nets of large ones are chaotic.
    layers = jax.tree.map(lambda w: w / 32, weights(count))
    program = ShardMapProgram(traced(jax.value_and_grad(network), layers, X))
    assert ("@compile_once\n" in program.source) == is_kept
    compiled = program.compile().compiled.as_text()
    assert (compiled.count(" call(") >= count - 4) == is_kept
    expected = jax.tree.leaves(jax.value_and_grad(network)(layers, X))
    for got, want in zip(program.run(*jax.tree.leaves((layers, X))), expected, strict=True):
        np.testing.assert_allclose(got, np.asarray(want), rtol=1e-3, atol=1e-4 * np.abs(np.asarray(want)).max())


def test_repeats_with_other_constants_stay_apart() -> None:
    def different(x: Any) -> Any:
        for number in range(12):
            x = jnp.tanh(jnp.sin(x * (number + 2.5)) + jnp.cos(x)) * x - jnp.exp(x) + jnp.sqrt(x * x)
        return x

    program = ShardMapProgram(traced(different, X))
    np.testing.assert_allclose(program.run(X)[0], jax.jit(different)(X), rtol=1e-4, atol=1e-4)
    for number in range(12):
        assert f" * {number + 2.5}" in program.source


def chain(length: int) -> Module:
    """A chain in which no stretch occurs twice."""
    builder = Builder("chain")
    main = builder.computation("main")
    value = main.parameter(0, Shape.array("f32", (4,)))
    first = value
    for number in range(length):
        opcode = "add" if (number * number) % 7 < 3 else "subtract"
        other = first if (number * 31) % 11 < 5 else value
        value = main.add(opcode, value.shape, (value, main.add("cosine", other.shape, (other,))))
        if (number * number * 7) % 13 < 6:
            value = main.add("sine", value.shape, (value,))
    main.root(value)
    return builder.finish(main)


def test_long_functions_are_cut() -> None:
    module = chain(900)
    program = ShardMapProgram(module)
    written = functions_of(program.source)
    assert "part_0" in written
    assert max((f.end_lineno or 0) - f.lineno + 1 for f in written.values()) <= 500
    x = np.linspace(0, 1, 4, dtype=np.float32)
    ((want,),) = xla_bridge.run_proto(module.to_hlo_proto(), [[x]])
    np.testing.assert_allclose(program.run(x)[0], want, rtol=1e-4, atol=1e-4)


def test_names_and_lines_are_the_users() -> None:
    source = write_source(traced(network, weights(2), X)).text
    assert "layers_1_up" in source
    assert "# test_source.py:" in source


def test_many_inputs_are_a_record() -> None:
    source = write_source(traced(network, weights(20), X)).text
    assert 'inputs["layers_19_down"]' in source
    assert '"layers_19_down": P(),  # f32[8,4]' in source


def test_cause_stands_behind_its_line() -> None:
    module = chain(3)
    rewrite.set_attributes(module.entry.root, frontend_attributes={CAUSE_ATTRIBUTE: "the root of it all"})
    assert "  # the root of it all" in write_source(module).text


def test_text_is_what_runs_and_tracebacks_show_it() -> None:
    program = ShardMapProgram(chain(3))
    code = program.build.__code__
    assert code.co_filename.startswith("<hlosharding chain ")
    frame = traceback.FrameSummary(code.co_filename, code.co_firstlineno, "program")
    assert frame.line == "def program(mesh):"


def test_equal_functions_are_written_once() -> None:
    def reductions(x: Any) -> Any:
        return jnp.argmax(x, 0), jnp.argmax(x, 1), jnp.argmax(x[::-1], 1)

    written = functions_of(write_source(traced(reductions, X)).text)
    assert sum(name.startswith("region") for name in written) <= 1, list(written)


def test_axes_are_split_only_as_needed() -> None:
    mesh = MeshInfo(("data", "model"), (2, 4))
    assert choose_axes(mesh, 8, Needs()).names == ("data", "model")
    pairs = ((0, 1), (2, 3), (4, 5), (6, 7))
    axes = choose_axes(mesh, 8, Needs(ordered=frozenset({pairs})))
    assert (axes.names, axes.sizes) == (("data", "model_0", "model_1"), (2, 2, 2))
    sharding = HloSharding.parse("{devices=[4,2]<=[8]}")
    axes = choose_axes(None, 8, Needs(shardings=frozenset({(sharding, 2)})))
    assert (axes.names, axes.sizes) == (("devices_0", "devices_1"), (4, 2))
    assert axes.spec_of(sharding, 2) == ((0,), (1,))


def test_axis_of_twelve_splits_in_the_order_that_fits() -> None:
    sharding = HloSharding.parse("{devices=[3,4]<=[12]}")
    axes = choose_axes(MeshInfo(("x",), (12,)), 12, Needs(shardings=frozenset({(sharding, 2)})))
    assert (axes.sizes, axes.spec_of(sharding, 2)) == ((3, 4), ((0,), (1,)))


def test_every_axis_spec_says_the_sharding() -> None:
    axes = Axes((2, 2, 2), tuple(range(8)), ("a", "b", "c"))
    for text in (
        "{devices=[2,4]<=[2,2,2]T(1,0,2)}",
        "{devices=[4,2]<=[2,2,2]T(2,0,1)}",
        "{devices=[1,8]<=[2,4]T(1,0)}",
    ):
        sharding = HloSharding.parse(text)
        spec = axes.spec_of(sharding, 2)
        assert spec is not None
        parts = [axes.names[p] for dim in spec for p in dim]
        named = HloSharding.named(
            MeshInfo(axes.names, axes.sizes), tuple(tuple(axes.names[p] for p in d) for d in spec), 2
        )
        assert named == sharding, parts


@pytest.mark.parametrize(
    "value", [np.float32(0.1), np.float32(1e-45), np.float64(1 / 3), np.float16(65504), np.int64(-(2**63)), np.float32("nan"),
              np.float32("-inf"), np.bool_(True), np.complex64(1.5 - 2j), np.complex128(complex(np.inf, -0.0)), np.uint8(255)]
)  # fmt: skip
def test_scalars_are_written_exactly(value: Any) -> None:
    again = eval(scalar_text(value))
    assert again.dtype == value.dtype
    assert again.tobytes() == value.tobytes()


@pytest.mark.parametrize("dims", [(), (4,)])
@pytest.mark.parametrize(
    ("dtype", "bits"),
    [(np.float32, [0x7FC00001]), (np.float16, [0xFE00]), (jnp.bfloat16, [0x7FC1]), (jnp.float8_e4m3fn, [0xFF]),
     (np.complex64, [0x3F800000, 0xFFC00000])],
)  # fmt: skip
def test_the_bits_of_a_nan_are_kept_as_xla_keeps_them(dtype: Any, bits: list[int], dims: tuple[int, ...]) -> None:
    size = np.dtype(dtype).itemsize // len(bits)
    element = np.array(bits, f"u{size}").view(dtype).reshape(())
    builder = Builder("m")
    main = builder.computation("main")
    main.parameter(0, Shape.array("f32"))
    main.root(main.constant(np.broadcast_to(element, dims)))
    module = builder.finish(main)
    ((want,),) = xla_bridge.run_proto(module.to_hlo_proto(), [[np.float32(0)]])
    assert ShardMapProgram(module).run(np.float32(0))[0].tobytes() == np.asarray(want).tobytes()


def test_names_are_identifiers() -> None:
    for name in ("params['a'].b[0]", "lambda", "3d", "", "λ", "np", "x y-z"):
        assert identifier(name).isidentifier()
    assert wrap_items("f(", [f"argument_{i}" for i in range(30)], ")")[-1] == ")"
