"""Inputs of which each device has a term: what is done with them is done with their sum, whatever the op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlosharding as hs
from hlosharding.executor import assemble, run_local

DEVICES = 4
SHARDINGS = (
    "{unreduced}",
    "{devices=[1,2,2]<=[4] last_tile_dims={unreduced}}",
    "{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dims={unreduced}}",
    "{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dims={unreduced}}",
    "{devices=[2,1,2]<=[4] last_tile_dims={unreduced}}",
    "{devices=[1,1,2,2]<=[4] last_tile_dims={unreduced, replicated}}",
)
STEPS: tuple[Callable[..., Any], ...] = (
    lambda x, y: x * x,
    lambda x, y: x * 0.5,
    lambda x, y: x * y,
    lambda x, y: x + y,
    lambda x, y: x - 0.25,
    lambda x, y: jnp.sqrt(jnp.abs(x)),
    lambda x, y: x.T,
    lambda x, y: x @ y,
    lambda x, y: y @ x,
    lambda x, y: x / (jnp.abs(y) + 1.0),
    jnp.maximum,
    lambda x, y: x - x.mean(0),
    lambda x, y: x.reshape(4, 16).sum(0).reshape(1, 16)[:, :8] * y,
    lambda x, y: jnp.concatenate([x[4:], y[:4]]),
    lambda x, y: jnp.where(x > 0, x, y),
    lambda x, y: x[::-1] * x,
)


def term_of(sharding: hs.HloSharding, device: int) -> int:
    """Which of a tile's terms a device has; along a replicated subgroup all have the same."""
    if sharding.is_unreduced():
        return device
    dim = sharding.subgroup_dim("unreduced") if sharding.is_tiled() else None
    return 0 if dim is None else int(np.argwhere(sharding.tiles.array == device)[0][dim])


def terms(total: np.ndarray, sharding: hs.HloSharding, seed: int) -> list[np.ndarray]:
    """Tiles that devices have: those of one tile add up to it."""
    random, made = np.random.default_rng(seed), dict[int, np.ndarray]()
    dims = sharding.data_dims if sharding.is_tiled() else (1,) * total.ndim
    by_device = {
        device: tuple(
            slice(start, start + size)
            for start, size in zip(
                sharding.tile_offset(total.shape, device), sharding.tile_shape(total.shape), strict=True
            )
        )
        if max(dims) > 1
        else (slice(None),) * total.ndim
        for device in range(DEVICES)
    }
    for device in range(DEVICES):
        if device in made:
            continue
        same = [other for other in range(DEVICES) if by_device[other] == by_device[device]]
        places = {other: term_of(sharding, other) for other in same}
        kinds = sorted(set(places.values()))
        parts = random.normal(size=(len(kinds), *total[by_device[device]].shape))
        parts[-1] = total[by_device[device]] - parts[:-1].sum(0)
        made.update({other: parts[kinds.index(places[other])].astype(np.float32) for other in same})
    return [made[device] for device in range(DEVICES)]


def check(steps: list[int], shardings: tuple[str, str], seed: int) -> None:
    def program(x: Any, y: Any) -> Any:
        found = x
        for step in steps:
            found = STEPS[step](found, y)
        return found, x + y

    arrays = [np.random.default_rng((seed, n)).uniform(0.5, 1.5, (8, 8)).astype(np.float32) for n in range(2)]
    module = hs.trace(program)(*arrays)
    module.num_partitions = DEVICES
    given_as = [hs.HloSharding.parse(text) for text in shardings]
    for parameter, sharding in zip(module.entry.parameters, given_as, strict=True):
        module.shardings[parameter.id] = sharding
    local = hs.partition(module, num_partitions=DEVICES)
    inputs, outputs = local.program.boundary
    given = [terms(array, each.sharding, seed + n) for n, (array, each) in enumerate(zip(arrays, inputs, strict=True))]
    made = run_local(local.module, dict(enumerate(map(list, zip(*given, strict=True)))), DEVICES)
    for number, (expected, output) in enumerate(zip(jax.jit(program)(*arrays), outputs, strict=True)):
        found = assemble([made[device][number] for device in range(DEVICES)], output.sharding, expected.shape)
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, len(STEPS) - 1), min_size=1, max_size=4),
    st.tuples(st.sampled_from(SHARDINGS), st.sampled_from((*SHARDINGS, "{replicated}"))),
    st.integers(0, 99),
)
def test_chains_of_ops_are_those_of_the_sums(steps: list[int], shardings: tuple[str, str], seed: int) -> None:
    check(steps, shardings, seed)


@pytest.mark.parametrize("sharding", SHARDINGS)
@pytest.mark.parametrize("step", range(len(STEPS)))
def test_each_op_is_that_of_the_sums(step: int, sharding: str) -> None:
    check([step], (sharding, sharding), 0)
