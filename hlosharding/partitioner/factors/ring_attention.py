"""Ring attention: queries of a part of the sequences stay, keys and values go round from device to device (Liu et al.
2023), each on its way while the part before it is computed: as many bytes as all keys gathered.

Floor: partitioner.

    step        0    1    2    3
    device 0   k0   k3   k2   k1        gradients of keys go with them, and one step further, to their own device
    device 1   k1   k0   k3   k2
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from hlosharding.ir import FusedAttention, Instruction, Shape, fused_attention
from hlosharding.partitioner.choice import FactorChoice
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.factors.alone import Alone, priced_alone
from hlosharding.partitioner.factors.attention_parts import RESULT_POSITIONS, Arrays, AttentionParts, Balance
from hlosharding.partitioner.factors.factor_lowering import choice_of, lower_by_factors, lower_by_signature, wanted_of
from hlosharding.partitioner.factors.lowering_choice import Places, Wanted, key_of_places, problems_of
from hlosharding.partitioner.factors.split_prices import priced_split
from hlosharding.partitioner.iteration_space import project
from hlosharding.partitioner.resharding import arrays_of, local_shape, reshard, to_wanted
from hlosharding.partitioner.value import AnyValue, DeferredReduction, Value, from_leaves, places_of
from hlosharding.reshard import MORE_WORK
from hlosharding.rules import Dims, Signature, Whole, signature_of
from hlosharding.sharding import HloSharding, device_groups_along, tile_table
from hlosharding.spmd import Emitter

_POSITIONS = "t"
"""The factor of queries' positions."""
_KEYS = (1, 2)
"""Keys and values among the operands, their gradients among the results."""


def lower(context: Context, inst: Instruction) -> AnyValue | DeferredReduction:
    """A call to flash attention: by its factors, or by a ring where that takes less.

    Under a causal mask no call has a part of the queries: it takes the first of them for the first of all.
    """
    signature, found = signature_of(inst), fused_attention(inst)
    assert found is not None, "strategies are asked by kind"
    if not isinstance(signature, Signature) or _POSITIONS not in signature.index:
        return lower_by_signature(context, inst)
    values = arrays_of(context, inst.operands)
    called = _with_positions_whole(signature) if found.is_causal else signature
    ring = _ring_of(context, inst, found, _split_of_ring(context, inst, signature, values))
    if ring is None or not _pays(context, ring, choice_of(context, inst, called, places_of(values)), values):
        return lower_by_factors(context, inst, called)
    operands = [reshard(context, value, place).local for value, place in zip(values, ring.operands, strict=True)]
    with context.emitter.because("pass keys and values on"):
        made = emit_ring(context.emitter, operands, ring)
    leaves = zip(made, inst.shape.leaves, ring.results, wanted_of(context, inst), strict=True)
    return from_leaves(inst.shape, [to_wanted(context, Value(x, shape, place), w) for x, shape, place, w in leaves])


@lru_cache(maxsize=256)
def _with_positions_whole(signature: Signature) -> Signature:
    factors = (replace(f, owes=Whole()) if f.name == _POSITIONS else f for f in signature.factors)
    return replace(signature, factors=tuple(factors))


@dataclass(frozen=True, slots=True)
class Ring:
    """A call, and how it lies."""

    inst: Instruction
    found: FusedAttention
    operands: tuple[HloSharding, ...]
    """Of keys and values, too, positions are split."""
    results: tuple[HloSharding, ...]
    groups: tuple[tuple[int, ...], ...]
    """Devices that pass keys on to each other, in the order of their parts."""
    places: tuple[int, ...]
    """Of each device in its group."""

    @property
    def size(self) -> int:
        """Devices of a group."""
        return len(self.groups[0])


def _split_of_ring(
    context: Context, inst: Instruction, signature: Signature, values: list[Value]
) -> FactorChoice | None:
    """What is chosen, or else claimed, if it splits positions."""
    places = places_of(values)
    chosen = choice_of(context, inst, signature, places)
    if _num_parts(chosen.signature, chosen.space) > 1:
        return chosen
    [problem] = problems_of(inst, signature, places, wanted_of(context, inst))
    spaces = (claim.space for claim in problem.claims())
    split = (s for s in spaces if _num_parts(signature, s) > 1 and problem.can_be_computed(s))
    return next((priced_split(problem, space, context.prices) for space in split), None)


def _num_parts(signature: Signature, space: HloSharding) -> int:
    return space.data_dims[signature.index[_POSITIONS]] if space.kind == "tiled" else 1


def _ring_of(context: Context, inst: Instruction, found: FusedAttention, choice: FactorChoice | None) -> Ring | None:
    """None where nobody splits queries along positions, or keys cannot be split so."""
    # A call sees all keys that it is given: where they do not divide evenly it would see padding, too.
    if choice is None or inst.operands[1].shape.dims[found.length] % _num_parts(choice.signature, choice.space):
        return None
    operands = _with_keys_split(choice, choice.operands, choice.signature.operands, found.length)
    results = choice.results
    if found.is_backward:
        results = _with_keys_split(choice, results, choice.signature.results, RESULT_POSITIONS)
    places = tuple(index[found.length] for index in tile_table(operands[0], 4, context.num_partitions))
    return Ring(inst, found, operands, results, device_groups_along(operands[0], (found.length,)), places)


