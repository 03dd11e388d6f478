"""Layers computed again for the gradients: the numbers stay, the memory is that of `jax.checkpoint`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlosharding as hs
from benchmarks.published import transformer
from hlosharding.cost import machines
from hlosharding.schedule import recompute_layers, recomputed_ops
from tests.support.layer_scans import SCANS, Step
from tests.support.program_check import one_device

STACKING = ("transformer", "nested", "bfloat16", "dropout", "two_scans")


def scan_in_a_list(
    function: Callable[..., Any], carry: Any, rows: Any, length: int | None = None, reverse: bool = False
) -> Any:
    """What `jax.lax.scan` does, with all trips written out."""
    count = length if rows is None else len(jax.tree.leaves(rows)[0])
    stacked = []
    for number in sorted(range(count or 0), reverse=reverse):
        carry, row = function(carry, jax.tree.map(lambda leaf: leaf[number], rows))  # noqa: B023
        stacked.append(row)
    return carry, jax.tree.map(lambda *leaves: jnp.stack(leaves), *stacked[:: -1 if reverse else 1])


@pytest.mark.parametrize("is_listed", [False, True], ids=["scanned", "listed"])
@pytest.mark.parametrize("make", [SCANS[name] for name in STACKING], ids=STACKING)
def test_the_numbers_stay(make: Callable[[], Step], is_listed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_listed:
        monkeypatch.setattr(jax.lax, "scan", scan_in_a_list)
    step = make()
    module = hs.trace(step.function)(*step.arguments)
    made = recompute_layers(module)
    assert made is not module
    hs.verify(made)
    given = [np.asarray(leaf) for leaf in jax.tree.leaves(step.arguments)]
    for ours, theirs in zip(one_device(made, given), one_device(module, given), strict=True):
        np.testing.assert_allclose(np.asarray(ours, np.float32), np.asarray(theirs, np.float32), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["rematerialised", "inference"])
def test_where_nothing_is_saved_the_program_stays(name: str) -> None:
    step = SCANS[name]()
    module = hs.trace(step.function)(*step.arguments)
    assert recompute_layers(module) is module
    assert not recomputed_ops(module)


def steps(config: transformer.Config) -> list[hs.Module]:
    """Made again here, under the user's own `jax.checkpoint` around each layer, and with all kept."""
    kept, full = (
        hs.trace(partial(transformer.train_step, said))(*transformer.arguments(said, 8))
        for said in (replace(config, remat="none"), replace(config, remat="full"))
    )
    return [recompute_layers(kept), full, kept]


NAMES = ("LLAMA_8B", "MIXTRAL_8X7B", "DEEPSEEK_16B")


@pytest.mark.parametrize("name", NAMES)
def test_memory_and_time_are_those_of_checkpoints(name: str) -> None:
    ours, theirs, stacked = (
        hs.simulate(program, machines.h100(1)) for program in steps(replace(getattr(transformer, name), layers=8))
    )
    assert ours.peak_memory_bytes == pytest.approx(theirs.peak_memory_bytes, rel=0.1)
    assert ours.peak_memory_bytes < 0.8 * stacked.peak_memory_bytes
    assert ours.time_s == pytest.approx(theirs.time_s, rel=0.05)


@pytest.mark.parametrize("name", NAMES)
def test_so_they_are_of_listed_layers(name: str) -> None:
    """Of the programs of one device, which pack nothing; of experts, what stretches have between them is kept."""
    machine = machines.h100(1)
    ours, theirs, kept = (
        hs.simulate(hs.partition(program, num_partitions=1, machine=machine).module, machine)
        for program in steps(replace(getattr(transformer, name), layers=8).listed())
    )
    assert ours.peak_memory_bytes == pytest.approx(theirs.peak_memory_bytes, rel=0.1)
    assert ours.peak_memory_bytes < kept.peak_memory_bytes
    assert kept.time_s < ours.time_s <= 1.05 * theirs.time_s


def test_what_nobody_stacked_is_stacked() -> None:
    """The gradient reads no row of what a layer was given."""

    def step(w: Any, x: Any) -> Any:
        def layer(x: Any, w: Any) -> Any:
            inside = jnp.tanh(jnp.cos(jnp.tanh(jnp.exp(jnp.concatenate([x, 2 * x], -1))))) @ w
            return jnp.tanh(inside), None

        return jax.grad(lambda w: jnp.sum(jax.lax.scan(layer, x, w)[0]))(w)

    random = np.random.default_rng(0)
    given = [random.normal(size=dims).astype(np.float32) / 4 for dims in ((5, 32, 16), (8, 16))]
    module = hs.trace(step)(*given)
    made = recompute_layers(module)
    stacks = [str(shape) for shape in made.of_opcodes("while")[0].shape.leaves if shape.dims[:1] == (5,)]
    assert sorted(stacks) == ["f32[5,32,16]", "f32[5,8,16]"]
    for ours, theirs in zip(one_device(made, given), one_device(module, given), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("from_last", [(False, False, True), (True, False, True), (True, True, False)])
def test_stacks_are_read_in_their_own_order(from_last: tuple[bool, ...]) -> None:
    """One loop reads rows n of some and rows 3 - n of others."""

    def step(w: Any, x: Any) -> Any:
        def layer(x: Any, w: Any) -> Any:
            first = jnp.sin(x)
            second = jnp.cos(first)
            third = jnp.exp(second)
            return x + third @ w, (first, second, third)

        def back(carry: Any) -> Any:
            n, x = carry
            for stack, is_from_last in zip(stacks, from_last, strict=True):
                place = 3 - n if is_from_last else n
                row = jax.lax.dynamic_index_in_dim(stack, place, keepdims=False, allow_negative_indices=False)
                x = jnp.sin(x) * row + x / 2
            return n + 1, x

        x, stacks = jax.lax.scan(layer, x, w)
        return jax.lax.while_loop(lambda carry: carry[0] < 4, back, (jnp.int32(0), x))[1]

    random = np.random.default_rng(0)
    given = [random.normal(size=dims).astype(np.float32) / 4 for dims in ((4, 8, 8), (8, 8))]
    module = hs.trace(step)(*given)
    made = recompute_layers(module)
    assert made is not module
    for ours, theirs in zip(one_device(made, given), one_device(module, given), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_what_may_not_be_repeated_is_stacked() -> None:
    def step(w: Any, x: Any) -> Any:
        return jax.grad(lambda w: jnp.sum(jax.lax.scan(lambda x, w: (jnp.tanh(jnp.sin(x) @ w), None), x, w)[0]))(w)

    text = hs.trace(step)(jnp.ones((4, 8, 8)), jnp.ones((8, 8))).to_hlo_text()
    for acts in "false", "true":
        said = rf'custom-call(\1), custom_call_target="noise", custom_call_has_side_effect={acts}'
        module = hs.load(re.sub(r"(?<!co)sine\((%[\w.-]+)\)", said, text), format="hlo")
        assert module.of_opcodes("custom-call")
        assert (recompute_layers(module) is module) is (acts == "true")
