"""Where the batch flows: of each value that has one row an example, along which dim; and that it stays split there.

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


def keep_batch_split(module: Module, batch: Mapping[int, int]) -> dict[Instruction, Instruction]:
    """Constrain what the batch flows through to the split of the first parameter whose batch is split, in place.

    Other dims stay open.  Gives the constraint of each value that has one.
    """
    split = _split_of(module, batch)
    if split is None:
        return {}
    sharding, source = split
    found = batch_flow(module, batch)
    wanted: dict[Instruction, tuple[HloSharding, list[int]]] = {}
    for inst, dims in found.items():
        dim = dims[0] if inst.shape.is_array and _is_kept(inst) else None
        if dim is not None and inst.shape.dims[dim] % sharding.num_tiles_along(source) == 0:
            open_dims = [other for other in range(inst.shape.rank) if other != dim]
            wanted[inst] = along_dims(sharding, (source,), (dim,), inst.shape.rank), open_dims
    return constrain(module, wanted)


def _split_of(module: Module, batch: Mapping[int, int]) -> tuple[HloSharding, int] | None:
    for parameter in module.entry.parameters:
        sharding, dim = module.sharding(parameter), batch.get(parameter.parameter_number)
        if sharding is not None and dim is not None and sharding.is_tiled() and sharding.num_tiles_along(dim) > 1:
            return sharding, dim
    return None


def _is_kept(inst: Instruction) -> bool:
    """An op that could be split otherwise, or an array of a loop's carry."""
    is_carried = inst.opcode == "get-tuple-element" and inst.operands[0].opcode == "parameter"
    return inst.opcode in _CHOOSES or (is_carried and inst.computation is not inst.module.entry)


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
