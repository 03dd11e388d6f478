"""Which dim of each weight tensor parallelism splits: one walk through the forward pass, by the rules of its ops.

Floor: search.  Megatron's alternation (Shoeybi et al. 2019) with no model's names in it: a product whose input is whole
splits its weight by columns, one whose input is split already by rows, and what stands between carries the split on, or
cannot (a reduction over all features), and it ends there.  Loops are walked through as their first trip runs; there, a
row of stacked weights is a weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from hlosharding.ir import PACKS, SAME_ELEMENTS, Computation, Instruction, Module, fused_attention, while_parts
from hlosharding.rules import Dims, Halo, Nothing, Reduce, Signature, Whole, signature_of
from hlosharding.search.ragged_products import groups_of

_SAME_WEIGHT = SAME_ELEMENTS | {"dynamic-slice", "opt-barrier", "reduce-precision"}
"""What such an op gives of a weight, or of a row of stacked ones, is that weight."""


def tensor_splits(
    module: Module, ways: int, *, batch: frozenset[int] = frozenset(), experts: int = 1
) -> dict[int, int]:
    """The dim to be split, of each weight by parameter number, into so many pieces, or as many as it is long
    (`is_split`); others are left whole.

    `batch`: numbers of the parameters that are no weights.  `experts`: over how many further ways these are split.

    >>> import jax.numpy as jnp, hlosharding as hs
    >>> def mlp(up, down, x):
    ...     return jnp.tanh(x @ up) @ down
    >>> tensor_splits(hs.trace(mlp)(jnp.ones((4, 8)), jnp.ones((8, 4)), jnp.ones((2, 4))), 2, batch=frozenset({2}))
    {0: 1, 1: 0}
    """
    walk = _WeightWalk(ways, batch, experts)
    walk.walk(module.entry)
    return walk.weights


def expert_dims(module: Module, ways: int, *, batch: frozenset[int] = frozenset()) -> dict[int, int]:
    """Of each weight by parameter number the dim of experts that ways divide: its product has one for each of them, or
    sums over them rows that are masked but for one (`jax.lax.ragged_dot`).

    >>> import jax.numpy as jnp, hlosharding as hs
    >>> traced = hs.trace(lambda w, x: jnp.einsum("ebc,ech->ebh", x, w))(jnp.ones((4, 8, 2)), jnp.ones((4, 3, 8)))
    >>> expert_dims(traced, 2, batch=frozenset({1}))
    {0: 0}
    """
    walk = _WeightWalk(1, batch)
    walk.walk(module.entry)
    return {number: dim for number, (dim, size) in walk.experts.items() if size % ways == 0}


class _WeightWalk:
    def __init__(self, ways: int, batch: frozenset[int], experts: int = 1) -> None:
        self.ways, self.batch, self.ways_of_experts = ways, batch, ways * experts
        self.weights: dict[int, int] = {}
        self.asked: set[Instruction] = set()
        """Weights whose first product was met: it decides, and what cannot be split there is left whole."""
        self.split: dict[Instruction, Mapping[int, int]] = {}
        """Of values that are split by then, by dim into how many pieces: heads may be two dims, groups and within."""
        self.experts: dict[int, tuple[int, int]] = {}
        """Of weights whose product has a batch dim, that dim and its size."""
        self.packed: dict[Instruction, Instruction] = {}
        """Of what loops carry, the tuple that they start with; of loops and calls, what they end with."""
        self.leaves: dict[Instruction, Sequence[Mapping[int, int]]] = {}
        """As `split`, of each leaf of what a call to flash attention gives."""

    def walk(self, computation: Computation) -> None:
        for inst in computation.instructions:
            self._walk_op(inst)

    def _walk_op(self, inst: Instruction) -> None:
        if inst.opcode == "while":
            self._walk_through(inst)
        # Attention may be a function that is called: unless it is walked into, the output's weight is split by columns,
        # the heads are gathered for it, and later products sum over activations.
        if inst.opcode == "call":
            self._walk_into(inst)
        if inst.opcode == "get-tuple-element":
            self._know_element(inst)
        # What a barrier keeps in memory is split as it was made: without, plans with sequence parallelism and float8
        # had other products than Megatron's.
        if inst.opcode == "opt-barrier":
            self.split[inst] = self.split.get(inst.operands[0], {})
        is_call = fused_attention(inst) is not None
        if inst.opcode in PACKS | {"parameter"} or not (inst.shape.is_array or is_call):
            return
        signature = signature_of(inst)
        if not isinstance(signature, Signature):
            return
        if inst.opcode in ("dot", "convolution"):
            self._split_weight(inst, signature)
        pieces = self._split_factors(inst, signature)
        if pieces and all(isinstance(signature.factors[factor].owes, Nothing) for factor in pieces):
            found = [self._split_result(signature, dims, pieces) for dims in signature.results]
            if is_call:
                self.leaves[inst] = found
            elif found[0]:
                self.split[inst] = found[0]

    def _split_result(self, signature: Signature, dims: Dims, pieces: Mapping[int, int]) -> Mapping[int, int]:
        """By dim into how many pieces; nothing where these are not one for each way."""
        found = {dim: _leading_pieces(signature, factors, pieces) for dim, factors in enumerate(dims)}
        is_whole = math.prod(found.values()) != self.ways
        return {} if is_whole else {dim: count for dim, count in found.items() if count > 1}

    def _walk_through(self, loop: Instruction) -> None:
        body = while_parts(loop).body
        [carry] = body.parameters
        self.packed[carry] = self._find_packed(loop.operands[0])
        self.walk(body)
        self.packed[loop] = self._find_packed(body.root)

    def _walk_into(self, call: Instruction) -> None:
        callee = call.called[0]
        for parameter, operand in zip(callee.parameters, call.operands, strict=True):
            self.split[parameter] = self.split.get(operand, {})
        self.walk(callee)
        self.packed[call] = self._find_packed(callee.root)
        self.split[call] = self.split.get(callee.root, {})

    def _know_element(self, inst: Instruction) -> None:
        value, given = self._find_element(inst), self.leaves.get(inst.operands[0])
        if given is not None:
            self.split[inst] = given[inst.tuple_index]
        elif value is not None and value in self.split:
            self.split[inst] = self.split[value]

    def _find_element(self, inst: Instruction) -> Instruction | None:
        """What is taken out of a tuple, perhaps on the way through loops and barriers."""
        packed = self._find_packed(inst.operands[0])
        return packed.operands[inst.tuple_index] if packed.opcode == "tuple" else None

    def _find_packed(self, value: Instruction) -> Instruction:
        """The tuple that came in through loops and barriers."""
        while value.opcode == "opt-barrier":
            value = value.operands[0]
        return self.packed.get(value, value)

    def _split_factors(self, inst: Instruction, signature: Signature) -> Mapping[int, int]:
        """The factors along which an operand is split, and into how many equal pieces."""
        for number, operand in enumerate(inst.operands):
            split = self.split.get(operand) or self._split_of_weight(operand)
            found: dict[int, int] = {}
            for dim, count in split.items():
                for factor in signature.operands[number][dim]:
                    found[factor] = math.gcd(count, signature.factors[factor].size)
                    count //= found[factor]
                    # Tiles are runs of a dim: while a major factor is not split to its end, minor ones stay whole.
                    if found[factor] < signature.factors[factor].size:
                        break
            if split and math.prod(found.values()) == self.ways:
                return {factor: count for factor, count in found.items() if count > 1}
        return {}

    def _split_weight(self, inst: Instruction, signature: Signature) -> None:
        """Split a weight that no op before has."""
        for number, operand in enumerate(inst.operands[:2]):
            found = self._find_weight(operand)
            if found is None or found[0].parameter_number in self.batch or found[0] in self.asked:
                continue
            parameter, dims = found
            self.asked.add(parameter)
            place = {dim[0]: n for n, dim in enumerate(signature.operands[number]) if len(dim) == 1}
            shared = place.keys() & {f for dim in signature.operands[1 - number] for f in dim}
            of_each = [f for f in shared if isinstance(signature.factors[f].owes, Nothing)]
            groups = groups_of(inst.operands[1 - number])
            if not of_each and groups is not None:  # a sum over rows but one's zeros
                of_each = [f for f in shared if f in signature.operands[1 - number][groups.dim]]
            if of_each:
                n = place[min(of_each)]
                self.experts[parameter.parameter_number] = dims[n], operand.shape.dims[n]
                if operand.shape.dims[n] % self.ways_of_experts:
                    # Experts that do not divide stay together; another dim may still be split.
                    place.pop(min(of_each))
            factor = next(iter(self._split_factors(inst, signature)), None)
            if factor is None:
                # The outermost of several: heads come before the features of each.
                factor = next((f for f in place if self._is_column(inst, signature, f)), None)
            if factor in place and is_split(operand.shape.dims[place[factor]], self.ways):
                self.weights[parameter.parameter_number] = dims[place[factor]]

    def _is_column(self, inst: Instruction, signature: Signature, factor: int) -> bool:
        """May a product be split along a factor that it does not sum over, with pieces that its readers can go on with?

        Heads may, the features of a head may not: attention sums over them between two activations.
        """
        if not isinstance(signature.factors[factor].owes, Nothing):
            return False
        waiting, seen = [(inst, dim) for _, dim in signature.result_dims(factor)], set[tuple[Instruction, int]]()
        while waiting:
            value, dim = waiting.pop()
            # A value is reached on as many ways as ops lead to it, which are two to the number of sums of branches.
            if (value, dim) in seen:
                continue
            seen.add((value, dim))
            for user in value.users:
                after = self._dims_after(user, value, dim)
                if after is None:
                    return False
                waiting += [(user, at) for at in after]
        return True

    def _dims_after(self, user: Instruction, value: Instruction, dim: int) -> Sequence[int] | None:
        """Along which dims of its result an op goes on with a split of a dim of an operand; none where that ends; None
        where the op needs the dim whole, or sums over it with what is no weight."""
        if user.opcode == "opt-barrier" and user.shape.is_array:
            return [dim]
        signature = signature_of(user) if user.shape.is_array else None
        if not isinstance(signature, Signature):
            return []
        leading = signature.operands[user.operands.index(value)][dim][:1]
        if not leading:
            return None
        owes = signature.factors[leading[0]].owes
        if user.opcode in ("dot", "convolution") and isinstance(owes, Reduce):
            return [] if any(self._find_weight(other) for other in user.operands if other is not value) else None
        if not isinstance(owes, Nothing):  # rows that are looked up may lie on several devices
            return None if isinstance(owes, Halo) or (isinstance(owes, Whole) and not owes.indexed) else []
        return [at for _, at in signature.result_dims(leading[0])]

    def _split_of_weight(self, operand: Instruction) -> Mapping[int, int]:
        found = self._find_weight(operand)
        if found is None or found[0].parameter_number not in self.weights:
            return {}
        return {found[1].index(self.weights[found[0].parameter_number]): self.ways}

    def _find_weight(self, operand: Instruction) -> tuple[Instruction, Sequence[int]] | None:
        """The parameter of which an operand is a copy or a row, maybe scaled, and which dim of it each dim is."""
        dims: Sequence[int] = range(operand.shape.rank)
        seen = set[Instruction]()
        while operand.opcode != "parameter":
            # Where two loops have one body, what both hand on leads back to itself.
            if operand in seen:
                return None
            seen.add(operand)
            found = self._find_element(operand) if operand.opcode == "get-tuple-element" else _without_scale(operand)
            if found is not None:
                operand = found
                continue
            if operand.opcode not in _SAME_WEIGHT:
                return None
            if operand.opcode == "transpose":
                dims = [operand.dimensions[dim] for dim in dims]
            elif operand.opcode == "reshape":
                place = _longer_dims(operand)
                # Dims of size 1 are none of `_longer_dims`: reshapes add and drop them, so no place tells which is
                # which.
                if place is None or any(operand.shape.dims[dim] == 1 for dim in dims):
                    return None
                dims = [place[dim] for dim in dims]
            operand = operand.operands[0]
        return (operand, dims) if operand.computation.is_entry else None


def _without_scale(value: Instruction) -> Instruction | None:
    """What is multiplied by one number, as weights are that become float8."""
    if value.opcode != "multiply":
        return None
    pairs = zip(value.operands, reversed(value.operands), strict=True)
    return next((x for x, y in pairs if y.opcode == "broadcast" and not y.operands[0].shape.rank), None)


def is_split(size: int, ways: int) -> bool:
    """Do ways divide a dim, or a dim them: keys' heads, each of which several ways hold then?

    >>> is_split(32, 8), is_split(8, 16), is_split(6, 4)
    (True, True, False)
    """
    return size % ways == 0 or (size > 1 and ways % size == 0)


def _leading_pieces(signature: Signature, factors: Sequence[int], pieces: Mapping[int, int]) -> int:
    """Into how many a dim is split that consists of these factors, the major ones first."""
    count = 1
    for factor in factors:
        count *= pieces.get(factor, 1)
        if pieces.get(factor, 1) < signature.factors[factor].size:
            break
    return count


def _longer_dims(reshape: Instruction) -> Mapping[int, int] | None:
    """Of the dims of a reshape that adds or drops dims of size 1, all longer ones, that of the operand; else None."""
    before, after = (
        [n for n, size in enumerate(shape.dims) if size > 1] for shape in (reshape.operands[0].shape, reshape.shape)
    )
    same = [reshape.operands[0].shape.dims[n] for n in before] == [reshape.shape.dims[n] for n in after]
    return dict(zip(after, before, strict=True)) if same else None
