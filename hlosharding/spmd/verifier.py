"""What a per-device program must satisfy beyond any module: its collectives can meet, partial sums are reduced once.

Floor: spmd.  Runs after every partition; reads the program as it stands, so it serves other partitioners' too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from hlosharding.errors import ModuleError
from hlosharding.ir import COLLECTIVES_AND_STARTS, Computation, Instruction, Module, callers, collective_kind, verify
from hlosharding.spmd.collective import CAUSE_ATTRIBUTE
from hlosharding.spmd.participants import Devices, device_groups, devices_of, left_out, permute_pairs
from hlosharding.spmd.program import PartialSums
from hlosharding.spmd.uniformity import Uniformity


class DivergenceError(ModuleError):
    """A collective stands under a condition that may differ between its devices."""

    def __init__(self, inst: Instruction, condition: Instruction, what: str) -> None:
        remedy = "make the condition the same on all of them (a reduction of it over the axis), or communicate outside"
        super().__init__(f"{inst.opcode} {what}", where=_place(inst), remedy=remedy)
        self.condition = condition


def verify_partitioned(module: Module, partial_sums: PartialSums | None = None) -> None:
    """Raise ModuleError at the first law that a per-device program breaks, naming the instruction and what to do.

    Shapes fit; replica groups are disjoint and hold every device; a permute has no device twice on a side; our channel
    ids are unique; no collective stands under a condition that may differ between its devices; partial sums are reduced
    once.

    >>> import hlosharding as hs
    >>> text = '''HloModule m, num_partitions=4
    ... ENTRY e {
    ...   x = f32[2] parameter(0), sharding={devices=[4]<=[4]}
    ...   ROOT y = f32[4] all-gather(x), dimensions={0},
    ...     channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true
    ... }'''
    >>> verify_partitioned(hs.load(text, format="hlo"))
    Traceback (most recent call last):
    ...
    hlosharding.errors.ModuleError: all-gather leaves devices [2, 3] out of its replica groups; at %y = f32[4] ...
    """
    verify(module)
    collectives = module.of_opcodes(*COLLECTIVES_AND_STARTS)
    devices = devices_of(module)
    for inst in collectives:
        _verify_participants(inst, devices)
    _verify_channels(collectives)
    verify_conditions(module, Uniformity(module))
    if partial_sums is not None:
        _verify_sums(module, partial_sums, devices)


def _wrong(inst: Instruction, what: str, remedy: str | None = None) -> ModuleError:
    return ModuleError(f"{inst.opcode} {what}", where=_place(inst), remedy=remedy)


def _place(inst: Instruction) -> str:
    return f"{inst!r} {inst.location}".strip()


# Who takes part


def _verify_participants(inst: Instruction, devices: Devices) -> None:
    if collective_kind(inst.opcode) == "collective-permute":
        permute_pairs(inst, devices)
        return
    sizes = {len(group) for group in device_groups(inst, devices)}
    missing = left_out(inst, devices)
    if missing:
        what = f"leaves devices {list(missing)} out of its replica groups"
        raise _wrong(inst, what, remedy="name them in groups of their own")
    # As in XLA's verifier an all-reduce may: neither its shapes nor its pieces depend on the size of a group.
    if len(sizes) > 1 and collective_kind(inst.opcode) != "all-reduce":
        raise _wrong(inst, f"has groups of different sizes: {inst.replica_groups}")


# Channels


def _verify_channels(collectives: Sequence[Instruction]) -> None:
    """Ours are unique.  JAX gives all collectives of manual regions one channel, and they stay as they are."""
    users: dict[int, Instruction] = {}
    for inst in collectives:
        channel, is_ours = inst.channel_id, CAUSE_ATTRIBUTE in inst.frontend_attributes
        other = users.setdefault(channel, inst)
        if channel and other is not inst and (is_ours or CAUSE_ATTRIBUTE in other.frontend_attributes):
            raise _wrong(inst, f"has the channel {channel} of %{other.name}", "give every collective its own channel")


# Conditions


def verify_conditions(module: Module, uniformity: Uniformity) -> None:
    """DivergenceError for the first collective under a condition that may differ between its devices."""
    devices = devices_of(module)
    for inst, conditions in find_guards(module, module.of_opcodes(*COLLECTIVES_AND_STARTS)).items():
        for condition in reversed(conditions):  # what is above may be all that makes one below it differ
            ways = uniformity.condition(condition)
            for members in device_groups(inst, devices):
                if len({int(ways[d]) for d in members}) > 1:
                    raise _divergent(inst, condition, members, uniformity)


def _divergent(
    inst: Instruction, condition: Instruction, members: Sequence[int], uniformity: Uniformity
) -> DivergenceError:
    origin = uniformity.origin(condition, members)
    source = f"%{origin.name}, {origin.opcode} {origin.location}".strip()
    return DivergenceError(
        inst,
        condition,
        f"needs devices {', '.join(map(str, members))} together, but the condition of %{condition.name} may differ"
        f" between them (by {source}): they would wait for each other for ever",
    )


def find_guards(module: Module, collectives: Sequence[Instruction]) -> Mapping[Instruction, tuple[Instruction, ...]]:
    """Collectives below loops or branches, each with all loops and branches above it."""
    inside = {i.computation for i in collectives if not i.computation.is_entry}
    if not inside:
        return {}
    sites = callers(module)

    @cache
    def conditions(computation: Computation) -> tuple[Instruction, ...]:
        found: dict[Instruction, None] = {}
        for caller in sites.get(computation, ()):
            if caller.opcode in ("while", "conditional"):
                found[caller] = None
            found.update(dict.fromkeys(conditions(caller.computation)))
        return tuple(found)

    return {i: c for i in collectives if (c := conditions(i.computation))}


# Partial sums

_HANDS_ON = frozenset({"tuple", "get-tuple-element", "while", "conditional", "call", "copy", "opt-barrier"})
_OUR_FAULT = "this is a fault of the partitioner: please report the program"


def _verify_sums(module: Module, partial_sums: PartialSums, devices: Devices) -> None:
    if not partial_sums.values:
        return
    for inst in partial_sums.values.intersection(module.instructions):
        for user in inst.users:
            if not (user in partial_sums.values or user in partial_sums.readers or user.opcode in _HANDS_ON):
                raise _wrong(user, f"uses the partial sums of %{inst.name} before they are reduced", _OUR_FAULT)
    for inst in partial_sums.readers.intersection(module.instructions):
        earlier = _reduced_before(inst, devices) if _reduces(inst) else None
        if earlier is not None:
            raise _wrong(inst, f"reduces what %{earlier.name} has reduced already", _OUR_FAULT)


def _reduces(inst: Instruction) -> bool:
    return inst.opcode in ("all-reduce", "reduce-scatter")


def _reduced_before(inst: Instruction, devices: Devices) -> Instruction | None:
    """A reduction over (some of) the same devices whose result `inst` reduces again as it is."""
    source = inst.operands[0]
    while source.opcode in ("reshape", "transpose", "copy", "negate"):
        source = source.operands[0]
    # A sum without our cause is the user's own, in a manual region: he may sum it again.
    if not _reduces(source) or CAUSE_ATTRIBUTE not in source.frontend_attributes:
        return None
    group_of = {device: number for number, group in enumerate(device_groups(source, devices)) for device in group}
    shares = any(len({group_of[d] for d in group}) < len(group) for group in device_groups(inst, devices))
    return source if shares else None
