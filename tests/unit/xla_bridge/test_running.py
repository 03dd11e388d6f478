"""Modules run as they stand."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from hlosharding import xla_bridge
from hlosharding.errors import ExecutionError
from tests.support.collectives_text import TEXT

NEGATE = "HloModule n\nENTRY %e (x: f64[3]) -> f64[3] {\n  %x = f64[3] parameter(0)\n  ROOT %y = f64[3] negate(%x)\n}\n"


def test_a_module_with_collectives_runs_as_it_stands() -> None:
    x = [np.full((4, 2), d, np.float32) for d in range(4)]
    i = [np.int32(10 + d) for d in range(4)]
    total, shifted, me = xla_bridge.run_proto(xla_bridge.hlo_text_to_proto(TEXT), [x, i], num_devices=4)
    assert [t[0, 0] for t in total] == [1, 1, 5, 5]
    assert [int(s) for s in shifted] == [11, 10, 0, 0]
    assert [int(p) for p in me] == [0, 1, 2, 3]


def test_one_device_keeps_64_bits_and_compiles_once() -> None:
    proto = xla_bridge.hlo_text_to_proto(NEGATE)
    ((y,),) = xla_bridge.run_proto(proto, [[np.array([1.0, 1e-300, 3.0])]])
    assert y.dtype == np.float64
    assert y[1] == -1e-300
    assert xla_bridge.compile_proto(proto) is xla_bridge.compile_proto(proto)


def test_too_few_devices_and_wrong_arguments_are_execution_errors() -> None:
    proto = xla_bridge.hlo_text_to_proto(NEGATE)
    with pytest.raises(ExecutionError, match="xla_force_host_platform_device_count=100000"):
        xla_bridge.compile_proto(proto, 100000)
    with pytest.raises(ExecutionError, match="2 local arrays for 1 devices"):
        xla_bridge.run_proto(proto, [[np.ones(3), np.ones(3)]])
    with pytest.raises(ExecutionError):
        xla_bridge.run_proto(proto, [[np.ones(4)]])


def test_of_several_processes_each_runs_modules_on_its_own_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    own = jax.devices("cpu")[4:]
    monkeypatch.setattr(jax, "local_devices", lambda backend: own)
    assert xla_bridge.cpu_devices(3) == tuple(own[:3])
    with pytest.raises(ExecutionError, match="5 CPU devices are needed and this process has 4"):
        xla_bridge.cpu_devices(5)
