"""Everything that is decided of an op before anything is emitted, made once for equal ops on equally sharded operands.

Floor: partitioner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hlosharding.cost import PART_READERS, memory_passes
from hlosharding.ir import Instruction, Shape
from hlosharding.partitioner.broadcast_dims import broadcast_dims_of_results
from hlosharding.partitioner.choice import FactorChoice, Lowering
from hlosharding.partitioner.context import PlanContext
from hlosharding.partitioner.decisions import Decisions
from hlosharding.partitioner.factors.choice_problem import ChoiceProblem, Operand, Result, SplitQuestion
from hlosharding.partitioner.factors.factor_choice import choose, least_communication, promising_splits
from hlosharding.partitioner.factors.factor_roles import is_looked_up, is_reduced, splittable
from hlosharding.partitioner.local_ops import WindowedFactors, local_rule, reversed_taps_dims
from hlosharding.partitioner.partial_sums import DEFERRAL_RULES, may_wait
from hlosharding.partitioner.resharding import local_shape
from hlosharding.partitioner.value import ValuePlace
from hlosharding.rules import Reduce, Signature, signature_of
from hlosharding.sharding import HloSharding, uneven_dims

Places = Sequence[ValuePlace]
"""Of the operands."""
Wanted = tuple[HloSharding | None, ...]
Dims = tuple[int, ...]

# Sums in these depend on their order in the first digit already, and XLA's CPU all-reduce drops the NaN of f8e8m0fnu.
_NO_PARTIAL_SUMS = frozenset({"f4e2m1fn", "f8e8m0fnu"})


# A named tuple and no dataclass, for it is hashed in C: every op is looked up by one.
class _Op(NamedTuple):
    """All of an instruction that a choice depends on; equal ones are one object (`op_of`), told by its `id` alone."""

    opcode: str
    shape: Shape
    signatures: tuple[Signature, ...]
    """That of the op's rule, and an alternative one."""
    windows: tuple[WindowedFactors, ...]
    """Of each signature, per factor the window it runs over."""
    has_custom_reduction: bool


def lowering_of(
    context: PlanContext, inst: Instruction, signature: Signature, operands: Places, wanted: Wanted
) -> Lowering:
    """The cheapest split over all signatures of the op, and what follows from it."""
    decisions = context.decisions
    op, waits = op_of(decisions, inst, signature, operands), _may_wait(context, inst)
    looked_up = _dims_looked_up(inst) if wanted == (None,) else ()
    key = (id(op), waits, looked_up, *key_of_places(operands, wanted))
    lowering = decisions.lowerings.get(key)
    if lowering is None:
        problems = tuple(_problems(inst, op, operands, wanted, looked_up))
        lowering = decisions.lowerings[key] = _decided(context, op, problems, operands, waits)
    return lowering


def _dims_looked_up(value: Instruction) -> tuple[int, ...]:
    """Dims along which all its readers look rows up: split, it would be gathered for them."""
    found = set(range(value.shape.rank)) if value.users else set[int]()
    for user in value.users:
        signature = signature_of(user) if found else None
        if not isinstance(signature, Signature):
            return ()
        for operand, dims in zip(user.operands, signature.operands, strict=True):
            if operand is value:
                found &= {d for d, factors in enumerate(dims) if any(is_looked_up(signature, f) for f in factors)}
    return tuple(sorted(found))


def key_of_places(operands: Places, wanted: Wanted) -> list[Any]:
    """How operands and results of an op lie, as far as choices depend on it."""
    found: list[Any] = [None if w is None else w.uid for w in wanted]
    for place in operands:
        found += place.key
    return found


def ways_to_lie(
    context: PlanContext, inst: Instruction, signature: Signature, places: Places, wanted: Wanted, *, most: int
) -> list[tuple[HloSharding, ...]]:
    """How the result and the operands lie under the splits of the op that promise most."""
    found: list[tuple[HloSharding, ...]] = []
    problems = problems_of(inst, signature, places, wanted)
    splits, _ = promising_splits(problems, context.prices, context.decisions.mesh, most=most)
    for problem, space, _ in splits:
        operands = [problem.operand_sharding(operand, space) for operand in problem.operands]
        # No factor is owed: so the result lies once its sums are made.
        found.append((problem.result_sharding(problem.results[0], space, ()), *operands))
    return found


def problems_of(inst: Instruction, signature: Signature, operands: Places, wanted: Wanted) -> list[ChoiceProblem]:
    """The op between its operands and what is wanted, with each of its signatures."""
    return list(_problems(inst, _as_op(inst, signature, operands), operands, wanted))


def least_sent(
    context: PlanContext, inst: Instruction, signature: Signature, operands: Places, wanted: Wanted
) -> float:
    """`comparable_seconds` that no lowering by factors communicates less than; 0 where that is not known.

    Of partial results, and of operands that are needed twice, less may be sent than the bound of one split says.
    """
    if len(set(operands)) < len(operands) or any(is_reduced(signature, f) for f in range(len(signature.factors))):
        return 0.0
    known, mesh = context.decisions.least_sent, context.decisions.mesh
    key = (id(op_of(context.decisions, inst, signature, operands)), *key_of_places(operands, wanted))
    if key not in known:
        known[key] = least_communication(problems_of(inst, signature, operands, wanted), context.prices, mesh)
    return known[key]