def _with_keys_split(
    choice: FactorChoice, given: Sequence[HloSharding], dims: Sequence[Dims], at: int
) -> tuple[HloSharding, ...]:
    """Operands, or results, with keys and values split along positions, their dim `at`, as queries are."""
    factor = choice.signature.index[_POSITIONS]

    def split(parts: Dims) -> HloSharding:
        return project(choice.space, tuple((factor,) if d == at else part for d, part in enumerate(parts)))

    pairs = enumerate(zip(given, dims, strict=True))
    return tuple(split(parts) if number in _KEYS else place for number, (place, parts) in pairs)


# ---- prices


def _pays(context: Context, ring: Ring, choice: FactorChoice, values: list[Value]) -> bool:
    """Does a ring take less than a call, with what moves before and behind?"""
    known, places, wanted = context.decisions.faster_rings, places_of(values), wanted_of(context, ring.inst)
    key = (ring.found, ring.operands, ring.results, choice, *key_of_places(places, wanted))
    if key not in known:
        passed_on = _alone(context, ring, ring.operands, partial(emit_ring, ring=ring))
        called = _alone(context, ring, choice.operands, partial(_emit_call, ring=ring))
        by_ring = _weight(context, passed_on, called, _moving(context, ring, places, wanted))
        known[key] = by_ring < _weight(context, called, passed_on, choice.communication)
    return known[key]


def _moving(context: Context, ring: Ring, places: Places, wanted: Wanted) -> float:
    """`comparable_seconds` to bring operands into place, and results to what is wanted."""
    prices, leaves = context.prices, zip(ring.inst.shape.leaves, ring.results, wanted, strict=True)
    before = sum(prices.move_seconds(value, place) for value, place in zip(places, ring.operands, strict=True))
    return before + sum(prices.reshard_seconds(shape, s, w or s, None) for shape, s, w in leaves)


def _weight(context: Context, one: Alone, other: Alone, moving: float) -> tuple[bool, float]:
    """What is compared of one way, with what moves for it.  Fewer bytes are not bought with work, which has no price
    unless the objective is time."""
    repeats_work = context.prices.objective != "time" and one.flops > MORE_WORK * other.flops
    return repeats_work, moving + context.prices.comparable_seconds(one.cost)


def _alone(
    context: Context,
    ring: Ring,
    places: Sequence[HloSharding],
    emit: Callable[[Emitter, Arrays], Arrays],
) -> Alone:
    """What is computed of operands that lie there."""
    shapes = [local_shape(context, x.shape, s) for x, s in zip(ring.inst.operands, places, strict=True)]

    def packed(emitter: Emitter, operands: Arrays) -> Instruction:
        leaves = emit(emitter, operands)
        return emitter.op("tuple", Shape.tuple(tuple(x.shape for x in leaves)), tuple(leaves))

    return priced_alone(context, shapes, packed)


def _emit_call(emitter: Emitter, operands: Arrays, ring: Ring) -> Arrays:
    made = AttentionParts(emitter, ring.inst, ring.found).call(*_sides(operands), sees_all=not ring.found.is_causal)
    return [*made.of_queries, *made.of_keys]


# ---- what a device does


def _sides(operands: Arrays) -> tuple[list[Instruction], list[Instruction]]:
    """What stays, and what goes round."""
    queries, keys, values, *rest = operands
    return [queries, *rest], [keys, values]


def emit_ring(emitter: Emitter, operands: Arrays, ring: Ring) -> list[Instruction]:
    """The leaves of the result, each in its own part."""
    parts = AttentionParts(emitter, ring.inst, ring.found)
    balance = Balance(parts, ring.groups, ring.places) if ring.found.is_causal else None
    own, keys = _sides(operands if balance is None else [balance.spread(x, parts.positions(x)) for x in operands])
    total, home = parts.call(own, keys, sees_all=balance is None)
    sums: list[Instruction] = []
    for step in range(1, ring.size):
        keys, sums = _passed_on(emitter, ring, keys), _passed_on(emitter, ring, sums)
        for made in [parts.call(own, keys, sees_all=True)] if balance is None else balance.met(own, keys, step):
            total = parts.joined(total, made.of_queries)
            sums = parts.added(sums, made.of_keys) if sums else made.of_keys
    home = [*_of_type(parts, ring, total), *parts.added(_passed_on(emitter, ring, sums), home)]
    # The last leaf stands for the workspace of one call, which nobody reads.
    return [*(home if balance is None else map(balance.gathered, home)), emitter.full(0, ring.inst.shape.leaves[-1])]


def _of_type(parts: AttentionParts, ring: Ring, total: Arrays) -> Iterator[Instruction]:
    """What is asked of them: sums are of no use where there is no backward pass."""
    leaves = ring.inst.shape.leaves[:-1]
    return (parts.converted(x, leaf.element_type) for x, leaf in zip(total, leaves, strict=False))


def _passed_on(emitter: Emitter, ring: Ring, arrays: Arrays) -> list[Instruction]:
    """Each device gets those of the one before it."""
    pairs = [(group[n - 1], group[n]) for group in ring.groups for n in range(ring.size)]
    return [emitter.collective_permute(x, pairs) for x in arrays]
