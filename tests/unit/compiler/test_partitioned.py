"""`hs.partition` in hand: ways to run it, what it says of itself, what it refuses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.errors import ExecutionError, PartitionError
from hlosharding.xla_bridge import run_proto, without_shardings
from tests.support.split_programs import mark, module_of

X = np.arange(63, dtype=np.float32).reshape(9, 7) / 63
W = np.linspace(-1, 1, 35, dtype=np.float32).reshape(7, 5)


def step(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    y = jax.nn.softmax(x @ w)
    return y, y.sum(0)


@pytest.fixture(scope="module")
def local() -> hs.Partitioned:
    mesh = Mesh(np.array(jax.devices("cpu")).reshape(2, 4), ("data", "model"))
    module = hs.trace(step, mesh=mesh, in_shardings=(P("data"), P("model")), out_shardings=(P("model"), P()))(X, W)
    return hs.partition(module)


def test_all_ways_to_run_agree(local: hs.Partitioned) -> None:
    want = step(X, W)
    ways = {"run": local.run(X, W), "reference": local.run_reference(X, W), "compile": local.compile()(X, W)}
    for name, got in ways.items():
        assert isinstance(got, tuple), name
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(np.asarray(a), b, rtol=1e-5, atol=1e-6, err_msg=name)


def test_the_reference_needs_no_devices() -> None:
    module = hs.trace(lambda x: jnp.cumsum(x).sum(), in_shardings="{devices=[64]<=[64]}")(np.ones(64, np.float32))
    local = hs.partition(module)
    assert local.num_partitions == 64
    assert float(local.run_reference(np.ones(64, np.float32))) == 64 * 65 / 2
    with pytest.raises(ExecutionError, match="64 devices"):
        local.run(np.ones(64, np.float32))


def test_figures_fit_each_other(local: hs.Partitioned) -> None:
    assert local.comm_bytes_per_device == sum(c.bytes_per_device for c in local.collectives)
    assert local.comm_bytes_per_device == pytest.approx(local.cost.comm_bytes)
    assert local.flops_per_device == local.cost.flops > 0
    assert local.peak_memory_bytes >= 9 * 7 * 4 / 2
    assert not local.warnings
    assert "8 devices" in repr(local)


def test_source_and_text_are_of_the_same_program(local: hs.Partitioned) -> None:
    assert "shard_map" in local.as_python()
    compile(local.as_python(), "<test>", "exec")
    assert "num_partitions=8" in local.to_hlo_text()
    assert hs.load(local.to_hlo_text(), format="hlo").num_partitions == 8
    assert "stablehlo" in local.module.to_stablehlo_text()


def test_arguments_are_checked(local: hs.Partitioned) -> None:
    with pytest.raises(TypeError, match="structure"):
        local.run(X)
    with pytest.raises(ExecutionError, match=r"input 0 has shape \[7, 9\]"):
        local.run(X.T, W)
    with pytest.raises(ExecutionError, match="type"):
        local.run(X.astype(np.int32), W)


def test_modules_from_text_take_flat_arrays() -> None:
    local = hs.partition(module_of(f"""
        x = f32[9,6] parameter(0){mark("[4,2]<=[8]")}
        y = f32[6] parameter(1){mark("")}
        b = f32[9,6] broadcast(y), dimensions={{1}}
        ROOT r = f32[9,6] add(x, b){mark("[8,1]7,6,5,4,3,2,1,0")}"""))  # fmt: skip
    x, y = np.arange(54, dtype=np.float32).reshape(9, 6), np.arange(6, dtype=np.float32)
    assert np.array_equal(local.run(x, y), x + y)
    assert np.array_equal(local.run_reference(x, y), x + y)
    with pytest.raises(ExecutionError, match="takes 2 arrays, 1 were given"):
        local.run(x)
    with pytest.raises(ExecutionError, match="keyword"):
        local.run(x, y=y)


def test_a_propagation_is_taken_as_it_is() -> None:
    module = module_of(f"x = f32[16] parameter(0){mark('[8]<=[8]')}\n ROOT r = f32[16] negate(x)")
    propagation = hs.propagate(module, to_outputs=True)
    local = hs.partition(propagation)
    assert local.propagation is propagation
    assert str(local.module.sharding(local.module.entry.root)) == "{devices=[8]<=[8]}"


def test_devices_are_counted_from_the_shardings() -> None:
    module = module_of("x = f32[16] parameter(0), sharding={devices=[6]<=[6]}\n ROOT r = f32[16] negate(x)", devices=1)
    assert hs.partition(module).num_partitions == 6
    with pytest.raises(PartitionError, match="for 6 devices, the program for 4"):
        hs.partition(module, num_partitions=4)


def test_a_program_for_six_of_eight_devices_runs() -> None:
    mesh = Mesh(np.array(jax.devices("cpu")[:6]).reshape(2, 3), ("a", "b"))
    module = hs.trace(step, mesh=mesh, in_shardings=(P("a"), P(None, "b")))(X, W)
    for a, b in zip(hs.partition(module).run(X, W), step(X, W), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_devices_may_be_given_in_any_order() -> None:
    module = hs.trace(lambda x: x * 2, in_shardings="{devices=[8]<=[8]}")(np.arange(16, dtype=np.float32))
    devices = jax.devices("cpu")[::-1]
    out = hs.partition(module).compile(devices)(np.arange(16, dtype=np.float32))
    assert np.array_equal(np.asarray(out), np.arange(16) * 2)


def test_donated_parameters_are_gone() -> None:
    module = hs.trace(lambda x: x * 2, in_shardings="{devices=[8]<=[8]}", out_shardings="{devices=[8]<=[8]}")(
        np.arange(16, dtype=np.float32)
    )
    x = hs.device_put(np.arange(16, dtype=np.float32), "{devices=[8]<=[8]}")
    out = hs.partition(module).compile(donate=[0])(x)
    assert np.array_equal(np.asarray(out), np.arange(16) * 2)
    assert x.is_deleted()


def test_a_tuple_parameter_takes_a_tuple_or_its_arrays() -> None:
    text = """HloModule m, num_partitions=8
