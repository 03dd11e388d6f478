"""One written instance or more of every opcode that has a rule, as one line of HLO each (`cases.txt`).

`name | shape parameter, ... : instruction` makes a module of these parameters whose root is the instruction; reducers
stand in `reducers.hlo`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from numpy.random import Generator

from hlosharding.ir import ELEMENTWISE, ELEMENTWISE_BINARY, Instruction, Module, Shape
from hlosharding.xla_bridge import hlo_text_to_proto

HERE = Path(__file__).parent
REDUCERS = (HERE / "reducers.hlo").read_text()

_UNARY_TYPES = {
    "not": ("s32", "s32"), "popcnt": ("s32", "s32"), "count-leading-zeros": ("s32", "s32"), "imag": ("c64", "f32"),
    "real": ("c64", "f32"), "is-finite": ("f32", "pred"), "convert": ("f32", "bf16"), "bitcast-convert": ("f32", "s32"),
}  # fmt: skip
_INTEGER_BINARY = (
    "and",
    "mulhi",
    "or",
    "xor",
    "remainder",
    "shift-left",
    "shift-right-arithmetic",
    "shift-right-logical",
)
_ATTRIBUTES = {"compare": ", direction=LT", "reduce-precision": ", exponent_bits=5, mantissa_bits=3"}

# A case that XLA's CPU compiler refuses has no one-device run to compare with.
NOT_COMPILED_ON_CPU = {
    **dict.fromkeys(
        ("acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh"),
        "JAX expands it before XLA sees it; XLA:CPU has no code for it; same rule as all pointwise ops",
    ),
    "ragged-dot": "XLA:CPU has no code for it; tested through JAX's own expansion in test_ragged_dot.py",
    "custom-call": "its meaning is the target's; tested on what JAX emits in test_custom_calls.py",
    "rng": "its values differ from run to run",
    "collective-broadcast": "XLA:CPU has no code for it; same rule as collective-permute",
}


@dataclass(frozen=True)
class Case:
    """A module of one instruction on parameters, and how many devices it runs on."""

    name: str
    text: str
    devices: int = field(default=1)

    @property
    def module(self) -> Module:
        return _module(self.text)

    @property
    def inst(self) -> Instruction:
        return self.module.entry.root

    def arguments(self, rng: Generator) -> list[np.ndarray]:
        """Random values for the parameters, a leading axis of devices before their dims."""
        return [random_values(p.shape, self.inst.opcode, rng, self.devices) for p in self.module.entry.parameters]


@cache
def _module(text: str) -> Module:
    left, _, body = f" {text}".partition(" : ")
    parameters = [part.strip().rsplit(" ", 1) for part in left.split(", ") if part.strip()]
    lines = [f"  {name} = {shape} parameter({n})" for n, (shape, name) in enumerate(parameters)]
    hlo = "\n".join(["HloModule case", REDUCERS, "ENTRY main {", *lines, f"  ROOT result = {body}", "}"])
    return Module.from_proto(hlo_text_to_proto(hlo))


def random_values(shape: Shape, opcode: str, rng: Generator, devices: int) -> np.ndarray:
    dims = (devices, *shape.dims)
    kind = shape.element_type
    if kind == "pred":
        return rng.integers(0, 2, dims).astype(bool)
    if kind == "c64":
        return (rng.normal(size=dims) + 1j * rng.normal(size=dims)).astype(np.complex64)
    if opcode == "cholesky":
        root = rng.normal(size=dims)
        return (root @ root.swapaxes(-1, -2) + 4 * np.eye(dims[-1])).astype(shape.dtype)
    if opcode == "triangular-solve":
        return (rng.normal(size=dims) + (4 * np.eye(dims[-1]) if dims[-1] == dims[-2] else 0)).astype(shape.dtype)
    if shape.is_floating:
        # Few values, so that folding and sorting meet ties; positive, so that logarithms and roots are numbers.
        return (rng.integers(1, 64, dims) / 16).astype(shape.dtype)
    # Indices a little out of bounds on either side.
    return rng.integers(0 if kind.startswith("u") else -2, 10, dims).astype(shape.dtype)


def _elementwise_case(opcode: str) -> Case:
    source, result = _UNARY_TYPES.get(opcode, ("f32", "f32"))
    tail = _ATTRIBUTES.get(opcode, "")
    if opcode == "select":
        text = "pred[4,6] p, f32[4,6] a, f32[4,6] b : f32[4,6] select(p, a, b)"
    elif opcode == "clamp":
        text = "f32[4,6] l, f32[4,6] a, f32[4,6] h : f32[4,6] clamp(l, a, h)"
    elif opcode == "stochastic-convert":
        text = "f32[4,6] a, u32[4,6] b : s32[4,6] stochastic-convert(a, b)"
    elif opcode == "complex":
        text = "f32[4,6] a, f32[4,6] b : c64[4,6] complex(a, b)"
    elif opcode in ELEMENTWISE_BINARY:
        kind = "s32" if opcode in _INTEGER_BINARY else "f32"
        out = "pred" if opcode == "compare" else kind
        text = f"{kind}[4,6] a, {kind}[4,6] b : {out}[4,6] {opcode}(a, b){tail}"
    else:
        text = f"{source}[4,6] a : {result}[4,6] {opcode}(a){tail}"
    return Case(opcode, text)


def all_cases() -> list[Case]:
    """Every case that one device (or two, for collectives) can run."""
    written = [line.partition(" | ") for line in (HERE / "cases.txt").read_text().splitlines()]
    collective = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
    cases = [Case(name, text, 2 if name in collective else 1) for name, _, text in written]
    return cases + [_elementwise_case(op) for op in sorted(ELEMENTWISE) if op not in NOT_COMPILED_ON_CPU]
