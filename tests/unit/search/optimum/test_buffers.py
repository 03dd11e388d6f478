"""When arrays are in memory."""

from __future__ import annotations

import hlosharding as hs
from hlosharding.search.optimum.buffers import find_buffers
from hlosharding.search.optimum.value_classes import ValueClasses
from tests.unit.search.optimum.test_value_classes import LOOP


def test_a_loop_writes_its_carry_in_place() -> None:
    module = hs.load(LOOP)
    classes = ValueClasses(module)
    [carry] = classes.leaves[module.by_name("y")]
    buffers = {b.number: b for b in find_buffers(classes, module.entry.root, (), ())}
    assert buffers[carry].first == classes.order.index(module.by_name("y"))
    assert buffers[carry].last == len(classes.order) - 1  # it is given back
    assert classes.leaves[module.by_name("out")] == (carry,)


def test_updates_and_what_is_overwritten_have_no_buffers() -> None:
    module = hs.load("""HloModule m
ENTRY e { cache = f32[8,4] parameter(0)  row = f32[1,4] parameter(1)  i = s32[] parameter(2)  z = s32[] constant(0)
  started = f32[8,4] negate(cache)
  written = f32[8,4] dynamic-update-slice(started, row, i, z)
  ROOT out = f32[8,4] tanh(written) }""")
    classes = ValueClasses(module)
    names = ("started", "written", "out")
    started, written, out = (classes.leaves[module.by_name(name)][0] for name in names)
    buffers = {b.number: b for b in find_buffers(classes, module.entry.root, (), {module.by_name("out")})}
    assert started in buffers
    assert written not in buffers
    assert out not in buffers
    assert buffers[started].last == classes.order.index(module.by_name("out"))
