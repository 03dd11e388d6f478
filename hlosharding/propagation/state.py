"""The state of one run: every place's sharding as a number, what is yet to be tried, and a log of what changed.

Floor: propagation.  Knows who looks at whom, so that a change calls back all that could now end differently; nothing of
what any op does, nor when it is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hlosharding.errors import PropagationError, ShardingError
from hlosharding.propagation import data_flow
from hlosharding.propagation.graph import PropagationGraph
from hlosharding.propagation.improving import improve
from hlosharding.propagation.nodes import Nodes, Places
from hlosharding.propagation.op_view import Edge
from hlosharding.propagation.provenance import ChangeFields, Direction, Trail
from hlosharding.propagation.worklist import Worklist
from hlosharding.sharding import HloSharding


def clash(graph: PropagationGraph, i: int, error: ShardingError) -> PropagationError:
    """The error for shardings that cannot be brought together; XLA aborts on them."""
    instruction = graph.instructions[i]
    return PropagationError(
        f"the shardings around %{instruction.name} ({graph.opcode[i]}) do not go together: {error.what}",
        where=instruction.location or None,
        remedy="make the annotations on its neighbours agree",
    )


class PropagationState:
    """What the sweeps read and change.  Shardings are small integers here: so inference is a dictionary look-up."""

    def __init__(self, nodes: Nodes, trail: Trail) -> None:
        self.nodes, self.trail = nodes, trail
        self.level = 0
        self.busy = 0
        """The place that inference works on, for error messages."""
        self.shardings: list[HloSharding | None] = [None]
        """Number -> sharding; 0 is none."""
        self._numbers: dict[int, int] = {}
        self.current = [self.number(nodes.graph.sharding[i]) for i in nodes.ids]
        """Place -> the number of its sharding."""
        self.forward, self.backward = Worklist(nodes.forward_level), Worklist(nodes.backward_level)
        self.done_group: set[int] = set()
        """Members of shard groups that have heard the others as they now are."""
        self.is_settled = False
        """Was everything tried at the last level, and nothing changed since?"""
        self.ahead: dict[int, HloSharding | None] = {}
        """What `look_ahead` found of places; each next one of a chain is there as long as those behind it are."""
        self._leaves: dict[int, list[int]] = {}
        self._log: list[Any] = []
        """The changes of a level, end to end: place, direction, places of the sources, old number, new number."""

    @property
    def combine(self) -> bool:
        """May partial tilings merge at this level?"""
        return self.nodes.spmd and self.level > 0

    # ---- shardings as numbers

    def number(self, sharding: HloSharding | None) -> int:
        """The number of a sharding in this run (by spelling)."""
        if sharding is None:
            return 0
        # Not by value: equal shardings may be spelled differently, and an answer is spelled as its question was.
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

    def improve(self, p: int, offered: HloSharding) -> bool:
        """Overwrite it by what is offered if that improves on it; did it?  Nobody is told."""
        found = improve(self.at(p), offered, self.nodes.ops[p].shape, combine=self.combine)
        if found is not None:
            self.put(p, found)
        return found is not None

    def leaf_number(self, number: int, leaf: int) -> int:
        """The number of one leaf of a tuple's sharding; of a sharding that has no leaves its own."""
        leaves = self._leaves.get(number)
        if leaves is None:
            sharding = self.shardings[number]
            leaves = self._leaves[number] = [] if sharding is None else list(map(self.number, sharding.tuple_elements))
        return leaves[leaf] if leaves else number

    def beside(self, user: int, edge: Edge) -> list[int]:
        """The places of a user's other operands that matter to what it would like this one to have."""
        operands = self.nodes.operands[user]
        return [operands[n] for n in edge.others]

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

    def hand_over_log(self) -> None:
        """Give the changes of a level to the trail."""
        self.trail.note_all(_told(self.level, self._log, self.nodes.ids, self.shardings))
        self._log = []

    def _follow(self, p: int, changed: dict[int, None]) -> None:
        """Related instructions across computations are overwritten, unless they are provided."""
        nodes = self.nodes
        for head in nodes.connected.get(p, ()):
            members = data_flow.related_instructions(nodes.graph, head, nodes.callers)
            if nodes.ids[p] not in members:
                continue
            for member in members:
                q = nodes.place[member]
                # A member that agrees is left alone, however it is spelled.  This also ends the walk, for families lead
                # back to one another.
                if member in nodes.provided or (self.current[q] and self.at(q) == self.at(p)):
                    continue
                old = self.current[q]
                self.current[q] = self.current[p]
                self.note(q, "computation", (p,), old)
                changed[q] = None
                self._follow(q, changed)

    def clear(self, p: int, for_users: int | None = None) -> None:
        """Let everything that looks at `p` be tried again; `for_users` stands in for `p` towards the users.

        Operands look at it backward, users forward; so do the parameters that it is passed as.
        """
        nodes, forward, backward = self.nodes, self.forward.state, self.backward.state
        open_forward, open_backward = self.forward.opened, self.backward.opened
        q = p if for_users is None else for_users
        self.is_settled = False
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
        if nodes.passed_to:
            for parameter in nodes.passed_to.get(q, ()):
                forward[parameter] = open_forward[parameter]
        if p in nodes.group_of:
            self.done_group.difference_update(nodes.members(p))
        if self.ahead:
            self._forget_ahead(p, q)

    def _forget_ahead(self, p: int, q: int) -> None:
        """What was found ahead of `p` (`q` towards its users), from its sharding, or from what was found so."""
        nodes = self.nodes
        waiting = [p, q, *nodes.operands[p]]
        for user, _ in nodes.uses[q]:
            if nodes.siblings[user]:
                waiting += nodes.operands[user]
        while waiting:
            p = waiting.pop()
            # A place that is not kept has none behind it that is: there the walk ends.
            if p in self.ahead:
                del self.ahead[p]
                waiting += nodes.operands[p]


def _told(level: int, log: list[Any], ids: list[int], shardings: list[HloSharding | None]) -> Iterator[ChangeFields]:
    """A log by instruction ids and shardings.  It waits in the trail for who asks, and does not hold the state, which
    holds the trail: a run's many small tuples go when the run does, and are not left to the collector."""
    fields = iter(log)
    for p, direction, sources, old, new in zip(fields, fields, fields, fields, fields, strict=True):
        yield ids[p], level, direction, [ids[s] for s in sources], shardings[old], shardings[new]
