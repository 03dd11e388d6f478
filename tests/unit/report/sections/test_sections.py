"""The sections of a report, on programs whose figures one can work out."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import hlosharding as hs
from hlosharding.report.model import Table, Thread, View, Within
from hlosharding.report.sections.collectives import explain_dearest, rank_collectives, ranked_collectives_view
from hlosharding.report.sections.findings import findings_view
from hlosharding.report.sections.functions import functions_view
from hlosharding.report.sections.graph import graph_view, parts_of
from hlosharding.report.sections.layers import blocks_of
from hlosharding.report.sections.memory import memory_view
from hlosharding.report.sections.remedies import remedies_view
from hlosharding.report.sections.replicated import copies_of
from hlosharding.report.sections.reported import ReportedProgram
from hlosharding.report.sections.roofline import groups_of, roofline_view

# Both layers: x is split by rows over 2 and whole over 4, w by columns over 4, v by rows over 4.
LAYER = """
  h{n} = f32[64,512] dot(x{n}, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},
    metadata={{source_file="m.py" source_line=7}}
  t{n} = f32[64,512] tanh(h{n}), metadata={{source_file="m.py" source_line=8}}
  x{m} = f32[64,128] dot(t{n}, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},
    metadata={{source_file="m.py" source_line=9}}"""
ROWS, COLUMNS, OVER_MODEL = (
    "{devices=[2,1,4]<=[8] last_tile_dim_replicate}",
    "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
    "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
)


def layers(count: int) -> str:
    body = "".join(LAYER.format(n=n, m=n + 1) for n in range(count))
    return f"""HloModule layers, num_partitions=8
ENTRY main {{
  x0 = f32[64,128] parameter(0), sharding={ROWS}, metadata={{op_name="x"}}
  w = f32[128,512] parameter(1), sharding={COLUMNS}, metadata={{op_name="w"}}
  v = f32[512,128] parameter(2), sharding={OVER_MODEL}, metadata={{op_name="v"}}{body}
  ROOT out = f32[64,128] negate(x{count}), sharding={ROWS}
}}"""


@functools.cache
def about(count: int = 2) -> ReportedProgram:
    return ReportedProgram(hs.partition(hs.load(layers(count)), machine=hs.machines.h100(8)))


def rows_of(view: View) -> list[Any]:
    [table] = [part for part in view.parts if isinstance(part, Table) and part.is_shown]
    return list(table.rows)


def test_collectives_that_read_alike_share_a_row() -> None:
    # An all-reduce of f32[32,128] over 4 devices in each layer: 2 * 3/4 * 16,384 bytes.
    [group] = rank_collectives(about())
    assert [one.number for one in group.members] == [0, 1]
    assert group.nbytes == 2 * 24_576
    assert group.first.collective.needed_by == "x1"
    [row] = rows_of(ranked_collectives_view(about(), rank_collectives(about()), {}))
    assert (row["numbers"].text, row["numbers"].raw, row["location"]) == ("#0 +1", [0, 1], "m.py:9")
    assert row["share"] == pytest.approx(1.0)


def test_what_fusing_attention_would_save_is_said() -> None:
    def mixed(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return jax.nn.dot_product_attention(q, k, v)

    arrays = [jax.ShapeDtypeStruct((8, 2048, 16, 64), jnp.bfloat16)] * 3
    for machine, kernel in ((hs.machines.h100(1), 'implementation="cudnn"'), (hs.machines.tpu_v5p(1), "splash")):
        one = ReportedProgram(hs.partition(hs.trace(mixed, platform=machine.platform)(*arrays), machine=machine))
        [row] = [row for row in rows_of(findings_view(one, [], [], {})) if row["what"] == "attention not fused"]
        assert kernel in row["remedy"]
        assert 0 < row["figure"].raw == pytest.approx(row["share"] * one.partitioned.cost.time_s)
        assert row["location"].startswith("test_sections.py:")


def test_annotations_that_disagree_are_said_with_what_their_collectives_take() -> None:
    # p's rows were asked for, w's columns too: the product waits for one of them to move.  q agrees with everybody.
    text = """HloModule m, num_partitions=4
