"""`hs.suggest`: which annotations would split a value that is left whole, or end a conflict?  Found by trying.  And
which ones does a program want that has none?

Floor: search.  Each set of annotations is put on the program and propagated; of the smallest sets that reach the goal,
the program is partitioned and priced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hlosharding.compiler import Partitioned, partition, prices_of
from hlosharding.cost import Machine, step_seconds
from hlosharding.errors import AnnotationError, HloShardingError
from hlosharding.frontends import annotate
from hlosharding.ir import Instruction, Module
from hlosharding.notebook import InNotebooks
from hlosharding.partitioner import PartitionOptions
from hlosharding.plans import PlanFile
from hlosharding.progress import Progress, counting
from hlosharding.propagation import Propagation, propagate
from hlosharding.reshard import MORE_WORK
from hlosharding.search.candidates import find_candidates
from hlosharding.search.comparison import time_text
from hlosharding.search.trials import LARGEST_SET, Hit, smallest_sets
from hlosharding.search.whole_program import find_annotations, find_changes
from hlosharding.sharding import HloSharding, MeshInfo, spell

_MOST_PRICED = 12
"""Of the smallest sets, the nearest first: each is a run of the partitioner, and five answers are given."""


@dataclass(frozen=True, slots=True)
class Suggestion(InNotebooks):
    """Annotations that reach the goal, and what the program then costs: bytes received, FLOPs, predicted seconds; one
    device, one run.

    `str` is the line that `hlosharding suggest` prints; `suggest` has an example.
    """

    annotations: tuple[tuple[str, HloSharding], ...]
    sharding: HloSharding | None
    """What the value gets; None where no value was named."""
    bytes_received: float
    bytes_before: float
    flops: float
    flops_before: float
    time_s: float
    """Simulated."""
    time_before_s: float
    conflicts: int
    """Places of the whole program where neighbours disagree, then."""
    conflicts_before: int
    is_smallest: bool
    """Were all smaller sets of the annotations that come into question tried, in vain?"""
    ends_conflict: bool = False
    """Was the value split already, and is it a conflict that ends?"""
    replaces: tuple[str, ...] = ()
    """Values whose annotation is not added but changed."""
    mesh: MeshInfo | None = field(default=None, repr=False)

    def plan_file(self, plan: PlanFile | None = None) -> PlanFile:
        """These annotations as a plan file, on top of those of `plan`."""
        return PlanFile.of(dict(self.annotations), mesh=self.mesh).over(plan or PlanFile())

    def __str__(self) -> str:
        said = ", ".join(self._said(name, sharding) for name, sharding in self.annotations)
        becomes = f": the value becomes {spell(self.sharding, self.mesh)}" if self.sharding is not None else ""
        took = f"time {time_text(self.time_before_s)} -> {time_text(self.time_s)}"
        moved = f"bytes {self.bytes_before:,.0f} -> {self.bytes_received:,.0f}"
        work = f"FLOPs {self.flops_before:,.0f} -> {self.flops:,.0f}"
        clashes = f"conflicts {self.conflicts_before} -> {self.conflicts}"
        if self.conflicts_before == self.conflicts:
            clashes = "the conflict moves elsewhere" if self.conflicts and self.ends_conflict else ""
        figures = ", ".join(figure for figure in (moved, work, took, clashes) if figure)
        doubt = "" if self.is_smallest else " (a smaller set may do: not all were tried)"
        return f"{said}{becomes}; {figures}{doubt}"

    def _said(self, name: str, sharding: HloSharding) -> str:
        verb = "change" if name in self.replaces else "annotate"
        return f"{verb} %{name}={spell(sharding, self.mesh)}"


def suggest(
    module: Module,
    name: str | None = None,
    *,
    conflict: str | None = None,
    most: int = 5,
    at_once: int = LARGEST_SET,
    to_outputs: bool | Sequence[bool] | None = None,
    to_parameters: bool | Sequence[bool] | None = None,
    num_partitions: int | None = None,
    machine: Machine | None = None,
    options: PartitionOptions | None = None,
    mesh: MeshInfo | None = None,
    progress: Progress | bool = True,
) -> list[Suggestion]:
    """The smallest sets of annotations that split the value `name`, or, where it is split, end its conflicts; of no
    value those with which the whole program takes least on `machine` (`find_optimum`; its own annotations bind), and
    the fewest changes of its arguments' shardings that save nearly all that such may save.

    `conflict`: the neighbour whose offer lost (as `explain(name).conflicts` tells it); by default all of them.  A
    conflict has ended when the two agree and the program has fewer conflicts than before.  Values within a few ops are
    tried with the shardings their neighbours have and with one-dim splits: single annotations first, then pairs, then
    triples; where additional ones do not do it, changes of those given; and where these do not either, annotations that
    move the conflict elsewhere; no more than `at_once` together.  Sorted by bytes received; [] if none was found.
    `to_outputs` and `to_parameters` are `propagate`'s, `progress` is `search`'s, the rest `partition`'s; `mesh`: over
    which axes the whole program is split, by default nodes of devices.

    Raises ModuleError for an unknown name, AnnotationError where there is nothing to remove.

    >>> from hlosharding.frontends import load
    >>> text = '''HloModule m
    ... ENTRY e {
    ...   a = f32[8,4] parameter(0), sharding={devices=[2,1]<=[2]}
    ...   b = f32[4,8] parameter(1)
    ...   c = f32[4,8] negate(b)
    ...   ROOT d = f32[8,8] dot(a, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    ... }'''
    >>> best = suggest(load(text), "c")[0]
    >>> len(best.annotations), best.sharding.num_tiles
    (1, 2)

    A program that nobody annotated:

    >>> import jax, jax.numpy as jnp, hlosharding as hs
    >>> shape = lambda *dims: jax.ShapeDtypeStruct(dims, jnp.float32)
    >>> arrays = shape(512, 65536), shape(65536, 512), shape(64, 512)
    >>> mlp = hs.trace(lambda up, down, x: jnp.tanh(x @ up) @ down)(*arrays)
    >>> [best] = suggest(mlp, machine=hs.machines.h100(4))
    >>> {name: sharding.num_tiles for name, sharding in best.annotations}, best.time_s < 0.5 * best.time_before_s
    ({'x.1': 1, 'up.1': 4, 'down.1': 4, 'dot_general.3': 4}, True)
    """
    run = _Pipeline(to_outputs, to_parameters, num_partitions, machine, options)
    before = run.propagate(module)
    if name is None:
        return _suggest_whole(module, before, run, mesh)
    target = module.by_name(before.explain(name).links[0].name)
    goal = _goal(before, target, conflict)
    wanted = list(find_candidates(module, [target, *goal.find_others(module)], before))
    given = _annotated_names(module)
    added = [one for one in wanted if one[0] not in given]
    with counting("trying annotations", progress) as told:
        hits, moved = smallest_sets(module, added, goal.grade, run.propagate, told, largest=at_once)
        if not hits and len(added) < len(wanted):
            hits, _ = smallest_sets(module, wanted, goal.grade, run.propagate, told, largest=at_once)
    question = _Question(module, target, before, run, given, ends_conflict=bool(goal.neighbours))
    return question.find_answers(hits or moved)[:most]


def _suggest_whole(module: Module, before: Propagation, run: _Pipeline, mesh: MeshInfo | None) -> list[Suggestion]:
    """With which the program takes less: additional annotations; and the fewest changes of its arguments'."""
    machine, mesh = run.machine_for(module), mesh or module.mesh
    if machine.num_devices < 2:
        raise AnnotationError("there is one device", remedy="say for how many: machine=hs.machines.h100(8)")
    run = replace(run, machine=machine, num_partitions=machine.num_devices)

    def propagated(said: Mapping[str, HloSharding]) -> Propagation:
        return run.propagate(annotate(module, said, mesh=mesh))

    def seconds(said: Mapping[str, HloSharding]) -> float:
        made = run.partition(propagated(said))
        return step_seconds(made.module, made.cost)

    best = find_annotations(module, machine, mesh)
    added = {name: s for name, s in best.items() if module.sharding(module.by_name(name)) != s}
    found = [said for said in (added, find_changes(module, machine, mesh, seconds)) if said]
    hits = [Hit(tuple(said.items()), propagated(said), is_smallest=False) for said in found]
    question = _Question(module, None, before, run, _annotated_names(module), ends_conflict=False)
    faster = [answer for answer in question.find_answers(hits) if answer.time_s < answer.time_before_s]
    return sorted(faster, key=lambda answer: answer.time_s)


