"""When the steps of a schedule run on a machine, and what each device holds meanwhile."""

from hlosharding.schedule.simulation.recording import AT_START, Application, Recording
from hlosharding.schedule.simulation.schedule_simulation import ScheduleSimulation, Semantics, StepEvent, Usage
from hlosharding.schedule.simulation.simulator import record_steps, simulate_recording, simulate_schedule

__all__ = [
    "AT_START",
    "Application",
    "Recording",
    "ScheduleSimulation",
    "Semantics",
    "StepEvent",
    "Usage",
    "record_steps",
    "simulate_recording",
    "simulate_schedule",
]
