"""The lowering of declared ops (dots, reductions, pointwise ops, sorts, linear algebra): right, and cheap."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.cost import machines
from tests.support.split_programs import counts, mark, opcodes, right, root_dims, split

# Tiling of lhs f32[m,k], rhs f32[k,n] and of the result, on eight devices; "" is replicated, None left open.
DOTS = {
    "rows": ("[8,1]<=[8]", "", "[8,1]<=[8]"),
    "columns": ("", "[1,8]<=[8]", "[1,8]<=[8]"),
    "both free": ("[4,1,2]<=[8] copies", "[1,2,4]<=[4,2]T(1,0) copies", "[4,2]<=[8]"),
    "contracting": ("[1,8]<=[8]", "[8,1]<=[8]", ""),
    "contracting into rows": ("[1,8]<=[8]", "[8,1]<=[8]", "[8,1]<=[8]"),
    "left only contracting": ("[1,8]<=[8]", "", ""),
    "contracting and rows": ("[2,4]<=[8]", "[4,1,2]<=[2,4]T(1,0) copies", "[2,1,4]<=[8] copies"),
    "contracting, rows and columns": (
        "[2,2,2]<=[8] copies",
        "[2,2,2]<=[2,2,2]T(1,2,0) copies",
        "[2,2,2]<=[2,2,2]T(0,2,1) copies",
    ),
    "odd order": ("[8,1]7,3,5,1,6,2,4,0", "[1,8]0,2,4,6,1,3,5,7", "[2,4]3,1,0,2,7,5,4,6"),
    "nothing agrees": ("[8,1]<=[8]", "[8,1]<=[8]", "[1,8]<=[8]"),
    "result open": ("[2,4]<=[8]", "[2,4]<=[8]", None),
}


def dot(m: int, k: int, n: int, shardings: tuple[str, str, str | None]) -> str:
    left, right_, out = map(mark, shardings)
    return f"""
        x = f32[{m},{k}] parameter(0){left}
        w = f32[{k},{n}] parameter(1){right_}
        ROOT d = f32[{m},{n}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{out}"""


@pytest.mark.parametrize("sizes", [(16, 24, 8), (9, 3, 11)], ids=str)
@pytest.mark.parametrize("case", DOTS)
def test_a_dot_is_right(case: str, sizes: tuple[int, int, int]) -> None:
    right(dot(*sizes, DOTS[case]))


@pytest.mark.parametrize(
    "shardings",
    [
        ("[6,1]<=[6]", "[1,6]<=[6]", "[6,1]<=[6]"),
        ("[2,3]<=[6]", "[3,2]<=[6]", "[2,3]<=[3,2]T(1,0)"),
        ("[1,6]5,3,1,4,2,0", "[6,1]5,3,1,4,2,0", "[3,2]<=[6]"),
        ("[3,1,2]<=[6] copies", "[2,3]<=[6]", None),
    ],
    ids=str,
)
def test_a_dot_on_six_devices_is_right(shardings: tuple[str, str, str | None]) -> None:
    right(dot(7, 12, 10, shardings), devices=6)


BATCHED = [
    ("[8,1,1]<=[8]", "[8,1,1]<=[8]", "[8,1,1]<=[8]"),
    ("[2,2,2]<=[8]", "[2,2,2]<=[8]", None),
    ("[2,4,1]<=[8]", "[2,1,4]<=[8]", "[2,2,2]<=[8]"),
    ("[1,1,8]<=[8]", "[8,1,1]<=[8]", "[1,8,1]<=[8]"),
    ("[4,1,2]7,6,5,4,3,2,1,0", "[4,2,1]7,6,5,4,3,2,1,0", "[4,1,2]<=[8]"),
]


@pytest.mark.parametrize("batch", [8, 5])
@pytest.mark.parametrize("shardings", BATCHED, ids=str)
def test_a_batched_dot_is_right(shardings: tuple[str, str, str | None], batch: int) -> None:
    left, right_, out = map(mark, shardings)
    right(f"""
        x = f32[{batch},6,9] parameter(0){left}
        w = f32[{batch},9,4] parameter(1){right_}
        ROOT d = f32[{batch},6,4] dot(x, w), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
          lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}{out}""")


def test_a_split_of_contracting_dims_owes_one_sum() -> None:
    local = split(dot(16, 24, 8, ("[1,8]<=[8]", "[8,1]<=[8]", "")))
    assert counts(local) == {"all-reduce": 1}
    assert local.comm_bytes_per_device == 2 * 7 / 8 * 16 * 8 * 4


def test_a_sum_that_ends_split_is_scattered() -> None:
    local = split(dot(16, 24, 8, ("[1,8]<=[8]", "[8,1]<=[8]", "[8,1]<=[8]")))
    assert counts(local) == {"reduce-scatter": 1}
    assert local.comm_bytes_per_device == 7 / 8 * 16 * 8 * 4


def test_free_and_batch_splits_cost_nothing() -> None:
    for case in ("rows", "columns", "both free"):
        assert not split(dot(16, 24, 8, DOTS[case])).collectives


def test_a_replicated_operand_is_cut_not_gathered() -> None:
    # x is split on the contracting dim; w is whole, so each device takes its rows of w: one sum, no gather.
    local = split(dot(4, 1024, 4, DOTS["left only contracting"]))
    assert counts(local) == {"all-reduce": 1}


def test_what_lies_in_padding_never_reaches_a_sum() -> None:
    # 7 = 4 * 2 - 1: the last tile is half garbage (NaN in the tests).
    local = right(dot(4, 7, 4, ("[1,4,2]<=[8] copies", "[4,1,2]<=[8] copies", "")))
    assert "select" in opcodes(local)


# Reductions

TILINGS = ["[8,1]<=[8]", "[1,8]<=[8]", "[2,4]<=[8]", "[4,2]<=[2,4]T(1,0)", "[2,4]3,0,7,2,5,1,6,4"]


@pytest.mark.parametrize("reducer", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("tiling", TILINGS)
def test_a_reduction_with_an_initial_value_is_right(tiling: str, reducer: str) -> None:
    for dims, kept in (("0", "f32[9]"), ("1", "f32[6]"), ("0,1", "f32[]")):
        right(f"""
            x = f32[6,9] parameter(0){mark(tiling)}
            init = f32[] constant(3)
            ROOT r = {kept} reduce(x, init), dimensions={{{dims}}}, to_apply={reducer}_f32""")


@pytest.mark.parametrize("kind", ["s32", "u32", "pred", "bf16", "s8"])
def test_reductions_of_other_types_are_right(kind: str) -> None:
    reducers = ("and", "or") if kind == "pred" else ("add", "max", "min")
    for reducer in reducers:
        init = "false" if kind == "pred" else "2"
        right(f"""
            x = {kind}[7,10] parameter(0){mark("[2,4]<=[8]")}
            init = {kind}[] constant({init})
            ROOT r = {kind}[10] reduce(x, init), dimensions={{0}}, to_apply={reducer}_{kind}""")


def test_an_initial_value_enters_once() -> None:
    local = right(
        f"""
        x = f32[8] parameter(0){mark("[8]<=[8]")}
        init = f32[] parameter(1), sharding={{replicated}}
        ROOT r = f32[] reduce(x, init), dimensions={{0}}, to_apply=add_f32""",
        np.ones(8, np.float32),
        np.float32(100),
    )
    assert counts(local) == {"all-reduce": 1}


ARGMAX = """
  arg {
    a = f32[] parameter(0)
    i = s32[] parameter(1)
    b = f32[] parameter(2)
    j = s32[] parameter(3)
    more = pred[] compare(a, b), direction=GT
    same = pred[] compare(a, b), direction=EQ
    before = pred[] compare(i, j), direction=LT
    tie = pred[] and(same, before)
    first = pred[] or(more, tie)
    value = f32[] select(first, a, b)
    index = s32[] select(first, i, j)
    ROOT both = (f32[], s32[]) tuple(value, index)
  }"""


@pytest.mark.parametrize("dims", [(6, 9), (8, 16)])
@pytest.mark.parametrize("tiling", TILINGS)
def test_argmax_is_right(tiling: str, dims: tuple[int, int]) -> None:
    rows, columns = dims
    right(
        f"""
        x = f32[{rows},{columns}] parameter(0){mark(tiling)}
        i = s32[{rows},{columns}] iota(), iota_dimension=1
        low = f32[] constant(-inf)
        none = s32[] constant(0)
        ROOT r = (f32[{rows}], s32[{rows}]) reduce(x, i, low, none), dimensions={{1}}, to_apply=arg""",
        np.random.default_rng(0).integers(0, 3, dims).astype(np.float32),
        computations=ARGMAX,
    )


# Pointwise ops, broadcasts, transposes


@pytest.mark.parametrize("dims", ["8,16", "5,9"])
@pytest.mark.parametrize("out", [None, "", "[4,2]<=[8]"])
def test_pointwise_ops_on_differently_split_operands_are_right(out: str | None, dims: str) -> None:
    right(f"""
        x = f32[{dims}] parameter(0){mark("[2,4]<=[8]")}
        y = f32[{dims}] parameter(1){mark("[8,1]7,6,5,4,3,2,1,0")}
        p = pred[{dims}] compare(x, y), direction=LT
        e = f32[{dims}] exponential(x)
        ROOT r = f32[{dims}] select(p, e, y){mark(out)}""")


def test_clamp_takes_scalar_bounds() -> None:
    right(f"""
        low = f32[] constant(-0.5)
        x = f32[9,6] parameter(0){mark("[4,2]<=[8]")}
        high = f32[] parameter(1), sharding={{replicated}}
        ROOT r = f32[9,6] clamp(low, x, high){mark("[2,4]<=[8]")}""")


@pytest.mark.parametrize("out", ["[2,2,2]<=[8]", "[1,8,1]<=[8]", "[8,1,1]<=[8]", ""])
@pytest.mark.parametrize("tiling", TILINGS)
def test_a_broadcast_is_right(tiling: str, out: str) -> None:
    local = right(f"""
        x = f32[6,8] parameter(0){mark(tiling)}
        ROOT b = f32[8,4,6] broadcast(x), dimensions={{2,0}}{mark(out)}""")
    assert local.comm_bytes_per_device <= 8 * 8 * 4  # the small side travels (of 6 rows, rounded up to 8)


@pytest.mark.parametrize("tiling", TILINGS)
def test_a_transpose_is_free_where_its_sharding_follows(tiling: str) -> None:
    local = right(f"""
        x = f32[8,16] parameter(0){mark(tiling)}
        ROOT t = f32[16,8] transpose(x), dimensions={{1,0}}""")
    open_root = sum(c.bytes_per_device for c in local.collectives if c.cause and "operand" in c.cause)
    assert open_root == 0
    right(f"""
        x = f32[8,16] parameter(0){mark(tiling)}
        ROOT t = f32[16,8] transpose(x), dimensions={{1,0}}{mark("[4,2]<=[8]")}""")


# Concatenate, sort, top-k, fft, linear algebra


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("tiling", TILINGS)
def test_a_concatenation_is_right_also_along_the_split_dim(tiling: str, dim: int) -> None:
    shape, out = ((5, 8), (11, 8)) if dim == 0 else ((6, 7), (6, 15))
    other = (out[0] - shape[0], 8) if dim == 0 else (6, out[1] - shape[1])
    right(f"""
        x = f32[{shape[0]},{shape[1]}] parameter(0){mark(tiling)}
        y = f32[{other[0]},{other[1]}] parameter(1){mark("[1,8]<=[8]")}
        ROOT c = f32[{out[0]},{out[1]}] concatenate(x, y), dimensions={{{dim}}}{mark(tiling)}""")


@pytest.mark.parametrize("tiling", TILINGS)
def test_a_sort_is_right_along_the_split_dim_too(tiling: str) -> None:
    for dim in (0, 1):
        right(
            f"""
            x = f32[6,9] parameter(0){mark(tiling)}
            i = s32[6,9] iota(), iota_dimension={dim}
            ROOT s = (f32[6,9], s32[6,9]) sort(x, i), dimensions={{{dim}}}, is_stable=true, to_apply=by_key""",
            computations="""by_key {
              a = f32[] parameter(0)
              b = f32[] parameter(1)
              c = s32[] parameter(2)
              d = s32[] parameter(3)
              ROOT r = pred[] compare(a, b), direction=LT }""",
        )


def test_a_long_sort_is_not_repeated() -> None:
    """Its rows move to all devices, and back, as XLA has it: as many bytes as whole rows on half of them would take."""
    tiled = mark("[2,4]<=[8]")
    program = f"""
        x = f32[64,16384] parameter(0){tiled}
        ROOT s = f32[64,16384] sort(x), dimensions={{1}}, to_apply=less{tiled}"""
    less = "less { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = pred[] compare(a, b), direction=LT }"
    local = right(program, computations=less)
    assert counts(local) == {"all-to-all": 2}
    assert local.comm_bytes_per_device == 2 * 3 / 4 * 64 * 16384 * 4 / 8


@pytest.mark.parametrize("tiling", TILINGS)
def test_a_topk_is_right(tiling: str) -> None:
    right(f"""
        x = f32[6,16] parameter(0){mark(tiling)}
        ROOT t = (f32[6,3], s32[6,3]) topk(x), k=3, largest=true""")


@pytest.mark.parametrize("tiling", TILINGS)
def test_an_fft_is_right(tiling: str) -> None:
    right(f"""
        x = c64[6,8] parameter(0){mark(tiling)}
        ROOT f = c64[6,8] fft(x), fft_type=FFT, fft_length={{8}}{mark("[4,2]<=[8]")}""")
    right(f"""
        x = f32[6,8] parameter(0){mark(tiling)}
        ROOT f = c64[6,5] fft(x), fft_type=RFFT, fft_length={{8}}{mark(tiling)}""")


@pytest.mark.parametrize("batch", [8, 5])
@pytest.mark.parametrize("tiling", ["[8,1,1]<=[8]", "[2,4,1]<=[8]", "[2,2,2]<=[8]", "[1,4,2]<=[8]"])
def test_linear_algebra_is_right(tiling: str, batch: int) -> None:
    noise = np.random.default_rng(0).normal(size=(batch, 4, 4)).astype(np.float32)
    positive = noise @ noise.transpose(0, 2, 1) + 4 * np.eye(4, dtype=np.float32)
    local = right(
        f"""
        x = f32[{batch},4,4] parameter(0){mark(tiling)}
        ROOT c = f32[{batch},4,4] cholesky(x), lower=true{mark("[8,1,1]<=[8]")}""",
        positive,
    )
    if tiling == "[8,1,1]<=[8]":
        assert not local.collectives
    right(
        f"""
        a = f32[{batch},4,4] parameter(0){mark("[8,1,1]<=[8]")}
        b = f32[{batch},4,6] parameter(1){mark(tiling)}
        ROOT c = f32[{batch},4,6] triangular-solve(a, b), left_side=true, lower=true, transpose_a=NO_TRANSPOSE""",
        positive,
    )


def test_random_bits_are_those_of_one_device() -> None:
    for out in ("[8,1]<=[8]", "[2,4]<=[8]", "[1,8]7,6,5,4,3,2,1,0"):
        right(
            f"""
            state = u64[2] parameter(0), sharding={{replicated}}
            r = (u64[2], u32[6,10]) rng-bit-generator(state), algorithm=rng_three_fry,
              sharding={{{{replicated}}, {{devices={out}}}}}
            ROOT bits = u32[6,10] get-tuple-element(r), index=1{mark(out)}"""
        )


# What a choice weighs


def test_work_is_never_repeated_to_save_bytes() -> None:
    # Gathering x would let every device compute the whole dot without moving w.
    local = split(dot(8, 4096, 512, ("[8,1]<=[8]", "", "")))
    assert local.flops_per_device <= 1.05 * 2 * 8 * 4096 * 512 / 8


def test_a_small_product_is_whole_where_its_operands_come_for_no_more() -> None:
    """As XLA: one gather, of the weight; parts of the product over the idle axis would be gathered behind it."""
    mesh = AbstractMesh((4, 2), ("data", "model"))
    given = jax.ShapeDtypeStruct((256, 64), "float32"), jax.ShapeDtypeStruct((64, 192), "float32")
    shardings = P("data"), P(None, ("data", "model"))
    module = hs.trace(lambda x, w: jnp.tanh(x @ w), mesh=mesh, in_shardings=shardings, out_shardings=P("data"))(*given)
    assert counts(hs.partition(module, machine=machines.h100(8))) == {"all-gather": 1}


def test_small_sums_are_whole_where_their_operands_are() -> None:
    """Bags of looked-up rows, one by one as PyTorch exports them: the rows are gathered, and no sum of them is."""

    def bags(table: jax.Array, ids: jax.Array) -> jax.Array:
        rows = table[ids.reshape(-1)]
        return jnp.tanh(jnp.stack([rows[k * 6 : (k + 1) * 6].sum(0) for k in range(8)]))

    mesh = AbstractMesh((8,), ("data",))
    given = jax.ShapeDtypeStruct((1024, 32), "float32"), jax.ShapeDtypeStruct((8, 6), "int32")
    module = hs.trace(bags, mesh=mesh, in_shardings=(None, P("data")))(*given)
    assert counts(hs.partition(module, machine=machines.h100(8))) == {"all-gather": 1}


@pytest.mark.parametrize(
    "shardings",
    [
        # All want rows or the sum split, but in different device orders: both stay split, whoever has to move.
        ("[2,4]<=[8]", "[4,1,2]<=[8] copies", "[2,1,4]<=[8] copies"),
        ("[2,2,2]<=[8] copies", "[2,1,4]<=[2,2,2]T(2,1,0) copies", "[4,2]7,6,5,4,3,2,1,0"),
    ],
)
def test_a_contraction_is_split_as_many_ways_as_its_tensors_allow(shardings: tuple[str, str, str]) -> None:
    m, k, n = 32, 64, 48
    local = right(dot(m, k, n, shardings))
    assert local.cost.by_opcode["dot"].flops == 2 * m * k * n / 8


def test_the_smaller_operand_travels() -> None:
    local = split(dot(8, 64, 4096, ("[8,1]<=[8]", "[1,8]<=[8]", "[1,8]<=[8]")))
    (gather,) = local.collectives
    assert gather.kind == "all-gather"
    assert gather.bytes_per_device == 7 / 8 * 8 * 64 * 4


def test_uneven_results_keep_rounded_tiles() -> None:
    assert tuple(root_dims(split(dot(5, 8, 3, ("[8,1]<=[8]", "", "[8,1]<=[8]"))))) == (1, 3)
    assert tuple(root_dims(split(dot(9, 8, 3, ("[8,1]<=[8]", "", "[8,1]<=[8]"))))) == (2, 3)


def test_the_even_one_of_two_sums_is_split() -> None:
    # One operand lies split along five places, the other along two: splitting the five would leave one device three.
    local = right(f"""
        a = f32[8,2,5] parameter(0){mark("[1,1,2]<=[2]")}
        b = f32[2,5,6] parameter(1){mark("[2,1,1]<=[2]")}
        ROOT d = f32[8,6] dot(a, b), lhs_contracting_dims={{1,2}}, rhs_contracting_dims={{0,1}}{mark("[1,2]<=[2]")}""",
        devices=2)  # fmt: skip
    [product] = [i for i in local.module.instructions if i.opcode == "dot"]
    assert product.operands[0].shape.size * product.operands[1].shape.dims[-1] == 8 * 10 * 6 / 2


def test_copies_of_addends_make_a_part_of_them_each() -> None:
    # Four devices have the same half of both operands: two of them make the sums of half the rows each.
    halves = mark("[1,2,4]<=[8] copies")
    local = right(
        f"""
        a = f32[128,1000] parameter(0){halves}
        b = f32[160,1000] parameter(1){halves}
        ROOT d = f32[128,160] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}{halves}""",
        objective="bytes",
    )
    assert local.comm_bytes_per_device == 128 * 160 * 4 / 2
    [product] = [i for i in local.module.instructions if i.opcode == "dot"]
    assert product.shape.size <= 128 * 160 / 2


def test_copies_of_addends_add_up_a_part_of_them_each_where_partial_sums_are_wanted() -> None:
    local = right(f"""
        x = bf16[64,16,512] parameter(0){mark("[2,1,1,4]<=[8] copies")}
        zero = bf16[] constant(0)
        sums = bf16[512] reduce(x, zero), dimensions={{0,1}}, to_apply=add_bf16
        wide = f32[512] convert(sums), sharding={{unreduced}}
        ROOT sum = f32[512] copy(wide){mark("[8]<=[8]")}""")
    assert counts(local) == {"reduce-scatter": 1}
    [part] = local.module.of_opcodes("reduce")
    assert part.operands[0].shape.dims == (64 // 2, 16 // 4, 512)


def test_two_splits_that_two_tensors_each_agree_on_share_the_devices() -> None:
    rows, columns = mark("[4,1,2]<=[8] copies"), mark("[1,2,4]<=[8] copies")
    local = right(
        f"""
        p = pred[400,600] parameter(0){rows}
        a = f32[400,600] parameter(1){rows}
        b = f32[400,600] parameter(2){columns}
        ROOT s = f32[400,600] select(p, a, b){columns}""",
        objective="bytes",
    )
    [chosen] = [i for i in local.module.instructions if i.opcode == "select"]
    assert chosen.shape.dims == (100, 300)


# ---- one axis of the mesh here, another there

EVERY, COLUMNS = "[8,1]<=[8]", "[1,4,2]<=[2,4]T(1,0) copies"
ROWS = "[4,1,2]<=[2,4]T(1,0) copies"


@pytest.mark.parametrize(("weight", "least"), [(COLUMNS, 1_966_080), (ROWS, 1_966_080)])
def test_a_small_batch_meets_large_weights_where_they_are(weight: str, least: int) -> None:
    # Rows over the first axis, columns (or sums) over the second: activations travel, not 50 MB of weights.
    local = split(dot(256, 4096, 4096, (EVERY, weight, EVERY)))
    assert local.comm_bytes_per_device <= least
    [product] = [i for i in local.module.instructions if i.opcode == "dot"]
    assert product.operands[0].shape.size * product.shape.dims[1] == 256 * 4096 * 4096 / 8


def test_rows_of_a_table_split_by_columns_are_looked_up_where_they_are() -> None:
    local = split(f"""
        table = f32[100000,64] parameter(0){mark(COLUMNS)}
        ids = s32[64,1] parameter(1){mark(EVERY)}
        ROOT rows = f32[64,64] gather(table, ids), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
          index_vector_dim=1, slice_sizes={{1,64}}{mark(EVERY)}""")
    assert local.comm_bytes_per_device < 2100


def test_its_gradient_gathers_the_updates() -> None:
    local = split(f"""
        table = f32[100000,64] parameter(0){mark(COLUMNS)}
        ids = s32[64,1] parameter(1){mark(EVERY)}
        g = f32[64,64] parameter(2){mark(EVERY)}
        ROOT sums = f32[100000,64] scatter(table, ids, g), update_window_dims={{1}}, inserted_window_dims={{0}},
          scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=add_f32{mark(COLUMNS)}""")
    assert local.comm_bytes_per_device < 20_000


def test_what_waits_for_another_sum_keeps_its_operands() -> None:
    # Gradients of two uses: their partial sums meet in one all-reduce, whatever one of them would cost alone.
    batch = mark("[1,8]<=[8]")
    local = split(f"""
        x = f32[512,64] parameter(0){batch}
        y = f32[512,64] parameter(1){batch}
        a = f32[512,512] dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
        b = f32[512,512] dot(y, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
        ROOT s = f32[512,512] add(a, b){mark("")}""")
    assert counts(local) == {"all-reduce": 1}


def test_a_row_of_a_stack_is_cut_out_where_the_stack_lies() -> None:
    """Memory gives the row, not the stack: it costs less than what would be sent if each device cut out a piece."""
    lies = "{devices=[1,1,8,32]<=[32,8]T(1,0) last_tile_dim_replicate}"
    module = hs.load(f"""HloModule m, num_partitions=256
    ENTRY e {{
      stack = f32[48,8192,8192] parameter(0), sharding={lies}
      row = s32[] parameter(1), sharding={{replicated}}
      zero = s32[] constant(0)
      ROOT cut = f32[1,8192,8192] dynamic-slice(stack, row, zero, zero), sharding={lies},
        dynamic_slice_sizes={{1,8192,8192}}
    }}""")
    assert not hs.partition(module, machine=machines.a100(256)).collectives


@pytest.mark.parametrize(("nodes", "edges"), [(32, 128), (1 << 20, 1 << 22)])
def test_sums_by_segment_that_are_looked_up_again_are_not_made_in_parts(nodes: int, edges: int) -> None:
    """The softmax of graph attention, edges over one axis of a mesh of two: two reductions, as in XLA's program."""

    def softmax(scores: jax.Array, node: jax.Array) -> jax.Array:
        weights = jnp.exp(scores - jax.ops.segment_max(scores, node, nodes)[node])
        return weights / jax.ops.segment_sum(weights, node, nodes)[node]

    mesh = AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    given = jax.ShapeDtypeStruct((edges, 1), "float32"), jax.ShapeDtypeStruct((edges,), "int32")
    module = hs.trace(softmax, mesh=mesh, in_shardings=(P("data"), P("data")))(*given)
    made = hs.partition(module, machine=machines.h100(8))
    assert [collective.kind for collective in made.collectives] == ["all-reduce"] * 2
