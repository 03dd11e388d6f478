"""`hs.partition`: a per-device program in hand, with everything a user asks of it.

Floor: compiler.  Glue only: the partitioner rewrites, the cost room counts, the executor runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, cast, overload

from hlosharding import xla_bridge
from hlosharding.collector import collector_waits
from hlosharding.compiler.alternatives import best_program
from hlosharding.compiler.collective_explanation import CollectiveExplanation, explained_collective, meant_collectives
from hlosharding.compiler.silent_regions import broken_regions
from hlosharding.compiler.split_explanation import SplitExplanation, explained_split, splits_of
from hlosharding.cost import CostReport, Machine, Topology, leaves_on_host, machine_of, machines, preset_of_kind
from hlosharding.deep_stack import deep_stack
from hlosharding.errors import ExecutionError, PartitionError, is_count
from hlosharding.executor import NO_OPTIONS, BoundaryArray, Executable, ShardMapProgram
from hlosharding.ir import (
    Computation,
    FunctionBoundary,
    GuessedLoop,
    Instruction,
    Module,
    blaming,
    executions,
    guessed_loops,
    with_listed_groups,
    with_trip_counts,
)
from hlosharding.notebook import InNotebooks
from hlosharding.partitioner import LocalProgram, OpPlan, PartitionOptions, ShardingOverride
from hlosharding.propagation import Propagation, propagate
from hlosharding.sharding import has_unconstrained_dims, spell
from hlosharding.spmd import Collective, collectives


class Partitioned(InNotebooks):
    """A partitioned module: local shapes, explicit collectives.

    Inputs and outputs of `run`, `compile` and `run_reference` are *global* arrays: for a traced function in the
    function's own pytrees, else by parameter number; a parameter that is a tuple takes a tuple of arrays, or its arrays
    one by one.

    >>> import jax.numpy as jnp, hlosharding as hs
    >>> module = hs.trace(lambda x: x.sum(), in_shardings="{devices=[2]<=[2]}")(jnp.ones(8))
    >>> local = hs.partition(module)
    >>> [c.kind for c in local.collectives], float(local.run_reference(jnp.ones(8)))
    (['all-reduce'], 8.0)
    """

    def __init__(
        self,
        local: LocalProgram,
        source: Module,
        machine: Machine,
        propagation: Propagation | Callable[[], Propagation] | None,
        options: PartitionOptions | None = None,
    ) -> None:
        self.local = local
        """The per-device program with what the partitioner noted of it."""
        self._source = source
        self._options = options or PartitionOptions()
        self.machine = machine
        """The machine whose prices decided."""
        self._propagation = propagation

    @cached_property
    def propagation(self) -> Propagation | None:
        """Why the shardings are what they are; None if the module was given with its shardings.

        Of a program that was read from disk it is found when asked for.
        """
        found = self._propagation
        return found if found is None or isinstance(found, Propagation) else found()

    @property
    def module(self) -> Module:
        """The local module; entry parameters and root carry the shardings of their tiles."""
        return self.local.module

    @property
    def was_partitioned(self) -> bool:
        """Did it come as one device's program already, as XLA leaves it?"""
        return self.module is self._source

    @property
    def whole_program(self) -> Module | None:
        """The program before it was partitioned; None where it came as one device's already."""
        return None if self.was_partitioned else self._source

    @property
    def options(self) -> PartitionOptions:
        """How it was partitioned."""
        return self._options

    @property
    def num_partitions(self) -> int:
        """Devices the program is for."""
        return self.module.num_partitions

    @overload
    def explain(self, what: str) -> SplitExplanation: ...

    @overload
    def explain(self, what: int | Collective) -> CollectiveExplanation: ...

    def explain(self, what: str | int | Collective) -> SplitExplanation | CollectiveExplanation:
        """Why an op of the program that was given (by name) is split as it is, and what other splits would cost; or why
        one of `collectives` (itself, or its number) is there.

        Raises ModuleError for what is not in it.
        """
        return self._explain_op(what) if isinstance(what, str) else self.explain_collectives(what)[0]

    def explain_collectives(
        self, *which: int | str | Collective, of: Sequence[Collective] | None = None, priced: bool = True
    ) -> list[CollectiveExplanation]:
        """Of several at once: by number (3, "#3"), by source line ("model.py:31"), by name.

        `of`: not of its own, but of those of another program that was made of the same, as XLA's own; such a one is
        explained by the op of this program for which it was made.  `priced`: also how else the ops that needed them
        could be split.  Raises ModuleError for one that is not there.
        """
        found = self.collectives if of is None else of
        numbers = dict.fromkeys(number for what in which for number in meant_collectives(found, what))
        ask = (lambda name: splits_of(self.plans, name)) if priced else (lambda _: None)
        known = self.collectives, of, self._source, self.propagation, ask
        return [explained_collective(number, *known) for number in numbers]

    def _explain_op(self, name: str) -> SplitExplanation:
        if self.was_partitioned:
            raise PartitionError("nothing was chosen: the program was partitioned already", remedy="ask of its source")
        cause = self.propagation.explain(name) if self.propagation is not None else None
        return explained_split(self._source, self.plans, name, cause)

    @cached_property
    def plans(self) -> Mapping[str, OpPlan]:
        """By name, how each op was partitioned that there was a choice for: where its operands and its results lie, and
        at what price.

        What only copies what it reads, or goes on where its operands lie, has none.
        """
        return {inst.name: plan for inst, plan in self._made_here.plans.items()}

    @property
    def _made_here(self) -> LocalProgram:
        """The program with what was chosen for it, which one that was read from disk lacks."""
        is_read = self.local.table is None and not self.was_partitioned
        if not is_read:
            return self.local
        return best_program(
            self.propagation.module if self.propagation is not None else self._source,
            num_partitions=self.num_partitions,
            machine=self.machine,
            options=self._options,
            annotated=self.propagation.annotated if self.propagation is not None else frozenset(),
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Ops that were not partitioned, each with its place and what that costs; annotations that are bypassed, by
        line; loops whose trips are guesses."""
        words = (*self.local.warnings, *self._bypassed_annotations, *map(str, self._guessed_loops))
        elided = self.module.elided
        return (*words, f"the text left out the values of constant %{elided}: nothing can run") if elided else words

    @property
    def _bypassed_annotations(self) -> Iterator[str]:
        mesh = self.module.mesh
        bypassed = [one for one in self.sharding_overrides if one.is_bypassed]
        told = Counter((one.location or f"%{one.name}", spell(one.propagated, mesh), one.why) for one in bypassed)
        for (where, asked, why), times in told.items():
            yield f"{where}, {asked}{f', {times} times' if times > 1 else ''}: {why}"

    @cached_property
    def _guessed_loops(self) -> tuple[GuessedLoop, ...]:
        return guessed_loops(executions(self.module))

    @property
    def sharding_overrides(self) -> tuple[ShardingOverride, ...]:
        """Values whose sharding is not the propagated one, in program order, with the reason in a few words.

        Inputs are never among them; outputs only where nobody asked for a sharding, and XLA makes one whole because it
        does not divide evenly; what the user annotated only where nobody reads it so, with what keeping it would cost.
        """
        return self.local.overrides

    def to_hlo_text(self, *, metadata: bool = False) -> str:
        """The local module as HLO text."""
        return self.module.to_hlo_text(metadata=metadata)

    def to_stablehlo_text(self) -> str:
        """The local module as StableHLO text with explicit collectives: what any StableHLO compiler can run.

        Devices are partitions, numbered as in the collectives' groups.  Shardings are none: how the arrays of the
        boundary are cut stands in `module.shardings`.
        """
        return xla_bridge.hlo_proto_to_local_stablehlo(with_listed_groups(self.module), self.num_partitions)

    def as_python(self) -> str:
        """Source of the `jax.shard_map` program; what is shown is what runs."""
        return self.program.source

    @cached_property
    def collectives(self) -> list[Collective]:
        """All collectives, in program order, with bytes, cause and source line."""
        return collectives(self.module)

    @property
    def cost(self) -> CostReport:
        """FLOPs, bytes, peak memory and time per device on `machine`."""
        return self.local.cost(self.machine)

    @property
    def comm_bytes_per_device(self) -> float:
        """Bytes received in a run, mean over devices."""
        return sum(c.bytes_per_device for c in self.collectives)

    @property
    def flops_per_device(self) -> float:
        """Floating-point operations of one device in a run."""
        return self.cost.flops

    @property
    def peak_memory_bytes(self) -> int:
        """Most bytes alive at once on one device, by liveness."""
        return int(self.cost.peak_memory_bytes)

    def run(self, *arguments: Any, **keywords: Any) -> Any:
        """Run on JAX's devices; numpy results.  Raises ExecutionError where there are too few devices."""
        return self.unflatten(self.program.run(*self.flatten(arguments, keywords)))

    def run_reference(self, *arguments: Any, **keywords: Any) -> Any:
        """Run device by device without a mesh: the meaning of the program, for any number of devices."""
        return self.unflatten(self.program.run_reference(*self.flatten(arguments, keywords)))

    def compile(
        self,
        devices: Sequence[Any] | None = None,
        *,
        donate: Sequence[int] = (),
        compiler_options: Mapping[str, Any] = NO_OPTIONS,
        keep_unused: bool = False,
    ) -> CompiledFunction:
        """A callable on jax Arrays (pytrees as the traced function had them).

        `donate`: numbers of flat parameters whose buffers may be reused.  `compiler_options`: for XLA.  `keep_unused`:
        parameters that nothing reads are laid out, too.
        """
        executable = self.program.compile(
            devices, donate=donate, compiler_options=compiler_options, keep_unused=keep_unused
        )
        return CompiledFunction(self, executable)

    @cached_property
    def program(self) -> ShardMapProgram:
        """The generated source with the layouts of its boundary, as the executor takes it."""
        if self.was_partitioned:
            raise ExecutionError(
                "XLA compiled this module already; shapes of whole arrays are not in it",
                remedy="run the program that it was made from",
            )
        _refuse_tokens(self._source.entry)
        inputs, outputs = self._boundary
        return ShardMapProgram(self.module, inputs=inputs, outputs=outputs)

    @cached_property
    def _boundary(self) -> tuple[list[BoundaryArray], list[BoundaryArray]]:
        entry, signature = self._source.entry, self._source.signature
        both = zip(entry.parameters, self.module.entry.parameters, strict=True)
        inputs = [layout for given, local in both for layout in self._layouts(given, local)]
        outputs = self._layouts(entry.root, self.module.entry.root)
        if signature is None:
            away = leaves_on_host(self.module)
            kept = [away.get(p, ()) for p in self.module.entry.parameters]
            first = [bool(leaves) for p, leaves in zip(entry.parameters, kept, strict=True) for _ in p.shape.leaves]
            last = away.get(self.module.entry.root, ())
            return _on_host(inputs, first), _on_host(outputs, [n in last for n in range(len(outputs))])
        pairs = zip(outputs, signature.out_avals, strict=True)
        outputs = [replace(o, is_weak=bool(getattr(a, "weak_type", False))) for o, a in pairs]
        nothing = (None,) * len(outputs)
        said = zip(outputs, signature.output_shardings or nothing, signature.output_names or nothing, strict=True)
        outputs = [replace(layout, label=_label(layout, given, names)) for layout, given, names in said]
        return _in_memory(inputs, signature.input_memory), _in_memory(outputs, signature.output_memory)

    def _layouts(self, inst: Instruction, local: Instruction) -> list[BoundaryArray]:
        """Global shape and sharding of each array of an entry parameter, or of the root."""
        sharding = self.module.sharding(local)
        assert sharding is not None, "the partitioner shards the whole boundary"
        return [BoundaryArray(shape, leaf) for shape, leaf in zip(inst.shape.leaves, sharding.leaves, strict=True)]

    def flatten(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> list[Any]:
        """The arguments of a call as one array for each entry parameter; ExecutionError where they do not fit."""
        signature = self._source.signature
        flat = self._bind(signature, arguments, keywords)
        parameters = self._source.entry.parameters
        weights = [self._source.weights[p.name] for p in parameters[len(flat) :] if p.name in self._source.weights]
        flat = [*flat, *weights]
        count = sum(len(p.shape.leaves) for p in parameters)
        if any(p.shape.is_tuple for p in parameters):
            flat = list(_arrays_in(flat))
        if len(flat) != count:
            raise ExecutionError(
                f"the program takes {count} arrays, {len(flat)} were given",
                remedy="pass one global array per parameter, in order; for a parameter that is a tuple, one of arrays",
            )
        return flat

    @staticmethod
    def _bind(signature: FunctionBoundary | None, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> list[Any]:
        import jax
        from jax.tree_util import all_leaves

        if signature is not None:
            try:
                return signature.flatten(arguments, keywords)
            except TypeError:
                # Not the function's arguments; perhaps all its arrays one by one, as a program without a signature
                # takes them.
                is_flat = len(arguments) == len(signature.in_avals) and all_leaves(arguments)
                if not is_flat:
                    raise
                in_tree = jax.tree.unflatten(signature.in_tree, arguments)
                return signature.flatten(*in_tree)
        if keywords:
            raise ExecutionError("keyword arguments need a traced function", remedy="pass arrays by position")
        return list(arguments)

    def unflatten(self, outputs: Sequence[Any]) -> Any:
        """The function's result from flat arrays."""
        if self._source.signature is not None:
            return self._source.signature.unflatten(outputs)
        return tuple(outputs) if self._source.entry.root.shape.is_tuple else outputs[0]

    def __repr__(self) -> str:
        count = len(self.sharding_overrides)
        others = f", {count} sharding override{'' if count == 1 else 's'}" if count else ""
        return (
            f"Partitioned({self.module.name}, {self.num_partitions} devices, {len(self.collectives)} collectives, "
            f"{'~' if self._guessed_loops else ''}{self.comm_bytes_per_device:,.0f} bytes per device{others})"
        )


def _label(layout: BoundaryArray, given: Any, names: Any) -> Any:
    """The jax sharding under which users shall see an output: what was asked for, or JAX's words for what it got."""
    is_typed = given is not None
    if not layout.is_even or names is None or (is_typed and not has_unconstrained_dims(given)):
        return given
    return names.said(layout.sharding, layout.shape.rank, is_typed=is_typed)


def _arrays_in(arguments: Sequence[Any]) -> Iterator[Any]:
    """What tuples and lists hold, in order."""
    for argument in arguments:
        if isinstance(argument, tuple | list):
            yield from _arrays_in(cast("Sequence[Any]", argument))
        else:
            yield argument


@dataclass(frozen=True, slots=True)
class CompiledFunction:
    """A partitioned program, compiled for devices, behind the function's own pytrees."""

    boundary: Partitioned | FunctionBoundary
    executable: Executable

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        flat = self.boundary.flatten(arguments, keywords)
        return self.boundary.unflatten(self.executable(*flat))

    def with_shortcut(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, Any]:
        """The result of a call, and how JAX's C++ does such a call again (None where it cannot)."""
        import jax

        flat = self.boundary.flatten(arguments, keywords)
        result = self.boundary.unflatten(self.executable(*flat))
        leaves, tree = jax.tree.flatten(result)
        return result, self.executable.shortcut(flat, leaves, tree)


def _refuse_tokens(entry: Computation) -> None:
    """ExecutionError where effects are ordered between programs: JAX hands their tokens from one to the next."""
    for inst in (*entry.parameters, entry.root):
        if any(not leaf.is_array for leaf in inst.shape.leaves):
            users = [u for u in inst.users if u.location]
            raise ExecutionError(
                "ordered effects are not run: their order would need a token passed from program to program",
                where=users[0].where if users else f"%{inst.name}",
                remedy="take io_callback(..., ordered=False); one that reads another's result comes after it",
            )


@deep_stack
@collector_waits
def partition(
    module: Module | Propagation,
    *,
    num_partitions: int | None = None,
    machine: Machine | Topology | None = None,
    options: PartitionOptions | None = None,
) -> Partitioned:
    """Rewrite a program to per-device shapes with explicit collectives.

    A Module is propagated first (open inputs and outputs of a traced function take what suits the program).  Inputs,
    outputs and what the user annotated keep their shardings, as long as anybody reads them so (`sharding_overrides`
    says where nobody does); any other value may get a cheaper one than propagation's, so may an output for which nobody
    asked for one, and of which a dim does not divide evenly.
    What XLA compiled already for several devices is taken as it stands, to be listed and priced.
    `num_partitions`: by default the module's own, or what its shardings name.  `machine`: whose prices decide; by
    default the preset that fits JAX's devices.  `options`: what reshards minimise, and whether products overlap with
    permutes.  Raises PartitionError, for collectives in a region of `hs.no_communication`, too; of a Module also
    PropagationError.

    >>> import hlosharding as hs
    >>> text = '''HloModule m, num_partitions=2
    ... ENTRY e {
    ...   x = f32[8,4] parameter(0), sharding={devices=[2,1]<=[2]}
    ...   ROOT y = f32[8,4] negate(x)
    ... }'''
    >>> local = hs.partition(hs.propagate(hs.load(text), to_outputs=True))
    >>> local, str(local.module.by_name("y").shape)
    (Partitioned(m, 2 devices, 0 collectives, 0 bytes per device), 'f32[4,4]')
    """
    propagation = module if isinstance(module, Propagation) else propagate(module)
    source = with_trip_counts(propagation.module, options.trips if options is not None else {})
    count = num_partitions if num_partitions is not None else _device_count(source)
    prices = prices_of(machine, count, source)
    # A schedule is what XLA's compiler leaves, behind its partitioner.
    if source.is_scheduled and source.num_partitions > 1:
        return Partitioned(LocalProgram(source, [_COMPILED_ALREADY]), source, prices, propagation)
    chosen = _best(source, propagation, prices, count, options)
    error = _broken(chosen)
    if error is not None:  # work may have been spread for its price alone
        chosen = _best(source, propagation, prices, count, replace(options or PartitionOptions(), only_propagated=True))
        error = _broken(chosen)
    if error is not None:
        raise error
    return chosen


def _best(
    source: Module, propagation: Propagation, prices: Machine, count: int, options: PartitionOptions | None
) -> Partitioned:
    with blaming(source):
        local = best_program(
            source, num_partitions=count, machine=prices, options=options, annotated=propagation.annotated
        )
    return Partitioned(local, source, prices, propagation, options)


def _broken(made: Partitioned) -> PartitionError | None:
    return broken_regions(made.module, partial(made.explain_collectives, priced=False))


def prices_of(machine: Machine | Topology | None, num_devices: int, module: Module) -> Machine:
    """The machine whose prices decide."""
    if machine is not None:
        return machine_of(machine)
    # The preset that fits the devices of the traced function's mesh, if there is one, else JAX's.
    devices = module.signature.devices if module.signature is not None else None
    return default_machine(num_devices if is_count(num_devices) else 1, devices)


_COMPILED_ALREADY = "XLA compiled this module already: listed and priced as it stands"


def _device_count(module: Module) -> int:
    named = {leaf.num_devices for s in module.distinct_shardings for leaf in s.leaves} - {None}
    if len(named) > 1:
        raise PartitionError(f"the shardings name {sorted(map(str, named))} devices", remedy="pass num_partitions")
    if module.num_partitions > 1:
        return module.num_partitions
    return next(iter(named), None) or 1


def _on_host(layouts: list[BoundaryArray], is_there: Sequence[bool]) -> list[BoundaryArray]:
    """Layouts of a program without a signature, which moves these itself."""
    return _in_memory(layouts, ["pinned_host" if there else None for there in is_there])


def _in_memory(layouts: list[BoundaryArray], kinds: Sequence[str | None]) -> list[BoundaryArray]:
    """Layouts with the kinds of memory that the user asked for; `kinds` is empty where there are none."""
    if not kinds:
        return layouts
    return [replace(layout, memory=kind) for layout, kind in zip(layouts, kinds, strict=True)]


def default_machine(num_devices: int, devices: Sequence[Any] | None = None) -> Machine:
    """The preset that fits `devices` (default: JAX's); H100s where these are CPU devices standing in for a cluster.

    >>> default_machine(8).num_devices
    8
    """
    import jax

    kind = (devices or jax.devices())[0].device_kind
    return (preset_of_kind(kind) or machines.h100)(num_devices)
