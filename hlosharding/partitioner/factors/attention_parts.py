"""Flash attention on parts: what a call makes of some queries and some keys, and how parts are put together.

Floor: partitioner.  The softmax is that of all keys whatever part comes first: with a result goes the logarithm of what
its exponentials sum to, in f32 (Milakov and Gimelshein 2018, Dao et al. 2022).  Backward the sums are those of all keys
already, so that parts of gradients add.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hlosharding.ir import FusedAttention, Instruction, Shape, attention_config
from hlosharding.spmd import Emitter

Arrays = Sequence[Instruction]
RESULT_POSITIONS = 2
"""The dim of positions in results and in sums."""
_NO_EXPONENTIALS = -1e30
"""The logarithm of their sum; finite, for two infinite ones have no difference."""


class Made(NamedTuple):
    """What a call makes."""

    of_queries: list[Instruction]
    """The result and its sums, or the gradient of queries; in f32."""
    of_keys: list[Instruction]
    """Gradients of keys and values."""


class AttentionParts(NamedTuple):
    """One call, to be computed by parts."""

    emitter: Emitter
    inst: Instruction
    """The global one."""
    found: FusedAttention

    def call(self, own: Arrays, keys: Arrays, *, sees_all: bool) -> Made:
        """`own`: the queries; backward also sums, the result's gradient and the result.  `keys`: and values."""
        operands, found, results = (own[0], *keys, *own[1:]), self.found, self._results(own[0].shape, *keys)
        scores = found.scores(own[0].shape.dims, keys[0].shape.dims)
        changed: dict[str, Any] = {"opaque": attention_config(self.inst.opaque, scores, sees_all=sees_all)}
        if self.inst.proto.constrain_layout:
            changed["operand_shapes"] = tuple(x.shape for x in operands)
        packed = self.emitter.local(self.inst, Shape.tuple(results), operands, **changed)
        *leaves, _ = self.emitter.elements(packed)
        count = 1 if found.is_backward else 2
        return Made([self.converted(x, "f32") for x in leaves[:count]], leaves[count:])

    def _results(self, queries: Shape, keys: Instruction, values: Instruction) -> tuple[Shape, ...]:
        """The workspace is the last."""
        workspace = self.inst.shape.leaves[-1]
        if self.found.is_backward:
            return (*map(self._as_result, (queries, keys.shape, values.shape)), workspace)
        made = self._as_result(queries)
        made = made.with_dims((*made.dims[:3], values.shape.dims[3]))
        return made, Shape.array("f32", made.dims[:3]), workspace

    def _as_result(self, shape: Shape) -> Shape:
        """Heads before positions."""
        dims = shape.dims
        return shape.with_dims((dims[0], dims[self.found.heads], dims[self.found.length], dims[3]))

    def converted(self, x: Instruction, element_type: str) -> Instruction:
        """In another type."""
        shape = x.shape.with_type(element_type)
        return x if shape is x.shape else self.emitter.op("convert", shape, (x,))

    def joined(self, one: Arrays, other: Arrays) -> list[Instruction]:
        """Of two parts of the keys what is made of queries."""
        if self.found.is_backward:
            return self.added(one, other)
        emitter, results, sums = self.emitter, (one[0], other[0]), (one[1], other[1])
        top = emitter.binary("maximum", *sums)
        each = [self._unary("exponential", emitter.binary("subtract", x, top)) for x in sums]
        whole = emitter.binary("add", *each)
        shares = [self._along_features(emitter.binary("divide", x, whole), results[0]) for x in each]
        terms = [emitter.binary("multiply", x, share) for x, share in zip(results, shares, strict=True)]
        return [emitter.binary("add", *terms), emitter.binary("add", top, self._unary("log", whole))]

    def added(self, one: Arrays, other: Arrays) -> list[Instruction]:
        """Sums, each of two."""
        return [self.emitter.binary("add", x, y) for x, y in zip(one, other, strict=True)]

    def _unary(self, opcode: str, x: Instruction) -> Instruction:
        return self.emitter.op(opcode, x.shape, (x,))

    def _along_features(self, x: Instruction, like: Instruction) -> Instruction:
        return self.emitter.broadcast(x, like.shape.dims, (0, 1, 2))

    def positions(self, x: Instruction) -> int:
        """The dim of positions of an operand: sums have them where results do."""
        return self.found.length if x.shape.rank == 4 else RESULT_POSITIONS

    def nothing(self, x: Instruction) -> Instruction:
        """Like an array of results, gradients or sums, what leaves as it is that to which it is joined or added."""
        return self.emitter.full(_NO_EXPONENTIALS if x.shape.rank == 3 else 0, x.shape)
