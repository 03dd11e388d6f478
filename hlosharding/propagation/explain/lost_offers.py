"""Conflicts: a neighbour would have a value laid out otherwise than it is, its offer lost, and data moves.

Floor: propagation.  Reads a finished run.  An offer that is merely finer than what a user takes costs nothing (each
device cuts its own piece) and is no conflict; one from an operand is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hlosharding.propagation.explain.blockers import why_fixed
from hlosharding.propagation.explain.explanation import is_split
from hlosharding.propagation.improving import improve
from hlosharding.propagation.inference import infer_forward
from hlosharding.propagation.policy import LAST_LEVEL, NEVER
from hlosharding.propagation.special_users import offer
from hlosharding.propagation.state import PropagationState
from hlosharding.sharding import HloSharding, is_subtiling_or_equal


@dataclass(frozen=True, slots=True)
class Clash:
    """An offer that lost, by instruction ids."""

    winner: int
    loser: int
    role: str
    offered: HloSharding
    reason: str

    @property
    def edge(self) -> tuple[int, int]:
        """The producer and the consumer between which data moves."""
        return (self.winner, self.loser) if self.role == "user" else (self.loser, self.winner)


def clashes(state: PropagationState, i: int) -> Iterator[Clash]:
    """The offers of an array's operands and users that lost."""
    p = state.nodes.place[i]
    if p < 0 or not state.nodes.ops[p].shape.is_array or not state.nodes.ops[p].shape.rank:
        return
    yield from _from_operands(state, p)
    yield from _from_users(state, p)


def all_clashes(state: PropagationState) -> list[Clash]:
    """Every conflict of the program in program order, one for each pair of values between which data moves."""
    found: dict[tuple[int, int], Clash] = {}
    for i in state.nodes.ids:
        for clash in clashes(state, i):
            found.setdefault(clash.edge, clash)
    return list(found.values())


def _from_operands(state: PropagationState, p: int) -> Iterator[Clash]:
    nodes = state.nodes
    op, own = nodes.ops[p], state.at(p)
    for n, q in enumerate(nodes.inputs[p]):
        theirs = state.at(q)
        if theirs is None or not theirs.is_tiled() or not is_split(theirs) or theirs is own:
            continue
        alone: list[HloSharding | None] = [None] * len(nodes.inputs[p])
        alone[n] = theirs
        outcome = infer_forward(op, None, alone, LAST_LEVEL)
        if outcome is None or not is_split(outcome[0]) or _lies_within(state, p, own, outcome[0]):
            continue
        reason = _why_lost(state, p, outcome[0], receives=op.receives)
        yield Clash(nodes.ids[p], nodes.ids[q], f"operand {n}", outcome[0], reason)


def _from_users(state: PropagationState, p: int) -> Iterator[Clash]:
    nodes, own = state.nodes, state.at(p)
    if own is None or not is_split(own):
        return  # whoever takes less than the whole cuts it
    for use in nodes.uses[p]:
        theirs = state.at(use[0])
        if theirs is None or not is_split(theirs) or theirs is own:
            continue
        offered = offer(state, p, use, NEVER)
        if offered is None or not is_split(offered) or _lies_within(state, p, own, offered):
            continue
        if not _lies_within(state, p, offered, own):
            receives = nodes.receives_backward(nodes.ids[p], nodes.ops[p])
            yield Clash(
                nodes.ids[p], nodes.ids[use[0]], "user", offered, _why_lost(state, p, offered, receives=receives)
            )


def _lies_within(state: PropagationState, p: int, fine: HloSharding | None, coarse: HloSharding) -> bool:
    return fine is not None and is_subtiling_or_equal(state.nodes.ops[p].shape.dims, fine, coarse)


def _why_lost(state: PropagationState, p: int, offered: HloSharding, *, receives: bool) -> str:
    fixed = why_fixed(state, p, receives=receives)
    if fixed is not None:
        return fixed
    own = state.at(p)
    if own is None:
        return "it was refused when it was offered"
    if improve(own, offered, state.nodes.ops[p].shape, combine=state.nodes.spmd) is not None:
        return f"{state.nodes.ops[p].opcode} heard another neighbour first, and at its level did not ask again"
    theirs, ours = offered.num_tiles, own.num_tiles
    if theirs == ours:
        return f"both have {ours} tiles and they do not merge, so what came first stays"
    if theirs < ours:
        return f"it has fewer tiles ({theirs} against {ours}) and does not merge with what is there"
    return f"it has more tiles ({theirs} against {ours}), but they do not lie within those that are there"