def _annotated_names(module: Module) -> set[str]:
    return {inst.name for inst in module.instructions if module.sharding(inst) is not None}


# ---- the goal


@dataclass(frozen=True, slots=True)
class _Goal:
    """What a set of annotations must reach."""

    grade: Callable[[Propagation], int | None]
    """0: reached; 1: the conflict has only moved; None: not reached."""
    neighbours: tuple[str, ...] = ()

    def find_others(self, module: Module) -> list[Instruction]:
        """The other sides of the conflicts."""
        return [module.by_name(name) for name in self.neighbours]


def _goal(before: Propagation, target: Instruction, conflict: str | None) -> _Goal:
    if conflict is None and _tiles(before, target) <= 1:
        return _Goal(lambda after: 0 if _tiles(after, target) > 1 else None)
    lost = before.explain(target.name).conflicts
    chosen = tuple(one.loser.name for one in lost if conflict is None or one.loser.name == conflict.removeprefix("%"))
    if not chosen:
        known = ", ".join(dict.fromkeys(one.loser.title for one in lost))
        what = "no offer to it lost" if conflict is None else f"no offer of {conflict} to it lost"
        remedy = f"its conflicts are with {known}" if known else "there is nothing to remove"
        sharding = spell(before.shardings.get(target.name), target.module.mesh)
        raise AnnotationError(f"%{target.name} has {sharding}, and {what}", remedy=remedy)
    pairs, count = {frozenset((target.name, name)) for name in chosen}, len(before.conflicts)

    def grade(after: Propagation) -> int | None:
        here = (one for name in (target.name, *chosen) for one in after.explain(name).conflicts)
        # Asked first, since the conflicts of a whole program take their time.
        if not pairs.isdisjoint(one.pair for one in here) or len(after.conflicts) > count:
            return None
        return int(len(after.conflicts) == count)

    return _Goal(grade, chosen)


