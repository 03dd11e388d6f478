"""Products of tokens sorted by expert (`jax.lax.ragged_dot`), with what lies between two of them expert by expert.

Floor: search.  JAX lowers such a product to one of rows that are repeated for each expert and masked: it sums over the
experts, all but one of which give zeros.  A gate that reads that sum wants it whole, so devices that have other experts
each would exchange it.  But the next product masks its rows again: of what it reads it needs, of each expert, the rows
of that expert alone, and these the products before make without a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hlosharding.ir import ELEMENTWISE, Computation, DotDims, Instruction, Module, NameUniquer, Shape, rewrite


class Groups(NamedTuple):
    """Rows that are repeated for each group, and masked but for its own."""

    sizes: Instruction
    """Of the groups; where rows come in several stretches (the sequences of a batch), of each stretch by itself."""
    dim: int
    """Along which they are repeated."""


def groups_of(value: Instruction) -> Groups | None:
    """Of what such rows are, perhaps with their dims in another order; None of anything else.

    Group g has the rows from where the one before ends to where it ends: both from running sums of the sizes.  The
    other rows are zeros: of anything else each group's product would have its part.
    """
    if value.opcode == "transpose":
        found = groups_of(value.operands[0])
        return None if found is None else found._replace(dim=value.dimensions.index(found.dim))
    mask = value.operands[0] if value.opcode == "select" else None
    if mask is None or mask.opcode != "and" or any(side.opcode != "compare" for side in mask.operands):
        return None
    (starts, rows), (same_rows, ends) = (side.operands for side in mask.operands)
    directions = [side.comparison_direction for side in mask.operands]
    sums, firsts, numbers = _of_groups_alone(ends), _of_groups_alone(starts), _find_source(rows)
    is_of_rows = numbers.opcode == "iota" and numbers is _find_source(same_rows)
    if directions != ["LE", "LT"] or not is_of_rows or sums is None or firsts is None:
        return None
    begins_behind = firsts.opcode == "concatenate" and firsts.operands[-1].opcode == "slice"
    if sums.opcode != "reduce-window" or not begins_behind or firsts.operands[-1].operands[0] is not sums:
        return None
    return Groups(sums.operands[0], sums.shape.rank - 1) if _is_zero(value.operands[2]) else None


def _of_groups_alone(value: Instruction) -> Instruction | None:
    """What is repeated along all dims but the first ones, of which the groups are the last."""
    is_first = value.opcode == "broadcast" and value.dimensions == tuple(range(len(value.dimensions)))
    return value.operands[0] if is_first and value.dimensions else None


def _find_source(value: Instruction) -> Instruction:
    """What is repeated, along whatever dims."""
    while value.opcode in ("broadcast", "reshape"):
        value = value.operands[0]
    return value


def _is_zero(value: Instruction) -> bool:
    source = _find_source(value)
    return source.opcode == "constant" and not source.literal.any()


def group_by_expert(module: Module) -> Module:
    """The program with values between two such products expert by expert; the program itself where there are none.

    >>> import jax, jax.numpy as jnp, hlosharding as hs
    >>> def layer(up, down, x, sizes):
    ...     return jax.lax.ragged_dot(jnp.tanh(jax.lax.ragged_dot(x, up, sizes)), down, sizes)
    >>> shapes = (4, 8, 2), (4, 2, 8), (16, 8)
    >>> traced = hs.trace(layer)(*map(jnp.ones, shapes), jnp.full(4, 4))
    >>> [str(dot.shape) for dot in group_by_expert(traced).of_opcodes("dot")]
    ['f32[4,16,2]', 'f32[16,8]']
    """
    if not any(map(groups_of, module.of_opcodes("select"))):
        return module
    made = module.clone()
    names = NameUniquer(inst.name for inst in made.instructions)
    for computation in made.computations:
        _Grouping(computation, names).rewrite()
    rewrite.dead_code(made)
    made.renumber()
    return made


class _Grouping:
    """Rewrites one computation."""

    def __init__(self, computation: Computation, names: NameUniquer) -> None:
        self.computation, self.names = computation, names
        self.made: dict[tuple[Instruction, Instruction], Instruction | None] = {}
        """Of values, and the sizes of groups, their rows group by group."""
        self.reader = computation.root
        """Ahead of it stands what is made: the op whose operand it is to be."""

    def rewrite(self) -> None:
        # A copy of the list: ops are inserted ahead of their readers.
        for select in list(self.computation.instructions):
            groups = groups_of(select) if select.opcode == "select" else None
            repeated = select.operands[1] if groups is not None else select
            if groups is not None and repeated.opcode == "broadcast" and groups.dim not in repeated.dimensions:
                self.reader = select
                found = self._rows_of_each(repeated.operands[0], groups.sizes)
                # Not by shape: the groups are its first dim, and may be another one of what is masked.
                if found is not None and found.shape.size == repeated.shape.size:
                    rewrite.replace_operand(select, 1, self._move_groups(found, groups.dim))

    def _move_groups(self, found: Instruction, dim: int) -> Instruction:
        """With the groups, its first dim, where those that are masked have them."""
        if dim == 0:
            return found
        order = (*range(1, dim + 1), 0, *range(dim + 1, self.reader.shape.rank))
        return self._insert("transpose", found, (found,), self.reader.shape, dimensions=order)

    def _rows_of_each(self, value: Instruction, sizes: Instruction) -> Instruction | None:
        """What has of each group at least its own rows; None for what no product makes so."""
        while value.opcode == "get-tuple-element" and value.operands[0].opcode == "tuple":
            value = value.operands[0].operands[value.tuple_index]
        key = value, sizes
        if key not in self.made:
            split = self._split_product if value.opcode == "dot" else self._split_pointwise
            self.made[key] = split(value, sizes)
        return self.made[key]

    def _split_product(self, dot: Instruction, sizes: Instruction) -> Instruction | None:
        """A product of each group in place of their sum."""
        dims, (rows, weights) = dot.dot_dims, dot.operands
        groups, pairs = groups_of(rows), dict(zip(dims.lhs_contracting, dims.rhs_contracting, strict=True))
        if groups is None or groups.sizes is not sizes or groups.dim not in pairs or dims.lhs_batch:
            return None
        group = pairs.pop(groups.dim)
        of_each = DotDims(tuple(pairs), tuple(pairs.values()), (groups.dim,), (group,))
        shape = _shape_of_groups(dot, rows.shape.dims[groups.dim])
        return self._insert("dot", dot, (rows, weights), shape, dot_dims=of_each)

    def _split_pointwise(self, op: Instruction, sizes: Instruction) -> Instruction | None:
        operands = op.operands if op.opcode in ELEMENTWISE else ()
        found = [self._rows_of_each(operand, sizes) for operand in operands]
        groups = next((each.shape.dims[0] for each in found if each is not None), None)
        if groups is None:
            return None
        every = [each or self._repeat(operand, groups) for each, operand in zip(found, operands, strict=True)]
        made = rewrite.copy(op, self.computation.instructions.index(self.reader), every, to=self.computation)
        rewrite.rename(made, self.names.fresh(op.name))
        rewrite.set_shape(made, _shape_of_groups(op, groups))
        return made

    def _repeat(self, value: Instruction, groups: int) -> Instruction:
        dims = tuple(range(1, value.shape.rank + 1))
        return self._insert("broadcast", value, (value,), _shape_of_groups(value, groups), dimensions=dims)

    def _insert(
        self, opcode: str, like: Instruction, operands: Sequence[Instruction], shape: Shape, **attributes: Any
    ) -> Instruction:
        """Ahead of the reader."""
        place, name = self.computation.instructions.index(self.reader), self.names.fresh(like.name)
        return rewrite.insert(self.computation, place, opcode, shape, operands, name=name, like=like, **attributes)


def _shape_of_groups(value: Instruction, groups: int) -> Shape:
    """With the groups as the first dim."""
    return value.shape.with_dims((groups, *value.shape.dims))
