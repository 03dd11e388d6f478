"""What JAX's CPU devices are measured to take: every figure positive and finite, every probe in the residuals."""

from __future__ import annotations

from dataclasses import fields, replace
from math import isfinite
from typing import Any

import jax.numpy as jnp
import pytest

import hlosharding as hs
from hlosharding.cost import machines, read_machine
from hlosharding.cost.calibration import DeviceTimer, all_probes, calibration_of, fit_to_probes
from hlosharding.cost.calibration.probes import (
    CALL,
    LAUNCH,
    collective_probes,
    elementwise_probe,
    memory_probes,
    product_probe,
)
from hlosharding.errors import CostError

REAL = replace(machines.a100(4), program_launch=1e-4)


def test_a_small_machine_of_two_devices(cpu_devices: list[Any], tmp_path: Any) -> None:
    small = [p for p in all_probes(2, largest=256) if p.kind in (CALL, LAUNCH)]
    wanted = [
        *small,
        product_probe(64, 64, 64),
        product_probe(128, 64, 32),
        *memory_probes(128),
        *collective_probes(2, 16),
    ]
    found = fit_to_probes(machines.cpu(2), wanted, DeviceTimer(cpu_devices[:2], seconds=0.002))
    assert [row.probe for row in found.measurements] == wanted
    assert all(0 < row.measured_s < 60 and 0 < row.predicted_s < 60 for row in found.measurements)
    numbers = [getattr(found.machine, field.name) for field in fields(found.machine) if field.type == "float"]
    assert all(isfinite(number) and number >= 0 for number in numbers)
    path = tmp_path / "here.toml"
    path.write_text(found.text())
    assert read_machine(path) == found.machine


def test_more_work_takes_longer(cpu_devices: list[Any]) -> None:
    timer = DeviceTimer(cpu_devices[:1], seconds=0.005)
    assert timer(product_probe(512, 512, 512)) > timer(product_probe(32, 32, 32))
    assert timer.launch > 0


def test_no_devices_and_devices_of_two_kinds_are_refused(cpu_devices: list[Any]) -> None:
    with pytest.raises(CostError, match="no devices"):
        hs.calibrate([])

    class Other:
        platform = "cuda"

    with pytest.raises(CostError, match="not of one kind"):
        DeviceTimer([cpu_devices[0], Other()])


def test_a_program_gives_the_products(cpu_devices: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeviceTimer, "__init__", lambda self, devices: None)
    monkeypatch.setattr(DeviceTimer, "__call__", lambda self, probe: probe.predict_seconds(REAL))
    module = hs.trace(lambda x, y: x @ y)(jnp.ones((24, 8)), jnp.ones((8, 40)))
    found = calibration_of(cpu_devices[:4], program=module)
    assert [str(row.probe) for row in found.by_kind["product"]] == ["product f32[24,8] f32[8,40]"]
    assert found.measured_on["devices"] == 4
    assert (found.machine.num_devices, found.machine.devices_per_node) == (4, 4)
    assert hs.calibrate(cpu_devices[:4], program=module) == found.machine


def test_a_probe_that_nothing_is_compiled_for_is_seen(cpu_devices: list[Any]) -> None:
    timer = DeviceTimer(cpu_devices[:1], seconds=0.001)
    with pytest.raises(TypeError):
        timer(elementwise_probe("stream", (8, 8), flops=1.0))
