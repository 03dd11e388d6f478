"""From a command line to the library's objects: the module, its propagation, its partitioning.

Floor: cli.
"""

from __future__ import annotations

import json
import re
from argparse import Namespace
from pathlib import Path
from typing import Any

from hlosharding.cli.array_file import ArrayFile
from hlosharding.cli.devices import choose_devices
from hlosharding.cli.files import read_program, working, write
from hlosharding.compiler import Partitioned, partition
from hlosharding.cost import Machine, machine_named, machine_said, parse_machine, read_machine
from hlosharding.errors import CostError, LoadError, ModuleError, PlanError, ShardingError
from hlosharding.frontends import load, named_format, to_sdy_text
from hlosharding.ir import Module, Shape
from hlosharding.mesh_propagation import Stage, propagate_axes
from hlosharding.onnx import is_onnx, read_onnx_shardings
from hlosharding.partitioner import PartitionOptions
from hlosharding.plans import PlanFile
from hlosharding.propagation import Propagation, propagate
from hlosharding.report import View, module_view, show, to_record, to_text
from hlosharding.search import apply_plan
from hlosharding.sharding import HloSharding, MeshInfo
from hlosharding.whole_files import read_whole

# A string in JSON holds no line break, so this finds lists only.
_NUMBERS = re.compile(r"\[\n\s*((?:-?\d+,\n\s*)*-?\d+)\n\s*\]")


def load_program(arguments: Namespace, source: Path | bytes | None = None) -> Module:
    """FILE, or what was read of it, as a module, as `--format` and `--prepare` say."""
    source = source if source is not None else read_program(arguments.file)
    with working("loading"):
        return load(
            source,
            format=arguments.format,
            prepare=arguments.prepare,
            inputs=model_inputs(arguments, source),
            configuration=arguments.configuration,
            custom_calls=arguments.custom_call,
        )


def model_inputs(arguments: Namespace, source: Path | bytes) -> dict[str, Any]:
    """What binds the inputs of an ONNX model: sizes and values of `--input`, arrays of `--inputs`."""
    file = getattr(arguments, "inputs", None)
    arrays = ArrayFile(file).read_all() if file and is_onnx_model(arguments, source) else {}
    return {name: array for name, array in arrays.items() if not name.startswith("arr_")} | {
        name: _shape_or_value(name, said) for name, said in arguments.input
    }


def _shape_or_value(name: str, said: str) -> Any:
    """'f32[8,16]' or '[1, 2]'."""
    from jax import ShapeDtypeStruct

    try:
        return json.loads(said)
    except (ValueError, RecursionError):
        shape = Shape.parse(said)
    if not shape.is_array:
        raise LoadError(f"--input {name} is {said}", remedy="write NAME=f32[8,16], or NAME=3")
    return ShapeDtypeStruct(shape.dims, shape.dtype)


def annotated_program(arguments: Namespace, source: Path | bytes | None = None) -> Module:
    """The same with the shardings and the mesh of the command line."""
    plan = plan_of(arguments)
    if plan.pipeline is not None:
        steps = f"{plan.pipeline.stages or 'its own'} stages and {plan.pipeline.microbatches} microbatches"
        remedy = "take `hlosharding simulate`, or leave out [pipeline]"
        raise PlanError(f"{arguments.plan} has {steps}, this is for one program", remedy=remedy)
    module = load_program(arguments, source)
    if plan.strategy and plan.mesh is not None:
        # A strategy speaks in JAX's words, and JAX takes its devices before.
        choose_devices(getattr(arguments, "platform", "cpu"), plan.mesh.num_devices)
    return apply_plan(plan, module)


def plan_of(arguments: Namespace) -> PlanFile:
    """What the command line wants of the program: the file of `--plan`, and what it says itself, which counts first.

    Machine and objective are the command line's from then on.
    """
    mesh = MeshInfo(tuple(arguments.mesh), tuple(arguments.mesh.values())) if arguments.mesh else None
    said = PlanFile(annotations=tuple(arguments.annotate), mesh=mesh)
    if arguments.plan is None:
        return said
    plan = said.over(PlanFile.read(arguments.plan))
    if plan.machine and getattr(arguments, "machine", None) is None:
        arguments.machine = parse_machine(plan.machine)
    if getattr(arguments, "objective", None) is None:
        arguments.objective = plan.objective or None
    return plan


def propagated_program(arguments: Namespace, module: Module | None = None) -> Propagation:
    """FILE with a sharding for every value."""
    module = module if module is not None else annotated_program(arguments)
    with working("propagating"):
        return propagate(
            module,
            to_outputs=arguments.to_outputs,
            to_parameters=arguments.to_parameters,
            execution_threads=getattr(arguments, "execution_threads", ()),
        )


