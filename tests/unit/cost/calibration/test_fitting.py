"""Fits find the figures of a machine that a fake measurer stands for, whatever they start from."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from hlosharding.cost import Link, Machine, machines
from hlosharding.cost.calibration import all_probes, fit_machine, fit_to_probes
from hlosharding.cost.calibration.probes import CALL
from hlosharding.errors import CostError

REAL = replace(
    machines.cpu(8),
    peak_flops=(("f32", 3e10), ("f64", 1e10), ("bf16", 2e10)),
    vector_flops=5e9,
    memory_bandwidth=1e9,
    cache_bytes=1e6,
    cache_bandwidth=6e9,
    launch=3e-6,
    collective_launch=4e-5,
    program_launch=2e-4,
    inside=Link(bandwidth=3e9, latency=2e-5),
    collective_rates=(("all-gather", 0.5), ("reduce-scatter", 1.0), ("all-to-all", 0.2), ("collective-permute", 1.5)),
)


def figures(machine: Machine) -> dict[str, float]:
    names = ("vector_flops", "memory_bandwidth", "cache_bandwidth", "launch", "collective_launch", "program_launch")
    found = {name: getattr(machine, name) for name in names}
    found |= {"latency": machine.inside.latency, "bandwidth": machine.inside.bandwidth}
    return found | dict(machine.collective_rates) | {dtype: machine.flops(dtype) for dtype in ("f32", "bf16")}


@pytest.mark.parametrize("base", [machines.cpu(8), machines.h100(8), machines.v100(8)], ids=lambda m: m.name)
def test_figures_come_back_from_what_they_predict(base: Machine) -> None:
    real = replace(REAL, nccl=base.nccl, matrix_tile=base.matrix_tile, matrix_units=base.matrix_units)
    found = fit_machine(base, {probe: probe.predict_seconds(real) for probe in all_probes(8)})
    assert figures(found) == pytest.approx(figures(real), rel=0.1)
    assert found.cache_bytes == pytest.approx(1e6, rel=0.1)


def test_noise_and_a_few_outliers_do_little() -> None:
    random = Random(1)
    measured = {probe: probe.predict_seconds(REAL) * random.uniform(0.9, 1.1) for probe in all_probes(8)}
    for probe in random.sample(sorted(measured, key=str), 4):
        measured[probe] *= 10 if probe.kind != CALL else 1
    found, real = figures(fit_machine(machines.cpu(8), measured)), figures(REAL)
    assert all(1 / 1.6 < found[name] / real[name] < 1.6 for name in real)


def test_what_nothing_is_measured_of_stays() -> None:
    base = machines.h100(1)
    found = fit_machine(base, {probe: probe.predict_seconds(REAL) for probe in all_probes(1)})
    assert (found.inside, found.between, found.matrix_tile) == (base.inside, base.between, base.matrix_tile)
    assert (found.collective_launch, found.flops("f8")) == (base.collective_launch, base.flops("f8"))


def test_rates_are_those_reached() -> None:
    found = fit_machine(machines.h100(8), {probe: probe.predict_seconds(REAL) for probe in all_probes(8)})
    assert (found.compute_efficiency, found.memory_efficiency) == (1.0, 1.0)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused(seconds: float) -> None:
    probe = all_probes(1)[0]
    with pytest.raises(CostError, match=r"program call .* took"):
        fit_machine(machines.cpu(1), {probe: seconds})


def test_residuals_are_of_every_probe_and_say_what_is_off() -> None:
    wanted = all_probes(2)
    odd = next(probe for probe in wanted if str(probe) == "product f32[256,256] f32[256,256]")
    real = replace(REAL, num_devices=2)
    found = fit_to_probes(machines.cpu(2), wanted, lambda p: p.predict_seconds(real) * (5 if p is odd else 1))
    assert [row.probe for row in found.measurements] == wanted
    assert found.worst().probe == found.worst("product").probe == odd
    assert found.worst().ratio == pytest.approx(0.2, rel=0.2)
    assert found.worst().off == pytest.approx(5, rel=0.2)
    assert sum(map(len, found.by_kind.values())) == len(wanted)


def test_progress_counts_probes() -> None:
    told: list[tuple[int, int]] = []
    wanted = all_probes(1)[:3]
    fit_to_probes(machines.cpu(1), wanted, lambda p: 1e-3, progress=lambda done, most: told.append((done, most)))
    assert told == [(0, 3), (1, 3), (2, 3)]
