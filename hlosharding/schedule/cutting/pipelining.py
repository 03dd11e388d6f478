"""`pipelined`: any traced program as a pipeline of stages, with its schedule.

Floor: schedule.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache

from hlosharding.compiler import default_machine
from hlosharding.cost import Machine, WholeStep, machine_of
from hlosharding.errors import ScheduleError, is_count
from hlosharding.ir import Instruction, Module
from hlosharding.partitioner import PartitionOptions
from hlosharding.schedule.cutting.kept_splits import StageAxes
from hlosharding.schedule.cutting.layer_loops import LayerLoop
from hlosharding.schedule.cutting.loop_fission import Fission, cut_loops, find_loops_over_layers
from hlosharding.schedule.cutting.microbatched import Microbatched, pack_results, without_layout_calls
from hlosharding.schedule.cutting.microbatches import cut_microbatches
from hlosharding.schedule.cutting.pieces import Part, cut_parts
from hlosharding.schedule.cutting.said_stages import Said, check_known, count_said_stages
from hlosharding.schedule.cutting.stage_programs import PartShardings, StagePrograms, Submesh, Terms
from hlosharding.schedule.cutting.stages import Placement, forward_in_order, place_stages, seconds_of
from hlosharding.schedule.cutting.trip_stages import stages_of_trips
from hlosharding.schedule.cutting.value_shardings import ValueShardings
from hlosharding.schedule.interface import whole_arrays
from hlosharding.schedule.pipelines import SPLIT_BACKWARD, Closing, Piece, Pipeline, order_and_chunks
from hlosharding.schedule.schedule import Schedule
from hlosharding.schedule.stage_program import StageProgram
from hlosharding.schedule.value_type import ValueType
from hlosharding.sharding import (
    REPLICATED,
    HloSharding,
    axes_by_dim,
    check_devices,
    copies_as_partials,
    replicate_on_dims,
    without_partials,
)


def pipelined(
    module: Module,
    *,
    batch: Sequence[str | int],
    stages: int | Mapping[str, int] | None = None,
    microbatches: int = 1,
    schedule: str | None = None,
    devices_per_stage: int | None = None,
    machine: Machine | None = None,
    donate: Sequence[str | int] = (),
) -> Schedule:
    """Cut a traced program into stages, a submesh each, and schedule its microbatches.

    `batch`: paths or numbers of the arguments whose first dim is the batch (all others are shared by the microbatches).
    `stages`: how many, each of about equal time; or by function of the source (of an ONNX model, by node) the stage in
    which its forward ops are: what is not named goes where what it reads lies.  By default what the model's own
    annotations say (`Module.stages`).
    The module's shardings say how a *stage* lies on its submesh, inputs without one take what suits; stage s has
    devices s*n to s*n+n-1, where n is `devices_per_stage`, by default what the shardings name.  `schedule`: see
    `Pipeline.schedule`; by default "1f1b" where there is a backward pass; "zb-h1" has gradients of weights in passes of
    their own; "1f1b-x2" gives each submesh two chunks of the program, `stages` apart (interleaved schedules).
    `donate`: arguments that the update may overwrite, as of `jax.jit`: their arrays are gone after a step.  Raises
    ScheduleError where microbatches are not independent, the program does not fill so many stages, or values would flow
    from a stage to one before it.

    >>> import jax, jax.numpy as jnp, hlosharding as hs
    >>> def step(w, x):
    ...     loss, grad = jax.value_and_grad(lambda w: jnp.sum(jnp.tanh(jnp.tanh(x @ w[0]) @ w[1])))(w)
    ...     return w - 0.1 * grad, loss
    >>> w, x = jnp.ones((2, 4, 4)), jnp.ones((8, 4))
    >>> made = pipelined(hs.trace(step)(w, x), batch=["x"], stages=2, microbatches=4)
    >>> new, loss = made.run_reference(w, x)
    >>> bool(abs(loss - step(w, x)[1]) < 1e-4)
    True
    """
    cutter, layout = Cutter(module, batch, donate), StageLayout.of(_stages_wanted(module, stages), schedule)
    named = (leaf.num_devices or 1 for sharding in module.distinct_shardings for leaf in sharding.leaves)
    size = max(named, default=1) if devices_per_stage is None else devices_per_stage
    submeshes = _submeshes(layout.submeshes, size)
    return cutter.pipeline(module, layout, submeshes, microbatches, machine_of(machine)).schedule(
        schedule or "", microbatches
    )


def _submeshes(count: int, size: int) -> list[tuple[int, ...]]:
    if not is_count(size):
        raise ScheduleError(f"{size} devices hold no stage", remedy="take devices_per_stage=1 or more")
    check_devices(count * size)
    return [tuple(range(n * size, (n + 1) * size)) for n in range(count)]


def _stages_wanted(module: Module, said: int | Mapping[str, int] | None) -> int | Mapping[str, int]:
    """As the user says, else as the module does."""
    if said is None and not module.stages:
        raise ScheduleError("the program says no stages", remedy="give stages=, how many")
    found = module.stages if said is None else said
    if isinstance(found, Mapping):
        check_known(module, found)
    return found


@dataclass(frozen=True, slots=True)
class StageLayout:
    """Into what a program is cut."""

    submeshes: int
    chunks: int = 1
    """Stages of each submesh: stage s is on submesh s mod `submeshes`."""
    splits_backward: bool = False
    """Are gradients of weights in passes of their own?"""
    even: bool = False
    """Have stages as many layers each?  Else they take equal time."""
    layers: tuple[int, ...] = ()
    """Of parts that take equal time (of layers, if `even`) how many each stage has; by default one."""
    said: Said = ()

    def __post_init__(self) -> None:
        if self.layers and (len(self.layers) != self.stages or min(self.layers) < 1):
            what = f"layers of {len(self.layers)} stages ({', '.join(map(str, self.layers))}) for {self.stages}"
            raise ScheduleError(what, remedy="give each stage, of each chunk, one layer or more")

    @classmethod
    def of(
        cls, stages: int | Mapping[str, int], schedule: str | None, even: bool = False, layers: Sequence[int] = ()
    ) -> StageLayout:
        """What a schedule needs.  `stages`: of how many submeshes, or which stage has what.  Raises ScheduleError.

        >>> StageLayout.of({"encoder": 0, "decoder": 1}, None).submeshes, StageLayout.of(4, "1f1b-x2").stages
        (2, 8)
        """
        order, chunks = order_and_chunks(schedule or "")
        splits = order in SPLIT_BACKWARD
        if not isinstance(stages, Mapping):
            if not is_count(stages):
                raise ScheduleError(f"{stages} stages hold no program", remedy="take one or more")
            return cls(stages, chunks, splits, even, tuple(layers))
        submeshes, rest = divmod(count_said_stages(stages), chunks)
        if rest or not submeshes:
            remedy = "take as many chunks as divide them"
            raise ScheduleError(f"{count_said_stages(stages)} stages in {chunks} chunks a submesh", remedy=remedy)
        return cls(submeshes, chunks, splits, said=tuple(stages.items()))

    @property
    def stages(self) -> int:
        """Of all submeshes."""
        return self.submeshes * self.chunks

    @property
    def pieces(self) -> tuple[int, ...]:
        """Into which loops over layers are cut; where it is said which stage they are in, they stay."""
        return (1,) if self.said else self.layers or (1,) * self.stages


class Cutter:
    """A traced program that is cut in several ways: what these have in common is done once."""

    def __init__(self, module: Module, batch: Sequence[str | int], donate: Sequence[str | int] = ()) -> None:
        self.module = pack_results(without_layout_calls(module))
        self.batch = frozenset(argument_numbers(module, batch))
        self.donated = frozenset(argument_numbers(module, donate))
        entry = self.module.entry
        self._whole = Fission(self.module, whole_arrays(len(entry.parameters), len(entry.results)))
        self._seconds_of = cache(seconds_of)
        self._program, self._fission = cache(self._cut_batch), cache(self._cut_loops)
        self._parts = cache(self._cut_stages)
        self._shardings = lru_cache(_MOST_SHARDINGS)(ValueShardings.of)
        self._made = StagePrograms()

    def pipeline(
        self,
        annotated: Module,
        layout: StageLayout,
        submeshes: Sequence[tuple[int, ...]],
        microbatches: int,
        machine: Machine | None = None,
        options: PartitionOptions | None = None,
        axes: StageAxes | None = None,
    ) -> Pipeline:
        """As of `pipelined`, before its microbatches are scheduled.

        `annotated`: the program with its shardings; it stays as it is.  `submeshes`: the devices of each, as many as
        the shardings name.  `options`: how stage programs are partitioned.  `axes`: those of the shardings.
        """
        number = len(submeshes[0])
        machine = machine or default_machine(number * layout.submeshes)
        fission = self._fission(layout.pieces, layout.even, machine)
        program = self._program(microbatches, fission)
        placement, found = self._parts(microbatches, layout, machine)
        shardings = self._shardings(program, annotated, fission, axes, number)
        places = [Submesh(machine.among(devices), options, devices) for devices in submeshes] * layout.chunks
        donated = fission.numbers(self.donated)
        made = _PartsWriter(program, placement, found, shardings, places, self._made, donated).pipeline()
        return replace(made, interface=fission.interface, stages=placement.sources, whole=self.whole)

    @cached_property
    def whole(self) -> WholeStep:
        """What is cut."""
        return WholeStep.of(self.module, self.batch)

    def _cut_loops(self, pieces: tuple[int, ...], even: bool, machine: Machine) -> Fission:
        """Loops are cut where stages of all examples at once would end: at the same trips for all microbatches."""
        if len(pieces) == 1 or not self._loops:
            if even and len(pieces) > 1:
                remedy = "leave out even: listed layers go by time"
                raise ScheduleError("no loop over layers to cut evenly", remedy=remedy)
            return self._whole
        forward, trips = self._forward_trips
        weights = trips if even else self._seconds_of(self._program(1, self._whole).module, machine)
        return cut_loops(self.module, self.batch, self._loops, stages_of_trips(forward, weights, trips, pieces))

    @property
    def trips(self) -> Sequence[int]:
        """Of each loop over layers, forward."""
        return list(self._forward_trips[1].values())

    @cached_property
    def _forward_trips(self) -> tuple[list[Instruction], dict[Instruction, int]]:
        """Forward ops of all examples at once, and of those that are loops over layers the trips."""
        forward = forward_in_order(self._program(1, self._whole))
        counts = {loop.name: own.counter.trips for loop, own in self._loops.items()}
        return forward, {inst: counts[inst.name] for inst in forward if inst.name in counts}

    @cached_property
    def _loops(self) -> Mapping[Instruction, LayerLoop]:
        return find_loops_over_layers(self.module, self.batch)

    def _cut_batch(self, microbatches: int, fission: Fission) -> Microbatched:
        return cut_microbatches(fission.module, dict.fromkeys(fission.numbers(self.batch), 0), microbatches)

    def _cut_stages(self, microbatches: int, layout: StageLayout, machine: Machine) -> tuple[Placement, list[Part]]:
        fission = self._fission(layout.pieces, layout.even, machine)
        program = self._program(microbatches, fission)
        placement = place_stages(
            program,
            layout.stages,
            self._seconds_of(program.module, machine),
            splits_backward=layout.splits_backward,
            wanted=fission.stages,
            said=dict(layout.said),
            layers=layout.layers,
        )
        return placement, cut_parts(program, placement)


_MOST_SHARDINGS = 8
"""Of programs cut one after the other in the same way, by other schedules or in other orders.  Families come whole, so
few suffice: of 32 plans each sharding is propagated once with 2 as with 8."""


def argument_numbers(module: Module, batch: Sequence[str | int]) -> list[int]:
    """Numbers of the entry's parameters that are arguments of these paths, or parts of them.  Raises ScheduleError."""
    return [number for numbers in arguments_by_name(module, batch).values() for number in numbers]


