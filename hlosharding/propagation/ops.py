"""Give every instruction its `Op`: equal ops, in equal places, share one.

Floor: propagation.  The key says all that inference may read: opcode, shapes, the attributes that matter for sharding,
and the place (root, users, called from where).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hlosharding.ir import Instruction
from hlosharding.propagation import policy
from hlosharding.propagation.graph import Graph
from hlosharding.propagation.indices import parallel_dims
from hlosharding.propagation.op import Op


def _dimensions(i: Instruction) -> Any:
    return i.dimensions


def _window_dilated(i: Instruction) -> Any:
    return tuple((d.base_dilation > 1, d.window_dilation > 1) for d in i.window)


# The attributes that decide how shardings move, beyond opcode and shapes.
_ATTRIBUTES: dict[str, Callable[[Instruction], Any]] = {
    **dict.fromkeys(("broadcast", "transpose", "reduce", "concatenate", "reverse", "sort"), _dimensions),
    "dot": lambda i: i.dot_dims,
    "convolution": lambda i: (i.conv_dims, i.window, i.feature_group_count, i.batch_group_count),
    "gather": lambda i: (i.gather_dims, i.gather_slice_sizes),
    "scatter": lambda i: i.scatter_dims,
    "reduce-window": _window_dilated,
    "select-and-scatter": _window_dilated,
    "get-tuple-element": lambda i: i.tuple_index,
}


SIBLINGS_MATTER = frozenset({"dot", "convolution", "reduce", "scatter"})


@dataclass(frozen=True, slots=True)
class _Kind:
    """What an opcode alone decides."""

    family: str
    elementwise: bool
    through: int
    can_receive: bool
    plain: bool
    """Unless it is a root, the opcode says all: it receives, whatever its neighbours are."""
    attributes: Callable[[Instruction], Any] | None


# Opcodes of which the instruction itself says what kind it is.
_BY_INSTRUCTION = frozenset({"bitcast-convert", "custom-call", "fusion", "map"})


class OpTable:
    """Builds the ops of one run."""

    def __init__(self, graph: Graph, callers: dict[int, int], *, spmd: bool, to_outputs: bool) -> None:
        self.graph, self.callers, self.spmd, self.to_outputs = graph, callers, spmd, to_outputs
        self._ops: dict[Any, Op] = {}
        self._kinds: dict[str, _Kind] = {}
        self._shapes = [i.shape for i in graph.instructions]

    def ops(self, ids: list[int]) -> list[Op]:
        """The ops of those instructions."""
        graph, known, kinds = self.graph, self._ops, self._kinds
        shape_ids, opcodes, operands, users = list(map(id, self._shapes)), graph.opcode, graph.operands, graph.users
        computation, roots, instructions = graph.computation, graph.roots, graph.instructions
        found: list[Op] = []
        for i in ids:
            opcode, reads, root = opcodes[i], operands[i], roots[computation[i]]
            kind = kinds.get(opcode) or self._kind(i, opcode, instructions[i])
            # XLA's ComputeNonRootUsers.
            count = len(users[i])
            aggressive = users[i][0] != root if count == 1 else count == 2 and root in users[i]
            shapes = shape_ids[reads[0]] if len(reads) == 1 else tuple([shape_ids[o] for o in reads])
            attributes = kind.attributes(instructions[i]) if kind.attributes else None
            rest = None if kind.plain and i != root else self._rest(i, opcode, kind, i == root)
            key = (kind.family, shape_ids[i], shapes, attributes, aggressive, rest)
            op = known.get(key)
            if op is None:
                op = known[key] = self._make(i, opcode, kind, aggressive, rest or (True, False, None))
            found.append(op)
        return found

    def _rest(self, i: int, opcode: str, kind: _Kind, is_root: bool) -> tuple[bool, bool, Any]:
        """(receives, refuses, what the place says) of an instruction whose opcode does not decide it all."""
        receives = kind.can_receive
        if is_root or opcode == "parameter":
            receives = self._receives(i, opcode, kind.can_receive, is_root)
        refuses = not receives and self._refuses(i, opcode, self.graph.instructions[i], is_root)
        return receives, refuses, self._neighbours(i, opcode)

    def _make(self, i: int, opcode: str, kind: _Kind, aggressive: bool, rest: tuple[bool, bool, Any]) -> Op:
        receives, refuses, neighbours = rest
        return Op(
            instruction=self.graph.instructions[i],
            opcode=opcode,
            operand_shapes=tuple(self._shapes[o] for o in self.graph.operands[i]),
            target=self.graph.target(i),
            elementwise=kind.elementwise,
            spmd=self.spmd,
            receives=receives,
            takes_replicated=not (receives or refuses),
            can_receive=kind.can_receive,
            through=kind.through,
            siblings_matter=opcode in SIBLINGS_MATTER,
            aggressive=aggressive,
            level0_concatenate=opcode == "concatenate" and neighbours,
            parallel=neighbours if opcode in ("gather", "scatter") else None,
        )

    def _kind(self, i: int, opcode: str, instruction: Instruction) -> _Kind:
        target = self.graph.target(i)
        elementwise = policy.is_elementwise(instruction, opcode)
        can_receive = opcode != "parameter" and policy.may_receive(instruction, opcode, elementwise, target, self.spmd)
        kind = _Kind(
            family=_family(opcode, elementwise) + target,
            elementwise=elementwise,
            through=policy.through_level(opcode, elementwise, target),
            can_receive=can_receive,
            plain=can_receive and opcode not in ("concatenate", "gather", "scatter"),
            attributes=_ATTRIBUTES.get(opcode),
        )
        if opcode not in _BY_INSTRUCTION:
            self._kinds[opcode] = kind
        return kind

    def _neighbours(self, i: int, opcode: str) -> Any:
        """What the op's place in the graph says beyond root and users."""
        if opcode in ("gather", "scatter"):
            return parallel_dims(self.graph, i, self.callers)
        return _stacks_weights(self.graph, i) if opcode == "concatenate" else None

    def _receives(self, i: int, opcode: str, can_receive: bool, is_root: bool) -> bool:
        """XLA's SupportSpatialPartitioning, as forward propagation asks it."""
        graph = self.graph
        connected = graph.computation[i] in self.callers
        if is_root and not connected and not (self.to_outputs and i == graph.entry_root):
            return False
        return connected if opcode == "parameter" else can_receive

    def _refuses(self, i: int, opcode: str, instruction: Instruction, is_root: bool) -> bool:
        """Takes not even replicated."""
        if instruction.shape.is_tuple or not self.graph.operands[i] or is_root:
            return True
        return policy.has_side_effect(instruction, opcode)


def _family(opcode: str, elementwise: bool) -> str:
    """Opcodes that inference treats alike share their ops."""
    if elementwise and opcode not in ("rng", "constant") and opcode not in policy.FIRST_OPERAND_SPEAKS:
        return "elementwise"
    return opcode


def _stacks_weights(graph: Graph, i: int) -> bool:
    """Are all operands reshapes of a parameter or tuple element?  (AggressiveConcatOperandShardingCanPassThrough)"""
    for operand in graph.operands[i]:
        if graph.opcode[operand] != "reshape":
            return False
        if graph.opcode[graph.operands[operand][0]] not in ("parameter", "get-tuple-element"):
            return False
    return True
