"""Gathers and scatters whose places are known.

Floor: partitioner.  Gathers such as `x[np.arange(0, n, 2)]`, `x[jnp.arange(n)[::-1]]` are slices, perhaps reversed.
Each device of a gather gives what it holds of the result, and all of them add that up; of a slice every device gets
what it lacks.  Where little of the array is looked up, adding it up is as good.

Scatters are `u.at[1:-1].add(v)`, `u.at[::2].set(v)`, `u.at[3:9, 0].apply(f)`.  Where the indices count in even steps
from a known start, the updates lie on a grid: they are padded to the operand's sizes and combined with it, element by
element, so that only what a device lacks of its own part of the updates moves.  A window that is assigned, with nothing
between its elements, is a dynamic-update-slice.

    x.at[1:-1].add(v)   add(x, pad(v))            padded with what changes nothing
    x.at[1:-1].set(v)   dynamic-update-slice(x, v, 1)
    x.at[::2].set(v)    select(even, pad(v), x)   one element between every two
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from hlosharding.ir import Instruction, PaddingDim, Shape, SliceDim, neutral_element, reducer_kind
from hlosharding.partitioner.plain_forms.lines import Line, lines_of
from hlosharding.partitioner.plain_forms.places import inside_lines, is_split_along, plain_sharding, type_of_places
from hlosharding.partitioner.plain_forms.writer import Form, Writer, elementwise, is_elementwise
from hlosharding.rules import addressing

_LEAST_PART = 1 / 8
"""Of the array: of what reaches over less of it a gather is as good, and a scatter goes to the rows."""


def lookup_form(inst: Instruction) -> Form | None:
    """What makes a gather a slice; None where its places are not known, or lie along dims that are whole."""
    x, how = inst.operands[0], addressing(inst)
    sharding = plain_sharding(x)
    if sharding is None or not inst.shape.size or inst.shape.size < _LEAST_PART * x.shape.size:
        return None
    cut = [d for d, size in enumerate(x.shape.dims) if how.slice_sizes[d] != size]
    if not any(sharding.num_tiles_along(d) > 1 for d in cut):
        return None
    lines = lines_of(inst)
    if lines is None or not all(line.is_inside(size) for line, size in zip(lines, x.shape.dims, strict=True)):
        return None
    return partial(_cut, lines=lines)


def _cut(write: Writer, lines: tuple[Line, ...]) -> None:
    inst = write.inst
    made = write("slice", inst.operands[0], slice_dims=tuple(SliceDim(n.start, n.end, n.step) for n in lines))
    backwards = tuple(d for d, line in enumerate(lines) if line.is_reversed)
    if backwards:
        made = write("reverse", made, dimensions=backwards)
    order = _order(lines)
    if order != tuple(range(len(order))):
        made = write("transpose", made, dimensions=order)
    if made.shape.dims != inst.shape.dims:
        made = write("reshape", made, shape=inst.shape)
    write.replace_by(made)


def _order(lines: tuple[Line, ...]) -> tuple[int, ...]:
    """Dims of the array in the order of the result's; those of size 1 that it has not, last."""
    return tuple(sorted(range(len(lines)), key=lambda d: (lines[d].other is None, lines[d].other or 0, d)))


# A sum with -0 alone leaves every number as it is, to the bit, and of the narrower floats some (fnuz) have no -0.
_WITH_NEGATIVE_ZERO = frozenset({"bf16", "f16", "f32", "f64", "c64", "c128"})


def update_form(inst: Instruction) -> Form | None:
    """What makes a scatter ops without indices; None where its places are not known, or nothing of it is split."""
    if len(inst.operands) != 3 or not inst.shape.is_array or inst.scatter_dims.input_batching_dims:
        return None
    how, x = addressing(inst), inst.operands[0].shape
    cut = [d for d in range(x.rank) if how.slice_sizes[d] != x.dims[d]]
    if not is_split_along(inst, cut) or 0 in inst.operands[2].shape.dims:
        return None
    lines = lines_of(inst)
    if lines is None or not _is_worth_it(inst, lines):
        return None
    return partial(_at_their_places, lines=lines)


