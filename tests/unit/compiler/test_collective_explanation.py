"""Why a collective is there: by number, line, name or itself; the op, both sides' causes, and what would remove it."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlosharding as hs
from hlosharding.errors import ModuleError
from hlosharding.report import answers_view, to_record, to_text

# `a` is split along what the product adds up, `b` along it too; `c` is split by rows and read by columns.
PROGRAM = """HloModule m, num_partitions=4
ENTRY e {
  a = f32[1024,2048] parameter(0), sharding={devices=[1,4]<=[4]}, metadata={op_name="a"}
  b = f32[2048,1024] parameter(1), sharding={devices=[4,1]<=[4]}, metadata={op_name="b"}
  p = f32[1024,1024] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={replicated},
    metadata={source_file="m.py" source_line=3}
  c = f32[1024,1024] parameter(2), sharding={devices=[4,1]<=[4]}, metadata={op_name="c"}
  ROOT d = f32[1024,1024] negate(c), sharding={devices=[1,4]<=[4]}, metadata={source_file="m.py" source_line=4}
}"""
BOTH = PROGRAM.replace("ROOT d", "d").replace("\n}", "\n  ROOT out = (f32[1024,1024], f32[1024,1024]) tuple(p, d)\n}")


@functools.cache
def program() -> hs.Partitioned:
    return hs.partition(hs.load(BOTH), machine=hs.machines.h100(4))


def of_kind(kind: str) -> int:
    [number] = [n for n, one in enumerate(program().collectives) if one.kind == kind]
    return number


def test_partial_sums_go_back_to_both_operands() -> None:
    found = program().explain(of_kind("all-reduce"))
    assert found.needed_by is not None
    assert (found.needed_by.name, found.collective.reason) == ("p", "add of partial results")
    assert [(n, why.links[-1].name, why.links[-1].is_given) for n, why in found.operands] == [
        (0, "a", True),
        (1, "b", True),
    ]
    assert found.removals[0] == (
        "no split of what %p adds up: it comes of what the user gave to %a at a and what the user gave to %b at b"
    )


def test_a_reshard_goes_back_to_what_both_sides_were_given() -> None:
    found = program().explain(of_kind("all-to-all"))
    assert found.needed_by is not None
    assert found.needed_by.name == "d"
    assert found.wanted is not None
    assert found.wanted.annotation is not None
    assert found.wanted.annotation.name == "d"
    [(number, why)] = found.operands
    assert (number, why.links[-1].name) == (0, "c")
    assert "what the user gave to %d" in found.removals[0]
    assert "what the user gave to %c" in found.removals[0]


def test_by_line() -> None:
    named = [one for one in program().collectives if one.needed_by == "d"]
    assert [one.collective for one in program().explain_collectives("m.py:4")] == named


def test_by_number_and_name_and_itself() -> None:
    number = of_kind("all-reduce")
    collective = program().collectives[number]
    asked = (number, f"#{number}", collective.name, f"%{collective.name}", collective)
    assert {one.number for what in asked for one in program().explain_collectives(what)} == {number}
    assert len(program().explain_collectives(*asked)) == 1


@pytest.mark.parametrize("what", ["#99", 99, -1, "m.py:99", "", "#", "all-reduce.77"])
def test_what_is_not_there_is_said(what: int | str) -> None:
    with pytest.raises(ModuleError, match="they are #0 to #"):
        program().explain_collectives(what)


def test_the_alternatives_that_were_priced_are_told() -> None:
    mlp = hs.partition(hs.load(Path(__file__).resolve().parents[3] / "docs" / "mlp.hlo"), machine=hs.machines.h100(8))
    [found] = mlp.explain_collectives("mlp.py:8")
    alone = mlp.explain("dot.2").splits
    assert found.splits == alone
    assert alone is not None
    assert str(found).count("else ") == len(alone.others) > 0


def test_unpriced() -> None:
    [found] = program().explain_collectives(of_kind("all-reduce"), priced=False)
    assert found.splits is None
    assert found.operands


def test_of_a_program_that_xla_partitioned_only_what_it_says_is_known() -> None:
    split = jax.NamedSharding(jax.make_mesh((8,), ("all",)), jax.P("all"))
    compiled = jax.jit(lambda x: x.sum(), in_shardings=split).lower(jnp.ones(64)).compile()
    theirs = hs.load(compiled.as_text())
    [found] = hs.partition(theirs).explain_collectives(0)
    assert (found.needed_by, found.wanted, found.removals) == (None, None, ())
    assert "XLA made it for jit(<lambda>)/reduce_sum, and does not say why; ask of the program that" in str(found)
    assert hs.explain(theirs, hs.collectives(theirs)[0]).answers == (found,)


def test_a_remedy_names_each_value_once() -> None:
    text = """HloModule m, num_partitions=2
    add {
      a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT sum = f32[] add(a, b)
    }
    ENTRY e {
      x = f32[8,3] parameter(0), sharding={devices=[2,1]<=[2]}
      zero = f32[] constant(0)
      ROOT z = f32[8,3] reduce-window(x, zero), window={size=3x1 pad=1_1x0_0}, to_apply=add
    }"""
    halo = hs.partition(hs.propagate(hs.load(text), to_outputs=True), machine=hs.machines.h100(2)).explain(0)
    assert halo.removals == ("no split of what %z reads, or another one: it comes of what the user gave to %x",)


def test_an_annotation_that_is_on_both_sides_is_told_as_one() -> None:
    """As JAX writes one that a function is differentiated through: a remedy that sets the two against each other could
    not be followed."""
    text = """HloModule m, num_partitions=4
    ENTRY e {
      x = f32[1024,1024] parameter(0), sharding={devices=[4,1]<=[4]}
      v = f32[1024,1024] copy(x), sharding={devices=[4,1]<=[4]}, metadata={source_file="m.py" source_line=4}
      ROOT g = f32[1024,1024] negate(v), sharding={devices=[1,4]<=[4]}, metadata={source_file="m.py" source_line=4}
    }"""
    [found] = hs.partition(hs.propagate(hs.load(text)), machine=hs.machines.h100(4)).explain_collectives(0)
    assert found.removals[0] == (
        "another split in the annotation at m.py:4, or none: both sides go back to it, to %g and %v (a value and its"
        " gradient, or two calls)"
    )


# ---- of XLA's own program


def layer(h: jax.Array, w1: jax.Array, w2: jax.Array) -> jax.Array:
    return h + jnp.tanh(h @ w1) @ w2


@functools.cache
def ours_and_xlas() -> tuple[hs.Partitioned, list[hs.Collective]]:
    """Two layers split over tensors, whose products stand at one line and have one name."""

    def step(x: jax.Array, weights: list[tuple[jax.Array, jax.Array]]) -> jax.Array:
        for w1, w2 in weights:
            x = layer(x, w1, w2)
        return jnp.sin(jax.lax.with_sharding_constraint(x, jax.NamedSharding(mesh, jax.P(None, "model"))))

    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
    columns, rows = (jax.NamedSharding(mesh, jax.P(*spec)) for spec in ((None, "model"), ("model",)))
    arguments = jnp.ones((64, 128)), [(jnp.ones((128, 512)), jnp.ones((512, 128)))] * 2
    split = jax.NamedSharding(mesh, jax.P("data")), [(columns, rows)] * 2
    compiled = jax.jit(step, in_shardings=split).lower(*arguments).compile()
    module = hs.trace(step, in_shardings=split)(*arguments)
    return hs.partition(module, machine=hs.machines.h100(8)), hs.collectives(hs.load(compiled.as_text()))


def test_a_collective_of_xlas_is_that_of_an_op_of_the_program() -> None:
    ours, theirs = ours_and_xlas()
    found = ours.explain_collectives(*range(len(theirs)), of=theirs)
    sums = [one for one in found if one.collective.kind == "all-reduce"]
    # Each layer's second product adds up what its split rows give: what XLA sums is that, in order.
    weights = [one.needed_by.operands[1].op_name for one in sums if one.needed_by is not None]
    assert weights == ["weights[0][1]", "weights[1][1]"]
    for one in sums:
        assert one.needed_by is not None
        assert one.needed_by.location == one.collective.location
        assert "adds up" in one.removals[0]
        assert one.ours == tuple(each for each in ours.collectives if each.needed_by == one.needed_by.name)
        assert [f"our program has there: {there}" in str(one) for there in one.ours or ()] == [True]
    [last] = [one for one in found if one.needed_by is not None and "add" in one.needed_by.opcode]
    assert "both sides" in last.removals[0]
    assert "what the user gave to %x" in last.removals[0]
    assert last.removals[0].count("what the user gave to %sharding_constraint") == 1


def test_explain_takes_a_collective_of_xlas() -> None:
    ours, theirs = ours_and_xlas()
    [found] = hs.explain(ours, theirs[0]).answers
    assert isinstance(found, hs.CollectiveExplanation)
    assert (found.number, found.collective) == (None, theirs[0])
    [numbered] = ours.explain_collectives("#0", of=theirs)
    assert str(numbered) == f"#0 {found}"
    assert to_record(found)["collectives"][0]["ours"] == [one.name for one in found.ours or ()]
    assert hs.explain(ours, ours.collectives[0]).answers == tuple(ours.explain_collectives(0))


def test_of_xlas_what_is_not_there_is_said() -> None:
    ours, theirs = ours_and_xlas()
    with pytest.raises(ModuleError, match=f"no collective #99; they are #0 to #{len(theirs) - 1}"):
        ours.explain_collectives(99, of=theirs)
    nameless = replace(theirs[0], op_name="", location="")
    [found] = ours.explain_collectives(0, of=[nameless])
    assert (found.needed_by, found.ours) == (None, ())
    assert "names no op of the program" in str(found)


def test_explain_asks_whatever_is_asked() -> None:
    number = of_kind("all-reduce")
    assert [type(one) for one in hs.explain(program(), number).answers] == [hs.CollectiveExplanation]
    [split] = hs.explain(program(), "p").answers
    assert split == program().explain("p")
    [path] = hs.explain(program(), "a").answers
    assert isinstance(path, hs.Explanation)
    line = hs.explain(program(), "m.py:3").answers
    assert [type(one) for one in line] == [hs.CollectiveExplanation, hs.Explanation]
    name = program().collectives[number].name
    assert hs.explain(program(), name).answers == hs.explain(program(), number).answers


def test_explain_takes_what_is_not_partitioned_yet() -> None:
    module = hs.load(BOTH)
    for one in (module, hs.propagate(module)):
        assert str(hs.explain(one, "c")) == str(hs.propagate(module).explain("c"))
        assert str(hs.explain(one, "#0")).startswith("#0 ")


@pytest.mark.parametrize("what", ["m.py:99", "nothing", "#99"])
def test_explain_refuses_what_is_not_there(what: str) -> None:
    with pytest.raises(ModuleError):
        hs.explain(program(), what)


def test_answers_are_shown_everywhere() -> None:
    found = hs.explain(program(), "m.py:3")
    assert [one["schema"] for one in to_record(found)["answers"]] == [
        "hlosharding.collective/1",
        "hlosharding.explanation/1",
    ]
    for shown in (to_text(answers_view(found)), found._repr_html_(), str(found)):
        assert "needed by %p" in shown
        assert "what would remove it" in shown


def test_of_a_loop_that_is_the_result() -> None:
    """XLA's pass puts a copy behind it, at its line: what gathers the result is needed by that copy."""
    module = hs.load("""HloModule m, num_partitions=4
body {
  p = (f32[64,64]) parameter(0)
  y = f32[64,64] get-tuple-element(p), index=0
  z = f32[64,64] negate(y)
  ROOT t = (f32[64,64]) tuple(z)
}
condition {
  p = (f32[64,64]) parameter(0)
  ROOT c = pred[] constant(false)
}
ENTRY e {
  x = f32[64,64] parameter(0), sharding={devices=[4,1]<=[4]}
  t = (f32[64,64]) tuple(x)
  ROOT w = (f32[64,64]) while(t), condition=condition, body=body, metadata={source_file="m.py" source_line=3}
}""")
    partitioned = hs.partition(hs.propagate(module), machine=hs.machines.h100(4))
    [found] = partitioned.explain_collectives("#0")
    [(_, chain)] = found.operands
    assert (chain.links[0].name, chain.links[-1].name) == ("w", "x")
    _, value = hs.explain(module, "m.py:3").answers
    assert str(value).startswith("%w (while at m.py:3)")
    propagation = partitioned.propagation
    assert propagation is not None
    assert propagation.explain(propagation.module.entry.root.name) == propagation.explain("w")
    assert "m.py:3" in to_text(hs.report(partitioned).view)
