"""The pass as users call it: shardings for every value of a module, from a few annotations.

Floor: propagation.  Follows XLA's ShardingPropagation::Run step by step on a clone; the caller's module stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property

from hlosharding.collector import collector_waits
from hlosharding.deep_stack import deep_stack
from hlosharding.errors import ModuleError, ShardingError
from hlosharding.ir import Instruction, Module, blaming
from hlosharding.notebook import InNotebooks
from hlosharding.propagation import annotations, boundaries, data_flow, threads
from hlosharding.propagation.annotations import Annotations
from hlosharding.propagation.data_flow import ValueLeaf
from hlosharding.propagation.explain import Explanation, LostOffer, conflicts, explain
from hlosharding.propagation.fixpoint import run_level
from hlosharding.propagation.graph import PropagationGraph
from hlosharding.propagation.nodes import Nodes
from hlosharding.propagation.policy import BROADCASTS, LAST_LEVEL, SHARD_BARRIER_FROM, SHARD_BARRIER_TO
from hlosharding.propagation.provenance import Trail
from hlosharding.propagation.state import PropagationState, clash
from hlosharding.sharding import HloSharding, find_common_sharding, merge_if_compatible


@dataclass(frozen=True)
class Propagation(InNotebooks):
    """The outcome: a module with shardings, and the reason for each of them.

    `shardings` is by name, `explain(name)` is the reason, `conflicts` are the offers that lost; `hs.propagate` has an
    example.
    """

    changed: bool
    """What XLA's pass reports: was anything rewritten or improved?"""
    _state: PropagationState = field(repr=False)

    @cached_property
    def module(self) -> Module:
        """A clone of the input in which `Sharding` calls are copies and every value has the sharding found."""
        graph = self._state.nodes.graph
        clone = graph.module.clone()
        graph.apply(clone)
        return clone

    def in_place(self) -> Propagation:
        """The same, but `module` is the one that was given, if no instruction came or went: for who gave away a copy
        of his own."""
        graph = self._state.nodes.graph
        if graph.root_copy is None and not graph.bypassed:
            graph.apply(graph.module)
            self.__dict__["module"] = graph.module
        return self

    @cached_property
    def shardings(self) -> dict[str, HloSharding | None]:
        """Instruction name -> sharding or None, over all computations."""
        graph = self._state.nodes.graph
        if graph.root_copy is not None or graph.bypassed:
            return {i.name: self.module.sharding(i) for i in self.module.instructions}
        return {i.name: s for i, s in zip(graph.instructions, graph.sharding, strict=True)}

    @property
    def source(self) -> Module:
        """The module that was given, with no more shardings than it came with."""
        return self._state.nodes.graph.module

    @property
    def annotated(self) -> frozenset[str]:
        """Names of the instructions that came with a sharding."""
        graph = self._state.nodes.graph
        return frozenset(i.name for i, given in zip(graph.instructions, graph.given, strict=True) if given is not None)

    @property
    def provenance(self) -> Trail:
        """Every change of the run, with its cause, level and direction."""
        return self._state.trail

    @cached_property
    def conflicts(self) -> tuple[LostOffer, ...]:
        """Every offer that lost: pairs of neighbours that would have a value laid out differently, so that data moves.

        In program order.  Of each `str` says what was offered, why it lost, and to whose annotations the two go back.
        """
        return conflicts(self._state, self._state.trail)

    def explain(self, name: str) -> Explanation:
        """Why the value of that name has its sharding: an instruction, a parameter's path (`params['w1']`), or one
        element of a tuple (`while.5{2}`).

        `str` of the answer prints the chain to the user's annotation, what kept splits out, and the offers that lost.

        Raises ModuleError, with near misses, for a name that is not in the module.
        """
        return explain(self._state, self._state.trail, self._value(name))

    def _value(self, name: str) -> ValueLeaf:
        if name in self.source.paths:
            return self.source.paths[name].id, None
        plain, brace, leaf = name.removesuffix("}").partition("{")
        if not (brace and name.endswith("}")):
            return self._instruction(name).id, None
        inst = self._instruction(plain)
        count = len(inst.shape.leaves) if inst.shape.is_tuple else 0
        if not (leaf.isdecimal() and int(leaf) < count):
            remedy = f"it has elements 0 to {count - 1}" if count else "it is no tuple"
            raise ModuleError(f"%{inst.name} {inst.shape} has no element {leaf!r}", remedy=remedy)
        return inst.id, int(leaf)

    def _instruction(self, name: str) -> Instruction:
        """Of the source.  The copy that XLA's pass puts behind a loop that is the root stands for that loop."""
        is_copy = self._state.nodes.graph.root_copy is not None and name == self.module.entry.root.name
        return self.source.entry.root if is_copy else _named(self.source, name)