def _is_worth_it(inst: Instruction, lines: tuple[Line, ...]) -> bool:
    kind, x = reducer_kind(inst.called[0]), inst.operands[0].shape
    # Nothing is written at all: that needs neither a grid nor a known reducer.
    if any(line.is_outside(size) for line, size in zip(lines, x.dims, strict=True)):
        return True
    if not all(line.is_inside(size) for line, size in zip(lines, x.dims, strict=True)):
        return False
    # It costs no more than its window, however small: no mask, and nothing to combine with the rest.
    if kind == "assign" and all(line.step == 1 for line in lines):
        return True
    reach = prod(line.end - line.start for line in lines)
    return reach >= _LEAST_PART * x.size and (kind != "other" or is_elementwise(inst.called[0]))


def _at_their_places(write: Writer, lines: tuple[Line, ...]) -> None:
    inst, x = write.inst, write.inst.operands[0]
    if any(line.is_outside(size) for line, size in zip(lines, x.shape.dims, strict=True)):
        write.replace_by(write("copy", x))
        return
    kind, updates = reducer_kind(inst.called[0]), _in_order(write, inst.operands[2], lines)
    if kind == "assign" and all(line.step == 1 for line in lines):
        places = Shape.array(type_of_places(x.shape), ())
        starts = (write.constant(np.asarray(line.start, places.dtype)) for line in lines)
        write.replace_by(write("dynamic-update-slice", x, updates, *starts))
        return
    write.replace_by(_combined(write, kind, updates, lines))


def _in_order(write: Writer, updates: Instruction, lines: tuple[Line, ...]) -> Instruction:
    """The updates with a dim for each dim of the operand, in its order."""
    sources = [line.other for line in lines if line.other is not None]
    rest = [d for d in range(updates.shape.rank) if d not in sources]
    order = (*sources, *rest)
    if order != tuple(range(len(order))):
        updates = write("transpose", updates, dimensions=order)
    shape = updates.shape.with_dims(tuple(line.count for line in lines))
    while updates.opcode == "reshape" and updates.shape.dims != shape.dims:
        updates = updates.operands[0]  # a row was cut out and lost its dim, which it has here again
    if updates.shape.dims != shape.dims:
        updates = write("reshape", updates, shape=shape)
    backwards = tuple(d for d, line in enumerate(lines) if line.is_reversed)
    return write("reverse", updates, dimensions=backwards) if backwards else updates


def _combined(write: Writer, kind: str, updates: Instruction, lines: tuple[Line, ...]) -> Instruction:
    x, sharding = write.inst.operands[0], write.sharding
    # Where nothing is neutral the places between are combined with zeros, and masked out below.
    neutral = None if kind in ("assign", "other") else _changes_nothing(kind, x.shape)
    fill = write.constant(np.zeros((), x.shape.dtype) if neutral is None else neutral)
    padding = tuple(_padding(lines, x.shape))
    placed = write("pad", updates, fill, padding=padding, shape=x.shape, sharding=sharding)
    if kind == "other":
        made = elementwise(write, write.inst.called[0], (x, placed), sharding)
    else:
        made = placed if kind == "assign" else write(kind, x, placed, sharding=sharding)
    if neutral is not None or all(line.count == size for line, size in zip(lines, x.shape.dims, strict=True)):
        return made
    mask = inside_lines(write, x.shape, [(line.start, line.end, line.step) for line in lines])
    return made if mask is None else write("select", mask, made, x, shape=x.shape)


def _padding(lines: tuple[Line, ...], shape: Shape) -> Iterator[PaddingDim]:
    for line, size in zip(lines, shape.dims, strict=True):
        yield PaddingDim(line.start, size - line.end, line.step - 1)


def _changes_nothing(kind: str, shape: Shape) -> npt.NDArray[Any] | None:
    """What a number may be combined with and stay, to the bit: a sum of -0 and 0 is 0."""
    # Not a product with 1: infinity times the 0 of its imaginary part is NaN.
    if shape.is_complex and kind != "add":
        return None
    if kind == "add" and not shape.is_integral and shape.element_type != "pred":
        zero = np.zeros((), shape.dtype)
        return np.asarray(-zero) if shape.element_type in _WITH_NEGATIVE_ZERO else None
    return neutral_element(kind, shape.element_type)