ENTRY e {
  x = f32[1024,1024] parameter(0), sharding={devices=[4,1]<=[4]}, metadata={op_name="x"}
  w = f32[1024,1024] parameter(1), sharding={devices=[1,4]<=[4]}, metadata={op_name="w"}
  p = f32[1024,1024] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    metadata={source_file="m.py" source_line=3}
  ROOT q = f32[1024,1024] sine(p), sharding={devices=[4,1]<=[4]}, metadata={source_file="m.py" source_line=4}
}"""
    one = ReportedProgram(hs.partition(hs.load(text), machine=hs.machines.h100(4)))
    [row] = [row for row in findings_of(one) if row["what"] == "conflict between annotations"]
    assert 0 < row["figure"].raw == pytest.approx(sum(each.seconds for each in one.collectives))
    assert "what the user gave to %w at w" in row["which"]
    assert row["location"] == "m.py:3"
    agreed = ReportedProgram(
        hs.partition(hs.load(text.replace("[1,4]<=[4]", "[4,1]<=[4]")), machine=hs.machines.h100(4))
    )
    assert "conflict between annotations" not in [row["what"] for row in findings_of(agreed)]


def test_a_row_of_the_collectives_opens_to_both_sides() -> None:
    groups = rank_collectives(about())
    [row] = rows_of(ranked_collectives_view(about(), groups, explain_dearest(about(), groups)))
    told = row["detail"]._repr_html_()
    for word in ("needed by %x1", "operand 0", "operand 1", "given by the user on %x0", "given by the user on %v"):
        assert word in told


CROSSED = """HloModule crossed, num_partitions=4
ENTRY main {
  x = f32[64,64] parameter(0), sharding={devices=[4,1]<=[4]}
  y = f32[64,64] parameter(1), sharding={devices=[1,4]<=[4]}
  ROOT z = f32[64,64] add(x, y), sharding={devices=[4,1]<=[4]}, metadata={source_file="m.py" source_line=3}
}"""


def findings_of(one: ReportedProgram, *, suggest: bool = False) -> list[Any]:
    groups = rank_collectives(one)
    remedies = remedies_view(one, groups) if suggest else None
    return rows_of(findings_view(one, groups, copies_of(one), explain_dearest(one, groups), remedies))


def test_the_worst_comes_first_and_time_before_memory() -> None:
    shares = [row["share"] for row in findings_of(about())]
    timed = [share for share in shares if share is not None]
    assert timed == sorted(timed, reverse=True)
    assert shares[: len(timed)] == timed


def test_a_conflict_between_annotations_is_a_finding_with_what_it_moves() -> None:
    one = ReportedProgram(hs.partition(hs.load(CROSSED), machine=hs.machines.h100(4)))
    [row] = [row for row in findings_of(one) if row["what"] == "conflict between annotations"]
    # The one all-to-all is there because of it.
    assert row["figure"].raw == one.collectives[0].seconds
    assert row["which"] == "%y: what the user gave to %y against what the user gave to %z at m.py:3"
    assert row["remedy"] == "the same on both sides: %y={devices=[4,1]<=[4]}"
    assert (row["location"], row["thread"].names, "c0" in row["thread"].related) == ("m.py:3", ("worst-v-y",), True)


def test_one_conflict_in_many_layers_is_one_finding() -> None:
    """x is split by rows, what is added to it by columns, at one line forty times."""
    body = "".join(
        f"  y{n} = f32[64,64] negate(x{n}), sharding={{devices=[1,4]<=[4]}}, "
        f'metadata={{source_file="m.py" source_line=3}}\n'
        f"  x{n + 1} = f32[64,64] add(x{n}, y{n}), sharding={{devices=[4,1]<=[4]}}, "
        f'metadata={{source_file="m.py" source_line=4}}\n'
        for n in range(40)
    )
    text = "HloModule m, num_partitions=4\nENTRY e {\n  x0 = f32[64,64] parameter(0), sharding={devices=[4,1]<=[4]}\n"
    text += f"{body}  ROOT r = f32[64,64] copy(x40)\n}}"
    one = ReportedProgram(hs.partition(hs.load(text), machine=hs.machines.h100(4)))
    rows = [row for row in findings_of(one) if row["what"] == "conflict between annotations"]
    # There and back in each layer: all all-to-alls of the program.
    moved = [each.seconds for each in one.collectives if each.collective.kind == "all-to-all"]
    assert len(moved) == 80
    assert rows[0]["figure"].raw == pytest.approx(sum(moved))


def test_a_finding_says_the_remedy_and_what_it_saves() -> None:
    one = ReportedProgram(hs.partition(hs.load(CROSSED), machine=hs.machines.h100(4)))
    [row] = [row for row in findings_of(one, suggest=True) if row["what"] == "collective"]
    assert row["remedy"] == "change %y={devices=[4,1]<=[4]} saves 13.4 us"


def test_findings_are_said_with_the_line_of_most_launches() -> None:
    # Eight numbers: each kernel runs shorter than it takes to launch.
    ops = "".join(f'  t{n + 1} = f32[8] tanh(t{n}), metadata={{source_file="m.py" source_line=8}}\n' for n in range(3))
    text = f"HloModule m\nENTRY e {{\n  t0 = f32[8] parameter(0)\n{ops}  ROOT r = f32[8] negate(t3)\n}}"
    one = ReportedProgram(hs.partition(hs.load(text), machine=hs.machines.h100(1)))
    [row] = [row for row in findings_of(one) if row["what"] == "launch-bound kernels"]
    assert row["figure"].raw == one.simulation.breakdown.launch_s == one.simulation.time_s
    assert row["thread"].names == ("worst-launches",)


def test_rows_lead_to_each_other() -> None:
    record = hs.report(about().partitioned).view
    cells = [row.get("thread") for table in tables_of(record) for row in table.rows]
    threads = [cell for cell in cells if isinstance(cell, Thread)]
    names = {name for thread in threads for name in thread.names}
    # The collectives, the ops of both layers, their lines, a replicated value, a finding.
    assert {"c0", "c1", "v-x1", "v-x2", "l-m.py:9", "r-w", "worst-c0"} <= names
    [of_collectives] = [thread for thread in threads if "c0" in thread.names]
    assert {"v-x1", "v-x2", "l-m.py:9"} <= set(of_collectives.related)


def tables_of(view: View) -> Iterator[Table]:
    for part in view.parts:
        if isinstance(part, Within):
            yield from tables_of(part.view)
        elif isinstance(part, Table):
            yield part
            for row in part.rows:
                if isinstance(detail := row.get(part.detail), View):
                    yield from tables_of(detail)


def test_the_annotation_that_removes_a_collective() -> None:
    # y is split along the other dim than x and z, which all-to-alls its tile of 4,096 bytes over 4 devices.
    crossed = ReportedProgram(hs.partition(hs.load(CROSSED), machine=hs.machines.h100(4)))
    [row] = rows_of(remedies_view(crossed, rank_collectives(crossed)))
    assert row["annotation"].text == "change %y={devices=[4,1]<=[4]}"
    assert (row["saved_bytes"], row["bytes_received"]) == (3_072, 0)
    # Megatron's layers wait for sums of products, which no one annotation ends: what is said is faster all the same.
    for row in rows_of(remedies_view(about(), rank_collectives(about()))):
        after = hs.partition(hs.annotate(about().whole, row["annotation"].raw), machine=hs.machines.h100(8))
        assert len([one for one in after.collectives if "partial results" in one.cause]) == 2
        assert after.cost.time_s < about().partitioned.cost.time_s


def test_a_remedy_of_a_traced_function_is_a_line_of_it() -> None:
    mesh = jax.sharding.AbstractMesh((8,), ("x",))
    rows = jax.P("x")

    def crossed(x: jax.Array, y: jax.Array) -> jax.Array:
        return x + y.T

    module = hs.trace(crossed, mesh=mesh, in_shardings=(rows, rows))(jnp.ones((512, 512)), jnp.ones((512, 512)))
    about = ReportedProgram(hs.partition(module, machine=hs.machines.h100(8)))
    [row] = rows_of(remedies_view(about, rank_collectives(about)))
    line = crossed.__code__.co_firstlineno + 1
    assert row["saved_s"] > 0
    assert any(
        f"test_sections.py:{line}: return" in one or one.startswith("in_shardings of ") for one in row["lines"].raw
    )


def test_the_remedies_are_those_of_the_program_that_was_partitioned() -> None:
    # With an open result only y moves; propagation alone has z gathered, too: another program, with other savings.
    text = """HloModule opened, num_partitions=4
