"""Long convolutions by FFT (as in Hyena), and a Fourier neural operator over a split grid."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from benchmarks.zoo import parts
from benchmarks.zoo.parts import DATA_BY_MODEL, Draw, Model, Program, Tree

MODES = 8


def build_convolution(mesh: Mesh, scale: int) -> Program:
    """Channels are split; the filter is as long as the sequence, zero padding keeps it causal."""
    say, draw, width, time = parts.annotator(mesh), Draw(), 32 * scale, 64 * scale
    params = {
        "enter": draw.weight(width, 3 * width),
        "filter": draw.normal(time, width) / time,
        "leave": draw.weight(width, width),
    }

    def loss(params: Tree, x: jax.Array, target: jax.Array) -> jax.Array:
        projected = say(x, "data") @ say(params["enter"].reshape(width, 3, width), None, None, "model").reshape(
            width, 3 * width
        )
        value, first, second = jnp.split(projected, 3, axis=-1)
        spectrum = jnp.fft.rfft(value * first, 2 * time, axis=1) * jnp.fft.rfft(params["filter"], 2 * time, axis=0)
        y = second * jnp.fft.irfft(spectrum, 2 * time, axis=1)[:, :time]
        return jnp.square(y @ say(params["leave"], "model") - target).mean()

    shape = 8, time, width
    return parts.training(loss, params, draw.normal(*shape), draw.normal(*shape))


def build_operator(mesh: Mesh, scale: int) -> Program:
    """A two-dimensional grid whose rows are split: the transform along them needs all rows."""
    say, draw, width, grid = parts.annotator(mesh), Draw(), 8 * scale, 32 * scale
    params = {
        "lift": draw.weight(3, width),
        "real": draw.weight(MODES, MODES, width, width, fan_in=width),
        "imaginary": draw.weight(MODES, MODES, width, width, fan_in=width),
        "local": draw.weight(width, width),
        "read": draw.weight(width, 1),
    }

    def loss(params: Tree, x: jax.Array, target: jax.Array) -> jax.Array:
        x = say(x, "data", "model") @ params["lift"]
        spectrum = jnp.fft.rfft2(x, axes=(1, 2))[:, :MODES, :MODES]
        mixed = jnp.einsum("bxyi,xyio->bxyo", spectrum, params["real"] + 1j * params["imaginary"])
        full = jnp.zeros((x.shape[0], grid, grid // 2 + 1, width), mixed.dtype).at[:, :MODES, :MODES].set(mixed)
        y = jax.nn.gelu(jnp.fft.irfft2(full, (grid, grid), axes=(1, 2)) + x @ params["local"])
        return jnp.square((y @ params["read"])[..., 0] - target).mean()

    return parts.training(loss, params, draw.normal(8, grid, grid, 3), draw.normal(8, grid, grid))


MODELS = (
    Model(name="FFT convolution", axes=DATA_BY_MODEL, build=build_convolution),
    Model(name="Fourier neural operator", axes=DATA_BY_MODEL, build=build_operator),
)
