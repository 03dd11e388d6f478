"""A decoder-only transformer under seven plans: data, tensor, sequence, FSDP, FSDP in a scan, ZeRO-1, context.

The model is one; a plan is what is said of its parameters, its activations and its optimizer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.zoo import parts
from benchmarks.zoo.parts import DATA_BY_MODEL, Draw, Model, Program, Tree

LAYERS, HEADS = 2, 8
# What a plan says of an activation: a named point of the model, and the value there.
At = Callable[[str, jax.Array], jax.Array]
# PartitionSpecs of weights, by name; of activations, by point.
TENSOR_WEIGHTS = {
    "qkv": P(None, None, "model", None),
    "out": P("model", None, None),
    "up": P(None, "model"),
    "down": P("model", None),
    "embedding": P("model", None),
}


def init(scale: int) -> Tree:
    draw, width, head = Draw(), 64 * scale, 8 * scale
    layer = {
        "qkv": lambda: draw.weight(width, 3, HEADS, head),
        "out": lambda: draw.weight(HEADS, head, width, fan_in=width),
        "up": lambda: draw.weight(width, 4 * width),
        "down": lambda: draw.weight(4 * width, width),
    }
    return {
        "embedding": draw.weight(128 * scale, width),
        "positions": draw.weight(32 * scale, width),
        "layers": [
            {name: make() for name, make in layer.items()}
            | {"first": parts.norm_weights(width), "second": parts.norm_weights(width)}
            for _ in range(LAYERS)
        ],
        "final": parts.norm_weights(width),
    }


def tokens(scale: int) -> np.ndarray:
    return Draw(1).integers(128 * scale, 16, 32 * scale + 1)


def block(layer: Tree, x: jax.Array, at: At) -> jax.Array:
    """Attention and MLP, each with its norm and its residual."""
    causal = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
    qkv = jnp.einsum("btd,dchk->btchk", parts.layer_norm(layer["first"], x), at("qkv", layer["qkv"]))
    query, key, value = (at("heads", part) for part in jnp.moveaxis(qkv, 2, 0))
    mixed = parts.attend(query, at("keys", key), at("keys", value), causal)
    x = at("stream", x + jnp.einsum("bqhk,hkd->bqd", mixed, at("out", layer["out"])))
    hidden = jax.nn.gelu(at("hidden", parts.layer_norm(layer["second"], x) @ at("up", layer["up"])))
    return at("stream", x + hidden @ at("down", layer["down"]))


def loss(params: Tree, batch: jax.Array, at: At) -> jax.Array:
    """Mean cross entropy of the next token; the head is the embedding, transposed."""
    batch = at("tokens", batch)
    embedding = at("embedding", params["embedding"])
    x = at("stream", embedding[batch[:, :-1]] + params["positions"])
    for layer in params["layers"]:
        x = block(layer, x, at)
    return parts.cross_entropy(parts.layer_norm(params["final"], x) @ embedding.T, batch[:, 1:])


def scanned_loss(params: Tree, batch: jax.Array, at: At) -> jax.Array:
    """The same with stacked layers, in a scan that recomputes each layer on the way back."""
    batch = at("tokens", batch)
    embedding = at("embedding", params["embedding"])
    x = at("stream", embedding[batch[:, :-1]] + params["positions"])
    body = jax.checkpoint(lambda x, layer: (block(layer, x, at), None))
    x, _ = jax.lax.scan(body, x, params["layers"])
    return parts.cross_entropy(parts.layer_norm(params["final"], x) @ embedding.T, batch[:, 1:])


def speaker(mesh: Mesh, said: dict[str, P]) -> At:
    """Annotates the points that `said` names and leaves the rest to propagation."""

    def at(point: str, x: jax.Array) -> jax.Array:
        spec = said.get(point)
        return x if spec is None else jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))

    return at


def annotated(said: dict[str, P]) -> Callable[[Mesh, int], Program]:
    """A plan of annotations inside the function alone; Adam."""

    def build(mesh: Mesh, scale: int) -> Program:
        params, at = init(scale), speaker(mesh, said)
        step = parts.adam_trainer(lambda params, batch: loss(params, batch, at))
        return Program(function=step, arguments=(params, Draw(2).adam(params), tokens(scale)))

    return build


# Plans that split what the trainer keeps


def first_even_dim(x: Any, ways: int) -> P:
    """A split of the first dim that `ways` divides; whole where there is none."""
    dims = [n for n, size in enumerate(x.shape) if size >= ways and size % ways == 0]
    return P(*[None] * dims[0], "data") if dims else P()


def fully_sharded(tree: Tree, mesh: Mesh) -> Tree:
    """A NamedSharding a leaf: its first even dim over all devices."""
    return jax.tree.map(lambda x: NamedSharding(mesh, first_even_dim(x, 8)), tree)


def build_fsdp(mesh: Mesh, scale: int) -> Program:
    """Parameters and optimizer split over all devices, gathered where used; gradients come back split."""
    params, at = init(scale), speaker(mesh, {"tokens": P("data"), "stream": P("data")})
    return _kept_split(lambda params, batch: loss(params, batch, at), params, mesh, scale)


def build_fsdp_scan(mesh: Mesh, scale: int) -> Program:
    """FSDP with the layers in a scan: one layer's weights are gathered at a time."""
    params, at = init(scale), speaker(mesh, {"tokens": P("data"), "stream": P("data")})
    params["layers"] = jax.tree.map(lambda *leaves: np.stack(leaves), *params["layers"])
    return _kept_split(lambda params, batch: scanned_loss(params, batch, at), params, mesh, scale)


