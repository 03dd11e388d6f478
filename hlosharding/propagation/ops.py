"""Give every instruction its `OpView`: equal ops, in equal places, share one.

Floor: propagation.  The key says all that inference may read: opcode, shapes, the attributes that matter for sharding,
and the place (root, users, called from where).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hlosharding.ir import INDEXED, PARTITIONING_MARK, Computation, Instruction, Shape, attributes_of
from hlosharding.once import remembered
from hlosharding.propagation import policy
from hlosharding.propagation.graph import PropagationGraph
from hlosharding.propagation.handlers import other_operands
from hlosharding.propagation.indices import parallel_dims
from hlosharding.propagation.op_view import Edge, Memos, OpView, leaf_range, memos_from, same_dims
from hlosharding.rules import function_signature

_ATTRIBUTES: dict[str, Callable[[Instruction], Any]] = {
    **dict.fromkeys(("broadcast", "concatenate", "reduce", "reverse", "sort", "transpose"), attributes_of),
    **dict.fromkeys(("convolution", "dot", "gather", "get-tuple-element", "scatter"), attributes_of),
    **dict.fromkeys(("reduce-window", "select-and-scatter"), attributes_of),
    **dict.fromkeys(("async-start", "async-update", "async-done"), lambda i: i.proto.async_execution_thread),
    "call": lambda i: i.frontend_attributes.get(PARTITIONING_MARK),
    "custom-call": function_signature,
}
"""What decides how shardings move, beyond opcode and shapes."""


@dataclass(frozen=True, slots=True)
class _OpcodeFacts:
    """What an opcode alone decides."""

    family: str
    elementwise: bool
    through: int
    can_receive: bool
    plain: bool
    """Unless it is a root, the opcode says all: it receives, whatever its neighbours are."""
    attributes: Callable[[Instruction], Any] | None


# Opcodes of which the instruction itself says what kind it is.
_BY_INSTRUCTION = frozenset({"bitcast-convert", "call", "custom-call", "fusion", "map"})


class OpTable:
    """Builds the ops of one run."""

    def __init__(self, graph: PropagationGraph, callers: dict[int, int], *, spmd: bool, to_outputs: bool) -> None:
        self.graph, self.callers, self.spmd, self.to_outputs = graph, callers, spmd, to_outputs
        self._ops: dict[Any, OpView] = {}
        self._kinds: dict[str, _OpcodeFacts] = {}
        self._as_is: dict[Shape, Memos] = {}
        """Shape of a value -> what is known of users that would like it to have what they have."""
        self._shapes = [i.shape for i in graph.instructions]

    @property
    def kinds(self) -> list[OpView]:
        """Every op so far, once."""
        return list(self._ops.values())

    def ops(self, computation: int, ids: list[int]) -> list[OpView]:
        """The ops of those instructions, which are of one computation."""
        graph, known, kinds, shapes = self.graph, self._ops, self._kinds, self._shapes
        opcodes, operands, users, instructions = graph.opcode, graph.operands, graph.users, graph.instructions
        root = graph.roots[computation]
        found: list[OpView] = []
        for i in ids:
            opcode, reads, followers = opcodes[i], operands[i], users[i]
            kind = kinds.get(opcode) or self._kind(i, opcode, instructions[i])
            # XLA's ComputeNonRootUsers.
            count = len(followers)
            aggressive = followers[0] != root if count == 1 else count == 2 and root in followers
            if len(reads) == 2:
                # None where both operands are one value: its two places are one edge then.
                read: Any = shapes[reads[0]], shapes[reads[1]] if reads[0] != reads[1] else None
            else:
                read = shapes[reads[0]] if len(reads) == 1 else self._read(reads)
            attributes = kind.attributes(instructions[i]) if kind.attributes else None
            rest = None if kind.plain and i != root else self._rest(i, opcode, kind, i == root)
            key = (kind.family, shapes[i], read, attributes, aggressive, rest)
            op = known.get(key)
            if op is None:
                op = known[key] = self._make(i, opcode, kind, aggressive, rest or (True, False, None))
            found.append(op)
        return found

    def _read(self, reads: tuple[int, ...]) -> Any:
        """The shapes of all operands, and which of them are one value."""
        places: dict[int, int] = {}
        alike = tuple([places.setdefault(o, n) for n, o in enumerate(reads)])
        shapes = tuple([self._shapes[o] for o in reads])
        return shapes if len(places) == len(reads) else (shapes, alike)

    def _rest(self, i: int, opcode: str, kind: _OpcodeFacts, is_root: bool) -> tuple[bool, bool, Any]:
        """(receives, refuses, what the place says) of an instruction whose opcode does not decide it all."""
        if self.graph.is_parameter(i):
            connected = self.graph.computation[i] in self.callers
            return connected, not connected, None
        receives = self._receives(i, kind.can_receive) if is_root else kind.can_receive
        refuses = not receives and self._refuses(i, opcode, self.graph.instructions[i], is_root)
        return receives, refuses, self._neighbours(i, opcode)

    def _make(self, i: int, opcode: str, kind: _OpcodeFacts, aggressive: bool, rest: tuple[bool, bool, Any]) -> OpView:
        receives, refuses, neighbours = rest
        op = OpView(
            instruction=self.graph.instructions[i],
            opcode=opcode,
            operand_shapes=tuple(self._shapes[o] for o in self.graph.operands[i]),
            target=self.graph.target(i),
            elementwise=kind.elementwise,
            spmd=self.spmd,
            receives=receives,
            takes_replicated=not (receives or refuses),
            is_foreign_async=i in self.graph.foreign_async,
            can_receive=kind.can_receive,
            through=kind.through,
            aggressive=aggressive,
            level0_concatenate=opcode in policy.STACKS and neighbours,
            parallel=neighbours if opcode in INDEXED else None,
        )
        op.edges = self._edges(op, self.graph.operands[i])
        return op

    def _edges(self, op: OpView, reads: tuple[int, ...]) -> tuple[Edge, ...]:
        positions: dict[int, list[int]] = {}
        for n, operand in enumerate(reads):
            positions.setdefault(operand, []).append(n)
        edges = {operand: self._edge(op, tuple(places)) for operand, places in positions.items()}
        return tuple(edges[operand] for operand in reads)

    def _edge(self, op: OpView, positions: tuple[int, ...]) -> Edge:
        shape = op.operand_shapes[positions[0]]
        goes_into_tuple = op.opcode in policy.MAKES_TUPLE and len(positions) == 1 and not shape.is_tuple
        if not (goes_into_tuple or (op.elementwise and same_dims(shape, op.shape))):
            return Edge(op, positions, memos_from(op.through), others=other_operands(op, positions))
        memos = self._as_is.get(shape) or self._as_is.setdefault(shape, memos_from(0))
        return Edge(op, positions, memos, leaf=leaf_range(op.shape, positions[0])[0] if goes_into_tuple else None)

    def _kind(self, i: int, opcode: str, instruction: Instruction) -> _OpcodeFacts:
        target = self.graph.target(i)
        elementwise = policy.is_elementwise(instruction, opcode, self._fuses_elementwise)
        can_receive = policy.may_receive(instruction, opcode, elementwise, target, self.spmd)
        kind = _OpcodeFacts(
            family=_family(opcode, elementwise) + target,
            elementwise=elementwise,
            through=policy.through_level(opcode, elementwise, target),
            can_receive=can_receive,
            plain=can_receive and opcode not in INDEXED | policy.STACKS,
            attributes=_ATTRIBUTES.get(opcode),
        )
        if opcode not in _BY_INSTRUCTION:
            self._kinds[opcode] = kind
        return kind

    @remembered
    def _fuses_elementwise(self, fused: Computation) -> bool:
        """Are all ops of a fused computation elementwise?  Any number of fusions may call one."""
        kinds = ((i, i.opcode) for i in fused.instructions if i.opcode != "parameter")
        return all(policy.is_elementwise(i, opcode, self._fuses_elementwise) for i, opcode in kinds)

    def _neighbours(self, i: int, opcode: str) -> Any:
        """What the op's place in the graph says beyond root and users."""
        if opcode in INDEXED:
            return parallel_dims(self.graph, i, self.callers)
        return _stacks_weights(self.graph, i) if opcode in policy.STACKS else None

    def _receives(self, root: int, can_receive: bool) -> bool:
        """XLA's SupportSpatialPartitioning of a root, as forward propagation asks it."""
        connected = self.graph.computation[root] in self.callers
        return can_receive and (connected or (self.to_outputs and root == self.graph.entry_root))

    def _refuses(self, i: int, opcode: str, instruction: Instruction, is_root: bool) -> bool:
        """Takes not even replicated."""
        if instruction.shape.is_tuple or not self.graph.operands[i] or is_root:
            return True
        return policy.has_side_effect(instruction, opcode)


def _family(opcode: str, elementwise: bool) -> str:
    """Opcodes that inference treats alike share their ops."""
    if elementwise and opcode not in policy.OF_ITS_OWN_KIND:
        return "elementwise"
    return opcode


def _stacks_weights(graph: PropagationGraph, i: int) -> bool:
    """Are all operands reshapes of a parameter or tuple element?  (AggressiveConcatOperandShardingCanPassThrough)"""
    for operand in graph.operands[i]:
        if graph.opcode[operand] not in policy.STACKED:
            return False
        if graph.opcode[graph.operands[operand][0]] not in policy.WEIGHTS:
            return False
    return True
