"""The fix point: sweeps over all computations, forward then backward, until nothing changes, level after level.

Floor: propagation.  Knows order, memory and change; not what any op does.

Shardings are small integers here, and every inference is a dictionary look-up on them after its first time; the
dictionaries belong to the ops, which equal layers share.  Two byte strings per direction do the bookkeeping: `done` is
XLA's set of what needs no second try within a level; `stale` says whose inputs changed since it was last tried, so that
levels 2 and 3 revisit only what could end differently.
"""

from __future__ import annotations

from typing import Any

from hlosharding.errors import PropagationError, ShardingError
from hlosharding.propagation import data_flow, policy, rare
from hlosharding.propagation.graph import Graph
from hlosharding.propagation.inference import infer_backward, infer_forward
from hlosharding.propagation.nodes import DYNAMIC, Nodes
from hlosharding.propagation.op import Edge, Op
from hlosharding.propagation.provenance import Change, Direction, Trail
from hlosharding.sharding import HloSharding

_INVERT = bytes([1]) + bytes(255)
_MISSING: Any = object()
_TIE: Any = object()
Sources = list[int] | tuple[int, ...]
"""A list of places, or a tuple of positions among the inputs of the place that changed."""
_NOBODY: list[int] = []
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
        size = len(nodes.ids)
        self.current = [self.number(nodes.graph.sharding[i]) for i in nodes.ids]
        self.stale_forward, self.stale_backward = bytearray(size), bytearray(size)
        self.done_forward, self.done_backward = bytearray(size), bytearray(size)
        self.done_group: set[int] = set()
        self._log: list[tuple[int, int, Direction, Sources, int, int]] = []
        """The changes of a level: place, level, direction, sources, old number, new number."""
        self._at_rest = False
        """Was everything tried at the last level, and nothing changed since?"""
        self.skipped_forward, self.skipped_backward = bytearray(size), bytearray(size)
        """What the first round of a level would try in vain; it is tried after all if an input changes before."""
        self.passed_forward, self.passed_backward, self._end = -1, size, size
        """How far the present sweeps have come, and where their computation ends."""

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
                    self.skipped_forward[start:end] = self.skipped_backward[start:end] = bytes(end - start)
        except ShardingError as error:
            raise clash(self.nodes.graph, self.nodes.ids[self.busy], error) from error
        self.trail.note_all(map(self._told, self._log))
        self._log = []
        return changed

    def _start_level(self, level: int) -> None:
        nodes = self.nodes
        if level <= 1:
            # Level 0 knows no merging: nothing that was tried there counts.
            self._mark_neighbours()
        for p in (*nodes.look_ahead, *nodes.open_dims):
            self.stale_forward[p] = 1
        for p in nodes.slow:
            self.stale_backward[p] = 1
        if level == policy.BROADCAST_BACKWARD_LEVEL:
            for p in nodes.beside_broadcasts:
                self.stale_backward[p] = 1
        if level == policy.BROADCAST_FORWARD_LEVEL:
            for p in nodes.broadcasts:
                if self.current[nodes.operands[p][0]]:
                    self.stale_forward[p] = 1
                nodes.ops[p].memo[1].clear()
        self.done_forward[:] = self._undone(self.stale_forward, nodes.forward_level)
        self.done_backward[:] = self._undone(self.stale_backward, nodes.backward_level)
        self.skipped_forward[:], self.skipped_backward[:] = self.done_forward, self.done_backward
        self.done_group.clear()

    def _mark_neighbours(self) -> None:
        """Only who sees a sharding can take one; without SPMD, gather and scatter replicate whatever they see."""
        nodes, stale_forward, stale_backward = self.nodes, self.stale_forward, self.stale_backward
        if not nodes.spmd:
            stale_forward[:] = stale_backward[:] = b"\1" * len(stale_forward)
            return
        for p, number in enumerate(self.current):
            if not number:
                continue
            for operand in nodes.operands[p]:
                stale_backward[operand] = 1
            for use in nodes.uses[p]:
                stale_forward[use[0]] = 1
            for parameter in nodes.callee_parameters.get(p, ()):
                stale_forward[parameter] = 1

    def _undone(self, stale: bytearray, levels: bytearray) -> bytes:
        """1 where nothing is to be tried: not stale, or not at this level."""
        closed = levels.translate(bytes(self.level < n != DYNAMIC for n in range(256)))
        fresh = stale.translate(_INVERT)
        size = len(stale)
        return (int.from_bytes(closed, "big") | int.from_bytes(fresh, "big")).to_bytes(size, "big")

    def _has_work(self, start: int, end: int) -> bool:
        undone = self.done_forward.find(0, start, end) >= 0 or self.done_backward.find(0, start, end) >= 0
        return undone or bool(self.nodes.group_of)

    def _sweep(self, start: int, end: int) -> tuple[bool, bool]:
        """One computation once: (improved, refined)."""
        improved = refined = False
        if self.nodes.group_of:
            improved, refined = rare.group_sweep(self, start, end)
        self.passed_forward, self.passed_backward, self._end = start - 1, end, end
        for sweep in (self._forward_sweep, self._backward_sweep):
            more, finer = sweep(start, end)
            improved, refined = improved | more, refined | finer
        return improved, refined

    def _forward_sweep(self, start: int, end: int) -> tuple[bool, bool]:
        nodes, done, level, current = self.nodes, self.done_forward, self.level, self.current
        levels, keys, ops, stale = nodes.forward_level, nodes.forward_key, nodes.ops, self.stale_forward
        which = 1 if level else 0
        improved = refined = False
        p = done.find(0, start, end)
        while p >= 0:
            done[p] = 1
            if levels[p] <= level:
                self.passed_forward = p
                stale[p] = 0
                key = keys[p](current)
                hit = ops[p].memo[which].get(key, _MISSING)
                if hit is _MISSING or hit is _TIE:
                    hit = self._infer_forward(p, key, known_tie=hit is _TIE)
                if hit is not None:
                    improved = True
                    number, positions, settled = hit
                    self.change(p, number, "operands", positions)
                    if settled and p not in nodes.connected:
                        stale[p] = 0
            elif levels[p] == DYNAMIC:
                self.passed_forward = p
                refined |= rare.refine_forward(self, p)
            p = done.find(0, p + 1, end)
        self.passed_forward = end - 1
        return improved, refined

    def _infer_forward(self, p: int, key: Any, *, known_tie: bool) -> tuple[int, tuple[int, ...], bool] | None:
        """Infer and remember.  Where operands tie, what the users ahead would like is part of the key."""
        self.busy = p
        op = self.nodes.ops[p]
        memo = op.memo[1 if self.level else 0]
        ahead: list[HloSharding | None] = []

        def look_ahead() -> HloSharding | None:
            ahead.append(rare.look_ahead(self, p))
            return ahead[0]

        if known_tie:
            tie = (key, self.number(look_ahead()))
            if tie in memo:
                return memo[tie]
        outcome = infer_forward(op, self.at(p), self._known(key), self.level, look_ahead)
        hit = None
        if outcome is not None:
            number = self.number(outcome[0])
            hit = number, outcome[1], not ahead and self._settles(op, (number, *key[1:]))
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
        nodes, done, level, current = self.nodes, self.done_backward, self.level, self.current
        levels, slow, stale, all_uses = nodes.backward_level, nodes.slow, self.stale_backward, nodes.uses
        improved = refined = False
        p = done.rfind(0, start, end)
        while p >= 0:
            done[p] = 1
            if levels[p] <= level:
                self.passed_backward = p
                stale[p] = 0
                if p in slow:
                    improved |= rare.slow_backward(self, p)
                else:
                    own, sources = current[p], _NOBODY
                    for user, edge, get, _ in all_uses[p]:
                        theirs = current[user]
                        if not theirs:
                            continue
                        memo = edge.memos[level]
                        if memo is None:
                            continue
                        key = current[p] * _PAIR + theirs if get is None else get(current)
                        hit = memo.get(key)
                        if hit is None:
                            hit = memo[key] = self._infer_backward(p, theirs, edge, key)
                        if hit:
                            current[p] = hit
                            sources = [*sources, user]
                    if sources:
                        improved = True
                        self.change(p, current[p], "users", sources, own)
            elif levels[p] == DYNAMIC:
                self.passed_backward = p
                refined |= rare.refine_backward(self, p)
            p = done.rfind(0, start, p)
        return improved, refined

    def _infer_backward(self, p: int, theirs: int, edge: Edge, key: Any) -> int:
        """The number of the improved sharding; 0 for no improvement."""
        self.busy = p
        others = [] if type(key) is int else [self.shardings[n] for n in key[2:]]
        user = self.shardings[theirs]
        assert user is not None
        found = infer_backward(edge, self.at(p), user, others, self.level)
        return 0 if found is None else self.number(found)

    # ---- changes

    def change(self, p: int, number: int, direction: Direction, sources: Sources, before: int | None = None) -> None:
        """Give `p` a sharding, let related instructions follow, and have all that look at them tried again."""
        old = self.current[p] if before is None else before
        self.current[p] = number
        self._log.append((p, self.level, direction, sources, old, number))
        if p in self.nodes.connected:
            followers: dict[int, None] = {}
            self._follow(p, followers)
            self.clear(p)
            for other in followers:
                self.clear(other)
        else:
            self.clear(p)

    def note(self, p: int, direction: Direction, sources: Sources, old: int) -> None:
        """Remember why `p` has what it has now; `old` is the number of what it had."""
        self._log.append((p, self.level, direction, sources, old, self.current[p]))

    def _told(self, entry: tuple[int, int, Direction, Sources, int, int]) -> Change:
        """An entry of the log, by instruction ids and shardings."""
        p, level, direction, sources, old, new = entry
        ids, shardings = self.nodes.ids, self.shardings
        if type(sources) is tuple:
            sources = [self.nodes.inputs[p][n] for n in sources]
        return ids[p], level, direction, [ids[s] for s in sources], shardings[old], shardings[new]

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
                self.note(q, "computation", [p], old)
                changed[q] = None
                self._follow(q, changed)

    def clear(self, p: int, for_users: int | None = None) -> None:
        """Let everything that looks at `p` be tried again; `for_users` stands in for `p` towards the users."""
        nodes = self.nodes
        q = p if for_users is None else for_users
        done_forward, done_backward = self.done_forward, self.done_backward
        stale_forward, stale_backward = self.stale_forward, self.stale_backward
        self._at_rest = False
        stale_forward[p] = stale_backward[p] = 1
        # What was skipped XLA would have tried anyway, unless it has come past it.
        if self.skipped_forward[p] and p > self.passed_forward:
            done_forward[p] = 0
        if self.skipped_backward[p] and (p < self.passed_backward or p >= self._end):
            done_backward[p] = 0
        for operand in nodes.operands[p]:
            done_backward[operand] = 0
            stale_backward[operand] = 1
        siblings = nodes.siblings
        for user, _, _, _ in nodes.uses[q]:
            done_forward[user] = 0
            stale_forward[user] = 1
            if siblings[user]:
                self._clear_siblings(user)
        if nodes.callee_parameters:
            for parameter in nodes.callee_parameters.get(q, ()):
                done_forward[parameter] = 0
                stale_forward[parameter] = 1
        if p in nodes.group_of:
            self.done_group.difference_update(nodes.members(p))

    def _clear_siblings(self, user: int) -> None:
        """What an operand would like to have has changed with another operand."""
        for sibling in self.nodes.operands[user]:
            self.stale_backward[sibling] = 1
            if self.skipped_backward[sibling] and (sibling < self.passed_backward or sibling >= self._end):
                self.done_backward[sibling] = 0
