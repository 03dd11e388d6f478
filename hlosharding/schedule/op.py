"""What a step of a schedule does: the interface that stage programs, transfers and users' ops have in common.

Floor: schedule.  An op says what it makes of types, what it makes of arrays, and what it costs.  The interpreter, the
verifier, the reference executor, the projection to ranks and the simulator know nothing else of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hlosharding.cost import CostReport, FlopsByType, Machine, StepBreakdown
from hlosharding.errors import HloShardingError, ScheduleError
from hlosharding.schedule.shares import Shares, map_shares
from hlosharding.schedule.tiles import Tiles, compute_on_tiles, compute_on_wholes
from hlosharding.schedule.value_type import Types, ValueType, devices_of_all, devices_text
from hlosharding.spmd import Pairs


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A value of which not only the type but every element is known."""

    array: np.ndarray
    """The whole array, as all devices of the submesh hold it together."""
    type: ValueType

    def __post_init__(self) -> None:
        object.__setattr__(self, "array", self.type.as_array(self.array))

    def __str__(self) -> str:
        return f"{self.type} = {np.array2string(self.array, threshold=8)}"


Value = ValueType | Known
"""Of an abstract value the type is all that is known."""


def type_of(value: Value) -> ValueType:
    """The type, whatever else is known."""
    return value.type if isinstance(value, Known) else value


class Work(NamedTuple):
    """What one application of an op costs each device that takes part."""

    seconds: float
    is_communication: bool = False
    received_bytes: float = 0.0
    """Mean over the devices."""
    temporary_bytes: float = 0.0
    """At the worst moment, beyond operands and results."""
    breakdown: StepBreakdown | None = None
    """Where the seconds of an op that computes go, if that is known."""

    @property
    def spent(self) -> StepBreakdown:
        """The same; where it is not known, all counts as arithmetic."""
        return self.breakdown or StepBreakdown(flops_s=self.seconds)


Groups = tuple[tuple[int, ...], ...]
"""Devices of the machine."""


class Op(ABC):
    """One kind of step.  Ops are values: equal ones do the same."""

    __slots__ = ()
    sums: Sequence[int] = ()
    """Numbers of results that sum over pieces, as gradients of parameters do."""
    donates: Sequence[int] = ()
    """Numbers of operands that the op may overwrite: they are gone afterwards."""
    is_view: ClassVar[bool] = False
    """Are the results the operands' own memory?"""
    is_program: ClassVar[bool] = False
    """Does it do what a program says, which need not end?"""

    @property
    @abstractmethod
    def name(self) -> str:
        """As it stands in a schedule's text."""

    @property
    def has_meaning(self) -> bool:
        """Does it say what it makes of arrays?  Else it can be simulated, not run."""
        return True

    @abstractmethod
    def infer(self, operands: Sequence[Value]) -> Sequence[Value]:
        """Results of operands of which some, or all, are known by type alone.  Raises ScheduleError."""

    @abstractmethod
    def meaning(self, arrays: Sequence[np.ndarray], types: Types) -> Sequence[np.ndarray]:
        """Whole arrays in, whole arrays out; `types` are those of the operands."""

    def compute(self, arrays: Sequence[np.ndarray], operands: Types, results: Types) -> list[np.ndarray]:
        """The same, as arrays of the results' types.  Raises ScheduleError for others: a user wrote what they are."""
        made = self.meaning(arrays, operands)
        if len(made) != len(results):
            raise ScheduleError(f"{self.name} computes {len(made)} arrays, it has the types of {len(results)}")
        try:
            return [kind.as_array(array) for array, kind in zip(made, results, strict=True)]
        except HloShardingError as error:
            raise ScheduleError(f"{self.name} computes {error.what}", remedy=error.remedy) from None

    def groups(self, operands: Types, results: Types) -> Groups:
        """Devices that must come together to do it on their tiles: each device is in one group.  Else all that take
        part are, and whole arrays are made of their tiles.
        """
        return (devices_of_all((*operands, *results)),)

    def on_tiles(self, tiles: Tiles, operands: Types, results: Types) -> Tiles:
        """What the devices of one group make of their tiles."""
        return compute_on_wholes(self.compute, tiles, operands, results)

    @abstractmethod
    def work(self, operands: Types, results: Types, machine: Machine) -> Work:
        """What it costs there."""

    def routes(self, operands: Types, results: Types) -> Pairs:
        """Who sends to whom while a transfer's bytes are under way; whose links others may use, too."""
        return ()

    @property
    def flops(self) -> FlopsByType:
        """Of the matrix products that one device runs."""
        return {}

    def report(self, machine: Machine) -> CostReport | None:
        """Where the costs come from, of an op that is a program: its source lines, its opcodes."""
        return None


class BuiltIn(Op):
    """An op that a schedule's text spells by a word of its own, and an attribute for each field."""

    __slots__ = ()
    word: ClassVar[str]

    @property
    def name(self) -> str:
        return self.word


