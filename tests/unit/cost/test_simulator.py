"""A simulated step is what hand scheduling of its ops gives."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from hlosharding.cost import Machine, Overlap, cost, lifetimes, machines, simulate
from hlosharding.errors import CostError, HloShardingError
from hlosharding.frontends import load
from hlosharding.ir import Builder, DotDims, Instruction, Module, Shape

H100 = machines.h100(8)
SQUARE = Shape.array("f32", (4096, 4096))
ALL = (tuple(range(8)),)


class Program:
    """A few big ops in one computation."""

    def __init__(self) -> None:
        self.builder = Builder("m", num_partitions=8)
        self.main = self.builder.computation("main")
        self.x = self.main.parameter(0, SQUARE)

    def dot(self, a: Instruction) -> Instruction:
        return self.main.add("dot", SQUARE, (a, a), dot_dims=DotDims((1,), (0,)))

    def all_reduce(self, a: Instruction) -> Instruction:
        return self.main.add(
            "all-reduce",
            SQUARE,
            (a,),
            replica_groups=ALL,
            use_global_device_ids=True,
            channel_id=len(self.main.computation.instructions),
        )

    def done(self, *results: Instruction) -> Module:
        self.main.root(self.main.add("tuple", Shape.tuple(tuple(r.shape for r in results)), results))
        return self.builder.finish(self.main)


def test_what_a_function_takes_is_found_once() -> None:
    """Each calls the next one twice."""
    functions = "twice0 { p = f32[4096] parameter(0)  ROOT r = f32[4096] sine(p) }"
    for n in range(16):
        calls = f"a = f32[4096] call(p), to_apply=twice{n}  ROOT b = f32[4096] call(a), to_apply=twice{n}"
        functions += f"\ntwice{n + 1} {{ p = f32[4096] parameter(0)  {calls} }}"
    entry = "ENTRY e { x = f32[4096] parameter(0)  ROOT r = f32[4096] call(x), to_apply=twice16 }"
    module = load(f"HloModule m\n{functions}\n{entry}", format="hlo")
    began = time.process_time()
    found = simulate(module, H100)
    assert time.process_time() - began < 2
    assert found.time_s == pytest.approx(cost(module, H100).time_s)


def test_a_chain_takes_the_sum() -> None:
    p = Program()
    module = p.done(p.all_reduce(p.dot(p.x)))
    found, report = simulate(module, H100), cost(module, H100)
    assert found.time_s == pytest.approx(report.compute_s + report.comm_s)
    assert [e.instruction.opcode for e in found.critical_path] == ["dot", "all-reduce"]


def test_independent_streams_overlap() -> None:
    p = Program()
    module = p.done(p.dot(p.x), p.all_reduce(p.x))
    found, report = simulate(module, H100), cost(module, H100)
    assert found.time_s == pytest.approx(max(report.compute_s, report.comm_s))
    assert found.exposed_comm_s == pytest.approx(max(0.0, report.comm_s - report.compute_s))


@pytest.mark.parametrize("count", [2, 40])
def test_what_is_behind_a_barrier_waits_for_all_before_it(count: int) -> None:
    """Names take no time; few of them are walked through at once, others are tasks."""
    p = Program()
    dots = [p.dot(p.x) for _ in range(count)]
    packed = p.main.add("tuple", Shape.tuple((SQUARE,) * count), dots)
    behind = p.main.add("opt-barrier", packed.shape, (packed,))
    element = p.main.add("get-tuple-element", SQUARE, (behind,), tuple_index=0)
    found = simulate(p.done(p.all_reduce(element)), H100)
    *before, after = found.timeline
    assert after.instruction.opcode == "all-reduce"
    assert after.start == max(event.end for event in before) == pytest.approx(found.compute_s)


def test_one_stream_does_one_thing_at_a_time() -> None:
    p = Program()
    module = p.done(p.all_reduce(p.x), p.all_reduce(p.dot(p.x)))
    events = sorted((e for e in simulate(module, H100).timeline if e.stream == "communication"), key=lambda e: e.start)
    assert events[0].end <= events[1].start


def test_a_collective_that_is_ready_does_not_wait_for_one_that_is_written_before_it() -> None:
    p = Program()
    late = p.all_reduce(p.dot(p.dot(p.x)))
    early = p.all_reduce(p.x)
    found = simulate(p.done(late, early), H100)
    start = {e.instruction: e.start for e in found.timeline}
    assert start[early] == 0.0 < start[late]


def test_memory_starts_with_the_arguments_and_never_passes_the_sum_of_all() -> None:
    p = Program()
    found = simulate(p.done(p.dot(p.x), p.all_reduce(p.x)), H100)
    assert found.memory[0] == (0.0, SQUARE.byte_size)
    assert max(alive for _, alive in found.memory) == 3 * SQUARE.byte_size


def test_the_trace_is_one_that_chrome_reads(tmp_path: Path) -> None:
    p = Program()
    found = simulate(p.done(p.all_reduce(p.dot(p.x))), H100)
    found.save_trace(tmp_path / "step.json")
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    assert [s["tid"] for s in slices] == [1, 2]
    assert slices[1]["ts"] == pytest.approx(slices[0]["ts"] + slices[0]["dur"])


def test_a_trace_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    p = Program()
    with pytest.raises(HloShardingError, match="cannot write"):
        simulate(p.done(p.dot(p.x)), H100).save_trace(tmp_path / "no" / "such" / "folder.json")


def test_what_is_read_by_another_name_lives_until_its_last_reader() -> None:
    text = """HloModule m
    ENTRY e {
      x = f32[256,256] parameter(0)
      y = f32[256,256] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      flat = f32[65536] reshape(y)
      z = f32[256,256] dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
      again = f32[256,256] reshape(flat)
      ROOT w = f32[256,256] dot(z, again), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    }"""
    module = load(text)
    run = simulate(module, machines.h100(1))
    lives = {life.instruction.name: life for life in lifetimes(module, run.timeline)}
    assert lives["y"].end == lives["w"].end == run.time_s
    # x all the time; y, z and w at the end.
    assert max(nbytes for _, nbytes in run.memory) == 4 * 4 * 256 * 256


TRIP = """HloModule m, num_partitions=8
body {{
  c = (s32[], f32[4096,4096], f32[512,4096]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[4096,4096] get-tuple-element(c), index=1
  piece = f32[512,4096] get-tuple-element(c), index=2
  turned = f32[512,4096] {turn}
  whole = f32[4096,4096] all-gather(turned), dimensions={{0}}, replica_groups={{{{0,1,2,3,4,5,6,7}}}}, channel_id=1,
    use_global_device_ids=true
  y = f32[4096,4096] dot(x, whole), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT r = (s32[], f32[4096,4096], f32[512,4096]) tuple(next, y, piece)
}}
condition {{
  c = (s32[], f32[4096,4096], f32[512,4096]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  n = s32[] constant(10)
  ROOT p = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  x = f32[4096,4096] parameter(0)
  piece = f32[512,4096] parameter(1)
  zero = s32[] constant(0)
  t = (s32[], f32[4096,4096], f32[512,4096]) tuple(zero, x, piece)
  w = (s32[], f32[4096,4096], f32[512,4096]) while(t), condition=condition, body=body
  ROOT y = f32[4096,4096] get-tuple-element(w), index=1
}}"""


def of_ten_trips(turn: str) -> tuple[float, float, float]:
    """What the loop takes, and what its trips compute and communicate."""
    module = load(TRIP.format(turn=turn), format="hlo")
    report = cost(module, H100)
    return simulate(module, H100).time_s, report.compute_s, report.comm_s


def test_what_no_trip_makes_is_fetched_while_the_trip_before_computes() -> None:
    time, compute, comm = of_ten_trips("negate(piece)")
    assert time == pytest.approx(compute + comm / 10, rel=0.01)


def test_what_the_trip_before_makes_is_waited_for() -> None:
    time, compute, comm = of_ten_trips("slice(x), slice={[0:512], [0:4096]}")
    assert time == pytest.approx(compute + comm, rel=0.01)


KINDS = {
    "gradients": "x = f32[4096,4096] all-reduce(p), to_apply=sum, {mode}, use_global_device_ids=true",
    "prefetch": "x = f32[4096,4096] all-gather(s), dimensions={{0}}, {mode}, use_global_device_ids=true",
    "collective matmul": "x = f32[4096,4096] collective-permute(p), source_target_pairs={{{{0,1}}}}, channel_id=1",
    "exchanges": "x = f32[4096,4096] all-to-all(p), dimensions={{0}}, {mode}",
}
"""One of each case."""
STARTED = {
    "gradients": """b = f32[4096,4096] all-reduce-start(p), to_apply=sum, {mode}, use_global_device_ids=true
  x = f32[4096,4096] all-reduce-done(b)""",
    "prefetch": """b = (f32[512,4096], f32[4096,4096]) all-gather-start(s), dimensions={{0}}, {mode},
    use_global_device_ids=true
  x = f32[4096,4096] all-gather-done(b)""",
    "collective matmul": """b = (f32[4096,4096], f32[4096,4096], u32[], u32[]) collective-permute-start(p),
    source_target_pairs={{{{0,1}}}}, channel_id=1
  x = f32[4096,4096] collective-permute-done(b)""",
    "exchanges": """b = ((f32[4096,4096]), f32[4096,4096]) all-to-all-start(p), dimensions={{0}}, {mode}
  x = f32[4096,4096] all-to-all-done(b)""",
}
"""The same as XLA writes them where they are asynchronous: of the last it makes an op that wraps a computation."""
MODE = "replica_groups={{0,1,2,3,4,5,6,7}}, channel_id=1"
BESIDE = """HloModule m, num_partitions=8
sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
ENTRY e {{
  p = f32[4096,4096] parameter(0)
  s = f32[512,4096] parameter(1)
  {collective}
  y = f32[4096,4096] dot(p, p), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT t = (f32[4096,4096], f32[4096,4096]) tuple(x, y)
}}"""


@pytest.mark.parametrize("off", [*KINDS, None])
@pytest.mark.parametrize("case", KINDS)
@pytest.mark.parametrize("forms", [KINDS, STARTED], ids=["one op", "start and done"])
def test_each_overlap_can_be_switched_off_and_changes_its_own_case(
    forms: dict[str, str], case: str, off: Overlap | None
) -> None:
    module = load(BESIDE.format(collective=forms[case].format(mode=MODE)), format="hlo")
    report = cost(module, H100)
    machine = H100 if off is None else H100.without_overlap(off)
    side_by_side, in_turn = max(report.compute_s, report.comm_s), report.compute_s + report.comm_s
    assert simulate(module, machine).time_s == pytest.approx(in_turn if off == case else side_by_side)


@pytest.mark.parametrize("case", KINDS)
def test_a_start_is_shown_and_held_as_its_collective_is(case: str) -> None:
    one, started = (
        simulate(load(BESIDE.format(collective=forms[case].format(mode=MODE)), format="hlo"), H100)
        for forms in (KINDS, STARTED)
    )
    assert [(e.stream, e.start, e.end, e.nbytes) for e in started.timeline] == [
        (e.stream, e.start, e.end, e.nbytes) for e in one.timeline
    ]
    # What a start makes names its operand, too, which takes no room.
    assert max(n for _, n in started.memory) == pytest.approx(max(n for _, n in one.memory), abs=8)


def test_what_an_asynchronous_op_wraps_takes_its_time() -> None:
    text = """HloModule m
    inner { a = f32[4096,4096] parameter(0)
      b = f32[4096,4096] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      ROOT c = f32[4096,4096] dot(b, a), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
    ENTRY e { x = f32[4096,4096] parameter(0)
      s = ((f32[4096,4096]), f32[4096,4096]) async-start(x), calls=inner
      ROOT d = f32[4096,4096] async-done(s) }"""
    module = load(text, format="hlo")
    found, report = simulate(module, H100), cost(module, H100)
    assert found.time_s == pytest.approx(report.time_s)
    assert found.breakdown.flops_s == pytest.approx(report.time_s)


@pytest.mark.parametrize("turn", ["negate(piece)", "slice(x), slice={[0:512], [0:4096]}"])
def test_without_any_overlap_a_loop_takes_the_sum(turn: str) -> None:
    module = load(TRIP.format(turn=turn), format="hlo")
    run, report = simulate(module, H100.without_overlap()), cost(module, H100)
    assert run.time_s == pytest.approx(report.compute_s + report.comm_s, rel=1e-3)  # it asks once more than it runs
    assert run.exposed_comm_s == pytest.approx(report.comm_s)


def test_parts_of_a_machine_do_not_overlap_either() -> None:
    mixed = Machine.of_parts(machines.h100(8), machines.a100(8)).without_overlap("prefetch")
    assert mixed.kind_of((0, 1)).synchronous == mixed.kind_of((0, 9)).synchronous == ("prefetch",)


def test_an_overlap_that_is_none_is_refused() -> None:
    with pytest.raises(CostError, match="no overlap 'gather'; there are gradients, prefetch"):
        H100.without_overlap("gather")  # pyright: ignore[reportArgumentType]
