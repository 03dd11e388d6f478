"""Devices that are only described, and XLA's own partitioner on a module."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import pytest
from jax.experimental import topologies

from hlosharding import xla_bridge
from hlosharding.errors import ExecutionError

SUM = """HloModule m, num_partitions=8
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[64,4] parameter(0), sharding={devices=[8,1]<=[8]}
  zero = f32[] constant(0)
  y = f32[64,4] negate(x)
  s = f32[4] reduce(y, zero), dimensions={0}, to_apply=add
  ROOT r = (f32[4], f32[64,4]) tuple(s, y)
}"""


def test_without_a_plugin_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(**_: object) -> None:
        raise NotImplementedError("topology not implemented for cuda")

    monkeypatch.setattr(topologies, "get_topology_desc", absent)
    with pytest.raises(ExecutionError, match=r"no compiler for NVIDIA GPUs; pip install 'hlosharding\[cuda12\]'"):
        xla_bridge.described_devices("", "1x1x8")


@pytest.mark.gpu_compiler
def test_a_text_that_xla_cannot_read_is_an_error_of_ours() -> None:
    with pytest.raises(ExecutionError, match=r"XLA takes no such GPUs: .*GpuTargetConfigProto"):
        xla_bridge.described_devices("core_cunt: 1", "1x1x8")


def test_devices_of_jax_are_there() -> None:
    assert not any(xla_bridge.is_described(device) for device in jax.devices())
    assert not xla_bridge.is_described(object())
    assert xla_bridge.is_described(SimpleNamespace(client=SimpleNamespace(runtime_type="compile_only_runtime")))


@pytest.mark.oracle
def test_xlas_own_partitioner_compiles_a_module_with_shardings() -> None:
    proto = xla_bridge.hlo_text_to_proto(SUM)
    text, stats = xla_bridge.compile_with_gspmd(proto, jax.devices()[:8])
    assert "all-reduce" in text
    assert "all-gather" in text
    assert stats.argument_size_in_bytes == 8 * 4 * 4
    opened, _ = xla_bridge.compile_with_gspmd(proto, jax.devices()[:8], to_outputs=[True])
    assert "all-gather" not in opened
