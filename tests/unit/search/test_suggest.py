"""Suggestions are found by trying: each one printed really splits the value, and the best adds no bytes."""

from __future__ import annotations

import pytest

import hlosharding as hs

MLP = """HloModule mlp, num_partitions=4
ENTRY main {
  x = f32[8,16] parameter(0), sharding={devices=[1,4]<=[4]}
  w = f32[16,12] parameter(1)
  ROOT y = f32[8,12] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""


def test_a_weight_is_split_along_the_contracted_dim_that_the_other_side_splits() -> None:
    best = hs.suggest(hs.load(MLP), "w", machine=hs.machines.h100(4))[0]
    assert best.annotations == (("w", hs.HloSharding.parse("{devices=[4,1]<=[4]}")),)
    assert best.flops <= best.flops_before


def test_every_suggestion_splits_the_value() -> None:
    module = hs.load(MLP)
    for suggestion in hs.suggest(module, "w", machine=hs.machines.h100(4)):
        found = hs.propagate(hs.annotate(module, dict(suggestion.annotations)))
        assert found.shardings["w"] == suggestion.sharding
        assert suggestion.sharding.num_tiles > 1


def test_a_scalar_cannot_be_split() -> None:
    text = "HloModule m, num_partitions=4\nENTRY e {\n  x = f32[] parameter(0)\n  ROOT y = f32[] negate(x)\n}"
    assert hs.suggest(hs.load(text), "y") == []


def test_unknown_names_have_near_misses() -> None:
    with pytest.raises(hs.ModuleError, match="no instruction %yy"):
        hs.suggest(hs.load(MLP), "yy")
