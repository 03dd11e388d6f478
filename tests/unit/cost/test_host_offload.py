"""Values in the host's memory take no room on the device, and are counted apart."""

from __future__ import annotations

import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from benchmarks.checkpointed_layers import LAYERS, ROWS, WIDTH, perceptron
from hlosharding.cost import Machine, given_lifetimes, machines
from hlosharding.cost.host_offload import leaves_on_host
from hlosharding.errors import CostError

KB = 1024
MOVE = 'custom_call_target="MoveTo{}"'.format


def read(body: str, callees: str = "") -> hs.Module:
    return hs.load(f"HloModule m\n{callees}\nENTRY main {{\n{body}\n}}", format="hlo")


def test_a_value_is_on_the_host_between_the_moves() -> None:
    dot = "lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    body = f"""x = f32[256,256] parameter(0)
      b = f32[256,256] dot(x, x), {dot}
      {{}}
      c = f32[256,256] dot(b, x), {dot}
      d = f32[256,256] dot(c, c), {dot}
      e = f32[256,256] dot(d, c), {dot}
      {{}}
      ROOT f = f32[256,256] dot(e, back), {dot}"""
    move = "{} = f32[256,256] custom-call({}), " + MOVE("{}")
    kept = hs.cost(read(body.format(move.format("out", "b", "Device"), move.format("back", "out", "Device"))))
    away = hs.cost(read(body.format(move.format("out", "b", "Host"), move.format("back", "out", "Device"))))
    assert kept.host_memory_bytes == 0
    assert away.host_memory_bytes == 256 * KB  # f32[256,256]
    # x, c, d and e; while b is here, x, b, c, d and e.
    assert (away.peak_memory_bytes, kept.peak_memory_bytes) == (4 * 256 * KB, 5 * 256 * KB)
    assert "0.3 MB on the host" in str(away)


OFFLOADED = f"""x = f32[256,256] parameter(0)
  b = f32[256,256] dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  out = f32[256,256] custom-call(b), {MOVE("Host")}
  c = f32[256,256] dot(b, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  back = f32[256,256] custom-call(out), {MOVE("Device")}
  ROOT d = f32[256,256] dot(back, c), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"""


def test_moves_take_the_link_to_the_host_beside_what_is_computed() -> None:
    machine, module = machines.a100(1), read(OFFLOADED)
    one = machine.launch + 256 * KB / 25e9  # PCIe 4
    report, run = hs.cost(module, machine), hs.simulate(module, machine)
    assert report.host_s == run.host_s == pytest.approx(2 * one)
    assert report.time_s == pytest.approx(report.compute_s + 2 * one)
    product = report.compute_s / 3
    assert run.time_s == pytest.approx(product + max(2 * one, product) + product)
    assert [event.instruction.name for event in run.timeline if event.stream == "host"] == ["out", "back"]
    assert "to the host and back" in str(report)
    assert "to the host and back" in str(run)


def test_what_is_there_already_is_not_moved() -> None:
    dots = read(OFFLOADED.replace("MoveToHost", "MoveToDevice"))
    assert hs.cost(dots).host_s == 0.0


def test_a_machine_that_does_not_say_how_fast_prices_no_moves() -> None:
    with pytest.raises(CostError, match=r"'tpu_v5e\(1\)' does not say how fast %out moves f32\[256,256\] to the host"):
        hs.cost(read(OFFLOADED), machines.tpu_v5e(1))
    unknown = replace(machines.a100(1), host_bandwidth=0.0)
    assert Machine.of_parts(machines.h100(1), unknown).host_bandwidth == 0.0


def test_layers_that_offload_move_what_they_saved_once_each_way() -> None:
    """By eight devices each its part of the rows."""
    step = perceptron("save_and_offload_only_these_names", is_scanned=True)
    saved = LAYERS * ROWS * 4 * WIDTH * 4
    for count in (1, 8):
        rows = f"{{devices=[{count},1]<=[{count}]}}" if count > 1 else None
        traced = hs.trace(step.function, platform="cuda", in_shardings=(None, rows))(*step.arguments)
        report = hs.cost(hs.partition(traced, num_partitions=count), machines.h100(count))
        assert report.host_s == pytest.approx(2 * (LAYERS * machines.h100().launch + saved / count / 55e9))
        assert report.host_memory_bytes == pytest.approx(saved / count, rel=0.13)  # and the row that is on its way


def test_rows_that_a_loop_puts_on_the_host_are_there_for_the_whole_loop() -> None:
    callees = f"""
    add {{ p = (s32[], f32[64,1024], f32[1,1024]) parameter(0)  i = s32[] get-tuple-element(p), index=0
      rows = f32[64,1024] get-tuple-element(p), index=1  x = f32[1,1024] get-tuple-element(p), index=2
      y = f32[1,1024] tanh(x)  out = f32[1,1024] custom-call(y), {MOVE("Host")}  zero = s32[] constant(0)
      new = f32[64,1024] dynamic-update-slice(rows, out, i, zero)  one = s32[] constant(1)  j = s32[] add(i, one)
      ROOT t = (s32[], f32[64,1024], f32[1,1024]) tuple(j, new, y) }}
    more {{ p = (s32[], f32[64,1024], f32[1,1024]) parameter(0)  i = s32[] get-tuple-element(p), index=0
      n = s32[] constant(64)  ROOT c = pred[] compare(i, n), direction=LT }}"""
    body = f"""x = f32[1,1024] parameter(0)  zero = s32[] constant(0)  f = f32[] constant(0)
      room = f32[64,1024] broadcast(f), dimensions={{}}
      t = (s32[], f32[64,1024], f32[1,1024]) tuple(zero, room, x)
      w = (s32[], f32[64,1024], f32[1,1024]) while(t), condition=more, body=add
      rows = f32[64,1024] get-tuple-element(w), index=1
      five = s32[] constant(5)  row = f32[1,1024] dynamic-slice(rows, five, zero), dynamic_slice_sizes={{1,1024}}
      ROOT back = f32[1,1024] custom-call(row), {MOVE("Device")}"""
    report = hs.cost(read(body, callees))
    assert 256 * KB <= report.host_memory_bytes <= 264 * KB  # the rows; one row that is written, or read
    assert report.peak_memory_bytes < 32 * KB
    assert report.by_opcode["custom-call"].bytes == 65 * 4 * KB  # 64 rows there, one back
    assert "dynamic-update-slice" not in report.by_opcode
    assert "dynamic-slice" not in report.by_opcode


def test_inputs_and_results_kept_on_the_host_are_counted_there(mesh_2x4: Mesh) -> None:
    def places(kind: str) -> NamedSharding:
        return NamedSharding(mesh_2x4, P("data"), memory_kind=kind)

    def step(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.sin(jnp.cos(jax.device_put(x, jax.memory.Space.Device)) @ w)

    x = np.ones((64, 64), np.float32)
    reports = []
    for kind in ("pinned_host", "device"):
        jitted = hs.jit(step, mesh=mesh_2x4, in_shardings=(places(kind), P()), out_shardings=places(kind))
        partitioned = jitted.trace(x, x).propagate().partition().partitioned
        np.testing.assert_allclose(partitioned.run(x, x), np.sin(np.cos(x) @ x), rtol=1e-5)
        reports.append(partitioned.cost)
        assert hs.simulate(partitioned).host_memory_bytes == partitioned.cost.host_memory_bytes
    away, here = reports
    assert here.host_memory_bytes == 0
    assert away.host_memory_bytes == 2 * 32 * 64 * 4  # half of the rows, in and out
    assert away.peak_memory_bytes < here.peak_memory_bytes


def test_the_simulated_memory_over_time_is_the_devices() -> None:
    body = f"""x = f32[256,256] parameter(0)
      y = f32[256,256] dot(x, x), lhs_contracting_dims={{0}}, rhs_contracting_dims={{1}}
      out = f32[256,256] custom-call(y), {MOVE("Host")}
      z = f32[256,256] dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
      back = f32[256,256] custom-call(out), {MOVE("Device")}
      ROOT r = f32[256,256] add(z, back)"""
    found = hs.simulate(read(body))
    assert found.host_memory_bytes == 256 * KB
    assert "on the host" in str(found)
    assert max(n for _, n in found.memory) <= 5 * 256 * KB


def test_an_input_that_lies_on_the_host_takes_no_room_on_the_device() -> None:
    body = f"""x = f32[256,256] parameter(0)
      w = f32[256,256] parameter(1)
      near = f32[256,256] custom-call(x), {MOVE("Device")}
      ROOT y = f32[256,256] dot(near, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"""
    module = read(body)
    found = hs.simulate(module)
    assert found.host_memory_bytes == 256 * KB  # x
    assert found.memory[0] == (0.0, 256 * KB)  # w
    assert max(n for _, n in found.memory) == hs.cost(module).peak_memory_bytes == 3 * 256 * KB
    assert [life.instruction.name for life in given_lifetimes(module, 0.0)] == ["w"]


def test_a_function_called_twice_is_given_what_any_caller_has_there() -> None:
    callees = "take { t = f32[256,256] parameter(0)  ROOT u = f32[256,256] copy(t) }"
    body = f"""x = f32[256,256] parameter(0)
      out = f32[256,256] custom-call(x), {MOVE("Host")}
      a = f32[256,256] call(out), to_apply=take
      b = f32[256,256] call(x), to_apply=take
      ROOT r = (f32[256,256], f32[256,256]) tuple(a, b)"""
    module = read(body, callees)
    assert leaves_on_host(module)[module.by_name("t")] == {0}


def test_call_sites_are_looked_at_once() -> None:
    """Each function calls the next one twice: a million ways lead from the move to the input."""
    callees = f"twice0 {{ p = f32[8] parameter(0)  ROOT r = f32[8] custom-call(p), {MOVE('Device')} }}"
    for n in range(20):
        calls = "  ".join(f"{name} = f32[8] call(p), to_apply=twice{n}" for name in "ab")
        callees += f"\ntwice{n + 1} {{ p = f32[8] parameter(0)  {calls}  ROOT r = f32[8] add(a, b) }}"
    module = read("x = f32[8] parameter(0)\nROOT r = f32[8] call(x), to_apply=twice20", callees)
    began = time.process_time()
    away = leaves_on_host(module)
    assert time.process_time() - began < 2
    assert {op.opcode for op in away} == {"parameter"}
    assert len(away) == 22  # the input, and as it is given to each function


def test_a_loop_that_carries_one_array_moves_it() -> None:
    callees = f"""
    put {{ p = f32[256,256] parameter(0)  ROOT q = f32[256,256] custom-call(p), {MOVE("Host")} }}
    more {{ p = f32[256,256] parameter(0)  ROOT c = pred[] constant(false) }}"""
    module = read("x = f32[256,256] parameter(0)\nROOT w = f32[256,256] while(x), condition=more, body=put", callees)
    assert leaves_on_host(module)[module.by_name("w")] == {0}
