"""Ops that only move elements: reshape, transpose, broadcast, concatenate, reverse, iota.

Floor: rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from hlosharding.ir import Instruction
from hlosharding.rules.signature import Signature, SignatureMaker, Whole, same_dims


def transpose(inst: Instruction) -> Signature:
    """Result dim i is operand dim dimensions[i]."""
    make = SignatureMaker(inst)
    for dim, source in enumerate(inst.dimensions):
        make.factor(f"d{source}", inst.shape.dims[dim], [(0, source)], [(0, dim)])
    return make.build()


def broadcast(inst: Instruction) -> Signature:
    """Operand dim i is result dim dimensions[i]; all other result dims repeat."""
    make = SignatureMaker(inst)
    source = {dim: i for i, dim in enumerate(inst.dimensions)}
    for dim, size in enumerate(inst.shape.dims):
        make.factor(f"d{dim}", size, [(0, source[dim])] if dim in source else (), [(0, dim)])
    return make.build()


def concatenate(inst: Instruction) -> Signature:
    """All dims pointwise; along the concatenated one the pieces do not line up."""
    return same_dims(inst, whole=inst.dimensions)


def reverse(inst: Instruction) -> Signature:
    """A reversed dim comes from the mirrored piece."""
    return same_dims(inst, halo=inst.dimensions)


def iota(inst: Instruction) -> Signature:
    """No operands: any piece can be made, but along the iota dim its values start at the piece's offset."""
    return same_dims(inst, whole=(inst.iota_dimension,))


@dataclass
class _UnmatchedDims:
    """The part of two dim lists that is still to be matched, as open rests at one end."""

    sizes: list[int]
    dim: int
    step: int

    @property
    def rest(self) -> int:
        return self.sizes[self.dim]

    def skip_ones(self) -> None:
        while 0 <= self.dim < len(self.sizes) and self.rest == 1:
            self.dim += self.step

    @property
    def ended(self) -> bool:
        return not 0 <= self.dim < len(self.sizes)


def _matched(source: list[int], target: list[int], step: int) -> list[tuple[int, int, int]]:
    """(source dim, target dim, size) of the common parts from one end on; both lists keep what is unmatched."""
    starts = (0, 0) if step == 1 else (len(source) - 1, len(target) - 1)
    a, b = _UnmatchedDims(source, starts[0], step), _UnmatchedDims(target, starts[1], step)
    found: list[tuple[int, int, int]] = []
    while True:
        a.skip_ones()
        b.skip_ones()
        if a.ended or b.ended:
            return found
        common = gcd(a.rest, b.rest)
        if common == 1:
            return found
        found.append((a.dim, b.dim, common))
        source[a.dim] //= common
        target[b.dim] //= common
        # What is left on both sides has no common divisor here: nothing behind it lines up.
        if a.rest != 1 and b.rest != 1:
            return found


def reshape(inst: Instruction) -> Signature:
    """Dims cut into common parts: from the major end by greatest common divisors, then from the minor end.

    [6, 4] -> [2, 12] has parts 2 3 4; [4, 6] -> [3, 8] only the minor 2: what is left does not line up.
    """
    make = SignatureMaker(inst)
    source, target = list(inst.operands[0].shape.dims), list(inst.shape.dims)
    if 0 in source:
        return make.build()
    major = _matched(source, target, 1)
    minor = _matched(source, target, -1)
    _enter(make, major, "d")
    # Rests in the middle have names of their own: they are whole, and keep the products complete.
    for dim, size in enumerate(source):
        if size > 1:
            make.factor(f"s{dim}", size, [(0, dim)], owes=Whole())
    for dim, size in enumerate(target):
        if size > 1:
            make.factor(f"t{dim}", size, (), [(0, dim)], owes=Whole())
    # Found from the minor end on, entered from the major one: each factor becomes the next minor part of its dims.
    _enter(make, minor[::-1], "e")
    return make.build()


def _enter(make: SignatureMaker, parts: list[tuple[int, int, int]], letter: str) -> None:
    for number, (source, target, size) in enumerate(parts):
        make.factor(f"{letter}{number}", size, [(0, source)], [(0, target)])
