"""A Flax NNX model with an Optax optimizer, as their users write them, with only shardings added.

python examples/flax_nnx.py
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # else XLA says at each comparison that GSPMD will go away

import jax
from jax.sharding import Mesh

import hlosharding as hs
from examples import devices, walk
from examples.models import nnx_classifier as classifier


def train(compiler: Callable[..., Any], config: classifier.Config, mesh: Mesh) -> Iterator[float]:
    """The loss of each training step, compiled by `compiler`: jax.jit, or hs.jit in its place."""
    static, state = classifier.build(config, mesh)
    step = compiler(classifier.training_step(static), **classifier.jit_options(state, mesh))
    for tokens, labels in classifier.batches(config):
        state, loss = step(state, tokens, labels)
        yield float(loss)


def main() -> None:
    """Show the program, then train on all devices and on one."""
    devices.choose_platform()
    console, config = walk.wide_console(), classifier.Config()
    mesh, single = devices.data_by_model(), devices.one_device()
    console.print(f"[bold]Flax NNX training step[/bold] on {mesh}\n")
    static, state = classifier.build(config, mesh)
    arguments = classifier.abstract_arguments(config, mesh)
    options = classifier.jit_options(state, mesh)
    walk.show_program(
        console, "flax_nnx_step", classifier.training_step(static), arguments, mesh, why="labels", **options
    )
    sharded = train(lambda step, **options: hs.jit(step, mesh=mesh, **options), config, mesh)
    walk.show_losses(console, sharded, train(jax.jit, config, single), mesh)


if __name__ == "__main__":
    main()
