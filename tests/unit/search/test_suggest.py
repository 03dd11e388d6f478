"""Suggestions are found by trying: each one printed really splits the value, and the best adds no bytes."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

import hlosharding as hs
from hlosharding.search import smallest_sets, trial_prices

MLP = """HloModule mlp, num_partitions=4
ENTRY main {
  x = f32[64,1024] parameter(0), sharding={devices=[1,4]<=[4]}
  w = f32[1024,96] parameter(1)
  ROOT y = f32[64,96] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""


def test_a_weight_is_split_along_the_contracted_dim_that_the_other_side_splits() -> None:
    best = hs.suggest(hs.load(MLP), "w", machine=hs.machines.h100(4))[0]
    assert best.annotations == (("w", hs.HloSharding.parse("{devices=[4,1]<=[4]}")),)
    assert best.flops <= 1.05 * best.flops_before


def test_every_suggestion_splits_the_value() -> None:
    module = hs.load(MLP)
    for suggestion in hs.suggest(module, "w", machine=hs.machines.h100(4)):
        found = hs.propagate(hs.annotate(module, dict(suggestion.annotations)))
        assert found.shardings["w"] == suggestion.sharding
        assert suggestion.sharding is not None
        assert suggestion.sharding.num_tiles > 1


def test_a_scalar_cannot_be_split() -> None:
    text = "HloModule m, num_partitions=4\nENTRY e {\n  x = f32[] parameter(0)\n  ROOT y = f32[] negate(x)\n}"
    assert hs.suggest(hs.load(text), "y") == []


def test_unknown_names_have_near_misses() -> None:
    with pytest.raises(hs.ModuleError, match="no instruction %yy"):
        hs.suggest(hs.load(MLP), "yy")


# Two ways to split one matrix meet at `sum`; `free` follows whoever speaks first.
CLASH = """HloModule clash, num_partitions=4
ENTRY main {
  a = f32[8,8] parameter(0), sharding={devices=[4,1]<=[4]}
  b = f32[8,8] parameter(1), sharding={devices=[1,4]<=[4]}
  left = f32[8,8] tanh(a)
  right = f32[8,8] exponential(b)
  sum = f32[8,8] add(left, right)
  ROOT out = f32[8,8] negate(sum)
}"""
# `free` takes columns from its first user, though its other two users have rows.
FREE = """HloModule free, num_partitions=4
ENTRY main {
  w = f32[8,8] parameter(0)
  c = f32[8,8] parameter(1), sharding={devices=[1,4]<=[4]}
  x = f32[8,8] parameter(2), sharding={devices=[4,1]<=[4]}
  free = f32[8,8] negate(w)
  columns = f32[8,8] add(free, c)
  rows = f32[8,8] add(x, free)
  more = f32[8,8] multiply(x, free)
  ROOT all = (f32[8,8], f32[8,8], f32[8,8]) tuple(columns, rows, more)
}"""


def agree(found: hs.Propagation, one: str, other: str) -> bool:
    return {one, other} not in [{lost.winner.name, lost.loser.name} for lost in found.conflicts]


def smaller_sets_fail(module: hs.Module, suggestion: hs.Suggestion, one: str, other: str, count: int) -> bool:
    """None of the proper subsets does it (the search itself tried all smaller sets of its candidates)."""
    for size in range(len(suggestion.annotations)):
        for subset in combinations(suggestion.annotations, size):
            found = hs.propagate(hs.annotate(module, dict(subset)))
            if agree(found, one, other) and len(found.conflicts) < count:
                return False
    return True


def test_a_conflict_of_two_given_shardings_ends_when_one_of_them_changes() -> None:
    module = hs.load(CLASH)
    before = hs.propagate(module)
    assert not agree(before, "sum", "right")
    found = hs.suggest(module, "sum", conflict="right", machine=hs.machines.h100(4))
    assert {name for one in found for name, _ in one.annotations} == {"a", "b"}
    for one in found:
        after = hs.propagate(hs.annotate(module, dict(one.annotations)))
        assert agree(after, "sum", "right")
        assert (one.conflicts, one.conflicts_before) == (len(after.conflicts), 1)
        assert one.replaces == tuple(name for name, _ in one.annotations)
        assert one.is_smallest
        assert smaller_sets_fail(module, one, "sum", "right", 1)
        assert str(one).startswith("change %")


@pytest.mark.parametrize(("text", "name"), [(CLASH, "right"), (FREE, "free")])
def test_what_is_suggested_ends_every_conflict_of_the_value(text: str, name: str) -> None:
    module = hs.load(text)
    before = hs.propagate(module)
    others = [lost.loser.name for lost in before.explain(name).conflicts]
    assert others
    for one in hs.suggest(module, name, machine=hs.machines.h100(4)):
        after = hs.propagate(hs.annotate(module, dict(one.annotations)))
        assert all(agree(after, name, other) for other in others)
        assert after.shardings[name] == one.sharding
        assert all(smaller_sets_fail(module, one, name, other, len(before.conflicts)) for other in others)


def test_additional_annotations_come_before_changes() -> None:
    module = hs.load(FREE)
    assert len(hs.propagate(module).conflicts) == 2
    best = hs.suggest(module, "free", conflict="rows", machine=hs.machines.h100(4))[0]
    assert best.replaces == ()
    assert len(best.annotations) == 1
    assert str(best.sharding) == "{devices=[4,1]<=[4]}"
    assert (best.conflicts_before, best.conflicts) == (2, 1)


def test_smaller_sets_are_tried_before_larger_ones() -> None:
    """With a goal that only `needed` reaches, exactly the sets below its size are tried first, and it is found."""
    module = hs.load(CLASH)
    split = hs.HloSharding.parse("{devices=[4,1]<=[4]}")
    known = [(name, split) for name in ("left", "right", "sum", "out")]
    needed = {"left", "sum", "out"}
    tried: list[set[str]] = []

    def propagated(trial: hs.Module) -> hs.Propagation:
        tried.append({i.name for i in trial.instructions if trial.sharding(i) is not None} - {"a", "b"})
        return hs.propagate(trial)

    hits, half = smallest_sets(
        module, known, lambda _: 0 if needed <= tried[-1] else None, propagated, lambda done, most: None
    )
    assert [{name for name, _ in hit.annotations} for hit in hits] == [needed]
    assert half == []
    assert all(hit.is_smallest for hit in hits)
    assert [len(names) for names in tried] == [1] * 4 + [2] * 6 + [3] * 4


def test_where_nothing_is_to_be_removed_that_is_said() -> None:
    module = hs.load(CLASH)
    with pytest.raises(hs.AnnotationError, match=r"%a has .*, and no offer to it lost; there is nothing to remove"):
        hs.suggest(module, "a")
    with pytest.raises(hs.AnnotationError, match="no offer of out to it lost; its conflicts are with %right"):
        hs.suggest(module, "sum", conflict="out")


def test_a_program_that_nobody_annotated_is_laid_out() -> None:
    text = MLP.replace(", sharding={devices=[1,4]<=[4]}", "").replace("1024", "65536")
    [best] = hs.suggest(hs.load(text), machine=hs.machines.h100(4))
    assert best.time_s < 0.7 * best.time_before_s
    assert best.sharding is None
    placed = hs.partition(hs.annotate(hs.load(text), dict(best.annotations)), machine=hs.machines.h100(4))
    assert hs.simulate(placed, hs.machines.h100(4)).time_s == pytest.approx(best.time_s)
    assert "time" in str(best)


def test_what_is_annotated_stays_and_is_not_said_again() -> None:
    module = hs.load(MLP.replace("1024", "65536"))
    for suggestion in hs.suggest(module, machine=hs.machines.h100(4)):
        assert ("x" in dict(suggestion.annotations)) is ("x" in suggestion.replaces)


def test_the_fewest_changes_that_save_most_are_named() -> None:
    text = """HloModule m, num_partitions=4
ENTRY e {
  x = f32[64,65536] parameter(0), sharding={devices=[4,1]<=[4]}
  w = f32[65536,512] parameter(1), sharding={devices=[1,4]<=[4]}
  small = f32[512] parameter(2), sharding={devices=[4]<=[4]}
  y = f32[64,512] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[64,512] broadcast(small), dimensions={1}
  ROOT z = f32[64,512] add(y, b)
}"""
    changes = [s for s in hs.suggest(hs.load(text), machine=hs.machines.h100(4)) if s.replaces]
    assert changes
    assert set(changes[0].replaces) <= {"x", "w"}  # nobody need touch the small one
    assert changes[0].time_s < 0.7 * changes[0].time_before_s


def test_one_device_has_nothing_to_be_laid_out_on() -> None:
    text = "HloModule m\nENTRY e {\n  x = f32[8] parameter(0)\n  ROOT y = f32[8] negate(x)\n}"
    with pytest.raises(hs.AnnotationError, match="there is one device; say for how many"):
        hs.suggest(hs.load(text), machine=hs.machines.h100(1))


# ---- of a collective, a conflict, a line

# Both operands are split along what is added up: an all-reduce of the whole product.  Then `d` crosses `c`.
MOVED = """HloModule m, num_partitions=4
ENTRY e {
  a = f32[1024,2048] parameter(0), sharding={devices=[1,4]<=[4]}
  b = f32[2048,1024] parameter(1)
  p = f32[1024,1024] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    metadata={source_file="m.py" source_line=3}
  c = f32[1024,1024] parameter(2), sharding={devices=[4,1]<=[4]}
  d = f32[1024,1024] negate(c), metadata={source_file="m.py" source_line=4}
  s = f32[1024,1024] add(d, p), metadata={source_file="m.py" source_line=5}
  ROOT r = f32[1024,1024] sine(s), sharding={devices=[1,4]<=[4]}, metadata={source_file="m.py" source_line=6}
}"""
H100 = hs.machines.h100(4)


def test_what_is_suggested_for_a_collective_makes_the_program_cheaper() -> None:
    module = hs.load(MOVED)
    made = hs.partition(module, machine=H100)
    for number, one in enumerate(made.collectives):
        for what in (number, f"#{number}", one):
            found = hs.suggest(module, what, machine=H100, progress=False)
            assert found
            for best in found:
                after = hs.partition(hs.annotate(module, dict(best.annotations)), machine=H100)
                assert best.bytes_received == after.comm_bytes_per_device
                assert best.bytes_before == made.comm_bytes_per_device
                assert after.comm_bytes_per_device < made.comm_bytes_per_device or best.time_s < best.time_before_s
            assert [best.time_s for best in found] == sorted(best.time_s for best in found)


def test_a_collective_of_xlas_is_that_of_its_op() -> None:
    module = hs.load(MOVED)
    [number] = [n for n, one in enumerate(hs.partition(module, machine=H100).collectives) if one.needed_by == "p"][:1]
    ours = hs.partition(module, machine=H100).collectives[number]
    theirs = replace(ours, cause="", name="all-reduce.77", op_name="p")
    assert hs.suggest(module, theirs, machine=H100) == hs.suggest(module, number, machine=H100)


def test_a_conflict_itself_may_be_given() -> None:
    module = hs.load(CLASH)
    for lost in hs.propagate(module).conflicts:
        by_names = hs.suggest(module, lost.winner.name, conflict=lost.loser.name, machine=H100)
        assert hs.suggest(module, lost, machine=H100) == by_names != []


def test_of_a_line_all_that_is_there() -> None:
    module = hs.load(MOVED)
    of_line = hs.suggest(module, "m.py:3", most=100, machine=H100)
    [number, *_] = [
        n for n, one in enumerate(hs.partition(module, machine=H100).collectives) if one.location == "m.py:3"
    ]
    assert {one.annotations for one in hs.suggest(module, number, machine=H100)} <= {one.annotations for one in of_line}
    with pytest.raises(hs.AnnotationError, match=r"m\.py:4 has no collective, no value that is whole, and no conflict"):
        hs.suggest(hs.load(MOVED.replace("add(d, p)", "add(p, p)")), "m.py:4", machine=H100)
    with pytest.raises(hs.ModuleError, match=r"no value is made at m\.py:77"):
        hs.suggest(module, "m.py:77", machine=H100)
    with pytest.raises(hs.ModuleError, match="no collective #77"):
        hs.suggest(module, "#77", machine=H100)


def test_every_set_is_partitioned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, str]] = []

    def counted(propagation: hs.Propagation, **options: Any) -> hs.Partitioned:
        source = propagation.source
        asked.append({i.name: str(source.sharding(i)) for i in source.instructions if source.sharding(i) is not None})
        return hs.partition(propagation, **options)

    monkeypatch.setattr(trial_prices, "partition", counted)
    hs.suggest(hs.load(MOVED), machine=H100)
    assert asked
    assert all(asked.count(one) == 1 for one in asked)


@pytest.mark.parametrize("what", [None, "#0", "m.py:4"])
def test_a_conflict_is_of_a_value(what: str | None) -> None:
    with pytest.raises(hs.AnnotationError, match="a conflict with out, of no value; name the value, too"):
        hs.suggest(hs.load(MLP), what, conflict="out")
