"""Flash attention on parts: what a call makes of some queries and some keys, and how parts are put together.

Floor: partitioner.  The softmax is that of all keys whatever part comes first: with a result goes the logarithm of what
its exponentials sum to, in f32 (Milakov and Gimelshein 2018, Dao et al. 2022).  Backward the sums are those of all keys
already, so that parts of gradients add.

Under a causal mask parts are made as much work on each device.  The first queries see few keys, and the last ones all.
So each device keeps the first half of its part, and changes the other one for that of the device as far from the end as
it is from the front: what it has then is as far from both ends (as in Llama 3, section 3.3.2, whose sequences are read
in that order).

    given       0 1   2 3   4 5   6 7
    spread      0 7   2 5   3 4   1 6         device 3 has 6, its own, and 1

Of its own halves a device computes what a causal mask shows; of those of another one half is seen, whole, and no more
is computed:

                        keys of a device whose front is before      behind
                        front        end                            front        end
    queries   front     seen         -                              -            -
              end       seen         -                              seen         seen
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

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
        # Gradients of keys stay as they are, for they go round: in f32 they would be twice the bytes of keys in bf16.
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
        # With the larger sum taken off, no exponential is above 1, so that none overflows.
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


Halves = tuple[Instruction, Instruction]


class Balance(NamedTuple):
    """Of the devices of each group, in the order of their parts."""

    parts: AttentionParts
    groups: tuple[tuple[int, ...], ...]
    places: tuple[int, ...]
    """Of each device in its group."""

    @property
    def emitter(self) -> Emitter:
        return self.parts.emitter

    def spread(self, x: Instruction, dim: int) -> Instruction:
        """The front and the end, of two halves that were neighbours."""
        kept, given = cut_in_two(self.emitter, x, dim)
        return self.emitter.concatenate(self._in_turn(kept, self._exchanged(given)), dim)

    def gathered(self, x: Instruction) -> Instruction:
        """Of a result the two halves that are neighbours."""
        kept, given = self._in_turn(*cut_in_two(self.emitter, x, RESULT_POSITIONS))
        return self.emitter.concatenate((kept, self._exchanged(given)), RESULT_POSITIONS)

    def _exchanged(self, x: Instruction) -> Instruction:
        # Of an odd number the device in the middle sends to itself: who is left out of a permute receives zeros.
        pairs = [pair for group in self.groups for pair in zip(group, reversed(group), strict=True)]
        return self.emitter.collective_permute(x, pairs)

    def _in_turn(self, one: Instruction, other: Instruction) -> Halves:
        """In this order on devices of the first half, else in the other one."""
        is_first = self._is_true([2 * place < len(self.groups[0]) for place in self.places])
        return self.emitter.select(is_first, one, other), self.emitter.select(is_first, other, one)

    def _is_true(self, table: Sequence[bool]) -> Instruction:
        found = self.emitter.per_device(list(map(int, table)))
        return self.emitter.compare(found, "EQ", self.emitter.constant(np.int32(1)))

    def _front_of(self, place: int) -> int:
        """Which of all halves is a device's front."""
        size = len(self.groups[0])
        return min(2 * place, 2 * (size - place) - 1)

    def met(self, own: Arrays, keys: Arrays, step: int) -> list[Made]:
        """What queries make of the keys of the device `step` places before: two pairs of halves, in one call."""
        emitter, parts, size = self.emitter, self.parts, len(self.groups[0])
        is_before = self._is_true([self._front_of((n - step) % size) < self._front_of(n) for n in self.places])
        halves = [cut_in_two(emitter, x, parts.positions(x)) for x in own]
        queries = [self._two(end, emitter.select(is_before, front, end)) for front, end in halves]
        halves = [cut_in_two(emitter, x, parts.positions(x)) for x in keys]
        met = [self._two(front, emitter.select(is_before, front, end)) for front, end in halves]
        made = parts.call(queries, met, sees_all=True)
        of_queries, of_keys = ([cut_in_two(emitter, x, 0) for x in side] for side in (made.of_queries, made.of_keys))
        first = Made([self._end(x) for x, _ in of_queries], [self._front(x) for x, _ in of_keys])
        second = Made(*([self._either(is_before, x) for _, x in side] for side in (of_queries, of_keys)))
        return [first, second]

    def _two(self, one: Instruction, other: Instruction) -> Instruction:
        """As sequences of one call."""
        return self.emitter.concatenate((one, other), 0)

    def _front(self, x: Instruction) -> Instruction:
        return self.emitter.concatenate((x, self.parts.nothing(x)), RESULT_POSITIONS)

    def _end(self, x: Instruction) -> Instruction:
        return self.emitter.concatenate((self.parts.nothing(x), x), RESULT_POSITIONS)

    def _either(self, is_front: Instruction, x: Instruction) -> Instruction:
        return self.emitter.select(is_front, self._front(x), self._end(x))


def cut_in_two(emitter: Emitter, x: Instruction, dim: int) -> Halves:
    """Two equal parts along a dim."""
    size = x.shape.dims[dim]
    return emitter.slice_along(x, dim, 0, size // 2), emitter.slice_along(x, dim, size // 2, size)
