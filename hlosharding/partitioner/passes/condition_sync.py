"""Where devices that hold copies might diverge at a condition, it is synchronised: all go the way of the least.

Floor: partitioner.  Sums over different groups of copies agree only up to rounding, and what was put together by place
is more than the verifier can follow.  So a condition of the whole program (or of one manual group) that is not shown to
be the same is reduced over all devices (over the group), in every trip.  A condition that is the user's own, per
device, gets no sync.  Reads and changes a finished per-device program.
"""

from __future__ import annotations

from hlosharding.ir import COLLECTIVES, Computation, Instruction, Module, rewrite, while_parts
from hlosharding.partitioner.passes.group_permutes import gather_where_groups_part
from hlosharding.spmd import CAUSE_ATTRIBUTE, DivergenceError, Groups, Program, verify_partitioned


def verify_and_sync(module: Module, program: Program, *, has_manual_groups: bool) -> None:
    """`verify_partitioned`; conditions that it cannot show to be uniform are reduced over devices that hold copies.

    `has_manual_groups`: there are manual groups, which may part, and their permutes then become gathers.
    """
    synced_conditions = dict(program.synced_conditions)
    while True:
        if has_manual_groups:
            gather_where_groups_part(module)
        try:
            return verify_partitioned(module, program.partial_sums)
        except DivergenceError as found:
            # Asked once: if they still differ then, it is not for want of one.
            groups = synced_conditions.pop(found.condition, None)
            if groups is None:
                raise
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