def _may_wait(context: PlanContext, inst: Instruction) -> bool:
    """Would partial results be reduced later than here?"""
    rule = DEFERRAL_RULES.get(inst.opcode)
    return rule is not None and rule.makes_partial_sums and may_wait(context, inst)


def op_of(decisions: Decisions, inst: Instruction, signature: Signature, operands: Places) -> _Op:
    """Of an instruction asked once, unless it depends on what became of the operands."""
    known = decisions.ops.get(inst)
    if known is not None:
        return known
    made = _as_op(inst, signature, operands)
    op = decisions.equal_ops.setdefault(made, made)
    if local_rule(inst.opcode).alternative is None:
        decisions.ops[inst] = op
    return op


def _as_op(inst: Instruction, signature: Signature, operands: Places) -> _Op:
    rule, signatures = local_rule(inst.opcode), (signature,)
    if rule.alternative is not None:
        alternative = rule.alternative(inst, signature, operands[0].sharding if operands else None)
        signatures = (signature, alternative) if alternative is not None else signatures
    windows = tuple((None,) * len(s.factors) if rule.windows is None else rule.windows(inst, s) for s in signatures)
    has_reduction = rule.custom_reduction is not None and rule.custom_reduction.applies(inst)
    return _Op(inst.opcode, inst.shape, signatures, windows, has_reduction)


def _decided(
    context: PlanContext, op: _Op, problems: tuple[ChoiceProblem, ...], operands: Places, waits: bool
) -> Lowering:
    leaves, decisions = op.shape.leaves, context.decisions
    broadcast_dims = _broadcast_dims(op, operands)
    question = SplitQuestion(problems, waits, context.prices, decisions.mesh, decisions.only_propagated)
    choice = choose(question)
    shapes = tuple(local_shape(context, shape, target) for shape, target in zip(leaves, choice.results, strict=True))
    masked = _masked_dims(op.windows[op.signatures.index(choice.signature)], choice, operands)
    owed = [choice.signature.factors[n].owes for n in choice.deferred]
    # An operand may have to enter the partial results of one device only.
    is_plain = not any(masked) and not any(isinstance(owes, Reduce) and owes.once for owes in owed)
    decided = choice.operands, choice.results, choice.seconds
    return Lowering(*decided, choice, shapes, masked, is_plain, broadcast_dims, question)


def _broadcast_dims(op: _Op, operands: Places) -> tuple[Dims, ...]:
    """Per result leaf the dims along which all elements are the same."""
    if local_rule(op.opcode).keeps_broadcast_dims:
        return broadcast_dims_of_results(op.signatures[0], [place.broadcast_dims for place in operands])
    return ((),) * len(op.shape.leaves)


def _problems(
    inst: Instruction, op: _Op, places: Places, wanted: Wanted, looked_up: Dims = ()
) -> Iterator[ChoiceProblem]:
    """The op with each of its signatures."""
    known = _broadcast_dims(op, places)
    for signature, windows in zip(op.signatures, op.windows, strict=True):
        taps = reversed_taps_dims(inst, windows)
        operands = tuple(
            Operand(
                lies=place,
                dims=dims,
                reversed_dims=taps if index == 1 else (),
                is_read_in_part=index == 0 and inst.opcode in PART_READERS,
            )
            for index, (place, dims) in enumerate(zip(places, signature.operands, strict=True))
        )
        leaves = zip(op.shape.leaves, wanted, signature.results, known, strict=True)
        yield ChoiceProblem(
            signature=signature,
            operands=operands,
            results=tuple(
                Result(shape=s, wanted=w, dims=dims, broadcast_dims=d, looked_up=looked_up) for s, w, dims, d in leaves
            ),
            allowed=_allowed(op, signature),
            windows=windows,
            memory_passes=memory_passes(inst),
        )


def _allowed(op: _Op, signature: Signature) -> frozenset[int]:
    """Factors that may be split."""
    rule = local_rule(op.opcode)
    allowed = splittable(
        signature,
        halo=rule.windows is not None,
        indexed=rule.shifts_indices,
        any_reducer=op.has_custom_reduction,
    )
    if any(leaf.element_type in _NO_PARTIAL_SUMS for leaf in op.shape.leaves):
        return frozenset(n for n in allowed if not isinstance(signature.factors[n].owes, Reduce))
    return allowed


def _masked_dims(windows: WindowedFactors, choice: FactorChoice, places: Places) -> tuple[Dims, ...]:
    """Per operand the uneven dims whose padding the op would mix in.  Windows see to their own."""
    mixed = [isinstance(f.owes, Reduce) and w is None for f, w in zip(choice.signature.factors, windows, strict=True)]
    tensors = zip(places, choice.operands, choice.signature.operands, strict=True)
    return tuple(
        tuple(d for d in uneven_dims(sharding, place.shape.dims) if any(mixed[f] for f in dims[d]))
        for place, sharding, dims in tensors
    )
