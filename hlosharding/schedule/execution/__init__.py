"""A schedule on JAX's devices, of one process or several."""

from hlosharding.schedule.execution.array_ops import Call, local_call
from hlosharding.schedule.execution.executable import ScheduleExecutable

__all__ = ["Call", "ScheduleExecutable", "local_call"]
