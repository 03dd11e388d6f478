"""`hs.diff`: what differs between two programs, or two plans of one: shardings, collectives, and what it costs.

Floor: plans.  Values are found again by parameter path, by name, or by what they are and where they come from.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hlosharding.cost import CostReport, Machine
from hlosharding.ir import Instruction, Module
from hlosharding.notebook import InNotebooks
from hlosharding.partitioner import PartitionOptions
from hlosharding.plans.side import Side
from hlosharding.sharding import HloSharding
from hlosharding.spmd import Collective

Change = Literal["gone", "added", "moved", "changed"]


@dataclass(frozen=True, slots=True)
class ShardingChange:
    """A value that the two shard differently."""

    value: Instruction
    """Of the second program."""
    before: HloSharding | None
    after: HloSharding | None

    @property
    def name(self) -> str:
        return self.value.name

    @property
    def location(self) -> str:
        """The source line."""
        return self.value.location


@dataclass(frozen=True, slots=True)
class CollectiveChange:
    """A collective that only one has, or that both have: "moved" to another line or cause, "changed" at its line."""

    change: Change
    before: Collective | None
    after: Collective | None

    @property
    def one(self) -> Collective:
        """As it is now, or was."""
        found = self.after or self.before
        assert found is not None, "one of both has it"
        return found

    @property
    def bytes_before(self) -> float:
        """Received in a run, mean over devices; 0 where it was not there."""
        return self.before.bytes_per_device if self.before is not None else 0.0

    @property
    def bytes_after(self) -> float:
        return self.after.bytes_per_device if self.after is not None else 0.0


@dataclass(frozen=True, slots=True, repr=False)
class Difference(InNotebooks):
    """What `diff` finds; `before` and `after` are the costs of either, by device and run."""

    shardings: tuple[ShardingChange, ...]
    """In program order."""
    collectives: tuple[CollectiveChange, ...]
    """Those that cost more or less first."""
    before: CostReport
    after: CostReport
    only_before: tuple[str, ...]
    """Values that the second program lacks, by name."""
    only_after: tuple[str, ...]
    module: Module
    """The second program: it knows axis names."""
    has_values: bool = True
    """Were values compared?  Those of a whole program are not those of one device's."""

    @property
    def is_same(self) -> bool:
        """No sharding, collective or total differs, and both have the same values."""
        return not (self.shardings or self.collectives or self.only_before or self.only_after) and all(
            getattr(self.before, total) == getattr(self.after, total) for total in _TOTALS
        )

    def __str__(self) -> str:
        values = f"{len(self.shardings)} shardings and " if self.has_values else ""
        old, new = self.before, self.after
        moved = f"bytes received {old.comm_bytes:,.0f} -> {new.comm_bytes:,.0f}"
        return (
            f"{values}{len(self.collectives)} collectives differ; {moved}, FLOPs {old.flops:,.0f} -> {new.flops:,.0f}"
        )

    def __repr__(self) -> str:
        return f"Difference({self})"


_TOTALS = ("flops", "comm_bytes", "peak_memory_bytes", "time_s")


def diff(
    before: Any, after: Any, *, machine: Machine | None = None, options: PartitionOptions | None = None
) -> Difference:
    """What differs between two programs: modules (annotated, or split already, as XLA's dumps are), propagations, or
    partitioned programs.

    What is not split yet is partitioned, with `machine` and `options` as of `hs.partition`.

    >>> import hlosharding as hs
    >>> text = '''HloModule m
    ... ENTRY e {
    ...   a = f32[8,4] parameter(0)
    ...   b = f32[4,8] parameter(1)
    ...   ROOT c = f32[8,8] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    ... }'''
    >>> rows = hs.annotate(hs.load(text), {"a": "{devices=[2,1]<=[2]}", "c": "{devices=[2,1]<=[2]}"})
    >>> within = hs.annotate(rows, {"a": "{devices=[1,2]<=[2]}", "b": "{devices=[2,1]<=[2]}"})
    >>> found = diff(rows, within)
    >>> [change.name for change in found.shardings], [(c.change, c.one.kind) for c in found.collectives]
    (['a', 'b'], [('added', 'reduce-scatter')])
    """
    return difference(*(Side.of(program, machine, options) for program in (before, after)))


