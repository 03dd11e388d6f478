"""What a per-device program must satisfy beyond any module: its collectives can meet, and partial sums are added once.

Floor: spmd.  Runs after every partition; reads the program as it stands, so it serves other partitioners' too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from hlosharding.errors import ModuleError
from hlosharding.ir import COLLECTIVES, Computation, Instruction, Module, callers, verify
from hlosharding.spmd.collective import CAUSE_ATTRIBUTE
from hlosharding.spmd.emitter import PartialSums
from hlosharding.spmd.uniformity import Uniformity


class DivergenceError(ModuleError):
    """A collective stands under a condition that may differ between its devices."""

    def __init__(self, inst: Instruction, condition: Instruction, what: str) -> None:
        remedy = "make the condition the same on all of them (a reduction of it over the axis), or communicate outside"
        super().__init__(f"{inst.opcode} {what}", where=_place(inst), remedy=remedy)
        self.condition = condition


def verify_partitioned(module: Module, deferred: PartialSums | None = None) -> None:
    """Raise ModuleError at the first law that a per-device program breaks, naming the instruction and what to do.

    Shapes fit; replica groups are disjoint and hold every device; a permute has no device twice on a side; our channel
    ids are unique; no collective stands under a condition that may differ between its devices; partial results are
    reduced once.

    >>> import hlosharding as hs
    >>> text = '''HloModule m, num_partitions=4
    ... ENTRY e {
    ...   x = f32[2] parameter(0), sharding={devices=[4]<=[4]}
    ...   ROOT y = f32[2] collective-permute(x), channel_id=1, source_target_pairs={{0,1},{2,1}}
    ... }'''
    >>> verify_partitioned(hs.load(text, format="hlo"))
    Traceback (most recent call last):
    ...
    hlosharding.errors.ModuleError: collective-permute has device 1 twice among its targets; at %y = f32[2] ...
    """
    verify(module)
    collectives = [i for i in module.instructions if i.opcode in COLLECTIVES]
    for inst in collectives:
        _verify_members(inst, max(1, module.num_partitions))
    _verify_channels(collectives)
    _verify_conditions(module, collectives)
    if deferred is not None:
        _verify_sums(module, deferred)


def _wrong(inst: Instruction, what: str, remedy: str | None = None) -> ModuleError:
    return ModuleError(f"{inst.opcode} {what}", where=_place(inst), remedy=remedy)


def _place(inst: Instruction) -> str:
    return f"{inst!r} {inst.location}".strip()


# Members


def _verify_members(inst: Instruction, count: int) -> None:
    if inst.opcode == "collective-permute":
        for side, devices in zip(("sources", "targets"), zip(*inst.source_target_pairs, strict=True), strict=False):
            _verify_devices(inst, devices, count, f"among its {side}")
        return
    groups = inst.replica_groups
    devices = [d for group in groups for d in group]
    _verify_devices(inst, devices, count, "in its replica groups")
    if groups and len(devices) < count:
        missing = sorted(set(range(count)) - set(devices))
        raise _wrong(inst, f"leaves devices {missing} out of its replica groups", "name them in groups of their own")
    if len({len(group) for group in groups}) > 1 and inst.opcode != "all-reduce":
        raise _wrong(inst, f"has groups of different sizes: {groups}")


def _verify_devices(inst: Instruction, devices: Sequence[int], count: int, place: str) -> None:
    if len(set(devices)) < len(devices):
        raise _wrong(inst, f"has device {Counter(devices).most_common(1)[0][0]} twice {place}")
    if any(not 0 <= d < count for d in devices):
        raise _wrong(inst, f"has device {max(devices)} {place}; the program is for {count}")


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


def _verify_conditions(module: Module, collectives: Sequence[Instruction]) -> None:
    guards = guarded(module, collectives)
    if not guards:
        return
    uniformity = Uniformity(module)
    for inst, conditions in guards.items():
        for condition in reversed(conditions):  # what is above may be all that makes one below it differ
            ways = uniformity.condition(condition)
            for members in meeting(inst, len(ways)):
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


def meeting(inst: Instruction, count: int) -> Collection[Sequence[int]]:
    """Devices that wait for each other in a collective: its groups; in a permute, as XLA runs it, all devices."""
    if inst.opcode == "collective-permute" or not inst.replica_groups:
        return (range(count),)
    return inst.replica_groups


def guarded(module: Module, collectives: Sequence[Instruction]) -> Mapping[Instruction, tuple[Instruction, ...]]:
    """Collectives below loops or branches, each with all loops and branches above it."""
    inside = {i.computation for i in collectives if not i.computation.is_entry}
    if not inside:
        return {}
    sites = callers(module)
    above: dict[Computation, tuple[Instruction, ...]] = {}

    def conditions(computation: Computation) -> tuple[Instruction, ...]:
        if computation not in above:
            found: dict[Instruction, None] = {}
            for caller in sites.get(computation, ()):
                if caller.opcode in ("while", "conditional"):
                    found[caller] = None
                found.update(dict.fromkeys(conditions(caller.computation)))
            above[computation] = tuple(found)
        return above[computation]

    return {i: c for i in collectives if (c := conditions(i.computation))}


# Sums

_HANDS_ON = frozenset({"tuple", "get-tuple-element", "while", "conditional", "call", "copy", "opt-barrier"})


def _verify_sums(module: Module, deferred: PartialSums) -> None:
    if not deferred.partial_sums:
        return
    remedy = "this is a fault of the partitioner: please report the program"
    for inst in deferred.partial_sums.intersection(module.instructions):
        for user in inst.users:
            if user not in deferred.partial_sums and user not in deferred.paying and user.opcode not in _HANDS_ON:
                raise _wrong(user, f"uses the partial results of %{inst.name} before they are added up", remedy)
    for inst in deferred.paying.intersection(module.instructions):
        twice = _source_of(inst) if _reduces(inst) else None
        if twice is not None:
            raise _wrong(inst, f"adds up what %{twice.name} has added up already", remedy)


def _reduces(inst: Instruction) -> bool:
    return inst.opcode in ("all-reduce", "reduce-scatter")


def _source_of(payer: Instruction) -> Instruction | None:
    """A reduction over (some of) the same devices whose result `payer` reduces again as it is."""
    source = payer.operands[0]
    while source.opcode in ("reshape", "transpose", "copy", "negate"):
        source = source.operands[0]
    if not _reduces(source) or CAUSE_ATTRIBUTE not in source.frontend_attributes:
        return None
    together = {frozenset(g) for g in source.replica_groups}
    shared = any(len(set(a) & b) > 1 for a in payer.replica_groups for b in together)
    return source if shared else None