def _named(module: Module, name: str) -> Instruction:
    try:
        return module.paths.get(name) or module.by_name(name)
    except ModuleError as error:
        near = get_close_matches(name, [*module.paths, *(i.name for i in module.instructions)], 3)
        raise ModuleError(error.what, remedy=f"did you mean {', '.join(near)}?" if near else error.remedy) from None


@deep_stack
@collector_waits
def propagate(
    module: Module,
    *,
    is_spmd: bool = True,
    propagate_metadata: bool = False,
    to_outputs: bool | Sequence[bool] | None = None,
    to_parameters: bool | Sequence[bool] | None = None,
    cse_prevention_only: bool = False,
    execution_threads: Collection[str] = (),
) -> Propagation:
    """Find a sharding for every value, exactly as XLA's GSPMD does.

    `to_outputs` and `to_parameters` say whose shardings at the edge of the program may be chosen: one bool for all, or
    one per leaf of the result / per parameter; by default what the module says (`open_outputs`, `open_parameters`):
    what JAX leaves open in a traced or lowered function, nothing in bare HLO.  `is_spmd`, `propagate_metadata` and
    `cse_prevention_only` are the other options of XLA's pass; so is `execution_threads`: the names of the threads whose
    computations are visited ("main" is the program's own), all if there are none.  Raises PropagationError where the
    annotations contradict each other.

    >>> from hlosharding.ir import Builder, Shape
    >>> builder = Builder("doubled")
    >>> entry = builder.computation("main")
    >>> x = entry.parameter(0, Shape.parse("f32[8,4]"), name="x")
    >>> y = entry.add("add", x.shape, (x, x), name="y")
    >>> z = entry.root(entry.add("negate", y.shape, (y,), name="z"))
    >>> module = builder.finish(entry)
    >>> module.shardings[x.id] = HloSharding.parse("{devices=[2,1]<=[2]}")
    >>> found = propagate(module)
    >>> str(found.shardings["y"]), found.shardings["z"]
    ('{devices=[2,1]<=[2]}', None)
    >>> print(found.explain("y"))
    %y (add) {devices=[2,1]<=[2]}
      <- from its operand, level 0: %x (parameter) {devices=[2,1]<=[2]}
      given by the user on %x
    """
    outputs = module.open_outputs if to_outputs is None else to_outputs
    parameters = module.open_parameters if to_parameters is None else to_parameters
    options = _Options(is_spmd, propagate_metadata, _vector(outputs), _vector(parameters), cse_prevention_only)
    # A bare name would pass for a collection, of its letters.
    names = (execution_threads,) if isinstance(execution_threads, str) else execution_threads
    with blaming(module):
        graph = PropagationGraph(module)
        hidden = threads.hide(graph, names)
        found = _run(graph, options)
        threads.bring_back(graph, hidden)
    return found


@dataclass(frozen=True, slots=True)
class _Options:
    is_spmd: bool
    propagate_metadata: bool
    to_outputs: tuple[bool, ...]
    to_parameters: tuple[bool, ...]
    cse_prevention_only: bool


def _run(graph: PropagationGraph, options: _Options) -> Propagation:
    """XLA's ShardingPropagation::Run."""
    trail = Trail()
    original = list(graph.sharding) if options.cse_prevention_only else None
    changed = annotations.clear_cse_marks(graph) if original is None else False
    changed |= annotations.assign_metadata(graph) if options.propagate_metadata else annotations.strip_metadata(graph)
    notes = annotations.read_annotations(graph, cse_prevention=options.cse_prevention_only, trail=trail)
    boundary = boundaries.save(graph, options.to_outputs, options.to_parameters)
    state = _prepare(graph, notes, boundary, trail, is_spmd=options.is_spmd)
    changed |= notes.changed or graph.root_copy is not None
    for level in range(LAST_LEVEL + 1):
        changed |= run_level(state, level)
    state.store()
    state.load(_align_groups(graph, notes, trail))
    changed |= run_level(state, LAST_LEVEL)
    state.store()
    _remove_barriers(graph, notes)
    _finish(graph, boundary, original, trail)
    return Propagation(changed, state)


