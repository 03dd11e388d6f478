"""What differs between two programs; each expected difference is told by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.report import difference_view
from tests.support.shown_programs import rows_of

MACHINE = hs.machines.h100(4)

PER_DEVICE = """HloModule m, num_partitions=4

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}}

ENTRY %main (x: f32[64]) -> f32[64] {{
  %x = f32[64]{{0}} parameter(0)
{lines}
}}
"""


def reduced(name: str, operand: str, line: int, groups: str = "{{0,1,2,3}}") -> str:
    attributes = "channel_id=1, use_global_device_ids=true, to_apply=%add"
    place = f'metadata={{op_name="jit(f)/psum{line}" source_file="m.py" source_line={line}}}'
    return f"  %{name} = f32[64]{{0}} all-reduce(%{operand}), replica_groups={groups}, {attributes}, {place}"


def per_device(*lines: str) -> hs.Module:
    *first, last = lines
    return hs.load(PER_DEVICE.format(lines="\n".join([*first, last.replace("  %", "  ROOT %", 1)])))


def found(before: hs.Module, after: hs.Module) -> list[tuple[str, str, float, float]]:
    changes = hs.diff(before, after, machine=MACHINE).collectives
    return [(c.change, c.one.location, c.bytes_before, c.bytes_after) for c in changes]


ONE = 2 * 3 / 4 * 256
"""Bytes of an all-reduce of 256 bytes among four."""
PAIRS = 2 * 1 / 2 * 256


def test_a_program_is_the_same_as_itself() -> None:
    program = per_device(reduced("r", "x", 3))
    assert hs.diff(program, program, machine=MACHINE).is_same


def test_an_added_and_a_gone_collective() -> None:
    one, two = per_device(reduced("r", "x", 3)), per_device(reduced("r", "x", 3), reduced("s", "r", 5))
    assert found(one, two) == [("added", "m.py:5", 0, ONE)]
    assert found(two, one) == [("gone", "m.py:5", ONE, 0)]
    assert hs.diff(one, two, machine=MACHINE).only_after == ("s",)


def test_one_that_does_the_same_elsewhere_has_moved() -> None:
    one, two = per_device(reduced("r", "x", 3)), per_device(reduced("r", "x", 30))
    assert found(one, two) == [("moved", "m.py:30", ONE, ONE)]
    assert not hs.diff(one, two, machine=MACHINE).is_same


def test_one_that_does_something_else_at_its_line_has_changed() -> None:
    one, two = per_device(reduced("r", "x", 3)), per_device(reduced("r", "x", 3, "{{0,1},{2,3}}"))
    assert found(one, two) == [("changed", "m.py:3", ONE, PAIRS)]


def test_equal_ones_are_counted_each() -> None:
    one = per_device(reduced("r", "x", 3))
    three = per_device(reduced("r", "x", 3), reduced("s", "r", 3), reduced("t", "s", 3))
    assert found(one, three) == [("added", "m.py:3", 0, ONE)] * 2
    rows = rows_of(difference_view(hs.diff(one, three, machine=MACHINE)))
    assert ["added", "all-reduce", "1 group of 4", "f32[64]", "0", "768", "m.py:3", ""] in rows


TEXT = """HloModule m
ENTRY e {{
  {a} = f32[8,4] parameter(0), metadata={{op_name="params['a']"}}
  b = f32[4,8] parameter(1)
  {c} = f32[8,8] dot({a}, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, metadata={{op_name="jit(f)/dot"}}
  ROOT d = f32[8,8] negate({c})
}}"""


def test_values_are_found_again_by_path_by_name_and_by_what_made_them() -> None:
    rows = {"params['a']": "{devices=[2,1]<=[2]}", "b": "{replicated}"}
    before = hs.propagate(hs.annotate(hs.load(TEXT.format(a="a", c="c")), rows), to_outputs=True)
    columns = {"params['a']": "{replicated}", "b": "{devices=[1,2]<=[2]}"}
    after = hs.propagate(hs.annotate(hs.load(TEXT.format(a="a.7", c="dot.9")), columns), to_outputs=True)
    changes = hs.diff(before, after, machine=MACHINE)
    assert [(c.name, str(c.before), str(c.after)) for c in changes.shardings] == [
        ("a.7", "{devices=[2,1]<=[2]}", "{replicated}"),
        ("b", "{replicated}", "{devices=[1,2]<=[2]}"),
        ("dot.9", "{devices=[2,1]<=[2]}", "{devices=[1,2]<=[2]}"),
        ("d", "{devices=[2,1]<=[2]}", "{devices=[1,2]<=[2]}"),
    ]
    assert (changes.only_before, changes.only_after, changes.collectives) == ((), (), ())


def test_a_dump_of_xla_against_our_program() -> None:
    mesh = Mesh(np.array(jax.devices()[:4]), ("d",))

    def product(x: jax.Array, w: jax.Array) -> jax.Array:
        return x @ w

    shardings = (P(None, "d"), P("d", None))
    arrays = jnp.ones((8, 8)), jnp.ones((8, 8))
    named = tuple(NamedSharding(mesh, spec) for spec in shardings)
    whole = NamedSharding(mesh, P())
    theirs = hs.load(jax.jit(product, in_shardings=named, out_shardings=whole).lower(*arrays).compile().as_text())
    ours = hs.partition(hs.trace(product, mesh=mesh, in_shardings=shardings, out_shardings=P())(*arrays))
    changes = hs.diff(theirs, ours, machine=MACHINE)
    assert [c.kind for c in changes.before.collectives] == ["all-reduce"]
    assert changes.before.comm_bytes == changes.after.comm_bytes == 2 * 3 / 4 * 256
    assert [c.change for c in changes.collectives] in ([], ["moved"])


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(hs.HloShardingError, match="a str is no program"):
        hs.diff("HloModule m", "HloModule m")
