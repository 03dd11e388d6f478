"""The figures of a machine that make the cost formulas agree with what was measured.

Floor: cost.  There are no formulas here: each probe is priced as everything else is, and the figures are changed until
the ratios of priced to measured are near one (least squares of their logarithms; outliers count linearly).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from statistics import median
from typing import Any

from hlosharding.cost.calibration.probes import ARITHMETIC, CALL, LAUNCH, STREAM, Probe
from hlosharding.cost.machine import Machine
from hlosharding.cost.model import count_operations
from hlosharding.errors import CostError

Measured = Mapping[Probe, float]
"""Seconds."""


@dataclass(frozen=True, slots=True)
class _Figure:
    """A figure that is fitted: where it starts from, and the machine with another value of it."""

    start: float
    changed: Callable[[Machine, float], Machine]
    also: Sequence[float] = ()
    """Other starts to try: where the way down from one may end in a valley that is not the deepest."""


def fit_machine(base: Machine, measured: Measured) -> Machine:
    """`base` with the figures that the measurements tell of; what they do not tell of stays.

    Raises CostError for a time that is none.

    >>> from hlosharding.cost import machines
    >>> from hlosharding.cost.calibration import all_probes
    >>> real = replace(machines.a100(8), launch=9e-6, program_launch=1e-4)
    >>> found = fit_machine(machines.a100(8), {probe: probe.predict_seconds(real) for probe in all_probes(8)})
    >>> abs(found.launch / real.launch - 1) < 0.05
    True
    """
    bad = next((probe for probe, seconds in measured.items() if not 0 < seconds < float("inf")), None)
    if bad is not None:
        raise CostError(f"{bad} took {measured[bad]} s", remedy="measure again")
    local = {probe: seconds for probe, seconds in measured.items() if probe.work is not None}
    shared = {probe: seconds for probe, seconds in measured.items() if probe.work is None and probe.kind != CALL}
    # What products and streams reach is the rate itself; a share of it would be a second name for the same figure.
    machine = replace(base, compute_efficiency=1.0, spread=0.0, memory_efficiency=1.0, collective_rates=())
    machine = _least_squares(machine, _local_figures(local), local)
    machine = _least_squares(machine, _link_figures(shared), shared)
    calls = [seconds for probe, seconds in measured.items() if probe.kind == CALL]
    return replace(machine, program_launch=median(calls)) if calls else machine


def _local_figures(measured: Measured) -> list[_Figure]:
    figures: list[_Figure] = []
    if starts := [seconds for probe, seconds in measured.items() if probe.kind == LAUNCH]:
        figures.append(_Figure(median(starts), lambda m, value: replace(m, launch=value)))
    if streams := [probe.work.bytes / s for probe, s in measured.items() if probe.work and probe.kind == STREAM]:
        traffic = [probe.work.bytes for probe in measured if probe.work is not None and probe.kind == STREAM]
        figures += [
            _Figure(_share(streams, 0.2), lambda m, value: replace(m, memory_bandwidth=value)),
            _Figure(_share(streams, 0.8), lambda m, value: replace(m, cache_bandwidth=value)),
            _Figure(_share(traffic, 0.5), lambda m, value: replace(m, cache_bytes=value), traffic),
        ]
    if rates := [count_operations(p.work) / s for p, s in measured.items() if p.work and p.kind == ARITHMETIC]:
        figures.append(_Figure(median(rates), lambda m, value: replace(m, vector_flops=value)))
    for dtype in dict.fromkeys(probe.dtype for probe in measured if _is_product(probe)):
        reached = [p.work.flops / s for p, s in measured.items() if p.work and _is_product(p) and p.dtype == dtype]
        figures.append(_Figure(_share(reached, 0.8), lambda m, value, dtype=dtype: _with_rate(m, dtype, value)))
    return figures


def _link_figures(measured: Measured) -> list[_Figure]:
    if not measured:
        return []
    least = _share(list(measured.values()), 0.1)
    moved = _share([probe.nbytes / seconds for probe, seconds in measured.items()], 0.8)
    kinds = list(dict.fromkeys(probe.kind for probe in measured))
    return [
        _Figure(least, lambda m, value: replace(m, collective_launch=value)),
        _Figure(least / 20, lambda m, value: replace(m, inside=replace(m.inside, latency=value))),
        _Figure(moved, lambda m, value: replace(m, inside=replace(m.inside, bandwidth=value))),
        # Beside the first kind's, which the bandwidth itself is.
        *(_Figure(1.0, lambda m, value, kind=kind: _with_collective_rate(m, kind, value)) for kind in kinds[1:]),
    ]


def _is_product(probe: Probe) -> bool:
    return probe.work is not None and probe.work.matrix is not None and probe.kind != LAUNCH


def _with_rate(machine: Machine, dtype: str, rate: float) -> Machine:
    rates = dict(machine.peak_flops) | {dtype: rate}
    return replace(machine, peak_flops=tuple(rates.items()))


def _with_collective_rate(machine: Machine, kind: str, rate: float) -> Machine:
    rates = dict(machine.collective_rates) | {kind: rate}
    return replace(machine, collective_rates=tuple(rates.items()))


def _least_squares(base: Machine, figures: Sequence[_Figure], measured: Measured) -> Machine:
    """`base` with the figures that fit best."""
    if not figures:
        return base
    logs = [(probe, log(seconds)) for probe, seconds in measured.items()]

    def ratios(values: Any) -> list[float]:
        machine = _with_figures(base, figures, values)
        return [log(probe.predict_seconds(machine)) - seconds for probe, seconds in logs]

    found = min((_descent(ratios, [log(value) for value in start]) for start in _starts(figures)), key=lambda f: f.cost)
    return _with_figures(base, figures, found.x)


def _starts(figures: Sequence[_Figure]) -> list[list[float]]:
    usual = [figure.start for figure in figures]
    others = [(place, value) for place, figure in enumerate(figures) for value in dict.fromkeys(figure.also)]
    return [usual, *([*usual[:place], value, *usual[place + 1 :]] for place, value in others)]


def _descent(ratios: Callable[[Any], list[float]], start: Sequence[float]) -> Any:
    from scipy.optimize import least_squares

    # A figure that nothing depends on stays near its start; others may move by four orders of magnitude.
    bounds = ([value - 10 for value in start], [value + 10 for value in start])
    return least_squares(ratios, start, bounds=bounds, loss="soft_l1", f_scale=0.3, diff_step=1e-3, max_nfev=100)


def _share(values: Sequence[float], share: float) -> float:
    """The value below which that share of them lies."""
    return sorted(values)[int(share * (len(values) - 1))]


def _with_figures(machine: Machine, figures: Sequence[_Figure], logs: Any) -> Machine:
    for figure, value in zip(figures, logs, strict=True):
        machine = figure.changed(machine, exp(value))
    return machine
