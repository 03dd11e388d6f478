"""The chain of causes of one value: from change to change, back to what the user wrote.

Floor: propagation.  Reads the trail of a finished run, one leaf of a tuple at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from hlosharding.propagation.data_flow import ValueLeaf, element_base, holder, leaf_count, leaf_sharding, operand_base
from hlosharding.propagation.graph import PropagationGraph
from hlosharding.propagation.provenance import Change, Trail


@dataclass(frozen=True, slots=True)
class Cause:
    """One value on the way, and the change that gave it what it has there; None: it had that all along."""

    value: ValueLeaf
    step: Change | None
    also: tuple[int, ...] = ()
    """Other instructions that contributed to the change."""
    by_default: bool = False
    """A leaf that nothing reached: it is replicated because another leaf of the tuple got a sharding."""


def chain(graph: PropagationGraph, trail: Trail, value: ValueLeaf) -> list[Cause]:
    """From a value, cause by cause, to one that had its sharding all along."""
    found: list[Cause] = []
    before: int | None = None
    # It ends: each cause is an earlier change than the one before it.
    while True:
        number = _last_change(trail, value, before)
        if number is None:
            return [*found, Cause(value, None)]
        step = trail.changes[number]
        if value[1] is None:
            value = value[0], _changed_leaf(step)
        if step.direction == "boundary":
            return [*found, Cause(value, None if is_put_back(graph, step, value) else step)]
        source = _source(graph, step, value[1])
        if source is None:
            return [*found, Cause(value, step if value[1] is None else None, by_default=value[1] is not None)]
        source = _beside(graph, trail, number, source) or source
        also = () if value[1] is not None else tuple(s for s in step.sources if s not in (source[0], value[0]))
        found.append(Cause(value, step, tuple(dict.fromkeys(also))))
        value, before = source, number


def edge_change(trail: Trail, value: ValueLeaf) -> Change | None:
    """What the end of the run made of a value at the edge of the program; None: it left it as it was."""
    number = _last_change(trail, value, None)
    step = None if number is None else trail.changes[number]
    return step if step is not None and step.direction == "boundary" else None


def is_put_back(graph: PropagationGraph, step: Change, value: ValueLeaf) -> bool:
    """Has the value again what it was given?"""
    i, leaf = value
    given = leaf_sharding(graph.given[i], leaf) if i < len(graph.given) else None
    return given is not None and leaf_sharding(step.new, leaf) == given


def _last_change(trail: Trail, value: ValueLeaf, before: int | None) -> int | None:
    """The number of the last step (before another) that changed the value."""
    i, leaf = value
    number = trail.last(i, before)
    while number is not None and leaf is not None:
        step = trail.changes[number]
        if leaf_sharding(step.old, leaf) != leaf_sharding(step.new, leaf):
            break
        number = trail.last(i, number)
    return number


# It looks at all leaves of a tuple, and is asked by every chain that comes by this step.
@lru_cache(maxsize=1 << 10)
def _changed_leaf(step: Change) -> int | None:
    """Of a tuple the last leaf that the step changed, a split one before others."""
    if step.new is None or not step.new.is_tuple():
        return None
    changed = [n for n, leaf in enumerate(step.new.leaves) if leaf_sharding(step.old, n) != leaf]
    split = [n for n in changed if step.new.leaves[n].num_tiles > 1]
    return (split or changed or [None])[-1]


def _source(graph: PropagationGraph, step: Change, leaf: int | None) -> ValueLeaf | None:
    """Whence the change came; None: from nowhere, as in a shard group of one member."""
    if not step.sources:
        return None
    if step.direction == "operands":
        return _from_operands(graph, step, leaf)
    if step.direction == "users":
        return _from_users(graph, step, leaf)
    return step.sources[-1], leaf


def _from_operands(graph: PropagationGraph, step: Change, leaf: int | None) -> ValueLeaf | None:
    i, last = step.instruction, step.sources[-1]
    if graph.is_element(i):
        return last, element_base(graph, i) + (leaf or 0)
    if leaf is None:
        return last, None
    if graph.is_tuple(i):
        source = holder(graph, i, leaf)
        return source if source[0] in step.sources else None
    alike = [s for s in step.sources if leaf_count(graph, s) == leaf_count(graph, i)]
    if alike:
        return alike[-1], leaf
    own = graph.operands[i][leaf : leaf + 1]
    return (own[0] if own and own[0] in step.sources else last), None


def _from_users(graph: PropagationGraph, step: Change, leaf: int | None) -> ValueLeaf | None:
    """Of several users, the last: it completed the sharding.  Of a tuple's, one that takes this leaf."""
    for user in reversed(step.sources):
        found = _in_user(graph, step, user, leaf)
        if found is not None:
            return found
    return None if leaf is not None else (step.sources[-1], None)


def _beside(graph: PropagationGraph, trail: Trail, number: int, user: ValueLeaf) -> ValueLeaf | None:
    """Of a user that was not split itself, the operand whose split it passed across: a scatter's indices, say."""
    step = trail.changes[number]

    def was_split(i: int) -> bool:
        before = trail.last(i, number)
        given = graph.given[i] if i < len(graph.given) else None
        sharding = given if before is None else trail.changes[before].new
        return sharding is not None and sharding.num_tiles > 1

    gained = step.new is not None and not step.new.is_tuple() and step.new.num_tiles > 1
    if step.direction != "users" or not gained or leaf_count(graph, user[0]) is not None or was_split(user[0]):
        return None
    operands = (o for o in graph.operands[user[0]] if o != step.instruction and leaf_count(graph, o) is None)
    return next(((o, None) for o in operands if was_split(o)), None)


def _in_user(graph: PropagationGraph, step: Change, user: int, leaf: int | None) -> ValueLeaf | None:
    count = leaf_count(graph, user)
    if graph.is_element(user):
        base = element_base(graph, user)
        inside = leaf is not None and base <= leaf < base + (count or 1)
        return (user, None if count is None or leaf is None else leaf - base) if inside else None
    if count is None or (leaf is not None and not graph.is_tuple(user)):
        return user, None if count is None else leaf
    positions = graph.positions(step.instruction, user)
    if not graph.is_tuple(user):
        return user, positions[-1] if positions and positions[-1] < count else None
    return (user, operand_base(graph, user, positions[-1]) + (leaf or 0)) if positions else None
