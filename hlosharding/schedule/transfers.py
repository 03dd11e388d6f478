"""Steps between submeshes: sends, and collectives of values that lie on different devices each.

Floor: schedule.  Operand n of a collective lies on submesh n, all submeshes have one size, and device i of one
exchanges with device i of the others.  Collectives inside a stage program are the partitioner's, these the schedule's.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from hlosharding.cost import Machine, group_placement, permute_placement, placement_time
from hlosharding.errors import ScheduleError
from hlosharding.schedule.local_ops import Concat, Split, add_up, check_order, check_same_kind
from hlosharding.schedule.op import BuiltIn, Groups, Op, Tilewise, Value, Work, check_count, type_of
from hlosharding.schedule.shares import join_shares
from hlosharding.schedule.value_type import Types, ValueType, devices_text
from hlosharding.sharding import HloSharding
from hlosharding.spmd import Pairs, bytes_received


@dataclass(frozen=True, slots=True)
class Send(BuiltIn):
    """Move a value to other devices; the sender keeps it until it is freed.

    >>> from hlosharding.ir import Shape
    >>> str(Send(to=(1,)).infer([ValueType(Shape.array("f32", (4,)), (0,))])[0])
    'f32[4] on {1}'
    """

    word: ClassVar[str] = "send"
    to: tuple[int, ...]
    sharding: HloSharding | None = None
    """On arrival; None: as on departure, which takes as many devices."""

    def infer(self, operands: Sequence[Value]) -> Types:
        check_count(1, operands, self)
        found = type_of(operands[0])
        if not self.to or set(self.to) & set(found.devices):
            raise ScheduleError(f"it is sent from {devices_text(found.devices)} to {devices_text(self.to)}")
        sharding = self.sharding or found.sharding
        if len(self.to) != len(found.devices) and self.sharding is None and not sharding.is_replicated():
            remedy = "say how it lies there: to ... as {devices=...}"
            raise ScheduleError(f"{found} is sent to {len(self.to)} devices", remedy=remedy)
        # The value's own was checked where it was made.
        if self.sharding is not None:
            self.sharding.validate(found.shape.dims, len(self.to))
        return [ValueType(found.shape, self.to, sharding, found.shares)]

    def meaning(self, arrays: Sequence[np.ndarray], types: Types) -> Sequence[np.ndarray]:
        return list(arrays)

    def routes(self, operands: Types, results: Types) -> Pairs:
        return pair_devices(operands[0].devices, self.to)

    def work(self, operands: Types, results: Types, machine: Machine) -> Work:
        size = float(results[0].tile_bytes)
        where = permute_placement(self.routes(operands, results), machine)
        slowest = machine.kind_of((*operands[0].devices, *self.to))
        return Work(placement_time("collective-permute", size, where, slowest)[0], True, size)


def pair_devices(source: Sequence[int], target: Sequence[int]) -> Pairs:
    """Who sends to whom; where there are fewer senders each serves several.

    >>> pair_devices((0, 1), (4, 5, 6, 7))
    ((0, 4), (0, 5), (1, 6), (1, 7))
    """
    return tuple((source[n * len(source) // len(target)], device) for n, device in enumerate(target))


class SubmeshCollective(Tilewise):
    """What the collectives share: operands alike on submeshes of one size that have no device in common."""

    __slots__ = ()

    @property
    def kind(self) -> str:
        """XLA's opcode: the formula of its price."""
        return self.word

    def infer(self, operands: Sequence[Value]) -> Types:
        types = [type_of(value) for value in operands]
        if not types:
            raise ScheduleError(f"{self.name} takes one operand or more")
        devices = [device for each in types for device in each.devices]
        if len({len(each.devices) for each in types}) > 1 or len(set(devices)) != len(devices):
            where = " and ".join(devices_text(each.devices) for each in types)
            raise ScheduleError(f"its operands lie on {where}", remedy="on submeshes of one size, apart")
        check_same_kind(types)
        return self.results(types)

    def groups(self, operands: Types, results: Types) -> Groups:
        return tuple(zip(*(each.devices for each in operands), strict=True))

    def routes(self, operands: Types, results: Types) -> Pairs:
        """Round a ring, whatever the algorithm: each device's way out and way in is used."""
        groups = self.groups(operands, results)
        return tuple(pair for ring in groups if len(ring) > 1 for pair in zip(ring, (*ring[1:], ring[0]), strict=True))

    @abstractmethod
    def results(self, types: Types) -> Types:
        """Of operands that are alike."""

    def work(self, operands: Types, results: Types, machine: Machine) -> Work:
        where = group_placement(self.groups(operands, results), machine)
        slowest = machine.kind_of([device for each in operands for device in each.devices])
        # Prices are of the full buffer: an all-gather's result has it, a reduce-scatter's operand.
        size = float(max(operands[0].tile_bytes, results[0].tile_bytes))
        received = bytes_received(self.kind, size, len(operands))
        return Work(placement_time(self.kind, size, where, slowest)[0], True, received)


