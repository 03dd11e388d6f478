"""The cut between what is kept and what is computed again has the fewest bytes of all."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from hlosharding.ir import Builder, DotDims, Instruction, Shape
from hlosharding.schedule.cutting.saved_values import CHEAP, choose_saved_values

SIZES = (1, 2, 4)


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Instruction], list[Instruction]]:
    """Some squares through dots (dear), negations and slices (cheap); and some of them that a backward pass reads."""
    main = Builder("m").computation("main")
    values = [main.parameter(0, Shape.array("f32", (4, 4)))]
    made: list[Instruction] = []
    for _ in range(draw(st.integers(1, 7))):
        value = draw(st.sampled_from(values))
        match draw(st.sampled_from(("dot", "negate", "add", "narrow"))):
            case "dot":
                inst = main.op("dot", (value, value), dot_dims=DotDims((1,), (1,)))
            case "negate":
                inst = main.op("negate", (value,))
            case "add":
                other = draw(st.sampled_from([v for v in values if v.shape == value.shape]))
                inst = main.op("add", (value, other))
            case _:
                size = draw(st.sampled_from([n for n in SIZES if n <= value.shape.dims[1]]))
                shape = Shape.array("f32", (value.shape.dims[0], size))
                inst = main.add("reduce-precision", value.shape, (value,)) if size == value.shape.dims[1] else None
                inst = inst or main.add("slice", shape, (value,), slice_dims=_columns(value, size))
        values.append(inst)
        made.append(inst)
    return made, draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True))


def _columns(value: Instruction, size: int) -> tuple[object, ...]:
    from hlosharding.ir import SliceDim

    return SliceDim(0, value.shape.dims[0], 1), SliceDim(0, size, 1)


def is_enough(kept: frozenset[Instruction], own: list[Instruction], read: list[Instruction]) -> bool:
    """Can all that is read be computed from what is kept, parameters and cheap ops alone?"""
    known = {inst for inst in own if inst in kept}
    for inst in own:
        if inst.opcode in CHEAP and all(o in known or o.opcode == "parameter" for o in inst.operands):
            known.add(inst)
    return known.issuperset(read)


@given(programs())
def test_no_other_choice_keeps_fewer_bytes(program: tuple[list[Instruction], list[Instruction]]) -> None:
    own, read = program
    kept = choose_saved_values(own, own, read)
    assert is_enough(kept, own, read)
    least = min(
        sum(inst.shape.byte_size for inst in choice)
        for count in range(len(own) + 1)
        for choice in combinations(own, count)
        if is_enough(frozenset(choice), own, read)
    )
    assert sum(inst.shape.byte_size for inst in kept) == least


@given(programs(), st.integers(0, 7))
def test_what_another_stage_made_is_kept(program: tuple[list[Instruction], list[Instruction]], border: int) -> None:
    made, read = program
    own = made[border:]
    kept = choose_saved_values(own, made, read)
    assert not [inst for inst in read if inst not in own and inst not in kept]
