"""`hs.jit` on devices that are only described: programs compile for them, and nothing runs on them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding import xla_bridge
from hlosharding.compiler import default_machine
from hlosharding.cost import machines
from hlosharding.errors import ExecutionError
from hlosharding.executor import refuse_described

X = jax.ShapeDtypeStruct((256, 512), jnp.float32)
W = jax.ShapeDtypeStruct((512, 512), jnp.float32)


def product(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.tanh(x @ w)


def test_nothing_runs_on_what_is_not_there() -> None:
    refuse_described(jax.devices())
    refuse_described(())
    client = SimpleNamespace(runtime_type="compile_only_runtime")
    with pytest.raises(ExecutionError, match=r"of H1 devices that are described, not there; take \.lower"):
        refuse_described([SimpleNamespace(client=client, device_kind="H1")])


def test_prices_are_those_of_the_mesh() -> None:
    kinds = {"NVIDIA H200": machines.h200, "NVIDIA GB200": machines.gb200_nvl72, "NVIDIA B200": machines.b200}
    for kind, preset in kinds.items():
        assert default_machine(8, [SimpleNamespace(device_kind=kind)]) is preset(8)


def test_on_gpus_xla_is_told_to_leave_gradients_in_the_iteration_that_makes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What comes of it is seen where XLA compiles for GPUs: the test of layers below."""
    name = "xla_gpu_enable_pipelined_reduce_scatter"
    module = hs.load("HloModule m\nENTRY e { ROOT x = f32[4] parameter(0) }", format="hlo")
    program = hs.partition(module, num_partitions=1).program.compile(jax.devices()[:1])
    assert program._options == {}
    on_gpu = replace(program, devices=(SimpleNamespace(platform="cuda"),))
    known = xla_bridge.has_compiler_option(name, jax.devices()[0])  # what it knows, it knows for all devices
    assert on_gpu._options == ({name: False} if known else {})
    assert replace(on_gpu, compiler_options={name: True})._options == {name: True}
    monkeypatch.setenv("XLA_FLAGS", f"--{name}=true")
    assert on_gpu._options == {}


@pytest.mark.gpu_compiler
def test_a_program_compiles_for_gpus_that_are_not_there() -> None:
    mesh = hs.topology("h100", 16).mesh((2, 8), ("data", "model"))
    stage = hs.jit(product, mesh=mesh, in_shardings=(P("data", "model"), P("model"))).lower(X, W)
    assert stage.partitioned.machine is machines.h100(16)
    compiled = stage.compile()
    assert hs.cost(hs.load(compiled.as_text(), format="hlo")).comm_bytes == stage.partitioned.comm_bytes_per_device
    assert compiled.memory_analysis().argument_size_in_bytes == (256 * 512 // 16 + 512 * 512 // 8) * 4
    assert compiled.cost_analysis()["flops"] > 2 * 128 * 512 * 64
    spec = [s.spec for s in compiled.input_shardings[0]]
    assert spec == [P("data", "model"), P("model")]


@pytest.mark.gpu_compiler
def test_a_call_says_what_to_do_instead() -> None:
    mesh = hs.topology("h100", 8).mesh((8,), ("data",))
    step = hs.jit(product, mesh=mesh, in_shardings=(P("data"), P()))
    x, w = np.ones(X.shape, np.float32), np.ones(W.shape, np.float32)
    says = "NVIDIA H100 80GB HBM3 devices that are described, not there"
    with pytest.raises(ExecutionError, match=says):
        step(x, w)
    with pytest.raises(ExecutionError, match=says):
        step.lower(X, W).compile()(x, w)
    with pytest.raises(ExecutionError, match=says):
        hs.device_put(x, "{devices=[8,1]<=[8]}", devices=tuple(mesh.devices.flat))


def scanned(weights: jax.Array, x: jax.Array) -> jax.Array:
    def layer(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
        return jnp.tanh(x @ w), None

    return jax.grad(lambda weights: jax.lax.scan(layer, x, weights)[0].sum())(weights)


@pytest.mark.gpu_compiler
def test_no_layers_gradients_wait_whole_for_the_next_iteration() -> None:
    """XLA would carry them unreduced, unless the user asks for it."""
    mesh = hs.topology("h100", 8).mesh((8,), ("data",))
    weights = jax.ShapeDtypeStruct((4, 512, 512), jnp.float32)
    specs = {"in_shardings": (P(None, "data"), P("data")), "out_shardings": P(None, "data")}
    rows = jax.ShapeDtypeStruct((8192, 512), jnp.float32)
    stage = hs.jit(scanned, mesh=mesh, **specs).lower(weights, rows)
    assert any(one.kind == "reduce-scatter" for one in stage.partitioned.collectives)
    usual = stage.compile().memory_analysis().temp_size_in_bytes
    asked = stage.compile(compiler_options={"xla_gpu_enable_pipelined_reduce_scatter": True})
    assert asked.memory_analysis().temp_size_in_bytes > usual


@pytest.mark.gpu_compiler
def test_cudnn_attention_trains() -> None:
    """The library's kernels are in the executable, and no more is communicated than with plain attention."""
    mesh = hs.topology("h100", 8).mesh((2, 4), ("data", "model"))
    heads = jax.ShapeDtypeStruct((8, 256, 8, 64), jnp.bfloat16)

    def loss(q: jax.Array, k: jax.Array, v: jax.Array, kind: str) -> jax.Array:
        out = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=kind)
        return jnp.square(out.astype(jnp.float32)).mean()

    def compiled(kind: str) -> tuple[float, str]:
        gradient = jax.grad(lambda *qkv: loss(*qkv, kind), argnums=(0, 1, 2))
        spec = P("data", None, "model")
        stage = hs.jit(gradient, mesh=mesh, in_shardings=(spec,) * 3, out_shardings=(spec,) * 3).lower(*[heads] * 3)
        return stage.partitioned.comm_bytes_per_device, stage.compile().as_text()

    received, text = compiled("cudnn")
    assert text.count('custom_call_target="__cudnn$fmha') == 2
    assert received <= compiled("xla")[0]
