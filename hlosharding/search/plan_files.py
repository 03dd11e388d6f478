"""Found plans as files, and the schedule that a file's plan means.

Floor: search.
"""

from __future__ import annotations

from dataclasses import replace

from hlosharding.cost import Machine, preset_text
from hlosharding.errors import ScheduleError
from hlosharding.ir import Instruction, Module
from hlosharding.plans import PipelineSteps, PlanFile
from hlosharding.schedule import Cutter, Layout, Schedule
from hlosharding.search.planner import Planner
from hlosharding.search.plans import CONTEXT, REPLICAS, Plan
from hlosharding.sharding import MeshInfo

_WAYS = ("data", "tensor")


def plan_file(planner: Planner, plan: Plan, machine: Machine) -> PlanFile:
    """A plan as a file: the shardings that its strategy gives the arguments over the mesh of a stage, and the rest.

    Raises ScheduleError where the plan does not suit the program.
    """
    annotated = planner.annotated(plan)
    parameters = annotated.entry.parameters
    said = {_path(p): annotated.sharding(p) for p in parameters}
    stage = PlanFile.of({name: sharding for name, sharding in said.items() if sharding is not None}, mesh=_stage(plan))
    batch = tuple(_path(p) for p in parameters if p.parameter_number in planner.numbers)
    steps = PipelineSteps(
        stages=plan.stages, microbatches=plan.microbatches, batch=batch, schedule=plan.schedule, order=plan.order
    )
    is_cut = plan.stages * plan.microbatches > 1
    return replace(
        stage,
        mesh=stage.mesh if is_cut else MeshInfo(tuple(plan.ways), tuple(plan.ways.values()), plan.submeshes[0]),
        machine=preset_text(machine) or "",
        pipeline=steps if is_cut else None,
        comment=f"{plan} (data/tensor/stages/microbatches), found for {machine.name}",
    )


def _stage(plan: Plan) -> MeshInfo:
    """The mesh of a stage's own numbers."""
    return MeshInfo(tuple(plan.ways), tuple(plan.ways.values()))


def _path(parameter: Instruction) -> str:
    return parameter.op_name or parameter.name


def schedule_of(plan: PlanFile, module: Module, machine: Machine | None = None) -> Schedule:
    """The schedule of a plan with stages, of a program that is not annotated yet.  Raises ScheduleError.

    >>> import jax.numpy as jnp, hlosharding as hs
    >>> module = hs.trace(lambda w, x: jnp.tanh(jnp.tanh(x @ w[0]) @ w[1]))(jnp.ones((2, 4, 4)), jnp.ones((8, 4)))
    >>> text = "[mesh]\\ndata = 2\\n[annotations]\\nx = 'P(data)'\\n[pipeline]\\nstages = 2\\nbatch = ['x']"
    >>> len(schedule_of(PlanFile.parse(text), module).devices)
    4
    """
    steps = plan.pipeline or PipelineSteps()
    annotated = plan.apply(module)
    sizes = dict(zip(plan.mesh.names, plan.mesh.sizes, strict=True)) if plan.mesh is not None else {}
    replicas, context = sizes.pop(REPLICAS, 1), sizes.pop(CONTEXT, 1)
    parts = replicas * context
    data, tensor = sizes.values() if tuple(sizes) == _WAYS else (max(1, annotated.num_partitions) // parts, 1)
    stages = steps.stages or module.stages or 1
    layout = Layout.of(stages, steps.schedule)
    cut = Plan(data * parts, tensor, layout.submeshes, steps.microbatches, steps.schedule, steps.order)
    if not steps.batch and steps.microbatches > 1:
        raise ScheduleError("the plan has microbatches, and no batch", remedy='write batch = ["x"] under [pipeline]')
    pipeline = Cutter(module, steps.batch).pipeline(
        annotated, layout, cut.submeshes, cut.microbatches, machine or plan.machine_for(cut.num_devices)
    )
    return pipeline.schedule(cut.schedule or pipeline.usual_order, cut.microbatches)
