"""Collectives by ONNX Runtime's three operators, in each of which all ranks take part: AllReduce, AllGather, AllToAll.

Floor: onnx_ranks.  What these cannot say, groups of some ranks among it, is exact all the same: every rank gathers what
all have (`_of_all`) and takes what its own group means.  That moves more bytes than the collective itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hlosharding.ir import Instruction, reducer_kind
from hlosharding.onnx_ranks.graph_writer import WRITERS, GraphWriter, no_form
from hlosharding.spmd import Devices, device_groups, permute_pairs

_SUMMED = ("f16", "f32", "f64")
"""Element types that AllReduce takes."""
_MOVED = (*_SUMMED, "s64", "pred")
"""... that AllGather and AllToAll take."""
_OF_TRUTH = {"and": "minimum", "or": "maximum"}
Meaning = Callable[[GraphWriter, Instruction, "Member", str, int], str]


class Member:
    """A rank in its group of a collective."""

    def __init__(self, out: GraphWriter, inst: Instruction) -> None:
        groups = device_groups(inst, Devices(out.num_ranks))
        self.is_alone = all(len(group) == 1 for group in groups)
        _refuse_divergence(out, inst, 0 if self.is_alone else len(groups))
        self.group = next(g for g in groups if out.rank in g)
        self.position = self.group.index(out.rank)
        self.has_all = self.group == tuple(range(out.num_ranks))


def _refuse_divergence(out: GraphWriter, inst: Instruction, groups: int) -> None:
    """ONNX Runtime's collectives wait for all ranks: those of other groups might never come."""
    if out.may_diverge and groups > 1:
        remedy = "split these values over all devices, or take it out of the branch or loop"
        raise no_form(inst, f"{inst.opcode} of some ranks, where others may take another way,", remedy=remedy)


def _each(meaning: Meaning) -> Callable[..., object]:
    """Of a collective that does the same with each operand."""

    def write(out: GraphWriter, inst: Instruction, *values: str) -> object:
        member = Member(out, inst)
        results = [
            value if member.is_alone else meaning(out, inst, member, value, number)
            for number, value in enumerate(values)
        ]
        return tuple(results) if inst.shape.is_tuple else results[0]

    return write


def _moved(out: GraphWriter, inst: Instruction, number: int, value: str) -> str:
    """The operand in a type that the operators take."""
    shape = inst.operands[number].shape
    if shape.element_type in _MOVED:
        return value
    return out.cast(value, np.float32 if shape.is_floating else np.int64)


def _back(out: GraphWriter, inst: Instruction, number: int, value: str) -> str:
    shape = inst.operands[number].shape
    return value if shape.element_type in _MOVED else out.cast(value, shape.dtype)


def _of_all(out: GraphWriter, inst: Instruction, number: int, value: str) -> str:
    """What all ranks have, in order along a new first dim."""
    row = out.reshape(_moved(out, inst, number, value), (1, *inst.operands[number].shape.dims))
    return out.collective("AllGather", row, axis=0, group_size=out.num_ranks)


def _of_group(out: GraphWriter, inst: Instruction, member: Member, number: int, value: str) -> str:
    """What the ranks of the group have, in its order along a new first dim."""
    rows = _of_all(out, inst, number, value)
    return rows if member.has_all else out.add("Gather", rows, out.integers(member.group), axis=0)


def _joined(out: GraphWriter, rows: str, dims: Sequence[int], axis: int, count: int) -> str:
    """Rows of `dims` one behind the other along `axis`."""
    order = [*range(1, axis + 1), 0, *range(axis + 1, len(dims) + 1)]
    return out.reshape(out.transpose(rows, order), [n * count if d == axis else n for d, n in enumerate(dims)])


