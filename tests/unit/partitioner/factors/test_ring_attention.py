"""Flash attention with queries split along positions: keys gathered or passed round, and as much work for each device.

Expected values are those of JAX's own attention on one device; bytes are closed forms.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

import hlosharding as hs
from hlosharding.cost import machines
from hlosharding.partitioner import PartitionOptions
from hlosharding.partitioner.factors import ring_attention
from tests.support.fused_attention import (
    SCALE,
    Sizes,
    attention_step,
    attentions_forward,
    drawn_operands,
    on_one_device,
)

SMALL = Sizes(batch=2, length=48, heads=4, shared=2, depth=8, dtype="f32")
LONG = Sizes(batch=1, length=65536, heads=16, shared=2, depth=128)
WAYS = {
    8: ("[1,8,1,1]<=[8]", "[1,1,8,1]<=[8]"),
    4: ("[2,4,1,1]<=[8]", "[2,1,4,1]<=[8]"),
    2: ("[1,2,2,1,2]<=[8] last_tile_dim_replicate", "[1,2,2,1,2]<=[2,2,2]T(1,0,2) last_tile_dim_replicate"),
}
"""How inputs and outputs lie, by parts of sequences."""


def parted(
    sizes: Sizes, parts: int, *, is_causal: bool, machine: hs.Machine | None = None, objective: str = "time"
) -> hs.Partitioned:
    inputs, outputs = (f"{{devices={text}}}" for text in WAYS[parts])
    if sizes.are_heads_first:
        inputs = outputs
    module = attention_step(sizes, is_causal=is_causal, sharding=inputs, made=outputs)
    return hs.partition(module, num_partitions=8, machine=machine, options=PartitionOptions(objective=objective))


def check(found: list[Any], sizes: Sizes, *, is_causal: bool) -> None:
    for ours, truth in zip(found, on_one_device(sizes, drawn_operands(sizes), is_causal=is_causal), strict=True):
        np.testing.assert_allclose(ours, truth, atol=1e-5 * float(np.abs(truth).max()))


@pytest.fixture(params=["ring", "call"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whatever takes less."""
    monkeypatch.setattr(ring_attention, "_pays", lambda *_: request.param == "ring")
    return request.param


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("parts", WAYS)
def test_parts_of_sequences_compute_what_one_device_does(parts: int, is_causal: bool, form: str) -> None:
    program = parted(SMALL, parts, is_causal=is_causal)
    assert ("collective-permute" in kinds(program)) == (form == "ring")
    check(program.run_reference(*drawn_operands(SMALL)), SMALL, is_causal=is_causal)


@pytest.mark.parametrize("is_causal", [False, True])
def test_rings_run_on_eight_devices(is_causal: bool, cpu_devices: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_attention, "_pays", lambda *_: True)
    found = parted(SMALL, 8, is_causal=is_causal).run(*drawn_operands(SMALL))
    check(found, SMALL, is_causal=is_causal)


@pytest.mark.parametrize("is_causal", [False, True])
def test_heads_may_come_before_positions(is_causal: bool, form: str) -> None:
    sizes = replace(SMALL, are_heads_first=True)
    check(parted(sizes, 4, is_causal=is_causal).run_reference(*drawn_operands(sizes)), sizes, is_causal=is_causal)


@pytest.mark.parametrize("is_causal", [False, True])
def test_parts_of_an_odd_number(is_causal: bool, form: str) -> None:
    """The device in the middle keeps both of its halves."""
    module = attention_step(SMALL, is_causal=is_causal, sharding="{devices=[1,3,1,1]<=[3]}")
    program = hs.partition(module, num_partitions=3)
    check(program.run_reference(*drawn_operands(SMALL)), SMALL, is_causal=is_causal)


def test_positions_that_no_number_of_devices_divides() -> None:
    """50 of them over eight devices: padding comes into no gradient."""
    sizes = replace(SMALL, length=50)
    module = attention_step(sizes, is_causal=False, sharding="{devices=[1,8,1,1]<=[8]}")
    program = hs.partition(module, num_partitions=8)
    check(program.run_reference(*drawn_operands(sizes)), sizes, is_causal=False)


