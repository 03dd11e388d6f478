"""The report: sums, subtotals, times, and that twice the program costs twice as much."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from hlosharding import load
from hlosharding.cost import collective_time, cost, machines, op_time
from hlosharding.cost.model import matrix_efficiency
from hlosharding.ir import Builder, DotDims, Module, Shape

TEXT = """
HloModule m, num_partitions=8
add { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT s = f32[] add(x, y) }
ENTRY main {
  p = f32[512,256] parameter(0)
  w = f32[256,128] parameter(1)
  d = f32[512,128] dot(p, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, AT_7
  r = f32[512,128] all-reduce(d), replica_groups=[2,4]<=[8], to_apply=add, channel_id=1, use_global_device_ids=true,AT_7
  e = f32[512,128] exponential(r), metadata={source_file="m.py" source_line=9}
  ROOT n = f32[512,128] negate(e)
}
""".replace("AT_7", 'metadata={source_file="m.py" source_line=7}')


def test_a_report_adds_up() -> None:
    machine = dataclasses.replace(machines.h100(8), matrix_tile=(1, 1, 1), matrix_units=1)
    report = cost(load(TEXT), machine)
    size = 512 * 128
    assert report.flops == 2 * size * 256 + size * 3 / 4 + size
    assert report.transcendentals == size
    assert report.comm_bytes == 2 * 3 / 4 * size * 4
    product = op_time(2 * size * 256, 4 * (512 * 256 + 256 * 128 + size), "f32", machine)
    # exp is read once and absorbed; negate writes: one kernel, in the row of the latter.
    kernel = machine.launch + 4 * size * 2 / (machine.memory_bandwidth * machine.memory_efficiency)
    reduction = collective_time("all-reduce", 4 * size, 4, None, machine)
    assert report.comm_s == pytest.approx(reduction)
    assert report.compute_s == pytest.approx(product + kernel)
    assert report.time_s == report.compute_s + report.comm_s


def test_subtotals_add_up_to_the_report() -> None:
    report = cost(load(TEXT))
    for table in (report.by_opcode, report.by_location):
        assert sum(t.flops for t in table.values()) == pytest.approx(report.flops)
        assert sum(t.time_s for t in table.values()) == pytest.approx(report.time_s)
        assert sum(t.comm_bytes for t in table.values()) == pytest.approx(report.comm_bytes)
    assert set(report.by_opcode) == {"dot", "all-reduce", "exponential", "negate"}
    assert report.by_location["m.py:7"].instructions == 2
    assert report.by_location["m.py:7"].comm_bytes == report.comm_bytes


def test_what_holds_a_module_is_as_good_as_a_module() -> None:
    module = load(TEXT)
    assert cost(SimpleNamespace(module=module)).flops == cost(module).flops


def test_loops_multiply_everything() -> None:
    def program(trips: int) -> Module:
        return load(f"""
HloModule m, num_partitions=4
add {{ x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT s = f32[] add(x, y) }}
condition {{
  c = (s32[], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  n = s32[] constant({trips})
  ROOT less = pred[] compare(i, n), direction=LT
}}
body {{
  b = (s32[], f32[64,64]) parameter(0)
  j = s32[] get-tuple-element(b), index=0
  x = f32[64,64] get-tuple-element(b), index=1
  one = s32[] constant(1)
  next = s32[] add(j, one)
  d = f32[64,64] dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  r = f32[64,64] all-reduce(d), replica_groups={{}}, to_apply=add, channel_id=1
  ROOT o = (s32[], f32[64,64]) tuple(next, r)
}}
ENTRY main {{
  p = f32[64,64] parameter(0)
  zero = s32[] constant(0)
  init = (s32[], f32[64,64]) tuple(zero, p)
  loop = (s32[], f32[64,64]) while(init), condition=condition, body=body
  ROOT r = f32[64,64] get-tuple-element(loop), index=1
}}""")

    once, often = cost(program(1)), cost(program(10))
    assert often.comm_bytes == pytest.approx(10 * once.comm_bytes)
    assert often.by_opcode["dot"].flops == 10 * once.by_opcode["dot"].flops
    assert often.comm_s == pytest.approx(10 * once.comm_s)
    assert often.peak_memory_bytes == once.peak_memory_bytes


def test_more_devices_of_a_machine_do_not_change_the_program() -> None:
    module = load(TEXT)
    near, far = cost(module, machines.h100(8)), cost(module, machines.dgx2_v100(8))
    assert near.flops == far.flops
    assert near.time_s < far.time_s


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((1, 1280, 1280, 640), 100 / 132),  # 100 tiles on 132 units: no use cutting
        ((1, 128 * 132, 128, 64), 1.0),
        ((1, 128 * 133, 128, 64), 133 / 264),
        ((1, 100, 128, 64 * 4 * 132), 100 / 128),  # one tile, its depth cut over all units
        ((66, 64, 128, 64), 66 / 132 / 2),
    ],
)
def test_tiles_and_waves(sizes: tuple[int, int, int, int], expected: float) -> None:
    machine = dataclasses.replace(machines.h100(), matrix_tile=(128, 128, 64), matrix_units=132)
    assert matrix_efficiency(sizes, machine) == pytest.approx(expected)


def test_an_empty_product_has_a_price() -> None:
    b = Builder("m")
    main = b.computation("main")
    x = main.parameter(0, Shape.array("f32", (0, 8)))
    y = main.parameter(1, Shape.array("f32", (8, 4)))
    main.add("dot", Shape.array("f32", (0, 4)), (x, y), dot_dims=DotDims((1,), (0,)))
    assert cost(b.finish(main)).flops == 0


def test_twenty_thousand_instructions_are_priced() -> None:
    b = Builder("m", num_partitions=8)
    main = b.computation("main")
    x = main.parameter(0, Shape.array("f32", (64, 64)))
    value = x
    for number in range(5000):
        d = main.add("dot", x.shape, (value, x), dot_dims=DotDims((1,), (0,)))
        ids = {"channel_id": number + 1, "use_global_device_ids": True}
        r = main.add("all-reduce", x.shape, (d,), replica_groups=((0, 1, 2, 3), (4, 5, 6, 7)), **ids)
        value = main.add("tanh", x.shape, (main.add("add", x.shape, (r, x)),))
    module = b.finish(main)
    report = cost(module)
    assert len(report.collectives) == 5000
    assert report.transcendentals == 5000 * 64**2


def test_products_that_fill_a_program_are_slower_than_those_beside_other_kernels() -> None:
    """Measured on an H100 (benchmarks/card): 690 TFLOP/s of products alone, 790 where half of a step leaves power."""
    size, machine = 8192, machines.h100(1)
    product = "d0 = bf16[8192,8192] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    alone = load("HloModule m\nENTRY e {\n x = bf16[8192,8192] parameter(0)\n ROOT " + product + "\n}")
    beside = load(
        "HloModule m\nENTRY e {\n x = bf16[8192,8192] parameter(0)\n y = f32[1000000000] parameter(1)\n "
        + product
        + "\n z = f32[1000000000] negate(y)\n ROOT t = (bf16[8192,8192], f32[1000000000]) tuple(d0, z)\n}"
    )
    rates = [2 * size**3 / cost(each, machine).by_opcode["dot"].time_s / 1e12 for each in (alone, beside)]
    assert rates == [pytest.approx(690, rel=0.03), pytest.approx(790, rel=0.04)]
