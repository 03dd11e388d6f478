"""Elementwise ops on slices whose result is put into a larger array: they are done where the result will be.

Floor: partitioner.  The tiles of `x[1:-1]` are not those of `x`: elements travel to the slice's tiles, and back when
the result is padded, or written into an array like x.  Done at their final places, only what the slices shift against
them travels.

    v = x[2:] - x[:-2]          x[2:] moves by two places, and the padded v back by one
    y = pad(v, 1, 1)            each of x[2:] and x[:-2] moves by one, in opposite directions

What is computed beside the result's places is masked out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import prod

import numpy as np

from hlosharding.ir import ELEMENTWISE, Instruction, PaddingDim
from hlosharding.partitioner.plain_forms.places import inside_lines, is_split_along, plain_sharding
from hlosharding.partitioner.plain_forms.writer import Form, Writer
from hlosharding.rules import is_splat

_MOST_OPS = 256
# Beside the result's places nothing needs to be computed: where they are fewer, too much would be.
_LEAST_PART = 1 / 2

Dims = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """Which operand of an op goes where in its result."""

    operand: int
    start: Dims


@dataclass(slots=True)
class _Tree:
    """The elementwise ops that make a value, of which nobody else reads any."""

    ops: dict[Instruction, None] = field(default_factory=dict[Instruction, None])
    leaves: dict[Instruction, None] = field(default_factory=dict[Instruction, None])
    """What they are made of."""


def in_place_form(inst: Instruction) -> Form | None:
    """What does an operand's ops at their final places; None where that moves no less."""
    place = _place_of(inst) if inst.shape.is_array else None
    tree = _tree_worth_moving(inst, place) if place is not None else None
    return None if place is None or tree is None else partial(_do_in_place, first=place, tree=tree)


def _place_of(inst: Instruction) -> _Place | None:
    """The largest operand that is moved, if it is of elementwise ops."""
    places = [p for p in _PLACES[inst.opcode](inst) if inst.operands[p.operand].opcode in ELEMENTWISE]
    return max(places, key=lambda p: inst.operands[p.operand].shape.size, default=None)


def _of_pad(inst: Instruction) -> Iterator[_Place]:
    if all(p.low >= 0 and p.high >= 0 and not p.interior for p in inst.padding):
        yield _Place(0, tuple(p.low for p in inst.padding))


def _of_update(inst: Instruction) -> Iterator[_Place]:
    sizes = zip(inst.shape.dims, inst.operands[1].shape.dims, strict=True)
    starts = list(inst.operands[2:])
    if len(starts) == inst.shape.rank and all(s.opcode == "constant" for s in starts):
        # As HLO clamps starts, so that all of the update lies inside.
        clamped = (max(0, min(int(s.literal), n - k)) for s, (n, k) in zip(starts, sizes, strict=True))
        yield _Place(1, tuple(clamped))


def _of_concatenate(inst: Instruction) -> Iterator[_Place]:
    dim, start = inst.dimensions[0], 0
    for number, operand in enumerate(inst.operands):
        if inst.operands.count(operand) == 1:
            yield _Place(number, tuple(start if d == dim else 0 for d in range(inst.shape.rank)))
        start += operand.shape.dims[dim]


_PLACES = {"pad": _of_pad, "dynamic-update-slice": _of_update, "concatenate": _of_concatenate}
IN_PLACE = frozenset(_PLACES)
"""Opcodes that put an operand somewhere into their result."""


def _tree_worth_moving(inst: Instruction, place: _Place) -> _Tree | None:
    value, moved = inst.operands[place.operand], [d for d, start in enumerate(place.start) if start]
    if value.shape.size < _LEAST_PART * inst.shape.size or not is_split_along(inst, moved):
        return None
    if inst.module.sharding(value) not in (None, inst.module.sharding(inst)):
        return None
    tree = _tree(inst, value)
    if tree is None:
        return None
    back = sum(w * start for w, start in zip(_weights(inst), place.start, strict=True))
    return tree if _strips(inst, tree, place.start) < _strips(inst, tree, (0,) * len(place.start)) + back else None


def _tree(user: Instruction, value: Instruction) -> _Tree | None:
    """None where others read what is in between, or too much is."""
    found, stack = _Tree(), [value]
    while stack:
        inst = stack.pop()
        if inst in found.ops:
            continue
        is_inner = inst.opcode in ELEMENTWISE and not inst.is_root and inst.shape.dims == value.shape.dims
        if is_inner and all(u is user or u in found.ops for u in inst.users):
            found.leaves.pop(inst, None)  # it may have been met before its last reader
            found.ops[inst] = None
            stack.extend(inst.operands)
        else:
            found.leaves[inst] = None
        if len(found.ops) > _MOST_OPS:
            return None
    return found if value in found.ops else None


def _weights(inst: Instruction) -> tuple[float, ...]:
    """Per dim how many elements a shift by one moves."""
    sharding = plain_sharding(inst)
    assert sharding is not None
    ways = (sharding.num_tiles_along(d) for d in range(inst.shape.rank))
    volume = prod(inst.shape.dims)  # of no elements none move
    return tuple(volume * n / size if n > 1 and size else 0.0 for n, size in zip(ways, inst.shape.dims, strict=True))


