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
Places = tuple[int, ...]
Use = tuple[int, Edge, Key | None, Places]
"""One use of a value: the user's place, its edge, the key of what it reads if that is more than both shardings, and
the places of the other operands that it reads."""

_WATCHED = ("custom-call", "rng-bit-generator", "dot", "convolution", "broadcast")

_NO_USES: dict[int, Use] = {}
_ALONE: list[tuple[int, ...]] = []

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
        self.computations: list[int] = []
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
            self.computations.append(computation)
            self.spans.append((start, len(self.ids)))
        for place, i in enumerate(self.ids):
            self.place[i] = place
        graph.forget_post_orders()

    def _matters(self, computation: int) -> bool:
        """Can a sharding ever appear in it?"""
        graph = self.graph
        if computation == graph.entry or computation in self.callers:
            return True
        ids = graph.order[computation]
        return any(graph.sharding[i] is not None or graph.opcode[i] == "rng-bit-generator" for i in ids)

    def _find_ops(self, table: OpTable) -> None:
        graph, place = self.graph, self.place
        self.ops: list[Op] = table.ops(self.ids)
        self.kinds = set(self.ops)
        """Every op once."""
        operands = graph.operands
        self.operands: list[Places] = [tuple([place[o] for o in operands[i]]) for i in self.ids]
        self.has_manual = any(_has_manual_leaf(s.leaves) for s in graph.distinct_shardings())
        # XLA finds that all leaves of an empty tuple are manual, there being none.
        self.has_manual |= any(op.shape.is_tuple and not op.shape.leaves for op in self.kinds)
        self.inputs = self.operands
        """Whose shardings a forward step reads: the operands, and for a parameter what its caller passes."""
        for computation in self.callers:
            for i in graph.parameters[computation]:
                passed = data_flow.caller_operand(graph, i, self.callers)
                if passed is not None:
                    if self.inputs is self.operands:
                        self.inputs = list(self.operands)
                    self.inputs[place[i]] = (place[passed],)

    def _find_levels(self) -> None:
        """The first level at which each place may take from its operands, and from its users."""
        forward = {op: self._forward_level(op) for op in self.kinds}
        backward = {op: self._backward_level(op) for op in self.kinds}
        self.forward_level = bytearray([forward[op] for op in self.ops])
        self.backward_level = bytearray([backward[op] for op in self.ops])
        self._close_edges()
        for i in self.provided:
            if self.place[i] >= 0:
                self.forward_level[self.place[i]] = self.backward_level[self.place[i]] = policy.NEVER
        for i in self.notes.unspecified:
            if self.place[i] >= 0:
                self.forward_level[self.place[i]] = self.backward_level[self.place[i]] = DYNAMIC
        self.forward_key: list[Key] = [
            itemgetter(p, *inputs) if level < policy.NEVER else _no_key
            for p, (inputs, level) in enumerate(zip(self.inputs, self.forward_level, strict=True))
        ]

    def _close_edges(self) -> None:
        """Roots and parameters of computations may take from one side only, or from none."""
        for computation in self.computations:
            for i in (self.graph.roots[computation], *self.graph.parameters[computation]):
                p = self.place[i]
                if not self.inputs[p]:
                    self.forward_level[p] = policy.NEVER
                if not (self.has_manual or self.receives_backward(i, self.ops[p])):
                    self.backward_level[p] = policy.NEVER

    def _forward_level(self, op: Op) -> int:
        if not op.operand_shapes and op.opcode != "parameter":
            return policy.NEVER
        if op.opcode == "broadcast" and not self.has_manual:
            return policy.BROADCAST_FORWARD_LEVEL
        return op.through if op.receives or op.takes_replicated or self.has_manual else policy.NEVER

    def _backward_level(self, op: Op) -> int:
        if not (self.has_manual or op.can_receive or op.opcode == "parameter"):
            return policy.NEVER
        return policy.BROADCAST_BACKWARD_LEVEL if op.opcode == "broadcast" else 0

    def receives_backward(self, i: int, op: Op) -> bool:
        """XLA's SupportSpatialPartitioning, as backward propagation asks it."""
        connected = self.graph.computation[i] in self.callers
        if op.opcode == "parameter":
            return self.to_parameters or connected
        return op.can_receive and (connected or not self.graph.is_root(i))

    def _find_uses(self) -> None:
        graph, place, ops = self.graph, self.place, self.ops
        users = graph.users
        self._patterns: dict[Op, list[tuple[int, ...]]] = {}
        single: list[Use | None] = [
            (p, op.edge(0), None, ()) if len(operands) == 1 else None
            for p, (op, operands) in enumerate(zip(ops, self.operands, strict=True))
        ]
        several = [
            self._uses_of(p, ops[p], operands) if len(operands) > 1 else _NO_USES
            for p, operands in enumerate(self.operands)
        ]
        self.uses: list[list[Use]] = [
            [single[user] or several[user][p] for user in [place[u] for u in users[i]]] for p, i in enumerate(self.ids)
        ]

    def _uses_of(self, user: int, op: Op, operands: Places) -> dict[int, Use]:
        """An op's use of each of its operands."""
        pattern = self._patterns.get(op)
        if pattern is None:
            pattern = self._patterns[op] = self._pattern(op)
        if len(operands) == 2 and operands[0] != operands[1] and pattern is _ALONE:
            # Most ops are such.
            return {operands[0]: (user, op.edge(0), None, ()), operands[1]: (user, op.edge(1), None, ())}
        if len(set(operands)) == len(operands):
            if pattern is _ALONE:
                return {o: (user, op.edge(n), None, ()) for n, o in enumerate(operands)}
            return {o: self._use_beside(o, user, op.edge(n), operands, pattern[n]) for n, o in enumerate(operands)}
        found: dict[int, Use] = {}
        for operand in dict.fromkeys(operands):
            at = tuple([n for n, o in enumerate(operands) if o == operand])
            edge = op.edge(at if len(at) > 1 else operands.index(operand))
            others = other_operands(op, at) if op.siblings_matter else ()
            found[operand] = self._use_beside(operand, user, edge, operands, others)
        return found

    @staticmethod
    def _pattern(op: Op) -> list[tuple[int, ...]]:
        """Per operand position the positions of the siblings whose shardings matter; `_ALONE` if none do anywhere."""
        if not op.siblings_matter:
            return _ALONE
        others = [other_operands(op, (n,)) for n in range(len(op.operand_shapes))]
        return others if any(others) else _ALONE

    @staticmethod
    def _use_beside(p: int, user: int, edge: Edge, operands: Places, others: tuple[int, ...]) -> Use:
        """A use that reads the shardings of further operands."""
        if not others:
            return user, edge, None, ()
        places = tuple([operands[n] for n in others])
        return user, edge, itemgetter(p, user, *places), places

    def _find_connections(self) -> None:
        """What must follow a change of a place, across computations."""
        graph, place = self.graph, self.place
        self.connected: dict[int, list[int]] = {}
        """Place -> the ops whose related instructions follow it."""
        self.callee_parameters: dict[int, list[int]] = {}
        """Place -> parameters of the computations that its users call."""
        edges = [i for c in self.callers for i in (graph.roots[c], *graph.parameters[c])]
        for i in (*graph.control_flow(), *edges):
            heads = self._family_heads(i)
            if heads:
                self.connected[place[i]] = heads
        for p, i in enumerate(self.ids):
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
        of_opcode: dict[str, list[int]] = {opcode: [] for opcode in _WATCHED}
        for p, op in enumerate(ops):
            if op.opcode in of_opcode:
                of_opcode[op.opcode].append(p)
        calls = of_opcode["custom-call"]
        self.conversions = {p for p in calls if ops[p].target in policy.CONVERSIONS}
        for p in self.conversions:
            if self.ids[p] in self.provided:
                self.backward_level[p] = DYNAMIC
        self.slow = {p for p in calls if ops[p].target == policy.SHARD_BARRIER_TO}
        """Places whose backward step needs more than a look at each user."""
        self.slow |= self.open_dims.keys() | self.conversions
        self.slow.update(range(len(ops)) if self.has_manual else ())
        for p in of_opcode["rng-bit-generator"]:
            self.slow.update(self.operands[p])
        self.look_ahead = of_opcode["dot"] + of_opcode["convolution"]
        self.broadcasts = of_opcode["broadcast"]
        self.beside_broadcasts = self.broadcasts + [o for p in self.broadcasts for o in self.operands[p]]
        self.siblings = bytes([op.siblings_matter for op in ops])
        """Is what an operand would like to have a matter of its siblings, too?"""

    def members(self, p: int) -> list[int]:
        """The other members of `p`'s shard group."""
        found = (self.place[m] for m in self.notes.members(self.ids[p]))
        return [m for m in found if m >= 0 and m != p]


def _no_key(current: list[int]) -> Any:
    """Of a place that never takes from its operands."""
    raise AssertionError(len(current))


def _has_manual_leaf(leaves: tuple[Any, ...]) -> bool:
    return any(leaf.kind == "manual" for leaf in leaves)
