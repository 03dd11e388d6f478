"""A machine from measurements on the devices that JAX has: what to measure, how, and how to fit the figures."""

from hlosharding.cost.calibration.device_timer import DeviceTimer
from hlosharding.cost.calibration.fitting import fitted
from hlosharding.cost.calibration.machine_of_devices import (
    Calibration,
    Measurement,
    Progress,
    calibrate,
    calibration,
    calibration_of,
)
from hlosharding.cost.calibration.probes import Probe, probes
from hlosharding.cost.calibration.program_probes import program_probes

__all__ = [
    "Calibration",
    "DeviceTimer",
    "Measurement",
    "Probe",
    "Progress",
    "calibrate",
    "calibration",
    "calibration_of",
    "fitted",
    "probes",
    "program_probes",
]
