"""Which dim of each weight tensor parallelism splits: one walk through the forward pass, by the rules of its ops.

Floor: search.  Megatron's alternation (Shoeybi et al. 2019) with no model's names in it: a product whose input is whole
splits its weight by columns, one whose input is split already by rows, and what stands between carries the split on, or
cannot (a reduction over all features), and it ends there.
"""

from __future__ import annotations

from hlosharding.ir import Instruction, Module
from hlosharding.rules import Nothing, Reduce, Signature, signature_of

_SAME_WEIGHT = {"convert", "copy", "bitcast", "optimization-barrier", "reduce-precision", "transpose"}


def tensor_splits(module: Module, ways: int, *, batch: frozenset[int] = frozenset()) -> dict[int, int]:
    """The dim to be split, of each weight by parameter number; weights that do not divide are left whole.

    `batch`: numbers of the parameters that are no weights.

    >>> import jax.numpy as jnp, hlosharding as hs
    >>> def mlp(up, down, x):
    ...     return jnp.tanh(x @ up) @ down
    >>> tensor_splits(hs.trace(mlp)(jnp.ones((4, 8)), jnp.ones((8, 4)), jnp.ones((2, 4))), 2, batch=frozenset({2}))
    {0: 1, 1: 0}
    """
    walk = _Walk(ways, batch)
    for inst in module.entry.instructions:
        walk.step(inst)
    return walk.weights


class _Walk:
    def __init__(self, ways: int, batch: frozenset[int]) -> None:
        self.ways, self.batch = ways, batch
        self.weights: dict[int, int] = {}
        self.split: dict[Instruction, int] = {}
        """Of values that are split by then, the dim."""

    def step(self, inst: Instruction) -> None:
        if inst.opcode in ("parameter", "tuple") or not inst.shape.is_array:
            return
        signature = signature_of(inst)
        if not isinstance(signature, Signature):
            return
        if inst.opcode in ("dot", "convolution"):
            self._decide(inst, signature)
        factor = self._split_factor(inst, signature)
        found = signature.result_dims(factor) if factor is not None else ()
        if factor is not None and found and isinstance(signature.factors[factor].owes, Nothing):
            dim = found[0][1]
            if signature.results[0][dim][0] == factor:
                self.split[inst] = dim

    def _split_factor(self, inst: Instruction, signature: Signature) -> int | None:
        """The factor along which an operand is split, if its pieces are equal."""
        for number, operand in enumerate(inst.operands):
            dim = self.split.get(operand, self._dim_of_weight(operand))
            if dim is not None and signature.operands[number][dim]:
                major = signature.operands[number][dim][0]
                if signature.factors[major].size % self.ways == 0:
                    return major
        return None

    def _decide(self, inst: Instruction, signature: Signature) -> None:
        """Split a weight that no op before has."""
        for number, operand in enumerate(inst.operands[:2]):
            found = _weight(operand)
            if found is None or found[0].parameter_number in self.batch or found[0].parameter_number in self.weights:
                continue
            parameter, dims = found
            place = {dim[0]: n for n, dim in enumerate(signature.operands[number]) if len(dim) == 1}
            factor = self._split_factor(inst, signature)
            if factor is None:
                columns = [f for f in place if not isinstance(signature.factors[f].owes, Reduce)]
                factor = max(columns, key=lambda f: signature.factors[f].size, default=None)
            if factor in place and operand.shape.dims[place[factor]] % self.ways == 0:
                self.weights[parameter.parameter_number] = dims[place[factor]]

    def _dim_of_weight(self, operand: Instruction) -> int | None:
        found = _weight(operand)
        if found is None or found[0].parameter_number not in self.weights:
            return None
        return found[1].index(self.weights[found[0].parameter_number])


def _weight(operand: Instruction) -> tuple[Instruction, tuple[int, ...]] | None:
    """The parameter of which an operand is a copy, and which dim of it each of the operand's dims is."""
    dims = tuple(range(operand.shape.rank))
    while operand.opcode in _SAME_WEIGHT:
        if operand.opcode == "transpose":
            dims = tuple(operand.dimensions[dim] for dim in dims)
        operand = operand.operands[0]
    return (operand, dims) if operand.opcode == "parameter" else None
