"""The fix point: sweeps over all computations, forward then backward, until nothing changes, level after level.

Floor: propagation.  Knows order, memory and change; not what any op does.

Shardings are small integers here, and every inference is a dictionary look-up on them after its first time; the
dictionaries belong to the ops, which equal layers share.  Two agendas say what is to be tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hlosharding.errors import PropagationError, ShardingError
from hlosharding.propagation import data_flow, groups, policy
from hlosharding.propagation.graph import Graph
from hlosharding.propagation.inference import infer_backward, infer_forward
from hlosharding.propagation.nodes import Nodes, Places
from hlosharding.propagation.op import Edge, Op
from hlosharding.propagation.provenance import Change, Direction, Trail
from hlosharding.propagation.worklist import DONE, LATER, TODO, Worklist
from hlosharding.sharding import HloSharding

Hit = tuple[int, tuple[int, ...] | None, bool]
"""A forward step: the new number, the positions that it came from (None: all), and whether that is all there is."""
_MISSING: Any = object()
_TIE: Any = object()
_PAIR = 1 << 24
"""Two sharding numbers in one key: own * _PAIR + user's."""


def clash(graph: Graph, i: int, error: ShardingError) -> PropagationError:
    """The error for shardings that cannot be brought together; XLA aborts on them."""
    instruction = graph.instructions[i]
    return PropagationError(
        f"the shardings around %{instruction.name} ({graph.opcode[i]}) do not go together: {error.what}",
        where=instruction.location or None,
        remedy="make the annotations on its neighbours agree",
    )


