"""`hs.calibrate`: a machine whose figures are those of the devices that JAX has here.

Floor: cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, NamedTuple

from hlosharding.cost import machines
from hlosharding.cost.calibration.device_timer import DeviceTimer
from hlosharding.cost.calibration.fitting import fit_machine
from hlosharding.cost.calibration.probes import PRODUCT, Probe, all_probes
from hlosharding.cost.calibration.program_probes import program_probes
from hlosharding.cost.machine import Machine
from hlosharding.cost.machine_file import machine_text
from hlosharding.cost.presets import preset_of_kind
from hlosharding.errors import CostError
from hlosharding.ir import Module
from hlosharding.notebook import InNotebooks

Progress = Callable[[int, int], None]
"""Told (probes done, probes in all)."""


_LONGEST = 0.02
"""Seconds, by the preset: an op that takes so long is at its rate; larger ones cost time and tell nothing more."""


class Measurement(NamedTuple):
    """What a probe took, and what the fitted machine says that it takes."""

    probe: Probe
    measured_s: float
    predicted_s: float

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted_s / self.measured_s

    @property
    def off(self) -> float:
        """How many times too long or too short, whichever it is."""
        return max(self.ratio, 1 / self.ratio)


@dataclass(frozen=True)
class Calibration(InNotebooks):
    """A fitted machine, and how well it fits what was measured.

    >>> from hlosharding.cost import machines
    >>> from hlosharding.cost.calibration import all_probes, fit_to_probes
    >>> real = replace(machines.h100(4), launch=1e-5, program_launch=1e-4)
    >>> found = fit_to_probes(machines.h100(4), all_probes(4), lambda probe: probe.predict_seconds(real))
    >>> found.worst().off < 1.1
    True
    """

    machine: Machine
    measurements: tuple[Measurement, ...]
    measured_on: dict[str, str | int]
    """What the figures are of: the kind of devices, how many, and the versions."""

    @property
    def by_kind(self) -> dict[str, list[Measurement]]:
        """Measurements of each kind of probe."""
        found: dict[str, list[Measurement]] = {}
        for each in self.measurements:
            found.setdefault(each.probe.kind, []).append(each)
        return found

    def worst(self, kind: str | None = None) -> Measurement:
        """The one that fits least, of all or of one kind."""
        return max((each for each in self.measurements if kind in (None, each.probe.kind)), key=lambda each: each.off)

    def text(self) -> str:
        """A machine file that `read_machine` and `--machine` take, with what it was measured on."""
        return machine_text(self.machine, measured_on=self.measured_on)

    def __str__(self) -> str:
        off = [
            f"{kind} {median(each.off for each in found):.2f} times (worst {max(each.off for each in found):.2f})"
            for kind, found in self.by_kind.items()
        ]
        return f"{self.machine.name} from {len(self.measurements)} measurements, off by " + ", ".join(off)


def calibrate(devices: Sequence[Any] | None = None, *, program: Module | None = None) -> Machine:
    """Measure the devices that JAX has, all busy at once, and fit a machine to what was measured.

    `devices`: of one kind (default: all of JAX's).  `program`: a traced program, whose products and convolutions are
    measured in place of square ones.  What cannot be measured (tiles of the matrix units, memory, links between nodes)
    is as in the preset for that kind of device.  `hlosharding calibrate` writes the machine to a file.

    >>> import jax, hlosharding as hs
    >>> machine = hs.calibrate(jax.devices()[:1])  # doctest: +SKIP
    >>> machine.flops("f32"), machine.launch  # doctest: +SKIP
    (96100000000.0, 7.1e-07)
    """
    return calibration_of(devices, program=program).machine


def calibration_of(
    devices: Sequence[Any] | None = None, *, program: Module | None = None, progress: Progress | None = None
) -> Calibration:
    """As `calibrate`, with what was measured."""
    import jax

    found = list(devices) if devices is not None else jax.devices()
    if not found:
        raise CostError("no devices to calibrate", remedy="give one at least")
    base = _base(found)
    wanted = [probe for probe in all_probes(len(found), largest=8192) if probe.predict_seconds(base) < _LONGEST]
    if program is not None:
        wanted = [probe for probe in wanted if probe.kind != PRODUCT] + program_probes(program)
    made = fit_to_probes(base, wanted, DeviceTimer(found), progress=progress)
    facts: dict[str, str | int] = {"device_kind": found[0].device_kind, "devices": len(found), "jax": jax.__version__}
    return replace(made, measured_on=facts)


def _base(devices: Sequence[Any]) -> Machine:
    """What stays where nothing is measured."""
    kind, count = devices[0].device_kind, len(devices)
    known = machines.cpu if devices[0].platform == "cpu" else preset_of_kind(kind) or machines.h100
    # The chip is left out: its clock follows from the sheet's rate, not from one that was reached.
    base = replace(known(count), name=f"calibrated {kind}({count})", chip=None)
    if base.topology == "torus" or len({device.process_index for device in devices}) > 1:
        return base
    return replace(base, devices_per_node=count)


def fit_to_probes(
    base: Machine, wanted: Sequence[Probe], measure: Callable[[Probe], float], *, progress: Progress | None = None
) -> Calibration:
    """Fit `base` to what `measure` tells of the probes, in seconds."""
    measured: dict[Probe, float] = {}
    for done, probe in enumerate(wanted):
        if progress is not None:
            progress(done, len(wanted))
        measured[probe] = measure(probe)
    machine = fit_machine(base, measured)
    rows = tuple(Measurement(probe, seconds, probe.predict_seconds(machine)) for probe, seconds in measured.items())
    return Calibration(machine, rows, {})
