"""`hs.suggest`: which annotations would split a value, end a conflict, make a collective cheaper?  Found by trying.
And which ones does a program want that has none?

Floor: search.  Each set of annotations is put on the program and propagated; of the smallest sets that reach the goal,
the program is partitioned and priced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, islice
from operator import itemgetter

from hlosharding.compiler import CollectiveExplanation, Partitioned, explain, explain_line, is_line, made_at
from hlosharding.cost import Machine, machine_of
from hlosharding.errors import AnnotationError, HloShardingError, ModuleError, is_count
from hlosharding.frontends import annotate
from hlosharding.ir import Instruction, Module
from hlosharding.partitioner import PartitionOptions
from hlosharding.progress import Progress, counting
from hlosharding.propagation import LostOffer, Propagation
from hlosharding.reshard import MORE_WORK
from hlosharding.search.candidates import Annotation, find_candidates
from hlosharding.search.suggestion import Suggestion
from hlosharding.search.trial_prices import Pipeline
from hlosharding.search.trials import LARGEST_SET, Hit, smallest_sets, try_annotations
from hlosharding.search.whole_program import find_annotations, find_changes
from hlosharding.sharding import HloSharding, MeshInfo, spell
from hlosharding.spmd import Collective

_MOST_OF_A_VALUE = 3
"""Shardings that are tried for one value near a collective: each is a run of the partitioner."""
_MOST_PRICED = 12
"""Of the smallest sets, the nearest first: each is a run of the partitioner, and five answers are given."""


def suggest(
    module: Module,
    what: str | int | Collective | LostOffer | None = None,
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
    """Annotations that help a value, a conflict, a collective, a source line, or the whole program.

    By what `what` is:

    * a value (its name, a parameter's path): the smallest sets that split it, or, where it is split, end its conflicts;
    * a conflict (one of `Propagation.conflicts`; or a value and `conflict`): those that end it;
    * a collective ("#3", its number, or itself, of XLA's own program, too): single annotations near the op that needed
      it with which the program takes less time, or receives fewer bytes;
    * a source line ("model.py:31"): all of this for its dearest collective, first whole value, and first conflict;
    * nothing: those with which the whole program takes least on `machine` (`find_optimum`; its own annotations bind),
      and the fewest changes of its arguments' shardings that save nearly all that such may save.

    `conflict`: the neighbour whose offer lost (as `explain(name).conflicts` tells it); by default all of them.  A
    conflict has ended when the two agree and the program has fewer conflicts than before.  Values within a few ops are
    tried with the shardings their neighbours have and with one-dim splits: single annotations first, then pairs, then
    triples; where additional ones do not do it, changes of those given; and where these do not either, annotations that
    move the conflict elsewhere; no more than `at_once` together.  Of a value sorted by bytes received, else by time; []
    if none was found.  `to_outputs` and `to_parameters` are `propagate`'s, `progress` is `search`'s, the rest
    `partition`'s; `mesh`: over which axes the whole program is split, by default its own, else those of its
    annotations' tiles, else nodes of devices.

    Raises ModuleError for what is not in the program, AnnotationError where there is nothing to remove.

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
    devices = 1 if num_partitions is None else num_partitions
    for name, count in {"most": most, "at_once": at_once, "num_partitions": devices}.items():
        if not is_count(count):
            raise AnnotationError(f"{name}={count} suggests nothing", remedy=f"take {name}=1 or more")
    run = Pipeline(to_outputs, to_parameters, num_partitions, machine_of(machine), options)
    asked = _Asked(module, run.propagate(module), run, at_once, progress)
    value = what if isinstance(what, str) and not what.startswith("#") and not is_line(what) else None
    if conflict is not None and value is None:
        raise AnnotationError(f"a conflict with {conflict}, of no value", remedy="name the value, too")
    if what is None:
        return asked.of_whole(mesh)[:most]
    if isinstance(what, LostOffer):
        return asked.of_value(what.winner.name, what.loser.name)[:most]
    if value is not None:
        return asked.of_value(value, conflict)[:most]
    return (asked.of_line(what) if isinstance(what, str) and is_line(what) else asked.of_collective(what))[:most]


@dataclass(frozen=True)
class _Asked:
    """A program of which something is asked."""

    module: Module
    before: Propagation
    run: Pipeline
    at_once: int
    progress: Progress | bool

    def of_value(self, name: str, conflict: str | None) -> list[Suggestion]:
        """What splits it, or ends its conflicts."""
        module = self.module
        target = module.by_name(self.before.explain(name).links[0].name)
        goal = _goal(self.before, target, conflict)
        added, wanted = self._candidates([target, *map(module.by_name, goal.neighbours)])
        with counting("trying annotations", self.progress) as told:
            hits, moved = smallest_sets(module, added, goal.grade, self.run.propagate, told, largest=self.at_once)
            if not hits and len(added) < len(wanted):
                hits, _ = smallest_sets(module, wanted, goal.grade, self.run.propagate, told, largest=self.at_once)
        return self._find_answers(hits or moved, target, ends_conflict=bool(goal.neighbours))

    def of_collective(self, what: str | int | Collective) -> list[Suggestion]:
        """With which the program takes less, or receives less: additional annotations, else changes."""
        [why] = (one for one in explain(self._partitioned, what).answers if isinstance(one, CollectiveExplanation))
        names = [why.needed_by.name] if why.needed_by is not None else []
        names += [operand.links[0].name for _, operand in why.operands]
        added, wanted = self._candidates([op for name in names if (op := self.module.find(name)) is not None])
        return self._helpful(added) or self._helpful([one for one in wanted if one not in added])

    def of_line(self, line: str) -> list[Suggestion]:
        """For what there is at a line."""
        answers = list(self._at_line(line))
        if not answers:
            remedy = "there is nothing to remove"
            raise AnnotationError(f"{line} has no collective, no value that is whole, and no conflict", remedy=remedy)
        found = {one.annotations: one for some in answers for one in some}
        return sorted(found.values(), key=lambda one: one.time_s)

    def _at_line(self, line: str) -> Iterator[list[Suggestion]]:
        values = made_at(self.module, line)
        with suppress(ModuleError):  # no collective is at that line
            at_line = self._partitioned.explain_collectives(line, priced=False)
            yield self.of_collective(max((one.collective for one in at_line), key=lambda one: one.bytes_per_device))
        whole = (v for v in values if v.shape.is_array and v.shape.rank and _tiles(self.before, v) <= 1)
        for value in list(whole)[:1]:
            yield self.of_value(value.name, None)
        told = explain_line(self.before, line)
        conflicts = (lost for one in told for lost in ([one] if isinstance(one, LostOffer) else one.conflicts))
        # Of each kind one: to try annotations for every conflict of a line that stands for many layers takes too long.
        for lost in islice(conflicts, 1):
            yield self.of_value(lost.winner.name, lost.loser.name)

    def of_whole(self, mesh: MeshInfo | None) -> list[Suggestion]:
        """With which the program takes less: additional annotations; and the fewest changes of its arguments'."""
        module = self.module
        machine, mesh = self.run.machine_for(module), mesh or module.mesh
        if machine.num_devices < 2:
            raise AnnotationError("there is one device", remedy="say for how many: machine=hs.machines.h100(8)")
        run = replace(self.run, machine=machine, num_partitions=machine.num_devices)

        def propagated(said: Mapping[str, HloSharding]) -> Propagation:
            return run.propagate(annotate(module, said, mesh=mesh))

        def seconds(said: Mapping[str, HloSharding]) -> float:
            return run.price(propagated(said), tuple(said.items())).time_s

        best = find_annotations(module, machine, mesh)
        added = {name: s for name, s in best.items() if module.sharding(module.by_name(name)) != s}
        found = [said for said in (added, find_changes(module, machine, mesh, seconds)) if said]
        hits = [Hit(tuple(said.items()), propagated(said), is_smallest=False) for said in found]
        answers = replace(self, run=run)._find_answers(hits)
        return sorted((one for one in answers if one.time_s < one.time_before_s), key=lambda one: one.time_s)

    @cached_property
    def _partitioned(self) -> Partitioned:
        return self.run.partition(self.before)

    def _candidates(self, targets: list[Instruction]) -> tuple[list[Annotation], list[Annotation]]:
        """Additional annotations, and with these the changes of given ones."""
        wanted = list(find_candidates(self.module, targets, self.before))
        return [one for one in wanted if one[0] not in self._given], wanted

    @cached_property
    def _given(self) -> set[str]:
        """Names of what is annotated."""
        return {inst.name for inst in self.module.instructions if self.module.sharding(inst) is not None}

    def _helpful(self, candidates: Sequence[Annotation]) -> list[Suggestion]:
        """Those that help alone; of such as make one program the nearest."""
        of_values = groupby(candidates, key=itemgetter(0))
        near = [one for _, of_value in of_values for one in islice(of_value, _MOST_OF_A_VALUE)]
        made = (try_annotations(self.module, (one,), self.run.propagate) for one in near)
        hits = [
            Hit((one,), found, is_smallest=True) for one, found in zip(near, made, strict=True) if found is not None
        ]
        answers = self._find_answers(hits)
        better = [a for a in answers if a.time_s < a.time_before_s or a.bytes_received < a.bytes_before]
        # Of equal keys a dict keeps the value that came last: reversed, that of the nearest.
        unlike = {(a.bytes_received, a.flops, a.time_s): a for a in reversed(better)}
        return sorted(unlike.values(), key=lambda one: one.time_s)

    def _find_answers(
        self, hits: Sequence[Hit], target: Instruction | None = None, *, ends_conflict: bool = False
    ) -> list[Suggestion]:
        """Those that cost about as much work first, and then by bytes.  `target`: the value that was named, if any."""
        found = (self._answer(hit, target, ends_conflict=ends_conflict) for hit in hits[:_MOST_PRICED])
        return sorted(filter(None, found), key=lambda s: (s.flops > MORE_WORK * s.flops_before, s.bytes_received))

    def _answer(self, hit: Hit, target: Instruction | None, *, ends_conflict: bool) -> Suggestion | None:
        before = self.run.price(self.before)
        try:
            after = self.run.price(hit.propagation, hit.annotations)
        except HloShardingError:
            return None  # what cannot be partitioned helps nobody
        return Suggestion(
            hit.annotations,
            hit.propagation.shardings[target.name] if target is not None else None,
            after.bytes_received,
            before.bytes_received,
            after.flops,
            before.flops,
            after.time_s,
            before.time_s,
            len(hit.propagation.conflicts),
            len(self.before.conflicts),
            hit.is_smallest,
            ends_conflict,
            tuple(name for name, _ in hit.annotations if name in self._given),
            hit.propagation.module.mesh,
        )


# ---- the goal


@dataclass(frozen=True, slots=True)
class _Goal:
    """What a set of annotations must reach."""

    grade: Callable[[Propagation], int | None]
    """0: reached; 1: the conflict has only moved; None: not reached."""
    neighbours: tuple[str, ...] = ()
    """The other sides of the conflicts."""


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
