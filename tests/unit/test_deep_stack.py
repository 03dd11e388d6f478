"""Programs nested deeper than Python's stack, and whatever else runs out of it."""

from __future__ import annotations

import sys
import threading
from contextvars import ContextVar

import pytest

from hlosharding import load, partition, propagate, verify
from hlosharding.deep_stack import deep_stack
from hlosharding.errors import ModuleError

LEVEL = """b{n} {{
  bp{n} = (s32[], f32[16]) parameter(0)
  bi{n} = s32[] get-tuple-element(bp{n}), index=0
  bx{n} = f32[16] get-tuple-element(bp{n}), index=1
  one{n} = s32[] constant(1)
  inc{n} = s32[] add(bi{n}, one{n})
  by{n} = f32[16] call(bx{n}), to_apply={inner}
  ROOT bt{n} = (s32[], f32[16]) tuple(inc{n}, by{n})
}}
w{n} {{
  wp{n} = (s32[], f32[16]) parameter(0)
  wi{n} = s32[] get-tuple-element(wp{n}), index=0
  lim{n} = s32[] constant(1)
  ROOT lt{n} = pred[] compare(wi{n}, lim{n}), direction=LT
}}
level{n} {{
  p{n} = f32[16] parameter(0)
  z{n} = s32[] constant(0)
  tt{n} = (s32[], f32[16]) tuple(z{n}, p{n})
  ww{n} = (s32[], f32[16]) while(tt{n}), condition=w{n}, body=b{n}
  ROOT t{n} = f32[16] get-tuple-element(ww{n}), index=1
}}
"""


def nested(depth: int) -> str:
    """That many loops, each in the body of the next, around a negate."""
    levels = (LEVEL.format(n=n, inner=f"level{n - 1}" if n else "inner") for n in range(depth))
    split = "sharding={devices=[8]<=[8]}"
    return (
        "HloModule nest, num_partitions=8\ninner {\n  p = f32[16] parameter(0)\n  ROOT n = f32[16] negate(p)\n}\n"
        f"{''.join(levels)}ENTRY main {{\n  x = f32[16] parameter(0), {split}\n"
        f"  ROOT y = f32[16] call(x), to_apply=level{depth - 1}\n}}\n"
    )


def assert_followed(depth: int) -> None:
    """All that follows a program's calls follows them down to its innermost op."""
    module = load(nested(depth), format="hlo")
    verify(module)
    local = partition(propagate(module, to_outputs=True))
    assert str(local.module.by_name("n").shape) == "f32[2]"  # the innermost op is split
    assert not local.collectives
    assert local.cost.flops >= 2
    assert local.to_hlo_text().count(" while(") == depth
    assert local.as_python().count("lax.while_loop(") == depth
    compile(local.as_python(), "<nested>", "exec")


def test_loops_nested_a_little_deeper_than_the_stack() -> None:
    assert_followed(100)


@pytest.mark.parametrize("depth", [300, 1000])
def test_deeply_nested_loops(depth: int) -> None:
    assert_followed(depth)


def test_the_caller_s_context_is_kept_and_errors_come_through() -> None:
    name = ContextVar("name", default="nobody")

    @deep_stack
    def fails(depth: int) -> None:
        if depth:
            return fails.__wrapped__(depth - 1)
        raise ModuleError(f"{name.get()} in {threading.current_thread().name}")

    name.set("somebody")
    limit = sys.getrecursionlimit()
    with pytest.raises(ModuleError, match="somebody in hlosharding deep stack"):
        fails(3000)
    assert sys.getrecursionlimit() == limit
    with pytest.raises(ModuleError, match="somebody in MainThread"):
        fails(3)


def test_what_never_ends_is_refused() -> None:
    @deep_stack
    def endless() -> None:
        endless.__wrapped__()

    with pytest.raises(ModuleError, match="nested too deep"):
        endless()
