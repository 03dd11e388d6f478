"""From a command line to the library's objects: the program that it gives, and views in the form that it asks for.

Floor: cli.  What the command line says itself counts before its plan.  The arguments are read, never written.
"""

from __future__ import annotations

import json
import re
from argparse import Namespace
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hlosharding.cli.array_file import ArrayFile
from hlosharding.cli.devices import choose_devices
from hlosharding.cli.files import read_program, working, write
from hlosharding.cli.rules import execute_rules
from hlosharding.compiler import Partitioned, partition
from hlosharding.cost import Machine, machine_for, machine_named, read_machine
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


@dataclass(frozen=True)
class GivenProgram:
    """FILE as it was read, and what is said of it; the module is loaded when it is first asked for."""

    arguments: Namespace
    source: Path | bytes
    plan: PlanFile

    @classmethod
    def of(cls, arguments: Namespace, source: Path | bytes | None = None) -> GivenProgram:
        """With the plan of `--plan`; `source`: what was read of FILE, where it has been."""
        source = source if source is not None else read_program(arguments.file)
        mesh = MeshInfo(tuple(arguments.mesh), tuple(arguments.mesh.values())) if arguments.mesh else None
        plan = PlanFile(annotations=tuple(arguments.annotate), mesh=mesh)
        if arguments.plan is not None:
            plan = plan.over(PlanFile.read(arguments.plan))
        return cls(arguments, source, plan)

    def load(self) -> Module:
        """FILE as a module, as `--format` and `--prepare` say, without what the plan says of it."""
        said = self.arguments
        with working("loading"):
            return load(
                self.source,
                format=said.format,
                prepare=said.prepare,
                inputs=self.inputs,
                configuration=said.configuration,
                custom_calls=said.custom_call,
            )

    @cached_property
    def module(self) -> Module:
        """FILE with the shardings and the mesh that are said.  Raises PlanError for stages and microbatches."""
        steps, mesh = self.plan.pipeline, self.plan.mesh
        if steps is not None:
            what = f"{steps.stages or 'its own'} stages and {steps.microbatches} microbatches"
            remedy = "take `hlosharding simulate`, or leave out [pipeline]"
            raise PlanError(f"{self.arguments.plan} has {what}, this is for one program", remedy=remedy)
        module = self.load()
        if self.plan.strategy and mesh is not None:
            # A strategy speaks in JAX's words, and JAX takes its devices before.
            self._choose_devices(mesh.num_devices)
        module = apply_plan(self.plan, module)
        self.execute_rules(self._num_devices_of(module))
        return module

    def execute_rules(self, count: int) -> None:
        """The files of `--rule`, which may ask JAX for one of so many devices."""
        if self.arguments.rule:
            self._choose_devices(count)
            with working("executing rules"):
                for path in self.arguments.rule:
                    execute_rules(path)

    def _choose_devices(self, count: int) -> None:
        choose_devices(getattr(self.arguments, "platform", "cpu"), count)

    @cached_property
    def is_onnx(self) -> bool:
        """Is FILE an ONNX model, by what `--format` says, its name or its content?"""
        form = self.arguments.format or (named_format(self.source) if isinstance(self.source, Path) else None)
        if form is not None:
            return form == "onnx"
        return is_onnx(self.source if isinstance(self.source, bytes) else read_whole(self.source))

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """What binds the inputs of an ONNX model: sizes and values of `--input`, arrays of `--inputs`."""
        file = getattr(self.arguments, "inputs", None)
        arrays = ArrayFile(file).read_all() if file and self.is_onnx else {}
        # np.savez calls arr_0, arr_1 ... what is given by position: no input is meant by name.
        return {name: array for name, array in arrays.items() if not name.startswith("arr_")} | {
            name: _shape_or_value(name, said) for name, said in self.arguments.input
        }

    def propagate(self, module: Module | None = None) -> Propagation:
        """With a sharding for every value; `module`: of one that was made of this."""
        with working("propagating"):
            return propagate(
                self.module if module is None else module,
                to_outputs=self.arguments.to_outputs,
                to_parameters=self.arguments.to_parameters,
                execution_threads=getattr(self.arguments, "execution_threads", ()),
            )

    def partition(self, *, count: int | None = None, target: Machine | None = None) -> Partitioned:
        """As each of `count` devices runs it; `target`: whose prices decide.  By default both are as said."""
        count, propagation = count or self.num_devices, self.propagate()
        with working("partitioning"):
            return partition(
                propagation, num_partitions=count, machine=target or self.machine(count), options=self.options
            )

    @property
    def options(self) -> PartitionOptions:
        """How it is wanted partitioned."""
        said = self.arguments
        return PartitionOptions(
            objective=said.objective or self.plan.objective or PartitionOptions().objective,
            overlap=said.overlap,
            trips=dict(said.trips),
            dump_passes=getattr(said, "dump_passes", None),
        )

    @property
    def num_devices(self) -> int:
        """How many devices it is for: as `-n` says, as the module says, or as the mesh has."""
        return self._num_devices_of(self.module)

    def _num_devices_of(self, module: Module) -> int:
        if getattr(self.arguments, "num_partitions", None) is not None:
            return int(self.arguments.num_partitions)
        if module.num_partitions > 1 or module.mesh is None:
            return module.num_partitions
        return module.mesh.num_devices

    @property
    def num_devices_named(self) -> int:
        """The same of an ONNX model, as far as command line, plan and file tell before it is traced."""
        if self.arguments.num_partitions is not None:
            return int(self.arguments.num_partitions)
        if self.plan.mesh is not None:
            return self.plan.mesh.num_devices
        # P(...) is of a mesh, which was asked before.
        said = [HloSharding.parse(text) for _, text in self.plan.annotations if text.startswith("{")]
        own = read_onnx_shardings(self.source, self.arguments.configuration)
        return max([own.devices_per_stage if own is not None else 1, *(s.num_devices or 1 for s in said)])

    def machine(self, count: int) -> Machine | None:
        """The machine of `--machine`, or of the plan; None leaves the choice to the library."""
        said = getattr(self.arguments, "machine", None)
        return self.plan.machine_for(count) if said is None else machine_for(said, count)


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


def load_program(arguments: Namespace) -> Module:
    """FILE as a module, for a command that has no plan."""
    return GivenProgram(arguments, read_program(arguments.file), PlanFile()).load()


def machine(arguments: Namespace, count: int) -> Machine | None:
    """The machine of `--machine`; None leaves the choice to the library."""
    return None if arguments.machine is None else machine_for(arguments.machine, count)


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
    # By default Python writes NaN, which is no JSON.
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
