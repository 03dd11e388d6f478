"""Found plans as files, and the schedule that a file's plan means.

Floor: search.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import takewhile

from hlosharding.cost import Machine, machine_of, preset_text
from hlosharding.errors import PlanError, ScheduleError
from hlosharding.frontends import annotate
from hlosharding.ir import Instruction, Module
from hlosharding.plans import PipelineSteps, PlanFile
from hlosharding.schedule import (
    Cutter,
    Schedule,
    StageAxes,
    StageLayout,
    argument_numbers,
    flows_of,
    is_layout_call,
    keep_split,
    recompute_layers,
    recomputed_ops,
    sharding_as_read,
    without_layout_calls,
)
from hlosharding.search.planner import Planner, argument_of
from hlosharding.search.plans import AXES, CONTEXT, EXPERTS, REPLICAS, Plan
from hlosharding.search.strategies import STRATEGIES, Specs, Ways, mesh_of, number_specs, sum_as
from hlosharding.search.updates import lay_updated_alike
from hlosharding.sharding import MeshInfo


def plan_file(planner: Planner, plan: Plan, machine: Machine) -> PlanFile:
    """A plan as a file: the shardings that its strategy gives the arguments over the mesh of a stage, and the rest.

    Raises ScheduleError where the plan does not suit the program.
    """
    parameters = planner.module.entry.parameters
    is_cut = plan.stages * plan.microbatches > 1
    said = {name: getattr(plan, name) for name in ("stages", "microbatches", "schedule", "order", "even", "layers")}
    strategy = planner.find_strategy(plan.strategy)
    return PlanFile(
        annotations=_annotations(planner, plan),
        mesh=MeshInfo(tuple(plan.ways), tuple(plan.ways.values()), None if is_cut else plan.submeshes[0]),
        machine=preset_text(machine) or "",
        strategy=next((name for name, each in STRATEGIES.items() if each is strategy), ""),
        sequence=plan.sequence,
        recompute=plan.recompute,
        batch=_names(parameters, planner.numbers),
        donate=_names(parameters, planner.donated),
        pipeline=PipelineSteps(**said) if is_cut else None,
        comment=f"{plan} (data/tensor/stages/microbatches), found for {machine.name}",
    )


def _annotations(planner: Planner, plan: Plan) -> tuple[tuple[str, str], ...]:
    """The arguments' shardings over the mesh of a stage."""
    annotated = planner.annotate(plan)
    said = {p.path: sharding_as_read(p, annotated.sharding) for p in annotated.entry.parameters}
    return PlanFile.of({name: s for name, s in said.items() if s is not None}, mesh=mesh_of(plan.ways)).annotations


def _names(parameters: Collection[Instruction], numbers: Collection[int]) -> tuple[str, ...]:
    """The fewest names of these: of an argument whose leaves are all among them its own."""
    others = {argument_of(p) for p in parameters if p.parameter_number not in numbers}
    among = (p for p in parameters if p.parameter_number in numbers)
    return tuple(dict.fromkeys(p.path if argument_of(p) in others else argument_of(p) for p in among))


def apply_plan(file: PlanFile, module: Module) -> Module:
    """One program of all devices with what a plan says: its annotations, above what its strategy gives each argument.

    What the step updates lies as it did, and the batch stays split wherever it flows.  Raises ScheduleError for no
    strategy or argument, PlanError for a mesh over which no strategy splits, AnnotationError, ModuleError.

    >>> import jax.numpy as jnp, hlosharding as hs
    >>> module = hs.trace(lambda w, x: jnp.tanh(x @ w))(jnp.ones((4, 4)), jnp.ones((8, 4)))
    >>> file = PlanFile.parse("strategy = 'fsdp'\\nbatch = ['x']\\n[mesh]\\ndata = 2")
    >>> [str(apply_plan(file, module).sharding(name)) for name in module.entry.parameters]
    ['{devices=[2,1]<=[2]}', '{devices=[2,1]<=[2]}']
    """
    made = _write_out(file, module).apply(recompute_layers(module) if file.recompute else module)
    batch, plan = dict.fromkeys(argument_numbers(module, file.batch), 0), plan_of(file)
    if batch:
        lay_updated_alike(made)
        shardings = [made.sharding(parameter) for parameter in made.entry.parameters]
        axes = StageAxes.of_tiles(shardings[number] for number in batch)
        if plan is not None and file.mesh is not None:
            axes = replace(Planner(module, file.batch).axes_of(plan), mesh=file.mesh)
        # Annotations leave that open: by these alone a found FSDP plan moved activations, 316 MB where its schedule
        # moves 110.
        keep_split(made, axes.mesh, flows_of(batch, shardings, axes))
    return made


