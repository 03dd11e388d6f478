"""Why is this replicated?  Five questions people ask, each a small program and the answer of `explain`.

python examples/why.py [attention|embedding|convolution|scan|fft]
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.ir import Instruction, Module


def mesh() -> Mesh:
    """Two by four devices: data and model."""
    return Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))


def f32(*dims: int) -> jax.ShapeDtypeStruct:
    """An f32 array to be."""
    return jax.ShapeDtypeStruct(dims, jnp.float32)


def attention() -> tuple[Module, str]:
    """Sequence split over model: the scores of all pairs of positions cannot keep both splits."""

    def heads(q: jax.Array, k: jax.Array) -> jax.Array:
        scores = jnp.einsum("bqd,bkd->bqk", q, k)
        return scores.mean(axis=(0, 1))

    spec = P("data", "model", None)
    module = hs.trace(heads, mesh=mesh(), in_shardings=(spec, spec))(f32(8, 64, 32), f32(8, 64, 32))
    return module, "reduce"


def embedding() -> tuple[Module, str]:
    """Only the tokens are split: is the gradient of the table?"""

    def loss(table: jax.Array, tokens: jax.Array) -> jax.Array:
        return (table[tokens] ** 2).sum()

    tokens = jax.ShapeDtypeStruct((16,), jnp.int32)
    return hs.trace(jax.grad(loss), mesh=mesh(), in_shardings=(None, P("data")))(f32(64, 32), tokens), "scatter"


def convolution() -> tuple[Module, str]:
    """The channels of an image are split, the kernel is small."""

    def correlate(x: jax.Array, kernel: jax.Array) -> jax.Array:
        return jax.lax.conv(x, kernel, (1, 1), "SAME")

    spec = P(None, "model", None, None)
    module = hs.trace(correlate, mesh=mesh(), in_shardings=(spec, None))(f32(4, 8, 16, 16), f32(5, 8, 3, 3))
    return module, "convolution"


def scan() -> tuple[Module, str]:
    """The rows are split along the axis that is scanned: what is left for the carry?"""

    def roll(weights: jax.Array, rows: jax.Array) -> jax.Array:
        def step(carry: jax.Array, row: jax.Array) -> tuple[jax.Array, None]:
            return weights @ (carry + row), None

        return jax.lax.scan(step, jnp.zeros(16), rows)[0]

    module = hs.trace(roll, mesh=mesh(), in_shardings=(None, P("model")))(f32(16, 16), f32(8, 16))
    return module, "get-tuple-element"


def fft() -> tuple[Module, str]:
    """A batch of signals, split by batch, goes through an FFT."""

    def spectrum(x: jax.Array) -> jax.Array:
        return jnp.abs(jnp.fft.rfft(x)) + 1

    return hs.trace(spectrum, mesh=mesh(), in_shardings=(P("data", None),))(f32(8, 64)), "abs"


QUESTIONS: dict[str, Callable[[], tuple[Module, str]]] = {
    "attention": attention,
    "embedding": embedding,
    "convolution": convolution,
    "scan": scan,
    "fft": fft,
}


def asked_about(module: Module, opcode: str) -> Instruction:
    """The last instruction of an opcode in the entry."""
    return [i for i in module.entry.instructions if i.opcode == opcode][-1]


def answer(question: str) -> str:
    """The explanation of the value a question is about."""
    module, opcode = QUESTIONS[question]()
    return str(hs.propagate(module).explain(asked_about(module, opcode).name))


def main(questions: list[str]) -> None:
    """Print the answers asked for, or all."""
    for question in questions or list(QUESTIONS):
        print(f"{question}: {(QUESTIONS[question].__doc__ or '').strip()}")
        print(answer(question) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