def partitioned_program(
    arguments: Namespace, module: Module | None = None, *, target: Machine | None = None
) -> Partitioned:
    """FILE as each device runs it; `target`: whose prices decide, by default those of `--machine`."""
    module = module if module is not None else annotated_program(arguments)
    count = partitions(arguments, module)
    propagation = propagated_program(arguments, module)
    with working("partitioning"):
        return partition(
            propagation,
            num_partitions=count,
            machine=target or machine(arguments, count),
            options=partition_options(arguments),
        )


def partition_options(arguments: Namespace) -> PartitionOptions:
    """How the command line wants the program partitioned."""
    return PartitionOptions(
        objective=arguments.objective or PartitionOptions().objective,
        overlap=arguments.overlap,
        trips=dict(arguments.trips),
        dump_passes=getattr(arguments, "dump_passes", None),
    )


def partitions(arguments: Namespace, module: Module) -> int:
    """How many devices the program is for: as asked, as the module says, or as the mesh has."""
    if arguments.num_partitions is not None:
        return int(arguments.num_partitions)
    if module.num_partitions > 1 or module.mesh is None:
        return module.num_partitions
    return module.mesh.num_devices


def is_onnx_model(arguments: Namespace, source: Path | bytes) -> bool:
    """Is FILE an ONNX model, by what `--format` says, its name or its content?"""
    form = arguments.format or (named_format(source) if isinstance(source, Path) else None)
    if form is not None:
        return form == "onnx"
    return is_onnx(source if isinstance(source, bytes) else read_whole(source))


def devices_named(arguments: Namespace, source: Path | bytes) -> int:
    """For how many devices an ONNX model will be, as far as command line, plan and file tell before it is traced."""
    if arguments.num_partitions is not None:
        return int(arguments.num_partitions)
    plan = plan_of(arguments)
    if plan.mesh is not None:
        return plan.mesh.num_devices
    said = [HloSharding.parse(text) for _, text in plan.annotations if text.startswith("{")]
    own = read_onnx_shardings(source, arguments.configuration)
    return max([own.devices_per_stage if own is not None else 1, *(s.num_devices or 1 for s in said)])


def machine(arguments: Namespace, count: int) -> Machine | None:
    """The machine of `--machine`; None leaves the choice to the library."""
    return None if arguments.machine is None else machine_said(arguments.machine, count)


def named_machine(name: str, devices: int | None) -> Machine:
    """Of a TOML file, or a preset with so many devices.  Raises CostError for one without a number."""
    if name.endswith(".toml"):
        return read_machine(name)
    if devices is None:
        raise CostError(f"--machine {name} says no number of devices", remedy=f"write {name}:16")
    return machine_named(name, devices)


def array_shape(text: str) -> Shape:
    """What `--shape` says: the shape of one array.  Raises ModuleError.

    >>> array_shape("f32[16,16]").dims
    (16, 16)
    """
    shape = Shape.parse(text)
    if not shape.is_array:
        raise ModuleError(f"--shape {shape} is of no array", remedy='write it like "f32[2,3]"')
    return shape


def present(view: View, emit: str | None = None, output: str | None = None) -> None:
    """The view as tables and texts, on standard output or in a file; as a record for `--emit json`."""
    if emit == "json":
        write(as_json(view), output)
    elif output is None or output == "-":
        show(view)
    else:
        write(to_text(view, wraps=False), output)


def as_json(view: View) -> str:
    """A view's record as the commands write it: indented, each list of numbers on one line."""
    text = json.dumps(to_record(view), indent=2, allow_nan=False)
    return _NUMBERS.sub(lambda found: "[" + " ".join(found[1].split()) + "]", text)


def mesh_text(propagated: Propagation | None, stage: Stage) -> str:
    """The program as it came, in the text of MLIR's RFC: propagated over the axes of its mesh, not as GSPMD does it.

    Raises ShardingError where it has no axes, and for loops and branches.
    """
    if propagated is None:
        raise ShardingError("XLA partitioned this program: its axes are gone", remedy="take what it was made from")
    mesh = propagated.source.mesh
    if mesh is None:
        raise ShardingError("the mesh dialect shards over axes, and the program has none", remedy="add --mesh x=2,y=4")
    return propagate_axes(propagated.source, mesh).to_mesh_text(stage)


def in_format(module: Module, form: str, *, metadata: bool) -> str | bytes:
    """A module as `--emit` wants it."""
    match form:
        case "hlo":
            return module.to_hlo_text(metadata=metadata)
        case "hlo-proto":
            return module.to_hlo_proto()
        case "stablehlo":
            return module.to_stablehlo_text()
        case "sdy":
            return to_sdy_text(module)
        case _:
            return as_json(module_view(module))