def arguments_by_name(module: Module, names: Iterable[str | int]) -> dict[str | int, list[int]]:
    """The same, of each name."""
    paths = {p.path: p.parameter_number for p in module.entry.parameters}
    found: dict[str | int, list[int]] = {}
    for name in names:
        matching = [name] if isinstance(name, int) else [n for path, n in paths.items() if _is_below(path, name)]
        if not matching or not all(0 <= n < len(paths) for n in matching):
            raise ScheduleError(f"no argument {name!r}", remedy=f"there are {', '.join(paths) or 'none'}")
        found[name] = matching
    return found


def _is_below(path: str, name: str) -> bool:
    """Is a path an argument, or a part of it?"""
    return path == name or path.startswith((f"{name}[", f"{name}."))


def _only(dims: Sequence[int | None]) -> int | None:
    """Of an array; what is read of tuples are their elements."""
    return dims[0] if len(dims) == 1 else None


@dataclass
class _PartsWriter:
    """Partitions the parts, each with the shardings that the whole has where it is cut, and joins them again."""

    program: Microbatched
    placement: Placement
    parts: Sequence[Part]
    values: ValueShardings
    submeshes: Sequence[Submesh]
    made: StagePrograms
    donated: Collection[int]

    def __post_init__(self) -> None:
        self.shardings = dict(self.values.spread)
        self.last_readers = {inst: part for part in self.parts for inst in part.reads}
        self._keep_order()

    def _keep_order(self) -> None:
        """Let the batch enter and leave whole along its dim where a row's place matters: a microbatch is a run of rows.

        Of a dim that is split over devices a microbatch has some rows of each tile: the same rows of all arguments and
        results, if these are split alike.
        """
        results = {self.program.module.entry.results[number]: dim for number, dim in self.program.joined.items()}
        dims = self.batch | results
        ways = {self._sharding(inst).num_tiles_along(dim) for inst, dim in dims.items()}
        if self.program.number is None and len(ways) < 2:
            return
        for inst, dim in dims.items():
            self.shardings[inst.name] = replicate_on_dims(self._sharding(inst), [dim])

    @cached_property
    def batch(self) -> dict[Instruction, int]:
        """Of the parameters that are cut into microbatches the dim."""
        cut = self.program.batch
        return {p: cut[p.parameter_number] for p in self.program.module.entry.parameters if p.parameter_number in cut}

    def pipeline(self) -> Pipeline:
        pieces: list[Piece] = []
        openings: list[Closing] = []
        closings: list[Closing] = []
        devices = [submesh.devices for submesh in self.submeshes]
        for part in self.parts:
            op = self._stage_program(part)
            reads, makes = (tuple(inst.name for inst in side) for side in (part.reads, part.makes))
            if part.phase == "opening" or part.phase == "after":
                once = openings if part.phase == "opening" else closings
                once.append(Closing(op, reads, makes, devices[part.stage]))
            else:
                pieces.append(Piece(part.phase, part.stage, op, reads, makes))
        number, entry = self.program.number, self.program.module.entry
        results = map(self.program.without_sum, entry.results)
        return Pipeline(
            devices,
            pieces,
            {p.name: self._type(p, devices) for p in entry.parameters if p is not number},
            batch={p.name: dim for p, dim in self.batch.items()},
            openings=openings,
            closings=closings,
            results=[(inst.name, self.program.joined.get(n, 0)) for n, inst in enumerate(results)],
            number=number.name if number is not None else "",
        )

    def _type(self, parameter: Instruction, devices: Sequence[tuple[int, ...]]) -> ValueType:
        """Of all microbatches together."""
        shape, dim = parameter.shape, self.batch.get(parameter)
        if dim is not None:
            shape = shape.with_dim(dim, shape.dims[dim] * self.program.count)
        return ValueType(shape, devices[self.placement.home[parameter]], self._sharding(parameter))

    def _sharding(self, inst: Instruction) -> HloSharding:
        return self.shardings.get(inst.name) or REPLICATED

    def _stage_program(self, part: Part) -> StageProgram:
        reads, makes = (tuple(self._sharding(inst) for inst in side) for side in (part.reads, part.makes))
        said = self.values.said
        named = [(n, inst) for n, inst in enumerate(part.module.instructions) if inst.name in said]
        inside = tuple((n, said[inst.name]) for n, inst in named if self._may_be_said(inst))
        flows = (flow._replace(dims=tuple(_only(dims[i]) for i in part.reads)) for flow, dims in self.values.flows)
        shardings = PartShardings(reads, inside, makes, self.values.axes.mesh, tuple(flows), tuple(self._pieces(part)))
        found = self.made.of(part, shardings, self._terms(part), self.submeshes[part.stage])
        found = found.under(part.module.name, donates=self._overwritten(part))
        for inst, made in zip(part.makes, found.outputs, strict=True):
            self.shardings[inst.name] = made.sharding
        return found

    @staticmethod
    def _may_be_said(inst: Instruction) -> bool:
        """Of computations that others call only constraints, which are copies by now, keep their names."""
        return inst.opcode != "parameter" if inst.computation.is_entry else inst.opcode == "copy"

    def _overwritten(self, part: Part) -> list[int]:
        """Of what a part reads the donated parameters that lie where it runs, and that nobody reads behind it."""
        if part.phase != "after":
            return []
        return [n for n, inst in enumerate(part.reads) if self._is_donated(inst) and self._is_last(inst, part)]

    def _is_donated(self, inst: Instruction) -> bool:
        return inst.opcode == "parameter" and inst.parameter_number in self.donated and not inst.is_entry_root

    def _is_last(self, inst: Instruction, part: Part) -> bool:
        return self.last_readers[inst] is part and self.placement.home[inst] == part.stage

    def _terms(self, part: Part) -> Terms:
        """Of the sums those that only what runs behind the last microbatch reads: not the caller."""
        if part.phase == "opening":
            return {}
        late = [number for number in part.sums if not self._is_callers(part.makes[number])]
        return {number: copies_as_partials(self._as_term(part.makes[number])) for number in late}

    def _pieces(self, part: Part) -> Iterator[tuple[int, HloSharding]]:
        """Of terms that a part reads how their sum lies: it is made once, and not by each reader as suits that one."""
        for number, inst in enumerate(part.reads):
            given, lies = self._sharding(inst), self.values.spread.get(inst.name)
            if lies is not None and without_partials(given) != given:
                yield number, lies

    def _as_term(self, inst: Instruction) -> HloSharding:
        """How a sum lies, but whole over axes over which sums stay so."""
        mesh, whole = self.values.axes.mesh, self.values.axes.sums_whole
        if not whole:
            return self._sharding(inst)
        found = axes_by_dim(self._sharding(inst), mesh)
        spec = [tuple(axis for axis in found.get(dim, ()) if axis not in whole) for dim in range(inst.shape.rank)]
        return HloSharding.unnamed(mesh, spec)

    def _is_callers(self, term: Instruction) -> bool:
        return any(user.is_entry_root for copy in term.users if copy in self.program.sums for user in copy.users)
