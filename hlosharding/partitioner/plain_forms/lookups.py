"""Gathers whose places are known: `x[np.arange(0, n, 2)]`, `x[jnp.arange(n)[::-1]]` are slices, perhaps reversed.

Floor: partitioner.  Each device of a gather gives what it holds of the result, and all of them add that up; of a slice
every device gets what it lacks.  Where little of the array is looked up, adding it up is as good.
"""

from __future__ import annotations

from functools import partial

from hlosharding.ir import Instruction, SliceDim
from hlosharding.partitioner.plain_forms.lines import Line, lines_of
from hlosharding.partitioner.plain_forms.places import plain_sharding
from hlosharding.partitioner.plain_forms.writer import Form, Writer
from hlosharding.rules import addressing

_LEAST_PART = 1 / 8


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