def one_program(planner: Planner, plan: Plan, machine: Machine) -> Module:
    """The program of all devices that a plan of one stage and one microbatch means, for XLA's own partitioner.

    Its writer's constraints are there as the plan has them.  Raises ScheduleError for other plans.
    """
    if plan.stages * plan.microbatches > 1:
        remedy = "run its schedule, or search among plans of one stage and one microbatch"
        raise ScheduleError(f"{plan} is no one program of all devices, as jax.jit compiles", remedy=remedy)
    bare = without_layout_calls(planner.module).clone()
    bare.shardings, bare.mesh, bare.num_partitions = {}, None, 1
    made, planned = apply_plan(plan_file(planner, plan, machine), bare), planner.annotate(plan)
    for call in filter(is_layout_call, planner.module.instructions):
        sharding = planned.sharding(planned.by_name(call.name))
        if sharding is not None:
            made.shardings[made.by_name(call.name).id] = sharding
    return made


def checkpoint_lines(module: Module) -> tuple[str, ...]:
    """What a plan that computes layers again asks of the program's source.

    >>> import jax, jax.numpy as jnp, hlosharding as hs
    >>> def step(w, x):
    ...     loss = lambda w: jnp.sum(jax.lax.scan(lambda x, w: (x + jnp.tanh(jnp.sin(x) @ w), None), x, w)[0])
    ...     return jax.grad(loss)(w)
    >>> checkpoint_lines(hs.trace(step)(jnp.ones((4, 16, 16)), jnp.ones((8, 16))))  # doctest: +ELLIPSIS
    ('<doctest ...>:2: wrap the function of this scan in jax.checkpoint',)
    """
    found = recomputed_ops(module)
    if all(ops[0].opcode == "while" for ops in found):
        return tuple(dict.fromkeys(f"{loop.location}: wrap the function of this scan {_IN}" for [loop] in found))
    lines = Counter(map(_call_to_wrap, found))
    # The first layer is made again with what is ahead of it: the others say better where their function is called.
    return tuple(line for line, times in lines.items() if times == max(lines.values()))


_IN = "in jax.checkpoint"


def _call_to_wrap(ops: Sequence[Instruction]) -> str:
    """The innermost call that all of them have in common."""
    stacks = [op.frames.of_user[::-1] for op in ops if op.frames.of_user]
    shared = [frames[0] for frames in takewhile(lambda frames: len(set(frames)) == 1, zip(*stacks, strict=False))]
    return f"{shared[-1] if shared else ops[0].location}: wrap what is called here {_IN}"


def _write_out(file: PlanFile, module: Module) -> PlanFile:
    """Annotations alone: what a plan's strategy gives each argument of a program, and above it its own."""
    plain = replace(file, strategy="", batch=())
    if not file.strategy:
        return plain
    plan = plan_of(file)
    if plan is None and file.mesh is not None and _has_ways(file.mesh):
        what = f"no order of ways has the devices of a stage as {file.mesh}"
        raise PlanError(what, remedy="leave device_ids out: the order of [pipeline], as TDP, says who is next to whom")
    if plan is None:
        raise PlanError(
            f"strategy {file.strategy!r} splits over no axes of the mesh {file.mesh}",
            remedy=f"call them {', '.join(AXES)}, in this order; some may be left out",
        )
    given = _annotations(Planner(module, file.batch), plan)
    return replace(plain, annotations=given + file.annotations)


