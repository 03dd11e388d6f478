"""A schedule on JAX's devices, of one process or several."""

from hlosharding.schedule.execution.executable import ScheduleExecutable

__all__ = ["ScheduleExecutable"]