def _strips(inst: Instruction, tree: _Tree, start: Dims) -> float:
    """Elements that the leaves move to be at `start`: of each array as far as it moves at most, in each direction."""
    ends: dict[tuple[Instruction, int], tuple[int, int]] = {}
    for source, shift in _shifts(tree, start):
        for dim, by in enumerate(shift):
            # Strips of one array that go the same way travel as one (`passes/shared_strips`), the longest.
            low, high = ends.get((source, dim), (0, 0))
            ends[source, dim] = min(low, by), max(high, by)
    weights = _weights(inst)
    return sum(weights[dim] * (high - low) for (_, dim), (low, high) in ends.items())


def _shifts(tree: _Tree, start: Dims) -> set[tuple[Instruction, Dims]]:
    """How far each array that the leaves are cut from moves, to be at `start`."""
    found: set[tuple[Instruction, Dims]] = set()
    for leaf in tree.leaves:
        if leaf.shape.rank and not _is_made_anywhere(leaf):
            source, offset = _offset(leaf)
            found.add((source, tuple(have - wanted for have, wanted in zip(offset, start, strict=True))))
    return found


def _offset(leaf: Instruction) -> tuple[Instruction, Dims]:
    """What a leaf is cut from, and where; any other value is cut from itself."""
    if leaf.opcode == "slice" and all(d.stride == 1 for d in leaf.slice_dims):
        return leaf.operands[0], tuple(d.start for d in leaf.slice_dims)
    return leaf, (0,) * leaf.shape.rank


def _is_made_anywhere(leaf: Instruction) -> bool:
    """Is it one number everywhere?"""
    return (leaf.opcode == "broadcast" and not leaf.operands[0].shape.rank) or (
        leaf.opcode == "constant" and is_splat(leaf)
    )


# ---- the ops at their places


def _do_in_place(write: Writer, first: _Place, tree: _Tree) -> None:
    inst = write.inst
    places = _all_in_place(inst, first, tree)
    made = None if len(places) == len(inst.operands) else _rest(write, places)
    for place, ops in places.items():
        value = _computed(write, place, ops)
        if made is None:
            made = value
            continue
        ends = (start + size for start, size in zip(place.start, inst.operands[place.operand].shape.dims, strict=True))
        mask = inside_lines(write, inst.shape, [(start, end, 1) for start, end in zip(place.start, ends, strict=True)])
        assert mask is not None, "the value is smaller than the result"
        made = write("select", mask, value, made, shape=inst.shape, sharding=write.sharding)
    assert made is not None, "there is a place"
    write.replace_by(made)


def _all_in_place(inst: Instruction, first: _Place, tree: _Tree) -> dict[_Place, _Tree]:
    """The largest operand, and others that need no shift that it does not need: those are at hand."""
    found, at_hand = {first: tree}, _shifts(tree, first.start)
    for place in _PLACES[inst.opcode](inst):
        value = inst.operands[place.operand]
        other = _tree(inst, value) if value.opcode in ELEMENTWISE and place != first else None
        if other is not None and all(s in at_hand or not any(s[1]) for s in _shifts(other, place.start)):
            found[place] = other
    return found


def _computed(write: Writer, place: _Place, tree: _Tree) -> Instruction:
    """An operand's ops on arrays of the result's sizes."""
    inst, value = write.inst, write.inst.operands[place.operand]
    made: dict[Instruction, Instruction] = {leaf: _moved(write, leaf, place) for leaf in tree.leaves}
    for op in _operands_first(value, tree):
        made[op] = write.on_arrays(op, [made[o] for o in op.operands], inst.shape.dims, write.sharding)
    return made[value]


def _operands_first(value: Instruction, tree: _Tree) -> list[Instruction]:
    found: dict[Instruction, None] = {}
    stack = [value]
    while stack:
        inst = stack[-1]
        missing = [o for o in inst.operands if o in tree.ops and o not in found]
        stack.extend(missing)
        if not missing:
            found[stack.pop()] = None
    return list(found)


def _moved(write: Writer, leaf: Instruction, place: _Place) -> Instruction:
    """A leaf at the place of the value; beside it anything."""
    if not leaf.shape.rank:
        return leaf
    shape = leaf.shape.with_dims(write.inst.shape.dims)
    if _is_made_anywhere(leaf):
        number = leaf.operands[0] if leaf.operands else leaf.literal.reshape(-1)[0]
        return write.full(number, shape, write.sharding)
    # All of what it is cut from, not the cut alone: strips of other cuts are then parts of the same strip.
    source, offset = _offset(leaf)
    sizes = zip(place.start, offset, source.shape.dims, shape.dims, strict=True)
    padding = tuple(PaddingDim(to - cut, whole - (to - cut) - size, 0) for to, cut, size, whole in sizes)
    zero = write.constant(np.zeros((), leaf.shape.dtype))
    return write("pad", source, zero, padding=padding, shape=shape, sharding=write.sharding)


def _rest(write: Writer, places: Collection[_Place]) -> Instruction:
    """What the op makes of its other operands."""
    inst, sharding = write.inst, write.sharding
    if inst.opcode == "pad":
        return write.full(inst.operands[1], inst.shape, sharding)
    if inst.opcode == "dynamic-update-slice":
        return inst.operands[0]
    done = {place.operand for place in places}
    zero = np.zeros((), inst.shape.dtype)
    parts = [write.full(zero, o.shape) if n in done else o for n, o in enumerate(inst.operands)]
    return write("concatenate", *parts, shape=inst.shape, dimensions=inst.dimensions, sharding=sharding)
