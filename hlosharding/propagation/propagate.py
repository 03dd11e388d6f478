"""The pass as users call it: shardings for every value of a module, from a few annotations.

Floor: propagation.  Follows XLA's ShardingPropagation::Run step by step on a clone; the caller's module stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from hlosharding.ir import Module
from hlosharding.propagation import annotations, boundaries, data_flow
from hlosharding.propagation.fixpoint import FixPoint
from hlosharding.propagation.graph import Graph
from hlosharding.propagation.nodes import Nodes
from hlosharding.propagation.policy import SHARD_BARRIER_FROM, SHARD_BARRIER_TO
from hlosharding.propagation.provenance import Explanation, Trail
from hlosharding.propagation.why import explain
from hlosharding.sharding import HloSharding, find_common_sharding, merge_if_compatible

_TOP_LEVEL = 3


@dataclass(frozen=True)
class Propagation:
    """The outcome: a module with shardings, and the reason for each of them."""

    module: Module
    """A clone of the input in which `Sharding` calls are copies and every value has the sharding found."""
    changed: bool
    """What XLA's pass reports: was anything rewritten or improved?"""
    _points: FixPoint = field(repr=False)

    @cached_property
    def shardings(self) -> dict[str, HloSharding | None]:
        """Instruction name -> sharding or None, over all computations."""
        return {i.name: self.module.sharding(i) for i in self.module.instructions}

    @property
    def provenance(self) -> Trail:
        """Every change of the run, with its cause, level and direction."""
        return self._points.trail

    def explain(self, name: str) -> Explanation:
        """Why the instruction of that name has its sharding; `str` of it prints the chain to the user's annotation.

        Raises ModuleError, with near misses, for a name that is not in the module.
        """
        return explain(self._points, self._points.trail, self._points.nodes.graph.module.by_name(name).id)


def propagate(
    module: Module,
    *,
    is_spmd: bool = True,
    propagate_metadata: bool = False,
    to_outputs: bool | Sequence[bool] = False,
    to_parameters: bool | Sequence[bool] = False,
    cse_prevention_only: bool = False,
) -> Propagation:
    """Find a sharding for every value, exactly as XLA's GSPMD does.

    `to_outputs` and `to_parameters` say whose shardings at the edge of the program may be chosen: one bool for all, or
    one per leaf of the result / per parameter.  Raises PropagationError where the annotations contradict each other.
    """
    graph = Graph(module)
    outputs, parameters = _vector(to_outputs), _vector(to_parameters)
    original = list(graph.sharding) if cse_prevention_only else None
    trail = Trail()
    changed = False if cse_prevention_only else annotations.clear_cse_marks(graph)
    changed |= annotations.assign_metadata(graph) if propagate_metadata else annotations.strip_metadata(graph)
    notes = annotations.read_annotations(graph, cse_prevention=cse_prevention_only, parameters_allowed=parameters, trail=trail)
    changed |= notes.changed
    boundary = boundaries.save(graph, outputs, parameters)
    annotations.check_while_bodies(graph)
    callers = data_flow.connect(graph, trail)
    fixed = annotations.provided(graph, to_outputs=boundary.any_output, to_parameters=boundary.any_parameter)
    changed |= graph.root_copy is not None
    annotations.unknown_becomes_replicated(graph)
    nodes = Nodes(
        graph,
        notes,
        callers,
        fixed,
        spmd=is_spmd,
        to_outputs=boundary.any_output,
        to_parameters=boundary.any_parameter,
    )
    points = FixPoint(nodes, trail)
    for level in range(_TOP_LEVEL + 1):
        changed |= points.run_level(level)
    points.store()
    points.load(_align_groups(graph, notes, trail))
    changed |= points.run_level(_TOP_LEVEL)
    points.store()
    _remove_barriers(graph, notes)
    if original is not None:
        _keep_cse_marks(graph, original)
    before = list(graph.sharding)
    boundaries.restore(graph, boundary)
    for i, (old, new) in enumerate(zip(before, graph.sharding, strict=True)):
        if old is not new:
            trail.note(i, _TOP_LEVEL, "boundary", [], old, new)
    result = module.clone()
    graph.apply(result)
    return Propagation(result, changed, points)


def _vector(value: bool | Sequence[bool]) -> tuple[bool, ...]:
    return (value,) if isinstance(value, bool) else tuple(map(bool, value))


def _align_groups(graph: Graph, notes: annotations.Annotations, trail: Trail) -> list[int]:
    """Members of a shard_as group end up with one sharding; returns the instructions that were set."""
    touched: list[int] = []
    for members in notes.shard_as.values():
        common = _common(graph, members)
        for i in members:
            if graph.target(i) == SHARD_BARRIER_TO:
                continue
            if graph.sharding[i] != common:
                trail.note(i, _TOP_LEVEL, "group", [m for m in members if m != i], graph.sharding[i], common)
            graph.sharding[i] = common
            touched.append(i)
    touched += [graph.operands[i][0] for i in _relay_barriers(graph, notes)]
    return touched


def _common(graph: Graph, members: list[int]) -> HloSharding:
    default = HloSharding.replicate()
    shardings: list[HloSharding] = []
    for i in members:
        sharding = graph.sharding[i]
        if sharding is None:
            continue
        shardings.append(sharding)
        if graph.target(i) != SHARD_BARRIER_FROM and default.is_replicated():
            default = sharding
    return find_common_sharding(shardings, default) if shardings else default


def _relay_barriers(graph: Graph, notes: annotations.Annotations) -> list[int]:
    """A ShardBarrierFrom in a shard_as group passes its sharding on to its operand."""
    barriers = [
        i
        for ids in graph.order
        for i in ids
        if graph.target(i) == SHARD_BARRIER_FROM and notes.group_of.get(i) in notes.shard_as
    ]
    for i in barriers:
        operand = graph.operands[i][0]
        sharding, held = graph.sharding[i], graph.sharding[operand]
        if sharding is not None and held is not None:
            sharding = merge_if_compatible(held, sharding, sharding.num_tiles) or sharding
        graph.sharding[operand] = sharding
    return barriers


def _remove_barriers(graph: Graph, notes: annotations.Annotations) -> None:
    _relay_barriers(graph, notes)
    for ids in [list(ids) for ids in graph.order]:
        for i in ids:
            if graph.target(i) in (SHARD_BARRIER_FROM, SHARD_BARRIER_TO):
                graph.bypass(i)


def _keep_cse_marks(graph: Graph, original: list[HloSharding | None]) -> None:
    """Only scalar broadcasts keep what was found, marked; all else goes back to what it had."""
    for ids in graph.order:
        for i in ids:
            sharding = graph.sharding[i]
            if sharding is None:
                continue
            before = original[i] if i < len(original) else None
            operands = graph.operands[i]
            scalar = graph.opcode[i] == "broadcast" and graph.instructions[operands[0]].shape.rank == 0
            if scalar and before is None:
                graph.sharding[i] = annotations.mark_for_cse(sharding)
            elif not scalar:
                graph.sharding[i] = before