def _pieces(out: GraphWriter, inst: Instruction, member: Member, number: int, value: str) -> tuple[str, list[int]]:
    """The pieces that the group's ranks have for this one, in order along a new first dim; dims of one."""
    axis, dims, count = inst.dimensions[0], list(inst.operands[number].shape.dims), len(member.group)
    piece = [n // count if d == axis else n for d, n in enumerate(dims)]
    if not member.has_all:
        rows, size = _of_group(out, inst, member, number, value), piece[axis]
        return out.slice(rows, axis + 1, member.position * size, (member.position + 1) * size), piece
    cut = out.reshape(_moved(out, inst, number, value), [*dims[:axis], count, piece[axis], *dims[axis + 1 :]])
    first = out.transpose(cut, [axis, *(d for d in range(len(dims) + 1) if d != axis)])
    return out.collective("AllToAll", first, group_size=out.num_ranks), piece


def _summed(out: GraphWriter, inst: Instruction, number: int, rows: str) -> str:
    """Rows reduced to one by the reducer of the collective."""
    kind, element = reducer_kind(inst.called[0]), inst.operands[number].shape.element_type
    if element == "pred":
        return out.cast(out.reduce(_OF_TRUTH.get(kind, kind), out.cast(rows, np.int64), [0]), np.bool_)
    if element == "u64":  # as numbers with a sign the upper half would be the least
        return out.reduce(kind, _back(out, inst, number, rows), [0])
    return _back(out, inst, number, out.reduce(kind, rows, [0]))


def _all_reduce(out: GraphWriter, inst: Instruction, member: Member, value: str, number: int) -> str:
    is_sum = reducer_kind(inst.called[0]) == "add" and inst.operands[number].shape.element_type in _SUMMED
    # In whatever order the group names them, unlike where pieces lie one behind the other.
    if is_sum and len(member.group) == out.num_ranks:
        return out.collective("AllReduce", value)
    return _summed(out, inst, number, _of_group(out, inst, member, number, value))


def _all_gather(out: GraphWriter, inst: Instruction, member: Member, value: str, number: int) -> str:
    axis, dims = inst.dimensions[0], inst.operands[number].shape.dims
    if member.has_all:
        moved = _moved(out, inst, number, value)
        return _back(out, inst, number, out.collective("AllGather", moved, axis=axis, group_size=out.num_ranks))
    rows = _back(out, inst, number, _of_group(out, inst, member, number, value))
    return _joined(out, rows, dims, axis, len(member.group))


def _reduce_scatter(out: GraphWriter, inst: Instruction, member: Member, value: str, number: int) -> str:
    return _summed(out, inst, number, _pieces(out, inst, member, number, value)[0])


def _all_to_all(out: GraphWriter, inst: Instruction, member: Member, value: str, number: int) -> str:
    if inst.shape.is_tuple:
        raise no_form(inst, "an all-to-all of a tuple", remedy="take the one that splits a dim of one array")
    pieces, piece = _pieces(out, inst, member, number, value)
    return _joined(out, _back(out, inst, number, pieces), piece, inst.dimensions[0], len(member.group))


def _collective_broadcast(out: GraphWriter, inst: Instruction, member: Member, value: str, number: int) -> str:
    rows = _back(out, inst, number, _of_all(out, inst, number, value))
    return _row(out, inst, rows, member.group[0], number)


def _row(out: GraphWriter, inst: Instruction, rows: str, row: int, number: int = 0) -> str:
    return out.reshape(out.slice(rows, 0, row, row + 1), inst.operands[number].shape.dims)


@WRITERS.register("collective-permute")
def _collective_permute(out: GraphWriter, inst: Instruction, *values: str) -> str:
    if len(values) != 1:
        raise no_form(inst, "a permute of several arrays", remedy="take one for each array")
    _refuse_divergence(out, inst, len(device_groups(inst, Devices(out.num_ranks))))
    sources = {target: source for source, target in permute_pairs(inst, Devices(out.num_ranks))}
    rows = _back(out, inst, 0, _of_all(out, inst, 0, values[0]))
    if len(sources) < out.num_ranks:
        # To whom nobody sends takes a row of zeros behind the others: a runtime leaves out a gather that is not read.
        zero = out.constant(np.zeros((), inst.shape.dtype))
        zeros = out.add("Expand", zero, out.integers((1, *inst.operands[0].shape.dims)))
        rows = out.add("Concat", rows, zeros, axis=0)
    return _row(out, inst, rows, sources.get(out.rank, out.num_ranks))


for _opcode, _meaning in {
    "all-reduce": _all_reduce,
    "all-gather": _all_gather,
    "reduce-scatter": _reduce_scatter,
    "all-to-all": _all_to_all,
    "collective-broadcast": _collective_broadcast,
}.items():
    WRITERS.add(_opcode, _each(_meaning))
