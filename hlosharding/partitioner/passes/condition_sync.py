"""Where devices that hold copies might diverge at a condition, it is synchronised: all go the way of the least.

Floor: partitioner.  Sums over different groups of copies agree only up to rounding, and what was put together by place
is more than the verifier can follow.  So a condition of the whole program (or of one manual group) that is not shown to
be the same is reduced over all devices (over the group), in every trip.  A condition that is the user's own, per
device, gets no sync.  Reads and changes a finished per-device program.

Where manual groups go different ways, XLA waits for all devices at a permute, so a group gathers instead: inside a loop
or branch whose condition differs between the groups of a manual region, devices of one group still come together, and
group collectives are theirs alone; a permute would wait for the others for ever (as XLA's own programs do there).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hlosharding.ir import COLLECTIVES, Computation, Instruction, Module, PaddingDim, Shape, rewrite, while_parts
from hlosharding.spmd import (
    CAUSE_ATTRIBUTE,
    DivergenceError,
    Groups,
    Program,
    Uniformity,
    devices_of,
    find_guards,
    permute_pairs,
    verify_conditions,
    verify_partitioned,
)


def gather_where_groups_part(module: Module) -> None:
    """Replace our permutes below conditions that differ between devices by gathers among those that go the same way."""
    permutes = [i for i in module.instructions if i.opcode == "collective-permute"]
    guards = find_guards(module, [i for i in permutes if CAUSE_ATTRIBUTE in i.frontend_attributes])
    if not guards:
        return
    uniformity = Uniformity(module)
    changes = [(inst, _together([uniformity.condition(c) for c in conditions])) for inst, conditions in guards.items()]
    # Ours need channels of their own, or the verifier refuses them.
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
    # A gather has groups of one size.
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


def verify_and_sync(module: Module, program: Program, *, has_manual_groups: bool) -> None:
    """`verify_partitioned`; conditions that it cannot show to be uniform are reduced over devices that hold copies.

    `has_manual_groups`: there are manual groups, which may part, and their permutes then become gathers.
    """
    synced_conditions, uniformity = dict(program.synced_conditions), Uniformity(module)
    while True:
        if has_manual_groups:
            gather_where_groups_part(module)
            uniformity = Uniformity(module)
        try:
            # The other laws do not ask for syncs: they are looked at when all conditions are uniform.
            verify_conditions(module, uniformity)
            return verify_partitioned(module, program.partial_sums)
        except DivergenceError as found:
            # Asked once: if they still differ then, it is not for want of one.
            groups = synced_conditions.pop(found.condition, None)
            if groups is None:
                raise
            uniformity.forget(found.condition)
            _sync(module, program, found.condition, groups)


def _sync(module: Module, program: Program, inst: Instruction, groups: Groups) -> None:
    """Let the groups agree on what a loop or branch goes by: trips end, and branches are, as the least says."""
    is_loop = inst.opcode == "while"
    asked = while_parts(inst).condition.root if is_loop else inst.operands[0]
    where = asked.computation if is_loop else inst.computation
    place = len(where.instructions) if is_loop else where.instructions.index(inst)
    kind = "and" if asked.shape.element_type == "pred" else "minimum"
    sync = rewrite.insert(
        where, place, "all-reduce", None, (asked,),
        name=rewrite.fresh_name(module, "sync"), like=inst, called=(_reducer(module, program, kind, asked),),
        replica_groups=groups, channel_id=_channel(module), use_global_device_ids=True,
        frontend_attributes={CAUSE_ATTRIBUTE: f"sync of %{inst.name} ({inst.opcode})"},
    )  # fmt: skip
    if is_loop:
        where.set_root(sync)
    else:
        rewrite.replace_operand(inst, 0, sync)
    module.renumber()


def _channel(module: Module) -> int:
    return 1 + max(i.channel_id for i in module.instructions if i.opcode in COLLECTIVES)


def _reducer(module: Module, program: Program, kind: str, asked: Instruction) -> Computation:
    """The reducer of all our reductions, back in its place if nobody else calls it."""
    known = list(module.computations)
    reducer = program.scalars.reducer(kind, asked.shape.element_type)
    if reducer not in known:
        rewrite.place_computation(module, reducer, 0)
    return reducer