def test_what_jax_writes_where_there_is_no_backward_pass(form: str) -> None:
    """The result has no sums beside it."""
    sizes = replace(SMALL, dtype="bf16")

    def attention(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.dot_product_attention(q, k, v, is_causal=True, scale=SCALE, implementation="cudnn")

    operands = drawn_operands(sizes)
    traced = hs.trace(attention, platform="cuda")(*operands[:3])
    module = hs.annotate(traced, dict.fromkeys("qkv", f"{{devices={WAYS[4][0]}}}"))
    found = hs.partition(module, num_partitions=8).run_reference(*operands[:3])
    truth = np.moveaxis(on_one_device(sizes, operands, is_causal=True)[-1], 1, 2)
    np.testing.assert_allclose(np.asarray(found, np.float32), truth, atol=0.02 * float(np.abs(truth).max()))


def test_rings_in_bf16_are_as_near_to_the_truth_as_one_device_is(form: str) -> None:
    sizes = replace(SMALL, dtype="bf16")
    operands = drawn_operands(sizes)
    truth = on_one_device(sizes, operands, is_causal=True)
    whole = hs.partition(attention_step(sizes, is_causal=True), num_partitions=1).run_reference(*operands)
    found = parted(sizes, 8, is_causal=True).run_reference(*operands)
    for ours, theirs, exact in zip(found, whole, truth, strict=True):
        furthest = [float(np.abs(np.asarray(x, np.float32) - exact).max()) for x in (ours, theirs)]
        assert furthest[0] <= 2 * furthest[1] + float(np.abs(exact).max()) / 256


# ---- bytes: all but the own part of keys and values for each pass, of their gradients for the second


def kinds(program: hs.Partitioned) -> Counter[str]:
    return Counter(collective.kind for collective in program.collectives)


def key_bytes(sizes: Sizes, parts: int) -> float:
    """Of keys and values of a device's sequences, without its own part."""
    width = 2 if sizes.dtype == "bf16" else 4
    return 2 * width * sizes.batch * sizes.length * sizes.shared * sizes.depth * (parts - 1) / parts


def test_gathered_keys() -> None:
    """Once, for both passes; small arrays are latency, which a ring has in each step."""
    program = parted(SMALL, 8, is_causal=False)
    assert kinds(program) == {"all-gather": 2, "reduce-scatter": 2}
    assert program.comm_bytes_per_device == pytest.approx(2 * key_bytes(SMALL, 8))


def test_keys_that_go_round_are_as_many_bytes_and_hidden() -> None:
    """Once, for both passes; each device has done a part before the next keys are there."""
    machine = machines.h100(8)
    program = parted(LONG, 8, is_causal=False, machine=machine)
    assert kinds(program) == {"collective-permute": (2 + 2) * 7}
    assert program.comm_bytes_per_device == pytest.approx(2 * key_bytes(LONG, 8))
    cost = hs.cost(program.module, machine=machine)
    assert hs.simulate(program, machine).time_s < cost.compute_s + 0.2 * cost.comm_s


def test_under_a_causal_mask_half_of_each_part_changes_places() -> None:
    """Of queries, keys and values there and of the result and its sums back; backward of what is read for it, too."""
    program = parted(LONG, 8, is_causal=True)
    queries = 2 * LONG.batch * LONG.length * LONG.heads * LONG.depth / 8
    keys, sums = 2 * queries * LONG.shared / LONG.heads, 2 * queries / LONG.depth
    forward, backward = queries + keys + queries + sums, sums + queries + queries + queries + keys
    expected = 2 * key_bytes(LONG, 8) + (forward + backward) / 2
    assert kinds(program) == {"collective-permute": (2 + 2) * 7 + 5 + 6}
    assert program.comm_bytes_per_device == pytest.approx(expected)


@pytest.mark.parametrize("is_causal", [False, True])
def test_each_device_does_an_eighth_of_the_work(is_causal: bool) -> None:
    whole = hs.cost(attention_step(LONG, is_causal=is_causal)).flops
    assert parted(LONG, 8, is_causal=is_causal).flops_per_device == pytest.approx(whole / 8, rel=0.01)


def test_under_a_causal_mask_heads_are_split_where_that_takes_less() -> None:
    """Eight heads of keys on eight devices: all-to-all of all operands and results, but each device has whole heads."""
    sizes = replace(LONG, heads=64, shared=8, length=8192)
    assert kinds(parted(sizes, 8, is_causal=True, machine=machines.h100(8))) == {"all-to-all": 9}


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("heads", "shared"), [(16, 16), (16, 2), (64, 8)])
def test_for_the_fewest_bytes_a_ring_pays_by_bytes(
    heads: int, shared: int, is_causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However well they are hidden; but whichever repeats no work."""
    sizes = replace(LONG, heads=heads, shared=shared)

    def found() -> tuple[float, float]:
        program = parted(sizes, 8, is_causal=is_causal, objective="bytes")
        return program.flops_per_device, program.comm_bytes_per_device

    chosen, ways = found(), list[tuple[float, float]]()
    for by_ring in (False, True):
        monkeypatch.setattr(ring_attention, "_pays", lambda *_, by_ring=by_ring: by_ring)
        ways.append(found())
    least_work = min(flops for flops, _ in ways)
    assert chosen[1] == min(nbytes for flops, nbytes in ways if flops <= 1.05 * least_work)


def test_a_ring_pays_or_not_by_where_its_result_is_wanted() -> None:
    """In parts K of keys, of which queries have 32: a ring sends 14, and half of queries, keys, values and result;
    whole heads take 7/8 of these.  But a ring's result still has to move to any parts but its own, by 28."""
    sizes = replace(LONG, heads=256, shared=8, length=8192)
    by_positions, by_depth = "{devices=[1,1,8,1]<=[8]}", "{devices=[1,1,1,8]<=[8]}"
    keys = 2 * sizes.length * sizes.shared * sizes.depth / 8

    def moved(*wanted: str) -> float:
        module = attentions_forward(sizes, sharding="{devices=[1,8,1,1]<=[8]}", wanted=wanted)
        program = hs.partition(module, num_partitions=8, options=PartitionOptions(objective="bytes"))
        return program.comm_bytes_per_device / keys

    by_ring, by_heads = 14 + (32 + 1 + 1 + 32) / 2, 7 / 8 * (32 + 1 + 1 + 32)
    assert moved(by_positions) == by_ring
    assert moved(by_depth) == by_heads
    assert moved(by_positions, by_depth) == by_ring + by_heads
