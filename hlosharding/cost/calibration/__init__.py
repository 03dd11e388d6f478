"""A machine from measurements on the devices that JAX has: what to measure, how, and how to fit the figures."""

from hlosharding.cost.calibration.device_timer import DeviceTimer
from hlosharding.cost.calibration.fitting import fit_machine
from hlosharding.cost.calibration.machine_of_devices import (
    Calibration,
    Measurement,
    calibrate,
    calibration_of,
    fit_to_probes,
)
from hlosharding.cost.calibration.probes import all_probes
from hlosharding.cost.calibration.program_probes import program_probes

__all__ = [
    "Calibration",
    "DeviceTimer",
    "Measurement",
    "all_probes",
    "calibrate",
    "calibration_of",
    "fit_machine",
    "fit_to_probes",
    "program_probes",
]
