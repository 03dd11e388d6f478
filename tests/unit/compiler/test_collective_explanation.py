"""Why a collective is there: by number, line, name or itself; the op, both sides' causes, and what would remove it."""

from __future__ import annotations

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
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
    [found] = hs.partition(hs.load(compiled.as_text())).explain_collectives(0)
    assert (found.needed_by, found.wanted, found.removals) == (None, None, ())
    assert "the program does not say why" in str(found)


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
