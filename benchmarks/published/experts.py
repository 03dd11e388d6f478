"""Feed-forward layers of experts as people write them: dense dispatch (GShard), and sorted dispatch (MegaBlocks), over
all of a batch or sequence by sequence."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

Weights = Any


@dataclass(frozen=True, kw_only=True)
class Experts:
    """Of a layer, each with a gate (Mixtral, DeepSeek)."""

    count: int
    chosen: int
    hidden: int
    """Of an expert."""
    shared: int = 0
    """Experts that every token takes."""
    dense_layers: int = 0
    """The first layers that have none."""
    dispatch: str = "dense"
    """`dense`: one-hot products into slots of each expert; `sorted`: tokens by expert, `jax.lax.ragged_dot`;
    `sorted apart`: those of each sequence by themselves."""
    capacity: float = 2.0
    """Slots of an expert over its fair share of a sequence's tokens; a token that finds none is left out."""

    def shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """Of a layer's weights."""
        matrices = {"gate": (width, self.hidden), "up": (width, self.hidden), "down": (self.hidden, width)}
        routed = {name: (self.count, *dims) for name, dims in matrices.items()}
        always = {
            f"shared_{name}": tuple(d if d == width else d * self.shared for d in dims)
            for name, dims in matrices.items()
        }
        return {"router": (width, self.count), **routed, **(always if self.shared else {})}


def feed_forward(experts: Experts, weights: Weights, x: jax.Array) -> jax.Array:
    """Each token's experts, weighted by a softmax over those chosen, and the shared ones."""
    weights = {name: leaf if name == "router" else leaf.astype(x.dtype) for name, leaf in weights.items()}
    scores, chosen = jax.lax.top_k(x.astype(jnp.float32) @ weights["router"], experts.chosen)
    shares = jax.nn.softmax(scores, axis=-1).astype(x.dtype)
    mixed = DISPATCHES[experts.dispatch](experts, weights, x, shares, chosen)
    return mixed + _shared(weights, x) if experts.shared else mixed


def _shared(weights: Weights, x: jax.Array) -> jax.Array:
    return (jax.nn.silu(x @ weights["shared_gate"]) * (x @ weights["shared_up"])) @ weights["shared_down"]


def _dense(experts: Experts, weights: Weights, x: jax.Array, shares: jax.Array, chosen: jax.Array) -> jax.Array:
    """GShard (Lepikhin et al. 2020): each sequence is a group, its tokens take slots in their order."""
    batch, length, _ = x.shape
    slots = int(experts.capacity * length * experts.chosen / experts.count)
    picks = jax.nn.one_hot(chosen, experts.count, dtype=jnp.int32)
    flat = picks.reshape(batch, length * experts.chosen, experts.count)
    slot = (jnp.cumsum(flat, axis=1) * flat - 1).reshape(picks.shape)  # -1: not this expert, a row of zeros
    places = jax.nn.one_hot(slot, slots, dtype=x.dtype)
    combine = jnp.einsum("bsk,bskec->bsec", shares, places)
    dispatch = (combine > 0).astype(x.dtype)
    rows = jnp.einsum("bsec,bsw->ebcw", dispatch, x)
    gate, up = (jnp.einsum("ebcw,ewh->ebch", rows, weights[name]) for name in ("gate", "up"))
    made = jnp.einsum("ebch,ehw->ebcw", jax.nn.silu(gate) * up, weights["down"])
    return jnp.einsum("bsec,ebcw->bsw", combine, made)


def _sorted(experts: Experts, weights: Weights, x: jax.Array, shares: jax.Array, chosen: jax.Array) -> jax.Array:
    """MegaBlocks (Gale et al. 2022): all tokens by expert, none left out."""
    tokens, picks = x.reshape(-1, x.shape[-1]), chosen.reshape(-1)
    order = jnp.argsort(picks)
    product = partial(jax.lax.ragged_dot, group_sizes=jnp.bincount(picks, length=experts.count))
    rows = tokens[order // experts.chosen]
    made = product(jax.nn.silu(product(rows, weights["gate"])) * product(rows, weights["up"]), weights["down"])
    weighed = made * shares.reshape(-1)[order, None]
    return jnp.zeros_like(tokens).at[order // experts.chosen].add(weighed).reshape(x.shape)


_OF_SEQUENCES = jax.lax.RaggedDotDimensionNumbers((((2,), (1,)), ((), ())), [1], [0])


def _sorted_apart(experts: Experts, weights: Weights, x: jax.Array, shares: jax.Array, chosen: jax.Array) -> jax.Array:
    """The same with as many groups of each expert as there are sequences: no row leaves its sequence."""
    picks = chosen.reshape(len(x), -1)
    order, sizes = jnp.argsort(picks, axis=1), jax.vmap(partial(jnp.bincount, length=experts.count))(picks)
    product = partial(jax.lax.ragged_dot_general, group_sizes=sizes, ragged_dot_dimension_numbers=_OF_SEQUENCES)
    places = order // experts.chosen
    rows = jnp.take_along_axis(x, places[..., None], axis=1)
    made = product(jax.nn.silu(product(rows, weights["gate"])) * product(rows, weights["up"]), weights["down"])
    weighed = made * jnp.take_along_axis(shares.reshape(picks.shape), order, axis=1)[..., None]
    return jax.vmap(lambda x, at, rows: jnp.zeros_like(x).at[at].add(rows))(x, places, weighed)


DISPATCHES = {"dense": _dense, "sorted": _sorted, "sorted apart": _sorted_apart}
