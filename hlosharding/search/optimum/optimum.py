"""How all values of a step had best lie on a mesh of devices: an optimum, and how far from it anything may be.

Floor: search.  Reshards are bounded first; those that an answer needs are planned, and the question is asked
again until its answer needs no other: then nothing that was left unplanned can be better.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from math import inf
from typing import Any

import numpy as np

from hlosharding.compiler import Partitioned, partition
from hlosharding.cost import Machine, Simulation, machine_of, simulate
from hlosharding.errors import ScheduleError
from hlosharding.frontends import annotate
from hlosharding.ir import ELEMENTWISE, Instruction, Module
from hlosharding.partitioner import Prices, even_placements
from hlosharding.search.batch_arguments import find_batch
from hlosharding.search.choices import solve_choices
from hlosharding.search.in_turn import Promise, improve_in_turn, is_better, largest_first, promise
from hlosharding.search.optimum.nodes import NOTHING, Spent, Weights
from hlosharding.search.optimum.program_choices import ProgramChoices
from hlosharding.search.optimum.reshard_table import Integers
from hlosharding.search.strategies import mesh_of
from hlosharding.search.updates import find_updated
from hlosharding.sharding import HloSharding, MeshInfo, TileAssignment

_SERIAL = Weights(1.0, 1.0)
"""Devices wait for all communication."""
_HIDDEN = (1e-3, 0.3, 0.6)
"""What seconds of hidden communication count, those that hide it the rest: a step takes no less than any mean of the
two.  So little at first that it only decides between equals; more where it takes longer than what it hides behind."""


@dataclass(frozen=True, eq=False)
class Optimum:
    """Shardings of a step's values, what a step then takes, and what none takes less than.

    >>> import jax, jax.numpy as jnp, hlosharding as hs
    >>> def step(weights, rows):
    ...     loss = lambda w: jnp.sum(jnp.tanh(jnp.tanh(rows @ w["up"]) @ w["down"]))
    ...     return jax.tree.map(lambda w, g: w - g, weights, jax.grad(loss)(weights))
    >>> shape = lambda *dims: jax.ShapeDtypeStruct(dims, jnp.float32)
    >>> module = hs.trace(step)({"up": shape(1024, 65536), "down": shape(65536, 1024)}, shape(512, 1024))
    >>> best = find_optimum(module, hs.machines.h100(8), {"x": 8})
    >>> {parameter.path: str(best.shardings[parameter]) for parameter in module.entry.parameters}["weights['up']"]
    '{devices=[1,8]<=[8]}'
    >>> best.gap < 0.02
    True
    """

    module: Module
    machine: Machine
    mesh: MeshInfo
    shardings: Mapping[Instruction, HloSharding]
    """Of every array but single elements and what each device makes for itself."""
    said: Mapping[str, HloSharding]
    """Those that annotations need to say, by name: of arguments, and of what ops make where that helps."""
    spent: Spent
    """Seconds that were predicted of it."""
    bound_s: float
    """No choice takes less, as `spent` counts, all communication hidden that may be."""
    others: tuple[Optimum, ...] = field(default=(), repr=False)
    """Other answers, to the same question and to others, that a simulation found slower."""

    @cached_property
    def annotated(self) -> Module:
        """The program that says so."""
        return annotate(self.module, self.said, mesh=self.mesh)

    @cached_property
    def partitioned(self) -> Partitioned:
        """The program that runs."""
        return partition(self.annotated, num_partitions=self.mesh.num_devices, machine=self.machine)

    @cached_property
    def simulation(self) -> Simulation:
        """Of the program that runs."""
        return simulate(self.partitioned.module, self.machine)

    @property
    def time_s(self) -> float:
        """Simulated."""
        return self.simulation.time_s

    @property
    def fits(self) -> bool:
        """Has each device memory enough?"""
        return self.simulation.peak_memory_bytes <= self.machine.memory_bytes

    @property
    def promise(self) -> Promise:
        """By which it is compared with others."""
        return promise(fits=self.fits, seconds=self.time_s, peak_bytes=self.simulation.peak_memory_bytes)

    @property
    def gap(self) -> float:
        """The part of its predicted seconds that another choice may save, at most."""
        least = self.spent.least  # nothing of a program that computes nothing
        return max(0.0, 1 - self.bound_s / least) if least else 0.0

    def improved(self, steps: int = 100) -> Optimum:
        """Changed for one argument at a time, the largest first, where the simulation finds that faster, until no
        change helps, or so many were tried; likewise each of the other answers: the fastest end.

        >>> import jax, jax.numpy as jnp, hlosharding as hs
        >>> shape = lambda *dims: jax.ShapeDtypeStruct(dims, jnp.float32)
        >>> mlp = hs.trace(lambda up, down, x: jnp.tanh(x @ up) @ down)(shape(64, 512), shape(512, 64), shape(4096, 64))
        >>> best = find_optimum(mlp, hs.machines.h100(2), {"x": 2})
        >>> best.improved().time_s <= best.time_s
        True
        """
        return min((one._climbed(steps) for one in (self, *self.others)), key=lambda one: one.promise)

    def _climbed(self, steps: int) -> Optimum:
        """From this one alone."""
        climb = _Climb(self, steps, {_spelled(self.said)})
        arguments = largest_first(p for p in self.module.entry.parameters if p in self.shardings)
        improve_in_turn(arguments, climb.improve, lambda: climb.may_try)
        return climb.best


@dataclass
class _Climb:
    best: Optimum
    steps: int
    tried: set[Spelled]

    @property
    def may_try(self) -> bool:
        """Were fewer tried than may be?"""
        # The start is among them.
        return len(self.tried) <= self.steps

    def improve(self, parameter: Instruction) -> bool:
        """Take the best other placement of an argument, if it is better."""
        start, found = self.best, [self.best]
        for place in even_placements(parameter.shape.dims, TileAssignment.from_iota(start.mesh.sizes)):
            said = {**start.said, parameter.name: place}
            if _spelled(said) not in self.tried and self.may_try:
                self.tried.add(_spelled(said))
                found.append(replace(start, said=said, shardings={**start.shardings, parameter: place}))
        best = min(found, key=lambda one: one.promise)
        if is_better(best.promise, start.promise):
            self.best = best
        return self.best is not start


Spelled = tuple[tuple[str, int], ...]


def _spelled(said: Mapping[str, HloSharding]) -> Spelled:
    return tuple((name, sharding.uid) for name, sharding in said.items())


def find_optimum(
    module: Module,
    machine: Machine,
    mesh: Any,
    *,
    batch: Collection[int] | None = None,
    donated: Collection[int] | None = None,
    seconds: float = 120.0,
) -> Optimum:
    """The best choices for all values together, on all axes of a mesh, that fit; each checked by partitioning it.

    `mesh`: a `jax.sharding.Mesh`, or sizes by name.  `batch`: numbers of the arguments that are new to each step, by
    default what is found; `donated`: of those that the update may overwrite, by default all that are updated;
    `seconds`: for the solver, after which the best that was found is taken, or all but the batch is whole.  Annotations
    of the program bind.

    What arrays that lie so take together is bounded first, and then more tightly where the program that comes of it
    takes more; where it still does, the smallest is given back (`Optimum.fits`).

    Raises ScheduleError where nothing can fit, or was found in time, and for a mesh of other devices; ShardingError for
    too many axes.
    """
    machine = machine_of(machine)
    mesh = mesh_of(mesh) if isinstance(mesh, Mapping) else MeshInfo.from_jax(mesh)
    if mesh.num_devices != machine.num_devices:
        what = f"a mesh of {mesh.num_devices} devices, and {machine.num_devices} of {machine.name}"
        raise ScheduleError(what, remedy="say as many axes as it has devices, or machine.with_devices(...)")
    batch = _batch_of(module) if batch is None else batch
    donated = [p.parameter_number for p in find_updated(module).values()] if donated is None else donated
    choices = ProgramChoices(module, TileAssignment.from_iota(mesh.sizes), Prices(machine), batch, donated)
    run = _Run(choices, machine, mesh, time.monotonic() + seconds)
    found = run.all_found()
    if not found and run.is_out_of_time:
        what = f"no shardings that fit {machine.name} were found in {seconds:g} seconds"
        raise ScheduleError(what, remedy="give it more seconds, or put layers into a jax.lax.scan: they are one then")
    if not found:
        raise ScheduleError(
            f"no shardings of its values let the step fit {machine.name}",
            where=f"{machine.memory_bytes / 1e9:,.1f} GB a device",
            remedy="take more devices, a smaller batch, or recomputation (jax.checkpoint)",
        )
    best, *others = sorted(found, key=lambda one: one.promise)
    # Each bound holds for every answer, whatever question it came with: the highest says most.
    return replace(best, bound_s=max(one.bound_s for one in found), others=tuple(others))


def _batch_of(module: Module) -> Collection[int]:
    """Of a program of no batch none: all of its arguments may lie ready."""
    try:
        return find_batch(module)
    except ScheduleError:
        return ()


_GAP = 1e-3
"""Of the cost, within which an answer is good enough: no price is nearer to what a cluster takes."""
_TRIES = 3
"""At a memory that is scaled by what the program then takes: temporary arrays, and what is gathered, come on top."""
_AS_PREDICTED = 1.01
"""Times the prediction: so near, no other answer is asked for."""
_STARTS = 0.1
"""Of a step, in starts of kernels: above that sums of prices, though right, leave out what the simulation finds."""
_LESS = 0.95
"""So much of what would fit is asked for then: other choices leave other things beside."""


@dataclass
class _Run:
    choices: ProgramChoices
    machine: Machine
    mesh: MeshInfo
    end: float
    """Until when the solver may go on."""
    is_out_of_time: bool = False
    """Was there a question to which it found no answer?"""

    def all_found(self) -> list[Optimum]:
        """What is best if all is hidden that may be; where that program takes longer, what is best if nothing is, and
        what nobody needs a search for, as where kernels are short."""
        found = list[Optimum]()
        for hidden in _HIDDEN:
            found += self.fitting(Weights(1 - hidden, hidden))
            # All of it hides then: to weigh it more would count what nobody waits for.
            if not found or found[-1].spent.hidden <= found[-1].spent.compute:
                break
        if not found and self.is_out_of_time:
            return [one for one in self._simplest() if one.fits]
        is_as_predicted = any(one.fits and one.time_s <= _AS_PREDICTED * one.spent.least for one in found)
        if found and not is_as_predicted:
            found += self.fitting(_SERIAL)
        if found and not (is_as_predicted and found[0].simulation.breakdown.launch_s < _STARTS * found[0].time_s):
            found += self._simplest()
        return found

    def fitting(self, weights: Weights) -> Iterator[Optimum]:
        """What is best by these weights, in as much memory as lets the program fit."""
        memory, bound = self.machine.memory_bytes, -1.0
        for _ in range(_TRIES):
            answer = self._solve(weights, memory)
            if answer is None:
                return
            chosen, least = answer
            if bound < 0:  # the memory that the machine has; what all wait for, it may overlap
                bound = least if weights is not _SERIAL else 0.0
            found = self._all_of(chosen, bound)
            yield from found
            if any(one.fits for one in found):
                return
            memory *= _LESS * self.machine.memory_bytes / min(one.simulation.peak_memory_bytes for one in found)

    def _all_of(self, chosen: Integers, bound: float) -> list[Optimum]:
        """The programs that say so of arguments, and of what ops make."""
        shardings, spent = self.choices.shardings(chosen), self.choices.spent(chosen)
        said = _of_arguments(shardings), _of_ops(shardings)
        return [Optimum(self.choices.module, self.machine, self.mesh, shardings, one, spent, bound) for one in said]

    def _simplest(self) -> Iterator[Optimum]:
        """All on all devices; and the batch split along a dim that all of it shares.  Sums of prices do not tell which
        starts of kernels and collectives are at once; the simulation does."""
        # The first placement of each node is the whole one (`even_placements`), unless the user says another.
        whole = self.choices.shardings(np.zeros(len(self.choices.nodes), np.int64))
        batch = [p for p in self.choices.find_examples() if p in whole]
        yield self._simulated(whole)
        for dim in _leading_dims_shared(batch):
            yield self._simulated(whole | {p: self._most_split(p, dim) for p in batch})

    def _simulated(self, shardings: Mapping[Instruction, HloSharding]) -> Optimum:
        """An answer by its arguments."""
        said = _of_arguments(shardings)
        found = Optimum(self.choices.module, self.machine, self.mesh, shardings, said, NOTHING, 0.0)
        return replace(found, spent=Spent(found.simulation.compute_s, found.simulation.exposed_comm_s, 0.0))

    def _most_split(self, argument: Instruction, dim: int) -> HloSharding:
        """One dim over as many devices as it may be, no other one."""
        placements = self.choices.nodes[self.choices.node_of(argument, 0)].placements
        tiles = {place: argument.shape.dims[dim] // place.tile_shape(argument.shape.dims)[dim] for place in placements}
        return max(placements, key=lambda place: (tiles[place] == place.num_tiles, place.num_tiles))

    def _solve(self, weights: Weights, memory: float) -> tuple[Integers, float] | None:
        """The choices of the least cost, all reshards that they need planned, and what none is below; None where
        nothing fits."""
        while True:
            left = max(1.0, self.end - time.monotonic())
            found = solve_choices(self.choices.problem(weights, memory), left, _GAP)
            if found.chosen is None:
                # A bound of inf is the proof that nothing fits.
                self.is_out_of_time |= found.bound < inf
                return None
            self.choices.plan_reshards(found.chosen)
            self.choices.slow_down(found.chosen)
            # Prices only rise: what still costs what it did, or little more than nothing is below, is an answer.
            cost = self.choices.problem(weights, memory).cost_of(found.chosen)
            if cost <= max(found.cost, found.bound * (1 + _GAP)):
                others = weights.compute * self.choices.others_s
                return found.chosen, found.bound - self.choices.most_held + others


def _leading_dims_shared(arguments: Sequence[Instruction]) -> range:
    """The first dims, of which all arguments have the same sizes."""
    sizes = zip(*(argument.shape.dims for argument in arguments), strict=False)
    return range(sum(1 for _ in takewhile(lambda each: len(set(each)) == 1, sizes)))


def _of_arguments(shardings: Mapping[Instruction, HloSharding]) -> dict[str, HloSharding]:
    """Of the rest propagation says how it lies."""
    return {inst.name: s for inst, s in shardings.items() if inst.opcode == "parameter" and inst.computation.is_entry}


def _of_ops(shardings: Mapping[Instruction, HloSharding]) -> dict[str, HloSharding]:
    """Of arguments, and of all that is not made element by element."""
    return {inst.name: s for inst, s in shardings.items() if inst.opcode not in ELEMENTWISE}
