"""Execution threads: computations of other threads keep what they have, the rest is as if they were not there."""

from __future__ import annotations

import pytest

from hlosharding.errors import PropagationError
from hlosharding.frontends import load
from hlosharding.propagation import Propagation, propagate

ROWS, COLUMNS = "{devices=[2,1]<=[2]}", "{devices=[1,2]<=[2]}"
ON_HOST = f"""%host_work (p: f32[8,4]) -> f32[8,4] {{
  %p = f32[8,4] parameter(0), sharding={COLUMNS}
  %q = f32[8,4] negate(%p), sharding={{unknown}}
  ROOT %r = f32[8,4] exponential(%q)
}}, execution_thread="host"

"""
MAIN = """ENTRY %main (x: f32[8,4]) -> f32[8,4] {{
  %x = f32[8,4] parameter(0), sharding={sharding}
  %t = f32[8,4] tanh(%x)
  %s = {start}
  %d = f32[8,4] {done}
  ROOT %o = f32[8,4] negate(%d)
}}
"""
START = '((f32[8,4]), f32[8,4], u32[]) async-start(%t), async_execution_thread="host", calls=%host_work'
DONE = 'async-done(%s), async_execution_thread="host", calls=%host_work'


def found(*threads: str, sharding: str = ROWS) -> Propagation:
    text = "HloModule m, num_partitions=2\n\n" + ON_HOST + MAIN.format(sharding=sharding, start=START, done=DONE)
    return propagate(load(text), to_outputs=True, execution_threads=threads)


def text(propagation: Propagation, *names: str) -> list[str]:
    return [str(propagation.shardings[name]) for name in names]


def test_the_other_threads_computation_keeps_what_it_has() -> None:
    assert text(found("main"), "p", "q", "r") == [COLUMNS, "{unknown}", "None"]
    assert text(found("main"), "x", "t") == [ROWS, ROWS]
    assert "an execution thread that propagation was not asked to visit" in str(found("main").explain("r"))


def test_the_rest_is_as_in_a_module_without_it() -> None:
    apart = MAIN.format(sharding=ROWS, start="f32[8,4] copy(%t)", done='custom-call(%s), custom_call_target="wait"')
    alone = propagate(load("HloModule m, num_partitions=2\n\n" + apart), to_outputs=True)
    assert text(found("main"), "x", "t", "d", "o") == text(alone, "x", "t", "d", "o")


def test_another_thread_alone() -> None:
    assert text(found("host"), "p", "q", "x", "t") == [COLUMNS, COLUMNS, ROWS, "None"]


def test_no_names_are_all_names() -> None:
    assert found().shardings == found("main", "host").shardings
    assert text(found(), "q", "t") == [COLUMNS, ROWS]


def test_a_manual_operand_makes_work_on_a_foreign_thread_manual_as_a_whole() -> None:
    """XLA's InferShardingFromOperands: async_instr_condition."""
    assert text(found("main", sharding="{manual}"), "s") == ["{{manual}, {manual}, {manual}}"]
    assert text(found(sharding="{manual}"), "s") == ["None"]


def test_a_thread_that_nothing_runs_on_is_refused() -> None:
    with pytest.raises(
        PropagationError, match="no computation runs on execution thread 'hots'; the module has host, main"
    ):
        found("hots")


def test_one_name_may_stand_alone() -> None:
    text_ = "HloModule m\nENTRY e {\n  ROOT x = f32[8] parameter(0)\n}"
    assert propagate(load(text_), execution_threads="main").changed is False
