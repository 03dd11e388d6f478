"""Tuples of many arrays: what propagation does grows as they do, and a leaf takes what an array would."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

import hlosharding as hs
from benchmarks import large_programs as large
from hlosharding.sharding import HloSharding

TEXT = """HloModule m
ENTRY e {
  p = (f32[8,8], f32[8,8], f32[8,8]) parameter(0)
  c = (f32[8,8], f32[8,8], f32[8,8]) copy(p)
  x = f32[8,8] get-tuple-element(c), index=0, sharding={devices=[2,1]<=[2]}
  y = f32[8,8] get-tuple-element(c), index=2, sharding={devices=[1,2]<=[2]}
  ROOT t = (f32[8,8], f32[8,8]) tuple(x, y)
}"""


def test_each_reader_gives_its_own_leaf() -> None:
    found = hs.propagate(hs.load(TEXT))
    assert str(found.shardings["c"]) == "{{devices=[2,1]<=[2]}, {replicated}, {devices=[1,2]<=[2]}}"
    assert "%x" in str(found.explain("c{0}"))
    assert "%y" in str(found.explain("c{2}"))


def _leaves_put_together(count: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many leaves all tuple shardings have that a run makes."""
    module, sizes = hs.load(large.read_apart(count)), list[int]()
    together = HloSharding.tuple

    def counting(leaves: Iterable[HloSharding]) -> HloSharding:
        elements = tuple(leaves)
        sizes.append(len(elements))
        return together(elements)

    with monkeypatch.context() as patch:
        patch.setattr(HloSharding, "tuple", counting)
        hs.propagate(module)
    return sum(sizes)


def test_shardings_of_a_large_tuple_are_put_together_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (_leaves_put_together(count, monkeypatch) for count in (50, 200))
    assert many < 5 * few


def test_a_parameter_is_tried_again_for_its_own_operand_only() -> None:
    state = hs.propagate(hs.load(large.called(20)))._state
    assert all(len(parameters) == 1 for parameters in state.nodes.passed_to.values())
    assert len(state.nodes.passed_to) == 20


@pytest.mark.parametrize("text", [large.carried(3), large.branches(3), large.called(3), large.read_apart(6)])
def test_a_program_whose_root_is_control_flow_names_what_was_annotated(text: str) -> None:
    found = hs.propagate(hs.load(text))
    assert {"a0", "a1", "a2"} <= found.annotated
