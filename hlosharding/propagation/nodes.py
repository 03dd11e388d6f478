"""The graph as the fix point walks it: instructions by their place in post order, with all that never changes in a run.

Floor: propagation.  Places follow one another over all computations that matter, so that "the next one that is not
done" is a search in a byte string.  Computations that nothing can reach (bodies of reductions) are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from hlosharding.propagation import data_flow, policy
from hlosharding.propagation.annotations import Annotations
from hlosharding.propagation.graph import Graph
from hlosharding.propagation.handlers import other_operands
from hlosharding.propagation.op import Edge, Op
from hlosharding.propagation.ops import OpTable

Key = Callable[[list[int]], Any]
Use = tuple[int, Edge, Key | None, tuple[int, ...]]
"""One use of a value: the user's place, its edge, the key of what it reads if that is more than both shardings, and
the places of the other operands that it reads."""

DYNAMIC = 10
"""The level of what is provided and yet may be refined."""


class Nodes:
    """Lists indexed by place."""

    def __init__(
        self,
        graph: Graph,
        notes: Annotations,
        callers: dict[int, int],
        provided: set[int],
        *,
        spmd: bool,
        to_outputs: bool,
        to_parameters: bool,
    ) -> None:
        self.graph, self.notes, self.callers, self.provided = graph, notes, callers, provided
        self.spmd, self.to_parameters = spmd, to_parameters
        self.ids: list[int] = []
        """Place -> instruction id."""
        self.spans: list[tuple[int, int]] = []
        """First and past-the-end place of every computation, in module order."""
        self.place: list[int] = []
        """Instruction id -> place, -1 for instructions left out."""
        self._find_places()
        self._find_ops(OpTable(graph, callers, spmd=spmd, to_outputs=to_outputs))
        self._find_levels()
        self._find_uses()
        self._find_connections()
        self._find_rare_cases()

    def _find_places(self) -> None:
        graph = self.graph
        self.place = [-1] * len(graph.opcode)
        for computation in range(len(graph.order)):
            if not self._matters(computation):
                continue
            start = len(self.ids)
            self.ids += graph.post_order(computation)
            self.spans.append((start, len(self.ids)))
        for place, i in enumerate(self.ids):
            self.place[i] = place

    def _matters(self, computation: int) -> bool:
        """Can a sharding ever appear in it?"""
        graph = self.graph
        if computation == graph.entry or computation in self.callers:
            return True
        ids = graph.order[computation]
        return any(graph.sharding[i] is not None or graph.opcode[i] == "rng-bit-generator" for i in ids)

    def _find_ops(self, table: OpTable) -> None:
        graph, place = self.graph, self.place
        self.ops: list[Op] = [table.op(i) for i in self.ids]
        self.operands: list[list[int]] = [[place[o] for o in graph.operands[i]] for i in self.ids]
        self.has_manual = any(s is not None and _has_manual_leaf(s.leaves) for s in graph.sharding)
        # XLA finds that all leaves of an empty tuple are manual, there being none.
        self.has_manual |= any(op.shape.is_tuple and not op.shape.leaves for op in self.ops)
        self.inputs = self.operands
        """Whose shardings a forward step reads: the operands, and for a parameter what its caller passes."""
        for p, op in enumerate(self.ops):
            if op.opcode == "parameter":
                passed = data_flow.caller_operand(graph, self.ids[p], self.callers)
                if passed is not None:
                    if self.inputs is self.operands:
                        self.inputs = list(self.operands)
                    self.inputs[p] = [place[passed]]
        self.forward_key: list[Key] = [itemgetter(p, *inputs) for p, inputs in enumerate(self.inputs)]

    def _find_levels(self) -> None:
        """The first level at which each place may take from its operands, and from its users."""
        fixed = [i in self.provided for i in self.ids]
        self.forward_level = [
            policy.NEVER if fixed[p] or not self.inputs[p] else self._forward_level(op) for p, op in enumerate(self.ops)
        ]
        self.backward_level = [
            policy.NEVER if fixed[p] else self._backward_level(i, self.ops[p]) for p, i in enumerate(self.ids)
        ]
        for i in self.notes.unspecified:
            if self.place[i] >= 0:
                self.forward_level[self.place[i]] = self.backward_level[self.place[i]] = DYNAMIC

    def _forward_level(self, op: Op) -> int:
        if op.opcode == "broadcast" and not self.has_manual:
            return policy.BROADCAST_FORWARD_LEVEL
        return op.through if op.receives or op.takes_replicated or self.has_manual else policy.NEVER

    def _backward_level(self, i: int, op: Op) -> int:
        if not (self.has_manual or self.receives_backward(i, op)):
            return policy.NEVER
        return policy.BROADCAST_BACKWARD_LEVEL if op.opcode == "broadcast" else 0

    def receives_backward(self, i: int, op: Op) -> bool:
        """XLA's SupportSpatialPartitioning, as backward propagation asks it."""
        connected = self.graph.computation[i] in self.callers
        if op.opcode == "parameter":
            return self.to_parameters or connected
        return op.can_receive and (connected or not self.graph.is_root(i))

    def _find_uses(self) -> None:
        graph, place = self.graph, self.place
        self.users: list[list[int]] = [[place[u] for u in graph.users[i]] for i in self.ids]
        alone: list[Use | None] = [
            (p, op.edge((0,)), None, ()) if len(self.operands[p]) == 1 else None for p, op in enumerate(self.ops)
        ]
        self.uses: list[list[Use]] = [
            [alone[user] or self._use(p, user) for user in users] for p, users in enumerate(self.users)
        ]

    def _use(self, p: int, user: int) -> Use:
        operands, op = self.operands[user], self.ops[user]
        first = operands.index(p)
        if operands.count(p) == 1:
            positions = (first,)
        else:
            positions = tuple(n for n, o in enumerate(operands) if o == p)
        edge = op.edge(positions)
        if not op.siblings_matter:
            return user, edge, None, ()
        others = tuple(operands[n] for n in other_operands(op, positions))
        return user, edge, itemgetter(p, user, *others) if others else None, others

    def _find_connections(self) -> None:
        """What must follow a change of a place, across computations."""
        graph, place = self.graph, self.place
        self.connected: dict[int, list[int]] = {}
        """Place -> the ops whose related instructions follow it."""
        self.callee_parameters: dict[int, list[int]] = {}
        """Place -> parameters of the computations that its users call."""
        for p, i in enumerate(self.ids):
            heads = self._family_heads(i)
            if heads:
                self.connected[p] = heads
            for callee in graph.called[i]:
                parameters = [place[q] for q in graph.parameters[callee] if place[q] >= 0]
                for operand in self.operands[p] if parameters else ():
                    self.callee_parameters.setdefault(operand, []).extend(parameters)

    def _family_heads(self, i: int) -> list[int]:
        """As XLA's MaybeComputationPropagation finds them."""
        graph = self.graph
        heads = [i] if graph.opcode[i] in ("while", "conditional", "call") else []
        caller = self.callers.get(graph.computation[i])
        if caller is None:
            return heads
        is_parameter = graph.opcode[i] == "parameter"
        if is_parameter or graph.is_root(i):
            heads.append(caller)
            if is_parameter and graph.opcode[caller] in ("conditional", "call"):
                heads.append(i)
        return heads

    def _find_rare_cases(self) -> None:
        place, ops = self.place, self.ops
        self.open_dims = {place[i]: dims for i, dims in self.notes.unspecified.items() if place[i] >= 0}
        self.group_of = {place[i]: number for i, number in self.notes.group_of.items() if place[i] >= 0}
        self.conversions = {p for p, op in enumerate(ops) if op.target in policy.CONVERSIONS}
        for p in self.conversions:
            if self.ids[p] in self.provided:
                self.backward_level[p] = DYNAMIC
        self.slow = {p for p, op in enumerate(ops) if op.target == policy.SHARD_BARRIER_TO}
        """Places whose backward step needs more than a look at each user."""
        self.slow |= self.open_dims.keys() | self.conversions
        self.slow.update(range(len(ops)) if self.has_manual else ())
        broadcasts = [p for p, op in enumerate(ops) if op.opcode == "broadcast"]
        for p, op in enumerate(ops):
            if op.opcode == "rng-bit-generator":
                self.slow.update(self.operands[p])
        self.look_ahead = [p for p, op in enumerate(ops) if op.opcode in ("dot", "convolution")]
        self.broadcasts = broadcasts
        self.beside_broadcasts = broadcasts + [o for p in broadcasts for o in self.operands[p]]

    def members(self, p: int) -> list[int]:
        """The other members of `p`'s shard group."""
        found = (self.place[m] for m in self.notes.members(self.ids[p]))
        return [m for m in found if m >= 0 and m != p]


def _has_manual_leaf(leaves: tuple[Any, ...]) -> bool:
    return any(leaf.kind == "manual" for leaf in leaves)
