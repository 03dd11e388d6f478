"""FLOPs and bytes of single ops: XLA's own cost analysis where it is exact, hand figures elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from math import log2

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from hlosharding import load, xla_bridge
from hlosharding.cost import cost, machines, op_work
from hlosharding.ir import Module

F32 = jnp.float32


def shapes(*dims: tuple[int, ...]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(d, F32) for d in dims]


def both(function: Callable, *args: jax.ShapeDtypeStruct) -> tuple[float, float]:
    """FLOPs by us and by XLA, of the program as JAX lowers it."""
    lowered = jax.jit(function).lower(*args)
    module = Module.from_proto(xla_bridge.lowered_to_hlo_proto(lowered))
    return cost(module).flops, lowered.cost_analysis().get("flops", 0.0)


PRODUCTS = {
    "plain": (jnp.dot, shapes((8, 16), (16, 4))),
    "batched": (lambda x, y: jnp.einsum("bij,bjk->bik", x, y), shapes((3, 8, 16), (3, 16, 4))),
    "two contracted": (lambda x, y: jnp.einsum("ijk,jkl->il", x, y), shapes((8, 2, 16), (2, 16, 4))),
    "outer": (lambda x, y: jnp.einsum("i,j->ij", x, y), shapes((8,), (5,))),
    "vector": (jnp.dot, shapes((8,), (8,))),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_as_xla_counts_them(name: str) -> None:
    function, args = PRODUCTS[name]
    ours, theirs = both(function, *args)
    assert ours == theirs


CONVOLUTIONS = [
    {"window_strides": (1, 1), "padding": "SAME"},
    {"window_strides": (1, 1), "padding": "VALID"},
    {"window_strides": (2, 3), "padding": "SAME"},
    {"window_strides": (1, 1), "padding": ((2, 1), (0, 3))},
    {"window_strides": (1, 1), "padding": ((-1, 1), (0, -1))},
    {"window_strides": (1, 1), "padding": "SAME", "rhs_dilation": (2, 2)},
    {"window_strides": (1, 1), "padding": ((2, 2), (2, 2)), "lhs_dilation": (2, 2)},
    {"window_strides": (2, 1), "padding": ((2, 2), (2, 2)), "lhs_dilation": (3, 2), "rhs_dilation": (1, 2)},
]


@pytest.mark.parametrize("options", CONVOLUTIONS, ids=str)
def test_convolutions_as_xla_counts_them(options: dict) -> None:
    def convolve(x, w):
        return lax.conv_general_dilated(x, w, dimension_numbers=("NHWC", "HWIO", "NHWC"), **options)

    ours, theirs = both(convolve, *shapes((2, 13, 11, 4), (3, 3, 4, 6)))
    assert ours == theirs > 0


@pytest.mark.parametrize("feature_groups", [2, 4])
def test_grouped_convolutions(feature_groups: int) -> None:
    def convolve(x, w):
        numbers = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=feature_groups
        )

    ours, theirs = both(convolve, *shapes((2, 8, 8, 4), (3, 3, 4 // feature_groups, 8)))
    assert ours == theirs


def test_gradients_of_a_convolution() -> None:
    def loss(x, w):
        return lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")).sum()

    ours, theirs = both(jax.grad(loss, (0, 1)), *shapes((4, 9, 9, 3), (3, 3, 3, 5)))
    assert ours == theirs


POINTWISE = {
    "add": lambda x: x + x,
    "select": lambda x: jnp.where(x > 0, x, -x),
    "clamp": lambda x: jnp.clip(x, 0.0, 1.0),
    "convert": lambda x: x.astype(jnp.bfloat16),
    "reduce": lambda x: x.sum(),
    "reduce one dim": lambda x: x.max(axis=1),
    "moved only": lambda x: jnp.transpose(x)[::-1],
}


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise_ops_and_reductions_as_xla_counts_them(name: str) -> None:
    ours, theirs = both(POINTWISE[name], *shapes((32, 16)))
    assert ours == theirs


def test_transcendentals_are_counted_apart() -> None:
    lowered = jax.jit(lambda x: jnp.exp(x) * jnp.tanh(x)).lower(*shapes((32, 16)))
    report = cost(Module.from_proto(xla_bridge.lowered_to_hlo_proto(lowered)))
    assert report.transcendentals == lowered.cost_analysis()["transcendentals"] == 2 * 512
    assert report.flops == 512


def test_loops_count_every_trip_where_xla_counts_one() -> None:
    def f(w, x):
        return lax.scan(lambda h, _: (h @ w, None), x, None, length=12)[0]

    ours, theirs = both(f, *shapes((16, 16), (4, 16)))
    assert ours == pytest.approx(12 * 2 * 4 * 16 * 16, rel=2e-3)  # and the counter
    assert theirs == pytest.approx(2 * 4 * 16 * 16, rel=1e-2)


# ---------------------------------------------------------------------------------------------------------------------
# By hand


def one(body: str, name: str = "r", head: str = ""):
    text = f"HloModule m\n{head}\nadd {{ u = f32[] parameter(0)  v = f32[] parameter(1)  ROOT w = f32[] add(u, v) }}\n"
    return op_work(load(text + f"ENTRY main {{ {body} }}").by_name(name))


def test_a_gather_moves_what_it_fetches_not_what_it_points_into() -> None:
    work = one(
        "t = f32[1000,64] parameter(0)  i = s32[8,1] parameter(1)\n ROOT r = f32[8,64] gather(t, i), offset_dims={1},"
        " collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,64}"
    )
    assert work.bytes == 2 * 8 * 64 * 4 + 8 * 4
    assert work.flops == 0


def test_a_scatter_moves_its_updates_three_times() -> None:
    work = one(
        "t = f32[1000,64] parameter(0)  i = s32[8,1] parameter(1)  u = f32[8,64] parameter(2)\n"
        " ROOT r = f32[1000,64] scatter(t, i, u), update_window_dims={1}, inserted_window_dims={0},"
        " scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add"
    )
    assert work.bytes == 3 * 8 * 64 * 4 + 8 * 4
    assert work.flops == 8 * 64


def test_slices_move_their_part() -> None:
    assert one("x = f32[100] parameter(0)  ROOT r = f32[10] slice(x), slice={[0:10]}").bytes == 80
    update = "x = f32[100] parameter(0)  y = f32[10] parameter(1)  i = s32[] parameter(2)"
    assert one(f"{update}  ROOT r = f32[100] dynamic-update-slice(x, y, i)").bytes == 80
    assert one(f"{update}  ROOT r = f32[10] dynamic-slice(x, i), dynamic_slice_sizes={{10}}").bytes == 84


def test_a_copy_reads_once_and_writes_once() -> None:
    assert one("x = f32[64] parameter(0)  ROOT r = f32[64] copy(x)").bytes == 2 * 64 * 4
    started = "x = f32[64] parameter(0)  ROOT r = (f32[64], f32[64], u32[]) copy-start(x)"
    assert one(started).bytes == 2 * 64 * 4  # it names its operand beside what it makes


def test_a_sort_compares_log2_of_its_dim() -> None:
    less = "less { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = pred[] compare(a, b), direction=LT }"
    work = one("x = f32[16,1024] parameter(0)  ROOT r = f32[16,1024] sort(x), dimensions={1}, to_apply=less", head=less)
    assert work.flops == 16 * 1024 * 10


@pytest.mark.parametrize(
    ("rows", "length", "measured_us"),
    [(64, 65536, 461), (1024, 4096, 256), (1024, 2048, 84), (256, 16384, 288), (1, 1 << 24, 605)],
)
def test_a_sort_goes_through_memory_many_times(rows: int, length: int, measured_us: float) -> None:
    """Measured on an H200, jax 0.11.2: 20 calls in a row, less what a call of `tanh` of as much takes."""
    shape = f"f32[{rows},{length}]"
    less = "less { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = pred[] compare(a, b), direction=LT }"
    body = f"x = {shape} parameter(0)  ROOT r = {shape} sort(x), dimensions={{1}}, to_apply=less"
    found = cost(load(f"HloModule m\n{less}\nENTRY e {{ {body} }}"), machines.h200(1))
    assert found.by_opcode["sort"].time_s * 1e6 == pytest.approx(measured_us, rel=0.25)


def test_a_window_sum_adds_what_it_sees() -> None:
    # Size 3, padding 1 each side, 8 elements: 3 * 8 - 2 pairs, minus one start per output.
    work = one(
        "x = f32[8] parameter(0)  z = f32[] constant(0)\n"
        " ROOT r = f32[8] reduce-window(x, z), window={size=3 pad=1_1}, to_apply=add"
    )
    assert work.flops == 3 * 8 - 2 - 8


def test_a_running_sum_is_not_quadratic() -> None:
    work = one(
        "x = f32[512] parameter(0)  z = f32[] constant(0)\n"
        " ROOT r = f32[512] reduce-window(x, z), window={size=512 pad=511_0}, to_apply=add"
    )
    assert work.flops == 512


def test_linear_algebra() -> None:
    assert one("x = f32[5,12,12] parameter(0)  ROOT r = f32[5,12,12] cholesky(x), lower=true").flops == 5 * 12**3 / 3
    solve = one(
        "a = f32[12,12] parameter(0)  b = f32[12,4] parameter(1)\n ROOT r = f32[12,4] triangular-solve(a, b),"
        " left_side=true, lower=true, unit_diagonal=false, transpose_a=NO_TRANSPOSE"
    )
    assert solve.flops == 12 * 12 * 4
    fft = one("x = c64[3,256] parameter(0)  ROOT r = c64[3,256] fft(x), fft_type=FFT, fft_length={256}")
    assert fft.flops == 5 * 3 * 256 * log2(256)


def test_a_complex_product_is_four_real_ones() -> None:
    work = one(
        "x = c64[8,4] parameter(0)  y = c64[4,2] parameter(1)\n ROOT r = c64[8,2] dot(x, y),"
        " lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    assert work.flops == 4 * 2 * 8 * 4 * 2


def test_an_all_reduce_adds_its_share() -> None:
    work = one("x = f32[64] parameter(0)  ROOT r = f32[64] all-reduce(x), replica_groups={{0,1,2,3}}, to_apply=add")
    assert work.flops == 64 * 3 / 4
    assert work.bytes == 0  # what it moves is priced by its links


@pytest.mark.parametrize("op", ["bitcast(x)", "copy-done(s)", "parameter(1)", "opt-barrier(x)", "reshape(x)"], ids=str)
def test_names_are_free(op: str) -> None:
    work = one(f"x = f32[64] parameter(0)  s = (f32[64], f32[64], u32[]) copy-start(x)  ROOT r = f32[64] {op}")
    assert (work.flops, work.bytes) == (0, 0)


def test_a_product_by_cublas_is_read_from_its_config() -> None:
    config = (
        '{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["0"],'
        '"rhs_contracting_dimensions":["1"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]}}}'
    )
    work = one(
        "x = f32[16,8] parameter(0)  y = f32[4,16] parameter(1)\n"
        f' r = (f32[8,4], s8[64]) custom-call(x, y), custom_call_target="__cublas$gemm", backend_config={config}\n'
        " ROOT g = f32[8,4] get-tuple-element(r), index=0"
    )
    assert work.flops == 2 * 8 * 16 * 4


STATED = '{"dot_dimension_numbers": @}'.replace


@pytest.mark.parametrize(
    "config",
    ["[1]", "3", "no JSON", "[" * 100000, '{"gemm_backend_config": 3}', *(STATED("@", n) for n in ("null", "[1]"))],
    ids=lambda config: config[:30],
)
def test_a_product_with_another_config_is_plain(config: str) -> None:
    said = config.replace('"', '\\"')
    work = one(
        "x = f32[8,16] parameter(0)  y = f32[16,4] parameter(1)\n"
        f' ROOT r = f32[8,4] custom-call(x, y), custom_call_target="my_matmul", backend_config="{said}"'
    )
    assert work.flops == 2 * 8 * 16 * 4


@pytest.mark.parametrize("given", ["", "x", "s, s", "t, x"])
def test_what_is_called_a_product_and_is_none_moves_its_bytes(given: str) -> None:
    work = one(
        "x = f32[8,16] parameter(0)  s = f32[] parameter(1)  t = (f32[8]) parameter(2)\n"
        f' ROOT r = f32[8,4] custom-call({given}), custom_call_target="__cublas$gemm"'
    )
    read = {"": 0, "x": 8 * 16, "s, s": 2, "t, x": 8 + 8 * 16}[given]
    assert (work.flops, work.bytes) == (0, 4 * (read + 8 * 4))


CUDNN = 'custom_call_target="__cudnn$convForward", window={size=3x3 pad=1_1x1_1}'


def test_a_convolution_by_cudnn_reads_what_is_there() -> None:
    work = one(
        "x = f32[2,3,8,8] parameter(0)  y = f32[4,3,3,3] parameter(1)\n"
        f" ROOT r = (f32[2,4,8,8], u8[9]) custom-call(x, y), {CUDNN}, dim_labels=bf01_oi01->bf01"
    )
    # Along each dim of 8, 22 of the 24 places lie within.
    assert work.flops == 2 * (2 * 4 * 3) * 22 * 22


@pytest.mark.parametrize("given", ["", "x", "x, x"])
def test_what_is_called_a_convolution_and_is_none_moves_its_bytes(given: str) -> None:
    for labels in ("", ", dim_labels=bf01_oi01->bf01"):
        work = one(f"x = f32[4] parameter(0)  ROOT r = f32[4] custom-call({given}), {CUDNN}{labels}")
        assert (work.flops, work.bytes) == (0, 16 * (1 + given.count("x")))


def test_a_product_whose_config_names_dims_that_are_not_there_moves_its_bytes() -> None:
    config = '{"dot_dimension_numbers":{"lhs_contracting_dimensions":["7"],"rhs_contracting_dimensions":["0"]}}'
    work = one(
        "x = f32[8,16] parameter(0)  y = f32[16,4] parameter(1)\n"
        f' ROOT r = f32[8,4] custom-call(x, y), custom_call_target="__cublas$gemm", backend_config={config}'
    )
    assert (work.flops, work.bytes) == (0, 4 * (8 * 16 + 16 * 4 + 8 * 4))


FUSION = """
fused {
  t = f32[100,64] parameter(0)
  i = s32[] parameter(1)
  y = f32[1,64] parameter(2)
  o = s32[] constant(0)
  row = f32[1,64] dynamic-slice(t, i, o), dynamic_slice_sizes={1,64}
  sum = f32[1,64] add(row, y)
  ROOT u = f32[100,64] dynamic-update-slice(t, sum, i, o)
}
"""


def test_a_fusion_computes_its_body_and_moves_its_ends() -> None:
    work = one(
        "t = f32[100,64] parameter(0)  i = s32[] parameter(1)  y = f32[1,64] parameter(2)\n"
        " ROOT r = f32[100,64] fusion(t, i, y), kind=kLoop, calls=fused",
        head=FUSION,
    )
    assert work.flops == 64
    # One row read, one index, one row of y, one row written.
    assert work.bytes == 256 + 4 + 256 + 256


@pytest.mark.parametrize("op", ["map({}), dimensions={{0}}, to_apply={}", "fusion({}), kind=kLoop, calls={}"])
def test_computations_that_apply_the_next_one_twice(op: str) -> None:
    """A million million ways lead to the one addition."""
    array = "f32[]" if op.startswith("map") else "f32[8]"
    head = f"twice0 {{ p = {array} parameter(0)  ROOT s = {array} add(p, p) }}\n"
    inner = op.replace("{{0}}", "{{}}")
    for n in range(40):
        first, second = (inner.format(value, f"twice{n}") for value in "pa")
        head += f"twice{n + 1} {{ p = {array} parameter(0)  a = {array} {first}  ROOT s = {array} {second} }}\n"
    work = one(f"x = f32[8] parameter(0)  ROOT r = f32[8] {op.format('x', 'twice40')}", head=head)
    assert work.flops == 8 * 2.0**40


RAGGED = "lhs_contracting_dims={{{}}}, rhs_contracting_dims={{{}}}, lhs_ragged_dims={{0}}{}"


@pytest.mark.parametrize(
    ("lhs", "rhs", "result", "dims", "flops"),
    [
        ((6, 4), (3, 4, 5), (6, 5), RAGGED.format(1, 1, ", rhs_group_dims={0}"), 2 * 6 * 4 * 5),
        ((6, 4), (6, 5), (3, 4, 5), RAGGED.format(0, 0, ""), 2 * 6 * 4 * 5),
        ((6,), (6, 5), (3, 5), RAGGED.format(0, 0, ""), 2 * 6 * 5),
        ((6,), (6,), (3,), RAGGED.format(0, 0, ""), 2 * 6),
    ],
)
def test_each_row_of_a_ragged_product_is_multiplied_once(
    lhs: tuple[int, ...], rhs: tuple[int, ...], result: tuple[int, ...], dims: str, flops: float
) -> None:
    x, y, z = (f"f32[{','.join(map(str, sizes))}]" for sizes in (lhs, rhs, result))
    text = (
        f"a = {x} parameter(0)  b = {y} parameter(1)  g = s32[3] parameter(2)  ROOT r = {z} ragged-dot(a, b, g), {dims}"
    )
    assert one(text).flops == flops
