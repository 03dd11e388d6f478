"""When the steps of a schedule run on a machine, and what each device holds meanwhile."""

from hlosharding.schedule.simulation.recording import AT_START, Application, Recording
from hlosharding.schedule.simulation.schedule_simulation import ScheduleSimulation, Semantics, StepEvent, Usage
from hlosharding.schedule.simulation.simulator import recorded, simulate_schedule, simulated

__all__ = [
    "AT_START",
    "Application",
    "Recording",
    "ScheduleSimulation",
    "Semantics",
    "StepEvent",
    "Usage",
    "recorded",
    "simulate_schedule",
    "simulated",
]
