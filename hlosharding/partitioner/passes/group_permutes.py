"""Permutes where manual groups go different ways: XLA waits for all devices at a permute, so a group gathers instead.

Floor: partitioner.  Inside a loop or branch whose condition differs between the groups of a manual region, devices of
one group still come together, and group collectives are theirs alone; a permute would wait for the others for ever (as
XLA's own programs do there).  Reads and changes a finished per-device program.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hlosharding.ir import COLLECTIVES, Instruction, Module, PaddingDim, Shape, rewrite
from hlosharding.spmd import CAUSE_ATTRIBUTE, Groups, Uniformity, devices_of, find_guards, permute_pairs


def gather_where_groups_part(module: Module) -> None:
    """Replace our permutes below conditions that differ between devices by gathers among those that go the same way."""
    permutes = [i for i in module.instructions if i.opcode == "collective-permute"]
    guards = find_guards(module, [i for i in permutes if CAUSE_ATTRIBUTE in i.frontend_attributes])
    if not guards:
        return
    uniformity = Uniformity(module)
    changes = [(inst, _together([uniformity.condition(c) for c in conditions])) for inst, conditions in guards.items()]
    channel = max(i.channel_id for i in module.instructions if i.opcode in COLLECTIVES)
    for inst, groups in changes:
        if len(groups) > 1 and _stays_inside(inst, groups):
            channel += 1
            _gathered(module, inst, groups, channel)
    module.renumber()


def _together(ways: list[np.ndarray]) -> Groups:
    """Devices that go the same way through all conditions."""
    found: dict[tuple[int, ...], list[int]] = {}
    for device, way in enumerate(zip(*(w.tolist() for w in ways), strict=True)):
        found.setdefault(way, []).append(device)
    return tuple(map(tuple, found.values()))


def _stays_inside(inst: Instruction, groups: Groups) -> bool:
    group_of = {device: number for number, group in enumerate(groups) for device in group}
    is_even = len({len(group) for group in groups}) == 1
    return is_even and all(group_of[s] == group_of[t] for s, t in permute_pairs(inst, devices_of(inst.module)))


def _gathered(module: Module, inst: Instruction, groups: Groups, channel: int) -> None:
    """All tiles of the group, and of them the source's; zeros for a device that is nobody's target."""
    source_of = {target: source for source, target in permute_pairs(inst, devices_of(module))}
    place = {device: at for group in groups for at, device in enumerate(group)}
    count = len(place)
    rows = [place[source_of[d]] if d in source_of else len(groups[0]) for d in range(count)]
    at, computation = inst.computation.instructions.index(inst), inst.computation

    def add(
        opcode: str, operands: tuple[Instruction, ...] = (), shape: Shape | None = None, **attributes: Any
    ) -> Instruction:
        nonlocal at
        name = rewrite.fresh_name(module, f"{inst.name}_{opcode}")
        made = rewrite.insert(computation, at, opcode, shape, operands, name=name, like=inst, **attributes)
        at += 1
        return made

    def constant(value: np.ndarray) -> Instruction:
        return add("constant", (), Shape.from_dtype(value.dtype, value.shape), literal=value)

    dims = inst.shape.dims
    cause = {CAUSE_ATTRIBUTE: inst.frontend_attributes[CAUSE_ATTRIBUTE]}
    tile = add("reshape", inst.operands, inst.shape.with_dims((1, *dims)))
    tiles = add(
        "all-gather", (tile,), dimensions=(0,), replica_groups=groups,
        channel_id=channel, use_global_device_ids=True, frontend_attributes=cause,
    )  # fmt: skip
    zero = constant(np.zeros((), inst.shape.dtype))
    # One row of zeros more, for devices that nobody sends to.
    padded = add("pad", (tiles, zero), padding=(PaddingDim(0, 1, 0), *[PaddingDim(0, 0, 0)] * len(dims)))
    table = constant(np.asarray(rows, np.int32))
    device = add("convert", (add("partition-id"),), Shape.array("s32"))
    row = add("dynamic-slice", (table, device), dynamic_slice_sizes=(1,))
    start = add("reshape", (row,), Shape.array("s32"))
    origin = constant(np.asarray(0, np.int32))
    taken = add("dynamic-slice", (padded, start, *[origin] * len(dims)), dynamic_slice_sizes=(1, *dims))
    rewrite.replace_uses(inst, add("reshape", (taken,), inst.shape))
    rewrite.remove(inst)