def difference(old: Side, new: Side) -> Difference:
    """Of two programs as they are; values are compared where both are whole programs, or both per-device ones."""
    has_values = old.is_split == new.is_split
    pairs, only_before, only_after = _matched(old.module, new.module) if has_values else ([], [], [])
    shardings = [ShardingChange(b, old.shardings.get(a.name), new.shardings.get(b.name)) for a, b in pairs]
    collectives = _collective_changes(old.cost.collectives, new.cost.collectives)
    return Difference(
        tuple(change for change in shardings if change.before != change.after),
        tuple(sorted(collectives, key=lambda change: -abs(change.bytes_after - change.bytes_before))),
        old.cost,
        new.cost,
        tuple(inst.name for inst in only_before),
        tuple(inst.name for inst in only_after),
        new.module,
        has_values,
    )


# ---- values found again


def _matched(
    before: Module, after: Module
) -> tuple[list[tuple[Instruction, Instruction]], list[Instruction], list[Instruction]]:
    """Pairs of values, in the order of the second program; and those that only one program has."""
    rest, others = list(before.instructions), list(after.instructions)
    pairs: list[tuple[Instruction, Instruction]] = []
    for key in (_path, _named, _made):
        found, rest, others = _paired(rest, others, key)
        pairs += found
    return sorted(pairs, key=lambda pair: pair[1].id), rest, others


def _path(inst: Instruction) -> Hashable:
    """A parameter's."""
    is_argument = inst.opcode == "parameter" and inst.computation.is_entry
    return inst.path if is_argument else None


def _named(inst: Instruction) -> Hashable:
    return inst.name, inst.opcode, str(inst.shape)


def _made(inst: Instruction) -> Hashable:
    """What it is, and from which JAX op it comes: names of instructions are numbered anew when a program changes."""
    return (inst.opcode, str(inst.shape), inst.op_name) if inst.op_name else None


def _paired(
    before: Sequence[Any], after: Sequence[Any], key: Callable[[Any], Hashable]
) -> tuple[list[tuple[Any, Any]], list[Any], list[Any]]:
    """Those with equal keys (None is no key), each once and in order; and what is left of both."""
    waiting: defaultdict[Hashable, list[Any]] = defaultdict(list)
    # From the last on, so that `pop` gives the first one that is left.
    for each in reversed(before):
        waiting[key(each)].append(each)
    pairs: list[tuple[Any, Any]] = []
    left: list[Any] = []
    for each in after:
        said = key(each)
        if said is not None and waiting.get(said):
            pairs.append((waiting[said].pop(), each))
        else:
            left.append(each)
    # By identity: of equal collectives each counts.
    taken = {id(old) for old, _ in pairs}
    return pairs, [each for each in before if id(each) not in taken], left


# ---- collectives found again


def _collective_changes(before: Sequence[Collective], after: Sequence[Collective]) -> Iterator[CollectiveChange]:
    """Equal ones are left out; of others those that do the same elsewhere, or something else at the same line."""
    has_causes = all(any(one.cause for one in side) for side in (before, after))  # XLA's programs say none
    _, rest, others = _paired(
        before, after, lambda one: (_work(one), one.location, one.kind_of_cause if has_causes else "")
    )
    moved, rest, others = _paired(rest, others, _work)
    yield from (CollectiveChange("moved", old, new) for old, new in moved)
    changed, rest, others = _paired(rest, others, lambda one: (one.kind, one.location) if one.location else None)
    yield from (CollectiveChange("changed", old, new) for old, new in changed)
    yield from (CollectiveChange("gone", old, None) for old in rest)
    yield from (CollectiveChange("added", None, new) for new in others)


def _work(one: Collective) -> Hashable:
    """What moves, between whom, how often."""
    return one.kind, one.groups, one.pairs, str(one.shape), one.executions
