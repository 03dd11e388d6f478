"""A plan in a file: annotations, the mesh they are over, and the machine they are for, to be reviewed and kept.

Floor: plans.  A plain value; what a file may say, `plan_reader` knows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from hlosharding.cost import Machine, machine_for, parse_machine
from hlosharding.errors import ModuleError, PlanError, ShardingError
from hlosharding.frontends import annotate
from hlosharding.ir import Module
from hlosharding.partitioner import PartitionOptions
from hlosharding.plans.exported_text import at_text
from hlosharding.plans.plan_reader import VERSION, PipelineSteps, parse_fields, read_fields
from hlosharding.sharding import HloSharding, MeshInfo, spell
from hlosharding.whole_files import write_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """What a plan file says: of a program's values which are laid out how, over which mesh, for which machine.

    >>> from hlosharding.ir import Builder, Shape
    >>> plan = PlanFile.of({"x": "P('data')"}, mesh=MeshInfo(("data",), (4,)), machine="h100:4")
    >>> print(plan.to_text())
    version = 1
    machine = "h100:4"
    <BLANKLINE>
    [mesh]
    data = 4
    <BLANKLINE>
    [annotations]
    x = "P('data')"
    <BLANKLINE>
    >>> builder = Builder("doubled")
    >>> entry = builder.computation("main")
    >>> x = entry.parameter(0, Shape.parse("f32[8]"), name="x")
    >>> _ = entry.root(entry.add("add", x.shape, (x, x), name="y"))
    >>> annotated = plan.apply(builder.finish(entry))
    >>> str(annotated.sharding(annotated.by_name("x"))), plan.machine_for(annotated).num_devices
    ('{devices=[4]<=[4]}', 4)
    """

    annotations: tuple[tuple[str, str], ...] = ()
    """Names as of `annotate` (instruction, parameter's path, glob) and texts of shardings; the later ones win."""
    mesh: MeshInfo | None = None
    machine: str = ""
    """A preset and how many devices (`h100:8`), or a TOML file; "": not said."""
    objective: str = ""
    """What reshards minimise, as of `PartitionOptions`; "": not said."""
    strategy: str = ""
    """Which arguments are split over the mesh, by a name that `hs.search` knows; "": what is annotated, which comes on
    top of it."""
    sequence: bool = False
    """Is it with sequence parallelism?"""
    recompute: bool = False
    """Does the backward pass make what layers in a scan made again?"""
    batch: tuple[str, ...] = ()
    """Arguments whose first dim is the batch, by path; that of a tree stands for all in it."""
    donate: tuple[str, ...] = ()
    """Arguments that the update may overwrite, likewise."""
    pipeline: PipelineSteps | None = None
    """Into which stages and microbatches the step is cut: the mesh is a stage's then."""
    comment: str = ""

    def __post_init__(self) -> None:
        said: dict[str, str] = {}
        for name, sharding in self.annotations:
            said.pop(name, None)  # a name's last word counts, where it stands: it may come after a glob
            said[name] = sharding
        object.__setattr__(self, "annotations", tuple(said.items()))
        object.__setattr__(self, "mesh", self.mesh if self.mesh is not None and self.mesh.names else None)

    @classmethod
    def of(cls, annotations: Mapping[str, Any], *, mesh: Any = None, **others: Any) -> PlanFile:
        """A plan of `annotate`'s arguments: texts, HloShardings and PartitionSpecs.  `others`: further fields."""
        info = MeshInfo.from_jax(mesh) if mesh is not None else None
        said = tuple((name, _text(sharding, info)) for name, sharding in annotations.items())
        return cls(annotations=said, mesh=info, **others)

    @classmethod
    def read(cls, path: str | Path) -> PlanFile:
        """The plan of a TOML file, or of a JSON file with the same keys.  Raises PlanError, naming file and key.

        The file of a machine is looked for beside the plan.
        """
        where = Path(path)
        plan = cls(**read_fields(where))
        beside = where.parent / plan.machine
        return replace(plan, machine=str(beside)) if plan.machine.endswith(".toml") else plan

    @classmethod
    def parse(cls, text: str) -> PlanFile:
        """The plan of a TOML text.  Raises PlanError.

        >>> PlanFile.parse("[annotations]\\n'w*' = '{devices=[2]<=[2]}'").annotations
        (('w*', '{devices=[2]<=[2]}'),)
        """
        return cls(**parse_fields(text))

    def to_text(self, form: Literal["toml", "json"] = "toml") -> str:
        """As a file has it: "toml" or "json"."""
        if form == "json":
            return json.dumps(self._record, indent=2, ensure_ascii=False) + "\n"
        import tomli_w

        return tomli_w.dumps(self._record)

    def write(self, path: str | Path) -> None:
        """Write a file, whole or not at all; JSON where it is named so.  Raises HloShardingError where it cannot."""
        write_whole(path, self.to_text("json" if Path(path).suffix == ".json" else "toml"))

    def apply(self, module: Module) -> Module:
        """The program with the plan's annotations and mesh.

        Raises AnnotationError, ModuleError; PlanError for a strategy or a batch, which `hs.apply_plan`
        knows.
        """
        if self.strategy or self.batch:
            what = "the plan has a strategy, or a batch, which say more than its annotations"
            raise PlanError(what, remedy="take hs.apply_plan(plan, module)")
        if not self.annotations and self.mesh is None:
            return module
        made = annotate(module, dict(self.annotations), mesh=self.mesh)
        if self.mesh is not None and made.num_partitions not in (1, self.mesh.num_devices):
            raise ModuleError(
                f"the mesh has {self.mesh.num_devices} devices, the program is for {made.num_partitions}",
                remedy=f"name axes whose sizes multiply up to {made.num_partitions}",
            )
        return made

    def over(self, below: PlanFile) -> PlanFile:
        """Both plans in one: where they disagree, this one counts.

        >>> PlanFile(machine="h100:8").over(PlanFile(machine="a100:8", comment="mine")).machine
        'h100:8'
        """
        ours = {name: getattr(self, name) or getattr(below, name) for name in self.__slots__ if name != "annotations"}
        return replace(self, annotations=below.annotations + self.annotations, **ours)

    def machine_for(self, program: Module | int) -> Machine | None:
        """The machine, with as many devices as the program (or that many) needs; None where none is said."""
        if not self.machine:
            return None
        count = program if isinstance(program, int) else program.num_partitions
        return machine_for(parse_machine(self.machine), count)

    @property
    def _record(self) -> dict[str, Any]:
        """What a file has: no key of which nothing is said."""
        mesh, pipeline = self.mesh, self.pipeline
        as_they_are = "comment machine objective strategy sequence recompute batch donate".split()
        said = {name: getattr(self, name) for name in as_they_are} | {
            "device_ids": mesh.device_ids if mesh is not None and not mesh.is_plain else (),
            "mesh": dict(zip(mesh.names, mesh.sizes, strict=True)) if mesh is not None else {},
            "pipeline": _plain(asdict(pipeline)) if pipeline is not None else {},
            "annotations": dict(self.annotations),
        }
        return {"version": VERSION, **_plain(said)}

    @property
    def options(self) -> PartitionOptions:
        """For `hs.partition`."""
        return PartitionOptions(objective=self.objective) if self.objective else PartitionOptions()


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """Without what says nothing."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in fields.items() if value}


def _text(sharding: Any, mesh: MeshInfo | None) -> str:
    """A sharding as a plan file has it.  Raises ShardingError for what is none."""
    if isinstance(sharding, str):
        return sharding
    if isinstance(sharding, HloSharding):
        return str(sharding.without_names()) if sharding.is_tuple() else spell(sharding.without_names(), mesh)
    if not isinstance(getattr(sharding, "partitions", sharding), tuple):
        raise ShardingError(f"{sharding!r} is no sharding", remedy="use HloSharding, PartitionSpec or text")
    return at_text(sharding, "P")
