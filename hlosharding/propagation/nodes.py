"""The graph as the fix point walks it: instructions by their place in post order, with all that never changes in a run.

Floor: propagation.  Places follow one another over all computations that matter, so that "the next one that is not
done" is a search in a byte string.  Computations that nothing can reach (bodies of reductions) are left out.
"""

from __future__ import annotations

from collections.abc import Iterable

from hlosharding.ir import CONTROL_FLOW
from hlosharding.ir import custom_call_targets as targets
from hlosharding.propagation import data_flow, policy
from hlosharding.propagation.annotations import Annotations
from hlosharding.propagation.graph import PropagationGraph
from hlosharding.propagation.op_view import Edge, OpView
from hlosharding.propagation.ops import OpTable
from hlosharding.propagation.worklist import REFINABLE

Places = tuple[int, ...]
Use = tuple[int, Edge]
"""One use of a value: the user's place, and what it is to the value."""

_WIDE = 8
"""Operands, from which on a search among them is worth a table: a tuple may have thousands."""


class Nodes:
    """Lists indexed by place."""

    def __init__(
        self,
        graph: PropagationGraph,
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
        self._find_special_cases()

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
        if computation in graph.left_out:
            return False
        if computation == graph.entry or computation in self.callers:
            return True
        # A caller brings what its callee has: the computation around it, that of an async op, has none of its own.
        bringers = policy.REPLICATES_OPERANDS | CONTROL_FLOW
        return any(graph.sharding[i] is not None or graph.opcode[i] in bringers for i in graph.order[computation])

    def _find_ops(self, table: OpTable) -> None:
        graph, place = self.graph, self.place
        self.ops: list[OpView] = []
        for computation, (start, end) in zip(self.computations, self.spans, strict=True):
            self.ops += table.ops(computation, self.ids[start:end])
        self.kinds = table.kinds
        """Every op once."""
        self.operands: list[Places] = [
            (place[o[0]], place[o[1]]) if len(o) == 2 else tuple([place[n] for n in o])
            for o in map(graph.operands.__getitem__, self.ids)
        ]
        self.has_manual = any(leaf.kind == "manual" for s in graph.distinct_shardings() for leaf in s.leaves)
        # XLA finds that all leaves of an empty tuple are manual, there being none.
        self.has_manual |= any(op.shape.is_tuple and not op.shape.leaves for op in self.kinds)
        self.inputs = self.operands
        """Whose shardings a forward step reads: the operands, and for a parameter what its caller passes."""
        self.passed_to: dict[int, list[int]] = {}
        """Place -> the parameters of called computations that it is passed as."""
        for computation in self.callers:
            for i in graph.parameters[computation]:
                passed = data_flow.caller_operand(graph, i, self.callers)
                # Either of them may stand in a computation that is left out.
                if passed is not None and min(place[i], place[passed]) >= 0:
                    if self.inputs is self.operands:
                        self.inputs = list(self.operands)
                    self.inputs[place[i]] = (place[passed],)
                    self.passed_to.setdefault(place[passed], []).append(place[i])

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
        # Behind those that are provided, for most of these are, too, and their open dims may be refined all the same.
        for i in self.notes.unspecified:
            if self.place[i] >= 0:
                self.forward_level[self.place[i]] = self.backward_level[self.place[i]] = REFINABLE

    def _close_edges(self) -> None:
        """Roots and parameters of computations may take from one side only, or from none."""
        for computation in self.computations:
            # What is manual is taken from users whether or not tilings may be: beside it no edge is shut.
            may_give = self.has_manual or self.to_parameters or computation in self.callers
            for p in [self.place[i] for i in self.graph.parameters[computation]]:
                if not self.inputs[p]:
                    self.forward_level[p] = policy.NEVER
                if not may_give:
                    self.backward_level[p] = policy.NEVER
            root = self.graph.roots[computation]
            if not (self.has_manual or self.receives_backward(root, self.ops[self.place[root]])):
                self.backward_level[self.place[root]] = policy.NEVER

    def _forward_level(self, op: OpView) -> int:
        if not op.operand_shapes and not op.is_parameter:
            return policy.NEVER
        # The wait for level 3 is for tilings: a manual operand makes a broadcast manual as soon as anything may pass.
        if op.opcode in policy.BROADCASTS and not self.has_manual:
            return policy.BROADCAST_FORWARD_LEVEL
        return op.through if op.receives or op.takes_replicated or self.has_manual else policy.NEVER

    def _backward_level(self, op: OpView) -> int:
        if not (self.has_manual or op.can_receive or op.is_parameter):
            return policy.NEVER
        return policy.BROADCAST_BACKWARD_LEVEL if op.opcode in policy.BROADCASTS else 0

    def receives_backward(self, i: int, op: OpView) -> bool:
        """XLA's SupportSpatialPartitioning, as backward propagation asks it."""
        connected = self.graph.computation[i] in self.callers
        if op.is_parameter:
            return self.to_parameters or connected
        return op.can_receive and (connected or not self.graph.is_root(i))

    def _find_uses(self) -> None:
        """Of every place its uses, users in XLA's order."""
        place, ops, operands = self.place, self.ops, self.operands
        # A search among many operands would make large tuples cost their size squared.
        wide = {p: {o: n for n, o in enumerate(reads)} for p, reads in enumerate(operands) if len(reads) >= _WIDE}

        def use(p: int, user: int) -> Use:
            return user, ops[user].edges[wide[user][p] if user in wide else operands[user].index(p)]

        self.uses: list[tuple[Use, ...]] = [
            (use(p, place[users[0]]),) if len(users) == 1 else tuple([use(p, place[u]) for u in users])
            for p, users in enumerate(map(self.graph.users.__getitem__, self.ids))
        ]

    def _find_connections(self) -> None:
        """What must follow a change of a place, across computations."""
        graph, place = self.graph, self.place
        self.connected: dict[int, list[int]] = {}
        """Place -> the ops whose related instructions follow it."""
        edges = [i for c in self.callers for i in (graph.roots[c], *graph.parameters[c])]
        for i in (*graph.control_flow(), *edges):
            heads = self._family_heads(i)
            if heads:
                self.connected[place[i]] = heads

    def _family_heads(self, i: int) -> list[int]:
        """As XLA's MaybeComputationPropagation finds them."""
        graph = self.graph
        heads = [i] if graph.opcode[i] in CONTROL_FLOW else []
        caller = self.callers.get(graph.computation[i])
        if caller is None:
            return heads
        is_parameter = graph.is_parameter(i)
        if is_parameter or graph.is_root(i):
            heads.append(caller)
            if is_parameter and graph.opcode[caller] in data_flow.HANDS_OVER:
                heads.append(i)
        return heads

    def _find_special_cases(self) -> None:
        place, ops = self.place, self.ops
        self.open_dims = {place[i]: dims for i, dims in self.notes.unspecified.items() if place[i] >= 0}
        self.group_of = {place[i]: number for i, number in self.notes.group_of.items() if place[i] >= 0}
        calls = self._places(self.graph.custom_calls())
        self.conversions = {p for p in calls if ops[p].target in targets.MANUAL_CONVERSIONS}
        for p in self.conversions:
            if self.ids[p] in self.provided:
                self.backward_level[p] = REFINABLE
        self.special_backward = {p for p in calls if ops[p].target == policy.SHARD_BARRIER_TO}
        """Places whose backward step is not one of `backward`, but of `special_users` or `open_dims`."""
        self.special_backward |= self.open_dims.keys() | self.conversions
        self.refined_forward = set(self.open_dims)
        self.refined_backward = {p for p in self.special_backward if self.backward_level[p] == REFINABLE}
        # Any value may then have a manual user, which counts before all others.
        self.special_backward.update(range(len(ops)) if self.has_manual else ())
        for p in self._of_opcodes(policy.REPLICATES_OPERANDS):
            self.special_backward.update(self.operands[p])
        self.look_ahead = self._of_opcodes(policy.LOOKS_AHEAD)
        self.broadcasts = self._of_opcodes(policy.BROADCASTS)
        self.beside_broadcasts = self.broadcasts + [o for p in self.broadcasts for o in self.operands[p]]
        self.siblings = bytes([op.siblings_matter for op in ops])
        """Is what an operand would like to have a matter of its siblings, too?"""

    def _of_opcodes(self, opcodes: Iterable[str]) -> list[int]:
        return [p for opcode in opcodes for p in self._places(self.graph.of_opcode(opcode))]

    def _places(self, ids: list[int]) -> list[int]:
        return [p for p in map(self.place.__getitem__, ids) if p >= 0]

    def members(self, p: int) -> list[int]:
        """The other members of `p`'s shard group."""
        found = (self.place[m] for m in self.notes.members(self.ids[p]))
        return [m for m in found if m >= 0 and m != p]
