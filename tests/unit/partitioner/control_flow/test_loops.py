"""Sums that a loop only accumulates: one reduction behind the loop, and when that would be wrong or dear."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

import hlosharding as hs
from tests.support.program_check import check
from tests.support.random_programs.programs import RandomProgram
from tests.support.split_programs import counts, mark, right, split

# x is split along the dim that is summed over; s, the accumulator, is whole.
STATE = "(s32[], {kind}[16,24], {kind}[16,64], {kind}[64,24])"
START, TRIPS = 3, 4


def loop(update: str, *, kind: str = "f32", condition: str = "", result: str = "new") -> str:
    """Computations of a loop over (counter, s, x, w); `update` computes `new` from `s` and `d`, the partial product.

    x is itself in every trip, but the partitioner cannot know: else it would compute what never changes once.
    """
    state = STATE.format(kind=kind)
    return f"""
      body {{
        p = {state} parameter(0)
        i = s32[] get-tuple-element(p), index=0
        one = s32[] constant(1)
        next = s32[] add(i, one)
        s = {kind}[16,24] get-tuple-element(p), index=1
        x = {kind}[16,64] get-tuple-element(p), index=2
        w = {kind}[64,24] get-tuple-element(p), index=3
        d = {kind}[16,24] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
        {update}
        later = {kind}[16,64] maximum(x, x)
        ROOT t = {state} tuple(next, {result}, later, w)
      }}
      condition {{
        q = {state} parameter(0)
        j = s32[] get-tuple-element(q), index=0
        n = s32[] constant(7)
        {condition and "less = pred[] compare(j, n), direction=LT"}
        {condition or "ROOT more = pred[] compare(j, n), direction=LT"}
      }}"""


def entry(*, kind: str = "f32", start: str = f"s32[] constant({START})", wanted: str = "", after: str = "") -> str:
    """A program around the loop: the accumulator starts as parameter `a`."""
    state = STATE.format(kind=kind)
    final = after or f"ROOT r = {kind}[16,24] copy(total){mark(wanted)}"
    return f"""
        a = {kind}[16,24] parameter(0){mark("")}
        x = {kind}[16,64] parameter(1){mark("[1,8]<=[8]")}
        w = {kind}[64,24] parameter(2){mark("[8,1]<=[8]")}
        zero = {start}
        t = {state} tuple(zero, a, x, w)
        l = {state} while(t), condition=condition, body=body,
          sharding={{{{replicated}}, {{replicated}}, {{devices=[1,8]<=[8]}}, {{devices=[8,1]<=[8]}}}}
        total = {kind}[16,24] get-tuple-element(l), index=1
        {final}"""


def executions(local: hs.Partitioned, kind: str = "all-reduce") -> list[int]:
    """How often the reductions run."""
    return [c.executions for c in local.collectives if c.kind == kind]


SUM = "new = f32[16,24] add(s, d)"
ONE_SUM = 2 * 7 / 8 * 16 * 24 * 4


def test_a_sum_over_trips_is_reduced_once_after_the_loop() -> None:
    local = right(entry(), computations=loop(SUM))
    assert counts(local) == {"all-reduce": 1}
    assert executions(local) == [1]
    assert local.comm_bytes_per_device == ONE_SUM


def test_the_reduction_names_the_op_in_the_loop_that_owed_it() -> None:
    (sum_,) = right(entry(), computations=loop(SUM)).collectives
    assert "%d (dot)" in sum_.cause


@pytest.mark.parametrize("start", ["s32[] constant(7)", "s32[] constant(99)"])
def test_no_trips_leave_the_initial_value_as_it_is(start: str) -> None:
    right(entry(start=start), computations=loop(SUM))


@pytest.mark.parametrize("start", [7, 5, -3])
def test_a_number_of_trips_that_only_the_run_knows(start: int) -> None:
    body = entry(start=f"s32[] parameter(3){mark('')}")
    rng = np.random.default_rng(0)
    shapes = (16, 24), (16, 64), (64, 24)
    arguments = [rng.normal(size=s).astype(np.float32) for s in shapes]
    right(body, *arguments, np.int32(start), computations=loop(SUM))


def test_what_follows_the_loop_gets_its_part_by_reduce_scatter() -> None:
    local = right(entry(wanted="[8,1]<=[8]"), computations=loop(SUM))
    assert counts(local) == {"reduce-scatter": 1}
    assert local.comm_bytes_per_device == ONE_SUM / 2


LINEAR_STEPS = [
    "new = f32[16,24] subtract(s, d)",
    "new = f32[16,24] subtract(d, s)",
    "half = f32[] constant(0.5)  h = f32[16,24] broadcast(half), dimensions={}\n"
    " decayed = f32[16,24] multiply(s, h)  new = f32[16,24] add(decayed, d)",
    "n = f32[16,24] negate(s)  m = f32[16,24] subtract(n, d)  new = f32[16,24] negate(m)",
    "v = f32[24,16] transpose(d), dimensions={1,0}  b = f32[16,24] transpose(v), dimensions={1,0}\n"
    " new = f32[16,24] add(s, b)",
    "v = f32[2,8,24] reshape(d)  b = f32[16,24] reshape(v)  new = f32[16,24] add(s, b)",
]


@pytest.mark.parametrize("update", LINEAR_STEPS)
def test_the_sum_waits_through_linear_steps(update: str) -> None:
    assert executions(split(entry(), computations=loop(update))) == [1]


@pytest.mark.parametrize("update", LINEAR_STEPS)
def test_linear_steps_are_right(update: str) -> None:
    right(entry(), computations=loop(update))


def test_addends_that_two_ops_read_are_added_up_in_every_trip() -> None:
    update = "e = f32[16,24] add(s, d)  new = f32[16,24] add(e, d)"
    assert executions(right(entry(), computations=loop(update))) == [TRIPS]


@pytest.mark.parametrize(
    ("update", "why"),
    [
        ("h = f32[16,24] tanh(s)  new = f32[16,24] add(h, d)", "not linear in the carry"),
        ("q = f32[16,24] multiply(s, s)  new = f32[16,24] add(q, d)", "squared"),
        ("new = f32[16,24] maximum(s, d)", "the largest of sums"),
        ("q = f32[16,24] add(s, d)  new = f32[16,24] abs(q)", "an op behind the sum"),
    ],
)
def test_other_steps_need_the_sum_in_every_trip(update: str, why: str) -> None:
    assert executions(right(entry(), computations=loop(update))) == [TRIPS], why


def test_gradient_clipping_reads_the_norm_of_what_is_accumulated_in_every_step() -> None:
    update = """
        q = f32[16,24] add(s, d)
        sq = f32[16,24] multiply(q, q)
        z = f32[] constant(0)
        n2 = f32[] reduce(sq, z), dimensions={0,1}, to_apply=add_f32
        norm = f32[] sqrt(n2)
        hundred = f32[] constant(100)
        most = f32[] maximum(norm, hundred)
        factor = f32[] divide(hundred, most)
        f = f32[16,24] broadcast(factor), dimensions={}
        new = f32[16,24] multiply(q, f)"""
    assert executions(right(entry(), computations=loop(update))) == [TRIPS]


def test_gradients_clipped_one_by_one_are_reduced_before_their_norm() -> None:
    update = """
        sq = f32[16,24] multiply(d, d)
        z = f32[] constant(0)
        n2 = f32[] reduce(sq, z), dimensions={0,1}, to_apply=add_f32
        f = f32[16,24] broadcast(n2), dimensions={}
        g = f32[16,24] divide(d, f)
        new = f32[16,24] add(s, g)"""
    assert TRIPS in executions(right(entry(), computations=loop(update)))


UNTIL_IT_IS_MUCH = """
        y = f32[16,24] get-tuple-element(q), index=1
        z = f32[] constant(0)
        sum = f32[] reduce(y, z), dimensions={0,1}, to_apply=add_f32
        much = f32[] constant(1e6)
        small = pred[] compare(sum, much), direction=LT
        ROOT more = pred[] and(less, small)"""


def test_what_the_condition_reads_is_added_up_in_the_loop() -> None:
    local = split(entry(), computations=loop(SUM, condition=UNTIL_IT_IS_MUCH))
    (sum_,) = local.collectives
    assert local.module.by_name(sum_.name).computation is not local.module.entry


def test_a_carry_that_the_condition_reads_is_whole() -> None:
    right(entry(), computations=loop(SUM, condition=UNTIL_IT_IS_MUCH))


@pytest.mark.parametrize(("op", "low"), [("maximum", "-inf"), ("minimum", "inf")])
def test_extremes_of_partial_extremes_wait_for_the_loop(op: str, low: str) -> None:
    reducer = {"maximum": "max_f32", "minimum": "min_f32"}[op]
    update = f"""
        low = f32[] constant({low})
        e = f32[16] reduce(x, low), dimensions={{1}}, to_apply={reducer}
        b = f32[16,24] broadcast(e), dimensions={{0}}
        new = f32[16,24] {op}(s, b)"""
    # The broadcast value is larger than the extremes: they are combined before it.
    local = right(entry(), computations=loop(update))
    assert [c.shape.size for c in local.collectives] == [16]
    update = f"""
        low = f32[] constant({low})
        y = f32[16,24,64] broadcast(x), dimensions={{0,2}}
        e = f32[16,24] reduce(y, low), dimensions={{2}}, to_apply={reducer}
        new = f32[16,24] {op}(s, e)"""
    local = right(entry(), computations=loop(update))
    assert executions(local) == [1]


def test_a_scalar_loss_is_reduced_before_it_is_broadcast() -> None:
    after = f"""
        z = f32[] constant(0)
        loss = f32[] reduce(total, z), dimensions={{0,1}}, to_apply=add_f32
        b = f32[16,24] broadcast(loss), dimensions={{}}
        ROOT r = f32[16,24] multiply(a, b){mark("")}"""
    local = right(entry(after=after), computations=loop(SUM))
    (sum_,) = local.collectives
    assert (sum_.shape.size, sum_.executions) == (1, 1)


def test_narrow_floats_are_reduced_in_every_trip() -> None:
    # The partial sums of one device may leave the range of f16 though their sum over all devices does not.
    ones = np.ones((16, 64), np.float16)
    ones[:, 32:] = -1
    large = np.full((64, 24), 2000, np.float16)
    local = right(
        entry(kind="f16", start="s32[] constant(0)"),
        np.zeros((16, 24), np.float16),
        ones,
        large,
        computations=loop("new = f16[16,24] add(s, d)", kind="f16"),
    )
    assert executions(local) == [7]


def typed_loop(update: str) -> str:
    """The same loop over bf16 operands and an accumulator of f32."""
    text = loop(update).replace("f32[16,64]", "bf16[16,64]").replace("f32[64,24]", "bf16[64,24]")
    return text.replace("d = f32[16,24] dot", "d = bf16[16,24] dot")


def typed_entry() -> str:
    return entry().replace("f32[16,64]", "bf16[16,64]").replace("f32[64,24]", "bf16[64,24]")


def test_a_widened_gradient_is_accumulated_unreduced() -> None:
    local = right(typed_entry(), computations=typed_loop("g = f32[16,24] convert(d)  new = f32[16,24] add(s, g)"))
    assert executions(local) == [1]
    assert [c.dtype for c in local.collectives] == ["f32"]


def test_a_narrowed_gradient_is_reduced_first() -> None:
    update = "g = f16[16,24] convert(d)  h = f32[16,24] convert(g)  new = f32[16,24] add(s, h)"
    local = right(entry(), computations=loop(update))
    assert [(c.dtype, c.executions) for c in local.collectives] == [("f32", TRIPS)]


def test_wrapped_integers_are_reduced_before_they_are_widened() -> None:
    text = loop("g = s32[16,24] convert(d)  new = s32[16,24] add(s, g)", kind="s32")
    text = text.replace("s32[16,64]", "s8[16,64]").replace("s32[64,24]", "s8[64,24]")
    text = text.replace("d = s32[16,24] dot", "d = s8[16,24] dot")
    body = entry(kind="s32").replace("s32[16,64]", "s8[16,64]").replace("s32[64,24]", "s8[64,24]")
    local = right(body, computations=text)
    assert [(c.dtype, c.executions) for c in local.collectives] == [("s8", TRIPS)]


def test_integers_wait_in_their_own_width() -> None:
    local = right(entry(kind="s32"), computations=loop("new = s32[16,24] add(s, d)", kind="s32"))
    assert executions(local) == [1]


@pytest.mark.parametrize(
    ("lies", "parts", "late"),
    [("devices=[8,1]<=[8]", 8, []), ("devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate", 4, [1])],
)
def test_an_accumulator_of_sharded_gradients_does_not_grow(lies: str, parts: int, late: list[int]) -> None:
    """In every trip it is summed over the devices that share it, and over others once, behind the loop."""
    body = entry(wanted=lies).replace("{{replicated}, {replicated},", f"{{{{replicated}}, {{{lies}}},")
    local = right(body, computations=loop(SUM))
    assert (executions(local, "reduce-scatter"), executions(local)) == ([TRIPS], late)
    carry = next(i for i in local.module.instructions if i.opcode == "while").shape
    assert carry.tuple_shapes[1].dims == (16 // parts, 24)
    assert local.comm_bytes_per_device == (TRIPS * (parts - 1) / parts + len(late) / parts) * 16 * 24 * 4


STACKED = """
  body {
    p = (s32[], f32[4,64,24], f32[4,2048,64], f32[2048,24]) parameter(0)
    i = s32[] get-tuple-element(p), index=0
    one = s32[] constant(1)
    next = s32[] add(i, one)
    s = f32[4,64,24] get-tuple-element(p), index=1
    xs = f32[4,2048,64] get-tuple-element(p), index=2
    g = f32[2048,24] get-tuple-element(p), index=3
    z = s32[] constant(0)
    x1 = f32[1,2048,64] dynamic-slice(xs, i, z, z), dynamic_slice_sizes={1,2048,64}
    x = f32[2048,64] reshape(x1)
    d = f32[64,24] dot(x, g), lhs_contracting_dims={0}, rhs_contracting_dims={0}
    d1 = f32[1,64,24] reshape(d)
    new = f32[4,64,24] dynamic-update-slice(s, d1, i, z, z)
    ROOT t = (s32[], f32[4,64,24], f32[4,2048,64], f32[2048,24]) tuple(next, new, xs, g)
  }
  condition {
    q = (s32[], f32[4,64,24], f32[4,2048,64], f32[2048,24]) parameter(0)
    j = s32[] get-tuple-element(q), index=0
    n = s32[] constant(4)
    ROOT more = pred[] compare(j, n), direction=LT
  }"""


def test_stacked_gradients_of_fully_sharded_layers_are_scattered_layer_by_layer() -> None:
    local = right(
        f"""
        zero = s32[] constant(0)
        f0 = f32[] constant(0)
        s = f32[4,64,24] broadcast(f0), dimensions={{}}
        xs = f32[4,2048,64] parameter(0){mark("[1,8,1]<=[8]")}
        g = f32[2048,24] parameter(1){mark("[8,1]<=[8]")}
        t = (s32[], f32[4,64,24], f32[4,2048,64], f32[2048,24]) tuple(zero, s, xs, g)
        l = (s32[], f32[4,64,24], f32[4,2048,64], f32[2048,24]) while(t), condition=condition, body=body,
          sharding={{{{replicated}}, {{devices=[1,8,1]<=[8]}}, {{devices=[1,8,1]<=[8]}}, {{devices=[8,1]<=[8]}}}}
        ROOT r = f32[4,64,24] get-tuple-element(l), index=1{mark("[1,8,1]<=[8]")}""",
        computations=STACKED,
    )
    assert executions(local, "reduce-scatter") == [4]
    assert counts(local) == {"reduce-scatter": 1}
    carry = next(i for i in local.module.instructions if i.opcode == "while").shape
    assert carry.tuple_shapes[1].dims == (4, 8, 24)


def test_elements_that_change_places_are_no_accumulators() -> None:
    state = "(s32[], f32[16,24], f32[16,24], f32[16,64], f32[64,24])"
    text = (
        loop(SUM).replace(STATE.format(kind="f32"), state).replace("index=3", "index=4").replace("index=2", "index=3")
    )
    text = text.replace("s = f32[16,24]", "o = f32[16,24] get-tuple-element(p), index=2\n s = f32[16,24]")
    text = text.replace("tuple(next, new, later, w)", "tuple(next, o, new, later, w)")
    right(
        f"""
        a = f32[16,24] parameter(0){mark("")}
        b = f32[16,24] parameter(1){mark("")}
        x = f32[16,64] parameter(2){mark("[1,8]<=[8]")}
        w = f32[64,24] parameter(3){mark("[8,1]<=[8]")}
        zero = s32[] constant(3)
        t = {state} tuple(zero, a, b, x, w)
        l = {state} while(t), condition=condition, body=body,
          sharding={{{{replicated}}, {{replicated}}, {{replicated}}, {{devices=[1,8]<=[8]}}, {{devices=[8,1]<=[8]}}}}
        u = f32[16,24] get-tuple-element(l), index=1
        v = f32[16,24] get-tuple-element(l), index=2
        ROOT r = f32[16,24] subtract(u, v){mark("")}""",
        computations=text,
    )


def test_a_sum_over_two_loops_is_reduced_once() -> None:
    state = STATE.format(kind="f32")
    inner = loop(SUM).replace("body {", "inner {").replace("condition {", "fewer {")
    outer = f"""
      body {{
        p = {state} parameter(0)
        i = s32[] get-tuple-element(p), index=0
        one = s32[] constant(1)
        next = s32[] add(i, one)
        s = f32[16,24] get-tuple-element(p), index=1
        x = f32[16,64] get-tuple-element(p), index=2
        w = f32[64,24] get-tuple-element(p), index=3
        five = s32[] constant(5)
        t = {state} tuple(five, s, x, w)
        l = {state} while(t), condition=fewer, body=inner,
          sharding={{{{replicated}}, {{replicated}}, {{devices=[1,8]<=[8]}}, {{devices=[8,1]<=[8]}}}}
        new = f32[16,24] get-tuple-element(l), index=1
        ROOT t2 = {state} tuple(next, new, x, w)
      }}"""
    condition = loop(SUM)[loop(SUM).index("condition {") :]
    local = right(entry(), computations=inner + outer + condition)
    assert executions(local) == [1]


BRANCHES = """
  used { b = (f32[16,64], f32[64,24]) parameter(0)
    bx = f32[16,64] get-tuple-element(b), index=0
    bw = f32[64,24] get-tuple-element(b), index=1
    ROOT bd = f32[16,24] dot(bx, bw), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
  skipped { c = (f32[16,64], f32[64,24]) parameter(0)
    o = f32[] constant(1)
    ROOT ones = f32[16,24] broadcast(o), dimensions={} }"""


@pytest.mark.parametrize("limit", [0, 5, 9])
def test_a_gradient_of_one_branch_is_an_addend_of_the_loop(limit: int) -> None:
    update = f"""
        lim = s32[] constant({limit})
        early = pred[] compare(i, lim), direction=LT
        both = (f32[16,64], f32[64,24]) tuple(x, w)
        g = f32[16,24] conditional(early, both, both), true_computation=used, false_computation=skipped
        new = f32[16,24] add(s, g)"""
    local = right(entry(), computations=BRANCHES + loop(update))
    assert executions(local) == [1]


def test_a_sum_that_a_branch_owes_alone_is_made_in_the_branch() -> None:
    local = right(
        f"""
        i = pred[] parameter(0){mark("")}
        x = f32[16,64] parameter(1){mark("[1,8]<=[8]")}
        w = f32[64,24] parameter(2){mark("[8,1]<=[8]")}
        both = (f32[16,64], f32[64,24]) tuple(x, w)
        g = f32[16,24] conditional(i, both, both), true_computation=used, false_computation=skipped
        ROOT r = f32[16,24] tanh(g){mark("")}""",
        np.asarray(False),
        computations=BRANCHES,
    )
    (sum_,) = local.collectives
    assert sum_.in_conditional


def test_addends_of_a_call_are_added_up_by_its_caller() -> None:
    local = right(
        f"""
        x = f32[16,64] parameter(0){mark("[1,8]<=[8]")}
        w = f32[64,24] parameter(1){mark("[8,1]<=[8]")}
        b = (f32[16,64], f32[64,24]) tuple(x, w)
        g = f32[16,24] call(b), to_apply=used
        h = f32[16,24] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
        ROOT r = f32[16,24] add(g, h){mark("")}""",
        computations=BRANCHES,
    )
    assert counts(local) == {"all-reduce": 1}


def test_addends_pass_through_tuples() -> None:
    update = """
        e = (f32[16,24], f32[16,64]) tuple(d, x)
        f = f32[16,24] get-tuple-element(e), index=0
        u = f32[16,24] add(s, f)
        v = (f32[16,24], s32[]) tuple(u, next)
        new = f32[16,24] get-tuple-element(v), index=0"""
    assert executions(right(entry(), computations=loop(update))) == [1]


def test_uneven_tiles_of_an_accumulator_are_right() -> None:
    body = entry().replace("[1,8]<=[8]", "[1,4,2]<=[8] last_tile_dim_replicate")
    right(body.replace("[8,1]<=[8]", "[4,2]<=[8]"), computations=loop(SUM))


NESTED = """
      body {
        p = ((s32[], f32[16,64]), (f32[64,24], f32[16,24])) parameter(0)
        u = (s32[], f32[16,64]) get-tuple-element(p), index=0
        v = (f32[64,24], f32[16,24]) get-tuple-element(p), index=1
        i = s32[] get-tuple-element(u), index=0
        one = s32[] constant(1)
        next = s32[] add(i, one)
        x = f32[16,64] get-tuple-element(u), index=1
        w = f32[64,24] get-tuple-element(v), index=0
        s = f32[16,24] get-tuple-element(v), index=1
        d = f32[16,24] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        new = f32[16,24] add(s, d)
        later = f32[16,64] maximum(x, x)
        a = (s32[], f32[16,64]) tuple(next, later)
        b = (f32[64,24], f32[16,24]) tuple(w, new)
        ROOT t = ((s32[], f32[16,64]), (f32[64,24], f32[16,24])) tuple(a, b)
      }
      condition {
        q = ((s32[], f32[16,64]), (f32[64,24], f32[16,24])) parameter(0)
        c = (s32[], f32[16,64]) get-tuple-element(q), index=0
        j = s32[] get-tuple-element(c), index=0
        n = s32[] constant(7)
        ROOT more = pred[] compare(j, n), direction=LT
      }"""


@pytest.mark.parametrize(("start", "is_read"), [(3, False), (9, False), (3, True)])
def test_a_sum_in_a_nested_tuple_is_reduced_once_after_the_loop(start: int, is_read: bool) -> None:
    condition = "ROOT more = pred[] compare(j, n), direction=LT"
    reading = """e = (f32[64,24], f32[16,24]) get-tuple-element(q), index=1
        y = f32[16,24] get-tuple-element(e), index=1
        z = f32[] constant(0)
        sum = f32[] reduce(y, z), dimensions={0,1}, to_apply=add_f32
        less = pred[] compare(j, n), direction=LT
        same = pred[] compare(sum, sum), direction=EQ
        ROOT more = pred[] and(less, same)"""
    computations = NESTED.replace(condition, reading) if is_read else NESTED
    local = right(
        f"""
        a = f32[16,24] parameter(0){mark("")}
        x = f32[16,64] parameter(1){mark("[1,8]<=[8]")}
        w = f32[64,24] parameter(2){mark("[8,1]<=[8]")}
        zero = s32[] constant({start})
        u = (s32[], f32[16,64]) tuple(zero, x)
        v = (f32[64,24], f32[16,24]) tuple(w, a)
        t = ((s32[], f32[16,64]), (f32[64,24], f32[16,24])) tuple(u, v)
        l = ((s32[], f32[16,64]), (f32[64,24], f32[16,24])) while(t), condition=condition, body=body,
          sharding={{{{replicated}}, {{devices=[1,8]<=[8]}}, {{devices=[8,1]<=[8]}}, {{replicated}}}}
        m = (f32[64,24], f32[16,24]) get-tuple-element(l), index=1
        total = f32[16,24] get-tuple-element(m), index=1
        ROOT r = f32[16,24] copy(total){mark("")}""",
        computations=computations,
    )
    # What the condition reads in every trip is whole in every trip.
    (sum_,) = local.collectives
    assert (local.module.by_name(sum_.name).computation is local.module.entry) == (condition in computations)


@pytest.mark.parametrize(("rows", "asked"), [(64, 64), (256, 1024), (1024, 64)])
def test_a_table_that_every_trip_searches_is_moved_once(rows: int, asked: int) -> None:
    mesh = Mesh(np.array(jax.devices("cpu")[:8]), ("d",))
    arguments = [jax.ShapeDtypeStruct((n,), np.float32) for n in (rows, asked)]
    specs = (PartitionSpec("d"), PartitionSpec())
    step = hs.trace(jnp.searchsorted, mesh=mesh, in_shardings=specs, out_shardings=PartitionSpec())
    moved = hs.partition(step(*arguments)).collectives
    # Binary search: a move in each trip would run 7 to 11 times.
    assert [c.executions for c in moved] in ([1], [1, 1])
    assert sum(c.bytes_per_device for c in moved) <= (rows + asked) * 4 * 7 / 8


def test_gradients_of_weights_that_a_loop_joins_are_reduced_once_after_it(cpu_devices: list[Any]) -> None:
    """As an LSTM's: one product with all gates' weights, its gradient cut into theirs, each summed over the trips."""

    def loss(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        def step(h: jax.Array, now: jax.Array) -> tuple[jax.Array, None]:
            first, second = jnp.split((now + h) @ jnp.concatenate(weights, axis=1), 2, axis=1)
            return jnp.tanh(first) * second, None

        return (jax.lax.scan(step, x[0], x)[0] ** 2).sum()

    rows = PartitionSpec(None, "d")
    draw = np.random.default_rng(0)
    weights = [draw.normal(size=(8, 8)).astype(np.float32) / 4 for _ in range(2)]
    x = draw.normal(size=(4, 32, 8)).astype(np.float32)
    mesh = Mesh(np.array(cpu_devices), ("d",))
    trace = hs.trace(jax.grad(loss), mesh=mesh, in_shardings=(PartitionSpec(), rows), out_shardings=PartitionSpec())
    local = check(RandomProgram(trace(weights, x), (*weights, x))).partitioned
    assert executions(local) == [1, 1]
    assert local.comm_bytes_per_device == 2 * 7 / 8 * 2 * 8 * 8 * 4


# What a scan stacks: a row of its own in each trip.
STACK_STATE = "(s32[], {kind}[8,16,24], {kind}[16,64], {kind}[64,24])"


def stacking(after: str) -> str:
    """A loop that writes each trip's product, partial sums on eight devices, into its row of a stack."""
    state = STACK_STATE.format(kind="f32")
    return f"""
      body {{
        p = {state} parameter(0)
        i = s32[] get-tuple-element(p), index=0
        one = s32[] constant(1)
        zero = s32[] constant(0)
        next = s32[] add(i, one)
        s = f32[8,16,24] get-tuple-element(p), index=1
        x = f32[16,64] get-tuple-element(p), index=2
        w = f32[64,24] get-tuple-element(p), index=3
        d = f32[16,24] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
        row = f32[1,16,24] reshape(d)
        new = f32[8,16,24] dynamic-update-slice(s, row, i, zero, zero)
        later = f32[16,64] maximum(x, x)
        ROOT t = {state} tuple(next, new, later, w)
      }}
      condition {{
        q = {state} parameter(0)
        j = s32[] get-tuple-element(q), index=0
        n = s32[] constant(8)
        ROOT more = pred[] compare(j, n), direction=LT
      }}
      ENTRY e {{
        x = f32[16,64] parameter(0){mark("[1,8]<=[8]")}
        w = f32[64,24] parameter(1){mark("[8,1]<=[8]")}
        start = s32[] constant(0)
        none = f32[] constant(0)
        a = f32[8,16,24] broadcast(none), dimensions={{}}
        t = {state} tuple(start, a, x, w)
        l = {state} while(t), condition=condition, body=body
        stack = f32[8,16,24] get-tuple-element(l), index=1
        {after}
      }}"""


def stacked(after: str) -> hs.Partitioned:
    module = hs.load(f"HloModule m, num_partitions=8\n{stacking(after)}", format="hlo")
    return hs.partition(hs.propagate(module))


def test_a_stack_that_somebody_reads_is_reduced_row_by_row() -> None:
    """Behind the loop it would be as many bytes, and none of them behind what the loop computes."""
    assert executions(stacked("ROOT r = f32[8,16,24] exponential(stack)")) == [8]


def test_a_stack_whose_sum_the_caller_makes_is_not_reduced() -> None:
    found = stacked("ROOT r = f32[8,16,24] copy(stack), sharding={unreduced}")
    assert executions(found) == []
    x, w = np.random.default_rng(0).normal(size=(2, 64, 64)).astype(np.float32)
    parts = np.asarray(found.run_reference(x[:16], w[:, :24]))
    np.testing.assert_allclose(parts.reshape(-1, 8, 16, 24).sum(0)[3], x[:16] @ w[:, :24], rtol=1e-4, atol=1e-4)
