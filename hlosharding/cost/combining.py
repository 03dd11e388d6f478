"""Which collectives run as one: XLA's combiner joins those of one kind and group that do not wait for each other.

Floor: cost.  Follows CombineInstructionsByKey as XLA's GPU compiler runs it: first all-gathers, then all-reduces, then
reduce-scatters, each computation for itself, in program order.  A module that XLA has scheduled, or fused, was
combined before; it stands as it is.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterator, Mapping
from functools import reduce
from operator import or_
from typing import Final, NamedTuple

from hlosharding.cost.fusing import is_fused
from hlosharding.ir import Computation, Instruction, Module, reducer_kind
from hlosharding.spmd import Collective

KINDS: Final = ("all-gather", "all-reduce", "reduce-scatter")
"""In the order of XLA's passes: what one joined, the next finds."""
MOST_BYTES: Final = 30 * 1024 * 1024 + 7
"""Of the results of those joined: XLA's `xla_gpu_all_reduce_combine_threshold_bytes`, and its two sisters."""
MOST_JOINED: Final = 256
"""The count at which XLA's GPU compiler lets its combiners stop."""


class _Candidate(NamedTuple):
    number: int
    bit: int
    key: Hashable
    nbytes: int


def was_combined(module: Module) -> bool:
    """Has XLA's combiner seen this module already?"""
    return module.proto.HasField("schedule") or is_fused(module)


def find_combined(computation: Computation, found: Mapping[Instruction, Collective]) -> list[tuple[Instruction, ...]]:
    """Of the collectives found in a computation those that run as one, two and more of them together.

    >>> import hlosharding as hs
    >>> module = hs.load('''HloModule m, num_partitions=8
    ... f { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
    ... ENTRY e {
    ...   x = f32[8] parameter(0)
    ...   y = f32[8] all-reduce(x), channel_id=1, replica_groups=[1,8]<=[8], use_global_device_ids=true, to_apply=f
    ...   z = f32[8] all-reduce(x), channel_id=2, replica_groups=[1,8]<=[8], use_global_device_ids=true, to_apply=f
    ...   ROOT t = (f32[8], f32[8]) tuple(y, z)
    ... }''')
    >>> [group] = find_combined(module.entry, {module.by_name(c.name): c for c in hs.collectives(module)})
    >>> [i.name for i in group]
    ['y', 'z']
    """
    keys = {op: key for op, one in found.items() if (key := _key(op, one)) is not None}
    times = Counter(keys.values())
    # What has nobody to join gets no bit, so that the numbers of bits stay short.
    ops = [op for op in keys if times[keys[op]] > 1]
    if not ops:
        return []
    ancestors = _ancestors(computation, ops)
    candidates = [_Candidate(n, 1 << n, keys[op], found[op].shape.byte_size) for n, op in enumerate(ops)]
    groups: list[tuple[Instruction, ...]] = []
    for kind in KINDS:
        mine = [candidates[n] for n, op in enumerate(ops) if op.opcode == kind]
        groups += [tuple(ops[c.number] for c in group) for group in _form_groups(mine, ancestors)]
    return groups


def _key(op: Instruction, one: Collective) -> Hashable | None:
    """What two collectives must have in common to be joined; None for one that is not."""
    # What is too large by itself joins nobody, and ends nobody's group.
    if op.opcode not in KINDS or len(op.operands) != 1 or one.shape.byte_size > MOST_BYTES:
        return None
    place = (op.opcode, one.groups, bool(op.channel_id), op.use_global_device_ids)
    if op.opcode == "all-gather":
        # Gathers are joined whatever their types and dims, as XLA's combiner joins them by default.
        return place
    kind = reducer_kind(op.called[0]) if op.called else "other"
    return None if kind == "other" else (*place, kind, one.dtype)


def _ancestors(computation: Computation, ops: list[Instruction]) -> dict[int, int]:
    """By the number of each of the ops, as bits: which of them it waits for."""
    number = {op: n for n, op in enumerate(ops)}
    before: dict[Instruction, int] = {}
    found: dict[int, int] = {}
    for op in computation.instructions:
        awaited = (*op.operands, *op.control_predecessors)
        bits = reduce(or_, [before[each] for each in awaited if each in before], 0)
        n = number.get(op)
        if n is not None:
            found[n] = bits
            bits |= 1 << n
        if bits:
            before[op] = bits
    return found


def _form_groups(mine: list[_Candidate], ancestors: dict[int, int]) -> Iterator[list[_Candidate]]:
    """Groups of one kind; whoever waits for one of a group then waits for all that the group waits for.

    `ancestors` loses those that are done: nobody asks any more what they wait for, nor who waits for them.
    """
    alike: dict[Hashable, deque[_Candidate]] = defaultdict(deque)
    for c in mine:
        alike[c.key].append(c)
    left = sum(1 << n for n in ancestors)
    for c in mine:
        if c.number in ancestors:
            group = _take_group(alike[c.key], ancestors)
            left -= sum(member.bit for member in group)
            _let_others_wait(group, ancestors, left)
            if len(group) > 1:
                yield group


def _let_others_wait(group: list[_Candidate], ancestors: dict[int, int], left: int) -> None:
    """Whoever waits for one of the group waits for what any of it needs, of those that are left."""
    before = [ancestors.pop(c.number) for c in group]
    needed = reduce(or_, before) & left
    # Mostly each needs as much as all: who waits for it waits for that already.
    lacking = sum(c.bit for c, bits in zip(group, before, strict=True) if needed & ~bits)
    if lacking:
        ancestors.update([(n, bits | needed) for n, bits in ancestors.items() if bits & lacking])


def _take_group(queue: deque[_Candidate], ancestors: Mapping[int, int]) -> list[_Candidate]:
    """Off the queue the first candidate and those behind it that join it, up to one that must wait or is too much."""
    group = [queue.popleft()]
    members, needed, nbytes = group[0].bit, ancestors[group[0].number], group[0].nbytes
    # Nothing behind the first that may not join is tried: XLA's loop over the candidates breaks there, too.
    while queue and len(group) < MOST_JOINED:
        c = queue[0]
        mine = ancestors[c.number]
        if mine & members or needed & c.bit or nbytes + c.nbytes > MOST_BYTES:
            break
        group.append(queue.popleft())
        members, needed, nbytes = members | c.bit, needed | mine, nbytes + c.nbytes
    return group
