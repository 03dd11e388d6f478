"""Values that go from process to process: sends between all kinds of layouts, collectives between submeshes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from hlosharding.ir import Shape
from hlosharding.schedule import UserOp, ValueType, parse_schedule
from hlosharding.sharding import HloSharding
from tests.processes.cases import Case
from tests.processes.checks import check, right


def values_lie_otherwise_where_they_arrive() -> None:
    """As many devices or not, tiles that grow and shrink, uneven ones, copies, scalars."""
    rows, columns = "{devices=[2,1]<=[2]}", "{devices=[1,2]<=[2]}"
    four, copies = "{devices=[2,2]<=[4]}", "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"
    ways = [
        ("{0,1}", rows, "{6,7}", columns),
        ("{0,1}", rows, "{6,7}", columns),
        ("{0,1}", rows, "{6,7}", "{replicated}"),
        ("{0,1}", "{replicated}", "{6,7}", rows),
        ("{0,1}", columns, "{2,4,5,7}", four),
        ("{0,3,5,6}", four, "{2,4}", rows),
        ("{0,1,2,3}", copies, "{4,5,6,7}", four),
        ("{1,3,5,7}", four, "{2}", "{replicated}"),
        ("{1}", "{replicated}", "{2,4,6}", "{devices=[3,1]<=[3]}"),
        ("{0,2,4}", "{replicated}", "{7,5}", "{replicated}"),
        ("{0,1}", "{devices=[1,2]1,0}", "{4,5}", "{devices=[1,2]1,0}"),
    ]
    for number, (here, lies, there, arrives) in enumerate(ways):
        dims = [(8, 4), (5, 3)][number % 2]
        x = np.arange(np.prod(dims), dtype=np.float32).reshape(dims)
        schedule = parse_schedule(f"""
        func @main(%x: f32[{dims[0]},{dims[1]}] on {here} as {lies}) {{
          %y = send(%x) to={there} sharding={arrives}
          return %y
        }}""")
        [found] = schedule.compile()(x)
        check(found, x, [jax.devices()[int(n)] for n in there.strip("{}").split(",")])


def scalars_and_wide_numbers_move() -> None:
    schedule = parse_schedule("""
    func @main(%x: s32[] on {0,1}, %y: f64[3] on {2}, %z: pred[2] on {0}) {
      %a = send(%x) to={5,6}
      %b = send(%y) to={4}
      %c = send(%z) to={7}
      return %a, %b, %c
    }""")
    on = jax.devices()
    with jax.enable_x64(True):
        given = np.int32(7), np.float64(2) ** 40 + np.arange(3), np.array([True, False])
        for found, wanted, devices in zip(schedule.compile()(*given), given, (on[5:7], on[4:5], on[7:]), strict=True):
            check(found, wanted, devices)


ROWS = HloSharding.parse("{devices=[2]<=[2]}")
SUMMED = UserOp("summed", lambda x: ValueType(Shape.array("f32", (8,)), x.devices, ROWS), lambda x: x.sum(0), sums=[0])
COLLECTIVES = """
func @main(%x: f32[6,8] on {0,1} as {devices=[1,2]<=[2]}) {
  %a, %b, %c = split(%x) dim=0 parts=3 axis=data
  %b_there = send(%b) to={2,3}
  %c_there = send(%c) to={4,5}
  %p = @summed(%a)
  %q = @summed(%b_there)
  %r = @summed(%c_there)
"""


def collectives(steps: str) -> list[Any]:
    """Results of a schedule where three submeshes have terms of the columns' sums."""
    return parse_schedule(f"{COLLECTIVES}{steps}\n}}", {"summed": SUMMED}).compile()(WIDE)


WIDE = np.arange(48, dtype=np.float32).reshape(6, 8)


def submeshes_reduce_to_all_and_to_one() -> None:
    on = jax.devices()
    found = collectives("""
      %s, %t, %u = all-reduce(%p, %q, %r)
      return %s, %u
    """)
    for made, devices in zip(found, (on[:2], on[4:6]), strict=True):
        check(made, WIDE.sum(0), devices)
    [made] = collectives("""
      %s = reduce(%p, %q, %r) to={2,3}
      return %s
    """)
    check(made, WIDE.sum(0), on[2:4])


def submeshes_gather_and_scatter() -> None:
    on = jax.devices()
    found = parse_schedule("""
    func @main(%x: f32[4,6] on {0,4} as {devices=[2,1]<=[2]}) {
      %a, %b = split(%x) dim=1 parts=2 axis=data
      %there = send(%b) to={3,7}
      %s, %t = all-gather(%a, %there) dim=1
      return %s, %t
    }""").compile()(WIDE.reshape(12, 4)[:6].T.copy())
    for made, devices in zip(found, ([on[0], on[4]], [on[3], on[7]]), strict=True):
        check(made, WIDE.reshape(12, 4)[:6].T, devices)


CASES: dict[str, Case] = {
    "values_lie_otherwise_where_they_arrive": right(values_lie_otherwise_where_they_arrive),
    "scalars_and_wide_numbers_move": right(scalars_and_wide_numbers_move),
    "submeshes_reduce_to_all_and_to_one": right(submeshes_reduce_to_all_and_to_one),
    "submeshes_gather_and_scatter": right(submeshes_gather_and_scatter),
}