ENTRY e {
  p = (f32[16], (s32[8], f32[16])) parameter(0), sharding={{devices=[8]<=[8]}, {devices=[8]<=[8]}, {replicated}}
  a = f32[16] get-tuple-element(p), index=0
  q = (s32[8], f32[16]) get-tuple-element(p), index=1
  b = f32[16] get-tuple-element(q), index=1
  ROOT c = f32[16] subtract(a, b)
}
"""
    local = hs.partition(hs.load(text, format="hlo"))
    x, n, y = np.arange(16, dtype=np.float32), np.zeros(8, np.int32), np.ones(16, np.float32)
    for run in (local.run, local.run_reference, local.compile()):
        for given in (((x, (n, y)),), (x, n, y)):
            np.testing.assert_array_equal(run(*given), x - y)
        with pytest.raises(ExecutionError, match="takes 3 arrays, 2 were given"):
            run((x, y))


@pytest.mark.parametrize("op", ["maximum", "minimum"])
def test_of_complex_numbers_the_real_part_decides(op: str) -> None:
    text = f"""HloModule m, num_partitions=8
f {{
  p = c64[] parameter(0)
  q = c64[] parameter(1)
  ROOT r = c64[] {op}(p, q)
}}
ENTRY e {{
  a = c64[32] parameter(0), sharding={{devices=[8]<=[8]}}
  b = c64[32] parameter(1), sharding={{devices=[8]<=[8]}}
  z = c64[] constant((0, 0))
  each = c64[32] {op}(a, b)
  all = c64[] reduce(a, z), dimensions={{0}}, to_apply=f
  ROOT t = (c64[32], c64[]) tuple(each, all)
}}
"""
    module = hs.load(text, format="hlo")
    local = hs.partition(hs.propagate(module, to_outputs=True))
    random = np.random.default_rng(0)
    parts = np.arange(32) - 16 + 1j * random.integers(-3, 4, 32), random.integers(-2, 3, 32) - 1j
    a, b = (random.permutation(part).astype(np.complex64) for part in parts)
    b[:8] = a[:8] + 2j  # of equal real parts the first one stays
    expected = [copies[0] for copies in run_proto(without_shardings(module.to_hlo_proto()), [[a], [b]])]
    for run in (local.run, local.run_reference):
        for found, right in zip(run(a, b), expected, strict=True):
            np.testing.assert_array_equal(found, right)