def _type_of_sum(types: Types, op: Op) -> ValueType:
    """The type of the sum.  Raises ScheduleError where a whole value is reduced: it has been already."""
    if not any(share.is_sum for share in types[0].shares):
        raise ScheduleError(
            f"{op.name} of values that are no terms of a sum: they were reduced already",
            remedy="leave it out, or say `sums=` of the op that makes terms",
        )
    return replace(types[0], shares=join_shares([each.shares for each in types], is_sum=True))


@dataclass(frozen=True, slots=True)
class SubmeshAllReduce(SubmeshCollective):
    """Terms of one sum on several submeshes; each gets the sum.

    >>> from hlosharding.ir import Shape
    >>> from hlosharding.schedule.shares import Share
    >>> terms = [ValueType(Shape.array("f32", (4,)), (n,), shares=(Share("data", 2, (n,), True),)) for n in range(2)]
    >>> [str(found) for found in SubmeshAllReduce().infer(terms)]
    ['f32[4] on {0}', 'f32[4] on {1}']
    """

    word: ClassVar[str] = "all-reduce"

    def results(self, types: Types) -> Types:
        made = _type_of_sum(types, self)
        return [replace(made, devices=each.devices) for each in types]

    def meaning(self, arrays: Sequence[np.ndarray], types: Types) -> Sequence[np.ndarray]:
        return [add_up(arrays)] * len(arrays)


@dataclass(frozen=True, slots=True)
class SubmeshReduce(SubmeshCollective):
    """Terms of one sum on several submeshes; one of them gets the sum: the owner of a parameter, in ZeRO."""

    word: ClassVar[str] = "reduce"
    to: tuple[int, ...]

    @property
    def kind(self) -> str:
        # XLA has no collective that leaves a sum on one device.
        return "all-reduce"

    def results(self, types: Types) -> Types:
        if self.to not in [each.devices for each in types]:
            raise ScheduleError(f"no operand lies on {devices_text(self.to)}, where the sum shall be")
        return [replace(_type_of_sum(types, self), devices=self.to)]

    def meaning(self, arrays: Sequence[np.ndarray], types: Types) -> Sequence[np.ndarray]:
        return [add_up(arrays)]


@dataclass(frozen=True, slots=True)
class SubmeshReduceScatter(SubmeshCollective):
    """Terms of one sum on several submeshes; submesh n gets piece n of the sum, along a dim."""

    word: ClassVar[str] = "reduce-scatter"
    dim: int
    axis: str

    def results(self, types: Types) -> Types:
        pieces = Split(self.dim, len(types), self.axis).infer([_type_of_sum(types, self)])
        return [replace(piece, devices=each.devices) for piece, each in zip(pieces, types, strict=True)]

    def meaning(self, arrays: Sequence[np.ndarray], types: Types) -> Sequence[np.ndarray]:
        return Split(self.dim, len(types), self.axis).meaning([add_up(arrays)], types[:1])


@dataclass(frozen=True, slots=True)
class SubmeshAllGather(SubmeshCollective):
    """Pieces on several submeshes; each gets them all, joined along a dim."""

    word: ClassVar[str] = "all-gather"
    dim: int

    def results(self, types: Types) -> Types:
        check_order(types)
        there = [replace(each, devices=types[0].devices) for each in types]
        [made] = Concat(self.dim).infer(there)
        return [replace(made, devices=each.devices) for each in types]

    def meaning(self, arrays: Sequence[np.ndarray], types: Types) -> Sequence[np.ndarray]:
        return list(Concat(self.dim).meaning(arrays, types)) * len(arrays)