def _kept_split(fn: Callable[..., jax.Array], params: Tree, mesh: Mesh, scale: int) -> Program:
    optimizer, whole = Draw(2).adam(params), NamedSharding(mesh, P())
    kept = fully_sharded(params, mesh), fully_sharded(optimizer, mesh)
    options = {
        "in_shardings": (*kept, NamedSharding(mesh, P("data"))),
        "out_shardings": (*kept, whole),
    }
    return Program(function=parts.adam_trainer(fn), arguments=(params, optimizer, tokens(scale)), options=options)


def build_zero1(mesh: Mesh, scale: int) -> Program:
    """Parameters on every device, the optimizer's state split: each device updates its share."""
    params, at = init(scale), speaker(mesh, {"tokens": P("data"), "stream": P("data")})
    optimizer, whole = Draw(2).adam(params), NamedSharding(mesh, P())
    kept = fully_sharded(optimizer, mesh)
    options = {
        "in_shardings": (whole, kept, NamedSharding(mesh, P("data"))),
        "out_shardings": (whole, kept, whole),
    }
    step = parts.adam_trainer(lambda params, batch: loss(params, batch, at))
    return Program(function=step, arguments=(params, optimizer, tokens(scale)), options=options)


DATA = {"tokens": P("data"), "stream": P("data")}
TENSOR = DATA | TENSOR_WEIGHTS
SEQUENCE = TENSOR | {"stream": P("data", "model")}
CONTEXT = {"stream": P("data", "model"), "heads": P("data", "model"), "keys": P("data"), "tokens": P("data")}
ALL = (("data", 8),)

MODELS = (
    Model(name="transformer, data", axes=ALL, build=annotated(DATA)),
    Model(name="transformer, tensor", axes=DATA_BY_MODEL, build=annotated(TENSOR)),
    Model(name="transformer, sequence", axes=DATA_BY_MODEL, build=annotated(SEQUENCE)),
    Model(name="transformer, context", axes=DATA_BY_MODEL, build=annotated(CONTEXT)),
    Model(name="transformer, FSDP", axes=ALL, build=build_fsdp),
    Model(name="transformer, FSDP in a scan", axes=ALL, build=build_fsdp_scan),
    Model(name="transformer, ZeRO-1", axes=ALL, build=build_zero1),
)
