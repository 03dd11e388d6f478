"""Answers `explain`: the chain of causes of one value, what kept splits out, and the offers that lost.

Floor: propagation.  Reads a finished run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from hlosharding.propagation.data_flow import ValueLeaf, leaf_sharding
from hlosharding.propagation.explain.blockers import NOTHING, at, between, blockers
from hlosharding.propagation.explain.causes import Cause, chain
from hlosharding.propagation.explain.explanation import ChainLink, Explanation, LostOffer, is_split
from hlosharding.propagation.explain.lost_offers import Clash, all_clashes, clashes
from hlosharding.propagation.provenance import Trail
from hlosharding.propagation.state import PropagationState
from hlosharding.sharding import HloSharding


def explain(state: PropagationState, trail: Trail, value: ValueLeaf) -> Explanation:
    """Why a value has what it has."""
    causes = chain(state.nodes.graph, trail, value)
    links = [_link(state, cause) for cause in causes]
    if causes[0].value != value:  # a tuple as a whole: the chain is that of its last change
        links[0] = replace(links[0], leaf=None, sharding=at(state, value), is_given=False)
    clashing = _told(state, trail, clashes(state, value[0])) if value[1] is None else ()
    if is_split(at(state, value)):
        return Explanation(tuple(links), (), clashing)
    lost, stopped = _loss(state, causes, links), tuple(blockers(state, value))
    # Where the chain itself shows the split that was lost, the neighbourhood has no more to say.
    first = lost is not None and lost[0] is links[0]
    stopped = () if lost is not None and (stopped == (NOTHING,)) else stopped
    return Explanation(tuple(links), stopped, clashing, None if first and stopped else lost)


def _loss(
    state: PropagationState, causes: list[Cause], links: list[ChainLink]
) -> tuple[ChainLink, ChainLink, str] | None:
    """The first value on the chain that is not split though its cause is."""
    for n, (link, cause) in enumerate(pairwise(links)):
        if is_split(cause.sharding) and not is_split(link.sharding):
            return link, cause, between(state, causes[n].value, causes[n + 1].value)
    return None


def conflicts(state: PropagationState, trail: Trail) -> tuple[LostOffer, ...]:
    """Every offer of the program that lost."""
    return _told(state, trail, all_clashes(state))


def _told(state: PropagationState, trail: Trail, found: Iterable[Clash]) -> tuple[LostOffer, ...]:
    """With both chains to their ends."""
    graph = state.nodes.graph

    def ends(i: int) -> tuple[ChainLink, ChainLink]:
        causes = chain(graph, trail, (i, None))
        return _now(state, (i, None)), _link(state, causes[-1])

    told: list[LostOffer] = []
    for clash in found:
        (winner, held_since), (loser, offered_since) = ends(clash.winner), ends(clash.loser)
        told.append(LostOffer(loser, clash.role, clash.offered, winner, clash.reason, offered_since, held_since))
    return tuple(told)


def _now(state: PropagationState, value: ValueLeaf) -> ChainLink:
    """A value with what it has in the end."""
    return _of(state, value, at(state, value))


def _link(state: PropagationState, cause: Cause) -> ChainLink:
    graph = state.nodes.graph
    (i, leaf), step = cause.value, cause.step
    if step is not None:
        also = tuple(graph.instructions[s].name for s in cause.also)
        return _of(
            state, cause.value, _known(state, cause.value, leaf_sharding(step.new, leaf)), cause=cause, also=also
        )
    given = None if cause.by_default or i >= len(graph.given) else leaf_sharding(graph.given[i], leaf)
    return _of(state, cause.value, _known(state, cause.value, given), is_given=given is not None)


def _known(state: PropagationState, value: ValueLeaf, sharding: HloSharding | None) -> HloSharding | None:
    """Unknown is a place holder, and propagation starts from replicated: then what the value has now."""
    return at(state, value) if sharding is None or sharding.is_unknown() else sharding


def _of(
    state: PropagationState,
    value: ValueLeaf,
    sharding: HloSharding | None,
    *,
    cause: Cause | None = None,
    also: tuple[str, ...] = (),
    is_given: bool = False,
) -> ChainLink:
    graph, (i, leaf) = state.nodes.graph, value
    inst, step = graph.instructions[i], cause.step if cause is not None else None
    return ChainLink(
        inst.name,
        graph.opcode[i],
        _location(state, i),
        sharding,
        step.direction if step else None,
        step.level if step else -1,
        also,
        leaf,
        is_given,
        _caller(state, i) if is_given else "",
        graph.module.mesh,
    )


def _location(state: PropagationState, i: int) -> str:
    """The line; of a parameter its path, of what the program returns those words."""
    graph = state.nodes.graph
    inst = graph.instructions[i]
    if inst.location or graph.computation[i] != graph.entry:
        return inst.location
    if graph.is_parameter(i):
        return inst.op_name
    return "the result of the program" if i == graph.entry_root and graph.is_tuple(i) else ""


def _caller(state: PropagationState, i: int) -> str:
    """The line of another file that called the helper in which the instruction was written."""
    frames = state.nodes.graph.instructions[i].frames.of_user
    return next((str(f) for f in frames[1:] if f.file != frames[0].file), "")