class FixPoint:
    """The state of one run.  `run_level` may be called for levels 0, 1, 2, 3 and once more for 3."""

    def __init__(self, nodes: Nodes, trail: Trail) -> None:
        self.nodes, self.trail = nodes, trail
        self.level = 0
        self.busy = 0
        """The place that inference works on, for error messages."""
        self.shardings: list[HloSharding | None] = [None]
        """Number -> sharding; 0 is none."""
        self._numbers: dict[int, int] = {}
        self.current = [self.number(nodes.graph.sharding[i]) for i in nodes.ids]
        self.forward, self.backward = Worklist(nodes.forward_level), Worklist(nodes.backward_level)
        self.done_group: set[int] = set()
        self._leaves: dict[int, list[int]] = {}
        """Number of a tuple's sharding -> the numbers of its leaves."""
        self._log: list[Any] = []
        """The changes of a level, end to end: place, direction, places of the sources, old number, new number."""
        self._at_rest = False
        """Was everything tried at the last level, and nothing changed since?"""

    @property
    def combine(self) -> bool:
        """May partial tilings merge at this level?"""
        return self.nodes.spmd and self.level > 0

    # ---- shardings as numbers

    def number(self, sharding: HloSharding | None) -> int:
        """The number of a sharding in this run (by spelling)."""
        if sharding is None:
            return 0
        number = self._numbers.get(sharding.uid)
        if number is None:
            number = self._numbers[sharding.uid] = len(self.shardings)
            self.shardings.append(sharding)
        return number

    def at(self, p: int) -> HloSharding | None:
        """The present sharding of the instruction at a place."""
        return self.shardings[self.current[p]]

    def put(self, p: int, sharding: HloSharding | None) -> None:
        """Overwrite it; nobody is told."""
        self.current[p] = self.number(sharding)

    def store(self) -> None:
        """Write all shardings back to the graph."""
        sharding, shardings = self.nodes.graph.sharding, self.shardings
        for i, number in zip(self.nodes.ids, self.current, strict=True):
            sharding[i] = shardings[number]

    def load(self, ids: list[int]) -> None:
        """Read shardings that were changed in the graph; whatever sees them is tried again."""
        for i in ids:
            p = self.nodes.place[i]
            self.put(p, self.nodes.graph.sharding[i])
            self.clear(p)

    # ---- levels and sweeps

    def run_level(self, level: int) -> bool:
        """Sweep until a whole round changes nothing; was anything improved?"""
        self.level = level
        if self._at_rest and level == policy.LAST_LEVEL:
            return False
        self._start_level(level)
        self._at_rest = level == policy.LAST_LEVEL
        changed, again = False, True
        try:
            while again:
                again = False
                for start, end in self.nodes.spans:
                    if self._has_work(start, end):
                        improved, refined = self._sweep(start, end)
                        changed |= improved
                        again |= improved or refined
                    self.forward.end_round(start, end)
                    self.backward.end_round(start, end)
        except ShardingError as error:
            raise clash(self.nodes.graph, self.nodes.ids[self.busy], error) from error
        self.trail.note_all(self._told(level, self._log))
        self._log = []
        return changed

    def _start_level(self, level: int) -> None:
        nodes, forward, backward = self.nodes, self.forward.state, self.backward.state
        if level <= 1:
            # Level 0 knows no merging: nothing that was tried there counts.
            self._mark_neighbours()
        for p in (*nodes.look_ahead, *nodes.open_dims):
            forward[p] = LATER
        for p in nodes.slow:
            backward[p] = LATER
        if level == policy.BROADCAST_BACKWARD_LEVEL:
            for p in nodes.beside_broadcasts:
                backward[p] = LATER
        if level == policy.BROADCAST_FORWARD_LEVEL:
            for p in nodes.broadcasts:
                if self.current[nodes.operands[p][0]]:
                    forward[p] = LATER
                nodes.ops[p].memo[1].clear()
        self.forward.start_level(level)
        self.backward.start_level(level)
        self.done_group.clear()

    def _mark_neighbours(self) -> None:
        """Only who sees a sharding can take one; without SPMD, gather and scatter replicate whatever they see."""
        nodes, forward, backward = self.nodes, self.forward.state, self.backward.state
        if not nodes.spmd:
            forward[:] = backward[:] = bytes([LATER]) * len(forward)
            return
        for p, number in enumerate(self.current):
            if not number:
                continue
            for operand in nodes.operands[p]:
                backward[operand] = LATER
            for user, _ in nodes.uses[p]:
                forward[user] = LATER
            for parameter in nodes.callee_parameters.get(p, ()):
                forward[parameter] = LATER

    def _has_work(self, start: int, end: int) -> bool:
        tilings = self.forward.has_work(start, end) or self.backward.has_work(start, end)
        return tilings or bool(self.nodes.group_of)

    def _sweep(self, start: int, end: int) -> tuple[bool, bool]:
        """One computation once: (improved, refined)."""
        improved = refined = False
        if self.nodes.group_of:
            improved, refined = groups.group_sweep(self, start, end)
        self.forward.first, self.forward.last = 0, start - 1
        self.backward.first, self.backward.last = end, end - 1
        for sweep in (self._forward_sweep, self._backward_sweep):
            more, finer = sweep(start, end)
            improved, refined = improved | more, refined | finer
        return improved, refined

    def _forward_sweep(self, start: int, end: int) -> tuple[bool, bool]:
        nodes, state, current = self.nodes, self.forward.state, self.current
        inputs, ops, dynamic, which = nodes.inputs, nodes.ops, nodes.dynamic_forward, 1 if self.level else 0
        improved = refined = False
        p = start - 1
        while (p := state.find(TODO, p + 1, end)) >= 0:
            state[p] = DONE
            if p in dynamic:
                self.forward.last = p
                refined |= groups.refine_forward(self, p)
                continue
            reads = inputs[p]
            if len(reads) == 2:
                key = current[p], current[reads[0]], current[reads[1]]
            elif len(reads) == 1:
                key = current[p], current[reads[0]]
            else:
                key = (current[p], *[current[q] for q in reads])
            hit = ops[p].memo[which].get(key, _MISSING)
            if hit is _MISSING or hit is _TIE:
                hit = self._infer_forward(p, key, known_tie=hit is _TIE)
            if hit is not None:
                improved, self.forward.last = True, p
                number, positions, settled = hit
                self.change(p, number, "operands", reads if positions is None else tuple([reads[n] for n in positions]))
                if settled and p not in nodes.connected:
                    state[p] = DONE
        self.forward.last = end - 1
        return improved, refined

    def _infer_forward(self, p: int, key: Any, *, known_tie: bool) -> Hit | None:
        """Infer and remember.  Where operands tie, what the users ahead would like is part of the key."""
        self.busy = p
        op = self.nodes.ops[p]
        memo = op.memo[1 if self.level else 0]
        ahead: list[HloSharding | None] = []

        def look_ahead() -> HloSharding | None:
            ahead.append(groups.look_ahead(self, p))
            return ahead[0]

        if known_tie:
            tie = (key, self.number(look_ahead()))
            if tie in memo:
                return memo[tie]
        outcome = infer_forward(op, self.at(p), self._known(key), self.level, look_ahead)
        hit: Hit | None = None
        if outcome is not None:
            number, positions = self.number(outcome[0]), outcome[1]
            whole = positions == tuple(range(len(key) - 1))
            hit = number, None if whole else positions, not ahead and self._settles(op, (number, *key[1:]))
        if ahead:
            memo[key] = _TIE
            memo[key, self.number(ahead[0])] = hit
        else:
            memo[key] = hit
        return hit

    def _known(self, key: tuple[int, ...]) -> list[HloSharding | None]:
        """The operands' shardings in a forward key."""
        return [self.shardings[n] for n in key[1:]]

    def _settles(self, op: Op, key: tuple[int, ...]) -> bool:
        """Does the op, having taken from its operands, take nothing more?"""
        memo = op.memo[1 if self.level else 0]
        if key in memo:
            return memo[key] is None
        asked: list[None] = []
        if infer_forward(op, self.shardings[key[0]], self._known(key), self.level, lambda: asked.append(None)) or asked:
            return False
        memo[key] = None
        return True

    def _backward_sweep(self, start: int, end: int) -> tuple[bool, bool]:
        nodes, state, level, current = self.nodes, self.backward.state, self.level, self.current
        uses, slow, dynamic = nodes.uses, nodes.slow, nodes.dynamic_backward
        improved = refined = False
        p = end
        while (p := state.rfind(TODO, start, p)) >= 0:
            state[p] = DONE
            if p in dynamic:
                self.backward.first = p
                refined |= groups.refine_backward(self, p)
                continue
            if p in slow:
                self.backward.first = p
                improved |= groups.slow_backward(self, p)
                continue
            own, sources = current[p], ()
            for user, edge in uses[p]:
                theirs, memo = current[user], edge.memos[level]
                if not theirs or memo is None:
                    continue
                key = current[p] * _PAIR + theirs if edge.plain else self._key(p, user, edge)
                hit = memo.get(key)
                if hit is None:
                    hit = memo[key] = self._infer_backward(p, user, edge)
                if hit:
                    current[p] = hit
                    sources = (*sources, user)
            if sources:
                improved, self.backward.first = True, p
                self.change(p, current[p], "users", sources, own)
        return improved, refined

    def _key(self, p: int, user: int, edge: Edge) -> Any:
        """What decides, where the value's own and the user's sharding do not."""
        theirs = self.current[user]
        if edge.leaf is None:
            return self.current[p], theirs, *map(self.current.__getitem__, self.beside(user, edge))
        leaves = self._leaves.get(theirs)
        if leaves is None:
            sharding = self.shardings[theirs]
            leaves = self._leaves[theirs] = [] if sharding is None else list(map(self.number, sharding.tuple_elements))
        return self.current[p] * _PAIR + (leaves[edge.leaf] if leaves else theirs)

    def beside(self, user: int, edge: Edge) -> list[int]:
        """The places of the other operands that matter."""
        operands = self.nodes.operands[user]
        return [operands[n] for n in edge.others]

    def _infer_backward(self, p: int, user: int, edge: Edge) -> int:
        """The number of the improved sharding; 0 for no improvement."""
        self.busy = p
        sharding = self.at(user)
        assert sharding is not None
        found = infer_backward(edge, self.at(p), sharding, list(map(self.at, self.beside(user, edge))), self.level)
        return 0 if found is None else self.number(found)

    # ---- changes

    def change(self, p: int, number: int, direction: Direction, sources: Places, before: int | None = None) -> None:
        """Give `p` a sharding, let related instructions follow, and have all that look at them tried again."""
        old = self.current[p] if before is None else before
        self.current[p] = number
        self._log += p, direction, sources, old, number
        self.clear(p)
        if p in self.nodes.connected:
            followers: dict[int, None] = {}
            self._follow(p, followers)
            for other in followers:
                self.clear(other)

    def note(self, p: int, direction: Direction, sources: Places, old: int) -> None:
        """Remember why `p` has what it has now; `old` is the number of what it had."""
        self._log += p, direction, sources, old, self.current[p]

    def _told(self, level: int, log: list[Any]) -> Iterator[Change]:
        """A log by instruction ids and shardings."""
        ids, shardings, fields = self.nodes.ids, self.shardings, iter(log)
        for p, direction, sources, old, new in zip(fields, fields, fields, fields, fields, strict=True):
            yield ids[p], level, direction, [ids[s] for s in sources], shardings[old], shardings[new]

    def _follow(self, p: int, changed: dict[int, None]) -> None:
        """Related instructions across computations are overwritten, unless they are provided."""
        nodes = self.nodes
        for head in nodes.connected.get(p, ()):
            members = data_flow.related(nodes.graph, head, nodes.callers)
            if nodes.ids[p] not in members:
                continue
            for member in members:
                q = nodes.place[member]
                if member in nodes.provided or (self.current[q] and self.at(q) == self.at(p)):
                    continue
                old = self.current[q]
                self.current[q] = self.current[p]
                self.note(q, "computation", (p,), old)
                changed[q] = None
                self._follow(q, changed)

    def clear(self, p: int, for_users: int | None = None) -> None:
        """Let everything that looks at `p` be tried again; `for_users` stands in for `p` towards the users."""
        nodes, forward, backward = self.nodes, self.forward.state, self.backward.state
        open_forward, open_backward = self.forward.opened, self.backward.opened
        q = p if for_users is None else for_users
        self._at_rest = False
        self.forward.touch(p)
        self.backward.touch(p)
        for operand in nodes.operands[p]:
            backward[operand] = open_backward[operand]
        siblings = nodes.siblings
        for user, _ in nodes.uses[q]:
            forward[user] = open_forward[user]
            if siblings[user]:
                # What an operand would like to have has changed with another operand.
                for sibling in nodes.operands[user]:
                    self.backward.touch(sibling)
        if nodes.callee_parameters:
            for parameter in nodes.callee_parameters.get(q, ()):
                forward[parameter] = open_forward[parameter]
        if p in nodes.group_of:
            self.done_group.difference_update(nodes.members(p))
