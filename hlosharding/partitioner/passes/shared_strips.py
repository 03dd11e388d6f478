"""Strips of one array that go the same way go together: of `x[2:] - 2 * x[1:-1]` both slices need the neighbour's first
element, and one of them the second, too.

Floor: partitioner.  Reads and changes a finished per-device program.  Two permutes between the same devices, each of a
slice of one array, become one of the box around both slices where that is no more than the two; each then cuts its part
from what arrived.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from hlosharding.ir import Instruction, Module, NameUniquer, SliceDim, rewrite
from hlosharding.spmd import CAUSE_ATTRIBUTE, Devices, devices_of, integer_on_devices, permute_pairs

Dims = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Box:
    """A part of an array."""

    starts: Dims
    ends: Dims

    @property
    def sizes(self) -> Dims:
        return tuple(end - start for start, end in zip(self.starts, self.ends, strict=True))

    def around(self, other: _Box) -> _Box:
        """The smallest box that has both."""
        return _Box(tuple(map(min, self.starts, other.starts)), tuple(map(max, self.ends, other.ends)))


_Strips = tuple[_Box, tuple[tuple[Instruction, _Box], ...]]
"""What travels, and the permutes that it is for, each with its own part."""


def share_strips(module: Module) -> None:
    """Let strips of one array between the same devices travel as one, where that is no more.  Ids stay dense."""
    permutes = module.of_opcodes("collective-permute")
    shared = [
        (array, box, parts)
        for array, strips in _alike(module, permutes)
        for box, parts in _joined(strips)
        if len(parts) > 1
    ]
    if shared:
        names = NameUniquer(i.name for i in module.instructions)
        for array, box, parts in shared:
            _send_once(array, box, dict(parts), names)
        rewrite.dead_code(module)
        module.renumber()


def _alike(module: Module, permutes: Sequence[Instruction]) -> list[tuple[Instruction, list[_Strips]]]:
    """Arrays of which several strips go between the same devices."""
    if len(permutes) < 2:
        return []
    devices = devices_of(module)
    found: dict[Any, list[_Strips]] = defaultdict(list)
    for inst in permutes:
        if CAUSE_ATTRIBUTE not in inst.frontend_attributes or inst.id in module.shardings or inst.control_predecessors:
            continue
        pairs = tuple(permute_pairs(inst, devices))
        box = _box(inst.operands[0], [source for source, _ in pairs], devices)
        if box is not None:
            found[_array(inst.operands[0]), pairs].append((box, ((inst, box),)))
    return [(array, strips) for (array, _), strips in found.items() if len(strips) > 1]


def _array(strip: Instruction) -> Instruction:
    """What it is cut from; of a slice of a slice, too."""
    while strip.opcode == "dynamic-slice" or (strip.opcode == "slice" and all(d.stride == 1 for d in strip.slice_dims)):
        strip = strip.operands[0]
    return strip


def _box(strip: Instruction, sources: Sequence[int], devices: Devices) -> _Box | None:
    """Which part of its array a strip is; None where that differs among the devices that send."""
    array, dims = _array(strip), strip.shape.dims
    starts = [0] * len(dims)
    while strip is not array:
        more = [d.start for d in strip.slice_dims] if strip.opcode == "slice" else _starts(strip, sources, devices)
        if more is None:
            return None
        starts = [a + b for a, b in zip(starts, more, strict=True)]
        strip = strip.operands[0]
    return _Box(tuple(starts), tuple(start + size for start, size in zip(starts, dims, strict=True)))


def _starts(inst: Instruction, sources: Sequence[int], devices: Devices) -> list[int] | None:
    """Where a dynamic-slice begins on all of the devices."""
    starts: list[int] = []
    for start, whole, size in zip(inst.operands[1:], inst.operands[0].shape.dims, inst.shape.dims, strict=True):
        known = integer_on_devices(start, devices)
        # HLO clamps a start so that the slice lies inside.
        mine = {max(0, min(int(known[d]), whole - size)) for d in sources} if known is not None else set[int]()
        if len(mine) != 1:
            return None
        starts.append(mine.pop())
    return starts


def _joined(strips: list[_Strips]) -> list[_Strips]:
    """Strips put together, as long as the box around two is no more than they are."""
    found: list[_Strips] = []
    for box, group in sorted(strips, key=lambda s: -prod(s[0].sizes)):
        joined: _Strips = box, group
        # A box that has grown may take in one that it could not before.
        while (other := next((o for o in found if _is_no_more(joined[0], o[0])), None)) is not None:
            found.remove(other)
            joined = joined[0].around(other[0]), (*joined[1], *other[1])
        found.append(joined)
    return found


def _is_no_more(one: _Box, other: _Box) -> bool:
    return prod(one.around(other).sizes) <= prod(one.sizes) + prod(other.sizes)


def _send_once(array: Instruction, box: _Box, parts: dict[Instruction, _Box], names: NameUniquer) -> None:
    """The first of the permutes sends the box, and all cut their parts from what arrived."""
    order = array.computation.instructions
    first = min(parts, key=order.index)

    def cut(x: Instruction, part: _Box, offsets: Dims, at: int) -> Instruction:
        bounds = zip(part.starts, part.ends, offsets, strict=True)
        dims = tuple(SliceDim(start - offset, end - offset, 1) for start, end, offset in bounds)
        name = names.fresh(f"{first.name}_strip")
        return rewrite.insert(array.computation, at, "slice", None, (x,), name=name, like=first, slice_dims=dims)

    sent = cut(array, box, (0,) * len(box.starts), order.index(first))
    rewrite.set_operands(first, (sent,))
    rewrite.set_shape(first, sent.shape)
    at = order.index(first) + 1
    cuts = {inst: cut(first, part, box.starts, at) for inst, part in parts.items()}
    for inst, made in cuts.items():
        # The cuts themselves go on reading what the first of the permutes brings.
        rewrite.replace_uses(inst, made, where=lambda user: user not in cuts.values())
        if inst is not first:
            rewrite.remove(inst)
