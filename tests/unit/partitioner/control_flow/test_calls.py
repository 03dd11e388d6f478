"""Loops, branches, calls and tuples over tiles."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.split_programs import counts, mark, right, split

CARRIES = ["[8,1]<=[8]", "[1,8]<=[8]", "[2,4]5,1,4,0,7,3,6,2", ""]


def loop(body: str, carry: str, trips: int = 3) -> str:
    """Computations of a loop over (counter, x f32[10,8], w f32[8,8]); `body` computes `y` from `x` and `w`."""
    state = "(s32[], f32[10,8], f32[8,8])"
    return f"""
      body {{
        p = {state} parameter(0)
        i = s32[] get-tuple-element(p), index=0
        one = s32[] constant(1)
        next = s32[] add(i, one)
        x = f32[10,8] get-tuple-element(p), index=1
        w = f32[8,8] get-tuple-element(p), index=2
        {body}
        ROOT t = {state} tuple(next, y, w)
      }}
      condition {{
        q = {state} parameter(0)
        j = s32[] get-tuple-element(q), index=0
        n = s32[] constant({trips})
        ROOT more = pred[] compare(j, n), direction=LT
      }}"""


@pytest.mark.parametrize("carry", CARRIES)
@pytest.mark.parametrize("trips", [0, 3])
def test_a_while_loop_is_right(carry: str, trips: int) -> None:
    right(
        f"""
        zero = s32[] constant(0)
        x = f32[10,8] parameter(0){mark(carry)}
        w = f32[8,8] parameter(1){mark("[8,1]<=[8]")}
        t = (s32[], f32[10,8], f32[8,8]) tuple(zero, x, w)
        l = (s32[], f32[10,8], f32[8,8]) while(t), condition=condition, body=body
        ROOT r = f32[10,8] get-tuple-element(l), index=1{mark("[4,2]<=[8]")}""",
        computations=loop(
            """d = f32[10,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
               y = f32[10,8] tanh(d)""",
            carry,
            trips,
        ),
    )


def test_collectives_in_a_loop_count_once_a_trip() -> None:
    local = split(
        f"""
        zero = s32[] constant(0)
        x = f32[10,8] parameter(0){mark("")}
        w = f32[8,8] parameter(1){mark("[8,1]<=[8]")}
        t = (s32[], f32[10,8], f32[8,8]) tuple(zero, x, w)
        l = (s32[], f32[10,8], f32[8,8]) while(t), condition=condition, body=body,
          sharding={{{{replicated}}, {{replicated}}, {{devices=[8,1]<=[8]}}}}
        ROOT r = f32[10,8] get-tuple-element(l), index=1{mark("")}""",
        computations=loop(
            """d = f32[10,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
               y = f32[10,8] tanh(d)""",
            "",
            trips=30,
        ),
    )
    # w, split by columns once, before the loop: each trip gathers the columns of x that it makes.
    assert [(c.kind, c.executions) for c in local.collectives] == [("all-gather", 30), ("all-to-all", 1)]


def test_a_predicate_over_split_values_is_the_same_on_all_devices() -> None:
    right(
        f"""
        x = f32[10] parameter(0){mark("[8]<=[8]")}
        l = f32[10] while(x), condition=small, body=double
        ROOT r = f32[10] negate(l){mark("[8]<=[8]")}""",
        np.ones(10, np.float32),
        computations="""
          double { a = f32[10] parameter(0)  ROOT b = f32[10] add(a, a) }
          small {
            c = f32[10] parameter(0)
            z = f32[] constant(0)
            s = f32[] reduce(c, z), dimensions={0}, to_apply=add_f32
            n = f32[] constant(100)
            ROOT p = pred[] compare(s, n), direction=LT }""",
    )


BRANCHES = """
  up { a = f32[10,8] parameter(0)  ROOT b = f32[10,8] exponential(a) }
  down { c = (f32[10,8], f32[10,8]) parameter(0)
    d = f32[10,8] get-tuple-element(c), index=0
    e = f32[10,8] get-tuple-element(c), index=1
    ROOT f = f32[10,8] subtract(d, e) }
  still { ROOT g = f32[10,8] parameter(0) }"""


@pytest.mark.parametrize("index", [0, 1, 2, 7, -1])
@pytest.mark.parametrize("tiling", CARRIES)
def test_a_branch_is_right(tiling: str, index: int) -> None:
    x = np.arange(80, dtype=np.float32).reshape(10, 8) / 80
    right(
        f"""
        i = s32[] parameter(0){mark("")}
        x = f32[10,8] parameter(1){mark(tiling)}
        y = f32[10,8] parameter(2){mark("[4,2]<=[8]")}
        t = (f32[10,8], f32[10,8]) tuple(x, y)
        ROOT c = f32[10,8] conditional(i, x, t, y), branch_computations={{up, down, still}}{mark(tiling)}""",
        np.int32(index),
        x,
        x,
        computations=BRANCHES,
    )


def test_a_branch_by_predicate_with_tuples_is_right() -> None:
    for flag in (True, False):
        right(
            f"""
            s = f32[8] parameter(0){mark("[8]<=[8]")}
            z = f32[] constant(0)
            sum = f32[] reduce(s, z), dimensions={{0}}, to_apply=add_f32
            p = pred[] compare(sum, z), direction=GT
            t = (f32[8], f32[]) tuple(s, sum)
            c = (f32[8], f32[]) conditional(p, t, t), true_computation=yes, false_computation=no
            ROOT r = f32[8] get-tuple-element(c), index=0{mark("[8]<=[8]")}""",
            np.ones(8, np.float32) * (1 if flag else -1),
            computations="""
              yes { a = (f32[8], f32[]) parameter(0)  ROOT b = (f32[8], f32[]) copy(a) }
              no { c = (f32[8], f32[]) parameter(0)
                d = f32[8] get-tuple-element(c), index=0
                e = f32[] get-tuple-element(c), index=1
                f = f32[8] broadcast(e), dimensions={}
                g = f32[8] divide(d, f)
                ROOT h = (f32[8], f32[]) tuple(g, e) }""",
        )


def test_two_callers_of_one_computation_may_differ() -> None:
    local = right(
        f"""
        x = f32[10,8] parameter(0){mark("[8,1]<=[8]")}
        y = f32[10,8] parameter(1){mark("[1,8]<=[8]")}
        a = f32[10,8] call(x), to_apply=twice{mark("[8,1]<=[8]")}
        b = f32[10,8] call(y), to_apply=twice{mark("[1,8]<=[8]")}
        ROOT t = (f32[10,8], f32[10,8]) tuple(a, b)""",
        computations="twice { p = f32[10,8] parameter(0)  ROOT r = f32[10,8] add(p, p) }",
    )
    assert set(counts(local)) <= {"all-gather", "all-to-all", "collective-permute"}


def test_nested_tuples_keep_their_order() -> None:
    right(f"""
        x = f32[10] parameter(0){mark("[8]<=[8]")}
        y = s32[6] parameter(1){mark("[2,4]<=[8] copies")}
        a = (f32[10], s32[6]) tuple(x, y)
        b = ((f32[10], s32[6]), f32[10]) tuple(a, x)
        c = (f32[10], s32[6]) get-tuple-element(b), index=0
        d = s32[6] get-tuple-element(c), index=1
        e = f32[10] get-tuple-element(b), index=1
        ROOT t = (s32[6], f32[10], s32[6]) tuple(d, e, y),
          sharding={{{{devices=[8]<=[8]}}, {{replicated}}, {{devices=[8]7,6,5,4,3,2,1,0}}}}""")


def test_a_barrier_and_order_change_nothing() -> None:
    right(f"""
        x = f32[10] parameter(0){mark("[8]<=[8]")}
        y = f32[6] parameter(1){mark("")}
        t = (f32[10], f32[6]) tuple(x, y)
        b = (f32[10], f32[6]) opt-barrier(t)
        a = f32[10] get-tuple-element(b), index=0
        k = token[] after-all()
        ROOT d = f32[10] add-dependency(a, k){mark("[8]7,6,5,4,3,2,1,0")}""")