ENTRY main {
  x = f32[64,64] parameter(0), sharding={devices=[4,1]<=[4]}
  y = f32[64,64] parameter(1), sharding={devices=[1,4]<=[4]}
  ROOT z = f32[64,64] add(x, y)
}"""
    opened = hs.propagate(hs.load(text), to_outputs=True)
    reported = ReportedProgram(hs.partition(opened, machine=hs.machines.h100(4)))
    assert reported.partitioned.comm_bytes_per_device == 3_072
    assert not rows_of(remedies_view(reported, rank_collectives(reported)))


def test_replicated_values_and_what_a_full_split_would_save() -> None:
    found = {one.first.name: one for one in copies_of(about())}
    # w: 262,144 bytes, 4 tiles on 8 devices: 65,536 on each, of which half is there twice.
    assert (found["w"].copies, found["w"].nbytes, found["w"].wasted_bytes) == (2, 65_536, 32_768)
    # x0: 32,768 bytes in 2 tiles: 16,384, of which 3/4 could go.
    assert (found["x0"].copies, found["x0"].wasted_bytes) == (4, 12_288)
    # x1 and x2 are of one line and shape.
    assert (found["x1"].times, found["x1"].wasted_bytes) == (2, 24_576)
    assert "h0" not in found  # split over all 8


def test_figures_of_the_whole_program_are_those_of_the_cost() -> None:
    one, cost = about(), about().partitioned.cost
    assert sum(part.comm_bytes for part in one.figures.values()) == cost.comm_bytes
    assert sum(part.flops for part in one.figures.values()) == cost.flops
    assert sum(part.time_s for part in one.figures.values()) == pytest.approx(cost.time_s)


@pytest.mark.parametrize("count", [1, 2, 30])
def test_every_op_stands_in_one_block(count: int) -> None:
    one = about(count)
    members = [op for part in parts_of(one) for block in part.blocks for op in block.members]
    assert sorted(op.name for op in members) == sorted(
        op.name for op in one.whole.entry.instructions if op.opcode != "parameter"
    )


def test_layers_that_repeat_are_one_block() -> None:
    # 8 lines at least make a block: here that is some whole number of layers of three.
    blocks = blocks_of(about(30), about(30).whole.entry)
    repeated = max(blocks, key=lambda block: block.times)
    assert len(repeated.ops) % 3 == 0
    assert len(repeated.members) >= 0.9 * 90
    rows = rows_of(graph_view(about(30), parts_of(about(30))))
    assert sum(row["num_collectives"] for row in rows) == 30
    assert sum(row["comm_bytes"].value for row in rows) == 30 * 24_576


def test_layers_with_another_sharding_are_not_folded_with_the_rest() -> None:
    plain = "t15 = f32[64,512] tanh(h15)"
    text = layers(30).replace(plain, f"{plain}, sharding={{devices=[8,1]<=[8]}}")
    other = ReportedProgram(hs.partition(hs.load(text), machine=hs.machines.h100(8)))
    [odd] = [block for block in blocks_of(other, other.whole.entry) if any(op.name == "t15" for op in block.members)]
    assert odd.times == 1


def test_loops_are_parts_of_their_own() -> None:
    def step(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda c, one: (jnp.tanh(c @ one), None), x, w)[0]

    traced = hs.trace(step, in_shardings=("{devices=[2,1]<=[2]}", None))(jnp.ones((8, 8)), jnp.ones((5, 8, 8)))
    one = ReportedProgram(hs.partition(traced, machine=hs.machines.h100(2)))
    names = [part.name for part in parts_of(one)]
    assert names[0] == ""
    assert any("loop" in name and "5 trips" in name for name in names)
    [product] = [op for op in one.whole.instructions if op.opcode == "dot"]
    assert [loop.opcode for loop in one.loops_of(product)] == ["while"]


def test_what_is_alive_at_the_worst_moment_adds_up_to_the_curve() -> None:
    one = about()
    assert sum(row["bytes"] for row in rows_of(memory_view(one))) == max(nbytes for _, nbytes in one.simulation.memory)


SECTIONS = [
    "findings",
    "summary",
    "timeline",
    "collectives",
    "program",
    "functions",
    "roofline",
    "files",
    "replicated",
    "memory",
    "shardings",
]


def test_a_report_of_whatever_can_be_partitioned() -> None:
    module, machine = hs.load(layers(2)), hs.machines.h100(8)
    made = [
        hs.report(module, machine=machine),
        hs.report(hs.propagate(module, to_outputs=True), machine=machine),
        hs.report(hs.partition(module, machine=machine)),
    ]
    assert [[part.key for part in one.view.parts if isinstance(part, Within)] for one in made] == [SECTIONS] * 3
    assert str(made[0]) == str(made[2])
    assert "COLLECTIVES" in str(made[0])
    assert "Replicated values" in made[0]._repr_html_()


def test_a_report_of_what_xla_compiled_has_no_causes() -> None:
    mesh = jax.make_mesh((8,), ("all",))
    split = jax.NamedSharding(mesh, jax.P("all"))
    compiled = jax.jit(lambda x: x.sum(), in_shardings=split).lower(jnp.ones(1024)).compile()
    found = hs.report(hs.partition(hs.load(compiled.as_text()), machine=hs.machines.h100(8)))
    keys = [part.key for part in found.view.parts if isinstance(part, Within)]
    assert keys == [key for key in SECTIONS if key not in ("replicated", "shardings")]
    # An all-reduce of one f32 over 8 devices: 2 * 7/8 * 4 bytes.
    [row] = hs.to_record(found)["collectives"]["collectives"]
    assert (row["kind"], row["bytes_per_device"], row["detail"]) == ("all-reduce", 7.0, None)
    assert found.to_page()


def test_two_programs_side_by_side() -> None:
    other = hs.partition(hs.load(layers(1)), machine=hs.machines.h100(8))
    record = hs.to_record(hs.report(about().partitioned, against=other, names=("two", "one")))["comparison"]
    assert record["comparison"][0] == {"figure": "bytes received", "ours": 49_152, "theirs": 24_576, "ratio": 2.0}
    assert record["collectives"] == [
        {
            "kind": "all-reduce",
            "ours_executions": 2,
            "ours_bytes": 49_152,
            "theirs_executions": 1,
            "theirs_bytes": 24_576,
        }
    ]
    assert record["lines"][0]["location"] == "m.py:9"


def test_a_search_is_reported_with_its_plot() -> None:
    def mlp(w: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.tanh(jnp.tanh(x @ w[0]) @ w[1])

    found = hs.search(mlp, jnp.ones((2, 256, 256)), jnp.ones((64, 256)), batch=["x"], machine=hs.machines.h100(2))
    made = hs.report(found)
    assert made.title == "plans for h100(2)"
    page = made.to_page()
    assert "<circle" in page
    assert str(found.best) in page
    with_search = hs.report(about().partitioned, search=found)
    assert [part.key for part in with_search.view.parts if isinstance(part, Within)] == [*SECTIONS, "search"]


def stepped() -> ReportedProgram:
    """Two functions, one called by the other."""

    def inner(x: jax.Array) -> jax.Array:
        return jnp.tanh(x @ x)

    def outer(x: jax.Array) -> jax.Array:
        return inner(x) @ x

    traced = hs.trace(lambda x: outer(x).sum())(jax.ShapeDtypeStruct((2048, 2048), jnp.float32))
    return ReportedProgram(hs.partition(traced, machine=hs.machines.h100(1)))


def test_functions_have_what_they_call_and_what_they_do_themselves() -> None:
    one = stepped()
    [table] = [part for part in functions_view(one).parts if isinstance(part, Table)]
    rows = {row["function"]: row for row in table.rows}
    time_s = one.partitioned.cost.time_s
    assert sum(row["own_s"] for row in table.rows) == pytest.approx(time_s)
    # Each has a product of equal size.
    assert rows["inner"]["own_s"] == pytest.approx(rows["inner"]["time_s"])
    assert rows["outer"]["time_s"] == pytest.approx(rows["outer"]["own_s"] + rows["inner"]["own_s"])
    worst = max(nbytes for _, nbytes in one.simulation.memory)
    assert sum(row["held_bytes"] for row in table.rows) == worst


def test_a_product_is_below_its_roof_and_bound_by_arithmetic() -> None:
    one = stepped()
    [group] = [group for group in groups_of(one) if group.name == "outer: products"]
    # 2 n^3 FLOPs; three arrays of n^2 f32.
    assert (group.flops, group.bytes) == (2 * 2048**3, 3 * 4 * 2048**2)
    [table] = [part for part in roofline_view(one).parts if isinstance(part, Table)]
    [row] = [row for row in table.rows if row["group"] == "outer: products"]
    assert row["bound"] == "FLOPs"
    assert row["of_roof"] == pytest.approx(group.flops / group.seconds / one.partitioned.machine.flops("f32"))
    assert 0 < row["of_roof"] <= 1