def _prepare(
    graph: PropagationGraph, notes: Annotations, boundary: boundaries.OpenBoundary, trail: Trail, *, is_spmd: bool
) -> PropagationState:
    annotations.check_while_bodies(graph)
    # Before it is found what is provided: an annotation on one of several connected instructions is one on all.
    callers = data_flow.connect(graph, trail)
    outputs, parameters = boundary.any_output, boundary.any_parameter
    fixed = annotations.find_provided(graph, to_outputs=outputs, to_parameters=parameters)
    # Not before: an unknown sharding is not provided and may still change, a replicated one could not.
    annotations.unknown_becomes_replicated(graph)
    nodes = Nodes(graph, notes, callers, fixed, spmd=is_spmd, to_outputs=outputs, to_parameters=parameters)
    return PropagationState(nodes, trail)


def _finish(
    graph: PropagationGraph, boundary: boundaries.OpenBoundary, original: list[HloSharding | None] | None, trail: Trail
) -> None:
    before = list(graph.sharding)
    if original is not None:
        _keep_cse_marks(graph, original)
    boundaries.restore(graph, boundary)
    for i, (old, new) in enumerate(zip(before, graph.sharding, strict=True)):
        if old is not new:
            trail.note(i, LAST_LEVEL, "boundary", [], old, new)


def _vector(value: bool | Sequence[bool]) -> tuple[bool, ...]:
    return (value,) if isinstance(value, bool) else tuple(map(bool, value))


def _align_groups(graph: PropagationGraph, notes: Annotations, trail: Trail) -> list[int]:
    """Members of a shard_as group end up with one sharding; returns the instructions that were set."""
    touched: list[int] = []
    for members in notes.shard_as.values():
        common = _common(graph, members)
        for i in members:
            if graph.target(i) == SHARD_BARRIER_TO:
                continue
            if graph.sharding[i] != common:
                trail.note(i, LAST_LEVEL, "group", [m for m in members if m != i], graph.sharding[i], common)
            graph.sharding[i] = common
            touched.append(i)
    touched += [graph.operands[i][0] for i in _relay_barriers(graph, notes)]
    return touched


def _common(graph: PropagationGraph, members: list[int]) -> HloSharding:
    default = HloSharding.replicate()
    shardings: list[HloSharding] = []
    for i in members:
        sharding = graph.sharding[i]
        if sharding is None:
            continue
        shardings.append(sharding)
        if graph.target(i) != SHARD_BARRIER_FROM and default.is_replicated():
            default = sharding
    try:
        return find_common_sharding(shardings, default) if shardings else default
    except ShardingError as error:
        raise clash(graph, members[0], error) from error


def _relay_barriers(graph: PropagationGraph, notes: Annotations) -> list[int]:
    """A ShardBarrierFrom in a shard_as group passes its sharding on to its operand."""
    if not notes.shard_as:
        return []
    barriers = [i for i in graph.in_order(SHARD_BARRIER_FROM) if notes.group_of.get(i) in notes.shard_as]
    for i in barriers:
        operand = graph.operands[i][0]
        sharding, held = graph.sharding[i], graph.sharding[operand]
        if sharding is not None and held is not None:
            sharding = merge_if_compatible(held, sharding, sharding.num_tiles) or sharding
        graph.sharding[operand] = sharding
    return barriers


def _remove_barriers(graph: PropagationGraph, notes: Annotations) -> None:
    _relay_barriers(graph, notes)
    for i in graph.in_order(SHARD_BARRIER_FROM, SHARD_BARRIER_TO):
        graph.bypass(i)


def _keep_cse_marks(graph: PropagationGraph, original: list[HloSharding | None]) -> None:
    """Only scalar broadcasts keep what was found, marked; all else goes back to what it had."""
    for ids in graph.order:
        for i in ids:
            sharding = graph.sharding[i]
            if sharding is None:
                continue
            # The copy behind the root is younger than the list.
            before = original[i] if i < len(original) else None
            operands = graph.operands[i]
            scalar = graph.opcode[i] in BROADCASTS and graph.instructions[operands[0]].shape.rank == 0
            if scalar and before is None:
                graph.sharding[i] = annotations.mark_for_cse(sharding)
            elif not scalar:
                graph.sharding[i] = before
