"""Where a random program grows: one computation, the values in it, and what is known of their magnitudes.

A value is *exact* when rounding cannot occur in it in any order of summation: its elements are multiples of a quantum,
few enough of them to fit the mantissa.  Ops that jump (sort, compare, floor, a conversion to integers) take exact
values only, so that a partitioned program, which adds in another order, must agree with one device's run to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from random import Random
from typing import Any, TypeAlias

import numpy as np

from hlosharding.ir import Builder, Computation, ComputationBuilder, Instruction, Shape

MANTISSA = {"f32": 2.0**24, "bf16": 2.0**8, "c64": 2.0**24}
DIMS = (1, 2, 2, 3, 3, 4, 4, 5, 6, 6, 7, 8, 8, 9, 12, 16)
MAX_SIZE = 3000
MAX_MAGNITUDE = 1e4


@dataclass(frozen=True)
class Value:
    """An array in the program, the largest magnitude its elements can have, and what they are multiples of."""

    inst: Instruction
    magnitude: float = 8.0
    quantum: float = 1.0
    """0 where elements are rounded."""

    @property
    def kind(self) -> str:
        return self.inst.shape.element_type

    @property
    def dims(self) -> tuple[int, ...]:
        return self.inst.shape.dims

    @property
    def rank(self) -> int:
        return self.inst.shape.rank

    @property
    def is_exact(self) -> bool:
        levels = MANTISSA.get(self.kind)
        return levels is None or (self.quantum > 0 and self.magnitude / self.quantum <= levels)

    @property
    def is_float(self) -> bool:
        return self.kind in ("f32", "bf16")


@dataclass
class Scope:
    """One computation under construction.  `random` decides all; only the entry may take new parameters."""

    builder: Builder
    computation: ComputationBuilder
    random: Random
    pool: list[Value] = field(default_factory=list[Value])
    is_entry: bool = False
    reducers: dict[str, Computation] = field(default_factory=dict[str, Computation])
    integers: dict[Instruction, tuple[int, int]] = field(default_factory=dict[Instruction, tuple[int, int]])
    """Bounds of integer parameters, for whoever feeds them."""

    # Choices

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def dim(self) -> int:
        return self.random.choice(DIMS)

    def shape(self, kind: str, rank: int | None = None) -> Shape:
        """A random shape of bounded size."""
        rank = self.random.choice((1, 2, 2, 3, 3, 4)) if rank is None else rank
        while True:
            dims = tuple(self.dim() for _ in range(rank))
            if prod(dims) <= MAX_SIZE // 4:
                return Shape.array(kind, dims)

    def subset(self, items: Sequence[int], *, at_least: int = 0, at_most: int | None = None) -> tuple[int, ...]:
        """A random subset, sorted."""
        most = len(items) if at_most is None else min(at_most, len(items))
        return tuple(sorted(self.random.sample(list(items), self.random.randint(min(at_least, most), most))))

    # Values

    def value(self, where: Callable[[Value], bool] = lambda value: True, *, kind: str | None = None) -> Value | None:
        """A random value that `where` accepts, recent ones more often; sometimes a new parameter."""
        fit = [v for v in self.pool if where(v) and (kind is None or v.kind == kind)]
        if self.is_entry and (not fit or self.chance(0.1)):
            for _ in range(4):
                fresh = self.parameter(self.shape(kind or self.random.choice(("f32", "f32", "s32", "bf16"))), dry=True)
                if where(fresh):
                    return self.parameter(fresh.inst.shape)
        if not fit:
            return None
        return fit[max(self.random.randrange(len(fit)), self.random.randrange(len(fit)))]

    def like(self, value: Value) -> Value:
        """A value of the same shape and type."""
        same = [v for v in self.pool if v.inst.shape == value.inst.shape and v.inst is not value.inst]
        if same and self.chance(0.8):
            return self.random.choice(same)
        return self.fresh(value.inst.shape)

    def fresh(self, shape: Shape) -> Value:
        """A value of this shape out of the pool, or a new parameter or constant."""
        same = [v for v in self.pool if v.inst.shape == shape]
        if same and self.chance(0.5):
            return self.random.choice(same)
        if self.is_entry and len(self.integers) < 10 and self.chance(0.8):
            return self.parameter(shape)
        return self.splat(shape) if self.chance(0.4) else self.constant(shape)

    def parameter(self, shape: Shape, *, bounds: tuple[int, int] = (-4, 8), dry: bool = False) -> Value:
        """A new entry parameter; `dry` only says what it would be."""
        if dry:
            outside = Builder("none").computation("none")
            return Value(outside.parameter(0, shape), 4.0, 0.25)
        inst = self.computation.parameter(len(self.computation.computation.parameters), shape)
        self.integers[inst] = bounds
        return self.keep(Value(inst, 4.0, 0.25))

    def constant(self, shape: Shape) -> Value:
        """A constant of random elements."""
        numbers = [self.random.randint(-8, 8) for _ in range(shape.size)]
        array = np.array(numbers, np.float64).reshape(shape.dims)
        array = array > 0 if shape.element_type == "pred" else array if shape.is_integral else array / 4
        return self.keep(Value(self.literal(array.astype(shape.dtype)), 8.0, 0.25))

    def literal(self, value: Any) -> Instruction:
        return self.computation.constant(np.asarray(value))

    def scalar(self, kind: str, value: float) -> Instruction:
        return self.literal(np.asarray(value).astype(Shape.array(kind).dtype))

    def splat(self, shape: Shape, value: float | None = None) -> Value:
        """A broadcast scalar."""
        number = self.random.randint(-8, 8) / 4 if value is None else value
        number = int(number) if shape.is_integral else number
        scalar = self.scalar(shape.element_type, number)
        inst = self.add("broadcast", shape, [scalar], dimensions=())
        return self.keep(Value(inst, abs(number), 0.25 if value is None else 2.0**-20))

    def index(self, limit: int) -> Instruction:
        """A scalar s32 to slice by, now and then out of bounds."""
        known = [v for v in self.pool if v.kind == "s32" and v.rank == 0]
        if known and self.chance(0.5):
            return self.random.choice(known).inst
        if self.is_entry and self.chance(0.6):
            return self.parameter(Shape.array("s32"), bounds=(-1, limit + 1)).inst
        return self.scalar("s32", self.random.randint(0, limit))

    # Building

    def add(self, opcode: str, shape: Shape, operands: Sequence[Instruction], **attributes: Any) -> Instruction:
        return self.computation.add(opcode, shape, operands, **attributes)

    def keep(self, value: Value) -> Value:
        """Put a value into the pool; floats that grew too large are scaled down first."""
        if value.is_float and value.magnitude > MAX_MAGNITUDE:
            value = self.scaled(value)
        self.pool.append(value)
        return value

    def scaled(self, value: Value) -> Value:
        """Multiplied by a power of two, so that it is small again (and as exact as it was)."""
        factor = 2.0 ** -np.ceil(np.log2(value.magnitude / 8))
        by = self.add("broadcast", value.inst.shape, [self.scalar(value.kind, factor)], dimensions=())
        inst = self.add("multiply", value.inst.shape, [value.inst, by])
        return replace(value, inst=inst, magnitude=value.magnitude * factor, quantum=value.quantum * factor)

    def emit(
        self,
        opcode: str,
        shape: Shape,
        operands: Sequence[Value],
        magnitude: float,
        quantum: float = 0.0,
        **attributes: Any,
    ) -> Value:
        """An op on values, kept in the pool."""
        inst = self.add(opcode, shape, [v.inst for v in operands], **attributes)
        return self.keep(Value(inst, magnitude, quantum))

    def reducer(self, opcode: str, kind: str) -> Computation:
        """The computation that applies `opcode` to two scalars."""
        key = f"{opcode}_{kind}"
        if key not in self.reducers:
            build, shape = self.builder.computation(key), Shape.array(kind)
            x, y = build.parameter(0, shape), build.parameter(1, shape)
            if opcode in ("LT", "GT", "GE"):
                build.add("compare", Shape.array("pred"), [x, y], comparison_direction=opcode)
            elif opcode == "assign":
                build.root(y)
            else:
                build.add(opcode, shape, [x, y])
            self.reducers[key] = build.computation
        return self.reducers[key]

    def inside(self, name: str, shapes: Sequence[Shape]) -> Scope:
        """A scope for a called computation with one tuple parameter; its leaves are rounded values below 8."""
        build = self.builder.computation(name)
        whole = build.parameter(0, Shape.tuple(tuple(shapes)))
        inner = Scope(self.builder, build, self.random, reducers=self.reducers)
        for number, shape in enumerate(shapes):
            leaf = build.add("get-tuple-element", shape, [whole], tuple_index=number)
            inner.pool.append(Value(leaf, 8.0, 0.0))
        return inner


Maker: TypeAlias = Callable[[Scope], Value | None]
"""Adds an op (or a few) to a scope; None where nothing in the scope fits it."""
