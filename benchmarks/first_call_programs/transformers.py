"""Transformers and mixers: an encoder with a classifier, Llama in a scan, mixtures of experts, MLP-mixer."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.zoo import parts
from benchmarks.zoo.parts import DATA_BY_MODEL, Draw, Model, Program, Say, Tree

DATA = (("data", 8),)


def attention_weights(draw: Draw, width: int, heads: int, groups: int) -> Tree:
    """`groups` heads of keys and values, which `heads` queries share."""
    head = width // heads
    return {
        "query": draw.weight(width, heads, head),
        "key": draw.weight(width, groups, head),
        "value": draw.weight(width, groups, head),
        "out": draw.weight(heads, head, width, fan_in=width),
    }


def encoder_classifier(mesh: Mesh, scale: int) -> Program:
    """Eight layers of BERT, the first token classified; data by tensor, Adam."""
    draw, width, say = Draw(), 64 * scale, parts.annotator(mesh)
    layer = lambda: {  # noqa: E731
        "attention": attention_weights(draw, width, 8, 8),
        "first": parts.norm_weights(width),
        "second": parts.norm_weights(width),
        "up": draw.weight(width, 4 * width),
        "down": draw.weight(4 * width, width),
    }
    params = {
        "tokens": draw.weight(512 * scale, width, fan_in=width),
        "places": draw.weight(32 * scale, width, fan_in=width),
        "layers": [layer() for _ in range(8)],
        "pooler": draw.weight(width, width),
        "head": draw.weight(width, 16),
    }

    def encode(own: Tree, x: jax.Array, mask: jax.Array) -> jax.Array:
        a = own["attention"]
        query, key, value = (
            say(jnp.einsum("btd,dhk->bthk", x, a[name]), "data", None, "model") for name in ("query", "key", "value")
        )
        mixed = parts.attend(query, key, value, mask[:, None, None, :])
        x = parts.layer_norm(own["first"], x + jnp.einsum("bqhk,hkd->bqd", mixed, a["out"]))
        hidden = say(jax.nn.gelu(x @ own["up"]), "data", None, "model")
        return parts.layer_norm(own["second"], x + hidden @ own["down"])

    def loss(params: Tree, tokens: jax.Array, labels: jax.Array) -> jax.Array:
        tokens = say(tokens, "data")
        x = params["tokens"][tokens] + params["places"]
        for own in params["layers"]:
            x = encode(own, x, tokens != 0)
        return parts.cross_entropy(jnp.tanh(x[:, 0] @ params["pooler"]) @ params["head"], labels)

    batch = draw.integers(512 * scale, 16, 32 * scale), draw.integers(16, 16)
    return Program(function=parts.adam_trainer(loss), arguments=(params, draw.adam(params), *batch))


def rotated(x: jax.Array) -> jax.Array:
    """Rotary positions: pairs of numbers turned by an angle that grows with time."""
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * 1e4 ** (-jnp.arange(half) / half)
    cosine, sine = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)


def rms_norm(scale: jax.Array, x: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6) * scale


def llama(mesh: Mesh, scale: int) -> Program:
    """Eight layers in a scan with recomputation, grouped queries, SwiGLU; FSDP over `data`, tensors over `model`."""
    draw, width, layers = Draw(), 64 * scale, 8

    def stacked(weights: Tree) -> Tree:
        return jax.tree.map(lambda w: np.broadcast_to(w, (layers, *w.shape)).copy(), weights)

    layer = attention_weights(draw, width, 8, 4) | {
        "gate": draw.weight(width, 3 * width),
        "up": draw.weight(width, 3 * width),
        "down": draw.weight(3 * width, width),
        "first": np.ones(width, np.float32),
        "second": np.ones(width, np.float32),
    }
    specs = {
        "query": P(None, "data", "model"),
        "key": P(None, "data", "model"),
        "value": P(None, "data", "model"),
        "out": P(None, "model", None, "data"),
        "gate": P(None, "data", "model"),
        "up": P(None, "data", "model"),
        "down": P(None, "model", "data"),
        "first": P(),
        "second": P(),
    }
    params = {"embedding": draw.weight(256 * scale, width), "layers": stacked(layer), "final": np.ones(width, "f")}
    say = parts.annotator(mesh)

    def block(x: jax.Array, own: Tree) -> tuple[jax.Array, None]:
        y = rms_norm(own["first"], x)
        query, key, value = (jnp.einsum("btd,dhk->bthk", y, own[name]) for name in ("query", "key", "value"))
        key, value = (jnp.repeat(z, query.shape[2] // z.shape[2], axis=2) for z in (rotated(key), value))
        causal = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
        mixed = parts.attend(rotated(query), key, value, causal)
        x = say(x + jnp.einsum("bqhk,hkd->bqd", mixed, own["out"]), "data")
        y = rms_norm(own["second"], x)
        return say(x + (jax.nn.silu(y @ own["gate"]) * (y @ own["up"])) @ own["down"], "data"), None

    def loss(params: Tree, tokens: jax.Array) -> jax.Array:
        x = say(params["embedding"][tokens[:, :-1]], "data")
        x, _ = jax.lax.scan(jax.checkpoint(block), x, params["layers"])
        return parts.cross_entropy(rms_norm(params["final"], x) @ params["embedding"].T, tokens[:, 1:])

    placed: Tree = {
        "embedding": NamedSharding(mesh, P("model", "data")),
        "layers": {name: NamedSharding(mesh, spec) for name, spec in specs.items()},
        "final": NamedSharding(mesh, P()),
    }
    optimizer = draw.adam(params)
    whole: Any = NamedSharding(mesh, P())
    kept = placed, type(optimizer)(whole, placed, placed)
    options = {
        "in_shardings": (*kept, NamedSharding(mesh, P("data"))),
        "out_shardings": (*kept, whole),
    }
    tokens = draw.integers(256 * scale, 16, 32 * scale + 1)
    return Program(function=parts.adam_trainer(loss), arguments=(params, optimizer, tokens), options=options)


def routed(own: Tree, x: jax.Array, say: Say) -> jax.Array:
    """The two best of eight experts for each token, with room for twice the mean."""
    batch, time, experts = *x.shape[:2], own["gate"].shape[1]
    room = 4 * time // experts
    weights, chosen = jax.lax.top_k(jax.nn.softmax(x @ own["gate"]), 2)
    wanted = jax.nn.one_hot(chosen, experts).reshape(batch, 2 * time, experts)
    place = jnp.cumsum(wanted, axis=1) * wanted
    seat = jax.nn.one_hot(place.max(-1) - 1, room)
    send = (wanted[..., None] * seat[:, :, None, :]).reshape(batch, time, 2, experts, room)
    boxes = say(jnp.einsum("btkec,btd->becd", send, x), "data", "model")
    made = jnp.einsum("becf,efd->becd", jax.nn.gelu(jnp.einsum("becd,edf->becf", boxes, own["up"])), own["down"])
    return jnp.einsum("btkec,btk,becd->btd", send, weights, made)


def experts(mesh: Mesh, scale: int) -> Program:
    """Four layers of attention and experts, which are split over `model`."""
    draw, width, say = Draw(), 48 * scale, parts.annotator(mesh)
    params = [
        {
            "attention": attention_weights(draw, width, 8, 8),
            "first": np.ones(width, np.float32),
            "second": np.ones(width, np.float32),
            "gate": draw.weight(width, 8),
            "up": draw.weight(8, width, 2 * width, fan_in=width),
            "down": draw.weight(8, 2 * width, width, fan_in=2 * width),
        }
        for _ in range(4)
    ]

    def loss(params: Tree, x: jax.Array, target: jax.Array) -> jax.Array:
        x = say(x, "data")
        for own in params:
            y, a = rms_norm(own["first"], x), own["attention"]
            query, key, value = (jnp.einsum("btd,dhk->bthk", y, a[name]) for name in ("query", "key", "value"))
            x = x + jnp.einsum("bqhk,hkd->bqd", parts.attend(query, key, value), a["out"])
            x = x + routed(own, rms_norm(own["second"], x), say)
        return jnp.square(x - target).mean()

    return parts.training(loss, params, draw.normal(16, 64, width), draw.normal(16, 64, width))


def mixer(mesh: Mesh, scale: int) -> Program:
    """MLP-mixer: six blocks that mix patches, then channels; channels over `model`."""
    draw, width, patches, say = Draw(), 64 * scale, 64, parts.annotator(mesh)

    def mlp(before: int, inside: int) -> Tree:
        return {"up": draw.weight(before, inside), "down": draw.weight(inside, before)}

    params: Tree = {
        "stem": draw.weight(8, 8, 3, width, fan_in=192),
        "blocks": [
            {
                "patches": mlp(patches, 2 * patches),
                "channels": mlp(width, 4 * width),
                "first": parts.norm_weights(width),
                "second": parts.norm_weights(width),
            }
            for _ in range(6)
        ],
        "head": draw.weight(width, 100),
    }

    def mix(own: Tree, x: jax.Array, *split: Any) -> jax.Array:
        return jax.nn.gelu(say(x @ own["up"], *split)) @ own["down"]

    def loss(params: Tree, images: jax.Array, labels: jax.Array) -> jax.Array:
        layout = ("NHWC", "HWIO", "NHWC")
        x = jax.lax.conv_general_dilated(images, params["stem"], (8, 8), "VALID", dimension_numbers=layout)
        x = say(x.reshape(x.shape[0], -1, x.shape[-1]), "data")
        for own in params["blocks"]:
            y = parts.layer_norm(own["first"], x).swapaxes(1, 2)
            x = x + mix(own["patches"], y, "data", "model").swapaxes(1, 2)
            x = x + mix(own["channels"], parts.layer_norm(own["second"], x), "data", None, "model")
        return parts.cross_entropy(x.mean(1) @ params["head"], labels)

    return parts.training(loss, params, draw.normal(16, 64, 64, 3), draw.integers(100, 16))


MODELS = (
    Model(name="encoder classifier", axes=DATA_BY_MODEL, build=encoder_classifier),
    Model(name="Llama in a scan", axes=DATA_BY_MODEL, build=llama),
    Model(name="experts, top two", axes=DATA_BY_MODEL, build=experts),
    Model(name="MLP-mixer", axes=DATA_BY_MODEL, build=mixer),
)
