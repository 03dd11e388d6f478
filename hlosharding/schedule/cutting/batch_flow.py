"""Where the batch flows, and what else its arguments are split along, as sequences: and that it stays split there.

Floor: schedule.  A strategy says how arguments lie.  What lies between them propagation decides, and where weights are
split over the devices that share the batch (FSDP, ZeRO), their split would spread to the activations, which then lose
that of the batch: gathered activations instead of gathered weights.  So the values that ops with a choice make, and
what loops carry, keep the batch's split, as `with_sharding_constraint(x, P("data", UNCONSTRAINED))` says by hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hlosharding.frontends import constrain
from hlosharding.ir import Computation, Instruction, Module, branches, while_parts
from hlosharding.rules import Nothing, Signature, signature_of
from hlosharding.sharding import HloSharding, along_dims

Dims = tuple[int | None, ...]
"""Of each leaf of a value the dim along which the batch lies, or None."""
_CHOOSES = frozenset({"convolution", "dot", "gather", "scatter"})
"""Ops that could as well be split along another dim."""
_CALLS = frozenset({"call", "custom-call"})


def batch_flow(module: Module, batch: Mapping[int, int]) -> dict[Instruction, Dims]:
    """By instruction, also of computations that others call.  `batch`: of parameters by number, the dim.

    >>> import hlosharding as hs
    >>> module = hs.load('''HloModule m
    ... ENTRY e { x = f32[8,4] parameter(0)  w = f32[4,2] parameter(1)
    ...   ROOT y = f32[2,8] dot(w, x), lhs_contracting_dims={0}, rhs_contracting_dims={1} }''')
    >>> batch_flow(module, {0: 0})[module.by_name("y")]
    (1,)
    """
    flow = _Flow()
    flow.through(module.entry, [(batch.get(p.parameter_number),) * _leaves(p) for p in module.entry.parameters])
    return flow.dims


def split_flows(batch: Mapping[int, int], shardings: Mapping[int, HloSharding]) -> list[Mapping[int, int]]:
    """What flows: the batch, and each other dim along which its parameters are split, as sequences are.

    >>> split_flows({0: 0}, {0: HloSharding.parse("{devices=[2,4]<=[8]}"), 1: HloSharding.parse("{devices=[8]<=[8]}")})
    [{0: 0}, {0: 1}]
    """
    others: dict[int, dict[int, int]] = {}
    for number, batch_dim in batch.items():
        ways = shardings[number].data_dims if number in shardings and shardings[number].is_tiled() else ()
        for dim in (dim for dim, count in enumerate(ways) if count > 1 and dim != batch_dim):
            others.setdefault(dim, {})[number] = dim
    return [batch, *others.values()]


def keep_split(module: Module, flows: Sequence[Mapping[int, int]]) -> dict[Instruction, Instruction]:
    """Constrain all through which a flow goes to its split, in place: as the first parameter lies that has one.

    Other dims stay open.  Gives the constraint of each value that has one.
    """
    source = _split_of(module, flows)
    if source is None:
        return {}
    sharding, sources = source
    found = [batch_flow(module, flow) for flow in flows]
    wanted: dict[Instruction, tuple[HloSharding, list[int]]] = {}
    for inst in filter(_is_kept, found[0]):
        places = {dim: dims[inst][0] for dim, dims in zip(sources, found, strict=True) if dim is not None}
        kept = {to: dim for dim, to in places.items() if to is not None and _divides(inst, to, sharding, dim)}
        if kept:
            open_dims = [other for other in range(inst.shape.rank) if other not in kept]
            wanted[inst] = along_dims(sharding, tuple(kept.values()), tuple(kept), inst.shape.rank), open_dims
    return constrain(module, wanted)


def _divides(inst: Instruction, dim: int, sharding: HloSharding, source: int) -> bool:
    return inst.shape.dims[dim] % sharding.num_tiles_along(source) == 0


def _split_of(module: Module, flows: Sequence[Mapping[int, int]]) -> tuple[HloSharding, list[int | None]] | None:
    """The sharding of a parameter along which something that flows is split, and which dim each flow enters along."""
    for parameter in module.entry.parameters:
        sharding, dims = module.sharding(parameter), [flow.get(parameter.parameter_number) for flow in flows]
        if sharding is not None and sharding.is_tiled():
            split = [dim if dim is not None and sharding.num_tiles_along(dim) > 1 else None for dim in dims]
            if any(dim is not None for dim in split):
                return sharding, split
    return None


def _is_kept(inst: Instruction) -> bool:
    """An op that could be split otherwise, an array of a loop's carry, or of what a call gives, which passes none."""
    source = inst.operands[0].opcode if inst.opcode == "get-tuple-element" else ""
    is_carried = source == "parameter" and inst.computation is not inst.module.entry
    return inst.shape.is_array and (inst.opcode in _CHOOSES or is_carried or source in _CALLS)


def _leaves(inst: Instruction) -> int:
    return len(inst.shape.leaves) if inst.shape.is_tuple else 1


class _Flow:
    """One walk; loops are walked through until what they carry no longer changes."""

    def __init__(self) -> None:
        self.dims: dict[Instruction, Dims] = {}

    def through(self, computation: Computation, arguments: Sequence[Dims]) -> Dims:
        """What a computation gives for such arguments."""
        for parameter, dims in zip(computation.parameters, arguments, strict=True):
            self.dims[parameter] = dims
        for inst in computation.instructions:
            if inst.opcode != "parameter":
                self.dims[inst] = self._of(inst, [self.dims[operand] for operand in inst.operands])
        return self.dims[computation.root]

    def _of(self, inst: Instruction, operands: Sequence[Dims]) -> Dims:
        match inst.opcode:
            case "tuple":
                return tuple(dim for dims in operands for dim in dims)
            case "get-tuple-element":
                first = inst.operands[0].shape.first_leaves
                return operands[0][first[inst.tuple_index] : first[inst.tuple_index + 1]]
            case "opt-barrier" | "copy":
                return operands[0]
            case "call":
                return self.through(inst.called[0], operands)
            case "while":
                return self._around(inst, operands[0])
            case "conditional":
                pairs = zip(branches(inst), operands[1:], strict=True)
                ways = [self.through(way.computation, [given]) for way, given in pairs]
                return _either(*ways)
            case _:
                return _through_op(inst, operands)

    def _around(self, loop: Instruction, carry: Dims) -> Dims:
        body, before = while_parts(loop).body, None
        while carry != before:
            before, carry = carry, _either(carry, self.through(body, [carry]))
        return carry


def _either(first: Dims, *others: Dims) -> Dims:
    """Where several values meet: zeros that a loop starts from have no batch, what its trips make of them has one."""
    return tuple(next((dim for dim in dims if dim is not None), None) for dims in zip(first, *others, strict=True))


def _through_op(inst: Instruction, operands: Sequence[Dims]) -> Dims:
    """The factor that the batch is in an operand, where it leads the dim, and the dim of the result that it leads."""
    none: Dims = (None,) * _leaves(inst)
    if all(dims == (None,) for dims in operands) or not all(len(dims) == 1 for dims in operands):
        return none
    signature = signature_of(inst)
    if not isinstance(signature, Signature):
        return none
    for number, (dim,) in enumerate(operands):
        leading = signature.operands[number][dim][:1] if dim is not None else ()
        for factor in leading:
            places = {
                leaf: at for leaf, at in signature.result_dims(factor) if signature.results[leaf][at][0] == factor
            }
            if places and isinstance(signature.factors[factor].owes, Nothing):
                return tuple(places.get(leaf) for leaf in range(len(none)))
    return none