class Tilewise(BuiltIn):
    """An op that does to tiles what it does to whole arrays: each device by itself, or those that meet."""

    __slots__ = ()

    def groups(self, operands: Types, results: Types) -> Groups:
        return tuple((device,) for device in devices_of_all((*operands, *results)))

    def on_tiles(self, tiles: Tiles, operands: Types, results: Types) -> Tiles:
        return compute_on_tiles(self.compute, tiles, operands, results)

    def work(self, operands: Types, results: Types, machine: Machine) -> Work:
        """Nothing, as of what is a view, or known beforehand."""
        return Work(0.0)


@dataclass(frozen=True, slots=True, eq=False)
class UserOp(Op):
    """An op that a user defines: its name, its types, what it means and what it costs.

    All operands lie on the same devices, where its results lie, too.

    >>> from hlosharding.ir import Shape
    >>> relu = UserOp("relu", lambda x: x, lambda x: np.maximum(x, 0), seconds=1e-6)
    >>> x = ValueType(Shape.array("f32", (4,)), (0,))
    >>> [str(t) for t in relu.infer([x])]
    ['f32[4] on {0}']
    """

    word: str
    types: Callable[..., Value | Sequence[Value]]
    """Types in; the type of the result out, or several, or `Known` values where the types tell every element."""
    arrays: Callable[..., Any] | None = None
    """Arrays in, an array or several out; None: schedules with it cannot run, only be simulated."""
    seconds: float | Callable[..., float] = 0.0
    """Or a function of the operands' types."""
    sums: Sequence[int] = ()
    """Numbers of results that sum over pieces, as gradients of parameters do."""
    donates: Sequence[int] = ()
    """Numbers of operands that it may overwrite."""
    static: Sequence[int] = ()
    """Numbers of operands whose elements tell the results' types, as those of a reshape's shape do: `types` gets them
    as `Known` values.  As static arguments of `jax.jit` they are known before a run: made of constants and of shapes.
    """
    temporary_bytes: float = 0.0

    @property
    def name(self) -> str:
        return f"@{self.word}"

    def infer(self, operands: Sequence[Value]) -> Sequence[Value]:
        self._check_static(operands)
        types = [type_of(value) for value in operands]
        check_same_devices(types)
        made = self.types(*[operands[n] if n in self.static else kind for n, kind in enumerate(types)])
        results: Sequence[Value] = [made] if isinstance(made, ValueType | Known) else list(made)
        shares = map_shares([t.shares for t in types], [n in self.sums for n in range(len(results))])
        return [_with_shares(value, share) for value, share in zip(results, shares, strict=True)]

    def _check_static(self, operands: Sequence[Value]) -> None:
        unknown = set(self.static).difference(n for n, value in enumerate(operands) if isinstance(value, Known))
        if unknown:
            what = f"the elements of operand {min(unknown)} of {self.name} are not known; types depend on them"
            raise ScheduleError(what, remedy="make it of constants and of shapes")

    @property
    def has_meaning(self) -> bool:
        return self.arrays is not None

    def meaning(self, arrays: Sequence[np.ndarray], types: Types) -> Sequence[np.ndarray]:
        if self.arrays is None:
            raise no_meaning(self)
        made = self.arrays(*arrays)
        return [np.asarray(a) for a in made] if isinstance(made, tuple | list) else [np.asarray(made)]

    def groups(self, operands: Types, results: Types) -> Groups:
        kinds = (*operands, *results)
        [together] = Op.groups(self, operands, results)
        return tuple((n,) for n in together) if all(kind.sharding.is_replicated() for kind in kinds) else (together,)

    def on_tiles(self, tiles: Tiles, operands: Types, results: Types) -> Tiles:
        # A device alone has all of what it needs (`groups`): its tiles are the wholes.
        law = compute_on_tiles if len(tiles) == 1 else compute_on_wholes
        return law(self.compute, tiles, operands, results)

    def work(self, operands: Types, results: Types, machine: Machine) -> Work:
        seconds = self.seconds(*operands) if callable(self.seconds) else self.seconds
        return Work(seconds, temporary_bytes=self.temporary_bytes)


def _with_shares(value: Value, shares: Shares) -> Value:
    if isinstance(value, Known):
        return Known(value.array, replace(value.type, shares=shares))
    return replace(value, shares=shares)


def no_meaning(op: Op) -> ScheduleError:
    """Why a schedule with this op cannot run."""
    return ScheduleError(f"nothing says what {op.name} computes", remedy="define it with `arrays=`")


def check_same_devices(types: Types) -> tuple[int, ...]:
    """The devices on which all lie, () of none.  Raises ScheduleError where one lies elsewhere."""
    devices = types[0].devices if types else ()
    for number, each in enumerate(types):
        if each.devices != devices:
            raise ScheduleError(
                f"operand {number} lies on {devices_text(each.devices)}, operand 0 on {devices_text(devices)}",
                remedy="send it first",
            )
    return devices


def check_count(count: int, operands: Sequence[Value], op: Op) -> None:
    """Raise ScheduleError unless there are `count` operands."""
    if len(operands) != count:
        raise ScheduleError(f"{op.name} takes {count} operands, {len(operands)} were given")