def schedule_of(file: PlanFile, module: Module, machine: Machine | None = None) -> Schedule:
    """The schedule of a plan, of a program that is not annotated yet: of a found plan that which was priced.

    Raises ScheduleError, and PlanError for a mesh over which no strategy can split.

    >>> import jax.numpy as jnp, hlosharding as hs
    >>> module = hs.trace(lambda w, x: jnp.tanh(jnp.tanh(x @ w[0]) @ w[1]))(jnp.ones((2, 4, 4)), jnp.ones((8, 4)))
    >>> text = "batch = ['x']\\n[mesh]\\ndata = 2\\n[pipeline]\\nstages = 2"
    >>> len(schedule_of(PlanFile.parse(text), module).devices)
    4
    """
    steps, machine = file.pipeline or PipelineSteps(), machine_of(machine)
    if not file.batch and steps.microbatches > 1:
        raise ScheduleError("the plan has microbatches, and no batch", remedy='write batch = ["x"]')
    # A model that brings its own stages is cut by these: no plan says them.
    plan = plan_of(file) if steps.stages or not module.stages else None
    if plan is not None:
        return _make_planner(file, plan, module).schedule(plan, machine or file.machine_for(plan.num_devices))
    annotated = _write_out(file, module).apply(module)
    layout = StageLayout.of(steps.stages or module.stages or 1, steps.schedule, steps.even, steps.layers)
    size = max(1, annotated.num_partitions)
    plan = Plan(size, 1, layout.submeshes, steps.microbatches, steps.schedule, steps.order)
    machine = machine or file.machine_for(plan.num_devices)
    cutter = Cutter(module, file.batch, file.donate)
    pipeline = cutter.pipeline(annotated, layout, plan.submeshes, plan.microbatches, machine)
    return pipeline.schedule(plan.schedule, plan.microbatches)


def plan_of(file: PlanFile) -> Plan | None:
    """The plan that a file says; None where the axes of its mesh are no ways of one.

    >>> print(plan_of(PlanFile.parse("strategy = 'fsdp'\\n[mesh]\\ndata = 4\\nexperts = 2\\n[pipeline]\\nstages = 2")))
    8/1/2/1 fsdp experts=2
    """
    mesh, steps = file.mesh, file.pipeline or PipelineSteps()
    if mesh is None or not _has_ways(mesh):
        return None
    size = dict.fromkeys(AXES, 1) | dict(zip(mesh.names, mesh.sizes, strict=True))
    ways = math.prod(size.values()) // size["tensor"], size["tensor"], steps.stages or 1, steps.microbatches
    parts = size[REPLICAS], size[CONTEXT], size[EXPERTS]
    cut = file.sequence, steps.even, steps.layers, file.recompute
    plan = Plan(*ways, steps.schedule, steps.order, file.strategy, *parts, *cut)
    if mesh.is_plain:
        return plan
    # A file says an order of ways as the ids of its devices (`plan_file`): which one it was is found by trying.
    ordered = (replace(plan, order=order) for order in Plan.ORDERS)
    found = next((each for each in ordered if each.submeshes == [mesh.device_ids]), None)
    return found and replace(found, order=found.shortest_order)


def _has_ways(mesh: MeshInfo) -> bool:
    return mesh.names == tuple(axis for axis in AXES if axis in mesh.names)


def _make_planner(file: PlanFile, plan: Plan, module: Module) -> Planner:
    """That makes the plan's schedule: what the file annotates lies so, all else as its strategy says."""
    # Of a file without a strategy nothing is split but what it annotates: by default "" would be megatron.
    planner = Planner(module, file.batch, file.donate, {"": lambda module, ways, batch: {}})
    bare = module.clone()
    bare.shardings = {}
    mesh = mesh_of({**dict.fromkeys(AXES, 1), **plan.ways})  # of a stage: its devices have numbers of their own
    own = annotate(bare, dict(file.annotations), mesh=mesh)
    said = {inst: sharding for inst in own.instructions if (sharding := own.sharding(inst)) is not None}
    arguments = {inst.parameter_number: s.to_partition_spec(mesh) for inst, s in said.items() if _is_argument(inst)}
    strategy = planner.find_strategy(plan.strategy)

    def both(module: Module, ways: Ways, batch: frozenset[int]) -> Specs:
        return number_specs(module, strategy(module, ways, batch)) | arguments

    planner = planner.with_strategy(plan.strategy, sum_as(strategy, both))
    made = planner.annotate(plan)  # which `planner` keeps
    inside = {made.by_name(inst.name).id: sharding for inst, sharding in said.items() if not _is_argument(inst)}
    made.shardings = {**made.shardings, **inside}
    return planner


def _is_argument(inst: Instruction) -> bool:
    return inst.opcode == "parameter" and inst.computation.is_entry
