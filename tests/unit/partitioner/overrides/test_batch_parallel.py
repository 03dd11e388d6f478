"""Batches over all devices: weights are gathered where that moves less than summing activations, and only there."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from tests.support.split_programs import mark, right, split

BATCH = "[2,1,4]<=[8] copies"


def two_layers(batch: int, width: int, hidden: str = "") -> str:
    """Two residual MLPs, hidden dims over four devices, the batch over two; `hidden` annotates what is between."""
    text = f"""
        x = f32[{batch},{width}] parameter(0){mark(BATCH)}"""
    before = "x"
    for n in (1, 2):
        text += f"""
        v{n} = f32[{width},64] parameter({2 * n - 1}){mark("[1,4,2]<=[2,4]T(1,0) copies")}
        w{n} = f32[64,{width}] parameter({2 * n}){mark("[4,1,2]<=[2,4]T(1,0) copies")}
        h{n} = f32[{batch},64] dot({before}, v{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
        a{n} = f32[{batch},64] tanh(h{n}){hidden}
        d{n} = f32[{batch},{width}] dot(a{n}, w{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
        r{n} = f32[{batch},{width}] add({before}, d{n})"""
        before = f"r{n}"
    return f"{text}\n ROOT y = f32[{batch},{width}] tanh({before}){mark(BATCH)}"


def kinds(local: hs.Partitioned) -> set[str]:
    """What the program sends."""
    return {c.kind for c in local.collectives}


@pytest.mark.parametrize("batch", [512, 1024])
def test_small_weights_are_gathered_instead_of_summing_large_activations(batch: int) -> None:
    local = right(two_layers(batch, 16))
    assert kinds(local) == {"all-gather"}
    summed = 2 * 2 * 3 / 4 * batch / 2 * 16 * 4
    assert local.comm_bytes_per_device < summed


def test_large_weights_stay_where_they_are() -> None:
    local = right(two_layers(16, 128))
    assert kinds(local) == {"all-reduce"}


def test_work_stays_divided_among_all_devices() -> None:
    spread, summed = split(two_layers(512, 16)), split(two_layers(500, 16))
    assert spread.flops_per_device / 512 <= 1.05 * summed.flops_per_device / 500


def test_what_the_user_annotated_between_the_layers_binds() -> None:
    local = right(two_layers(512, 16, hidden=mark("[2,4]<=[8]")))
    assert "all-reduce" in kinds(local)


def test_a_batch_that_devices_cannot_share_evenly_stays() -> None:
    local = split(two_layers(500, 16))
    assert "all-reduce" in kinds(local)


def test_copies_of_a_bias_weigh_nothing() -> None:
    """Every device has each bias: it makes as many copies as it needs, though a part of them would be less work."""
    text, value = two_layers(176, 16).split("\n ROOT")[0], "r2"
    for n in range(8):
        text += f"""
        b{n} = f32[16] parameter({5 + n}){mark("")}
        c{n} = f32[176,16] broadcast(b{n}), dimensions={{1}}
        plus{n} = f32[176,16] add({value}, c{n})"""
        value = f"plus{n}"
    text += f"""
        e = f32[16,512] parameter(13){mark("[1,4,2]<=[2,4]T(1,0) copies")}
        d = f32[176,512] dot({value}, e), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
        ROOT z = f32[176,512] tanh(d){mark("[2,4]<=[8]")}"""
    local = right(text)
    summed = 2 * 2 * 3 / 4 * 176 / 2 * 16 * 4
    assert local.comm_bytes_per_device <= summed


IMAGE = """
    x = f32[64,64,64,4] parameter(0){x}
    k = f32[3,3,4,4] parameter(1){k}
    a = f32[64,64,64,4] convolution(x, k), window={{size=3x3 pad=1_1x1_1}}, dim_labels=b01f_01io->b01f
    b = f32[64,64,64,4] tanh(a)
    c = f32[64,64,64,4] convolution(b, k), window={{size=3x3 pad=1_1x1_1}}, dim_labels=b01f_01io->b01f
    ROOT d = f32[64,64,64,4] tanh(c){d}"""
"""Two convolutions over images."""


def images(read: str, given: str) -> str:
    """Images that are read, and given back, in these tiles; kernels whole."""
    return IMAGE.format(x=mark(read), k=mark(""), d=mark(given))


def test_images_whose_rows_are_split_change_places_instead_of_strips() -> None:
    """By rows each convolution moves strips; by images of the batch only what is read and given back moves, once."""
    local = right(images("[2,4,1,1]<=[8]", "[8,1,1,1]<=[8]"))
    assert kinds(local) == {"all-to-all"}
    tile = 64 * 64 * 64 * 4 * 4 / 8
    assert local.comm_bytes_per_device == tile * 3 / 4


def test_rows_that_a_window_mixes_are_no_batch() -> None:
    """Images are too few to be shared by all devices: rows would be, and are not, for windows reach over them."""
    local = right(images("[2,4,1,1]<=[8]", "[2,4,1,1]<=[8]").replace("[64,64,64", "[2,64,64"))
    assert kinds(local) == {"collective-permute"}


def scanned(x: jax.Array, up: jax.Array, down: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Layers in a loop, which carries a mask that no trip changes, and a stack of what each layer makes."""
    mask = jnp.broadcast_to(jnp.arange(x.shape[1]) % 3 > 0, x.shape)

    def layer(h: jax.Array, weights: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        made = jnp.tanh(h @ weights[0]) @ weights[1]
        return h + jnp.where(mask, made, 0), made

    return jax.lax.scan(layer, x, (up, down))


@pytest.mark.parametrize("batch", [8192, 8190])
def test_layers_in_a_loop_carry_batches_of_all_devices_too(batch: int) -> None:
    """Weights are gathered in each trip, and nothing is summed, unless devices cannot share the batch evenly."""
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
    random = np.random.default_rng(0)
    given = [0.1 * random.standard_normal(dims).astype(np.float32) for dims in ((batch, 16), (4, 16, 64), (4, 64, 16))]
    places = P("data"), P(None, None, "model"), P(None, "model")
    local = hs.partition(hs.trace(scanned, mesh=mesh, in_shardings=places)(*given), machine=hs.machines.h100(8))
    in_loop = {c.kind for c in local.collectives if c.executions > 1}
    assert in_loop == ({"all-gather"} if batch == 8192 else {"all-reduce"})
    for ours, theirs in zip(local.run(*given), jax.jit(scanned)(*given), strict=True):
        assert np.asarray(ours) == pytest.approx(np.asarray(theirs), rel=1e-4, abs=1e-4)


LOOP = f"""
cond {{
  s = (s32[], f32[512,16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  most = s32[] constant(3)
  ROOT more = pred[] compare(i, most), direction=LT
}}
step {{
  s = (s32[], f32[512,16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[512,16] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  w = f32[512,16] tanh(v){mark(BATCH)}
  ROOT out = (s32[], f32[512,16]) tuple(next, w)
}}"""


def test_a_step_of_a_loop_takes_what_it_carries_as_it_was() -> None:
    """What a loop carries keeps its sharding, though what leads to it, and what comes of it, is split by its batch."""
    text = two_layers(512, 16).replace("ROOT y", "y").replace(f"tanh(r2){mark(BATCH)}", "tanh(r2)")
    local = right(
        f"""{text}
        zero = s32[] constant(0)
        start = (s32[], f32[512,16]) tuple(zero, y)
        loop = (s32[], f32[512,16]) while(start), condition=cond, body=step
        ROOT end = f32[512,16] get-tuple-element(loop), index=1""",
        computations=LOOP,
    )
    assert "all-gather" in kinds(local)


def test_a_batch_lies_in_the_order_in_which_its_result_is_wanted() -> None:
    """What is read is moved, which is small; the result, eight times as large, is made where it is wanted."""
    local = right(f"""
        x = f32[512,8] parameter(0){mark(BATCH)}
        w = f32[8,64] parameter(1){mark("[1,4,2]<=[2,4]T(1,0) copies")}
        v = f32[64,64] parameter(2){mark("[4,1,2]<=[2,4]T(1,0) copies")}
        h = f32[512,64] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
        d = f32[512,64] dot(h, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
        ROOT y = f32[512,64] tanh(d){mark("[8,1]<=[2,4]T(1,0)")}""")
    read, weights = 512 * 8 * 4 / 2, 3 / 4 * (8 + 64) * 64 * 4
    assert local.comm_bytes_per_device <= read + weights
