"""Random HLO modules as text: every family of ops, random shardings of every kind, control flow and annotations.

A module is a function of its seed.  Sizes are small and often odd, device counts and orders too.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

Dims = tuple[int, ...]
SIZES = (1, 2, 3, 4, 5, 6, 8, 8, 12, 16)


@dataclass(frozen=True)
class Value:
    """An instruction that later ones may use."""

    name: str
    dims: Dims
    type: str = "f32"

    @property
    def shape(self) -> str:
        return f"{self.type}[{','.join(map(str, self.dims))}]"


@dataclass
class Body:
    """A computation being written."""

    lines: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    tuples: list[tuple[str, list[Value]]] = field(default_factory=list)


def shape_text(dims: Dims, element_type: str = "f32") -> str:
    """XLA's text of an array shape."""
    return f"{element_type}[{','.join(map(str, dims))}]"


def braces(numbers: object) -> str:
    """A dim list as HLO text writes it."""
    return "{" + ",".join(map(str, numbers)) + "}"  # type: ignore[call-overload]


class ModuleWriter:
    """Writes one module."""

    def __init__(
        self,
        seed: int,
        *,
        ops: int = 12,
        manual: bool = True,
        groups: bool = True,
        unreduced: bool = False,
        nesting: bool = False,
        metadata: bool = False,
    ) -> None:
        self.random = random.Random(seed)
        self.ops, self.manual, self.groups = ops, manual, groups
        self.unreduced, self.nesting, self.metadata = unreduced, nesting, metadata
        self.devices = self.random.choice((2, 4, 4, 6, 8, 8, 8, 12, 16))
        self.density = self.random.choice((0.1, 0.2, 0.4))
        self.count = 0
        self.regions: list[str] = []
        self.body = Body()
        self.depth = 0

    # ---- text

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}.{self.count}"

    def emit(
        self, opcode: str, dims: Dims, args: str, attributes: str = "", element_type: str = "f32", *, free: bool = False
    ) -> Value:
        """One array-valued instruction, perhaps annotated unless it is to be free."""
        value = Value(self.fresh(opcode.replace("-", "_")), dims, element_type)
        extra = f", {attributes}" if attributes else ""
        sharding = ""
        if not free and "sharding=" not in attributes and self.random.random() < self.density:
            sharding = f", sharding={self.sharding(dims)}"
        if self.metadata and self.random.random() < 0.3:
            sharding += f', metadata={{op_name="{self.random.choice("abc")}"}}'
        self.body.lines.append(f"  %{value.name} = {value.shape} {opcode}({args}){extra}{sharding}")
        self.body.values.append(value)
        return value

    def region(self, operation: str = "add", element_type: str = "f32", pairs: int = 1) -> str:
        """A reducer, comparator or map body; returns its name."""
        name = self.fresh("region")
        lines = [f"  %{name}.p{n} = {element_type}[] parameter({n})" for n in range(2 * pairs)]
        if operation == "compare":
            lines.append(f"  ROOT %{name}.r = pred[] compare(%{name}.p0, %{name}.p1), direction=LT")
        elif pairs == 1:
            lines.append(f"  ROOT %{name}.r = {element_type}[] {operation}(%{name}.p0, %{name}.p1)")
        else:
            parts = []
            for n in range(pairs):
                lines.append(f"  %{name}.s{n} = {element_type}[] {operation}(%{name}.p{n}, %{name}.p{n + pairs})")
                parts.append(f"%{name}.s{n}")
            shape = ", ".join([f"{element_type}[]"] * pairs)
            lines.append(f"  ROOT %{name}.r = ({shape}) tuple({', '.join(parts)})")
        self.regions.append(f"%{name} {{\n" + "\n".join(lines) + "\n}\n")
        return name

    # ---- shardings

    def sharding(self, dims: Dims) -> str:
        """A random sharding that fits a rank."""
        roll = self.random.random()
        if roll < 0.08:
            return self.of_kind("R", dims)
        if roll < 0.11:
            return self.of_kind("M", dims)
        if self.manual and roll < 0.14:
            return self.of_kind("N", dims)
        return self.tiled(dims)

    def tiled(self, dims: Dims) -> str:
        """Random tile counts, device order, and subgroups."""
        if self.manual and self.random.random() < 0.08:
            return self.of_kind("S", dims)
        if self.unreduced and self.random.random() < 0.3:
            return self.of_kind("U", dims)
        return self.of_kind(self.random.choice("TPPP"), dims)

    def of_kind(self, kind: str, dims: Dims) -> str:
        """A random sharding of the kind with that letter (`coverage.KINDS`), as far as a rank allows it."""
        if kind in "RNM":
            one = f"{{maximal device={self.random.randrange(self.devices)}}}"
            return {"R": "{replicated}", "N": "{manual}", "M": one}[kind]
        counts, left = self._tile_counts(dims, whole=kind == "T")
        if kind == "U" and self.random.random() < 0.1:
            counts, left = [1] * len(dims), self.devices
        if kind in "SU":
            word = "manual" if kind == "S" else "unreduced"
            parts = [d for d in _divisors(left) if d > 1]
            # One manual group of all devices is another kind, and XLA often ends at one unreduced group of all.
            rather_not = math.prod(counts) == 1 and (kind == "S" or self.random.random() < 0.7)
            part = self.random.choice((parts[:-1] if rather_not else parts) or [left])
            tail, types = [part, left // part], f" last_tile_dims={{{word}, replicated}}"
            if part == left and self.random.random() < 0.5:
                tail, types = [part], f" last_tile_dims={{{word}}}"
        elif math.prod(counts) == 1:
            return "{replicated}"
        else:
            tail, types = ([left], " last_tile_dim_replicate") if left > 1 else ([], "")
        return f"{{devices=[{','.join(map(str, [*counts, *tail]))}]{self.device_order()}{types}}}"

    def _tile_counts(self, dims: Dims, *, whole: bool) -> tuple[list[int], int]:
        """Devices along each dim, and how many are left; all of them in tiles, or all but some."""
        left, counts = self.devices, [1] * len(dims)
        factors = _prime_factors(left)
        self.random.shuffle(factors)
        for factor in factors if whole else factors[1:]:
            if dims and (whole or self.random.random() < 0.7):
                counts[self.random.randrange(len(dims))] *= factor
                left //= factor
        return counts, left

    def device_order(self) -> str:
        """An iota, a transposed iota or any order at all."""
        roll, n = self.random.random(), self.devices
        if roll < 0.6:
            return f"<=[{n}]"
        if roll < 0.9:
            split = self.random.choice(_divisors(n))
            if 1 < split < n:
                return f"<=[{split},{n // split}]T(1,0)"
            return f"<=[{n}]"
        order = list(range(n))
        self.random.shuffle(order)
        return ",".join(map(str, order))

    # ---- values to work on

    def pick(self, rank: int | None = None, element_type: str = "f32", least: int = 0) -> Value:
        """A value of that rank (or at least that rank), new if there is none."""
        fits = [
            v for v in self.body.values
            if v.type == element_type and (rank is None or len(v.dims) == rank) and len(v.dims) >= least
        ]  # fmt: skip
        if fits and self.random.random() < 0.9:
            # Late values more often, so that graphs get deep.
            return fits[max(self.random.randrange(len(fits)), self.random.randrange(len(fits)))]
        size = rank if rank is not None else max(least, self.random.randint(1, 4))
        return self.source(tuple(self.random.choice(SIZES) for _ in range(size)), element_type)

    def like(self, dims: Dims, element_type: str = "f32") -> Value:
        """A value of exactly those dims."""
        fits = [v for v in self.body.values if v.dims == dims and v.type == element_type]
        if fits and self.random.random() < 0.8:
            return self.random.choice(fits)
        return self.source(dims, element_type)

    def source(self, dims: Dims, element_type: str = "f32") -> Value:
        """A value from nowhere: iota, a broadcast constant, or (in the entry) a parameter added later."""
        roll = self.random.random()
        if self.depth == 0 and roll < 0.6:
            return self.parameter(dims, element_type)
        if dims and roll < 0.8:
            return self.emit("iota", dims, "", f"iota_dimension={self.random.randrange(len(dims))}", element_type)
        scalar = self.emit("constant", (), "1", "", element_type)
        if not dims:
            return scalar
        return self.emit("broadcast", dims, f"%{scalar.name}", "dimensions={}", element_type)

    def parameter(self, dims: Dims, element_type: str = "f32", sharding: str = "", *, free: bool = False) -> Value:
        """A new parameter of the entry."""
        attributes = f"sharding={sharding}" if sharding else ""
        return self.emit("parameter", dims, str(self.parameters), attributes, element_type, free=free)

    @property
    def parameters(self) -> int:
        """How many the computation has so far."""
        return sum(" parameter(" in line for line in self.body.lines)

    # ---- the module

    def write(self) -> str:
        """The text."""
        self.parameter(tuple(self.random.choice(SIZES) for _ in range(self.random.randint(1, 3))))
        for _ in range(self.ops):
            self.random.choice(_WRITERS)(self)
        root = self._root()
        entry = "ENTRY %main {\n" + "\n".join(self.body.lines) + "\n" + root + "\n}\n"
        return f"HloModule random\n\n{''.join(r + chr(10) for r in self.regions)}{entry}"

    def _root(self) -> str:
        values = self.random.sample(self.body.values, min(len(self.body.values), self.random.randint(1, 3)))
        if len(values) == 1 and self.random.random() < 0.5:
            sharding = f", sharding={self.sharding(values[0].dims)}" if self.random.random() < 0.5 else ""
            return f"  ROOT %root = {values[0].shape} copy(%{values[0].name}){sharding}"
        sharding = ""
        if self.random.random() < 0.4:
            sharding = f", sharding={{{', '.join(self.sharding(v.dims) for v in values)}}}"
        shapes, names = ", ".join(v.shape for v in values), ", ".join(f"%{v.name}" for v in values)
        return f"  ROOT %root = ({shapes}) tuple({names}){sharding}"


def _prime_factors(number: int) -> list[int]:
    factors, p = [], 2
    while number > 1:
        while number % p == 0:
            factors.append(p)
            number //= p
        p += 1
    return factors


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def random_module(seed: int, **options: object) -> str:
    """The module of that seed."""
    return ModuleWriter(seed, **options).write()  # type: ignore[arg-type]


_WRITERS: list[Callable[[ModuleWriter], None]] = []


def writes(weight: int = 1) -> Callable[[Callable[[ModuleWriter], None]], Callable[[ModuleWriter], None]]:
    """Enter a writer of one family of ops, to be drawn `weight` times as often as others."""

    def enter(writer: Callable[[ModuleWriter], None]) -> Callable[[ModuleWriter], None]:
        _WRITERS.extend([writer] * weight)
        return writer

    return enter


from tests.oracle import random_control_flow, random_ops  # noqa: E402, F401 - fills the table
