"""Every split of an op: none is left out, and operands that lie as it says need not move."""

from __future__ import annotations

import pytest

import hlosharding as hs
from hlosharding.partitioner import alternatives_of, even_placements, every_split
from hlosharding.rules import Signature, signature_of
from hlosharding.sharding import TileAssignment, without_partials
from tests.support import split_programs
from tests.support.split_programs import mark

OPS = {
    "dot": "x = f32[8,16] parameter(0)  y = f32[16,4] parameter(1)"
    "  ROOT r = f32[8,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "batched dot": "x = f32[4,8,16] parameter(0)  y = f32[4,16,8] parameter(1)  ROOT r = f32[4,8,8] dot(x, y),"
    " lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}",
    "transpose": "x = f32[8,16] parameter(0)  ROOT r = f32[16,8] transpose(x), dimensions={1,0}",
    "convolution": "x = f32[8,9,4] parameter(0)  w = f32[2,4,8] parameter(1)"
    "  ROOT r = f32[8,8,8] convolution(x, w), window={size=2}, dim_labels=b0f_0io->b0f",
    "broadcast": "x = f32[8] parameter(0)  ROOT r = f32[8,4] broadcast(x), dimensions={0}",
}


def root_of(name: str) -> hs.ir.Instruction:
    """The op, alone in a program."""
    return hs.load(f"HloModule m\nENTRY e {{ {OPS[name]} }}").entry.root


@pytest.mark.parametrize(
    ("name", "num_dims"), [("dot", 3), ("batched dot", 4), ("transpose", 2), ("broadcast", 2), ("convolution", 3)]
)
@pytest.mark.parametrize("mesh", [(4,), (2, 2)])
def test_each_axis_goes_to_each_dim_or_none(name: str, num_dims: int, mesh: tuple[int, ...]) -> None:
    op = root_of(name)
    signature = signature_of(op)
    assert isinstance(signature, Signature)
    splits = every_split(op, signature, TileAssignment.from_iota(mesh))
    assert len({split.space for split in splits}) == len(splits) == (num_dims + 1) ** len(mesh)


@pytest.mark.parametrize("name", OPS)
def test_nothing_moves_where_all_lies_as_a_split_has_it(name: str) -> None:
    op = root_of(name)
    signature = signature_of(op)
    assert isinstance(signature, Signature)
    for split in every_split(op, signature, TileAssignment.from_iota((2, 2))):
        said = {o.name: place for o, place in zip(op.operands, split.operands, strict=True)}
        placed = hs.annotate(op.module, {**said, op.name: without_partials(split.results[0])})
        kinds = {c.kind for c in hs.partition(placed, num_partitions=4).collectives}
        assert kinds <= ({"all-reduce"} if split.reduce_kind else set()), (str(split.space), kinds)


def test_only_even_tiles() -> None:
    found = even_placements((6, 4), TileAssignment.from_iota((4,)))
    assert [str(place) for place in found] == ["{replicated}", "{devices=[1,4]<=[4]}"]
    assert len(even_placements((4, 4, 4), TileAssignment.from_iota((2, 2)))) == 16
    assert [str(place) for place in even_placements((), TileAssignment.from_iota((4,)))] == ["{replicated}"]


def test_windows_and_results_of_a_convolution_are_two_splits() -> None:
    """Both split the fourth dim of their spaces."""

    def convolved(wanted: str) -> hs.Partitioned:
        return split_programs.split(f"""
            x = f32[8,64,4] parameter(0){mark("[1,8,1]<=[8]")}
            w = f32[33,4,8] parameter(1){mark("[8,1,1]<=[8]")}
            ROOT c = f32[8,32,8] convolution(x, w), window={{size=33}}, dim_labels=b0f_0io->b0f{mark(wanted)}""")

    by_windows, by_results = convolved(""), convolved("[1,8,1]<=[8]")
    splits, other = (alternatives_of(program.plans["c"], most=9) for program in (by_windows, by_results))
    assert splits is not None
    assert other is not None
    assert splits.chosen.factors[3] == "taps0"
    assert other.chosen.factors[3] != "taps0"
    found = next(o for o in splits.others if o.space == other.chosen.space == splits.chosen.space)
    gathered = 8 * 32 * 8 * 4 * 7 / 8
    assert found.factors == other.chosen.factors
    assert found.comm_bytes == other.chosen.comm_bytes + gathered