def _tiles(after: Propagation, target: Instruction) -> int:
    found = after.shardings.get(target.name)
    return 1 if found is None else found.num_tiles


# ---- the answers


@dataclass(frozen=True, slots=True)
class _Pipeline:
    """How every trial is propagated and priced."""

    to_outputs: bool | Sequence[bool] | None
    to_parameters: bool | Sequence[bool] | None
    num_partitions: int | None
    machine: Machine | None
    options: PartitionOptions | None

    def propagate(self, module: Module) -> Propagation:
        return propagate(module, to_outputs=self.to_outputs, to_parameters=self.to_parameters)

    def machine_for(self, module: Module) -> Machine:
        """Who runs it, on as many devices as were said."""
        count = self.machine.num_devices if self.machine is not None else module.num_partitions
        return prices_of(self.machine, self.num_partitions or count, module)

    def partition(self, propagation: Propagation) -> Partitioned:
        return partition(propagation, num_partitions=self.num_partitions, machine=self.machine, options=self.options)


@dataclass(frozen=True, slots=True)
class _Question:
    """What was asked of which program, and how it was before."""

    module: Module
    target: Instruction | None
    """None: no value was named."""
    before: Propagation
    run: _Pipeline
    given: set[str]
    ends_conflict: bool

    def find_answers(self, hits: list[Hit]) -> list[Suggestion]:
        """Those that cost about as much work first, and then by bytes."""
        if not hits:
            return []
        priced = self.run.partition(self.before)
        found = [answer for hit in hits[:_MOST_PRICED] if (answer := self._answer(hit, priced)) is not None]
        return sorted(found, key=lambda s: (s.flops > MORE_WORK * s.flops_before, s.bytes_received))

    def _answer(self, hit: Hit, priced: Partitioned) -> Suggestion | None:
        try:
            after = self.run.partition(hit.propagation)
        except HloShardingError:
            return None  # what cannot be partitioned helps nobody
        return Suggestion(
            hit.annotations,
            hit.propagation.shardings[self.target.name] if self.target is not None else None,
            after.comm_bytes_per_device,
            priced.comm_bytes_per_device,
            after.flops_per_device,
            priced.flops_per_device,
            step_seconds(after.module, after.cost),
            step_seconds(priced.module, priced.cost),
            len(hit.propagation.conflicts),
            len(self.before.conflicts),
            hit.is_smallest,
            self.ends_conflict,
            tuple(name for name, _ in hit.annotations if name in self.given),
            hit.propagation.module.mesh,
        )
