"""Simulated runs of pipelines, for searches: without writing schedules.

Floor: schedule.
"""

from __future__ import annotations

from hlosharding.cost import Machine
from hlosharding.schedule.pipelines.pipeline import Pipeline
from hlosharding.schedule.pipelines.step_recorder import StepRecorder, Steps
from hlosharding.schedule.simulation import ScheduleSimulation, simulate_recording


class PipelineRuns:
    """Runs on one machine; the steps of pipelines that have the same passes are found once."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._steps: dict[object, tuple[Pipeline, Steps]] = {}

    def simulate(self, pipeline: Pipeline, name: str, microbatches: int) -> ScheduleSimulation:
        """What `pipeline.schedule(name, microbatches).simulate(machine)` gives."""
        key = pipeline.outline, name, microbatches
        if key not in self._steps:
            recorder = StepRecorder()
            self._steps[key] = pipeline, recorder.finish_steps(*pipeline.write(recorder, name, microbatches))
        like, steps = self._steps[key]
        ops = {step.op: other.op for step, other in zip(like.all_steps, pipeline.all_steps, strict=True)}
        return simulate_recording(steps.price(list(pipeline.inputs.values()), ops, self.machine))
